# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""k3s and RKE2, which generate containerd's configuration at every start and find the nvidia runtime by themselves.

Normally a restart is all that is needed. Files are written in three cases only:

* a site's own template (C(config.toml.tmpl), C(config-v3.toml.tmpl)) that does not take over C({{ template "base" . }})
  switches the detection off: the runtime is appended to it, in a marked block;
* a template of the site's in which the GPU Operator's toolkit has written its own runtime names the host's instead, and its drop-in is moved aside;
* nvidia as the default runtime is C(default-runtime) in a file of ours in C(config.yaml.d). It cannot be set in a
  template after the base, which has that table already (TOML allows it once).

The generated C(config.toml) is only ever read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from .._formats.toml_edit import BEGIN, END, render_tables
from .._formats.toml_read import Path
from .._migration import FORMER
from .._plan import Refused
from .._runtimes import FileFaultFacts
from .._steps import ASIDE
from .containerd import LEFTOVERS, RUNTIME_TYPE, covers, effective, is_leftover
from .desired import BINARY, NAME, DesiredRuntime, Effective, FileChange, Files, refuse

_BLOCK = re.compile(rf"(?:\A|\n){re.escape(BEGIN)}\n.*?{re.escape(END)}(?:\n|\Z)", re.DOTALL)
#: Templates that keep the detection of runtimes: the base template, or its list of found runtimes.
_DETECTS = re.compile(r"\{\{-?\s*template\s+\"base\"\s+\.\s*-?\}\}|\.ExtraRuntimes\b")
#: The CRI plugin in a template of each version.
_CRI = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
#: What the base template has beside plugins.
_WHOLE = ("root", "state", "address")
_BASE = re.compile(r"\{\{-?\s*template\s+\"base\"")
_FORMER_BINARY = re.compile(rf"""(["']){FORMER}/{posixpath.basename(BINARY)}\1""")
#: Of a template, which is no TOML, and of what is generated.
_IMPORTS = re.compile(r"^\s*imports\s*=\s*\[([^\]]*)\]", re.MULTILINE)
_QUOTED = re.compile(r"""(["'])(.*?)\1""")
_VERSION = re.compile(r"^\s*version\s*=\s*([0-9]{1,4})\b", re.MULTILINE)


@dataclass(frozen=True)
class Places:
    """Where a distribution keeps what."""

    generated: str
    template: str
    template_v3: str
    default_runtime: str


def places(distribution: str) -> Places:
    """Return the paths of C(k3s) or C(rke2)."""
    folder = f"/var/lib/rancher/{distribution}/agent/etc/containerd"
    return Places(
        generated=f"{folder}/config.toml",
        template=f"{folder}/config.toml.tmpl",
        template_v3=f"{folder}/config-v3.toml.tmpl",
        default_runtime=f"/etc/rancher/{distribution}/config.yaml.d/99-gpufleet-nvidia.yaml",
    )


def edit(distribution: str, files: Mapping[str, str], desired: DesiredRuntime) -> Files:
    """Return what the files become. C(files): texts by path, of those in L(places) that exist; the generated one is not changed."""
    where = places(distribution)
    refuse(fault(distribution, files) if desired.present else None, distribution, desired.default)
    changes = [
        FileChange(path, files[path], _template(files[path], version, desired))
        for path, version in ((where.template, 2), (where.template_v3, 3))
        if path in files
    ]
    default = f"# Written by gpufleet.nvidia; changes are overwritten.\ndefault-runtime: {NAME}\n"
    wanted = default if desired.present and desired.default else None
    changes.append(FileChange(where.default_runtime, files.get(where.default_runtime), wanted))
    left = _imported_leftovers(where, files) if desired.present else []
    for path in left:
        changes += [FileChange(path, files[path], None), FileChange(path + ASIDE, None, files[path])]
    return Files(
        tuple(changes), tuple(f"{path} was written by nvidia-ctk and is moved to {path}{ASIDE}" for path in left)
    )


def _imported_leftovers(where: Places, files: Mapping[str, str]) -> list[str]:
    """Return the drop-ins that a template which the operator's toolkit has made import them would take after ours. Others are none of the distribution's."""
    texts = [files[path] for path in (where.generated, *read_templates(where, files)) if path in files]
    patterns = [one for text in texts for found in _IMPORTS.findall(text) for _quote, one in _QUOTED.findall(found)]
    folder, found = posixpath.dirname(where.generated), []
    for path in LEFTOVERS:
        if FORMER in files.get(path, "") and any(covers(posixpath.join(folder, one), path) for one in patterns):
            # containerd itself names one that is broken.
            with suppress(ValueError):
                found += [path] if is_leftover(files[path]) else []
    return found


def read_templates(where: Places, files: Mapping[str, str]) -> list[str]:
    """Return the templates that the next start may take. Releases that generate version 3 take that of version 2 where there is no other (k3s'
    documentation, "Configuring containerd"); those before them know no other, and what was generated of version 2 does not tell which it is.
    """
    number = _VERSION.search(files.get(where.generated, ""))
    there = [path for path in (where.template_v3, where.template) if path in files]
    return there[:1] if number and number.group(1) == "3" else there


def refuse_former(distribution: str, move: bool) -> None:
    """Refuse a toolkit of the GPU Operator, which would be taken for the host's. Raises Refused: it may not be moved."""
    if not move:
        raise Refused(
            FORMER,
            f"the GPU Operator has left its toolkit there, and {distribution} takes nvidia-container-runtime from there before {BINARY}",
            "Switch the operator's toolkit off (toolkit.enabled: false), then remove the folder, or set nvidia_toolkit_move_former: true.",
        )


def fault(distribution: str, files: Mapping[str, str]) -> FileFaultFacts | None:
    """Return a template with which the distribution would not start: without the base template, it has to be whole. C(files): as in L(edit)."""
    where = places(distribution)
    generated = files.get(where.generated, "")
    # Releases that hand them to containerd as arguments generate none of them.
    as_arguments = "[plugins" in generated and len(_missing(generated)) == len(_WHOLE)
    for path in read_templates(where, files):
        text = _without_block(files[path])
        missing = _missing(text)
        if missing and not as_arguments and not _BASE.search(text):
            return FileFaultFacts("stub", path, (", ".join(missing),))
    return None


def _missing(text: str) -> list[str]:
    return [key for key in _WHOLE if not re.search(rf"^\s*{key}\s*=", text, re.MULTILINE)]


def expected(distribution: str, files: Mapping[str, str], binary: str) -> Effective:
    """Return what the distribution will generate at its next start.

    :param files: texts as in L(edit), after the change.
    :param binary: of nvidia-container-runtime, which is found by itself unless a template switches that off.
    """
    where = places(distribution)
    generated = effective(files.get(where.generated, ""))
    templates = [files[path] for path in read_templates(where, files)]
    found = all(detects(template) or _has_runtime(template) for template in templates)
    # What the generated file has of a default runtime of ours goes with our file.
    former = generated.default_runtime if generated.default_runtime != NAME else None
    default = NAME if where.default_runtime in files else former or "runc"
    return Effective(binary=binary if found else None, default_runtime=default, cdi=generated.cdi)


def _has_runtime(template: str) -> bool:
    return bool(re.search(rf"runtimes\.[\"']?{NAME}[\"']?\s*\]", template))


def detects(template: str) -> bool:
    """Return whether a template leaves the detection of the nvidia runtime on."""
    return bool(_DETECTS.search(template))


def _template(text: str, version: int, desired: DesiredRuntime) -> str:
    base = _without_block(text)
    if desired.present:
        base = _FORMER_BINARY.sub(rf"\g<1>{desired.binary}\g<1>", base)
    if not desired.present or detects(base) or _has_runtime(base):
        return base
    found = _VERSION.search(base)
    number = int(found.group(1)) if found else version
    runtime: Path = ("plugins", "cri" if number == 1 else _CRI[version], "containerd", "runtimes", NAME)
    options = {"BinaryName": desired.binary}
    tables = render_tables({runtime: {"runtime_type": RUNTIME_TYPE}, (*runtime, "options"): options})
    # .SystemdCgroup is what k3s and RKE2 hand to every template for runc.
    body = f"{BEGIN}\n{tables}  SystemdCgroup = {{{{ .SystemdCgroup }}}}\n{END}"
    if base == "":
        return body + "\n"
    return f"{base}\n{body}\n" if base.endswith("\n") else f"{base}\n\n{body}"


def _without_block(text: str) -> str:
    match = _BLOCK.search(text)
    if match is None:
        return text
    head, tail = text[: match.start()], text[match.end() :]
    if not match.group().endswith("\n") and head.endswith("\n"):
        head = head[:-1]
    elif match.group().endswith("\n") and head and not head.endswith("\n"):
        head += "\n"
    return head + tail
