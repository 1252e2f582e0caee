# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Totals over GPUs at the fewest destroyed instances: an exact search that deepens the number of destroyed instances.

Each bound on that number is proven impossible before the next is tried, so the first distribution found is an optimum.
Three things keep the search small. What is left to place must be in reach of the GPUs that are left, by each profile and
by the memory units of each group of profiles; what these GPUs hold beyond what is left must go anyway; and by prices of
the profiles (Lagrange multipliers) each option has a cost above the cheapest of its GPU, of which no more can be spent
than the budget leaves. Prices are only looked for where a search without them takes long: they cost milliseconds.

All these numbers of a state are the fields of one integer, so that they are compared in one subtraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from operator import mul
from typing import NamedTuple

from .geometry import Request

_WIDTH = 20
_FIELD = (1 << _WIDTH) - 1

# Prices are whole numbers of this part of an instance, so that bounds are exact.
_UNIT = 64
_PRICE_ROUNDS = 40
# A search of this many states takes about as long as looking for prices.
_QUICK_STATES = 300

# Beyond this many profiles not every group of them is bounded, only pairs and all together.
_ALL_GROUPS = 3


class _TakesLong(Exception):
    """The search went through more states than it may."""


class Option(NamedTuple):
    """A part of the totals that one GPU can take; the order of the fields is the order of preference.

    :ivar destroyed: instances that the GPU loses.
    :ivar turns: 1 when its MIG mode changes.
    :ivar emptiness: minus the memory units taken, so that GPUs are filled up before others are used.
    :ivar take: instances of each profile of the totals.
    """

    destroyed: int
    turns: int
    emptiness: int
    take: Request


def deepen(
    target: Request,
    options: Sequence[Sequence[Option]],
    held: Sequence[Request],
    foreign: Sequence[int],
    sizes: Sequence[int],
) -> list[Request] | None:
    """Return what each GPU takes, or None when the totals cannot be placed.

    :param target: the totals, by profile.
    :param options: what each GPU can take, cheapest first.
    :param held: what each GPU holds now, by profile of the totals.
    :param foreign: how many instances each GPU holds of profiles that the totals have none of.
    :param sizes: memory units of each profile, to weigh groups of profiles with.
    """
    if any(not choices for choices in options):
        return None
    groups = _groups(len(target))
    guard = _pack([1 << (_WIDTH - 1)] * (len(target) + len(groups)))
    low = (1 << (_WIDTH * len(target))) - 1
    low_guard = guard & low
    # Fields are sums, so the integer of an option is a sum over its instances.
    basis = [_pack(_fields(unit, groups, sizes)) for unit in _units(len(target))]
    packed = [[sum(map(mul, option.take, basis)) for option in choices] for choices in options]
    count = len(options)
    most, have = [0] * (count + 1), [0] * (count + 1)
    reaches: dict[frozenset[Request], int] = {}
    for position in range(count - 1, -1, -1):
        takes = frozenset(option.take for option in options[position])
        if takes not in reaches:
            # Most GPUs of a host can take the same.
            fields = [_fields(take, groups, sizes) for take in takes]
            reaches[takes] = _pack([max(column) for column in zip(*fields)])
        most[position] = most[position + 1] + reaches[takes]
        have[position] = have[position + 1] + _pack(held[position])
    # Instances of other profiles go wherever the totals are placed.
    strangers = [sum(foreign[position:]) for position in range(count + 1)]

    def surplus(position: int, left: int) -> int:
        beyond = (have[position] | low_guard) - (left & low)
        over = beyond & low_guard
        return (beyond & (over - (over >> (_WIDTH - 1)))) % _FIELD

    def within(prices: Sequence[int], states: int | None) -> list[Request] | None:
        """Search with prices of the profiles; with no more than so many states."""
        costs = [[option.destroyed * _UNIT - sum(map(mul, prices, option.take)) for option in one] for one in options]
        cheapest = [min(one) for one in costs]
        moves = [
            [
                (move, option.destroyed, cost - least, option.take)
                for move, cost, option in zip(packed[gpu], costs[gpu], options[gpu])
            ]
            for gpu, least in enumerate(cheapest)
        ]
        failed: dict[tuple[int, int], int] = {}

        def search(position: int, left: int, budget: int, spare: int) -> list[Request] | None:
            if position == count:
                return [] if not left else None
            state = (position, left & low)
            if failed.get(state, -1) >= budget:
                return None
            if states is not None and len(failed) > states:
                raise _TakesLong
            after = most[position + 1] | guard
            for move, destroyed, above, take in moves[position]:
                if destroyed > budget:
                    break
                if above > spare:
                    continue
                rest = (left | guard) - move
                if rest & guard != guard:
                    continue
                rest ^= guard
                if (after - rest) & guard != guard:
                    continue
                remaining = budget - destroyed
                if surplus(position + 1, rest) + strangers[position + 1] <= remaining:
                    found = search(position + 1, rest, remaining, spare - above)
                    if found is not None:
                        return [take, *found]
            failed[state] = budget
            return None

        bound = sum(cheapest) + sum(map(mul, prices, target))
        for budget in range(max(surplus(0, start) + strangers[0], -(-bound // _UNIT)), everything + 1):
            found = search(0, start, budget, budget * _UNIT - bound)
            if found is not None:
                return found
        return None

    start = sum(map(mul, target, basis))
    if ((most[0] | guard) - start) & guard != guard:
        return None
    everything = sum(sum(own) for own in held) + strangers[0]
    try:
        return within([0] * len(target), _QUICK_STATES)
    except _TakesLong:
        return within(_prices(target, options), None)


def _prices(target: Request, options: Sequence[Sequence[Option]]) -> list[int]:
    """Return prices of the profiles by which the sum of the cheapest options is a high bound: a subgradient ascent.

    Any prices give a bound that holds; better ones only make the search shorter.
    """
    prices = [0.0] * len(target)
    best, best_bound = prices, float("-inf")
    step = 0.5
    for _round in range(_PRICE_ROUNDS):
        bound, lacking = sum(map(mul, prices, target)), list(target)
        for choices in options:
            cost, take = min((option.destroyed - sum(map(mul, prices, option.take)), option.take) for option in choices)
            bound += cost
            lacking = [wanted - given for wanted, given in zip(lacking, take)]
        if bound > best_bound:
            best, best_bound = prices, bound
        length = sum(one * one for one in lacking)
        if not length:
            break
        prices = [price + step * one / length**0.5 for price, one in zip(prices, lacking)]
        step *= 0.92
    return [round(price * _UNIT) for price in best]


def _units(columns: int) -> list[Request]:
    return [tuple(int(column == other) for other in range(columns)) for column in range(columns)]


def _groups(columns: int) -> list[tuple[int, ...]]:
    widths = range(2, columns + 1) if columns <= _ALL_GROUPS else (2, columns)
    return [group for width in widths for group in combinations(range(columns), width)]


def _fields(counts: Sequence[int], groups: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[int]:
    return [*counts, *(sum(counts[column] * sizes[column] for column in group) for group in groups)]


def _pack(numbers: Sequence[int]) -> int:
    packed = 0
    for number in reversed(numbers):
        packed = packed << _WIDTH | number
    return packed
