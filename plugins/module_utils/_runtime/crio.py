# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O's drop-in: a whole file of ours.

CRI-O merges drop-ins setting by setting, and a table of a runtime handler replaces the one of the same name as a whole: what our
handler does not say is CRI-O's built-in default, not the default handler's. Upstream's packages keep conmon and crun in
/usr/libexec/crio, outside of PATH, and name them in the handlers of their own drop-in, so that a handler without C(monitor_path)
keeps CRI-O from starting (nvidia-container-toolkit#681). Ours therefore has the settings of the low-level handler.

Sources: cri-o pkg/config/config.go (type RuntimeHandler, ValidateRuntimes, TranslateMonitorFieldsForHandler) and template.go (what
C(crio config) prints); nvidia-container-toolkit pkg/config/engine (which handler nvidia-ctk copies).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._formats.toml_read import Path, dig, parse
from .._steps import ASIDE
from .desired import NAME, DesiredRuntime, Effective, FileChange, Files

FOLDER = "/etc/crio/crio.conf.d"
DROP_IN = f"{FOLDER}/99-gpufleet-nvidia.conf"
#: What nvidia-ctk wrote: up to 1.19.0 where CRI-O never reads it, later into the right folder.
LEFTOVERS = ("/etc/crio/conf.d/99-nvidia.toml", f"{FOLDER}/99-nvidia.toml")
#: The low-level runtimes in the order in which NVIDIA looks for them after the default runtime.
_LOW_LEVEL = ("runc", "crun")
#: What a handler says about its own program. C(platform_runtime_paths) and C(inherit_default_runtime) would have CRI-O run that
#: program in place of ours, and a C(runtime_config_path) is for handlers of virtual machines only.
_OWN_PROGRAM = (
    "runtime_path",
    "runtime_type",
    "runtime_config_path",
    "platform_runtime_paths",
    "inherit_default_runtime",
)


@dataclass(frozen=True)
class Handler:
    """A runtime handler of CRI-O. C(name): of its table. C(settings): of its table."""

    name: str
    settings: Mapping[str, Any]

    @property
    def program(self) -> str | None:
        """The absolute path of its program; None where CRI-O looks the name up in PATH."""
        path = self.settings.get("runtime_path")
        return path if isinstance(path, str) and path.startswith("/") else None

    @property
    def monitor(self) -> str | None:
        """The absolute path of conmon; None where CRI-O looks it up in PATH."""
        return self.settings.get("monitor_path") or None

    @property
    def shared(self) -> dict[str, Any]:
        """What another handler that calls this one's program needs, too; empty values are CRI-O's defaults."""
        return {name: value for name, value in self.settings.items() if name not in _OWN_PROGRAM and value}


def low_level_handler(default: str | None, handlers: Mapping[str, Any]) -> Handler | None:
    """Return the handler whose program nvidia-container-runtime calls: the default one, or else runc or crun.

    :param default: the name of the default runtime; None where no file names one.
    :param handlers: the tables below C(crio.runtime.runtimes), by name.
    """
    for name in (default, *_LOW_LEVEL):
        settings = handlers.get(name) if name and not name.startswith(NAME) else None
        # The monitors of virtual machines and of conmon-rs (types vm and pod) cannot run ours.
        if isinstance(settings, Mapping) and settings.get("runtime_type") in (None, "", "oci"):
            return Handler(str(name), settings)
    return None


def handler_of(built_in: str, config: str) -> Handler | None:
    """Return the low-level handler of a host without our drop-in.

    :param built_in: what C(crio config --default) prints.
    :param config: what C(crio config) prints; what is as in C(built_in) is commented out there.
    :raises TomlError: one of them is not TOML.
    """
    sections = [parse(text).get(("crio", "runtime"), {}) for text in (built_in, config)]
    handlers: dict[str, Any] = {}
    default = None
    for section in sections:
        handlers.update(dig(section, ("runtimes",), {}))
        default = dig(section, ("default_runtime",)) or default
    return low_level_handler(default, handlers)


def edit(files: Mapping[str, str], desired: DesiredRuntime, handler: Handler | None, path: str = DROP_IN) -> Files:
    """Return what CRI-O's drop-ins become.

    :param files: texts of our own drop-in and of leftovers, those that exist.
    :param handler: the host's low-level handler, whose settings ours has; None where CRI-O has none.
    """
    after: str | None = None
    if desired.present:
        tables: dict[Path, dict[str, Any]] = {}
        if desired.default:
            tables[("crio", "runtime")] = {"default_runtime": NAME}
        own = {"runtime_path": desired.binary, "runtime_type": "oci"}
        tables[("crio", "runtime", "runtimes", NAME)] = {**own, **(handler.shared if handler else {})}
        # Not at the top: reading a host needs this module, and no editor.
        from .._formats.toml_edit import append_tables

        after = append_tables("", tables)
    changes = [FileChange(path, files.get(path), after)]
    warnings = []
    for leftover in LEFTOVERS:
        # CRI-O reads every file of its folder, whatever it is called: what is moved aside leaves the folder.
        if leftover in files and leftover not in without_ours(files, path):
            aside = f"/etc/crio/{leftover.rsplit('/', 1)[1]}{ASIDE}"
            changes += [FileChange(leftover, files[leftover], None), FileChange(aside, None, files[leftover])]
            warnings.append(f"{leftover} was written by nvidia-ctk and is moved to {aside}")
    return Files(tuple(changes), tuple(warnings))


def without_ours(files: Mapping[str, str], path: str = DROP_IN) -> dict[str, str]:
    """Return C(files) without our drop-in C(path) and without what nvidia-ctk left."""
    return {
        name: text for name, text in files.items() if name != path and not (name in LEFTOVERS and is_leftover(text))
    }


def is_leftover(text: str) -> bool:
    """Return whether C(text) is a drop-in of nvidia-ctk: nothing but the table crio.runtime with the runtime in it."""
    from .._formats.toml_edit import is_marked

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
    """Return what C(crio config) prints as being in force; CDI is always on (CRI-O 1.23 and newer). Raises TomlError: the text is not TOML."""
    section = parse(config).get(("crio", "runtime"), {})
    runtimes = dig(section, ("runtimes",), {})
    return Effective(
        binary=dig(runtimes, (NAME, "runtime_path")),
        default_runtime=dig(section, ("default_runtime",)) or None,
        cdi=True,
        runtimes=tuple(sorted(runtimes)),
    )
