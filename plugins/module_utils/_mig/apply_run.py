# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module M(gpufleet.nvidia.mig) does, as the four calls that it makes: read, plan, apply, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _plan
from .._adapters import cdi_generator
from .._adapters.command import CommandError
from .._adapters.files import HostFiles, read_text, remove, write_whole
from .._adapters.host_reader import HostReader
from .._adapters.pci import read_pci_devices
from .._facts_view import view_of
from .._formats import utc_time
from .._formats.cdi import GPU_KIND
from .._formats.cdi_state import describes_others, specifications
from .._formats.documents import read_record
from .._plan import Failure, Plan, StagePlan, Step
from .._records import OF_FACTS, GpuRecord
from .._schema import encode
from .._steps import Kind, gpu_of
from . import original
from .apply import ApplyFailed, MigOutcome, apply, reset_obstacles
from .apply_machine import Clients, Done, Machine, ServicesFailed, active, to_notify
from .host_plan import OFF, ON, MigPlan, describe_gpus, plan_host, stale_uuids, states
from .journal import Entry, Journal
from .journal_lines import REACHED
from .record import RECORD_PATH, record_step, recorded_gpus, recorded_layout, with_others
from .stage import LayoutPlan, plan_layout, stage
from .state import NodeGpu, instance_title, offered_by

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Prepared:
    """What was read and what is planned.

    :param original: whether what the GPUs had before the collection changed them comes back, and is forgotten with what is recorded.
    :param found: the plan for the GPUs, as far as it is known.
    :param owed: services that such a run left stopped, or with GPUs that are not there any more.
    """

    variables: Mapping[str, Any]
    original: bool
    gpus: tuple[NodeGpu, ...]
    found: LayoutPlan
    interrupted: Entry | None
    owed: tuple[str, ...]
    steps: Plan


def plan(machine: Machine, gpus: Sequence[NodeGpu], to_original: bool = False) -> Prepared:
    """Return what has to be done.

    :param to_original: whether the layout is the one from before the first change.
    :raises Refused: the request cannot be met; nothing was touched.
    """
    variables = machine.variables
    if to_original:
        uuids = [gpu.facts.uuid for gpu in gpus if gpu.facts.uuid]
        layout = original.layout(original.read(machine.journal), _recorded(), uuids)
        variables = {**variables, "nvidia_mig_layout": layout}
    # As in the plan of the fleet: what the host still has is brought into its state, and the record of what fell off the bus stays.
    lost = [gpu.title for gpu in gpus if gpu.facts.lost]
    there = [gpu for gpu in gpus if not gpu.facts.lost]
    found = plan_layout(there, variables, reset_obstacles(machine, there))
    last = machine.journal.last()
    return Prepared(
        variables=variables,
        original=to_original,
        gpus=tuple(gpus),
        found=found,
        interrupted=last if last is not None and last.open else None,
        owed=_owed(last),
        steps=Plan(
            steps=_steps(machine, to_original, found.plan, gpus),
            before=states(gpus),
            after=states(gpus, found.plan),
            warnings=(
                *found.warnings,
                *found.unknown,
                *(f"{title} fell off the bus: nothing is planned for it" for title in lost),
            ),
        ),
    )


def plan_offline(files: HostFiles, variables: Mapping[str, Any], reason: str) -> StagePlan:
    """Return what is known of the plan of a host whose driver does not answer yet: from the PCI bus and the table of boards."""
    return stage(
        view_of({"nvml": {"available": False, "reason": reason}, "gpus": [], "pci": read_pci_devices(files)}), variables
    )


def carry_out(machine: Machine, prepared: Prepared) -> dict[str, Any]:
    """Do what was planned, read back by planning again, and return the report.

    :raises ApplyFailed: the layout cannot be reached; says whether the former one is back.
    :raises Failure: the layout is reached, and what follows failed.
    :raises NotInEffect: everything was done, and the plan of what is read back has steps.
    :raises ServicesFailed: a service that has to be stopped does not stop; nothing was touched.
    """
    report_of: dict[str, Any] = {}
    last: list[MigOutcome] = []

    def apply_all(_steps: Plan) -> None:
        outcome, restarted = _apply(machine, prepared)
        last.append(outcome)
        report_of.update(report(prepared, outcome), restarted_services=list(restarted))

    def plan_again() -> Plan:
        # The last plan of a change is of what was read after it.
        return Plan(_steps(machine, prepared.original, last[-1].plan, last[-1].after))

    _plan.carry_out("apply the MIG layout", prepared.steps, apply_all, plan_again)
    return report_of


def _apply(machine: Machine, prepared: Prepared) -> tuple[MigOutcome, tuple[str, ...]]:
    """Do what was planned, and return how the change of the GPUs ended, and the services that were restarted."""
    variables, changes = prepared.variables, bool(prepared.found.plan.active)
    clients = Clients(active(_services(variables)) if changes else (), prepared.owed)
    try:
        outcome = _change_gpus(machine, prepared, clients)
    except ApplyFailed as error:
        # The instances of a layout that was restored are others than those that were there.
        problems, _restarted = _follow(machine, clients, bool(error.done.steps), True)
        raise error.with_problems(problems) from error
    except ServicesFailed as error:
        problems, _restarted = _follow(machine, clients, False, True)
        raise ServicesFailed("; ".join((str(error), *problems))) from error
    except OSError:
        # The journal cannot be written. What was stopped for the change comes back all the same.
        _follow(machine, clients, True, True)
        raise
    after = outcome.after
    if prepared.interrupted is not None and prepared.interrupted.unfinished and not changes:
        machine.journal.end(REACHED, "the next run found the layout reached")
    problems = []
    if _restores(variables) and _record_step(outcome.plan, after) is not None:
        facts = view_of({"pci": read_pci_devices(machine.files)}).but(gpus=tuple(gpu.facts for gpu in after))
        recorded = with_others(facts, outcome.plan.records(after), _recorded())
        try:
            write_whole(RECORD_PATH, recorded_layout(recorded, _asked(variables)).as_text())
        except OSError as error:
            problems.append(str(error))
    for path in _to_remove(machine, prepared.original, outcome.plan):
        remove(path)
    begun = changes or prepared.interrupted is not None
    # A run that was cut off may not have come to this.
    more, restarted = _follow(machine, clients, begun, begun, after)
    problems += more
    if problems:
        # The next run does them again.
        raise Failure(
            f"The MIG layout is reached, but the steps that follow it failed: {'; '.join(problems)}. "
            "Fix that and run again"
        )
    return outcome, restarted


def _follow(
    machine: Machine, clients: Clients, changed: bool, begun: bool, after: Sequence[NodeGpu] = ()
) -> tuple[list[str], tuple[str, ...]]:
    """Do what has to follow a change, also of one that was taken back; return what failed, and the services restarted.

    :param changed: whether there are other MIG devices than before.
    :param begun: whether there is a journal that waits for this.
    :param after: the GPUs, to see whether the CDI specification names others for another reason.
    """
    problems: list[str] = []
    restarted: tuple[str, ...] = ()
    try:
        if (changed or (after and _cdi_is_stale(after))) and cdi_generator.available():
            cdi_generator.refresh()
    except (CommandError, OSError) as error:
        problems.append(str(error))
    try:
        restarted = clients.start_again(changed)
        if begun and not problems:
            machine.journal.followed()
    except (ServicesFailed, OSError) as error:
        problems.append(str(error))
    return problems, restarted


def report(prepared: Prepared, outcome: MigOutcome | None = None) -> dict[str, Any]:
    """Return what the module returns, of a run or, without C(outcome), of a plan."""
    if outcome is None:
        last, after = prepared.found.plan, None
        destroyed, created = (
            [instance_title(gpu_of(step.data), step.data) for step in prepared.steps.steps if step.kind is kind]
            for kind in (Kind.DESTROY_GPU_INSTANCE, Kind.CREATE_GPU_INSTANCE)
        )
        done = Done(destroyed=destroyed, created=created)
    else:
        last, after, done = outcome.plan, outcome.after, outcome.done
    there = [instance_title(gpu.title, one.as_dict()) for gpu in prepared.gpus for one in gpu.current]
    return {
        **prepared.steps.as_dict(),
        "before": describe_gpus(prepared.gpus),
        "after": describe_gpus(after) if after is not None else None,
        "kept": [title for title in there if title not in done.destroyed],
        "destroyed": list(done.destroyed),
        "created": list(done.created),
        "reset": list(done.reset),
        "terminated": sorted(done.terminated),
        "setbacks": [] if outcome is None else list(outcome.setbacks),
        "pending": [{**step.as_dict(), "waits_for": why} for step, why in last.waiting()],
        "reboot_required": bool(last.deferred),
        "reboot_reason": "; ".join(last.deferred.values()) or None,
        "unselected": list(prepared.found.desired.unselected),
        "left_alone": {str(index): refused.as_dict() for index, refused in prepared.found.plan.left_alone.items()},
        "stale_uuids": stale_uuids(prepared.gpus, after) if after is not None else [],
        "clients_to_notify": list(to_notify(_services(prepared.variables))) if prepared.steps.changes else [],
        "interrupted_run": None if prepared.interrupted is None else prepared.interrupted.as_dict(),
    }


def _change_gpus(machine: Machine, prepared: Prepared, clients: Clients) -> MigOutcome:
    changes = prepared.found.plan.active
    if not changes:
        return MigOutcome(REACHED, prepared.found.plan, prepared.gpus, machine.done)
    if _restores(prepared.variables):
        original.keep(machine.journal, [change.gpu.record for change in changes], _recorded())
    entry = Entry(
        started=utc_time.now(),
        boot_id=read_text(_BOOT_ID) or "",
        program="mig",
        previous=(),
        request=_asked(prepared.variables),
        services=clients.concerned,
    )
    return apply(
        machine,
        lambda gpus, no_reset: plan_host(gpus, prepared.found.desired.gpus, prepared.variables, no_reset),
        prepared.gpus,
        prepared.interrupted,
        entry,
        clients.stop if any(change.mode in (ON, OFF) or change.plan.destroys for change in changes) else None,
    )


def _steps(machine: Machine, to_original: bool, plan: MigPlan, gpus: Sequence[NodeGpu]) -> tuple[Step, ...]:
    """Return everything that is to be done: to the GPUs, and what follows that."""
    steps = list(plan.steps())
    changes = bool(steps)
    record = _record_step(plan, gpus) if _restores(machine.variables) else None
    if record is not None:
        steps.append(record)
    steps += [Step(Kind.REMOVE_FILE, path, "state is original") for path in _to_remove(machine, to_original, plan)]
    if cdi_generator.available() and (changes or _cdi_is_stale(gpus)):
        steps.append(Step(Kind.GENERATE_CDI_SPECIFICATION, GPU_KIND, "it has to name the MIG devices that exist"))
    services = _services(machine.variables) if changes else ()
    steps += [Step(Kind.RESTART_SERVICE, name, "it reads the GPUs when it starts", (name,)) for name in services]
    last = machine.journal.last()
    steps += [
        Step(Kind.RESTART_SERVICE, name, "a run that was cut off did not start it again", (name,))
        for name in _owed(last)
        if name not in services
    ]
    if last is not None and last.open and not steps:
        steps.append(Step(Kind.FINISH_MIG_CHANGE, "mig", "it was cut off before its end"))
    return tuple(steps)


def _asked(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layout and the strategy, for people who read a journal or a record."""
    return {"layout": variables["nvidia_mig_layout"], "strategy": variables["nvidia_mig_strategy"]}


def _restores(variables: Mapping[str, Any]) -> bool:
    """Return whether the GPUs are recorded. Without a layout nothing has to be restored at boot, unless an earlier one would be."""
    return bool(variables["nvidia_mig_restore"] and (variables["nvidia_mig_layout"] or _record()))


def _services(variables: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(variables.get("nvidia_mig_restart_services") or ())


def _owed(last: Entry | None) -> tuple[str, ...]:
    return last.owed(read_text(_BOOT_ID) or "") if last is not None else ()


def _record_step(plan: MigPlan, gpus: Sequence[NodeGpu]) -> Step | None:
    return record_step(_recorded(), plan.records(gpus), offered_by(gpus))


def _to_remove(machine: Machine, to_original: bool, plan: MigPlan) -> list[str]:
    """Return the files that a return to the original layout removes. What waits for a reboot, or for its users, is restored by a later run."""
    if not to_original:
        return []
    record, kept = kept_files(machine.journal)
    return [path for path in ((record,) if plan.deferred or plan.left_alone else (record, kept)) if _exists(path)]


def kept_files(journal: Journal) -> tuple[str, str]:
    """Return the files that hold what is restored at boot, and what was there before the first change."""
    return RECORD_PATH, original.path_of(journal)


def nothing_kept(journal: Journal) -> bool:
    """Return whether the collection has nothing of this host to restore."""
    return not any(map(_exists, kept_files(journal)))


def _exists(path: str) -> bool:
    return read_text(path, links=False) is not None


def _record() -> Any:
    """Return what is restored at boot, as the facts have it: nothing where it is no JSON."""
    return read_record(OF_FACTS["mig"], read_text(RECORD_PATH, links=False))


def _recorded() -> tuple[GpuRecord, ...]:
    return recorded_gpus(_record())


def _cdi_is_stale(gpus: Sequence[NodeGpu]) -> bool:
    """Return whether the specification is there and names other devices than the host has. Whether it is right in other ways the toolkit's stage says."""
    found = cdi_generator.read_cdi(
        HostReader(HostFiles()), [encode(gpu.facts) for gpu in gpus if not gpu.facts.lost], None
    )
    return any(one.own and describes_others(one) for one in specifications(found))
