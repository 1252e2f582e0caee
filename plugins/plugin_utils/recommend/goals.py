# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What else is asked of the planner, put as a demand: which GPUs or hosts can be left empty, and which have to be bought. So the same prices prove it. Pure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import ceil, gcd

from ...module_utils._plan import Refused
from .apart import Apart
from .checker import least_emptied
from .matrices import Matrices
from .one_host import HostedOutcome
from .outcome import INFINITY, FleetOutcome, recommend
from .problem import SPARE, WHOLE, FleetGpu, Group, Problem, UnitKind, WantedUnits
from .solver import most_emptied

#: The board of what stands for a host that is not bought, and what tells the boards of GPUs that are bought from those of the fleet, whose GPUs are shared.
_UNSOLD, _NEW = "unsold", " (bought)"

#: What tells the pools of hosts that are to be empty, and how often these are chosen anew.
_EMPTY, _ROUNDS = "empty", 8

#: What can be bought: a host of a pool with GPUs of a board, and how many of them.
Offer = tuple[str, str, int]


def consolidate(problem: Problem) -> tuple[Problem, int]:
    """Return the problem that also asks for every GPU to be spare, after everything else that is wanted, and the priority of that: what is served of it are
    the GPUs that can be empty, at the fewest evictions.
    """
    problem = _with_users_of_gpus(problem)
    gpus = [(state, group.count) for group in problem.groups for state in group.states if not state.fixed]
    priority = min(problem.priorities(), default=0) - 1
    kinds = tuple(sorted({state.kind(SPARE) for state, _count in gpus}))
    return _spare_units(problem, kinds, sum(count for _state, count in gpus), priority), priority


def _with_users_of_gpus(problem: Problem) -> Problem:
    """Nothing evicts who uses a GPU that stays whole: such a GPU stays as it is."""
    groups = (
        replace(group, states=tuple(replace(one, fixed=one.fixed or bool(one.users)) for one in group.states))
        for group in problem.groups
    )
    return replace(problem, groups=tuple(groups))


def _spare_units(problem: Problem, kinds: tuple[UnitKind, ...], count: int, priority: int) -> Problem:
    wanted = [WantedUnits(kinds, count, priority, optional=True)] if kinds else []
    return replace(problem, wanted=(*problem.wanted, *wanted), weights={**problem.weight(), priority: 1})


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
        outcome = replace(outcome, least=least, searched=outcome.cost <= least)
        return replace(hosted, outcome=outcome, gap=outcome.cost - proven)

    def least(self, outcome: FleetOutcome) -> tuple[Fraction, dict[str, int]]:
        """Return what no plan costs less than that serves as much and leaves as many hosts empty, whichever these are, and what each costs more."""
        # The prices of the kinds that only these hosts have are those of no kind of the fleet.
        return least_emptied(self.fleet, outcome, self.could, len(self.hosts))


def empty_hosts(problem: Problem, left_out: Iterable[str] = (), seconds: float = INFINITY) -> EmptiedHosts:
    """Choose the hosts that are left empty: as many as can be, and of these those that evict the fewest.

    How many can be is an integer program over hosts that are alike. At the prices of a plan, each host has its costs of being empty: the cheapest are
    chosen, and the prices of the best plan with these say which are cheapest then, until it is the same hosts, or no others are cheaper by an eviction.

    :param left_out: hosts of which not all GPUs are planned.
    """
    end, problem = time.monotonic() + seconds, _with_users_of_gpus(problem)
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
        asks = replace(best, problem=_spare_units(apart.problem, kinds, count, spare), hosts=hosts)
        outcome = recommend(asks.problem, end - time.monotonic())
        bound, costs = asks.least(outcome)
        if outcome.served == {**served, spare: count} and outcome.cost < least:
            best, least = asks, outcome.cost
        if outcome.cost - bound < outcome.scale:
            break
    return best


@dataclass(frozen=True)
class Purchase:
    """The cheapest hosts with which everything is served.

    :param hosts: how many of each. C(cost): what they cost. C(unit): what an eviction of the least weight stands for.
    :param problem: in which it is cheapest, with C(outcome), whose prices prove it: who buys a host evicts its seller.
    """

    hosts: Mapping[Offer, int]
    cost: int
    unit: int
    problem: Problem
    outcome: FleetOutcome


def grow(problem: Problem, offers: Mapping[Offer, int], seconds: float = INFINITY) -> Purchase:
    """Return which hosts are missing.

    :param problem: with the profiles of all boards that are offered, and with their kinds in what is wanted.
    :param offers: the price of a host, from 1 on.
    :raises Refused: no board that is offered serves what is missing.
    """
    plain = _without_state(problem)
    missing = recommend(plain, seconds)
    most, unit = sum(missing.missing.values()), reduce(gcd, offers.values(), 0)
    if not most or not offers:
        _refuse(missing)
        return Purchase({}, 0, unit, plain, missing)
    # A GPU that is bought is not shared, and has MIG only in a pool that has hosts with MIG.
    parted = {one.pool for group in problem.groups if group.count for one in group.states if not one.fixed}
    sold, wanted = {offer[:2] for offer in offers}, []
    for one in plain.wanted:
        serve = [kind for kind in one.kinds if kind[:2] in sold and (kind.pool in parted or kind.profile == WHOLE)]
        wanted.append(replace(one, kinds=(*one.kinds, *(kind._replace(board=kind.board + _NEW) for kind in serve))))
    groups, moves, weights, replicas = list(plain.groups), dict(plain.moves), plain.weight(), dict(plain.replicas)
    boards = {**plain.boards, _UNSOLD: ()}
    unsold, lowest = UnitKind("", _UNSOLD, WHOLE), min(plain.priorities()) - 1
    # Sellers have priorities below all others. That of a host moves for its price, to what stands for its being sold. The host then has nothing but seats,
    # and whoever has a GPU of its board moves to one of them for nothing: so no more GPUs are bought than hosts have.
    sellers: dict[Offer, tuple[UnitKind, int]] = {}
    seats: dict[tuple[str, str], list[UnitKind]] = {}
    for place, (offer, price) in enumerate(sorted(offers.items(), key=lambda item: (-item[1], item[0]))):
        pool, board, gpus = offer
        kind, priority = UnitKind(pool, f"{gpus} x {board}{_NEW}", WHOLE), lowest - place
        sellers[offer], weights[priority], boards[kind.board] = (kind, priority), price // unit, ()
        groups.append(Group((FleetGpu(*kind[:2], users=(priority,)),), most))
        moves[kind] = (unsold,)
        seats.setdefault((pool, board), []).append(kind._replace(profile=SPARE))
        replicas[seats[pool, board][-1]] = gpus
    groups.append(Group((FleetGpu("", _UNSOLD),), most * len(offers)))
    priority = lowest - len(offers)
    weights[priority] = 0
    for (pool, board), kinds in sorted(seats.items()):
        kind = UnitKind(pool, board + _NEW, WHOLE)
        boards[kind.board], moves[kind] = plain.boards[board], tuple(kinds)
        groups.append(Group((FleetGpu(*kind[:2], users=(priority,)),), most))
    market = replace(plain, boards=boards, groups=tuple(groups), wanted=tuple(wanted))
    market = replace(market, moves=moves, weights=weights, replicas=replicas)
    outcome = recommend(market, seconds)
    _refuse(outcome)
    bought = {offer: outcome.given.get((seller, unsold), 0) for offer, seller in sellers.items()}
    cost = sum(offers[offer] * count for offer, count in bought.items())
    return Purchase({offer: count for offer, count in bought.items() if count}, cost, unit, market, outcome)


def _refuse(outcome: FleetOutcome) -> None:
    if outcome.missing:
        text = ", ".join(f"{count} of priority {priority}" for priority, count in outcome.missing.items())
        reason = f"no board that is offered serves all requests: {text} are left"
        raise Refused("gpu_recommend_prices", reason, "Give the price of a board that offers what they ask for.")


def _without_state(problem: Problem) -> Problem:
    """Return the problem as if nobody had been placed yet: who runs where does not matter to what has to be bought. What is fixed keeps its instances."""
    groups: Counter[tuple[FleetGpu, ...]] = Counter()
    for group in problem.groups:
        fixed = any(state.fixed for state in group.states)
        held = [tuple(replace(one, users=()) for one in state.held) if fixed else () for state in group.states]
        groups[tuple(replace(one, held=left, users=()) for one, left in zip(group.states, held))] += group.count
    plain = tuple(Group(states, count) for states, count in groups.items())
    return replace(problem, groups=plain, wanted=tuple(problem.asked.values()), weights=problem.weight())
