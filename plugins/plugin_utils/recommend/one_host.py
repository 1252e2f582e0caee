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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from math import ceil
from typing import Any

from .apart import Apart, plain
from .checker import proven_cost, verify
from .matrices import Matrices
from .outcome import INFINITY, FleetOutcome, Instances, placed, recommend
from .problem import GPU, AlikePods, Asking, Place, Problem, UnitKind
from .solver import RowProgram
from .survey import SurveyedHost

#: For how many pods a host is chosen: each has kinds of its own.
_CHOSEN = 8


@dataclass(frozen=True)
class HostedPlan:
    """A plan, and whether there is a host for each pod.

    :param problem: in it hosts that were chosen have kinds of their own. C(chosen): pods for which they were, and what these are part of.
    :param after: what each GPU becomes, by host and index. C(hosted): for how many pods of each name there is a host;
        C(at): pods by host for which none had to be chosen.
    """

    problem: Problem
    outcome: FleetOutcome
    after: Mapping[str, Mapping[int, Instances | None]]
    room: _Room
    hosted: Mapping[str, int]
    at: Mapping[str, Sequence[str]]
    chosen: Mapping[str, str]

    @property
    def lacking(self) -> list[str]:
        """Return the name of each pod without a host, the highest priority and the most devices first."""
        several = self.problem.pods.items()
        return [name for name, pods in several for _pod in range(pods.count - self.hosted[name])]


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


def recommend_hosted(problem: Problem, seconds: float = INFINITY) -> HostedOutcome:
    """Return the best the fleet can become. Raises NotProven: the plan is not what it says."""
    pods = problem.pods
    most = _Hosts(problem).most_pods() if pods else {}
    problem = problem.with_pods(most)
    plan = free = _solved(problem, {}, seconds)
    gap, more = verify(problem, free.outcome)
    if not free.lacking:
        return HostedOutcome(plan, problem, plan.outcome, gap, more, _left_out(pods, most, most))
    plan = _solved(*_apart(free), seconds)
    while plan.lacking:
        # Of those for which a host was chosen the last goes alone: what it leaves may be enough for the others.
        counts = {name: count for name, count in plan.hosted.items() if name not in plan.chosen}
        if not set(plan.lacking) - plan.chosen.keys():
            counts[plan.lacking[-1]] = 0
        plan = _solved(plan.problem.with_pods(counts), plan.chosen, seconds)
    verify(plan.problem, plan.outcome)
    left = dict.fromkeys(pods, 0)
    for name, count in plan.hosted.items():
        left[plan.chosen.get(name, name)] += count
    served, bounds = free.outcome.served, free.outcome
    if left != most:
        problem = problem.with_pods(left)
        bounds = recommend(problem, seconds)
    leaving: Counter[tuple[UnitKind, int]] = Counter()
    for (kind, priority), count in plan.outcome.leaving.items():
        leaving[plain(kind), priority] += count
    # What bounds plans with any hosts is the certificate, and not what bounds those with the chosen ones.
    outcome = replace(plan.outcome, leaving=leaving, least_hosts=0, most_room=None)
    outcome = replace(outcome, prices=bounds.prices, served_prices=bounds.served_prices)
    proven = proven_cost(problem, outcome)
    least = max(ceil(proven), bounds.least if bounds.served == outcome.served else 0)
    outcome = replace(outcome, least=least, searched=outcome.cost <= least)
    most_served = {one: count + int(more.get(one, 0)) for one, count in served.items()}
    lacks = {one: Fraction(count - outcome.served[one]) for one, count in most_served.items()}
    more = {one: count for one, count in lacks.items() if count > 0}
    return HostedOutcome(plan, problem, outcome, outcome.cost - proven, more, _left_out(pods, most, left))


def _left_out(pods: Mapping[str, AlikePods], most: Mapping[str, int], left: Mapping[str, int]) -> dict[str, str]:
    reasons = {}
    for name, one in pods.items():
        lack = one.count - left[name]
        reason = "no host can have" if left[name] == most[name] else "no host was found that has"
        reasons.update({f"{lack} {name}": f"{reason} all devices of one beside what it serves"} if lack else {})
    return reasons


class _Hosts:
    """How many pods each host can have, whatever its layouts are and whoever runs."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.of = problem, Matrices(problem)
        self.of.build()
        self.units = self.of.hosts()
        self._known: dict[Any, int] = {}

    def most_pods(self) -> dict[str, int]:
        """Return how many pods of each name there can be."""
        most = {name: sum(self.most(host, name) for host in self.units) for name in self.problem.pods}
        return {name: min(count, self.problem.pods[name].count) for name, count in most.items()}

    def most(self, host: str, name: str, others: tuple[str, ...] = ()) -> int:
        """Return how many pods of this name a host can have beside these others."""
        units = self.units[host]
        key = frozenset(units.items()), name, others
        if key not in self._known:
            program = RowProgram(self.of, {}, True, mip_abs_gap=0.99)
            program.layouts_of(self.of, units)
            for place, pod in enumerate((*others, name)):
                last, parts, entries = place == len(others), self.problem.pods[pod].parts, []
                for number, devices in parts.items():
                    needs = program.row(0)
                    entries.append((needs, -devices))
                    for row in {self.of.row_of[kind] for kind in self.problem.wanted[number].kinds}:
                        program.column(0, entries=[(row, -1), (needs, 1)])
                program.column(-last, 1 - last, self.problem.pods[pod].count if last else 1, entries, True)
            self._known[key] = round(-program.value) if program.solve() else 0
        return self._known[key]


def _solved(problem: Problem, chosen: Mapping[str, str], seconds: float) -> HostedPlan:
    """Return the best plan, and for how many pods it has a host, where no others are in their way: these are served by what is left."""
    outcome = recommend(problem, seconds)
    after = placed(problem, outcome)
    given: Counter[int] = Counter()
    for (who, _kind), count in outcome.given.items():
        given.update({who: count} if isinstance(who, int) else {})
    unhosted = {number for name, one in problem.pods.items() if name not in chosen for number in one.parts}
    room = _Room(problem, outcome, after, unhosted)
    hosted, at = {}, dict[str, list[str]]()
    for name, one in problem.pods.items():
        if name in chosen:
            hosted[name] = min(given[number] // devices for number, devices in one.parts.items())
        else:
            needs = [(problem.wanted[number].kinds, devices) for number, devices in one.parts.items()]
            hosts = list(filter(None, (room.take(needs) for _pod in range(one.count))))
            hosted[name] = len(hosts)
            for host in hosts:
                at.setdefault(host, []).append(name)
    return HostedPlan(problem, outcome, after, room, hosted, at, chosen)


class _Room:
    """What hosts have beside what users use who do not go, and how much of each kind is not needed by others than pods with several devices."""

    def __init__(
        self,
        problem: Problem,
        outcome: FleetOutcome,
        after: Mapping[str, Mapping[int, Instances | None]],
        pods: Collection[Asking],
    ) -> None:
        self.free: dict[str, Counter[UnitKind]] = {}
        self.spare: Counter[UnitKind] = Counter()
        #: What evicting everybody of a host weighs.
        self.users: Counter[str] = Counter()
        weight = problem.weight()
        for group in problem.groups:
            for host, index, state in group.gpus:
                free, layout = self.free.setdefault(host, Counter()), after[host][index]
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

    def take(self, needs: Iterable[tuple[Sequence[UnitKind], int]]) -> str | None:
        """Take so many units of the host that has the fewest more than these, and return it. C(needs): what serves, and how many units of it."""
        # What few kinds serve comes first.
        order = sorted(needs, key=lambda need: len(need[0]))
        hosts = [(sum(self.on(host, kinds) for kinds, _devices in order), host) for host in self.free]
        return next((host for _units, host in sorted(hosts) if self._take(host, order)), None)

    def _take(self, host: str, needs: Sequence[tuple[Sequence[UnitKind], int]]) -> bool:
        taken: Counter[UnitKind] = Counter()
        for kinds, devices in needs:
            for kind in kinds:
                units = max(0, min(devices, self.free[host][kind] - taken[kind], self.spare[kind] - taken[kind]))
                taken[kind] += units
                devices -= units
            if devices:
                return False
        self.free[host].subtract(taken)
        self.spare.subtract(taken)
        return True


def _apart(plan: HostedPlan) -> tuple[Problem, dict[str, str]]:
    """Choose hosts for pods that have none: where the most of what they need is free, and the least priority runs. Few others keep the hosts that they have."""
    hosts, pods, chosen = _Hosts(plan.problem), plan.problem.pods, list[tuple[str, str]]()
    for name in plan.lacking[:_CHOSEN]:
        needs = [(plan.problem.wanted[at].kinds, devices) for at, devices in pods[name].parts.items()]
        can = []
        for host in hosts.units:
            there = [pod for pod, of in chosen if of == host]
            if hosts.most(host, name, (*plan.at.get(host, ()), *there)):
                free = sum(min(devices, plan.room.on(host, kinds)) for kinds, devices in needs)
                free -= sum(pods[pod].devices for pod in there)
                can.append((-max(0, free), plan.room.users[host], host))
        chosen += [(name, min(can)[-1])] if can else []
    chosen += islice(((name, host) for host, names in plan.at.items() for name in names), _CHOSEN - len(chosen))
    left = Counter(name for name, _host in chosen)
    apart = Apart(plan.problem, {host: host for _name, host in chosen})
    counts = {name: one.count - left[name] for name, one in plan.problem.pods.items()}
    wanted, names = list(apart.problem.with_pods(counts).wanted), dict[str, str]()
    for name, host in chosen:
        names[f"{name} on {host} ({len(names)})"] = name
        for number, devices in plan.problem.pods[name].parts.items():
            kinds = apart.kinds(plan.problem.wanted[number].kinds, host)
            wanted.append(replace(wanted[number], kinds=kinds, count=devices, pod=list(names)[-1]))
    return replace(apart.problem, wanted=tuple(wanted)), names


@dataclass(frozen=True)
class RunningPod:
    """Who runs and has several devices. C(devices): of each what it is, and whether it stays."""

    host: str
    name: str
    priority: int
    devices: tuple[tuple[UnitKind, bool], ...]


def pods_with_several(
    hosts: Mapping[str, SurveyedHost], users: Mapping[tuple[str, int], Mapping[Place, Sequence[str]]], plan: HostedPlan
) -> list[RunningPod]:
    """Return who runs and has several devices. C(users): of L(FleetSurvey)."""
    devices: dict[tuple[str, str], list[tuple[UnitKind, bool]]] = {}
    for group in plan.problem.groups:
        for host, index, state in group.gpus:
            layout = plan.after[host][index]
            for place, names in users[host, index].items():
                for who in names:
                    stays = place in ((GPU,) if layout is None else layout)
                    devices.setdefault((host, who), []).append((state.kind(place[0]), stays))
    return [
        RunningPod(host, who, hosts[host].priorities.get(who, 0), tuple(each))
        for (host, who), each in devices.items()
        if len(each) > 1
    ]


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
        if not plan.room.take(Counter(plan.problem.moved(kind) for kind, _stays in pod.devices).items()):
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
