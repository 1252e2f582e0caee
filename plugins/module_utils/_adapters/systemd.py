# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemd, through systemctl. Exit statuses are not trusted: what a change did is read back from C(systemctl show)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from .command import CommandError, find, run

#: There where systemd is the system's first process: sd_booted(3).
_BOOTED = "/run/systemd/system"


@dataclass(frozen=True)
class Unit:
    """A unit as systemd sees it.

    :param load: C(loaded), C(not-found), C(masked), ...
    :param active: C(active), C(inactive), C(failed), C(activating), ...
    :param enabled: C(enabled), C(disabled), C(static), ..., or an empty string where that means nothing.
    """

    name: str
    load: str
    active: str
    enabled: str

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
    """Return units by the names that they were asked for; one call for all of them.

    :raises CommandError: systemd does not answer.
    """
    wanted = list(names)
    if not wanted:
        return {}
    shown = run(["systemctl", "show", "--property=Id,LoadState,ActiveState,UnitFileState", *wanted]).stdout
    blocks = [_properties(block) for block in shown.strip().split("\n\n")]
    if len(blocks) != len(wanted):
        raise CommandError(["systemctl", "show", *wanted], "it did not describe every unit", shown)
    return {
        name: Unit(
            name=name,
            load=block.get("LoadState", ""),
            active=block.get("ActiveState", ""),
            enabled=block.get("UnitFileState", ""),
        )
        for name, block in zip(wanted, blocks)
    }


def unit(name: str) -> Unit:
    """Return one unit.

    :raises CommandError: systemd does not answer.
    """
    return units([name])[name]


def daemon_reload() -> None:
    """Have systemd read its unit files again.

    Only after a unit file changed: with the systemd cgroup driver a reload takes the GPUs from running containers that
    do not use CDI (host.md, section 8).

    :raises CommandError: systemd refused.
    """
    run(["systemctl", "daemon-reload"], allowed=(0,))


def enable(names: Iterable[str], reload: bool = True) -> None:
    """Have units start at boot.

    :param reload: whether systemd reads its unit files again, as C(systemctl enable) has it do; see L(daemon_reload). Units that it has never
        loaded need none of it.
    :raises CommandError: systemd refused, or they are not enabled afterwards.
    """
    wanted = list(names)
    if not wanted:
        return
    result = run(["systemctl", "enable", *([] if reload else ["--no-reload"]), *wanted])
    missing = [name for name, found in units(wanted).items() if found.enabled not in ("enabled", "static", "alias")]
    if missing:
        raise CommandError(result.command, f"not enabled afterwards: {', '.join(missing)}", result.stderr)


def disable(names: Iterable[str], reload: bool = True) -> None:
    """Have units start at boot no more.

    :param reload: as for L(enable).
    :raises CommandError: systemd refused, or they are enabled still.
    """
    wanted = list(names)
    if not wanted:
        return
    result = run(["systemctl", "disable", *([] if reload else ["--no-reload"]), *wanted])
    if reload:
        left = [name for name, found in units(wanted).items() if found.enabled == "enabled"]
    else:
        left = [name for name in wanted if is_enabled(name)]
    if left:
        raise CommandError(result.command, f"still enabled afterwards: {', '.join(left)}", result.stderr)


def is_enabled(name: str) -> bool:
    """Return whether a unit starts at boot as the files say now; L(units) says what systemd knew when it last read them."""
    return run(["systemctl", "is-enabled", name]).stdout.strip() == "enabled"


def start(name: str, timeout: float = 120.0) -> None:
    """Start a unit and wait for it.

    :raises CommandError: it is not active afterwards.
    """
    _change("start", name, timeout, ("active",))


def restart(name: str, timeout: float = 120.0) -> None:
    """Restart a unit and wait for it; a oneshot unit may be inactive afterwards.

    :raises CommandError: it failed.
    """
    _change("restart", name, timeout, ("active", "inactive"))


def stop(name: str, timeout: float = 120.0) -> None:
    """Stop a unit and wait for it.

    :raises CommandError: it is still active afterwards.
    """
    _change("stop", name, timeout, ("inactive", "failed"))


def _change(verb: str, name: str, timeout: float, wanted: tuple[str, ...]) -> None:
    result = run(["systemctl", verb, name], timeout=timeout)
    found = unit(name)
    if found.active not in wanted or (result.rc != 0 and verb != "stop"):
        raise CommandError(result.command, f"the unit is {found.active} ({found.load})", result.stderr)


def _properties(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
