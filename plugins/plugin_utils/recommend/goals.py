# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What else is asked of the planner, put as a demand: which GPUs can be left empty, and which have to be bought. So the same prices prove it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd

from ...module_utils._plan import Refused
from .outcome import INFINITY, FleetOutcome, recommend
from .problem import SPARE, WHOLE, FleetGpu, Group, Problem, UnitKind, WantedUnits

#: The board of what stands for a host that is not bought, and what tells the boards of GPUs that are bought from those of the fleet, whose GPUs are shared.
_UNSOLD, _NEW = "unsold", " (bought)"

#: What can be bought: a host of a pool with GPUs of a board, and how many of them.
Offer = tuple[str, str, int]


def consolidate(problem: Problem) -> tuple[Problem, int]:
    """Return the problem that also asks for every GPU to be spare, after everything else that is wanted, and the priority of that: what is served of it are
    the GPUs that can be empty, at the fewest evictions.
    """
    problem = with_users_of_gpus(problem)
    gpus = [(state, group.count) for group in problem.groups for state in group.states if not state.fixed]
    priority = min(problem.priorities(), default=0) - 1
    kinds = tuple(sorted({state.kind(SPARE) for state, _count in gpus}))
    return spare_units(problem, kinds, sum(count for _state, count in gpus), priority), priority


def with_users_of_gpus(problem: Problem) -> Problem:
    """Nothing evicts who uses a GPU that stays whole: such a GPU stays as it is."""
    groups = (
        replace(group, states=tuple(replace(one, fixed=one.fixed or bool(one.users)) for one in group.states))
        for group in problem.groups
    )
    return replace(problem, groups=tuple(groups))


def spare_units(problem: Problem, kinds: tuple[UnitKind, ...], count: int, priority: int) -> Problem:
    wanted = [WantedUnits(kinds, count, priority, optional=True)] if kinds else []
    return replace(problem, wanted=(*problem.wanted, *wanted), weights={**problem.weight(), priority: 1})


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
