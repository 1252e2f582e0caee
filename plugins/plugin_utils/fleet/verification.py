# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is known of a host together: whether it is as described, which its stages say, whether it works, and what its node shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils._plan import StagePlan, Step, Verdict, hurts_pods
from ...module_utils._schema import OUTPUT, fields, items, text
from .plan import step_lines

DESCRIPTION, FUNCTION = "description", "function"
#: The check that says why a host could not be read.
_REACH = "reach"

#: What M(gpufleet.nvidia.health) answers under C(checks).
CHECKS = items(
    fields(
        {
            "name": text(64),
            "status": text(pattern="passed|failed|warning|skipped|unproven"),
            "evidence": OUTPUT,
            "next_step": OUTPUT,
        },
        required=("name", "status", "evidence", "next_step"),
    ),
    256,
)


@dataclass(frozen=True)
class Verification:
    """The checks of one host, in the order in which the first failure is the one to fix: of its description, then of its function.

    Each has C(group): C(description) where site would change something else, C(function) for what no description says.
    """

    checks: tuple[Mapping[str, Any], ...]

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(check for check in self.checks if check["status"] == "failed")

    @property
    def unproven(self) -> tuple[str, ...]:
        """The names of the checks that nothing on the host could show."""
        return tuple(check["name"] for check in self.checks if check["status"] == "unproven")

    @property
    def healthy(self) -> bool:
        return not self.failed

    @property
    def unread(self) -> str:
        """Why nothing is known of the host; empty where something is."""
        return str(self.failed[0]["evidence"]) if [check["name"] for check in self.failed] == [_REACH] else ""

    @property
    def summary(self) -> str:
        """One line: whether it is as described, and whether it works."""
        if self.unread:
            return f"could not be read: {self.unread}"
        said = []
        for group, well, wrong in (
            (DESCRIPTION, "as described", "not as described"),
            (FUNCTION, "works", "does not work"),
        ):
            names = dict.fromkeys(check["name"] for check in self.failed if check["group"] == group)
            said.append(f"{wrong}: {', '.join(names)}" if names else well)
        warnings = sum(1 for check in self.checks if check["status"] == "warning")
        return (
            "; ".join(said)
            + (f", {warnings} warnings" if warnings else "")
            + (f", not proven: {', '.join(self.unproven)}" if self.unproven else "")
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "healthy": self.healthy,
            "failed_check": self.failed[0]["name"] if self.failed else None,
            "checks": [dict(check) for check in self.checks],
        }


def of_stages(stages: Mapping[str, StagePlan]) -> list[dict[str, str]]:
    """Return what the stages of a host say as checks: each step that C(site) would take is a failed one, in the words of C(plan).

    :param stages: as L(Description.stages) returns them; those that are no stages of C(site) say why there are no others.
    """
    found = []
    for name, plan in stages.items():
        if plan.verdict is Verdict.AS_DESCRIBED and not plan.warnings:
            found.append(_check(_named(name), "passed", "as described", group=DESCRIPTION))
        for refusal in plan.refusals:
            found.append(
                _check(_named(name), "failed", f"{refusal.thing}: {refusal.reason}", refusal.remedy, DESCRIPTION)
            )
        for line, steps in step_lines(plan.steps):
            found.append(_check(_named(name), "failed", line, _leads_on(name, steps), DESCRIPTION))
        for reason in (plan.unknown, plan.unread):
            if reason and plan.verdict in (Verdict.TO_CHANGE, Verdict.UNREAD):
                found.append(_check(_named(name), "failed", f"not known: {reason}", _leads_on(name, ()), DESCRIPTION))
        for warned in plan.warnings:
            found.append(_check(_named(name), "warning", warned, group=DESCRIPTION))
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
    host: Sequence[Mapping[str, Any]] | None,
    node: Sequence[Mapping[str, Any]] | None,
    *,
    unread: str = "",
    unasked: str = "",
) -> Verification:
    """Return what is known of one host. What could not be checked is named, with the reason.

    :param stages: the plan of every stage; empty where the host could not be read, and nothing is refused of its description.
    :param host: the checks of its function, as M(gpufleet.nvidia.health) answers them; None where it could not be read.
    :param unasked: why the cluster could not be asked; empty when none was to be.
    """
    checks = [*of_host(host, unread, of_stages(stages)).checks]
    cause = next((str(check["name"]) for check in checks if check["name"] == _REACH), None)
    if cause is None and any(stage.refusals for stage in stages.values()):
        cause = next(str(check["name"]) for check in checks if check["status"] == "failed")
    if node is None and unasked:
        step = "Check the kubeconfig and that the API server can be reached."
        node = [_check("node", "failed", unasked, step)]
    elif node is None:
        reason = f"the check {cause} failed" if cause else "no cluster was asked: gpu_cluster_kubeconfig is not set"
        return Verification((*checks, *(_check(name, "skipped", reason) for name in _OF_NODE)))
    there = {check["name"] for check in node}
    missing = (_check(name, "skipped", "the check node failed") for name in _OF_NODE if name not in there)
    return Verification((*checks, *({**check, "group": FUNCTION} for check in node), *missing))


def of_host(
    host: Sequence[Mapping[str, Any]] | None, unread: str, described: Sequence[Mapping[str, Any]] = ()
) -> Verification:
    """Return what is known of a host itself: its checks, or the one that says why it could not be read."""
    if host is not None:
        return Verification((*described, *({**check, "group": FUNCTION} for check in host)))
    step = "See the message of the task that failed, or try: ansible <host> --become -m ansible.builtin.ping"
    return Verification((*described, _check(_REACH, "failed", unread or "the host could not be read", step)))


def _check(name: str, status: str, evidence: str, step: str = "", group: str = FUNCTION) -> dict[str, str]:
    return {"group": group, "name": name, "status": status, "evidence": evidence.strip().rstrip("."), "next_step": step}
