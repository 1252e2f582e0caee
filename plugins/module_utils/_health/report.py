# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the checks are made of, and the order in which they run.

A check that another one needs is not run once that one has failed: the first failure is the one to fix, and what
follows from it would only hide it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable

from .._facts_view import AnswerFacts, Facts, HealthFacts, Sxid, Xid
from .._schema import OUTPUT, encode, items, needs, of, text

PASSED = "passed"
FAILED = "failed"
WARNING = "warning"
SKIPPED = "skipped"
#: Nothing on the host could show it.
UNPROVEN = "unproven"
#: What mends most of what is wrong with a driver.
DRIVER_ROLE = "Run gpufleet.nvidia.site (role nvidia_driver)"
#: Where module and library are of different drivers: site refuses that host while somebody uses it.
LOAD_ON_DISK = "Run gpufleet.nvidia.upgrade, which empties the host and loads the driver on disk, or reboot it"


@dataclass(frozen=True)
class DcgmRun:
    """How C(dcgmi diag) ended, and why it ran at a lower level than was asked for, or empty."""

    level: int
    answer: AnswerFacts
    installed: bool = True
    why: str = ""


@dataclass(frozen=True)
class Evidence:
    """Everything that the checks look at. Nothing else is read while they run.

    :param cuda_by_dcgm: how C(dcgmi diag) ended that was run in place of a CUDA program.
    :param cuda_unproven: why neither was run although CUDA is to be proven by what is there; empty where nothing is asked for.
    :param owed: whether C(dcgmi diag) has to accept the host still, because C(site) changed it.
    """

    facts: Facts
    nvidia_smi: AnswerFacts | None = None
    xids: Sequence[Xid] | None = None
    sxids: Sequence[Sxid] | None = None
    cuda: AnswerFacts | None = None
    cuda_by_dcgm: DcgmRun | None = None
    cuda_unproven: str = ""
    dcgm: DcgmRun | None = None
    owed: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a check found: C(status), what that rests on, and what to do about it."""

    status: str
    evidence: str
    next_step: str = ""


@dataclass(frozen=True)
class Check:
    """The outcome of a check with its name: what M(gpufleet.nvidia.health) answers of each, and what is shown of a host and of its node."""

    name: str = needs(text(64))
    status: str = needs(text(pattern="|".join((PASSED, FAILED, WARNING, SKIPPED, UNPROVEN))))
    evidence: str = needs(OUTPUT)
    next_step: str = needs(OUTPUT, "")

    def as_dict(self) -> dict[str, str]:
        return dict(encode(self))


ANSWER = items(of(Check), 256)


@dataclass(frozen=True)
class HealthCheck:
    """One check. C(needs): checks without which this one says nothing."""

    name: str
    evaluate: Callable[[Evidence], Outcome]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class HealthReport:
    """The outcomes by the checks' names, in the order in which they ran."""

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    @property
    def first_failure(self) -> tuple[str, Outcome] | None:
        return next(((name, outcome) for name, outcome in self.outcomes.items() if outcome.status == FAILED), None)

    @property
    def healthy(self) -> bool:
        return self.first_failure is None

    @property
    def message(self) -> str:
        """One line for a person: the first failure with its next step, or that there is none."""
        failure = self.first_failure
        if failure is None:
            text = "Every check passed"
            for status, how in ((WARNING, ", with warnings"), (UNPROVEN, "; not proven")):
                names = [name for name, outcome in self.outcomes.items() if outcome.status == status]
                text += f"{how}: {', '.join(names)}" if names else ""
            return f"{text}."
        name, outcome = failure
        text = f"The check {name} failed: {outcome.evidence}."
        return f"{text} {outcome.next_step}." if outcome.next_step else text

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(Check(name, one.status, one.evidence, one.next_step) for name, one in self.outcomes.items())


def passed(evidence: str) -> Outcome:
    return Outcome(PASSED, evidence)


def failed(evidence: str, next_step: str) -> Outcome:
    return Outcome(FAILED, evidence, next_step)


def warning(evidence: str, next_step: str) -> Outcome:
    return Outcome(WARNING, evidence, next_step)


def unproven(reason: str, next_step: str) -> Outcome:
    return Outcome(UNPROVEN, reason, next_step)


def skipped(reason: str) -> Outcome:
    return Outcome(SKIPPED, reason)


def evaluate(checks: Sequence[HealthCheck], evidence: Evidence, only: Sequence[str] | None = None) -> HealthReport:
    """Run C(checks) in order. C(only): names of the checks to report; the checks that those need are run too, but reported only when they fail.
    Without any all are reported.
    """
    wanted = {check.name for check in checks} if not only else set(only)
    needed = set(wanted)
    for check in reversed(checks):
        if check.name in needed:
            needed |= set(check.needs)
    outcomes: dict[str, Outcome] = {}
    blocked: dict[str, str] = {}
    for check in checks:
        if check.name not in needed:
            continue
        cause = next((blocked[name] for name in check.needs if name in blocked), None)
        if cause is not None:
            outcome = skipped(f"the check {cause} failed")
            blocked[check.name] = cause
        else:
            outcome = check.evaluate(evidence)
            if outcome.status == FAILED:
                blocked[check.name] = check.name
        if check.name in wanted or outcome.status == FAILED:
            outcomes[check.name] = outcome
    return HealthReport(outcomes)


#: The parts of the facts document that only the health checks need.
SUBSETS = ("errors", "health")


def evidence_of(facts: Facts) -> Evidence:
    """Return the evidence that is in facts with the parts of C(SUBSETS)."""
    health = facts.health or HealthFacts()
    return Evidence(facts, health.nvidia_smi, health.xids, health.sxids)
