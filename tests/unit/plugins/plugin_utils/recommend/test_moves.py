# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of hosts against every order that there is: in no state in between a user lacks a unit where some order spares all."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.moves import Move, order_of, ordered
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import (
    FleetGpu,
    Group,
    HeldInstance,
    Problem,
)

SMALL, MIDDLE, LARGE = (("train", name) for name in ("1g.10gb", "2g.20gb", "3g.40gb"))


def lowest(moves, free):
    """Return the least that there is of anything in between, counted anew in every state."""
    room, least = dict(free), 0
    for move in moves:
        for offer, count in move.gone.items():
            room[offer] = room.get(offer, 0) - count
        least = min([least, *room.values()])
        for offer, count in move.made.items():
            room[offer] = room.get(offer, 0) + count
    return least


def fleet(draw):
    """Draw hosts of which each loses some instances and gets others, and what is free: less than all of them take, and enough in the end."""
    offers = [SMALL, MIDDLE, LARGE]
    moves = [
        Move(str(host), *(Counter({one: draw.randrange(3) for one in offers}) for _side in range(2)))
        for host in range(draw.randrange(1, 6))
    ]
    gone = sum((move.gone for move in moves), Counter())
    made = sum((move.made for move in moves), Counter())
    free = {one: max(0, gone[one] - made[one]) + draw.randrange(3) for one in offers}
    return moves, free


@pytest.mark.parametrize("seed", range(300))
def test_no_state_in_between_lacks_what_some_order_keeps(seed):
    moves, free = fleet(random.Random(seed))
    names, short = ordered(moves, free)
    assert sorted(names) == sorted(move.host for move in moves)
    taken = [next(move for move in moves if move.host == name) for name in names]
    possible = any(lowest(order, free) >= 0 for order in permutations(moves))
    assert (lowest(taken, free) >= 0) == possible == (short == 0)


def test_the_fleets_that_are_drawn_have_orders_that_fail_and_fleets_without_one():
    """Else the property says nothing."""
    kinds = Counter()
    for seed in range(300):
        moves, free = fleet(random.Random(seed))
        kinds[lowest(moves, free) >= 0, ordered(moves, free)[1] == 0] += 1
    assert kinds[False, True] > 20 and kinds[False, False] > 20


LARGE_PLACE, SMALL_PLACE = ("3g.40gb", 4, 4), ("1g.10gb", 0, 1)


def gpus_of(hosts, *held):
    """Return GPUs that have the same, each on a host of its own. An instance in use has one user."""
    state = FleetGpu("train", "h100", True, tuple(HeldInstance(*place, (0,) * used) for place, used in held))
    return Group((state,), len(hosts), tuple(hosts), ((0,),) * len(hosts))


def test_users_need_what_they_have_and_not_what_is_idle_or_lost_in_the_end():
    """Host a makes the instance whose like host b gives up: first a. What of c nobody serves in the end is nobody's need."""
    problem = Problem({}, (gpus_of("ab", (LARGE_PLACE, True), (SMALL_PLACE, False)),))
    after = {"b": {0: (SMALL_PLACE, ("1g.10gb", 1, 1))}, "a": {0: (LARGE_PLACE, ("3g.40gb", 0, 4))}}
    assert order_of(problem, after, ["b", "a"]) == (["a", "b"], 0)
    assert order_of(problem, after, ["b"]) == (["b"], 0)
    # Each gives up one that is used and makes another: whichever begins, one user waits.
    swaps = {host: {0: (("3g.40gb", 0, 4), SMALL_PLACE)} for host in "ab"}
    assert order_of(problem, swaps, ["a", "b"])[1] == 1


def test_what_is_idle_on_a_host_whose_turn_comes_is_nobodys():
    """Its node is cordoned: whoever was given it would be evicted again. What is idle on the third host serves, and what is left on one that had its turn."""
    used, idle = gpus_of("a", (SMALL_PLACE, True)), gpus_of("b", (SMALL_PLACE, False))
    after = {"a": {0: (("1g.10gb", 1, 1),)}, "b": {0: (LARGE_PLACE,)}}
    assert order_of(Problem({}, (used, idle)), after, ["a", "b"])[1] == 1
    third = replace(idle, hosts=("c",))
    assert order_of(Problem({}, (used, idle, third)), after, ["a", "b"])[1] == 0
    kept = replace(idle, hosts=("b",), indices=((1,),))
    after["b"][1] = (SMALL_PLACE,)
    assert order_of(Problem({}, (used, idle, kept)), after, ["a", "b"]) == (["b", "a"], 0)


def test_a_thousand_hosts_are_ordered_in_less_states_than_there_may_be():
    moves = [Move(f"{number:04}", Counter({SMALL: 3}), Counter({LARGE: 1})) for number in range(500)]
    moves += [Move(f"{number:04}", Counter({LARGE: 1}), Counter({SMALL: 3})) for number in range(500, 1000)]
    names, short = ordered(moves, {SMALL: 3, LARGE: 0})
    assert short == 0 and len(set(names)) == 1000
