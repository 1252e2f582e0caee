# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemd, through systemctl. Exit statuses are not trusted: what a change did is read back from C(systemctl show)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from .._formats.documents import whole_number
from .command import CommandError, find, run

#: There where systemd is the system's first process: sd_booted(3).
_BOOTED = "/run/systemd/system"
#: Where the files of units are: systemd.unit(5), "Unit File Load Path".
_LOAD_PATH = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)


@dataclass(frozen=True)
class Unit:
    """A unit as systemd sees it. C(load): C(loaded), C(not-found), C(masked), ... C(active): C(active), C(inactive), C(failed), C(activating), ..."""

    name: str
    load: str
    active: str

    @property
    def exists(self) -> bool:
        return self.load == "loaded"

    @property
    def is_active(self) -> bool:
        return self.active == "active"


def available() -> bool:
    """Return whether this host runs systemd, and does not merely have it installed, as containers do."""
    return os.path.isdir(_BOOTED) and find("systemctl") is not None


def units(names: Iterable[str]) -> dict[str, Unit]:
    """Return units by the names that they were asked for; one call for all of them. Raises CommandError: systemd does not answer."""
    wanted = list(names)
    if not wanted:
        return {}
    shown = run(["systemctl", "show", "--property=Id,LoadState,ActiveState", *wanted]).stdout
    blocks = [_properties(block) for block in shown.strip().split("\n\n")]
    if len(blocks) != len(wanted):
        raise CommandError(["systemctl", "show", *wanted], "it did not describe every unit", shown)
    return {
        name: Unit(name, block.get("LoadState", ""), block.get("ActiveState", ""))
        for name, block in zip(wanted, blocks)
    }


def states(names: Iterable[str]) -> dict[str, Unit]:
    """Return units as L(units) does, for a fifth of the time: asked to show a unit that it has not in memory, systemd looks for its files in all
    folders, and it tells hundreds of properties of each of the others.
    """
    wanted = list(names)
    if not wanted:
        return {}
    listed = run(["systemctl", "list-units", "--all", "--full", "--plain", "--no-legend", *wanted], allowed=(0,)).stdout
    known = {fields[0]: Unit(*fields[:3]) for fields in map(str.split, listed.splitlines()) if len(fields) > 2}
    found, doubtful = {}, []
    for name in wanted:
        path = next((path for folder in _LOAD_PATH if os.path.lexists(path := f"{folder}/{name}")), None)
        if path is None or (name in known and known[name].load != "not-found"):
            found[name] = known.get(name) or Unit(name, "not-found", "inactive")
        elif name in known or os.path.islink(path):
            # A file that systemd has not read, or another name of a unit, or one that is masked.
            doubtful.append(name)
        else:
            found[name] = Unit(name, "loaded", "inactive")
    return {**found, **units(doubtful)}


def unit(name: str) -> Unit:
    return units([name])[name]


def main_process(name: str) -> tuple[str, float] | None:
    """Return what tells the main process of a unit from another one, and when it began, by the clock as it goes now; None while none runs."""
    shown = _properties(
        run(["systemctl", "show", "--property=ActiveState,ExecMainStartTimestampMonotonic", name]).stdout
    )
    began = whole_number(shown.get("ExecMainStartTimestampMonotonic")) if shown.get("ActiveState") == "active" else None
    return None if began is None else (str(began), time.time() - time.monotonic() + began / 1e6)


def daemon_reload() -> None:
    """Have systemd read its unit files again. L(_runtime.unit_reload) says when that takes GPUs from containers. Raises CommandError: systemd refused."""
    run(["systemctl", "daemon-reload"], allowed=(0,))


def outdated(names: Iterable[str], changed: Collection[str]) -> list[str]:
    """Return the units of which systemd has another text in memory than their files have now. C(changed): those whose files are known to have
    changed: systemd does not notice the first drop-in of a unit.
    """
    listed = run(["systemctl", "list-units", "--all", "--plain", "--no-legend", *names]).stdout.splitlines()
    # A unit that it has not in memory is read when it is started, one that was not found is looked for again; one that was masked is not.
    known = [fields[0] for fields in map(str.split, listed) if fields[1:2] in (["loaded"], ["masked"])]
    asked = [name for name in known if name not in changed]
    shown = run(["systemctl", "show", "--property=Id,NeedDaemonReload", *asked]).stdout if asked else ""
    blocks = [_properties(block) for block in shown.strip().split("\n\n")]
    stale = {block.get("Id") for block in blocks if block.get("NeedDaemonReload") == "yes"}
    return [name for name in known if name in changed or name in stale]


def device_rules(scopes: Iterable[str]) -> dict[str, Collection[str] | None]:
    """Return the devices that each scope may open, as systemd was told; None for one that may open all of them."""
    found: dict[str, Collection[str] | None] = {}
    for scope in scopes:
        shown = run(["systemctl", "show", "--property=DevicePolicy,DeviceAllow", scope]).stdout.splitlines()
        rules = {line.partition("=")[2].split(" ")[0] for line in shown if line.startswith("DeviceAllow=")} - {""}
        # systemd.resource-control(5): with auto, all are allowed as long as no rule is there.
        found[scope] = None if "DevicePolicy=auto" in shown and not rules else rules
    return found


def enabled(names: Iterable[str]) -> frozenset[str]:
    """Return which units start at boot, as their files say. C(systemctl show) says what systemd knew when it last read them."""
    return frozenset(name for name, state in _at_boot(names).items() if state == "enabled")


def _at_boot(names: Iterable[str]) -> dict[str, str]:
    """Return what systemctl says of each name. It may end at a unit without a file: then each is asked for."""
    wanted = list(names)
    if not wanted:
        return {}
    states = run(["systemctl", "is-enabled", *wanted]).stdout.split()
    if len(states) == len(wanted):
        return dict(zip(wanted, states))
    return {name: state for one in wanted for name, state in _at_boot([one]).items()} if len(wanted) > 1 else {}


def enable(names: Iterable[str]) -> None:
    """Have units start at boot; systemd is not reloaded, which this needs no more than the start of a unit does. Raises CommandError."""
    _change_at_boot("enable", names, "not enabled", lambda state: state in ("enabled", "static", "alias"))


def disable(names: Iterable[str]) -> None:
    """Have units start at boot no more, without a reload. Raises CommandError: they are enabled still."""
    _change_at_boot("disable", names, "still enabled", lambda state: state != "enabled")


def mask(name: str) -> None:
    """Let nothing start a unit, without a reload of systemd. Raises CommandError: it is not masked afterwards."""
    _change_at_boot("mask", [name], "not masked", lambda state: state == "masked")


def unmask(name: str) -> None:
    """Undo L(mask), without a reload of systemd, before which it does not start the unit (L(_runtime.unit_reload.unmask)). Raises CommandError."""
    _change_at_boot("unmask", [name], "still masked", lambda state: state != "masked")


def _change_at_boot(verb: str, names: Iterable[str], wrong: str, is_right: Callable[[str | None], bool]) -> None:
    wanted = list(names)
    if not wanted:
        return
    result = run(["systemctl", verb, "--no-reload", *wanted])
    states = _at_boot(wanted)
    left = [name for name in wanted if not is_right(states.get(name))]
    if left:
        raise CommandError(result.command, f"{wrong} afterwards: {', '.join(left)}", result.stderr)


def start(name: str, timeout: float = 120.0) -> None:
    """Start a unit and wait for it. Raises CommandError: it is not active afterwards."""
    _change("start", name, timeout, ("active",))


def restart(name: str, timeout: float = 120.0) -> None:
    """Restart a unit and wait for it; a oneshot unit may be inactive afterwards. Raises CommandError: it failed."""
    _change("restart", name, timeout, ("active", "inactive"))


def stop(name: str, timeout: float = 120.0) -> None:
    """Stop a unit and wait for it. Raises CommandError: it is still active afterwards."""
    _change("stop", name, timeout, ("inactive", "failed"))


def _change(verb: str, name: str, timeout: float, wanted: tuple[str, ...]) -> None:
    result = run(["systemctl", verb, name], timeout=timeout)
    found = unit(name)
    if found.active not in wanted or (result.rc != 0 and verb != "stop"):
        raise CommandError(result.command, f"the unit is {found.active} ({found.load})", result.stderr)


def _properties(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
