# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of hosts that can be saved, and runs that are held to one: the hosts of a run against those of the plan."""

from __future__ import annotations

import calendar
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Callable

from ..module_utils._facts_view import Facts
from ..module_utils._plan import Refused, StagePlan, Step
from ..module_utils._schema import Unfit
from ..module_utils._slurm.stage import DESIRED as SLURM
from .action_options import takes
from .descriptions import Description
from .fleet import saved_plan
from .fleet.recording import digest_of, digests, noting
from .fleet.saved_plan import AGAIN, MOMENT, PlannedHost, SavedPlan
from .fleet.text import shortened
from .host_program import collection_version
from .plain import plain, said
from .plan_file import APPLYING, STAGE_OF, opened, opened_for
from .pools import GPU_HOSTS
from .recommend.seen import SEEN
from .role_variables import HOST_ROLES, role_interface

#: Of the actions that hold a run to one.
OPTIONS = takes("fleet", "plan verify valid_for tree")


@cache
def _known() -> tuple[frozenset[str], dict[str, Any]]:
    """The variables of which not even a digest is kept, and the defaults of all."""
    roles = [role_interface(role) for role in HOST_ROLES]
    secret = (name for role in roles for name, option in role.options.items() if option.get("no_log"))
    return frozenset(secret), {name: value for role in roles for name, value in role.defaults.items()}


def _answered(answer: Mapping[str, Any], of_driver: bool) -> tuple[list[Step], str]:
    """Return the steps that a module answered in check mode, or why they are not known.

    :param of_driver: it leaves the load of the driver to a reboot because of who has it open now. Who empties the host, or comes later, finds nobody, and
        reloads it.
    """
    try:
        if not answer.get("failed"):
            found = saved_plan.steps_of(answer.get("steps") or ())
            pending = (answer.get("pending") or ()) if of_driver else ()
            for one, load in zip(pending, saved_plan.steps_of(pending)):
                excused = one.get("waits_for") or ()
                found.append(replace(load, disturbs=tuple(who for who in load.disturbs if who not in excused)))
            return found, ""
        why = said(answer)
    except Unfit as unfit:
        why = unfit.message
    return [], f"its module failed in check mode: {why}"


class Planning:
    """One host, planned so that it is known which facts that took."""

    def __init__(
        self,
        description: Description,
        facts: Facts | None,
        document: Mapping[str, Any] | None,
        seen: Mapping[str, Any] | None = None,
        host: str = "",
    ) -> None:
        """C(document): what the facts are the view of. C(seen): what a recommendation saw of the host."""
        noted, self._read = noting(facts) if facts else (None, set())
        self._document = document or {}
        # The rendered texts are in the digest of the tree, which they may follow already where a run was cut off. The playbooks set the other
        # one for the turn of a host, and it is about other hosts.
        left = {SLURM, "gpu_facts_skip_refused_hosts", *_known()[0]}
        self._variables = {name: value for name, value in description.variables.items() if name not in left}
        if seen:
            self._variables[SEEN] = seen
        self.stages: Mapping[str, StagePlan] = description.stages_recommended(seen or {}, host, noted)
        #: Of a playbook that empties the host, the pods that are evicted.
        self.pods: list[str] = []

    def ask(self, answer_of: Callable[[str], Mapping[str, Any] | None], playbook: str = "site") -> None:
        """Take what the modules of the stages answered in check mode: they asked the repositories. C(answer_of): by the name that it was registered by."""
        does = APPLYING[playbook]
        if does.begins and not any(name in self.stages and self.stages[name].needed for name in does.begins):
            # What its description refuses is in the plan whatever is to be done.
            self.stages = {name: plan for name, plan in self.stages.items() if plan.refusals}
            return
        self.stages = {name: plan for name, plan in self.stages.items() if name in (does.changes or self.stages)}
        for registered in does.evictions:
            evicting = answer_of(registered) or {}
            self.pods += evicting.get("evicted") or ()
            if evicting.get("failed"):
                why = StagePlan("pods", needed=True, unknown=f"they cannot be evicted: {said(evicting)}")
                self.stages = {**self.stages, "pods": why}
        for stage, registered in does.asked.values():
            answer = answer_of(registered)
            if not answer or answer.get("skipped") or answer.get("unreachable"):
                continue
            found = self.stages.get(stage) or StagePlan(stage, needed=False)
            steps, unknown = _answered(answer, stage == "driver")
            if unknown:
                found = replace(found, needed=True, unknown=unknown)
            else:
                # A role that asks otherwise knows who uses the host: of its kinds of steps there are no others.
                there = {(one.kind, one.target if does.asked is STAGE_OF else "") for one in steps}
                steps += [one for one in found.steps if {(one.kind, one.target), (one.kind, "")}.isdisjoint(there)]
                found = replace(found, needed=found.needed or bool(steps), steps=tuple(steps), unknown=None)
            self.stages = {**self.stages, stage: found}

    @cached_property
    def variables(self) -> str:
        """The digest of its variables."""
        return digest_of(self._variables)

    @property
    def own_variables(self) -> dict[str, str]:
        """A digest of each variable that has not its default."""
        return {name: digest_of(value) for name, value in self._variables.items() if value != _known()[1].get(name)}

    def as_planned(self, then: PlannedHost | None = None, **more: Any) -> PlannedHost:
        """Return what a plan has of it. C(then): what one has that it is compared with, whose facts are as exact. C(more): other fields."""
        work = tuple(saved_plan.work_of(self.stages))
        # A file has no empty mapping: none of nothing that was read is no difference.
        facts = digests(self._document, self._read, bool(then.work if then else work)) or None
        return PlannedHost(variables=self.variables, work=work, facts=facts, **more)


def made_of(
    hosts: Mapping[str, tuple[Planning, Mapping[str, Any]]],
    options: Mapping[str, Any],
    author: str = "",
    playbook: str = "site",
    **more: Any,
) -> SavedPlan:
    """Return the plan of the hosts of a run, each with its other fields. C(more): the plan's."""
    planned = {name: one.as_planned(**others) for name, (one, others) in hosts.items()}
    # Hosts of a pool have the same ones.
    variables = {one.variables: one for one, _others in hosts.values()}
    more |= {"hosts": planned, "variables": {digest: one.own_variables for digest, one in variables.items()}}
    made = time.strftime(MOMENT, time.gmtime())
    return SavedPlan(saved_plan.FORMAT, collection_version(), made, author or None, playbook, options, **more)


def options_of(task_vars: Mapping[str, Any]) -> dict[str, Any]:
    """Return with which options Ansible runs a playbook."""
    given = {"limit": "ansible_limit", "tags": "ansible_run_tags", "skip_tags": "ansible_skip_tags"}
    return {
        name: value for name, variable in given.items() if (value := plain(task_vars.get(variable))) not in (None, [])
    }


def refuse(
    plan: SavedPlan, playbook: str, hosts: Iterable[str], limited: bool, options: Mapping[str, Any], hours: float
) -> None:
    """Refuse a run that the plan is not for, whatever its hosts are.

    :param limited: the run was given fewer hosts than the inventory has.
    :param hours: how old the plan may be.
    """
    age = (time.time() - calendar.timegm(time.strptime(plan.made, MOMENT))) / 3600
    release, meant, mine = collection_version(), _part(plan.options), _part(options)
    others, left = sorted({*hosts} - {*plan.hosts}), sorted({*plan.hosts} - {*hosts})
    for wrong, thing, reason in (
        (plan.playbook != playbook, "the plan", f"it is for {plan.playbook}, and this is {playbook}"),
        (plan.release != release, "the release", f"{plan.release} made the plan, and this is {release}"),
        (not age <= hours, "gpu_plan_valid_for", f"the plan is of {plan.made}, and may be {hours:g} hours old"),
        (age < -1, "the plan", f"it is of {plan.made}, which is in the future"),
        (others, shortened(others), "the plan does not have these hosts of this run"),
        (left and not limited, shortened(left), "the plan has these hosts, and this run does not"),
        (meant != mine, "--tags and --skip-tags", f"the plan was made for {meant}, and this run has {mine}"),
    ):
        if wrong:
            raise Refused(thing, reason, AGAIN)


def _part(options: Mapping[str, Any] | None) -> str:
    given = options or {}
    return f"{', '.join(given.get('tags') or ()) or 'all'} without {', '.join(given.get('skip_tags') or ()) or 'any'}"


@dataclass(frozen=True)
class Held:
    """A saved plan that a run is held to."""

    path: str
    plan: SavedPlan
    digest: str

    def is_begun(self, facts: Facts | None) -> bool:
        """Whether the plan was begun on a host, and no other one since."""
        return facts is not None and facts.recorded.plan_begun == self.digest

    def is_applied(self, facts: Facts | None) -> bool:
        """Whether it came to its end on a host."""
        return facts is not None and facts.recorded.plan_applied == self.digest

    def objections(self, host: str, planning: Planning, facts: Facts | None, unread: str = "") -> list[Refused]:
        """Return why the plan does not hold for a host of this run; nothing where it does."""
        then = self.plan.host(host)
        applied = self.is_applied(facts)
        if applied:
            # Nothing of it is left, and what it has changed is no difference.
            then = replace(then, work=())
        now = planning.as_planned(then, unread=unread or None)
        others = saved_plan.arrived(then, planning.pods)
        if not now.unread and not others and now == replace(then, pool=None, pods=None, tree=None):
            return []
        before, after = (self.plan.variables or {}).get(then.variables or "") or {}, planning.own_variables
        found = saved_plan.differences(then, now, before, after, applied or self.is_begun(facts))
        found += [others] if others else []
        if applied:
            found += [f"{one.stage} is not as described" for one in now.work if not (one.kind or one.after)]
            found = [f"it was applied to the host already, and since then: {text}" for text in found]
        return [Refused("the plan", text, AGAIN) for text in found]


def held_on(task_vars: Mapping[str, Any], path: str, host: str) -> Held:
    """Return the plan that a run is held to, as far as it is about one host; that it can be was seen before the first host was changed."""
    return Held(os.path.abspath(path), *opened_for(task_vars, path, host))


def held_to(arguments: Mapping[str, Any], playbook: str, task_vars: Mapping[str, Any]) -> Held:
    """Return the plan that a run is held to. Raises Refused: it cannot be, whatever its hosts are. C(arguments): those in C(OPTIONS)."""
    found = Held(os.path.abspath(arguments["plan"]), *opened(arguments["plan"], arguments["verify"]))
    members = set(plain(task_vars.get("groups") or {}).get(GPU_HOSTS) or ())
    hosts = [host for host in plain(task_vars.get("ansible_play_hosts_all") or []) if host in members]
    options = options_of(task_vars)
    refuse(found.plan, playbook, hosts, "limit" in options, options, arguments["valid_for"])
    return found
