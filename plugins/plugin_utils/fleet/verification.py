# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of a host together: whether it is as described, which its stages say, whether it works, what its node
shows, and what C(doctor) says of one that may never have seen this collection. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._boards.cards import cards_on_bus
from ...module_utils._facts_view import DriverFacts, Facts, RuntimeFacts
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._health.report import FAILED, PASSED, SKIPPED, UNPROVEN, WARNING, Check
from ...module_utils._plan import StagePlan, Step, Verdict, hurts_pods, verdict_of
from ...module_utils._runtimes import UNCONFIGURED
from ...module_utils._users import users_of
from .inspection import imex_state
from .plan import stage_lines, step_lines
from .text import ranges

#: The check that says why a host could not be read.
_REACH = "reach"


@dataclass(frozen=True)
class Verification:
    """The checks of one host, in the order in which the first failure is the one to fix: of its description, which fail where site would change
    something, then of its function, for what no description says.
    """

    described: tuple[Check, ...]
    function: tuple[Check, ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        return (*self.described, *self.function)

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status == FAILED)

    @property
    def warned(self) -> int:
        return sum(1 for check in self.checks if check.status == WARNING)

    @property
    def unproven(self) -> tuple[str, ...]:
        """The names of the checks that nothing on the host could show."""
        return tuple(check.name for check in self.checks if check.status == UNPROVEN)

    @property
    def healthy(self) -> bool:
        return not self.failed

    @property
    def unread(self) -> str:
        """Why nothing is known of the host; empty where something is."""
        return self.failed[0].evidence if [check.name for check in self.failed] == [_REACH] else ""

    @property
    def summary(self) -> str:
        """One line: whether it is as described, and whether it works."""
        if self.unread:
            return f"could not be read: {self.unread}"
        said = []
        for checks, well, wrong in (
            (self.described, "as described", "not as described"),
            (self.function, "works", "does not work"),
        ):
            names = dict.fromkeys(check.name for check in checks if check.status == FAILED)
            said.append(f"{wrong}: {', '.join(names)}" if names else well)
        return (
            "; ".join(said)
            + (f", {self.warned} warnings" if self.warned else "")
            + (f", not proven: {', '.join(self.unproven)}" if self.unproven else "")
        )

    def as_dict(self) -> dict[str, Any]:
        groups = (("description", self.described), ("function", self.function))
        return {
            "healthy": self.healthy,
            "failed_check": self.failed[0].name if self.failed else None,
            "checks": [{"group": group, **check.as_dict()} for group, checks in groups for check in checks],
        }


def of_stages(stages: Mapping[str, StagePlan]) -> list[Check]:
    """Return what the stages of a host say as checks: each step that C(site) would take is a failed one, in the words of C(plan).

    :param stages: as L(Description.stages) returns them; those that are no stages of C(site) say why there are no others.
    """
    found = []
    for name, plan in stages.items():
        if plan.verdict is Verdict.AS_DESCRIBED and not plan.warnings:
            found.append(_check(_named(name), PASSED, "as described"))
        for refusal in plan.refusals:
            found.append(_check(_named(name), FAILED, f"{refusal.thing}: {refusal.reason}", refusal.remedy))
        for line, steps in step_lines(plan.steps):
            found.append(_check(_named(name), FAILED, line, _leads_on(name, steps)))
        for reason in (plan.unknown, plan.unread):
            if reason and plan.verdict in (Verdict.TO_CHANGE, Verdict.UNREAD):
                found.append(_check(_named(name), FAILED, f"not known: {reason}", _leads_on(name, ())))
        for warned in plan.warnings:
            found.append(_check(_named(name), WARNING, warned))
    return found


def _named(stage: str) -> str:
    """Return the name of the check of a stage. Checks of function are called after what they look at, as stages are."""
    return "description" if stage in NO_STAGES else f"stage {stage}"


#: Plans that stand alone, because nothing else can be planned.
NO_STAGES = ("variables", "privileges", "hardware")
#: Who changes what somebody uses, by the stage: these playbooks take the node out of service first, or evict the pods that are in the way.
_IN_SERVICE = {"driver": "upgrade", "toolkit": "upgrade", "mig": "repartition"}


def _leads_on(stage: str, steps: Sequence[Step]) -> str:
    """Return what carries out steps: C(site), or what does so on a host whose GPUs are in use."""
    disturbed = any(hurts_pods(stage, step) for step in steps)
    playbook = _IN_SERVICE.get(stage, "site") if disturbed else "site"
    return f"Run gpufleet.nvidia.{playbook}" + (
        ", once nobody uses what it disturbs" if disturbed and playbook == "site" else ""
    )


#: The checks of a node in the cluster, in order.
_OF_NODE = ("node", "device plugin", "allocatable", "labels")


def verification(
    stages: Mapping[str, StagePlan],
    host: Sequence[Check] | None,
    node: Sequence[Check] | None,
    *,
    unread: str = "",
    unasked: str = "",
) -> Verification:
    """Return what is known of one host. What could not be checked is named, with the reason.

    :param stages: the plan of every stage; empty where the host could not be read, and nothing is refused of its description.
    :param host: the checks of its function, as M(gpufleet.nvidia.health) answers them; None where it could not be read.
    :param unasked: why the cluster could not be asked; empty when none was to be.
    """
    checks = of_host(host, unread, of_stages(stages))
    cause = _REACH if host is None else None
    if cause is None and any(stage.refusals for stage in stages.values()):
        cause = checks.failed[0].name
    if node is None and unasked:
        node = [_check("node", FAILED, unasked, "Check the kubeconfig and that the API server can be reached.")]
    elif node is None:
        reason = f"the check {cause} failed" if cause else "no cluster was asked: gpu_cluster_kubeconfig is not set"
        missing = [_check(name, SKIPPED, reason) for name in _OF_NODE]
        return Verification(checks.described, (*checks.function, *missing))
    there = {check.name for check in node}
    reason = next(
        (one.evidence for one in node if (one.name, one.status) == ("node", SKIPPED)), "the check node failed"
    )
    missing = [_check(name, SKIPPED, reason) for name in _OF_NODE if name not in there]
    return Verification(checks.described, (*checks.function, *node, *missing))


def of_host(host: Sequence[Check] | None, unread: str, described: Sequence[Check] = ()) -> Verification:
    """Return what is known of a host itself: its checks, or the one that says why it could not be read."""
    step = "Try: ansible <host> --become -m ansible.builtin.ping. Which Python the host uses is said by ansible_python_interpreter"
    known = [_check(_REACH, FAILED, unread or "the host could not be read", step)] if host is None else host
    return Verification(tuple(described), tuple(known))


def _check(name: str, status: str, evidence: str, step: str = "") -> Check:
    return Check(name, status, evidence.strip().rstrip("."), step)


_NONE = "none"
_UNKNOWN = "not known"


@dataclass(frozen=True)
class Diagnosis:
    """One host.

    :param found: the checks of its health, as far as nobody has to say what it should be.
    :param stages: what C(site) would do with the variables that it has; the roles' defaults where it has none.
    """

    host: str
    facts: Facts | None
    found: Verification
    stages: Mapping[str, StagePlan] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return what is printed for people."""
        if self.found.unread:
            return [
                f"{self.host}: {self.found.summary}",
                f"  next: {self.found.failed[0].next_step.replace('<host>', self.host)}",
            ]
        lines = [f"{self.host}: {self._summary()}"]
        lines += [f"  {name + ':':12} {text}" for name, text in identity(self.facts).items()] if self.facts else []
        for title, statuses in (("What is wrong", ("failed", "warning")), ("What is not proven", ("unproven",))):
            checks = [check for check in self.found.checks if check.status in statuses]
            lines += [f"  {title}:"] if checks else []
            for check in checks:
                lines.append(f"    {check.status:8} {check.name}: {check.evidence}")
                if check.next_step:
                    lines.append(f"             next: {check.next_step}")
        steps = stage_lines(self.stages)
        if self.facts is not None:
            lines += (
                [
                    "  What site would do with its variables, defaults where it has none:",
                    *(f"  {line}" for line in steps),
                ]
                if steps
                else ["  site would change nothing."]
            )
        return lines

    def _summary(self) -> str:
        failed, warned = len(self.found.failed), self.found.warned
        found = f"checks failed: {failed}, warnings: {warned}" if failed or warned else "nothing is wrong"
        return found + (f", not proven: {', '.join(self.found.unproven)}" if self.found.unproven else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "identity": identity(self.facts) if self.facts else None,
            **self.found.as_dict(),
            "verdict": (verdict_of(self.stages.values()) if self.facts else Verdict.UNREAD).value,
            "stages": {name: stage.as_dict() for name, stage in self.stages.items()},
        }


def identity(facts: Facts) -> dict[str, str]:
    """Return what a host is, a line each: the system, the GPUs, what is installed for them and what uses them.

    What the facts do not tell is C(not known), with the reason where there is one; what is not there is C(none).
    """
    host, driver, toolkit = facts.host, facts.driver, facts.toolkit
    system = host.distribution
    kubelet = facts.kubelet
    runtimes, why = facts.runtimes, (facts.unknown or {}).get("driver.loaded_version")
    held = ", held" if toolkit.holds else ""
    return {
        "system": f"{system.id or _UNKNOWN} {system.version or ''} {host.architecture or ''}, "
        f"kernel {host.kernel or _UNKNOWN}, Secure Boot {_switch(host.secure_boot)}",
        "GPUs": "; ".join(_gpus(facts)) or _NONE,
        "driver": _driver(driver) + (f" ({why})" if why and not driver.loaded_version else ""),
        **_imex(facts),
        "toolkit": f"{toolkit.version}{held}" if toolkit.version else _NONE,
        "runtimes": _UNKNOWN if runtimes is None else ", ".join(_runtime(*one) for one in runtimes.items()) or _NONE,
        "MPS daemons": _count(facts.mps),
        "kubelet": _NONE if not kubelet.installed else "active" if kubelet.active else "installed, not active",
    }


def _gpus(facts: Facts) -> list[str]:
    """Return the GPUs, equal ones together; from the PCI bus where the driver does not tell."""
    gpus = facts.gpus
    if gpus is None:
        boards = [card.board or f"PCI device {card.device_id}" for card in cards_on_bus(facts)]
        return [
            f"{boards.count(board)} x {board} on the PCI bus, not seen by a driver" for board in dict.fromkeys(boards)
        ]
    alike: dict[str, list[int]] = {}
    for gpu in gpus:
        alike.setdefault(_gpu(gpu), []).append(gpu.index)
    return [f"{len(indices)} x {text} (GPU {ranges(indices)})" for text, indices in alike.items()]


def _gpu(gpu: GpuFacts) -> str:
    if gpu.lost:
        return "a GPU that fell off the bus"
    mig = gpu.mig
    instances = gpu.gpu_instances
    divided = f", MIG on with {len(instances)} GPU instances" if mig.current else ""
    used = ", in use" if users_of(gpu).everybody else ""
    return f"{gpu.name or _UNKNOWN}, {gpu.memory_mib} MiB{divided}{used}"


def _driver(driver: DriverFacts) -> str:
    loaded, on_disk = driver.loaded_version, driver.on_disk_version
    if not loaded and not on_disk:
        return _NONE
    text = f"{loaded or on_disk}{'' if loaded else ' installed, not loaded'}"
    text += f" {driver.flavour}" if driver.flavour else ""
    text += f" from {driver.source}" if driver.source else ""
    text += f"; {on_disk} is on the disk" if loaded and on_disk and on_disk != loaded else ""
    return text + (f", held: {', '.join(driver.holds)}" if driver.holds else "")


def _imex(facts: Facts) -> dict[str, str]:
    """Return the line about IMEX, which only the hosts of racks have."""
    found = facts.fabric.imex
    if found is None:
        return {}
    return {"IMEX": f"{found.version or 'not installed'}, {imex_state(found)}, {len(found.nodes or ())} nodes"}


def _runtime(name: str, runtime: RuntimeFacts) -> str:
    if name in UNCONFIGURED:
        return f"{name} with or without the runtime nvidia: not read"
    text = f"{name} {runtime.version or _UNKNOWN}"
    return text + (" with the runtime nvidia" if runtime.nvidia else " without the runtime nvidia")


def _count(found: Sequence[Any] | None) -> str:
    return _UNKNOWN if found is None else str(len(found)) if found else _NONE


def _switch(value: bool | None) -> str:
    return _UNKNOWN if value is None else "on" if value else "off"
