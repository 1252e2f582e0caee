# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods with several devices, which one host has to have. Pure.

The solver knows no hosts: to it each device is a request, so its plan bounds what is served and what that costs. Where it leaves a pod without a host, one
is chosen whose devices are kinds of their own, and the solver finds the best plan with these. Pods for which that fails are no demand any more: nobody is
evicted for a part of a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

from ...module_utils._mig.plan import named_as
from ...module_utils._mig.state import node_gpus
from .answer import placed
from .checker import proven_cost, verify
from .outcome import INFINITY, FleetOutcome, Instances, recommend
from .problem import GPU, WHOLE, Group, Problem, UnitKind, WantedUnits
from .survey import FleetSurvey, SurveyedHost

#: For how many pods a host is chosen: each has kinds of its own.
_CHOSEN = 8


@dataclass(frozen=True)
class HostedPlan:
    """A plan, and whether there is a host for each pod.

    :param found: the units of C(problem): hosts that were chosen have pools of their own. C(chosen): pods for which they were, and what these are part of.
    :param after: what each GPU becomes, by host and index. C(hosted): for how many pods of each number there is a host.
    """

    problem: Problem
    found: FleetSurvey
    outcome: FleetOutcome
    after: Mapping[str, Mapping[int, Instances | None]]
    room: _Room
    hosted: Mapping[int, int]
    chosen: Mapping[int, int]

    @property
    def lacking(self) -> list[int]:
        """Return the number of each pod without a host, the highest priority and the most devices first."""
        found = ((one, number) for number, one in enumerate(self.problem.wanted) if number in self.hosted)
        order = sorted(found, key=lambda pod: (-pod[0].priority, -pod[0].together, pod[1]))
        return [number for one, number in order for _pod in range(_pods(one) - self.hosted[number])]


@dataclass(frozen=True)
class HostedOutcome:
    """The best plan in which there is a host for every pod with several devices that is part of the demand.

    :param problem: what the prices of C(outcome) bound: all hosts together.
    :param gap: by how much a better plan could be cheaper, in idle instances; C(more): how many requests more could be served, by priority.
    :param left_out: pods for which there is no host, and why.
    """

    plan: HostedPlan
    problem: Problem
    outcome: FleetOutcome
    gap: Fraction
    more: Mapping[int, Fraction]
    left_out: Mapping[str, str] = field(default_factory=dict)


def recommend_hosted(problem: Problem, found: FleetSurvey, seconds: float = INFINITY) -> HostedOutcome:
    """Return the best the fleet can become. Raises NotProven: the plan is not what it says."""
    pods = _several(problem)
    most = {number: min(_pods(one), _most_pods(problem, one)) for number, one in pods.items()}
    problem = _with(problem, most)
    plan = free = _solved(problem, found, {}, seconds)
    gap, more = verify(problem, free.outcome)
    if not free.lacking:
        return HostedOutcome(plan, problem, plan.outcome, gap, more, _left_out(pods, most, most))
    plan = _solved(*_apart(free), seconds)
    while plan.lacking:
        plan = _solved(_with(plan.problem, plan.hosted), plan.found, plan.chosen, seconds)
    verify(plan.problem, plan.outcome)
    left = dict.fromkeys(pods, 0)
    for number, count in plan.hosted.items():
        left[plan.chosen.get(number, number)] += count
    served, bounds = free.outcome.served, free.outcome
    if left != most:
        problem = _with(problem, left)
        bounds = recommend(problem, seconds)
    leaving: Counter[tuple[UnitKind, int]] = Counter()
    for (kind, priority), count in plan.outcome.leaving.items():
        leaving[kind._replace(pool=kind.pool.partition("@")[0]), priority] += count
    # What bounds plans with any hosts is the certificate, and not what bounds those with the chosen ones.
    outcome = replace(plan.outcome, leaving=leaving, emptied=None, least_hosts=0, most_room=None)
    outcome = replace(outcome, prices=bounds.prices, served_prices=bounds.served_prices)
    proven = proven_cost(problem, outcome)
    least = max(ceil(proven), bounds.least if bounds.served == outcome.served else 0)
    outcome = replace(outcome, least=least, searched=outcome.cost <= least)
    most_served = {one: count + int(more.get(one, 0)) for one, count in served.items()}
    lacks = {one: Fraction(count - outcome.served[one]) for one, count in most_served.items()}
    more = {one: count for one, count in lacks.items() if count > 0}
    return HostedOutcome(plan, problem, outcome, outcome.cost - proven, more, _left_out(pods, most, left))


def _left_out(pods: Mapping[int, WantedUnits], most: Mapping[int, int], left: Mapping[int, int]) -> dict[str, str]:
    reasons = {}
    for number, one in pods.items():
        lack = _pods(one) - left[number]
        reason = "no host can have" if left[number] == most[number] else "no host was found that has"
        reasons.update({f"{lack} {one.title}": f"{reason} all devices of one beside what it serves"} if lack else {})
    return reasons


def _several(problem: Problem) -> dict[int, WantedUnits]:
    """Return what pods with several devices want, by its number."""
    return {number: one for number, one in enumerate(problem.wanted) if one.together > 1}


def _pods(one: WantedUnits) -> int:
    return one.count // one.together


def _with(problem: Problem, pods: Mapping[int, int]) -> Problem:
    """Return the problem with so many pods of each number."""
    wanted = list(problem.wanted)
    for number, count in pods.items():
        wanted[number] = replace(wanted[number], count=count * wanted[number].together)
    return replace(problem, wanted=tuple(wanted)) if pods else problem


def _can_have(problem: Problem, one: WantedUnits) -> Counter[str]:
    """Return how many units that serve a request each host can have, whatever its layouts are and whoever runs."""
    most = {(board, each.name): each.max_instances for board, table in problem.boards.items() for each in table}
    hosts: Counter[str] = Counter()
    for group in problem.groups:
        for state in group.states:
            there = Counter(name for name, _start, _size in state.there)
            for kind in one.kinds:
                if kind[:2] == (state.pool, state.board):
                    can = 1 if kind.profile == WHOLE else most[kind[1:]]
                    for host in group.hosts:
                        hosts[host] += (there[kind.profile] if state.fixed else can) * problem.replicas.get(kind, 1)
    return hosts


def _most_pods(problem: Problem, one: WantedUnits) -> int:
    return sum(units // one.together for units in _can_have(problem, one).values())


def _solved(problem: Problem, found: FleetSurvey, chosen: Mapping[int, int], seconds: float) -> HostedPlan:
    """Return the best plan, and for how many pods it has a host, where no others are in their way: these are served by what is left."""
    outcome = recommend(problem, seconds)
    after = placed(found, outcome)
    pods = _several(problem)
    room = _Room(problem, found, outcome, after, pods.keys() - chosen.keys())
    hosted = {}
    for number, one in sorted(pods.items(), key=lambda pod: (-pod[1].priority, -pod[1].together, pod[0])):
        if number in chosen:
            hosted[number] = sum(outcome.given.get((number, kind), 0) for kind in one.kinds) // one.together
        else:
            hosted[number] = sum(room.take({one.kinds: one.together}) for _pod in range(_pods(one)))
    return HostedPlan(problem, found, outcome, after, room, hosted, chosen)


class _Room:
    """What hosts have beside what users use who do not go, and how much of each kind is not needed by others than pods with several devices."""

    def __init__(
        self,
        problem: Problem,
        found: FleetSurvey,
        outcome: FleetOutcome,
        after: Mapping[str, Mapping[int, Instances | None]],
        pods: set[int],
    ) -> None:
        self.free: dict[str, Counter[UnitKind]] = {}
        self.spare: Counter[UnitKind] = Counter()
        #: What evicting everybody of a host weighs.
        self.users: Counter[str] = Counter()
        weight = problem.weight()
        for group, units in zip(problem.groups, found.units):
            for host, indices in units:
                free = self.free.setdefault(host, Counter())
                for state, index in zip(group.states, indices):
                    layout = after[host][index]
                    for place in (GPU,) if layout is None else layout:
                        kind, users = state.kind(place[0]), state.there.get(place, ())
                        self.spare[kind] += problem.replicas.get(kind, 1)
                        free[kind] += problem.replicas.get(kind, 1) - len(users)
                        self.users[host] += sum(weight[user] for user in users)
        for (who, kind), count in outcome.given.items():
            if who not in pods:
                self.spare[kind] -= count

    def on(self, host: str, kinds: Sequence[UnitKind]) -> int:
        """Return how many units of these kinds a host can give."""
        return sum(max(0, min(self.free[host][kind], self.spare[kind])) for kind in kinds)

    def take(self, needs: Mapping[tuple[UnitKind, ...], int]) -> bool:
        """Take so many units of the host that has the fewest more than these, if there is one. C(needs): by what serves."""
        hosts = [
            (sum(self.on(host, kinds) for kinds in needs), host)
            for host in self.free
            if all(self.on(host, kinds) >= devices for kinds, devices in needs.items())
        ]
        for kinds, devices in needs.items() if hosts else ():
            free = self.free[min(hosts)[1]]
            for kind in kinds:
                units = max(0, min(devices, free[kind], self.spare[kind]))
                free[kind] -= units
                self.spare[kind] -= units
                devices -= units
        return bool(hosts)


def _apart(plan: HostedPlan) -> tuple[Problem, FleetSurvey, dict[int, int]]:
    """Choose hosts for pods that have none: where the most of what they need is free, and the least priority runs."""
    problem = plan.problem
    wanted, taken, chosen = list(problem.wanted), Counter[str](), list[tuple[int, str]]()
    for number in plan.lacking[:_CHOSEN]:
        one = wanted[number]
        can = {host: units for host, units in _can_have(problem, one).items() if units - taken[host] >= one.together}
        free = {host: min(one.together, plan.room.on(host, one.kinds) - taken[host]) for host in can}
        if can:
            host = min(can, key=lambda name: (-free[name], plan.room.users[name], name))
            taken[host] += one.together
            chosen.append((number, host))
            wanted[number] = replace(one, count=one.count - one.together)
    hosts = {host for _number, host in chosen}
    groups, units, there = [], [], dict[tuple[str, str], set[str]]()
    for group, several in zip(problem.groups, plan.found.units):
        parts: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        for unit in several:
            parts.setdefault(unit[0] if unit[0] in hosts else "", []).append(unit)
        for host, part in parts.items():
            states = group.states
            if host:
                states = tuple(replace(state, pool=f"{state.pool}@{host}") for state in states)
                for state in group.states:
                    there.setdefault((state.pool, state.board), set()).add(host)
            groups.append(Group(states, len(part), tuple(name for name, _indices in part)))
            units.append(tuple(part))

    def of_host(kind: UnitKind, host: str) -> UnitKind:
        return kind._replace(pool=f"{kind.pool}@{host}")

    def wide(*kinds: UnitKind) -> tuple[UnitKind, ...]:
        return tuple(
            one for kind in kinds for one in (kind, *(of_host(kind, host) for host in sorted(there.get(kind[:2], ()))))
        )

    pods = [replace(problem.wanted[number], count=problem.wanted[number].together) for number, _host in chosen]
    alone = [
        replace(one, kinds=tuple(of_host(kind, host) for kind in one.kinds if host in there.get(kind[:2], ())))
        for one, (_number, host) in zip(pods, chosen)
    ]
    kinds = {*problem.moves, *(kind for kind, _priority in problem.running)}
    apart = replace(
        problem,
        groups=tuple(groups),
        wanted=(*(replace(one, kinds=wide(*one.kinds)) for one in wanted), *alone),
        moves={one: wide(*problem.moved(kind)) for kind in kinds for one in wide(kind)},
        replicas={one: count for kind, count in problem.replicas.items() for one in wide(kind)},
    )
    found = replace(plan.found, groups=tuple(groups), units=tuple(units))
    return apart, found, {len(wanted) + place: number for place, (number, _host) in enumerate(chosen)}


@dataclass(frozen=True)
class RunningPod:
    """Who runs and has several devices. C(devices): of each what it is, and whether it stays."""

    host: str
    name: str
    priority: int
    devices: tuple[tuple[UnitKind, bool], ...]


def pods_with_several(hosts: Mapping[str, SurveyedHost], plan: HostedPlan) -> list[RunningPod]:
    """Return who runs and has several devices."""
    pods: list[RunningPod] = []
    states = {
        (host, index): state
        for group, units in zip(plan.problem.groups, plan.found.units)
        for host, indices in units
        for state, index in zip(group.states, indices)
    }
    for name, host in hosts.items():
        devices: dict[str, list[tuple[UnitKind, bool]]] = {}
        counts: Counter[str] = Counter()
        for users in (host.users or {}).values():
            counts.update(users)
        for gpu in node_gpus(host.facts) if max(counts.values(), default=0) > 1 else ():
            if (name, gpu.index) in states:
                layout = plan.after[name][gpu.index]
                parts = [(GPU, gpu.facts.uuid)]
                if gpu.enabled:
                    current = named_as(gpu.current, gpu.profiles)
                    parts = [((one.profile, one.start, one.size), part.uuid) for one in current for part in one.compute]
                for place, uuid in parts:
                    one = states[name, gpu.index].kind(place[0]), place in ((GPU,) if layout is None else layout)
                    for who, count in (host.users or {}).get(str(uuid), {}).items():
                        devices.setdefault(who, []).extend([one] * count)
        pods += [
            RunningPod(name, who, host.priorities.get(who, host.priority), tuple(each))
            for who, each in devices.items()
            if len(each) > 1
        ]
    return pods


def without_host(plan: HostedPlan, gone: Sequence[RunningPod]) -> list[str]:
    """Return for which of the pods that are evicted no host is found. All their devices go with them, those that stay, too."""
    given, homeless = Counter(plan.outcome.given), []
    for pod in gone:
        for home, stays in pod.devices:
            plan.room.free[pod.host][home] += stays
            who = home, pod.priority
            serving = [kind for kind in (home, *plan.problem.moved(home)) if given[who, kind] > 0][:1]
            given.subtract((who, kind) for kind in serving)
            plan.room.spare.update(serving)
    for pod in sorted(gone, key=lambda one: -len(one.devices)):
        if not plan.room.take(Counter(plan.problem.moved(kind) for kind, _stays in pod.devices)):
            homeless.append(pod.name)
    return sorted(homeless)


def fewer_by_pods(hosted: HostedOutcome, several: Sequence[RunningPod], gone: Sequence[RunningPod]) -> int:
    """Return how many evictions fewer, weighted by priority, a plan could do with at the most, where a pod counts once however many devices it has.

    A plan that takes so many devices from users evicts no fewer than these divided by the most devices of a pod, and no fewer than these less all but one
    device of every such pod.
    """
    outcome, weight = hosted.outcome, hosted.problem.weight()
    taken = outcome.cost // outcome.scale
    devices = taken if outcome.searched else int((outcome.cost - hosted.gap) // outcome.scale)
    again = sum(weight[pod.priority] * (sum(not stays for _kind, stays in pod.devices) - 1) for pod in gone)
    more = sum(weight[pod.priority] * (len(pod.devices) - 1) for pod in several)
    least = max(-(-devices // max((len(pod.devices) for pod in several), default=1)), devices - more)
    return max(0, taken - again - least)
