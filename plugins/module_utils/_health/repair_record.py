# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: RUF009 (the functions declare fields)

"""What can be done about a fault, and what was tried: the record that C(gpufleet.nvidia.heal) keeps on a host. Pure.

The record outlives the run, the controller and the boot. It is how a run that was cut off is continued, how the next run knows what did not
help, and why nothing is tried for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, unique
from typing import Any

from .._facts_view import Sxid, Xid
from .._schema import OUTPUT, SCHEMA, Record, boolean, check, has, items, needs, number, of, one_of, text
from .xid import bucket_of, recovery_after, severity_of_sxid
from .xid_catalogue import ALWAYS_FATAL_SXIDS, Bucket


@unique
class Action(Enum):
    """A repair, in the order of what it disturbs."""

    NOTHING = "nothing"
    RESTART_SERVICE = "restart_service"
    #: End the programs that use the GPUs, and no more.
    DRAIN = "drain"
    RESET_GPU = "reset_gpu"
    RELOAD_DRIVER = "reload_driver"
    REBOOT = "reboot"
    #: Nothing that a program can do helps: out of service, for people.
    HAND_OVER = "hand_over"

    @property
    def rank(self) -> int:
        return list(Action).index(self)

    @property
    def whole_host(self) -> bool:
        """Whether no program can use any GPU of the host meanwhile."""
        return self in (Action.RELOAD_DRIVER, Action.REBOOT)


def strongest(actions: Sequence[Action]) -> Action:
    return max(actions, key=lambda action: action.rank, default=Action.NOTHING)


#: What is tried after an action that did not help. A reboot brings MIG, sharing and all services back in their order.
STRONGER: Mapping[Action, Action] = {
    Action.RESTART_SERVICE: Action.REBOOT,
    Action.DRAIN: Action.RESET_GPU,
    Action.RESET_GPU: Action.REBOOT,
    Action.RELOAD_DRIVER: Action.REBOOT,
    Action.REBOOT: Action.HAND_OVER,
    Action.HAND_OVER: Action.HAND_OVER,
}

#: What the driver asks for (NVML's recovery action), by its name in the facts. What is not here is newer than this release, and for people:
#: a value that is not known is not "none". An IMEX domain is of several hosts, and the baseboard is not reached by a reboot.
_BY_RECOVERY = {
    "none": Action.NOTHING,
    "gpu_reset": Action.RESET_GPU,
    "node_reboot": Action.REBOOT,
    "drain_p2p": Action.DRAIN,
    "drain_and_reset": Action.RESET_GPU,
    "recover_imex_domain": Action.HAND_OVER,
    "bus_reset": Action.REBOOT,
    "system_reboot": Action.HAND_OVER,
}

#: What NVIDIA's catalogue asks for, as far as a program can do it. A driver and firmware that do not belong together (C(UPDATE_SWFW)) and
#: errors for which the catalogue names nothing are for people to read, and no reason to take a GPU out of service.
_BY_BUCKET = {
    Bucket.IGNORE: Action.NOTHING,
    Bucket.RESTART_APP: Action.NOTHING,
    Bucket.WORKFLOW_XID_45: Action.NOTHING,
    Bucket.UPDATE_SWFW: Action.NOTHING,
    Bucket.NONE: Action.NOTHING,
    Bucket.RESET_GPU: Action.RESET_GPU,
    Bucket.WORKFLOW_XID_48: Action.RESET_GPU,
    Bucket.WORKFLOW_NVLINK_ERR: Action.RESET_GPU,
    Bucket.WORKFLOW_NVLINK5_ERR: Action.RESET_GPU,
    Bucket.CHECK_UVM: Action.RESET_GPU,
    Bucket.RESTART_VM: Action.REBOOT,
    Bucket.RESTART_BM: Action.REBOOT,
    Bucket.CONTACT_SUPPORT: Action.HAND_OVER,
    Bucket.CHECK_MECHANICALS: Action.HAND_OVER,
}


def of_recovery(name: str) -> Action:
    return _BY_RECOVERY.get(name, Action.HAND_OVER)


def of_xid(error: Xid) -> Action:
    """Return what NVIDIA's catalogue asks for after an Xid error, where the driver itself does not say. An Xid that is not in the catalogue is not
    harmless but unknown, and so for people.
    """
    bucket = bucket_of(error)
    if bucket is Bucket.XID_154:
        return of_recovery(recovery_after(error.text))
    return Action.HAND_OVER if bucket is None else _BY_BUCKET[bucket]


def of_sxid(error: Sxid) -> Action:
    """Return what to do after an error of an NVSwitch: a fatal one asks for the reset of all GPUs with their switches, or for a reboot."""
    if error.number in ALWAYS_FATAL_SXIDS:
        return Action.REBOOT
    return Action.RESET_GPU if severity_of_sxid(error) == "fatal" else Action.NOTHING


#: The steps of one host, in order. A host whose record has one of them was cut off there.
STARTED, REPAIRING, PROVING, RETURNING = STEPS = ("started", "repairing", "proving", "returning")
#: The ends: repaired and proven; out of service, and the next run tries what is stronger; out of service until people looked at it;
#: nothing was changed, and the host is in service as before.
DONE, FAILED, HANDED_OVER, REFUSED = ENDS = ("done", "failed", "handed-over", "refused")

REPAIRED = "repaired"
#: Attempts that are kept; older ones are forgotten.
_KEPT = 50
#: How often an attempt that was cut off while the host was being repaired is taken up again. Then it counts as one that failed.
_TRIES = 2


@dataclass(frozen=True)
class Attempt:
    """One attempt to repair a host.

    :param outcome: C(repaired), C(failed), or empty while it goes on or when it was cut off.
    :param tries: how often it came to the repair itself.
    """

    at: str = needs(text(64))
    action: Action = needs(one_of(Action))
    faults: tuple[tuple[str, str], ...] = needs(items(items(text(256), 2, least=2), 256))
    outcome: str = has(text(pattern=f"|{REPAIRED}|{FAILED}"), "")
    reason: str = has(OUTPUT, "")
    tries: int = has(number(0, 1000), 0)

    @property
    def counts(self) -> bool:
        """Whether it is over, or was cut off too often to be taken up again."""
        return bool(self.outcome) or self.tries >= _TRIES

    @property
    def helped(self) -> bool:
        return self.outcome == REPAIRED


@dataclass(frozen=True)
class RepairRecord(Record):
    """What is known of the repairs of a host.

    :param dealt_with: errors of the kernel's log after which the host was repaired: they stay in the log until the next boot.
    :param initial_unschedulable: whether somebody else had cordoned the node before; it stays so.
    """

    state: str = has(text(pattern="|".join(("", *STEPS, *ENDS))), "")
    attempts: tuple[Attempt, ...] = has(items(of(Attempt), _KEPT), ())
    reason: str = has(OUTPUT, "")
    bundle: str = has(text(), "")
    operator: str = has(text(1024), "")
    since: str = has(text(64), "")
    boot_id: str = has(text(64), "")
    dealt_with: tuple[str, ...] = has(items(text(1024), 1024), ())
    initial_unschedulable: bool = has(boolean, False)

    @property
    def interrupted(self) -> bool:
        return self.state in STEPS

    @property
    def ours(self) -> bool:
        """Whether the host is out of service because of a repair."""
        return self.interrupted or self.state in (FAILED, HANDED_OVER)


_RECORD = of(RepairRecord, SCHEMA)


def from_values(values: Mapping[str, Any] | None) -> RepairRecord:
    """Return the record with these values, as L(Record.as_dict) gives them; None is a host of which nothing is recorded. Raises Unfit: it is not
    a record.
    """
    found: RepairRecord = check(_RECORD, values) if values else RepairRecord()
    return found


def found_cordoned(unschedulable: bool, recorded: bool, ours: bool) -> bool:
    """Return whether people had cordoned a node before a playbook took it out of service: then it stays cordoned at the end.

    :param unschedulable: whether it takes no pods now, whoever has cordoned it.
    :param recorded: what the run found that had the node before.
    :param ours: whether that one was cut off or has failed, so that the cordon is its own.
    """
    return unschedulable and (recorded if ours else True)


def begin(
    record: RepairRecord,
    action: Action,
    faults: tuple[tuple[str, str], ...],
    unschedulable: bool,
    operator: str,
    now: str,
) -> RepairRecord:
    """Return the record of a host that a run begins with, or takes up again. C(unschedulable): whether its node takes no pods now, whoever has
    cordoned it.
    """
    kept = found_cordoned(unschedulable, record.initial_unschedulable, record.ours)
    last = record.attempts[-1] if record.attempts else None
    attempts = record.attempts
    if action is Action.NOTHING:
        # Whatever it was, it is over: what failed before says nothing any more once the host is proven.
        if last is not None and last.outcome == FAILED:
            attempts = (*attempts, Attempt(now, action, last.faults))[-_KEPT:]
    elif last is None or last.counts or last.action is not action or set(last.faults) != set(faults):
        if last is not None and not last.counts and not last.tries:
            # It never came to the repair: it was no attempt.
            attempts = attempts[:-1]
        if action is not Action.HAND_OVER:
            attempts = (*attempts, Attempt(now, action, faults))[-_KEPT:]
    return replace(
        record,
        state=STARTED,
        attempts=attempts,
        reason="",
        bundle="",
        operator=operator,
        since=now,
        initial_unschedulable=kept,
    )


def advance(
    record: RepairRecord, state: str, operator: str, now: str, reason: str = "", bundle: str = ""
) -> RepairRecord:
    attempts = record.attempts
    if attempts and not attempts[-1].outcome:
        last = attempts[-1]
        if state == REPAIRING:
            last = replace(last, tries=last.tries + 1)
        elif state == DONE:
            last = replace(last, outcome=REPAIRED)
        elif state == FAILED:
            last = replace(last, outcome=FAILED, reason=reason)
        # What never came to the repair itself was no attempt.
        none = state == REFUSED or (state == FAILED and not last.tries)
        attempts = (*attempts[:-1], *(() if none else (last,)))
    return replace(
        record,
        state=state,
        attempts=attempts,
        reason=reason,
        bundle=bundle or record.bundle,
        operator=operator,
        since=now,
    )


def if_failed(record: RepairRecord, found: str, untouched: bool = False) -> str:
    """Return how the turn of a host ends that fails now: C(failed), C(refused), or empty where nothing is to be recorded.

    :param found: the state of its record when the run began: a host that was out of service for a repair stays so.
    :param untouched: whether the repair itself refused, before it touched anything.
    """
    if not record.ours:
        return ""
    if RepairRecord(state=found).ours:
        return FAILED
    return REFUSED if untouched or record.state == STARTED else FAILED


def ends_if_failed(record: RepairRecord, found: str) -> dict[str, str]:
    """Return the same for both cases, as roles read it."""
    return {"state": if_failed(record, found), "untouched": if_failed(record, found, untouched=True)}
