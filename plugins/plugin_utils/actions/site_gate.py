# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide on the controller, for all hosts of a run at once, which of them have something to do, and whether any may begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._facts_view import Facts
from ...module_utils._health.checks import judged
from ...module_utils._health.software import is_auto
from ...module_utils._host.stage import STAGE as BOOT
from ...module_utils._plan import Refused, StagePlan, Verdict, verdict_of
from ...module_utils._slurm.stage import STAGE as SLURM
from ..action_options import takes
from ..descriptions import Description, hosts_of, refusals_of_hosts, warnings_of
from ..fleet.plan import HostPlan, equal_plans
from ..fleet.text import shortened
from ..host_facts import ControllerAction
from ..plain import is_true
from ..planning import OPTIONS
from .plan_gate import Comparison

AS_DESCRIBED, TO_CHANGE, TO_PROVE, REFUSED, UNREAD = "as described", "to change", "to prove", "refused", "unread"


@dataclass(frozen=True)
class HostWork:
    """What a host that was read has to do in a run of C(site).

    :param state: one of the states above.
    :param why: the stages that have to run, or why its health has to be looked at, or why it could not be read; empty where nothing is to do.
    :param refusals: what of its description cannot be met.
    :param stages: the plan of every stage; empty where the host could not be read.
    """

    host: str
    pool: str | None
    state: str
    why: str = ""
    refusals: tuple[Refused, ...] = ()
    stages: Mapping[str, StagePlan] = field(default_factory=dict)


def work_of(
    host: str,
    description: Description,
    facts: Facts | None,
    unread: str = "",
    stages: Mapping[str, StagePlan] | None = None,
) -> HostWork:
    """Return what C(host) has to do. C(stages): where they are planned already."""
    if facts is None and not description.refusals:
        return HostWork(host, description.pool, UNREAD, unread)
    stages = description.stages(facts) if stages is None else stages
    refusals = tuple(refusal for stage in stages.values() for refusal in stage.refusals)
    verdict = verdict_of(stages.values())
    if verdict is Verdict.IMPOSSIBLE:
        return HostWork(host, description.pool, REFUSED, "", refusals, stages)
    if verdict is not Verdict.AS_DESCRIBED:
        # What the facts do not tell its stage reads on the host.
        needed = ", ".join(name for name, stage in stages.items() if stage.needed)
        return HostWork(host, description.pool, TO_CHANGE, needed, (), stages)
    doubt = _doubt(description.variables, facts or Facts())
    return HostWork(host, description.pool, TO_PROVE if doubt else AS_DESCRIBED, doubt, (), stages)


def _doubt(variables: Mapping[str, Any], facts: Facts) -> str:
    """Return why the role C(nvidia_health) has to look at a host with nothing to change; empty where it is healthy as it was read."""
    program = variables["nvidia_health_cuda_check"]
    # A program of the user's is run on every host; what the host has is only run where something was changed.
    if (program and not is_auto(program)) or variables["nvidia_health_fresh"] or facts.health is None:
        return "its health is proven on the host"
    level = variables["nvidia_health_dcgm_level"]
    failure = judged(facts, variables["nvidia_health_checks"], dcgm_level=level).first_failure
    return failure[0] if failure else ""


def by_pool(hosts: Iterable[HostWork]) -> list[str]:
    """Return a line for each pool: how many hosts are as described, and who is not."""
    pools: dict[str, dict[str, list[HostWork]]] = {}
    for one in hosts:
        pools.setdefault(one.pool or "in no pool", {}).setdefault(one.state, []).append(one)
    lines = []
    for pool, states in sorted(pools.items()):
        parts = []
        for state in (AS_DESCRIBED, TO_CHANGE, TO_PROVE, REFUSED, UNREAD):
            there = states.get(state, [])
            if there:
                named = [f"{one.host} ({one.why})" if one.why else one.host for one in there]
                parts.append(f"{len(there)} {state}" + ("" if state == AS_DESCRIBED else f": {shortened(named)}"))
        lines.append(f"  {pool}: {'; '.join(parts)}")
    return lines


class ActionModule(ControllerAction):
    OPTIONS = {**takes("fleet", needs="hosts"), **OPTIONS}
    UNTOUCHED = " No host is changed."

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        found, stopping = [], []
        # Each host is read and planned once, also where it is compared with a saved plan.
        comparison = Comparison(arguments, "site", task_vars) if arguments["plan"] else None
        for host in hosts_of(arguments["hosts"], task_vars):
            stages = comparison.planned(host).stages if comparison else None
            work = work_of(host.name, host.description, host.facts, host.unread, stages)
            found.append(work)
            if work.refusals and not is_true(host.variables.get("gpu_facts_skip_refused_hosts")):
                stopping.append(work)
        # In check mode each stage shows its own steps, and the warnings of a plan stand with its steps.
        shown = () if self._task.check_mode else (TO_CHANGE,)
        for warning in warnings_of((work.host, work.stages) for work in found if work.state not in shown):
            self._display.warning(warning)
        plans = equal_plans(HostPlan(work.host, work.pool, work.stages) for work in found if work.state in shown)
        for line in [*plans, *by_pool(found)]:
            self._display.display(line)
        todo = [work.host for work in found if work.state != AS_DESCRIBED]
        as_described = len(found) - len(todo)
        refusals = ((work.host, refusal) for work in found for refusal in work.refusals)
        held = comparison.result() if comparison else {}
        result: dict[str, Any] = {
            "todo": todo,
            "to_change": [work.host for work in found if work.state == TO_CHANGE],
            "to_accept": [work.host for work in found if _is_accepted_again(work)],
            "of_slurm": [work.host for work in found if SLURM in work.stages],
            "refusals": [*refusals_of_hosts(refusals), *held.pop("refusals", ())],
            "as_described": as_described,
            "msg": f"{as_described} of {len(found)} hosts are as described.",
            **held,
        }
        if stopping:
            lines = [f"{work.host}: {refusal.message}" for work in stopping for refusal in work.refusals]
            end = f"No host is changed, because the description of {', '.join(work.host for work in stopping)} is refused, for the reasons above. Correct it, "
            end += "leave these hosts out with --limit, or set gpu_facts_skip_refused_hosts: true to go on with the other hosts."
            result.update(failed=True, msg="\n".join([*lines, end]))
        return result


def _is_accepted_again(work: HostWork) -> bool:
    """Whether the GPUs, or what serves them, change: a host that only gets a new host program, or files of Slurm, stays."""
    needed = {name for name, stage in work.stages.items() if stage.needed}
    return work.state == TO_CHANGE and bool(needed - {BOOT, SLURM})
