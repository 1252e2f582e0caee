# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Totals over GPUs at the fewest destroyed instances: an exact search that deepens the number of destroyed instances.

Each bound on that number is proven impossible before the next is tried, so the first distribution found is an optimum.
Two things keep the search small. What is left to place must be in reach of the GPUs that are left, by each profile and
by the memory units of each group of profiles; and what these GPUs hold beyond what is left must go anyway.

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

# Beyond this many profiles not every group of them is bounded, only pairs and all together.
_ALL_GROUPS = 3


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
    moves = [
        [(sum(map(mul, option.take, basis)), option.destroyed, option.take) for option in choices]
        for choices in options
    ]
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
    failed: dict[tuple[int, int], int] = {}

    def surplus(position: int, left: int) -> int:
        beyond = (have[position] | low_guard) - (left & low)
        over = beyond & low_guard
        return (beyond & (over - (over >> (_WIDTH - 1)))) % _FIELD

    def search(position: int, left: int, budget: int) -> list[Request] | None:
        if position == count:
            return [] if not left else None
        state = (position, left & low)
        if failed.get(state, -1) >= budget:
            return None
        after = most[position + 1] | guard
        for move, destroyed, take in moves[position]:
            if destroyed > budget:
                break
            rest = (left | guard) - move
            if rest & guard != guard:
                continue
            rest ^= guard
            if (after - rest) & guard != guard:
                continue
            remaining = budget - destroyed
            if surplus(position + 1, rest) + strangers[position + 1] <= remaining:
                found = search(position + 1, rest, remaining)
                if found is not None:
                    return [take, *found]
        failed[state] = budget
        return None

    start = sum(map(mul, target, basis))
    if ((most[0] | guard) - start) & guard != guard:
        return None
    everything = sum(sum(own) for own in held) + strangers[0]
    for budget in range(surplus(0, start) + strangers[0], everything + 1):
        found = search(0, start, budget)
        if found is not None:
            return found
    return None


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
