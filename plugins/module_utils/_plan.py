# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every planner of the collection speaks: steps, plans and refusals, as plain data; and the one shape of the results of modules that plan.

A planner is a pure function. It returns a L(Plan), or raises L(Refused) before anything is touched.
Nothing here imports Ansible or opens a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Callable, NoReturn, Protocol

from ._printable import LONGEST_OUTPUT, printable
from ._steps import Kind, sentence


class Refused(Exception):
    """A request that cannot be met, found before anything was touched.

    :param thing: what the refusal is about, such as C(nvidia_mig_layout[0].instances) or C(GPU 0000:18:00.0).
    :param reason: why it cannot be met, one sentence without a full stop.
    :param remedy: what would work: the option that allows it, or the nearest request that can be met.
    """

    def __init__(self, thing: str, reason: str, remedy: str = "") -> None:
        self.thing = thing
        self.reason = reason
        self.remedy = remedy
        super().__init__(self.message)

    @property
    def message(self) -> str:
        text = f"{self.thing}: {self.reason}."
        return str(printable(f"{text} {self.remedy}" if self.remedy else text, lines=True, longest=LONGEST_OUTPUT))

    def as_dict(self) -> dict[str, str]:
        return {"thing": self.thing, "reason": self.reason, "remedy": self.remedy, "message": self.message}


@dataclass(frozen=True)
class Step:
    """One thing that a plan does.

    :param kind: what is done. Whoever needs to know what a step does reads this and C(data), never its text.
    :param target: the key of what it acts on: a PCI address, a package, a unit, a path, the name of a daemon.
    :param disturbs: who notices, for people: instances, clients, pods, services; empty when nobody does.
    :param data: what code needs to carry it out or to judge it (plain, JSON-serialisable values).
    """

    kind: Kind
    target: str
    why: str
    disturbs: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """What it does, in words."""
        return sentence(self.kind, self.target, self.data)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind.key,
            "target": self.target,
            "data": dict(self.data),
            "text": str(self),
            "why": self.why,
            "disturbs": list(self.disturbs),
        }

    def __str__(self) -> str:
        return sentence(self.kind, self.target, self.data, self.why, self.disturbs)


@dataclass(frozen=True)
class Plan:
    """The steps from the present state to the desired state.

    :param steps: in the order in which they are applied; empty when nothing is to do.
    :param before: the part of the present state that the plan changes, for C(--diff).
    """

    steps: tuple[Step, ...] = ()
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return what every module returns of its plan. Warnings go to Ansible."""
        return {"changed": self.changes, "steps": [step.as_dict() for step in self.steps]}

    def diff(self, header: str) -> dict[str, str]:
        """Return both states as stable, readable text: a part of C(--diff)."""
        return {
            "before_header": header,
            "after_header": header,
            "before": _as_text(self.before),
            "after": _as_text(self.after),
        }


class Verdict(Enum):
    """What the facts of a host prove about a stage: the one answer to whether it is as described."""

    IMPOSSIBLE = "impossible"
    TO_CHANGE = "to change"
    UNREAD = "unread"
    AS_DESCRIBED = "as described"


@dataclass(frozen=True)
class StagePlan:
    """What one stage of C(site) (driver, toolkit, runtime, mig, sharing) would do on one host, from facts alone.

    :param needed: whether the stage's module has to run. False only when the facts already prove the desired state.
    :param steps: what is known of the change; may be incomplete when C(unknown) is set.
    :param unknown: why the plan cannot be complete yet (for example: no driver, so no live profiles), or None.
    :param refusals: requests that can never be met on this host.
    :param unread: what the facts do not tell, so that nothing can be concluded from them, or None.
    """

    stage: str
    needed: bool
    steps: tuple[Step, ...] = ()
    unknown: str | None = None
    refusals: tuple[Refused, ...] = ()
    warnings: tuple[str, ...] = ()
    unread: str | None = None

    @property
    def verdict(self) -> Verdict:
        if self.refusals:
            return Verdict.IMPOSSIBLE
        if not self.needed:
            return Verdict.AS_DESCRIBED
        return Verdict.TO_CHANGE if self.unread is None else Verdict.UNREAD

    def as_dict(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "verdict": self.verdict.value,
            "needed": self.needed,
            "steps": [step.as_dict() for step in self.steps],
            "unknown": self.unknown,
            "unread": self.unread,
            "refusals": [refusal.as_dict() for refusal in self.refusals],
            "warnings": list(self.warnings),
        }


def verdict_of(stages: Iterable[StagePlan]) -> Verdict:
    """Return what the stages of a host say together: the first of the verdicts, in their order, that one of them has."""
    found = {stage.verdict for stage in stages}
    return next((verdict for verdict in Verdict if verdict in found), Verdict.AS_DESCRIBED)


def _as_text(state: Mapping[str, Any]) -> str:
    return json.dumps(state, indent=2, sort_keys=True, default=str) + "\n" if state else ""


def steps_diff(name: str, steps: Sequence[Step]) -> dict[str, str]:
    """Return the steps of a plan as one part of C(--diff): on a bare host nothing else shows what would be done."""
    text = "".join(f"{step}\n" for step in steps)
    return {"before_header": f"{name}: steps", "after_header": f"{name}: steps", "before": "", "after": text}


class Failure(Exception):
    """What a module could not do, in a message for people. C(more): what the module returns besides."""

    def __init__(self, message: str, **more: Any) -> None:
        self.more = more
        super().__init__(message)


class NotInEffect(Failure):
    """Every step was carried out, and the plan that is made of what is read back is not empty."""


def carry_out(
    what: str,
    plan: Plan,
    apply: Callable[[Plan], None],
    plan_again: Callable[[], Plan],
    rounds: int = 1,
    waits: Callable[[Step], bool] = lambda _step: False,
) -> tuple[tuple[Step, ...], list[Step]]:
    """Apply a plan, read back by planning again, and return the steps that were carried out, and those that wait for something.

    :param what: what is done, such as C(set up DCGM).
    :param plan_again: reads the host and plans; a refusal then means that somebody changed the host meanwhile.
    :param rounds: how often to apply what is left: more than one where only the first steps bring what later ones are planned from.
    :param waits: whether a step is completed by a reset or a reboot that was not allowed.
    :raises NotInEffect: another step is left.
    """
    done: list[Step] = []
    left = plan
    for _round in range(rounds):
        apply(left)
        done += left.steps
        try:
            left = plan_again()
        except Refused as refusal:
            raise NotInEffect(f"Failed to {what}: every step was carried out, but then: {refusal.message}") from refusal
        if all(waits(step) for step in left.steps):
            return tuple(done), list(left.steps)
    needed = "; ".join(str(step) for step in left.steps if not waits(step))
    raise NotInEffect(f"Failed to {what}: every step was carried out, but these are still needed: {needed}")


#: What C(reboot) in the data of a step says: as the host was when it was read, the step needs one; who has the driver open was not read.
REBOOT_NEEDED, REBOOT_POSSIBLE = "needed", "possible"
#: C(data.containers) of a step whose restart of the container runtime may stop containers.
STOPPED = "stopped"
#: Reasons for a reboot that a line names; the rest is counted.
_NAMED_REASONS = 3


def hurts_pods(stage: str, step: Step) -> bool:
    """Return whether pods of a host may end with a step. They outlive a restart of their runtime, unless it stops containers."""
    return bool(step.disturbs) and (stage != "runtime" or step.data.get("containers") == STOPPED)


def awaited_reboot(reasons: Sequence[str], allowed: bool, variable: str) -> str:
    """Return how a step names, among those whom it disturbs, a host that cannot do without a reboot.

    :param reasons: why it cannot, as things are now.
    :param variable: with which they do.
    """
    named = [
        *reasons[:_NAMED_REASONS],
        *([f"{len(reasons) - _NAMED_REASONS} more"] if reasons[_NAMED_REASONS:] else []),
    ]
    fate = "is rebooted" if allowed else f"needs a reboot ({variable} is false)"
    return f"the host, which {fate}: {', '.join(named)}"


class Module(Protocol):
    """What is needed of Ansible's C(AnsibleModule)."""

    params: Mapping[str, Any]
    check_mode: bool
    _diff: bool

    def warn(self, warning: str) -> None: ...

    def exit_json(self, **kwargs: Any) -> NoReturn: ...

    def fail_json(self, msg: str, **kwargs: Any) -> NoReturn: ...


def succeed(
    module: Module, name: str, plan: Plan, parts: Sequence[Mapping[str, str]] | None = None, **more: Any
) -> NoReturn:
    """End a module that carried out a plan, or in check mode made one.

    :param name: what was planned, for the headers of C(--diff).
    :param parts: what C(--diff) shows beside the steps, where it is not the state before and after.
    """
    for warning in plan.warnings:
        module.warn(warning)
    result = {**plan.as_dict(), **more}
    if module._diff:
        shown = [steps_diff(name, plan.steps), *([plan.diff(name)] if parts is None else parts)]
        result["diff"] = [part for part in shown if part["before"] != part["after"]]
    module.exit_json(**result)


def refuse(module: Module, *refusals: Refused) -> NoReturn:
    """End a module whose request cannot be met, before anything was changed."""
    text = "\n".join(refusal.message for refusal in refusals)
    module.fail_json(msg=f"{text} Nothing was changed.", refusals=[refusal.as_dict() for refusal in refusals])
