# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.waves import (
    DONE,
    FAILED,
    WAITING,
    WORKING,
    Budget,
    Decision,
    Node,
    decide,
    has_slot,
    order,
)

SCALE = Path(__file__).parents[5] / "docs" / "scale.md"


def fleet(count, **changes):
    return [replace(Node(f"n{number}"), **changes.get(f"n{number}", {})) for number in range(count)]


def test_the_canary_goes_first_and_alone():
    budget = Budget(canary=1, max_parallel=10, max_unavailable="50%")
    assert decide(fleet(10), budget).start == ("n0",)
    assert decide(fleet(10, n0={"phase": WORKING}), budget).start == ()
    assert decide(fleet(10, n0={"phase": DONE}), budget).start == ("n1", "n2", "n3", "n4", "n5")


def test_a_failed_canary_stops_everything():
    decision = decide(fleet(3, n0={"phase": FAILED, "cordoned": True}), Budget())
    assert decision.finished
    assert decision.stopped == "1 failed (n0) and at most 0 may"
    assert decision.left == ("n1", "n2")


def test_nodes_at_work_are_finished_before_a_stop():
    decision = decide(fleet(3, n0={"phase": FAILED}, n1={"phase": WORKING}), Budget(canary=0))
    assert not decision.finished
    assert decision.start == ()
    assert decision.left == ()


def test_failed_nodes_stay_cordoned_and_count():
    budget = Budget(canary=0, max_parallel=0, max_unavailable="2", max_failures=5)
    nodes = fleet(6, n0={"phase": FAILED, "cordoned": True})
    assert decide(nodes, budget).start == ("n1",)


def test_a_node_cordoned_by_hand_costs_nothing_and_goes_first():
    budget = Budget(canary=0, max_parallel=5, max_unavailable="1")
    assert decide(fleet(5, n4={"cordoned": True, "cordoned_by_hand": True}), budget).start == ("n4",)


def test_nodes_that_are_not_ready_count_and_are_not_started():
    budget = Budget(canary=0, max_parallel=5, max_unavailable="2")
    assert decide(fleet(5, n0={"ready": False}), budget).start == ("n1",)
    decision = decide(fleet(2, n0={"ready": False}, n1={"phase": DONE}), budget)
    assert (decision.finished, decision.stopped, decision.left) == (True, "n0 not ready", ("n0",))


def test_skipped_nodes_are_left_alone():
    decision = decide(fleet(2, n0={"skip": True}, n1={"phase": DONE}), Budget())
    assert decision.finished
    assert decision.stopped is None


def test_an_exhausted_budget_ends_the_rollout_with_the_reason():
    nodes = fleet(4, n0={"ready": False, "phase": DONE}, n1={"ready": False, "phase": DONE})
    decision = decide(nodes, Budget(max_unavailable="2"))
    assert decision.finished
    assert decision.stopped == "at most 2 may be unavailable, and that many already are"
    assert decision.left == ("n2", "n3")


def test_the_order_is_free_nodes_first_and_those_that_are_not_ready_last():
    by_hand = {"cordoned": True, "cordoned_by_hand": True}
    nodes = fleet(6, n0={"ready": False}, n2={"phase": DONE}, n3={"skip": True}, n4=by_hand)
    assert order(nodes) == ("n4", "n1", "n5", "n0")


def test_a_node_that_is_rolled_back_stops_the_rollout_before_it_has_ended():
    nodes = fleet(4, n0={"phase": DONE}, n1={"phase": WORKING, "failing": True}, n2={"phase": WORKING})
    decision = decide(nodes, Budget(max_parallel=3, max_unavailable="100%"))
    assert (decision.start, decision.finished) == ((), False)
    assert decision.stopped == "1 failed (n1) and at most 0 may"
    borne = decide(nodes, Budget(max_parallel=3, max_unavailable="100%", max_failures=1))
    assert borne.start == ("n3",), "and it takes a slot until it has ended"


def test_whether_there_is_a_slot_does_not_ask_the_nodes():
    budget = Budget(canary=1, max_parallel=2, max_unavailable="100%")
    assert has_slot(fleet(3), budget)
    assert not has_slot(fleet(3, n0={"phase": WORKING}), budget), "the canary is alone"
    assert has_slot(fleet(4, n0={"phase": DONE}, n1={"phase": WORKING}), budget)
    assert not has_slot(fleet(4, n0={"phase": DONE}, n1={"phase": WORKING}, n2={"phase": WORKING}), budget)


@pytest.mark.parametrize(
    ("text", "count", "allowed"),
    [("25%", 100, 25), ("25%", 3, 1), ("3", 100, 3), ("0", 9, 1), ("100%", 7, 7), (2, 5, 2)],
)
def test_max_unavailable(text, count, allowed):
    assert Budget(max_unavailable=text).unavailable(count) == allowed


@pytest.mark.parametrize("text", ["", "many", "-1", "120%", "2.5"])
def test_nonsense_is_refused(text):
    with pytest.raises(Refused, match="Write 2 or 25%"):
        Budget(max_unavailable=text).unavailable(10)


def simulate(count, budget, seed, failure_rate, duration=lambda draw: draw.randint(3, 9), in_waves=False):
    """Run a whole rollout in ticks; return (nodes, ticks, least, decision).

    C(least) is the time in which nobody could do it faster: the canary, which goes alone, and then the work on the other nodes that cost
    something of the budget, divided by the room that nodes which are out of service anyway leave in it.

    :param in_waves: whether a wave ends with its slowest node, as the serial of a play does; else a node follows as soon as another ends.
    """
    draw = random.Random(seed)
    nodes = {}
    for number in range(count):
        by_hand = draw.random() < 0.01
        nodes[f"n{number}"] = Node(
            f"n{number}",
            ready=draw.random() > 0.005,
            cordoned=by_hand,
            cordoned_by_hand=by_hand,
            skip=draw.random() < 0.01,
        )
    given = dict(nodes)
    remaining = {}
    ticks = work = canary = 0
    first = 0.0
    allowed = budget.unavailable(count)
    base = sum(1 for node in nodes.values() if node.unavailable)
    while True:
        decision = Decision() if in_waves and remaining else decide(list(nodes.values()), budget)
        for name in decision.start:
            assert nodes[name].phase == WAITING
            assert not nodes[name].skip
            nodes[name] = replace(nodes[name], phase=WORKING, cordoned=True)
            remaining[name] = duration(draw)
            if canary < budget.canary:
                first += remaining[name] / budget.canary
            elif not given[name].cordoned_by_hand:
                work += remaining[name]
            canary += 1
        unavailable = sum(1 for node in nodes.values() if node.unavailable)
        assert unavailable <= max(allowed, base), "never more unavailable than allowed"
        if decision.finished:
            break
        ticks += 1
        assert ticks < 50 * count, "it always ends"
        for name in [name for name, left in remaining.items() if left == 1]:
            failed = draw.random() < failure_rate
            by_hand = nodes[name].cordoned_by_hand
            nodes[name] = replace(nodes[name], phase=FAILED if failed else DONE, cordoned=failed or by_hand)
        remaining = {name: left - 1 for name, left in remaining.items() if left > 1}
    for name, node in nodes.items():
        if given[name].cordoned_by_hand:
            assert node.cordoned, "a node that somebody cordoned is never uncordoned"
    return nodes, ticks, first + work / max(1, allowed - base), decision


@pytest.mark.parametrize("seed", range(20))
def test_small_rollouts_keep_their_promises(seed):
    draw = random.Random(seed)
    budget = Budget(
        canary=draw.randint(0, 3),
        max_parallel=draw.choice([0, 1, 5]),
        max_unavailable=draw.choice(["1", "3", "10%", "50%"]),
        max_failures=draw.choice([0, 2, 1000]),
    )
    simulate(draw.randint(1, 120), budget, seed, draw.choice([0.0, 0.02, 0.3]))


@pytest.mark.slow
@pytest.mark.parametrize(("in_waves", "at_most"), [(False, 1.105), (True, 1.8)])
@pytest.mark.parametrize(("failure_rate", "max_failures"), [(0.0, 0), (0.005, 10000)])
def test_ten_thousand_nodes(failure_rate, max_failures, in_waves, at_most):
    """The figures are in docs/scale.md."""
    budget = Budget(canary=1, max_parallel=0, max_unavailable="10%", max_failures=max_failures)
    started = time.process_time()
    nodes, ticks, least, decision = simulate(10_000, budget, 7, failure_rate, in_waves=in_waves)
    seconds = time.process_time() - started
    waiting = [node for node in nodes.values() if node.phase == WAITING and not node.skip]
    assert all(not node.ready for node in waiting)
    assert set(decision.left) == {node.name for node in waiting}
    print(
        f"failures {failure_rate:.1%}, {'waves' if in_waves else 'slots'}: {ticks} ticks, {ticks / least:.2f} of the least, {seconds:.1f} s"
    )
    assert ticks <= at_most * least
    assert f"| {ticks} units | {ticks / least:.2f} |" in SCALE.read_text(encoding="utf-8")


def racks(*sizes, **changes):
    """Racks r0, r1, ... with that many nodes, whose names alternate between the racks in the inventory."""
    names = [(place, f"r{rack}") for rack, size in enumerate(sizes) for place in range(size)]
    nodes = [Node(f"{rack}-{place}", rack=rack) for place, rack in sorted(names)]
    return [replace(node, **changes.get(node.name.replace("-", "_"), {})) for node in nodes]


def test_the_nodes_of_a_rack_follow_each_other():
    assert order(racks(3, 2)) == ("r0-0", "r0-1", "r0-2", "r1-0", "r1-1")
    by_hand = {"cordoned": True, "cordoned_by_hand": True}
    assert order(racks(2, 2, r1_1=by_hand)) == ("r1-1", "r1-0", "r0-0", "r0-1"), (
        "what costs nothing takes its rack along"
    )
    assert order(racks(2, 3, r1_2={"phase": FAILED}))[:2] == ("r1-0", "r1-1"), (
        "a rack with two drivers is completed first"
    )
    assert order(racks(2, 2, r0_1={"ready": False})) == ("r0-0", "r1-0", "r1-1", "r0-1")


def test_a_budget_with_room_for_a_rack_changes_it_in_one_go_after_its_canary():
    budget = Budget(canary=1, max_parallel=0, max_unavailable="100%")
    assert decide(racks(4, 4), budget).start == ("r0-0",)
    assert decide(racks(4, 4, r0_0={"phase": DONE}), budget).start == ("r0-1", "r0-2", "r0-3"), "and no other rack"
    worked_on = {f"r0_{place}": {"phase": WORKING} for place in range(1, 4)}
    assert decide(racks(4, 4, r0_0={"phase": DONE}, **worked_on), budget).start == ()
    done = {f"r0_{place}": {"phase": DONE} for place in range(4)}
    assert decide(racks(4, 4, **done), budget).start == ("r1-0", "r1-1", "r1-2", "r1-3")


def test_a_node_in_no_rack_does_not_wait_for_one():
    nodes = [*racks(2, 1, r0_0={"phase": DONE}), Node("n0")]
    assert decide(nodes, Budget(canary=1, max_parallel=0, max_unavailable="100%")).start == ("r0-1", "n0")


def test_a_canary_in_no_rack_does_not_prove_a_rack_and_without_a_canary_racks_go_together():
    nodes = [Node("n0", DONE), *racks(1, 2)]
    assert decide(nodes, Budget(canary=1, max_parallel=0, max_unavailable="100%")).start == ("r0-0",)
    assert decide(nodes, Budget(canary=0, max_parallel=0, max_unavailable="100%")).start == ("r0-0", "r1-0", "r1-1")


def test_no_other_rack_starts_while_the_budget_has_no_room_for_the_rest_of_one():
    by_hand = {"cordoned": True, "cordoned_by_hand": True}
    nodes = racks(4, 4, r0_0={"phase": WORKING}, r0_1={"phase": DONE}, r1_3=by_hand)
    decision = decide(nodes, Budget(canary=0, max_parallel=0, max_unavailable="2"))
    assert decision.start == (), "r1-3 costs nothing, and would leave two racks with two drivers"


def test_a_rack_whose_rest_cannot_start_holds_nobody_up():
    budget = Budget(canary=1, max_parallel=1, max_unavailable="3", max_failures=1)
    away = racks(3, 1, r0_0={"phase": DONE}, r0_1={"ready": False}, r0_2={"skip": True})
    assert decide(away, budget).start == ("r1-0",)
    failed = racks(2, 1, r0_0={"phase": DONE}, r0_1={"phase": FAILED, "cordoned": True})
    assert decide(failed, budget).start == ("r1-0",)


@pytest.mark.parametrize("seed", range(20))
def test_rollouts_of_racks_end_and_mix_one_rack_at_a_time(seed):
    draw = random.Random(seed)
    sizes = [draw.randint(1, 18) for _rack in range(draw.randint(1, 5))]
    nodes = {node.name: node for node in [*racks(*sizes), *fleet(draw.randint(0, 4))]}
    budget = Budget(draw.randint(0, 3), draw.choice([0, 1, 5]), draw.choice(["1", "4", "25%", "100%"]), 0)
    completed = False
    for _tick in range(20 * len(nodes)):
        decision = decide(list(nodes.values()), budget)
        if decision.finished:
            break
        for name in decision.start:
            nodes[name] = replace(nodes[name], phase=WORKING, cordoned=True)
        assert sum(node.unavailable for node in nodes.values()) <= budget.unavailable(len(nodes))
        by_rack = [{node.phase for node in nodes.values() if node.rack == f"r{rack}"} for rack in range(len(sizes))]
        mixed = [phases for phases in by_rack if phases & {DONE, WORKING} and WAITING in phases]
        assert len(mixed) <= 1, "one rack at most has nodes that were begun and nodes that were not"
        begun = [phases for phases in by_rack if phases & {DONE, WORKING}]
        assert not budget.canary or completed or len(begun) <= 1, "the first rack is proven as a whole"
        completed = completed or {DONE} in by_rack
        ended = draw.choice([name for name, node in nodes.items() if node.phase == WORKING])
        nodes[ended] = replace(nodes[ended], phase=DONE, cordoned=False)
        completed = completed or any(
            {node.phase for node in nodes.values() if node.rack == f"r{rack}"} == {DONE} for rack in range(len(sizes))
        )
    assert {node.phase for node in nodes.values()} == {DONE}
