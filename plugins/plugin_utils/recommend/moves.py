# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""In which order the hosts of a recommendation are partitioned, so that in between there is what running users need. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .outcome import Instances
from .problem import EMPTY, GPU, Problem

#: What users are given: the pool, and the profile on any of its boards.
Offer = tuple[str, str]
#: States that the search looks at.
_MOST = 20_000


class Move(NamedTuple):
    """The turn of a host: who needs a unit elsewhere from its begin on, and what is free on it at its end."""

    host: str
    gone: Counter[Offer]
    made: Counter[Offer]

    def lacking(self, room: Mapping[Offer, int]) -> int:
        """Return how many users have no unit meanwhile."""
        return sum(min(count, max(0, count - room.get(offer, 0))) for offer, count in self.gone.items())

    @property
    def lost(self) -> int:
        return sum((self.gone - self.made).values())

    def after(self, room: Mapping[Offer, int]) -> Counter[Offer]:
        found = Counter(room)
        found.subtract(self.gone)
        found.update(self.made)
        return found


def order_of(
    problem: Problem, after: Mapping[str, Mapping[int, Instances | None]], hosts: Sequence[str]
) -> tuple[list[str], int]:
    """Return the hosts that change in the order of L(ordered). Whoever has no unit in the end needs none in between.

    C(repartition) cordons all of them before the first turn: what is idle on a host is nobody's until its turn has ended.

    :param after: what each GPU becomes, by host and index.
    """
    replicas = dict[Offer, int]()
    for kind, count in problem.replicas.items():
        replicas[kind.pool, kind.profile] = min(count, replicas.get((kind.pool, kind.profile), count))
    free, moves = Counter[Offer](), {host: Move(host, Counter(), Counter()) for host in hosts}
    for group in problem.groups:
        for host, index, state in group.gpus:
            layout, move = (after[host][index], moves[host]) if host in moves else ((), None)
            # An empty GPU keeps its MIG mode.
            then = {GPU} if layout is None or (layout == (EMPTY,) and not state.mig) else {*layout} - {EMPTY}
            for place in {*state.there, *then} if move else state.there:
                offer, users = (state.pool, place[0]), len(state.there.get(place, ()))
                if move and place not in then:
                    move.gone[offer] += users
                else:
                    (move.made if move else free)[offer] += replicas.get(offer, 1) - users
    end = Counter(free)
    for move in moves.values():
        end = move.after(end)
    return ordered(list(moves.values()), {offer: free[offer] + max(0, -count) for offer, count in end.items()})


def ordered(moves: Sequence[Move], free: Mapping[Offer, int]) -> tuple[list[str], int]:
    """Return the order of hosts, and how many users at the most have no unit during a turn: 0 where the search finds an order that spares all.

    :param free: how many units of each offer there are beyond what users need.
    """
    gone = sum((move.gone for move in moves), Counter[Offer]())
    scarce = {offer for offer, count in gone.items() if count > free.get(offer, 0)}
    #: Moves that are alike in what may lack.
    alike: dict[tuple[Any, Any], list[Move]] = {}
    for move in moves:
        sides = [Counter({offer: count for offer, count in side.items() if offer in scarce}) for side in move[1:]]
        key = (frozenset(sides[0].items()), frozenset(sides[1].items()))
        alike.setdefault(key, []).append(Move(move.host, *sides))
    kinds = list(alike.values())
    path, short = _search(kinds, free), 0
    if path is None:
        path, room, left = [], Counter(free), list(map(len, kinds))
        while any(left):
            lack, _lost, at = min(
                (kinds[at][0].lacking(room), kinds[at][0].lost, at) for at in range(len(left)) if left[at]
            )
            short, room = max(short, lack), kinds[at][0].after(room)
            left[at] -= 1
            path.append(at)
    turns = [iter(each) for each in kinds]
    return [next(turns[at]).host for at in path], short


def _search(kinds: Sequence[Sequence[Move]], free: Mapping[Offer, int]) -> list[int] | None:
    """Return in which order moves of these kinds leave nobody without a unit; None where there is none, or too much to look at."""
    seen: set[tuple[int, ...]] = set()
    stack: list[tuple[tuple[int, ...], Mapping[Offer, int], Any]] = [(tuple(map(len, kinds)), free, None)]
    while stack and len(seen) < _MOST:
        left, room, path = stack.pop()
        if not any(left):
            found = []
            while path:
                path, at = path
                found.append(at)
            return found[::-1]
        if left in seen:
            continue
        seen.add(left)
        fit = [at for at, count in enumerate(left) if count and not kinds[at][0].lacking(room)]
        fit.sort(key=lambda at: kinds[at][0].lost, reverse=True)
        # What makes nothing less is never wrong to do first.
        for at in fit[-1:] if fit and not kinds[fit[-1]][0].lost else fit:
            stack.append(((*left[:at], left[at] - 1, *left[at + 1 :]), kinds[at][0].after(room), (path, at)))
    return None
