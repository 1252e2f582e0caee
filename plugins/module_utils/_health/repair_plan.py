# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done to repair a host: the smallest action that can end its faults, which GPUs are reset together, and who has to go for it. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._boards.board import ARCHITECTURES, is_at_least
from .._facts_view import Facts
from .._formats.host_names import CDI_UNIT, FABRIC_UNIT, MIG_UNIT, PERSISTENCE_UNIT, SETTINGS_UNIT, SHARING_UNIT
from .._formats.utc_time import moment_of
from .._gpu_facts import GpuFacts
from .._mig.state import devices_of
from .._users import TOLERATE_RESET, holders_of, merged, mps_pids, users_of
from .repair_faults import HOST, Described, Fault, find_faults, logged, subject_of
from .repair_record import HANDED_OVER, STRONGER, Action, Attempt, RepairRecord, strongest
from .report import Evidence

#: How often something is repaired before it is handed over.
MOST_ATTEMPTS = 2
_ORDER = (PERSISTENCE_UNIT, FABRIC_UNIT, MIG_UNIT, CDI_UNIT, SETTINGS_UNIT, SHARING_UNIT)
#: nvidia-smi, option -r (--gpu-reset): from Ampere on, GPUs with NVLink can be reset one by one; on Ampere systems with NVSwitches that needs a running
#: fabric manager, from Hopper on it does not. Without, "any GPUs with NVLink connections to a GPU being reset must also be reset in the same command".
_SINCE_SINGLE, _SINCE_WITHOUT_MANAGER = "ampere", "hopper"
#: Boards of before Ampere that have no NVLink: their GPUs are reset one by one. Source: product brief of the T4, which has PCI Express only.
_WITHOUT_NVLINK = ("Tesla T4", "NVIDIA T4")


@dataclass(frozen=True)
class Policy:
    """What a run may do. C(recurrence): seconds in which a fault that comes back counts as one that was not repaired."""

    now: datetime.datetime
    retry: bool = False
    recurrence: int = 86400
    reboot: bool = True


@dataclass(frozen=True)
class Decided:
    """A fault with what is done about it. C(action): which may be stronger than what the fault asks for. C(why): why it is, or empty."""

    fault: Fault
    action: Action
    why: str = ""

    def __str__(self) -> str:
        text = f"{self.fault.title}: {self.fault.reason}"
        return f"{text} ({self.why})" if self.why else text


#: The lists of a plan that its result has under the same names.
_LISTED = ("gpus", "services", "disturbed", "emptied", "device_nodes", "untouched", "notes")


@dataclass(frozen=True)
class RepairPlan:
    """What is done to one host.

    :param action: the strongest of what its faults need; it ends the others too.
    :param gpus: PCI addresses of the GPUs that are reset, or that are for people, in the order of their indices.
    :param disturbed: UUIDs of the GPUs and MIG devices whose programs and pods have to end first.
    :param emptied: PCI addresses of these GPUs.
    :param untouched: titles of the GPUs whose programs go on.
    :param together: why more GPUs are reset than have a fault.
    :param errors: numbers of the Xid errors that ask for something, by which hosts are compared.
    :param handed_over: since when the host is out of service for people, and why; nothing is done to it then.
    """

    action: Action = Action.NOTHING
    decided: tuple[Decided, ...] = ()
    gpus: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    device_nodes: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    together: str = ""
    notes: tuple[str, ...] = ()
    resumed: bool = False
    errors: frozenset[int] = frozenset()
    handed_over: str = ""
    dealt_with: tuple[str, ...] = field(default=(), repr=False)

    @property
    def needed(self) -> bool:
        return not self.handed_over and (self.action is not Action.NOTHING or self.resumed)

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys(one.fault.key for one in self.decided))

    def as_dict(self) -> dict[str, Any]:
        return {
            "action": self.action.value,
            "faults": [
                {
                    "subject": one.fault.subject,
                    "kind": one.fault.kind,
                    "text": str(one),
                    "action": one.action.value,
                    "remedy": one.fault.remedy,
                }
                for one in self.decided
            ],
            **{name: list(getattr(self, name)) for name in _LISTED},
            "together": self.together,
            "resumed": self.resumed,
            "handed_over": self.handed_over,
            "whole_host": self.action.whole_host,
            "reason": reason_of(self),
        }


def plan_repair(evidence: Evidence, described: Described, record: RepairRecord, policy: Policy) -> RepairPlan:
    """Return what is done to a host. C(record): what was tried on it before."""
    same_boot = evidence.facts.host.boot_id == record.boot_id
    findings = find_faults(evidence, described, record.dealt_with if same_boot else ())
    errors = logged(evidence)
    if record.state == HANDED_OVER and not policy.retry:
        since = f"{record.reason} (since {record.since}{f'; the bundle is {record.bundle}' if record.bundle else ''})"
        # The host may serve on without the GPU that was handed over.
        known = {subject for attempt in record.attempts for subject, _kind in attempt.faults}
        new = [fault for fault in findings.faults if fault.subject not in known]
        notes = tuple(f"{fault}: it is not repaired, because the host is handed over (gpu_heal_retry)" for fault in new)
        return RepairPlan(notes=(*findings.notes, *notes), handed_over=since, dealt_with=errors)
    attempts = () if policy.retry else record.attempts
    decided = tuple(_decide(fault, attempts, policy) for fault in findings.faults)
    decided = tuple(sorted(decided, key=lambda one: -one.action.rank))
    action = strongest([one.action for one in decided])
    chosen = [one for one in decided if one.action is action]
    addresses, together = _gpus(evidence.facts, action, chosen)
    disturbed = _disturbed(evidence.facts, action, chosen, addresses)
    return RepairPlan(
        action=action,
        decided=decided,
        gpus=addresses,
        services=_services(decided, action),
        disturbed=tuple(device for gpu in disturbed for device in devices_of(gpu)),
        emptied=tuple(map(subject_of, disturbed)),
        device_nodes=tuple(f"/dev/nvidia{gpu.minor}" for gpu in disturbed if gpu.minor is not None),
        untouched=tuple(gpu.title for gpu in evidence.facts.gpus or () if gpu not in disturbed and not gpu.lost),
        together=together,
        notes=findings.notes,
        # A host that is out of service because of a repair goes back only when it is proven.
        resumed=record.ours,
        errors=findings.errors,
        dealt_with=errors,
    )


def _decide(fault: Fault, attempts: Sequence[Attempt], policy: Policy) -> Decided:
    tried = [one for one in _of(fault, attempts) if one.counts and _matters(one, attempts, policy)]
    action, why = fault.action, ""
    if tried and not tried[-1].helped:
        stronger = STRONGER.get(tried[-1].action, action)
        action = strongest([action, stronger])
        why = f"{tried[-1].action.value} at {tried[-1].at} did not help"
    if len(tried) >= MOST_ATTEMPTS and action is not Action.NOTHING:
        done = ", ".join(f"{one.action.value} at {one.at}" for one in tried[-MOST_ATTEMPTS:])
        action, why = Action.HAND_OVER, f"{len(tried)} repairs did not clear the fault: {done}"
    if action is Action.REBOOT and not policy.reboot:
        action, why = Action.HAND_OVER, "it needs a reboot, but gpu_heal_reboot is false"
    return Decided(fault, action, why)


def _of(fault: Fault, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts against a fault. A GPU may show another sign of the same fault after an attempt; a host has many parts."""
    repairs = [one for one in attempts if one.action is not Action.NOTHING]
    if fault.subject == HOST:
        return [one for one in repairs if fault.key in one.faults]
    return [one for one in repairs if fault.subject in {subject for subject, _kind in one.faults}]


def _matters(attempt: Attempt, attempts: Sequence[Attempt], policy: Policy) -> bool:
    """Whether an attempt still says something: it was not long ago, or nothing has helped since."""
    later = attempts[attempts.index(attempt) + 1 :]
    if not attempt.helped and not any(one.helped for one in later):
        return True
    then = moment_of(attempt.at)
    return then is None or policy.now - then < datetime.timedelta(seconds=policy.recurrence)


def _gpus(facts: Facts, action: Action, chosen: Sequence[Decided]) -> tuple[tuple[str, ...], str]:
    subjects = [one.fault.subject for one in chosen if one.fault.subject != HOST]
    if action is Action.RESET_GPU:
        if any(one.fault.subject == HOST or one.fault.every_gpu for one in chosen):
            # An error of the switches: they are reset with all of their GPUs. None is lost, which would need a reboot.
            every = tuple(subject_of(gpu) for gpu in facts.gpus or ())
            return every, "an error of the NVSwitches, which are reset together with all GPUs"
        return reset_together(facts, subjects)
    if action is Action.HAND_OVER:
        return tuple(dict.fromkeys(subjects)), ""
    return (), ""


def _disturbed(facts: Facts, action: Action, chosen: Sequence[Decided], addresses: Sequence[str]) -> list[GpuFacts]:
    """Return the GPUs whose programs have to end first. What is handed over keeps the programs on its other GPUs until people come. MPS daemons of
    the host serve the clients of all their GPUs by one server: they are stopped for a reset, and so their clients end.
    """
    gpus = [gpu for gpu in facts.gpus or () if not gpu.lost]
    if action.whole_host or (action is not Action.HAND_OVER and any(one.fault.every_gpu for one in chosen)):
        return gpus
    if action is Action.RESET_GPU and facts.mps:
        return gpus
    return [gpu for gpu in gpus if subject_of(gpu) in addresses]


def _services(decided: Sequence[Decided], action: Action) -> tuple[str, ...]:
    if action.rank > Action.RESET_GPU.rank:
        return ()
    named = {unit for one in decided if one.action is Action.RESTART_SERVICE for unit in one.fault.services}
    return (*(unit for unit in _ORDER if unit in named), *sorted(named - set(_ORDER)))


def reason_of(plan: RepairPlan) -> str:
    """Return in one sentence what is wrong, for a record and for people."""
    texts = [str(one) for one in plan.decided]
    remedies = dict.fromkeys(one.fault.remedy for one in plan.decided if one.fault.remedy)
    return ". ".join(["; ".join(texts), *remedies]) + "." if texts else ""


def reset_together(facts: Facts, wanted: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the PCI addresses of the GPUs that are reset in one command, and why there are more than were wanted. C(wanted): PCI addresses of the
    GPUs that have to be reset.
    """
    gpus = {str(gpu.pci_address): gpu for gpu in facts.gpus or () if not gpu.lost}
    reasons = [reason for address in wanted if (reason := _why_not_alone(facts, gpus.get(address), len(gpus)))]
    if not reasons:
        return tuple(address for address in gpus if address in wanted), ""
    others = set(gpus) - set(wanted)
    return tuple(gpus), reasons[0] if others else ""


def _why_not_alone(facts: Facts, gpu: GpuFacts | None, count: int) -> str:
    """Return why a GPU cannot be reset by itself; which GPUs its NVLinks lead to is not in the facts, so that means all of the host."""
    if count < 2:
        return ""
    architecture = (gpu.architecture if gpu else None) or ""
    if architecture not in ARCHITECTURES:
        return f"whether a GPU of the architecture {architecture or 'unknown'} can be reset by itself is not known"
    if not is_at_least(architecture, _SINCE_SINGLE):
        if gpu and gpu.name in _WITHOUT_NVLINK:
            return ""
        return f"GPUs of the architecture {architecture} are reset together with those that NVLink connects them to"
    fabric = facts.fabric
    running = fabric.manager.active is True
    if fabric.nvswitches and not running and not is_at_least(architecture, _SINCE_WITHOUT_MANAGER):
        return (
            "the fabric manager does not run, and without it GPUs of this architecture on NVSwitches are reset together"
        )
    return ""


def users_of_gpus(facts: Facts, addresses: Collection[str], mps: bool = False) -> list[str]:
    """Return whose work on one of some GPUs a repair would end, as people name them. Who has a GPU open is known even where NVML reports no processes
    of it. Pods are evicted before, and the kubelet's record still has them then. C(mps): whether MPS daemons and their servers are no users: they are
    what is repaired.
    """
    gpus = [gpu for gpu in facts.gpus or () if subject_of(gpu) in addresses]
    excused = mps_pids(facts) if mps else ()
    running = (users_of(gpu).everybody for gpu in gpus)
    holding = (holders_of(facts.holders, gpu.minor, TOLERATE_RESET) for gpu in gpus if gpu.minor is not None)
    return [str(user) for user in merged(*running, *holding) if user.pid is not None and user.pid not in excused]
