# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the module M(gpufleet.nvidia.mig) does, as the four calls that it makes: read, plan, apply, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._adapters import cdi
from .._adapters.cdi_specifications import GPU_KIND, compare, parse_specification
from .._adapters.command import CommandError
from .._adapters.files import read_text, remove, write_whole
from .._formats import utc_time
from .._formats.documents import read_json
from .._plan import Plan, Refused, Step
from .._steps import Kind
from . import original
from .apply import ApplyFailed, MigOutcome, apply, reset_obstacles
from .apply_clients import Clients, ServicesFailed, active, to_notify
from .apply_machine import Machine
from .apply_plan import MigPlan, plan_host
from .apply_report import describe_gpus, planned_record, stale_uuids, state_after
from .current import HostGpu, state_of
from .desired import DesiredLayout, desired_layout
from .journal import Entry, Journal
from .mode import OFF, ON
from .record import GpuRecord, Unreadable, read_recorded_layout, recorded_layout, with_others
from .request import Request
from .state import instance_title

RECORD_PATH = "/etc/gpufleet/mig.json"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class AfterChangeFailed(Exception):
    """The layout is reached, and something that has to follow it failed. The next run does it again."""


@dataclass(frozen=True)
class Prepared:
    """What was read and what is planned.

    :param desired_layout: what the selected GPUs are to be.
    :param plan: the plan for the GPUs, as far as it is known.
    :param interrupted: the journal of a run before that was cut off, or None.
    :param owed: services that such a run left stopped, or with GPUs that are not there any more.
    :param steps: all steps: of the GPUs, and what follows them.
    """

    request: Request
    gpus: tuple[HostGpu, ...]
    desired_layout: DesiredLayout
    plan: MigPlan
    interrupted: Entry | None
    owed: tuple[str, ...]
    steps: Plan

    @property
    def changes(self) -> bool:
        return self.steps.changes


def read(machine: Machine) -> list[HostGpu]:
    """Return every GPU of the host.

    :raises NvmlError: NVML does not tell.
    """
    return machine.read()


def plan(machine: Machine, request: Request, gpus: Sequence[HostGpu]) -> Prepared:
    """Return what has to be done.

    :raises Refused: the request cannot be met; nothing was touched.
    """
    policy = machine.policy
    if request.original:
        uuids = [gpu.state.uuid for gpu in gpus if gpu.state.uuid is not None]
        request = replace(request, layout=original.layout(original.read(machine.journal), _recorded(), uuids))
    _refuse_unread(request, policy.disruption, gpus)
    selected = desired_layout(
        request.layout,
        request.strategy,
        [gpu.facts for gpu in gpus],
        {gpu.index: gpu.node.profiles for gpu in gpus},
        policy.disruption,
    )
    found = plan_host(gpus, selected.gpus, policy.disruption, policy.reboot_allowed, reset_obstacles(machine, gpus))
    last = machine.journal.last()
    owed = last.owed(read_text(_BOOT_ID) or "") if last is not None else ()
    steps = list(found.steps())
    steps += _following_steps(machine, request, found, gpus, bool(steps))
    steps += [
        Step(Kind.RESTART_SERVICE, service, "a run that was cut off did not start it again", (service,))
        for service in owed
        if not (found.active and service in request.services)
    ]
    return Prepared(
        request=request,
        gpus=tuple(gpus),
        desired_layout=selected,
        plan=found,
        interrupted=last if last is not None and last.open else None,
        owed=owed,
        steps=Plan(
            steps=tuple(steps),
            before=state_of(gpus),
            after=state_after(found, gpus),
            warnings=_warnings(found, selected, gpus),
        ),
    )


def _refuse_unread(request: Request, disruption: str, gpus: Sequence[HostGpu]) -> None:
    """Refuse a layout that selects a GPU of which it is not even known whether it has MIG.

    Such a GPU is nothing that a layout could be made for, so it would be passed over, and the run would report success.

    :raises Refused: the layout selects one.
    """
    for gpu in gpus:
        if gpu.problem is None or gpu.state.mig.supported is not None:
            continue
        facts = [{**other.facts, "mig": {**other.facts["mig"], "supported": True}} for other in gpus if other is gpu]
        try:
            selected = bool(desired_layout(request.layout, request.strategy, facts, {gpu.index: ()}, disruption).gpus)
        except Refused:
            selected = True
        if selected:
            raise Refused(
                gpu.title,
                f"its MIG state cannot be read: {gpu.problem}",
                "Check it with the module gpufleet.nvidia.health, or select other GPUs in nvidia_mig_layout.",
            )


def carry_out(machine: Machine, prepared: Prepared) -> dict[str, Any]:
    """Do what was planned, read back, and return the report.

    :raises ApplyFailed: the layout cannot be reached; says whether the former one is back.
    :raises AfterChangeFailed: the layout is reached, and what follows failed.
    :raises ServicesFailed: a service that has to be stopped does not stop; nothing was touched.
    """
    clients = Clients(active(prepared.request.services) if prepared.plan.active else (), prepared.owed)
    try:
        outcome = _change_gpus(machine, prepared, clients)
    except ApplyFailed as error:
        # The instances of a layout that was restored are others than those that were there.
        problems, _restarted = _follow(machine, clients, error.done.changed_devices, True)
        raise error.with_problems(problems) from error
    except ServicesFailed as error:
        problems, _restarted = _follow(machine, clients, False, True)
        raise ServicesFailed("; ".join((str(error), *problems))) from error
    except OSError:
        # The journal cannot be written. What was stopped for the change comes back all the same.
        _follow(machine, clients, True, True)
        raise
    after = outcome.after if outcome is not None else prepared.gpus
    last_plan = outcome.plan if outcome is not None else prepared.plan
    if prepared.interrupted is not None and prepared.interrupted.unfinished and outcome is None:
        machine.journal.end("reached", "the next run found the layout reached")
    problems = []
    if prepared.request.record:
        try:
            _record(_document(machine, prepared.request, last_plan, after))
        except OSError as error:
            problems.append(str(error))
    if prepared.request.original:
        remove(RECORD_PATH)
        if not last_plan.deferred and not last_plan.left_alone:
            # What waits for a reboot, or for its users, is restored by a later run.
            remove(original.path_of(machine.journal))
    begun = outcome is not None or prepared.interrupted is not None
    # A run that was cut off may not have come to this.
    more, restarted = _follow(machine, clients, begun, begun, after)
    problems += more
    if problems:
        raise AfterChangeFailed(
            f"The MIG layout is reached, but the steps that follow it failed: {'; '.join(problems)}. "
            "Fix that and run again"
        )
    return {**report(prepared, outcome, after), "restarted_services": list(restarted)}


def _follow(
    machine: Machine, clients: Clients, changed: bool, begun: bool, after: Sequence[HostGpu] = ()
) -> tuple[list[str], tuple[str, ...]]:
    """Do what has to follow a change, also of one that was taken back; return what failed, and the services restarted.

    :param changed: whether there are other MIG devices than before.
    :param begun: whether there is a journal that waits for this.
    :param after: the GPUs, to see whether the CDI specification names others for another reason.
    """
    problems: list[str] = []
    restarted: tuple[str, ...] = ()
    try:
        if (changed or (after and _cdi_is_stale(after))) and cdi.available():
            cdi.refresh()
    except (CommandError, OSError) as error:
        problems.append(str(error))
    try:
        restarted = clients.start_again(changed)
        if begun and not problems:
            machine.journal.followed()
    except (ServicesFailed, OSError) as error:
        problems.append(str(error))
    return problems, restarted


def report(
    prepared: Prepared, outcome: MigOutcome | None = None, after: Sequence[HostGpu] | None = None
) -> dict[str, Any]:
    """Return what the module returns, of a run or, without C(outcome), of a plan."""
    done = outcome.done if outcome is not None else None
    deferred = outcome.plan.deferred if outcome is not None else prepared.plan.deferred
    waiting = {gpu.title: deferred[gpu.index] for gpu in prepared.gpus if gpu.index in deferred}
    gone = stale_uuids(prepared.gpus, after) if after is not None else []
    changes = prepared.changes
    return {
        **prepared.steps.as_dict(),
        "before": describe_gpus(prepared.gpus),
        "after": describe_gpus(after) if after is not None else None,
        "kept": _kept(prepared, outcome),
        "destroyed": _planned(prepared, Kind.DESTROY_GPU_INSTANCE) if done is None else list(done.destroyed),
        "created": _planned(prepared, Kind.CREATE_GPU_INSTANCE) if done is None else list(done.created),
        "reset": [] if done is None else list(done.reset),
        "terminated": [] if done is None else sorted(done.terminated),
        "setbacks": [] if outcome is None else list(outcome.setbacks),
        "reboot_required": bool(waiting),
        "reboot_reason": "; ".join(f"{title}: {why}" for title, why in waiting.items()) or None,
        "unselected": list(prepared.desired_layout.unselected),
        "left_alone": {str(index): refused.as_dict() for index, refused in prepared.plan.left_alone.items()},
        "stale_uuids": gone,
        "clients_to_notify": list(to_notify(prepared.request.services)) if changes else [],
        "interrupted_run": None if prepared.interrupted is None else prepared.interrupted.as_dict(),
    }


def _change_gpus(machine: Machine, prepared: Prepared, clients: Clients) -> MigOutcome | None:
    changes = prepared.plan.active
    if not changes:
        return None
    policy, selected = machine.policy, prepared.desired_layout.gpus
    if prepared.request.record:
        original.keep(machine.journal, [change.gpu.record for change in changes], _recorded())
    entry = Entry(
        started=utc_time.now(),
        boot_id=read_text(_BOOT_ID) or "",
        program="mig",
        previous=(),
        request=prepared.request.as_dict(),
        services=clients.concerned,
    )
    return apply(
        machine,
        lambda gpus, no_reset: plan_host(gpus, selected, policy.disruption, policy.reboot_allowed, no_reset),
        prepared.gpus,
        prepared.interrupted,
        entry,
        clients.stop if any(change.mode in (ON, OFF) for change in changes) else None,
    )


def _following_steps(
    machine: Machine, request: Request, found: MigPlan, gpus: Sequence[HostGpu], changes: bool
) -> list[Step]:
    steps = []
    if request.record and _differs(_document(machine, request, found, gpus)):
        steps.append(Step(Kind.RECORD_LAYOUT, RECORD_PATH, "the present layout is not the one restored at boot"))
    if request.original:
        steps += [
            Step(Kind.REMOVE_FILE, path, "state is original") for path in kept_files(machine.journal) if _exists(path)
        ]
    if cdi.available() and (changes or _cdi_is_stale(gpus)):
        steps.append(Step(Kind.GENERATE_CDI_SPECIFICATION, GPU_KIND, "it has to name the MIG devices that exist"))
    if changes:
        steps += [
            Step(Kind.RESTART_SERVICE, service, "it reads the GPUs when it starts", (service,))
            for service in request.services
        ]
    return steps


def _document(machine: Machine, request: Request, found: MigPlan, gpus: Sequence[HostGpu]) -> dict[str, Any]:
    """Return what is recorded: the selected GPUs as planned, and as they are where they were left alone; of the others
    what a run with another selection recorded.
    """
    records = [planned_record(change) for change in found.changes]
    records += [gpu.record for gpu in gpus if gpu.index in found.left_alone]
    slots: dict[str, str | None] = dict.fromkeys(machine.pci_addresses())
    slots.update({gpu.state.pci_address: gpu.state.name for gpu in gpus if gpu.state.pci_address is not None})
    uuids = {gpu.state.uuid for gpu in gpus if gpu.state.uuid is not None}
    return recorded_layout(with_others(records, _recorded(), uuids, slots), request.as_dict())


def kept_files(journal: Journal) -> tuple[str, str]:
    """Return the files that hold what is restored at boot, and what was there before the first change."""
    return RECORD_PATH, original.path_of(journal)


def nothing_kept(journal: Journal) -> bool:
    """Return whether the collection has nothing of this host to restore."""
    return not any(map(_exists, kept_files(journal)))


def _exists(path: str) -> bool:
    return read_text(path) is not None


def _recorded() -> tuple[GpuRecord, ...]:
    try:
        return read_recorded_layout(read_json(read_text(RECORD_PATH) or "null"))
    except (ValueError, Unreadable):
        return ()


def _record(document: Mapping[str, Any]) -> None:
    if _differs(document):
        write_whole(RECORD_PATH, json.dumps(document, indent=1, sort_keys=True) + "\n")


def _differs(document: Mapping[str, Any]) -> bool:
    """Return whether other GPUs are recorded, or others layouts of them. The request is for people only, and of two
    tasks that select different GPUs each would write its own.
    """
    if not document["gpus"]:
        return False
    try:
        recorded = read_json(read_text(RECORD_PATH) or "null")
    except ValueError:
        return True
    return not isinstance(recorded, dict) or any(recorded.get(key) != document[key] for key in ("schema", "gpus"))


def _cdi_is_stale(gpus: Sequence[HostGpu]) -> bool:
    """Return whether a specification is there that names other MIG devices than the host has."""
    path = cdi.path()
    text = read_text(path)
    try:
        devices = parse_specification(path, text or "").devices
    except ValueError:
        return False
    missing, stale = compare(devices, [gpu.facts for gpu in gpus if not gpu.state.lost])
    return any(name.startswith("MIG-") or ":" in name for name in (*missing, *stale))


def _warnings(found: MigPlan, selected: DesiredLayout, gpus: Sequence[HostGpu]) -> tuple[str, ...]:
    texts = [refused.message for refused in found.left_alone.values()]
    texts += found.unknown
    alone = [gpu.title for gpu in gpus if gpu.index in selected.unselected and gpu.has_mig]
    if alone and selected.gpus:
        texts.append(f"The layout does not select {', '.join(alone)}: left as it is")
    return tuple(texts)


def _kept(prepared: Prepared, outcome: MigOutcome | None) -> list[str]:
    titles = [instance_title(gpu.facts, instance.as_dict()) for gpu in prepared.gpus for instance in gpu.node.current]
    gone = _planned(prepared, Kind.DESTROY_GPU_INSTANCE) if outcome is None else outcome.done.destroyed
    return [title for title in titles if title not in gone]


def _planned(prepared: Prepared, kind: Kind) -> list[str]:
    return [instance_title(step.data, step.data) for step in prepared.steps.steps if step.kind is kind]
