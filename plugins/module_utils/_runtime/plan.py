# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the change of a container runtime: which files, and whether and how the runtime takes them over.

Pure: what the runtime said is handed in. A restart is planned only when the merged configuration changes, or when an
earlier run was cut off between writing and restarting.
"""

from __future__ import annotations

from dataclasses import dataclass

from .._facts_view import RuntimeFacts
from .._injection import is_switched_off
from .._plan import Plan, Refused, Step
from .._steps import Kind
from . import docker
from .desired import BINARY, NAME, DesiredRuntime, Effective, FileChange, Files

#: systemd's KillMode values with which the containers' shims outlive a restart of the runtime.
_KEEPING = ("process", "none")


@dataclass(frozen=True)
class Merged:
    """What a runtime says its configuration is, all files merged.

    :param effective: the part this collection cares about.
    :param text: everything that takes effect, in a form that can be compared.
    """

    effective: Effective
    text: str


@dataclass(frozen=True)
class Service:
    """The runtime's unit.

    :param unit: its name; None when there is no unit, as in a test.
    :param active: whether it runs, so that a restart is needed at all.
    :param kill_mode: systemd's KillMode.
    :param containers: how many containers run; None when that is not known.
    :param restart_pending: whether files were changed after it was started.
    :param keeps_containers: whether running containers outlive a restart.
    """

    unit: str | None = None
    active: bool = False
    kill_mode: str = "process"
    containers: int | None = None
    restart_pending: bool = False
    keeps_containers: bool = True


def plan(
    runtime: str,
    desired: DesiredRuntime,
    files: Files,
    before: Merged,
    after: Merged,
    service: Service,
    restart: str = "auto",
    disruption: str = "refuse",
    broken: bool = False,
) -> Plan:
    """Return the steps from the files as they are to C(files).

    :param restart: C(auto) or C(never).
    :param disruption: C(refuse) or C(force): whether running containers may be lost.
    :param broken: whether the runtime refuses its files as they are.
    :raises Refused: the runtime would not have what is desired, or containers would be lost.
    """
    shortfalls = after.effective.shortfalls(desired)
    if shortfalls:
        raise Refused(
            f"configuration of {runtime}",
            f"with the planned change {runtime} says that {'; '.join(shortfalls)}",
            "Another file that it reads says otherwise.",
        )
    steps = [_file_step(change) for change in files.changed]
    steps += [_move_step(runtime, path, files.moved_of, service, restart, disruption) for path in files.moves]
    warnings = list(files.warnings)
    effective_change = before.text != after.text
    if service.active and (effective_change or service.restart_pending):
        why = "its merged configuration changes" if effective_change else "it still runs with its former configuration"
        if restart == "never":
            warnings.append(f"{service.unit} keeps its former configuration until it is restarted: {why}")
        else:
            if (
                runtime == "docker"
                and not service.restart_pending
                and all(docker.reloadable(change.before, change.after) for change in files.changed)
            ):
                steps.append(Step(Kind.RELOAD_SERVICE, str(service.unit), why))
            else:
                steps.append(_restart_step(runtime, service, why, disruption))
    if broken and not service.active and service.unit and restart != "never":
        steps.append(Step(Kind.START_SERVICE, service.unit, "it did not start with its former files"))
    return Plan(
        steps=tuple(steps),
        before={change.path: change.before for change in files.changed},
        after={change.path: change.after for change in files.changed},
        warnings=tuple(warnings),
    )


def plan_effective(runtime: str, desired: DesiredRuntime, found: RuntimeFacts) -> tuple[Step, ...]:
    """Return what has to change in what a runtime has in force, by its facts. Which files that takes, only the host itself can tell."""
    # Facts of an older reading, without a key, prove nothing.
    binary = (found.binary if found.says("binary") else BINARY) or "not named"
    effective = Effective(
        binary if found.nvidia is True else None,
        found.default_runtime,
        False if is_switched_off(runtime, found) else None,
    )
    steps = [_step(gap.kind, runtime, f"it {gap.found}", gap.runtime) for gap in effective.gaps(desired)]
    return (*steps, *(_drift(runtime, found) if effective.binary is not None else ()))


def file_diffs(changes: tuple[FileChange, ...]) -> list[dict[str, str]]:
    """Return the texts of the files before and after, as parts of Ansible's C(diff)."""
    return [
        {
            "before_header": change.path,
            "after_header": change.path if change.after is not None else f"{change.path} (removed)",
            "before": change.before or "",
            "after": change.after or "",
        }
        for change in changes
    ]


def _file_step(change: FileChange) -> Step:
    if change.after is None:
        return Step(Kind.REMOVE_FILE, change.path, "it is not wanted")
    kind = Kind.CREATE_FILE if change.before is None else Kind.CHANGE_FILE
    return Step(kind, change.path, "the runtime's configuration is not as described")


def _move_step(runtime: str, path: str, containers: int, service: Service, restart: str, disruption: str) -> Step:
    disturbs = move_disturbs(path, runtime, service.active, containers, restart, disruption)
    return Step(Kind.MOVE_ASIDE, path, f"{runtime} takes what a former toolkit left there", disturbs)


def move_disturbs(
    path: str, runtime: str, active: bool, containers: int, restart: str, disruption: str
) -> tuple[str, ...]:
    """Return whom it disturbs to move a former toolkit aside. Until the runtime is restarted it starts containers with it, and what was started with
    it is ended with it. C(containers): those that were started with it and run; the others as for L(plan). Raises Refused: the runtime goes on using it, or
    such containers need it.
    """
    if active and restart == "never":
        raise Refused(path, f"{runtime} uses it until it is restarted", "Set restart to auto, or stop its unit first.")
    if not containers:
        return ()
    if disruption != "force":
        raise Refused(
            path,
            f"{containers} containers that were started with it run, and could not be ended without it",
            "Drain the host and end its GPU pods first, or set disruption to force.",
        )
    return (f"{containers} containers that were started with it, which cannot be ended without it",)


def _restart_step(runtime: str, service: Service, why: str, disruption: str) -> Step:
    unit = str(service.unit)
    keeps = service.keeps_containers and service.kill_mode in _KEEPING
    running = "running containers" if service.containers is None else f"{service.containers} running containers"
    if service.containers == 0:
        disturbs = ("starting containers for some seconds (none is running)",)
    elif keeps:
        disturbs = (f"starting and stopping containers for some seconds ({running} go on)",)
    else:
        if disruption != "force":
            reason = "live-restore is off" if runtime == "docker" else f"its unit has KillMode={service.kill_mode}"
            remedy = (
                'Set "live-restore": true in daemon.json and reload dockerd first, drain the host, '
                if runtime == "docker"
                else "Set KillMode=process in a drop-in of the unit, drain the host, "
            )
            raise Refused(
                f"restart of {unit}",
                f"{running} would be lost, because {reason}",
                f"{remedy}set restart to never, or set disruption to force.",
            )
        disturbs = (f"{running}, which are stopped",)
    return Step(Kind.RESTART_SERVICE, unit, why, disturbs)


def _step(kind: Kind, engine: str, why: str, runtime: str = NAME) -> Step:
    return Step(kind, engine, why, (), {"runtime": runtime})


def _drift(runtime: str, found: RuntimeFacts) -> list[Step]:
    """Return what brings a configured runtime back that differs from the default one besides its program."""
    steps = []
    if found.has_type is False:
        why = "it has no runtime_type io.containerd.runc.v2, without which its containers do not start"
        steps.append(_step(Kind.CORRECT_RUNTIME, runtime, why))
    monitors = found.monitors or {}
    others = [(name, path) for name, path in monitors.items() if path != monitors.get(NAME)]
    if others:
        name, path = others[0]
        why = f"its containers are watched by {_program(monitors.get(NAME))}, and those of {name} by {_program(path)}"
        steps.append(_step(Kind.CORRECT_RUNTIME, runtime, why))
    sandboxers = found.sandboxers or {}
    if sandboxers.get(NAME) != sandboxers.get("runc"):
        why = f"its sandboxer is {sandboxers.get(NAME)}, and runc's {sandboxers.get('runc')}"
        steps.append(_step(Kind.CORRECT_RUNTIME, runtime, why))
    drivers = found.cgroup_drivers or {}
    if drivers.get("nvidia") != drivers.get("runc"):
        why = f"it makes cgroups by {drivers.get('nvidia')}, and runc by {drivers.get('runc')}"
        steps.append(_step(Kind.CORRECT_CGROUPS, runtime, why))
    return steps


def _program(path: str | None) -> str:
    return path or "conmon of PATH"
