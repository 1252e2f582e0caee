# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a whole fleet as a person reads it, from the plans of its hosts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils._health.report import FAILED
from ...module_utils._plan import REBOOT_NEEDED, REBOOT_POSSIBLE, StagePlan, Step, Verdict, hurts_pods, verdict_of
from ...module_utils._printable import amount
from ...module_utils._schema import encode
from ...module_utils._steps import gpu_of
from .expectations import Expected, compare
from .objects import is_cordoned, is_ready
from .pods import read
from .text import ranges, shortened, table

#: Characters of a reason that a line of the table has room for; the whole of it is in the report.
_LONGEST_REASON = 80
#: Names of hosts in the heading over the steps that they have in common.
_MOST_NAMES = 8


@dataclass(frozen=True)
class NodeView:
    """What the cluster shows of a host's node now.

    :param differs: what is not as it will be, one sentence each.
    :param unavailable: why it takes no pods (cordoned, not Ready, not there), or empty.
    """

    name: str
    differs: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    unavailable: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {**encode(self), "unavailable": self.unavailable or None}


def node_view(
    name: str,
    node: Mapping[str, Any] | None,
    pods: Iterable[Mapping[str, Any]],
    daemon_sets: Collection[tuple[str, str]],
    wanted: Expected | None,
    published: Mapping[str, int] | None = None,
) -> NodeView:
    """Return what a node is now beside what its host's description predicts.

    :param published: kind of device to count in the node's ResourceSlices; None where nobody asked.
    """
    if node is None:
        return NodeView(name, (f"the cluster has no node {name}",), (), "not there")
    found = (read(document) for document in pods)
    users = [pod.title for pod in found if pod.uses_gpu and not pod.ended and not pod.of_daemon_set(daemon_sets)]
    checks = compare(node, wanted, published) if wanted else ()
    differs = tuple(f"{check.name}: {check.evidence}" for check in checks if check.status == FAILED)
    unavailable = "cordoned" if is_cordoned(node) else "" if is_ready(node) else "not Ready"
    return NodeView(name, differs, tuple(sorted(users)), unavailable)


@dataclass(frozen=True)
class HostPlan:
    """What C(site) would do on one host.

    :param unread: why nothing is known of the host (unreachable, no recorded facts), or None.
    :param assumed: what was taken for the host that nobody has read; empty where it was read.
    """

    host: str
    pool: str | None
    stages: Mapping[str, StagePlan]
    unread: str | None = None
    node: NodeView | None = None
    assumed: str = ""

    @property
    def verdict(self) -> Verdict:
        found = verdict_of(self.stages.values())
        return Verdict.UNREAD if self.unread and found is not Verdict.IMPOSSIBLE else found

    @property
    def changes(self) -> list[str]:
        return [name for name, stage in self.stages.items() if stage.needed]

    @property
    def impossible(self) -> list[str]:
        return [refusal.message for stage in self.stages.values() for refusal in stage.refusals]

    @property
    def disturbs(self) -> list[str]:
        """Everybody who would notice, without repetitions, in the order of the steps."""
        who = [name for stage in self.stages.values() for step in stage.steps for name in step.disturbs]
        hurt = any(hurts_pods(name, step) for name, stage in self.stages.items() for step in stage.steps)
        if hurt and self.node is not None:
            # Those of the kubelet's record on the host are among them already, with what they were given.
            pods = (f"pod {title}" for title in self.node.pods)
            who += [pod for pod in pods if not any(name.startswith(f"{pod} (") for name in who)]
        return list(dict.fromkeys(who))

    @property
    def reboot(self) -> str | None:
        """Return whether the host has to reboot as it was when it was read: C(needed), C(possible), or None for no."""
        found = {step.data.get("reboot") for stage in self.stages.values() for step in stage.steps}
        return REBOOT_NEEDED if REBOOT_NEEDED in found else REBOOT_POSSIBLE if REBOOT_POSSIBLE in found else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "pool": self.pool,
            "verdict": self.verdict.value,
            "unread": self.unread,
            **({"assumed": self.assumed} if self.assumed else {}),
            "changes": self.changes,
            "disturbs": self.disturbs,
            "reboot": self.reboot,
            "impossible": self.impossible,
            "stages": {name: stage.as_dict() for name, stage in self.stages.items()},
            **({"node": self.node.as_dict()} if self.node is not None else {}),
        }


@dataclass(frozen=True)
class FleetPlan:
    """The plans of all hosts, and the files of the cluster that would change.

    :param requests: on which nodes pods that request GPUs may land, lines for people.
    """

    hosts: Sequence[HostPlan]
    files: Sequence[Mapping[str, str]] = ()
    unrendered: str = ""
    requests: Sequence[str] = ()
    wrong: Sequence[str] = ()

    @property
    def drift(self) -> bool:
        return bool(self.files or self.unrendered or self.wrong) or any(
            host.changes or (host.node is not None and host.node.differs) for host in self.hosts
        )

    @property
    def unread(self) -> list[HostPlan]:
        return [host for host in self.hosts if host.unread]

    def having(self, verdict: Verdict) -> list[HostPlan]:
        return [host for host in self.hosts if host.verdict is verdict]

    def as_dict(self) -> dict[str, Any]:
        return {
            "drift": self.drift,
            "hosts": {host.host: host.as_dict() for host in self.hosts},
            "files": [dict(change) for change in self.files],
            "unrendered": self.unrendered,
            **({"requests": list(self.requests)} if self.requests else {}),
            **({"wrong": list(self.wrong)} if self.wrong else {}),
        }

    def text(self, width: int = 0) -> str:
        """Return the steps of every host that has any (equal ones once), then one line for each host, then the sum."""
        rows = [
            [host.host, host.pool or "-", _state(host), ", ".join(host.changes) or "-", "; ".join(host.disturbs) or "-"]
            for host in self.hosts
        ]
        parts = [
            "\n".join(equal_plans(self.hosts)),
            table(["HOST", "POOL", "STATE", "STAGES THAT CHANGE", "DISTURBS"], rows, width),
        ]
        if self.files:
            parts.append("\n".join(f"  {change['action']} {change['path']}" for change in self.files) + "\n")
        if self.unrendered:
            parts.append(f"  The files of the cluster cannot be rendered: {self.unrendered}\n")
        if self.requests:
            parts.append("\n".join(self.requests) + "\n")
        if self.wrong:
            parts.append("\n".join(f"  impossible: {text}" for text in self.wrong) + "\n")
        parts.append(self.summary())
        return "\n".join(part for part in parts if part)

    def remedy(self) -> str:
        """Return what to do about a fleet that is not as described, one sentence."""
        if self.having(Verdict.IMPOSSIBLE):
            return "Correct what is impossible first: gpufleet.nvidia.site refuses it, and changes no host until it is corrected or left out."
        if all(host.assumed or host.unread for host in self.hosts) and any(host.assumed for host in self.hosts):
            return "Nothing was read: plan again, without gpu_plan_offline, once the hosts answer."
        if self.drift and len(self.unread) < len(self.hosts):
            return "Run gpufleet.nvidia.site to apply the changes."
        return "Correct what keeps the unread hosts from being read."

    def summary(self) -> str:
        changing = self.having(Verdict.TO_CHANGE)
        impossible = len(self.having(Verdict.IMPOSSIBLE))
        others = sum(1 for host in self.hosts if host.node is not None and host.node.differs)
        nodes = f", {amount(others, 'node')} with differences" if others else ""
        assumed = sum(1 for host in self.hosts if host.assumed)
        nodes += f", {assumed} of them assumed and not read" if assumed else ""
        needed = sum(1 for host in changing if host.reboot == REBOOT_NEEDED)
        reboots = f" ({needed} of them with a reboot)" if needed else ""
        return (
            f"{amount(len(self.hosts), 'host')}: {len(self.having(Verdict.AS_DESCRIBED))} as described, {len(changing)} to change{reboots}, "
            f"{impossible} impossible, {len(self.having(Verdict.UNREAD))} unread{nodes}; "
            + (
                "the files of the cluster cannot be rendered"
                if self.unrendered
                else f"{amount(len(self.files), 'file')} of the cluster to change{' once that is corrected' if impossible and self.files else ''}"
            )
        )


def equal_plans(hosts: Iterable[HostPlan]) -> list[str]:
    """Return the steps of every host that has any, those of hosts with the same ones once, below the names of these hosts."""
    equal: dict[tuple[str, ...], list[str]] = {}
    for host in hosts:
        steps = tuple(_steps(host))
        if steps:
            equal.setdefault(steps, []).append(host.host)
    return [
        line
        for steps, names in equal.items()
        # The last name takes no more room than that there is one more.
        for line in (shortened(names, _MOST_NAMES if len(names) <= _MOST_NAMES else _MOST_NAMES - 1), *steps)
    ]


def _steps(host: HostPlan) -> list[str]:
    lines = [*([f"  assumed: {host.assumed}"] if host.assumed else []), *stage_lines(host.stages)]
    if host.node is not None:
        lines += [f"  node {host.node.name}: {text}" for text in host.node.differs]
        if host.node.unavailable and host.changes:
            lines.append(f"  node {host.node.name}: {host.node.unavailable}")
    return lines


def stage_lines(stages: Mapping[str, StagePlan]) -> list[str]:
    """Return the steps of the stages of a host, what is not known of them, what is impossible, and what is warned of, a line each."""
    lines = [f"  {stage}: {text}" for stage, plan in stages.items() for text, _steps in step_lines(plan.steps)]
    lines += [f"  {stage}: not known yet: {plan.unknown}" for stage, plan in stages.items() if plan.unknown]
    lines += [f"  {stage}: not known: {plan.unread}" for stage, plan in stages.items() if plan.unread]
    lines += [f"  impossible: {refusal.message}" for plan in stages.values() for refusal in plan.refusals]
    lines += [f"  warning: {text}" for plan in stages.values() for text in plan.warnings]
    return lines


def step_lines(steps: Iterable[Step]) -> list[tuple[str, list[Step]]]:
    """Return the steps in words: what is done alike to several GPUs is one line, at the place of the first."""
    alike: dict[str, list[Step]] = {}
    for position, step in enumerate(steps):
        # What acts on no GPU, or disturbs somebody, stands for itself.
        alone = "index" not in step.data or step.disturbs
        key = f"{position}" if alone else str(step).replace(gpu_of(step.data), "")
        alike.setdefault(key, []).append(step)
    found = []
    for first, *others in alike.values():
        indices = sorted({int(step.data["index"]) for step in (first, *others)}) if others else []
        text = str(first).replace(gpu_of(first.data), f"GPUs {ranges(indices)}") if others else str(first)
        found.append((text, [first, *others]))
    return found


def _state(host: HostPlan) -> str:
    if host.verdict is not Verdict.UNREAD:
        return host.verdict.value
    first = host.unread or next(str(stage.unread) for stage in host.stages.values() if stage.unread)
    return f"unread: {first.splitlines()[0][:_LONGEST_REASON]}"
