# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods with several devices get all of them on one host, or nobody is evicted for them: against every plan of small fleets."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend import one_host
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.one_host import (
    RunningPod,
    fewer_by_pods,
    recommend_hosted,
    without_host,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import (
    WHOLE,
    FleetGpu,
    Group,
    HeldInstance,
    Problem,
    UnitKind,
    WantedUnits,
)

from .test_outcome import LAYOUTS, PROFILES

pytest.importorskip("highspy")

A30 = "a30-24gb"
NAMES = ("1g.6gb", "2g.12gb", WHOLE)


def used(priority=0):
    return FleetGpu("", A30, users=(priority,))


def recommended(gpus, *wanted):
    """Plan GPUs, each with its host."""
    units = {}
    for index, (host, state) in enumerate(gpus):
        units.setdefault(state, []).append((host, (index,)))
    groups = tuple(Group((state,), len(some), *map(tuple, zip(*some))) for state, some in units.items())
    return recommend_hosted(Problem({A30: PROFILES[A30]}, groups, tuple(wanted)))


def pods(profile, devices, count, priority=1):
    return WantedUnits((UnitKind("", A30, profile),), devices * count, priority, True, devices, "pods that wait")


FREE = FleetGpu("", A30)


def test_devices_that_are_free_on_several_hosts_serve_no_pod_and_who_runs_on_one_of_them_moves():
    """One GPU is free on each host. The pod needs two on one, so who has the other GPU of a host goes to the other host."""
    hosted = recommended([("a", FREE), ("a", used()), ("b", FREE), ("b", used())], pods(WHOLE, 2, 1))
    outcome = hosted.outcome
    assert (outcome.served, outcome.cost // outcome.scale, hosted.left_out) == ({1: 2, 0: 2}, 1, {})
    # Prices know nothing of hosts: what they do not exclude is stated.
    assert hosted.gap / outcome.scale == 1 and not outcome.searched
    assert {kind for kind, _priority in outcome.leaving} == {UnitKind("", A30, WHOLE)}


def test_nobody_is_evicted_for_a_part_of_a_pod():
    """Who runs has the same priority, so no plan serves more than now: the two devices that are free stay so."""
    gpus = [("a", FREE), ("a", used(1)), ("b", used(1)), ("b", used(1))]
    hosted = recommended(gpus, pods(WHOLE, 2, 1, priority=0))
    assert hosted.outcome.cost == 0 and hosted.outcome.served == {1: 3, 0: 0}
    assert hosted.left_out == {
        "1 pods that wait": "no host was found that has all devices of one beside what it serves"
    }


def test_a_pod_that_needs_more_than_a_host_can_have_is_left_out_and_nothing_more_could_be_served():
    hosted = recommended([("a", FREE), ("b", FREE)], pods(WHOLE, 2, 1))
    assert hosted.left_out == {"1 pods that wait": "no host can have all devices of one beside what it serves"}
    assert not hosted.more and hosted.outcome.served == {1: 0}


SMALL = UnitKind("", A30, "1g.6gb")


@pytest.mark.parametrize(("idle", "homeless"), [((1, 1), ["wide"]), ((2, 0), [])])
def test_who_is_evicted_with_several_devices_and_finds_them_on_no_one_host_is_named(idle, homeless):
    """The solver serves each of them somewhere, which is enough where it is one host."""

    def slices(free, *there):
        return FleetGpu("", A30, True, tuple(HeldInstance("1g.6gb", at, 1, (0,) * (at >= free)) for at in there))

    gpus = [("a", slices(0, 0, 1)), *((host, slices(free, 0, 1, 2, 3)) for host, free in zip("bc", idle))]
    hosted = recommended(gpus, WantedUnits((UnitKind("", A30, "4g.24gb"),), 1, 1))
    assert hosted.outcome.cost // hosted.outcome.scale == 2 and hosted.outcome.served[0] == 8
    wide = RunningPod("a", "wide", 0, ((SMALL, False),) * 2)
    assert without_host(hosted.plan, [wide]) == homeless


def test_by_how_many_pods_fewer_could_be_evicted_is_bounded():
    """Two devices are taken, of one pod or of two; where a pod may have had both, one eviction could be enough."""
    hosted = recommended([("a", FleetGpu("", A30, True, tuple(HeldInstance("1g.6gb", at, 1, (0,)) for at in (0, 1))))])
    (outcome, one) = hosted.outcome, (SMALL, False)
    hosted = replace(hosted, outcome=replace(outcome, cost=2 * outcome.scale, searched=True))
    both, kept = (RunningPod("a", "wide", 0, (one, (SMALL, stays))) for stays in (False, True))
    assert fewer_by_pods(hosted, [], []) == fewer_by_pods(hosted, [both], [both]) == 0
    assert fewer_by_pods(hosted, [both], []) == fewer_by_pods(hosted, [kept], [kept]) == 1


def drawn(seed, kinds):
    draw = random.Random(seed)
    gpus = []
    for host in "aabbb":
        layout = draw.choice([*LAYOUTS[A30], None, None])
        held = sorted(
            (HeldInstance(*one, (0,) * (draw.random() < 0.5)) for one in layout or ()), key=lambda one: one.start
        )
        users = (0,) * (layout is None and draw.random() < 0.4)
        gpus.append((host, FleetGpu("", A30, layout is not None, tuple(held), users)))
    count = draw.randrange(1, 3)
    if kinds == 1:
        parts = [pods(draw.choice(NAMES), draw.randrange(2, 4), count)]
    else:
        parts = [pods(name, draw.randrange(1, 3), count) for name in draw.sample(NAMES, kinds)]
    return gpus, [*parts, WantedUnits((UnitKind("", A30, "1g.6gb"),), 1, 1)]


def best(gpus, parts, single):
    """Return the most requests of priority 1 that any plan serves, where a pod needs one host, counted in devices."""
    names = [one.kinds[0].profile for one in (*parts, single)]
    offers = {tuple([one[0] for one in layout].count(each) for each in names) for layout in LAYOUTS[A30]}
    offers.add(tuple(each == WHOLE for each in names))
    hosts = Counter(host for host, _state in gpus).values()
    totals = [{tuple(map(sum, zip(*some))) for some in product(offers, repeat=count)} for count in hosts]
    needs, most = [one.together for one in parts], 0
    for each in product(*totals):
        fit = sum(min(units // need for units, need in zip(there, needs)) for there in each)
        placed = min(parts[0].count // needs[0], fit)
        taken = placed * sum(need for name, need in zip(names, needs) if name == names[-1])
        left = sum(there[-1] for there in each) - taken
        most = max(most, placed * sum(needs) + min(single.count, left))
    return most


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_as_many_are_served_as_any_plan_serves_each_on_one_host(kinds):
    for seed in range(25):
        gpus, (*parts, single) = drawn(seed, kinds)
        hosted = recommended(gpus, *parts, single)
        outcome = hosted.outcome
        exact = best(gpus, parts, single)
        assert outcome.served[1] == exact <= outcome.served[1] + hosted.more.get(1, 0), seed
        wanted = hosted.plan.problem.wanted
        served = Counter()
        for (who, _kind), count in hosted.plan.outcome.given.items():
            if isinstance(who, int) and wanted[who].pod:
                served[who] += count
        # Whatever is said to be served is served with all of its devices, and there is a host for each.
        whole = {}
        for number, count in served.items():
            whole.setdefault(wanted[number].pod, set()).add(count / wanted[number].together)
        assert all(len(counts) == 1 for counts in whole.values()), seed
        announced = sum(counts.pop() for counts in whole.values())
        missing = sum(int(text.split()[0]) for text in hosted.left_out)
        assert announced == parts[0].count // parts[0].together - missing, seed
        assert announced <= places_on_hosts(gpus, hosted.plan, parts), seed


def places_on_hosts(gpus, plan, parts):
    """Return how many pods find all of their devices on one host, beside users who stay."""
    free = {host: Counter() for host, _state in gpus}
    for index, (host, state) in enumerate(gpus):
        layout = plan.after[host][index]
        for place in [(WHOLE, 0, 0)] if layout is None else layout:
            free[host][place[0]] += 1 - len(state.there.get(place, ()))
    for (kind, _priority), count in plan.outcome.leaving.items():
        for host in [kind.pool.removeprefix("@")] if kind.pool else free:
            free[host][kind.profile] += count
    return sum(min(there[one.kinds[0].profile] // one.together for one in parts) for there in free.values())


def test_hosts_are_chosen_for_few_pods_and_the_others_are_left_out_with_the_gap(monkeypatch):
    monkeypatch.setattr(one_host, "_CHOSEN", 1)
    gpus = [(host, state) for host in "abcd" for state in (FREE, used())]
    hosted = recommended(gpus, pods(WHOLE, 2, 2))
    assert hosted.left_out == {
        "1 pods that wait": "no host was found that has all devices of one beside what it serves"
    }
    assert (hosted.outcome.served, hosted.more) == ({1: 2, 0: 4}, {1: 2})
