# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The planner against an independent brute force: every feasible request of every board, and random transitions."""

from __future__ import annotations

import random

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.geometry import geometry
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.plan import FORCE, REFUSE, plan_gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.build import PLACED, desired, instances_of
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.oracle import oracle
from ansible_collections.gpufleet.nvidia.tests.whole import examples

# Every board is proven; the quick suite takes one board of each shape and leaves the others to the slow one.
QUICK = ("a30-24gb", "h100-80gb-sxm", "rtx-pro-6000-96gb")
ALL_BOARDS = pytest.mark.parametrize("one", PLACED, ids=lambda one: one.key)
BOARDS = pytest.mark.parametrize(
    "one",
    [pytest.param(one, id=one.key, marks=() if one.key in QUICK else pytest.mark.slow) for one in PLACED],
)


def layouts_by_request(one):
    shape = geometry(one.profiles)
    found = {}
    for request in shape.requests():
        name = frozenset(shape.counts(request).items())
        found[name] = sorted(
            tuple(sorted((shape.profiles[slot.profile].name, slot.start) for slot in shape.slots_of(layout)))
            for layout in shape.layouts_of(request)
        )
    return found


@BOARDS
def test_every_feasible_request_of_the_board_has_exactly_the_layouts_of_the_brute_force(one):
    expected = {
        request: sorted(tuple(sorted(layout)) for layout in layouts)
        for request, layouts in oracle(one.profiles).layouts.items()
    }
    assert layouts_by_request(one) == expected


@pytest.mark.parametrize(
    "one",
    [pytest.param(one, id=one.key, marks=() if one.key == QUICK[0] else pytest.mark.slow) for one in PLACED],
)
def test_every_request_just_outside_the_feasible_ones_is_refused(one):
    truth = oracle(one.profiles)
    outside = 0
    for request in list(truth.layouts):
        for profile in one.profiles:
            counts = dict(request)
            counts[profile.name] = counts.get(profile.name, 0) + 1
            if frozenset(counts.items()) in truth.layouts:
                continue
            outside += 1
            with pytest.raises(Refused) as refused:
                plan_gpu([], desired(counts), one.profiles)
            assert "does not fit" in refused.value.reason
    assert outside > 10


@pytest.mark.parametrize(
    ("key", "placements", "layouts", "requests"),
    [
        ("a30-24gb", 13, 76, 20),
        ("a100-40gb", 25, 2319, 128),
        ("h100-80gb-sxm", 25, 2319, 128),
        ("rtx-pro-6000-96gb", 30, 717, 115),
    ],
)
def test_sizes_of_the_feasible_sets_are_the_published_ones(key, placements, layouts, requests):
    shape = geometry(board(key).profiles)
    assert (len(shape.slots), sum(1 for _ in shape.layouts()), len(shape.requests())) == (placements, layouts, requests)


@pytest.mark.parametrize("key", ["a100-40gb", "h100-80gb-sxm"])
def test_base_profiles_give_the_nineteen_published_configurations(key):
    base = [
        one
        for one in board(key).profiles
        if one.nvml_profile in ("1_SLICE", "2_SLICE", "3_SLICE", "4_SLICE", "7_SLICE")
    ]
    shape = geometry(tuple(base))
    layouts = list(shape.layouts())
    assert len(layouts) == 298
    assert sum(1 for layout in layouts if shape.room(layout) == 0) == 19


@BOARDS
def test_room_is_what_the_brute_force_counts(one):
    truth, shape = oracle(one.profiles), geometry(one.profiles)
    chosen = random.Random(7).sample(list(shape.layouts()), 60)
    for layout in chosen:
        pairs = frozenset((shape.profiles[slot.profile].name, slot.start) for slot in shape.slots_of(layout))
        assert shape.room(layout) == truth.room(pairs)


def check_transition(one, truth, current, busy, request, disruption=REFUSE):
    """Plan one transition and compare it with the brute force."""
    instances = instances_of(current, one.profiles, busy)
    wanted = desired(dict(request))
    pinned = frozenset() if disruption == FORCE else busy
    expected = truth.fewest_destroyed(current, request, pinned)
    if expected is None:
        with pytest.raises(Refused) as refused:
            plan_gpu(instances, wanted, one.profiles, disruption)
        assert "in use" in refused.value.reason
        return None
    plan = plan_gpu(instances, wanted, one.profiles, disruption)
    gone = {(destroy.instance.profile, destroy.instance.start) for destroy in plan.destroy}
    made = {(create.profile.name, create.start) for create in plan.create}
    stay = {(keep.instance.profile, keep.instance.start) for keep in plan.keep}
    assert gone | stay == current
    assert not gone & stay
    assert not made & stay
    assert frozenset(stay | made) in truth.layouts[request]
    assert not any(keep.change.destroy or keep.change.create for keep in plan.keep)
    if disruption == FORCE:
        most = max(len(layout & busy) for layout in truth.layouts[request])
        assert len(stay & busy) == most
        best = max(len(layout & current) for layout in truth.layouts[request] if len(layout & busy) == most)
        assert len(gone) == len(current) - best
    else:
        assert len(gone) == expected
        assert not gone & busy
    check_certificates(plan, truth, current, request, frozenset(pinned))
    return len(gone)


def check_certificates(plan, truth, current, request, pinned):
    layouts = [layout for layout in truth.layouts[request] if pinned <= layout]
    if request == truth.request_of(current):
        layouts = [current]
    for destroy in plan.destroy:
        why, place = destroy.certificate, (destroy.instance.profile, destroy.instance.start)
        keeping = [layout for layout in layouts if place in layout]
        assert why.layouts == len(layouts)
        assert why.layouts_with_it == len(keeping)
        assert why.fewest_destroyed == len(plan.destroy)
        if why.kind == "not_requested":
            assert place[0] not in dict(request)
        elif why.kind == "place_needed":
            assert not keeping
            assert why.occupants
        elif not keeping:
            assert why.kind == "surplus"
            wanted_there = [sum(name == place[0] for name, _start in layout) for layout in layouts]
            assert {sum(name == place[0] for name, _start in pinned)} == set(wanted_there)
        else:
            best = len(current) - max(len(layout & current) for layout in keeping)
            assert why.fewest_destroyed_keeping_it == best
            assert (best > len(plan.destroy)) == (why.kind == "costs_more")


def random_transitions(one, count, seed, disruption=REFUSE):
    truth, rng = oracle(one.profiles), random.Random(seed)
    requests = sorted(truth.layouts, key=sorted)
    layouts = [layout for request in requests for layout in truth.layouts[request]]
    refused = 0
    for _ in range(count):
        current = rng.choice(layouts)
        busy = frozenset(place for place in sorted(current) if rng.random() < 0.2)
        refused += check_transition(one, truth, current, busy, rng.choice(requests), disruption) is None
    return refused


@BOARDS
def test_random_transitions_with_busy_instances_are_at_the_optimum(one):
    refused = random_transitions(one, 300, seed=11)
    assert 0 < refused < 300


@BOARDS
def test_random_forced_transitions_lose_the_fewest_busy_instances(one):
    assert random_transitions(one, 150, seed=12, disruption=FORCE) == 0


@pytest.mark.slow
@ALL_BOARDS
def test_thousands_of_random_transitions_are_at_the_optimum(one):
    # Nine boards of the table have placements: 12,000 on each are 108,000; a tenth of them by default.
    assert len(PLACED) * 12_000 >= 100_000
    transitions = examples(12_000)
    refused = random_transitions(one, transitions, seed=2026)
    assert 0 < refused < transitions
