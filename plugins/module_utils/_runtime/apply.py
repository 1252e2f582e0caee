# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, plan, apply and read back a container runtime's configuration.

A runtime that does not come up with its new files gets its former ones back. A run that is cut off between writing and
restarting leaves a note in /run, so that the next one restarts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .._adapters import systemd
from .._adapters.command import CommandError, run
from .._adapters.files import read_text, remove, write_whole
from .._formats.json_edit import JsonError
from .._formats.toml_read import TomlError
from .._plan import Plan
from .._runtimes import DISTRIBUTIONS
from .._steps import ASIDE, Kind
from .desired import DesiredRuntime, Effective, FileChange, Files, refusal, unreadable
from .engines import PENDING_FOLDER, Engine, RuntimeFailure
from .plan import Merged, Service, plan

_RESTART_TIMEOUT = 300.0
#: Seconds that a restarted k3s, or a reloaded dockerd, gets until what it has in force is as described.
_SETTLE = 60.0


@dataclass(frozen=True)
class RuntimeChange:
    """A planned change of a runtime with what it was computed from."""

    plan: Plan
    changes: tuple[FileChange, ...]
    before: Effective
    after: Effective
    service: Service
    moves: tuple[str, ...] = ()


def observe_and_plan(engine: Engine, desired: DesiredRuntime, restart: str, disruption: str) -> RuntimeChange:
    """Read the host and plan the change; the real runtime has judged the planned files.

    :raises Refused: the desired state cannot be met, or containers would be lost.
    :raises RuntimeFailure: the runtime refuses its present or its planned files.
    """
    files = engine.files()
    try:
        edited = engine.edit(files, desired)
        planned = dict(files)
        for change in edited.changed:
            if change.after is None:
                planned.pop(change.path, None)
            else:
                planned[change.path] = change.after
        before, broken = _present(engine, files, edited)
        after = engine.merged(planned) if edited.changed or engine.name in DISTRIBUTIONS else before
    except (TomlError, JsonError) as error:
        raise refusal(unreadable(engine.name, error), engine.name) from error
    service = engine.service()
    planned_steps = plan(engine.name, desired, edited, before, after, service, restart, disruption, broken)
    return RuntimeChange(planned_steps, edited.changed, before.effective, after.effective, service, edited.moves)


def _present(engine: Engine, files: Mapping[str, str], edited: Files) -> tuple[Merged, bool]:
    """Return what is in force, and whether the runtime refuses its files as they are, which those that are planned may mend."""
    try:
        return engine.present(files), False
    except RuntimeFailure:
        if not edited.changed:
            raise
        return Merged(Effective(), ""), True


def apply(engine: Engine, desired: DesiredRuntime, outcome: RuntimeChange) -> Effective:
    """Carry the plan out and return what is in force afterwards.

    :raises RuntimeFailure: the runtime did not come up, or has something else in force; its files are as before then.
    """
    service = outcome.service
    if service.active and outcome.changes:
        _note_pending(str(service.unit))
    for change in outcome.changes:
        _put(change.path, change.after)
    moved: dict[str, str] = {}
    kinds = (Kind.RESTART_SERVICE, Kind.RELOAD_SERVICE, Kind.START_SERVICE)
    action = next((step.kind for step in outcome.plan.steps if step.kind in kinds), None)
    try:
        for path in outcome.moves:
            aside = _free(path + ASIDE)
            os.replace(path, aside)
            moved[path] = aside
        _take_over(action, service)
        in_force = _read_back(engine, desired, settle=_SETTLE if action else 0.0, changed=action is not None)
    except (CommandError, OSError, RuntimeFailure) as error:
        for change in reversed(outcome.changes):
            _put(change.path, change.before)
        kept = "".join(
            f", but {aside} could not be moved back" for path, aside in moved.items() if not _moved_back(aside, path)
        )
        said = _put_back(action, service)
        raise RuntimeFailure(f"{error}. The former files are restored{kept}{said}.") from error
    if action:
        remove(f"{PENDING_FOLDER}/restart-{service.unit}")
    return in_force


def _moved_back(aside: str, path: str) -> bool:
    """Move a file or folder back, unless there is another one by now."""
    try:
        os.replace(aside, path)
    except OSError:
        return False
    return True


def _take_over(action: Kind | None, service: Service) -> None:
    if action is Kind.RESTART_SERVICE:
        systemd.restart(str(service.unit), timeout=_RESTART_TIMEOUT)
    elif action is Kind.START_SERVICE:
        # systemd has given up on it.
        run(["systemctl", "reset-failed", str(service.unit)])
        systemd.start(str(service.unit), timeout=_RESTART_TIMEOUT)
    elif action is Kind.RELOAD_SERVICE:
        # dockerd's unit reloads by SIGHUP; neither needs nor gets a daemon-reload, which takes GPUs from containers.
        run(["systemctl", "reload", str(service.unit)], allowed=(0,))


def _put_back(action: Kind | None, service: Service) -> str:
    try:
        _take_over(action, service)
    except CommandError as error:
        return f", but {error}"
    remove(f"{PENDING_FOLDER}/restart-{service.unit}")
    return ""


def _read_back(engine: Engine, desired: DesiredRuntime, settle: float, changed: bool) -> Effective:
    deadline = time.monotonic() + settle
    while True:
        in_force = engine.in_force()
        # Without a restart k3s and RKE2 have not generated anything yet.
        shortfalls = in_force.shortfalls(desired) if changed or engine.name not in DISTRIBUTIONS else ()
        if not shortfalls:
            return in_force
        if time.monotonic() >= deadline:
            raise RuntimeFailure(f"Failed to configure {engine.name}: afterwards {'; '.join(shortfalls)}")
        time.sleep(1)


def _note_pending(unit: str) -> None:
    boot = read_text("/proc/sys/kernel/random/boot_id") or ""
    write_whole(f"{PENDING_FOLDER}/restart-{unit}", f"{boot} {time.monotonic_ns() // 1000}\n")


def _free(path: str) -> str:
    """Return a name that nothing has yet."""
    return next(
        name
        for number in range(1, 1000)
        for name in [f"{path}{number if number > 1 else ''}"]
        if not os.path.lexists(name)
    )


def _put(path: str, text: str | None) -> None:
    real = os.path.realpath(path)
    if text is None:
        remove(real)
        return
    mode = os.stat(real).st_mode & 0o7777 if os.path.exists(real) else 0o644
    write_whole(real, text, mode)
