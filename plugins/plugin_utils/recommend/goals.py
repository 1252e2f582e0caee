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

#: The board of what stands for a GPU that is not bought, and what tells the boards of GPUs that are bought from those of the fleet, whose GPUs are shared.
_UNSOLD, _NEW = "unsold", " (bought)"


def consolidate(problem: Problem) -> tuple[Problem, int]:
    """Return the problem that also asks for every GPU to be spare, after everything else that is wanted, and the priority of that: what is served of it are
    the GPUs that can be empty, at the fewest evictions.
    """
    # Nothing evicts who uses a GPU that stays whole: such a GPU stays as it is.
    groups = tuple(
        replace(group, states=tuple(replace(one, fixed=one.fixed or bool(one.users)) for one in group.states))
        for group in problem.groups
    )
    gpus = [(state, group.count) for group in groups for state in group.states if not state.fixed]
    priority = min(problem.priorities(), default=0) - 1
    kinds = tuple(sorted({state.kind(SPARE) for state, _count in gpus}))
    wanted = [WantedUnits(kinds, sum(count for _state, count in gpus), priority, optional=True)] if kinds else []
    weights = {**problem.weight(), priority: 1}
    return replace(problem, groups=groups, wanted=(*problem.wanted, *wanted), weights=weights), priority


@dataclass(frozen=True)
class Purchase:
    """The cheapest GPUs with which everything is served.

    :param gpus: how many, by pool and board. C(cost): what they cost. C(unit): what an eviction of the least weight stands for.
    :param problem: in which it is cheapest, with C(outcome), whose prices prove it: who buys a GPU evicts its seller.
    """

    gpus: Mapping[tuple[str, str], int]
    cost: int
    unit: int
    problem: Problem
    outcome: FleetOutcome


def grow(problem: Problem, offers: Mapping[tuple[str, str], int], seconds: float = INFINITY) -> Purchase:
    """Return which GPUs are missing.

    :param problem: with the profiles of all boards that are offered, and with their kinds in what is wanted.
    :param offers: the price of a GPU by pool and board, from 1 on.
    :raises Refused: no board that is offered serves what is missing.
    """
    plain = _without_state(problem)
    missing = recommend(plain, seconds)
    most, unit = sum(missing.missing.values()), reduce(gcd, offers.values(), 0)
    if not most or not offers:
        _refuse(missing)
        return Purchase({}, 0, unit, plain, missing)
    # Each seller has a priority below all others and moves for the price of the GPU, to what stands for its being sold.
    unsold, lowest = UnitKind("", _UNSOLD, WHOLE), min(plain.priorities()) - 1
    groups, moves, weights = list(plain.groups), dict(plain.moves), plain.weight()
    # A GPU that is bought is not shared, and has MIG only in a pool that has hosts with MIG.
    parted = {one.pool for group in problem.groups if group.count for one in group.states if not one.fixed}
    wanted = []
    for one in plain.wanted:
        serve = [kind for kind in one.kinds if kind[:2] in offers and (kind.pool in parted or kind.profile == WHOLE)]
        wanted.append(replace(one, kinds=(*one.kinds, *(kind._replace(board=kind.board + _NEW) for kind in serve))))
    sellers: dict[tuple[str, str], tuple[UnitKind, int]] = {}
    for place, ((pool, board), price) in enumerate(sorted(offers.items(), key=lambda item: (-item[1], item[0]))):
        kind, priority = UnitKind(pool, board + _NEW, WHOLE), lowest - place
        groups.append(Group((FleetGpu(*kind[:2], users=(priority,)),), most))
        sellers[pool, board] = kind, priority
        weights[priority] = price // unit
        moves[kind] = (unsold,)
    groups.append(Group((FleetGpu("", _UNSOLD),), most * len(offers)))
    boards = {**plain.boards, _UNSOLD: (), **{board + _NEW: plain.boards[board] for _pool, board in offers}}
    market = replace(plain, boards=boards, groups=tuple(groups), wanted=tuple(wanted), moves=moves, weights=weights)
    outcome = recommend(market, seconds)
    _refuse(outcome)
    sold = {key: outcome.given.get((seller, unsold), 0) for key, seller in sellers.items()}
    cost = sum(offers[key] * count for key, count in sold.items())
    return Purchase({key: count for key, count in sold.items() if count}, cost, unit, market, outcome)


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
