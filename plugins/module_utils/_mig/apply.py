# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply a plan of MIG to a host, whatever happens: try again, and restore the former layout where it cannot be done.

The plan is made anew from the present state after every surprise, so a run that was cut off anywhere needs no repair
before the next one. A run ends in one of the ways of C(journal): the desired state is reached, a reboot is required for a part
of it, the former layout is back, or neither (and then the journal keeps the former layout for the next run).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .._adapters.command import CommandError
from .._adapters.nvml_library import NvmlError, NvmlUnavailable
from .._plan import Failure, Refused
from .._records import GpuRecord
from .apply_exact import plan_exact
from .apply_machine import Done, Machine, StepFailed
from .host_plan import OFF, MigPlan, toggle_needs_reset
from .journal import Entry, previous_layout
from .journal_lines import NOT_RESTORED, REACHED, REBOOT_REQUIRED, RESTORED
from .state import NodeGpu

#: Makes the plan from what is there and from why GPUs cannot be reset now.
Planner = Callable[[Sequence[NodeGpu], Mapping[int, str]], MigPlan]

# A plan is carried out in one pass, and in one more for GPUs whose mode changes first; every failure costs a pass.
_FAILURES = 3
_PASSES = 8
_PAUSE_SECONDS = 0.2

_SURPRISES = (NvmlError, NvmlUnavailable, StepFailed, CommandError, OSError)


class NotReached(Exception):
    """The layout could not be reached in the passes that a run has."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(dict.fromkeys(reasons))
        super().__init__("; ".join(self.reasons))


# Both, since pylint as ansible-test runs it does not see what L(Failure) is.
class ApplyFailed(Failure, Exception):
    """The desired state was not reached. C(outcome): C(restored) or C(not_restored)."""

    def __init__(self, message: str, outcome: str, done: Done) -> None:
        self.outcome = outcome
        self.done = done
        super().__init__(message, outcome=outcome, carried_out=done.steps)

    def with_problems(self, problems: Sequence[str]) -> ApplyFailed:
        return ApplyFailed(". ".join((str(self), *problems)), self.outcome, self.done)


@dataclass(frozen=True)
class MigOutcome:
    """How a run ended that did not fail.

    :param outcome: C(reached) or C(reboot_required).
    :param plan: the last plan, which has nothing left to do but what waits for a reboot.
    :param setbacks: failures on the way that did not keep the desired state from being reached.
    """

    outcome: str
    plan: MigPlan
    after: tuple[NodeGpu, ...]
    done: Done
    setbacks: tuple[str, ...] = ()


def apply(
    machine: Machine,
    plan: Planner,
    before: Sequence[NodeGpu],
    last: Entry | None,
    entry: Entry,
    make_way: Callable[[], None] | None = None,
) -> MigOutcome:
    """Carry out a plan, from the journal's first line to its last.

    :param plan: makes the plan anew after every surprise.
    :param last: the journal of the run before, which may have been cut off.
    :param entry: the journal's first line; the former layout is filled in.
    :param make_way: what is done before the first step, when the journal is on the disk; what it raises ends the run.
    :raises ApplyFailed: the desired state cannot be reached; says whether the former layout is back.
    """
    former = previous_layout(last, [gpu.record for gpu in before])
    machine.journal.begin(replace(entry, previous=former))
    if make_way is not None:
        try:
            make_way()
        except Exception as error:
            unchanged = former == tuple(gpu.record for gpu in before)
            machine.journal.end(RESTORED if unchanged else NOT_RESTORED, f"No GPU was touched: {error}")
            raise
    try:
        reached, after, setbacks = reach(machine, plan)
    except (NotReached, Refused) as error:
        raise _restore(machine, former, error) from error
    outcome = REBOOT_REQUIRED if reached.deferred else REACHED
    machine.journal.end(outcome, "; ".join(reached.deferred.values()))
    return MigOutcome(outcome, reached, tuple(after), machine.done, setbacks)


def reach(machine: Machine, plan: Planner) -> tuple[MigPlan, list[NodeGpu], tuple[str, ...]]:
    """Carry out a plan, making it anew after every pass, until it has nothing left to do.

    :returns: the last plan, the GPUs as they are then, and what went wrong on the way.
    :raises NotReached: too much went wrong.
    :raises Refused: what is there now (somebody took an instance meanwhile) does not allow the desired state any more.
    """
    reasons: list[str] = []
    for _number in range(_PASSES):
        try:
            gpus = machine.read()
            present = plan(gpus, reset_obstacles(machine, gpus))
            if not present.active:
                return present, gpus, tuple(reasons)
            _one_pass(machine, present)
        except _SURPRISES as error:
            reasons.append(str(error))
            if len(reasons) >= _FAILURES:
                break
            _wake_up(machine)
            time.sleep(_PAUSE_SECONDS * len(reasons))
    raise NotReached(reasons or ["the driver reports success for every change, but the layout is not reached"])


def reset_obstacles(machine: Machine, gpus: Sequence[NodeGpu]) -> dict[int, str]:
    """Return why GPUs cannot be reset now, by index; only those are looked at whose MIG mode may change by a reset."""
    found = {}
    for gpu in gpus:
        if gpu.has_mig and (toggle_needs_reset(gpu.facts.architecture) or gpu.enabled != gpu.facts.mig.pending):
            reason = machine.why_no_reset(gpu)
            if reason is not None:
                found[gpu.index] = reason
    return found


def _one_pass(machine: Machine, plan: MigPlan) -> None:
    """Do what the plan says, GPU by GPU. A GPU whose mode changes gets its instances in the next pass."""
    for change in plan.active:
        if change.mode is None or change.mode == OFF or not change.changes_mode_now:
            machine.change_instances(change.gpu, change.plan)
        if change.changes_mode_now:
            machine.change_mode(change)


def _wake_up(machine: Machine) -> None:
    """Open NVML again where a failed reset left it closed."""
    machine.nvml.close()
    try:
        machine.nvml.open()
    except NvmlUnavailable:
        # The next pass fails on it and says so.
        return


def _restore(machine: Machine, former: Sequence[GpuRecord], error: Exception) -> ApplyFailed:
    """Restore the former layout and return the failure to raise."""
    why = str(error).rstrip(".")
    machine.journal.step("restore the former layout")
    try:
        plan, _after, _setbacks = reach(machine, lambda gpus, no_reset: plan_exact(gpus, former, no_reset))
    except (NotReached, Refused) as second:
        message = (
            f"Failed to reach the MIG layout: {why}. Failed to restore the former layout too: {second}. "
            f"The journal {machine.journal.path} keeps it; run again when the driver answers"
        )
        machine.journal.end(NOT_RESTORED, message)
        return ApplyFailed(message, NOT_RESTORED, machine.done)
    lacking = (*plan.missing, *plan.deferred.values())
    if lacking:
        message = (
            f"Failed to reach the MIG layout: {why}. The former layout is restored except for: {'; '.join(lacking)}"
        )
        machine.journal.end(NOT_RESTORED, message)
        return ApplyFailed(message, NOT_RESTORED, machine.done)
    message = f"Failed to reach the MIG layout: {why}. The former layout is restored"
    machine.journal.end(RESTORED, message)
    return ApplyFailed(message, RESTORED, machine.done)
