# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O's drop-in: a whole file of ours. CRI-O merges drop-ins setting by setting, and runtime tables by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .toml_edit import append_tables, is_marked
from .toml_read import Path, dig, parse
from .wish import NAME, Effective, FileChange, Files, RuntimeWish

FOLDER = "/etc/crio/crio.conf.d"
DROP_IN = f"{FOLDER}/99-gpufleet-nvidia.conf"
#: What nvidia-ctk wrote: up to 1.19.0 where CRI-O never reads it, later into the right folder.
LEFTOVERS = ("/etc/crio/conf.d/99-nvidia.toml", f"{FOLDER}/99-nvidia.toml")
ASIDE = ".disabled-by-gpufleet"


def edit(files: Mapping[str, str], wish: RuntimeWish, path: str = DROP_IN) -> Files:
    """Return what CRI-O's drop-ins become.

    :param files: texts of our own drop-in and of leftovers, those that exist.
    """
    after: str | None = None
    if wish.present:
        tables: dict[Path, dict[str, Any]] = {}
        if wish.default:
            tables[("crio", "runtime")] = {"default_runtime": NAME}
        tables[("crio", "runtime", "runtimes", NAME)] = {"runtime_path": wish.binary, "runtime_type": "oci"}
        after = append_tables("", tables)
    changes = [FileChange(path, files.get(path), after)]
    warnings = []
    for leftover in LEFTOVERS:
        # CRI-O reads every file of its folder, whatever it is called: what is moved aside leaves the folder.
        if leftover in files and leftover != path and is_leftover(files[leftover]):
            aside = f"/etc/crio/{leftover.rsplit('/', 1)[1]}{ASIDE}"
            changes += [FileChange(leftover, files[leftover], None), FileChange(aside, None, files[leftover])]
            warnings.append(f"{leftover} was written by nvidia-ctk and is moved to {aside}")
    return Files(tuple(changes), tuple(warnings))


def is_leftover(text: str) -> bool:
    """Return whether C(text) is a drop-in of nvidia-ctk: nothing but the table crio.runtime with the runtime in it."""
    if is_marked(text):
        return False
    document = parse(text)
    section = document.get(("crio", "runtime"), {})
    return (
        set(document.data) == {"crio"}
        and set(document.data["crio"]) == {"runtime"}
        and set(section) <= {"default_runtime", "runtimes"}
        and dig(section, ("runtimes", NAME)) is not None
    )


def effective(config: str) -> Effective:
    """Return what C(crio config) prints as being in force; CDI is always on (CRI-O 1.23 and newer).

    :raises TomlError: the text is not TOML.
    """
    section = parse(config).get(("crio", "runtime"), {})
    runtimes = dig(section, ("runtimes",), {})
    return Effective(
        binary=dig(runtimes, (NAME, "runtime_path")),
        default_runtime=dig(section, ("default_runtime",)) or None,
        cdi=True,
        runtimes=tuple(sorted(runtimes)),
    )


def parse_version(output: str) -> tuple[int, ...]:
    """Return the version that C(crio --version) prints; empty when there is none."""
    match = re.search(r"(?:version|Version:)\s+v?(\d+)\.(\d+)(?:\.(\d+))?", output)
    return tuple(int(part) for part in match.groups() if part is not None) if match else ()
