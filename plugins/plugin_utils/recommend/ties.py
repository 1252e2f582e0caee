# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of plans that serve as much at the same costs: the one that changes the fewest hosts, and of these the one that leaves the most room for later.

Every plan that costs as little consists of options near the cheapest. Where these are few, an integer program over them, with no more instances created
than are needed, has what was found before as rows. Where they are many, the plan stays as it is, and only bounds are stated.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, combinations
from typing import Any, NamedTuple

from .matrices import Block, Layouts, Matrices
from .problem import EMPTY, GPU, Group
from .solver import INFINITY, RowProgram, Search, Solution, search_of

#: The most columns of the program, and the most nodes of its search.
_COLUMNS, _NODES = 2500, 200


class _Becomes(NamedTuple):
    """What a unit can become. C(gives): to the rows of units, and to those of who stays. C(stays): it does not change."""

    layouts: Layouts
    cost: int
    gives: tuple[int, ...]
    room: int
    stays: bool


def room_of(block: Block, group: Group, layouts: Layouts) -> int:
    """Return how many instances of each profile that somebody asks for or has could still be created on a unit, summed."""
    total = 0
    for gpu, state, layout in zip(block.gpus, group.states, layouts):
        # Whoever uses a whole GPU leaves none; one that nobody uses becomes anything.
        if gpu.family.shape.slots and not (layout == (GPU,) and state.users):
            shape, there = gpu.family.shape, [one for one in layout if one not in (GPU, EMPTY)]
            total += shape.room(sum(shape.slot_bit[shape.index[name], start, size] for name, start, size in there))
    return total


def solve(of: Matrices, seconds: float = INFINITY) -> Solution:
    """Return the best plan. C(seconds): after how many the search ends with what it has."""
    search = search_of(of, seconds)
    _break_ties(search)
    return search.found


def _break_ties(search: Search) -> None:
    """Find, of the plans that are as good as that of a search, the one that touches the least, and what none of them is better than."""
    found, of = search.found, search.of
    near: dict[tuple[int, int], list[int]] = {}
    for number, place, option in search.near(search.gap_of_prices(), found.prices):
        near.setdefault((number, place), []).append(option)
    columns: dict[tuple[int, int], list[_Becomes]] = {}
    size = 0
    for (number, place), options in near.items():
        block = of.blocks[number]
        group = of.problem.groups[block.groups[place]]
        several = block.layouts(place, options)
        # No plan as good destroys what such an option keeps.
        most = max(room_of(block, group, _kept(group, layouts)) for layouts in several)
        found.most_room += group.count * most
        if size <= _COLUMNS:
            columns[number, place] = _becomes(block, place, dict(zip(options, several)))
            size += len(columns[number, place]) + 2 * len(set(group.hosts))
    if size <= _COLUMNS:
        _solve(search, columns)


def _kept(group: Group, layouts: Layouts) -> Layouts:
    return tuple(tuple(one for one in layout if one in state.there) for state, layout in zip(group.states, layouts))


def _becomes(block: Block, place: int, options: dict[int, Layouts]) -> list[_Becomes]:
    """Return what a unit can become for which one of these options stands: that, or less of it."""
    group = block.of.problem.groups[block.groups[place]]
    now = tuple(tuple(state.there) for state in group.states)
    best: dict[tuple[int, tuple[int, ...], bool], _Becomes] = {}
    for option, full in options.items():
        parts = [full]
        kept = _kept(group, full)
        # On a node whose strategy is single, all is made or nothing.
        if len(full) == 1 and not {GPU, EMPTY} & set(full[0]):
            new = [one for one in full[0] if one not in kept[0]]
            some = chain.from_iterable(combinations(new, count) for count in range(len(new) + 1))
            parts = [(tuple(sorted((*kept[0], *part), key=lambda one: one[1])),) for part in some]
        cost, keep = int(block.cost[place, option]), block.keep[place, option].tolist()
        if not cost:
            parts.append(now)
        for layouts in parts:
            # An empty GPU keeps its MIG mode.
            stays = all(
                set(was) == set(then) or (then == (EMPTY,) and not state.held)
                for was, then, state in zip(now, layouts, group.states)
            )
            gives = (*block.supply_of(layouts), *(-count for count in keep))
            one = _Becomes(layouts, cost, gives, room_of(block, group, layouts), stays)
            key = cost, gives, stays
            if key not in best or best[key].room < one.room:
                best[key] = one
    return list(best.values())


def _solve(search: Search, columns: dict[tuple[int, int], list[_Becomes]]) -> None:
    """Choose by an integer program. A host weighs more than all room that there can be."""
    found = search.found
    options: dict[str, Any] = {"mip_max_nodes": _NODES, "mip_abs_gap": 0.99, "time_limit": max(0.0, search.left())}
    program = RowProgram(search.of, found.served, True, budget=float(found.cost or 0), **options)
    budget, heavy = program.rows - 1, 1.0 + found.most_room
    limits: dict[str, list[tuple[int, float]]] = {}
    chosen: list[tuple[int, int, _Becomes, int]] = []
    for (number, place), several in columns.items():
        block = search.of.blocks[number]
        group = search.of.problem.groups[block.groups[place]]
        line, changes = program.row(group.count, group.count), program.row(upper=0.0)
        for one in several:
            entries = [(line, 1.0), (budget, float(one.cost)), *enumerate(map(float, one.gives))]
            entries += [] if one.stays else [(changes, 1.0)]
            chosen.append((number, place, one, program.column(-float(one.room), 0, group.count, entries, True)))
        for host, count in Counter(group.hosts).items():
            limits.setdefault(host, []).append((program.row(upper=0.0), -float(count)))
            program.column(0, 0, count, [(changes, -1.0), (limits[host][-1][0], 1.0)])
        if not group.hosts:
            program.column(0, 0, group.count, [(changes, -1.0)])
    hosts = {host: program.column(heavy, 0, 1, entries, True) for host, entries in limits.items()}
    if not program.solve():
        return
    values = program.values().round().astype(int).tolist()
    found.tied = {(number, place, one.layouts): values[at] for number, place, one, at in chosen if values[at]}
    found.given = {key: values[column] for key, column in program.given.items() if values[column]}
    found.hosts = frozenset(host for host, column in hosts.items() if values[column])
    # Room is bounded with as many hosts as there are.
    bound = program.bound - 1e-6
    found.least_hosts = max(0, -int(-bound // heavy))
    if found.least_hosts == len(found.hosts):
        found.most_room = min(found.most_room, int(heavy * len(found.hosts) - bound))
