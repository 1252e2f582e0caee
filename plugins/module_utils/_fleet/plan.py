# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a whole fleet as a person reads it, from the plans of its hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._plan import StagePlan
from .text import table

#: Characters of a reason that a line of the table has room for; the whole of it is in the report.
_LONGEST_REASON = 80


@dataclass(frozen=True)
class HostPlan:
    """What C(site) would do on one host.

    :param stages: the plan of every stage; empty when the host could not be planned.
    :param unread: why nothing is known of the host (unreachable, no recorded facts), or None.
    """

    host: str
    pool: str | None
    stages: Mapping[str, StagePlan]
    unread: str | None = None

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
        return list(dict.fromkeys(who))

    def as_dict(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "pool": self.pool,
            "unread": self.unread,
            "changes": self.changes,
            "disturbs": self.disturbs,
            "impossible": self.impossible,
            "stages": {name: stage.as_dict() for name, stage in self.stages.items()},
        }


@dataclass(frozen=True)
class FleetPlan:
    """The plans of all hosts, and the files of the cluster that would change.

    :param unrendered: why the files could not be rendered; empty when they could.
    """

    hosts: Sequence[HostPlan]
    files: Sequence[Mapping[str, str]] = ()
    unrendered: str = ""

    @property
    def drift(self) -> bool:
        return bool(self.files or self.unrendered) or any(host.changes or host.impossible for host in self.hosts)

    @property
    def unread(self) -> list[HostPlan]:
        return [host for host in self.hosts if host.unread]

    def as_dict(self) -> dict[str, Any]:
        return {
            "drift": self.drift,
            "hosts": {host.host: host.as_dict() for host in self.hosts},
            "files": [dict(change) for change in self.files],
            "unrendered": self.unrendered,
        }

    def text(self) -> str:
        """Return the steps of every host that has any, then one line for each host, then the sum."""
        lines = []
        for host in self.hosts:
            lines += _steps(host)
        rows = [
            [
                host.host,
                host.pool or "-",
                _state(host),
                ", ".join(host.changes) or "-",
                "; ".join(host.disturbs) or "-",
            ]
            for host in self.hosts
        ]
        parts = ["\n".join(lines), table(["HOST", "POOL", "STATE", "STAGES THAT CHANGE", "DISTURBS"], rows)]
        if self.files:
            parts.append("\n".join(f"  {change['action']} {change['path']}" for change in self.files) + "\n")
        if self.unrendered:
            parts.append(f"  The files of the cluster cannot be rendered: {self.unrendered}\n")
        parts.append(self.summary())
        return "\n".join(part for part in parts if part)

    def summary(self) -> str:
        changing = sum(1 for host in self.hosts if host.changes and not host.impossible and not host.unread)
        impossible = sum(1 for host in self.hosts if host.impossible and not host.unread)
        as_described = len(self.hosts) - changing - impossible - len(self.unread)
        return (
            f"{len(self.hosts)} hosts: {as_described} as described, {changing} to change, {impossible} impossible, "
            f"{len(self.unread)} unread; "
            + (
                "the files of the cluster cannot be rendered"
                if self.unrendered
                else f"{len(self.files)} files of the cluster to change"
            )
        )


def _steps(host: HostPlan) -> list[str]:
    lines = [f"  {stage}: {step}" for stage, plan in host.stages.items() for step in plan.steps]
    lines += [f"  {stage}: not known yet: {plan.unknown}" for stage, plan in host.stages.items() if plan.unknown]
    lines += [f"  impossible: {message}" for message in host.impossible]
    lines += [f"  warning: {text}" for plan in host.stages.values() for text in plan.warnings]
    return [host.host, *lines] if lines else []


def _state(host: HostPlan) -> str:
    if host.unread:
        first = host.unread.splitlines()[0]
        return f"unread: {first[:_LONGEST_REASON]}"
    if host.impossible:
        return "impossible"
    return "to change" if host.changes else "as described"
