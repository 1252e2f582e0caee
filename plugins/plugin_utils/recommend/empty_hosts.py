# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts are left empty: as many as can be while as much is served, and of these those that evict the fewest. Pure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from .apart import Apart, plain
from .checker import least_emptied
from .goals import spare_units, with_users_of_gpus
from .matrices import Matrices
from .one_host import HostedOutcome
from .outcome import INFINITY, FleetOutcome, KindPrices, recommend
from .problem import SPARE, Problem, UnitKind
from .solver import most_emptied

#: What tells the pools of hosts that are to be empty, and how often these are chosen anew.
_EMPTY, _ROUNDS = "empty", 8


@dataclass(frozen=True)
class EmptiedHosts:
    """The problem in which some hosts have to be empty, the most that can be while as much is served.

    :param fleet: the problem without that. C(could): hosts that could be empty; no plan that serves as much leaves more than C(most) empty.
    :param spare: the priority of GPUs of hosts that are to be empty: above all others.
    """

    problem: Problem
    hosts: frozenset[str]
    most: int
    spare: int
    fleet: Problem
    could: frozenset[str]

    def judged(self, hosted: HostedOutcome) -> HostedOutcome:
        """Return a plan in which these hosts are empty with what bounds all plans that leave as many empty."""
        outcome, (proven, _costs) = hosted.outcome, self.least(hosted.outcome)
        least = max(0, ceil(proven))
        outcome = replace(
            outcome, least=least, searched=outcome.cost <= least, emptied=self.hosts, most_emptied=self.most
        )
        return replace(hosted, outcome=outcome, gap=outcome.cost - proven)

    def least(self, outcome: FleetOutcome) -> tuple[Fraction, dict[str, int]]:
        """Return what no plan costs less than that serves as much and leaves as many hosts empty, whichever these are, and what each costs more."""
        prices = outcome.prices
        unit = {kind: price for kind, price in prices.unit.items() if kind == plain(kind)}
        kept = {user: price for user, price in prices.kept.items() if user[0] == plain(user[0])}
        served = {one: price for one, price in prices.served.items() if one != self.spare}
        answer = replace(outcome, prices=KindPrices(unit, kept, served))
        return least_emptied(self.fleet, answer, self.could, len(self.hosts))


def empty_hosts(problem: Problem, left_out: Iterable[str] = (), seconds: float = INFINITY) -> EmptiedHosts:
    """Choose the hosts that are left empty: as many as can be, and of these those that evict the fewest.

    How many can be is an integer program over hosts that are alike. At the prices of a plan, each host has its costs of being empty: the cheapest are
    chosen, and the prices of the best plan with these say which are cheapest then, until it is the same hosts, or no others are cheaper by an eviction.

    :param left_out: hosts of which not all GPUs are planned.
    """
    end, problem = time.monotonic() + seconds, with_users_of_gpus(problem)
    of, spare = Matrices(problem), max(problem.priorities(), default=0) + 1
    outcome = recommend(problem, seconds)
    of.build()
    fixed = set(left_out) | {
        host for group in problem.groups if any(one.fixed for one in group.states) for host in group.hosts
    }
    alike: dict[frozenset[tuple[int, int]], list[str]] = {}
    for host, units in of.hosts().items():
        if host not in fixed:
            alike.setdefault(frozenset(units.items()), []).append(host)
    counts, most = most_emptied(of, outcome.served, {units: len(hosts) for units, hosts in alike.items()})
    could = frozenset(host for hosts in alike.values() for host in hosts)
    best = EmptiedHosts(problem, frozenset(), most, spare, problem, could)
    served, costs, least, tried = outcome.served, best.least(outcome)[1], INFINITY, set[frozenset[str]]()
    for _round in range(_ROUNDS):
        hosts = frozenset(
            host
            for units, several in alike.items()
            for host in sorted(several, key=lambda name: (costs[name], name))[: counts.get(units, 0)]
        )
        if hosts in tried or not hosts or time.monotonic() > end:
            break
        tried.add(hosts)
        apart = Apart(problem, dict.fromkeys(hosts, _EMPTY))
        gpus = Counter[UnitKind]()
        for group in apart.problem.groups:
            for one in group.states:
                gpus[one.kind(SPARE)] += group.count if one.pool.endswith(f"@{_EMPTY}") else 0
        kinds, count = tuple(sorted(+gpus)), sum(gpus.values())
        asks = replace(best, problem=spare_units(apart.problem, kinds, count, spare), hosts=hosts)
        outcome = recommend(asks.problem, end - time.monotonic())
        bound, costs = asks.least(outcome)
        if outcome.served == {**served, spare: count} and outcome.cost < least:
            best, least = asks, outcome.cost
        if outcome.cost - bound < outcome.scale:
            break
    return best
