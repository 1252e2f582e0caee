# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Totals over a host against a brute force over all ways to give each GPU a request."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import nodes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.nodes import NodeGpu, distribute, plan_node
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.plan import FORCE, IDLE_ONLY, REFUSE
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.build import (
    H100,
    desired,
    instance,
    instances_of,
)
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.oracle import oracle

A30 = board("a30-24gb").profiles


def brute_force(truth, currents, busies, totals):
    """Return the fewest destroyed instances over all distributions, or None."""
    per_gpu = [
        [(request, truth.fewest_destroyed(current, request, busy)) for request in truth.layouts]
        for current, busy in zip(currents, busies)
    ]
    per_gpu = [[(request, lost) for request, lost in choices if lost is not None] for choices in per_gpu]
    best = None
    for chosen in itertools.product(*per_gpu):
        total = Counter()
        for request, _lost in chosen:
            total.update(dict(request))
        if total == totals:
            lost = sum(lost for _request, lost in chosen)
            best = lost if best is None else min(best, lost)
    return best


@pytest.fixture(params=["quick", "by prices"])
def way(request, monkeypatch):
    """The search without prices of the profiles, and with them from the first state on."""
    if request.param == "by prices":
        monkeypatch.setattr(nodes, "_QUICK_STATES", 0)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("profiles", "count", "seed"),
    [(A30, 3, seed) for seed in range(40)]
    + [(H100, 2, seed) for seed in range(3)]
    + [pytest.param(H100, 2, seed, marks=pytest.mark.slow) for seed in range(3, 60)],
)
def test_distribution_destroys_as_few_as_the_brute_force(profiles, count, seed):
    rng, truth = random.Random(seed), oracle(profiles)
    requests = sorted(truth.layouts, key=sorted)
    layouts = [layout for request in requests for layout in truth.layouts[request]]
    currents = [rng.choice(layouts) for _ in range(count)]
    busies = [frozenset(place for place in sorted(current) if rng.random() < 0.25) for current in currents]
    totals = Counter()
    for _ in range(count):
        totals.update(dict(rng.choice(requests)))
    gpus = [
        NodeGpu(index, profiles, tuple(instances_of(current, profiles, busy)), True)
        for index, (current, busy) in enumerate(zip(currents, busies))
    ]
    expected = brute_force(truth, currents, busies, totals)
    if expected is None:
        with pytest.raises(Refused):
            distribute(totals, gpus)
        return
    desired_gpus = distribute(totals, gpus)
    placed = Counter()
    for one in desired_gpus.values():
        placed.update(one.counts)
    assert placed == totals
    # A GPU that is given nothing is switched off, which loses what it has: the same count as an empty request.
    assert sum(len(one.destroy) for one in plan_node(gpus, desired_gpus).gpus.values()) == expected


def test_prices_change_nothing_but_the_time_of_the_search(monkeypatch):
    rng, truth = random.Random(7), oracle(H100)
    requests = sorted(truth.layouts, key=sorted)
    layouts = [layout for request in requests for layout in truth.layouts[request]]
    for _ in range(20):
        gpus = [NodeGpu(index, H100, tuple(instances_of(rng.choice(layouts), H100)), True) for index in range(8)]
        totals = Counter()
        for _gpu in gpus:
            totals.update(dict(rng.choice(requests)))
        found = []
        for states in (0, 10**9):
            monkeypatch.setattr(nodes, "_QUICK_STATES", states)
            found.append(distribute(totals, gpus))
        assert found[0] == found[1]


def test_totals_of_the_issue_fit_on_eight_gpus_and_leave_the_rest_whole():
    gpus = [NodeGpu(index, H100, (), False) for index in range(8)]
    desired_gpus = distribute({"1g.10gb": 10, "3g.40gb": 3}, gpus)
    placed = Counter()
    for one in desired_gpus.values():
        placed.update(one.counts)
    assert placed == {"1g.10gb": 10, "3g.40gb": 3}
    assert sum(one.enabled for one in desired_gpus.values()) == 3


def test_totals_that_are_there_already_move_nothing():
    gpus = [NodeGpu(index, H100, (instance("1g.10gb", 6, 1),), True) for index in range(8)]
    desired_gpus = distribute({"1g.10gb": 8}, gpus)
    assert not any(plan.changes for plan in plan_node(gpus, desired_gpus).gpus.values())


def test_too_many_of_one_profile_are_refused_with_what_the_host_holds():
    gpus = [NodeGpu(index, H100) for index in range(2)]
    with pytest.raises(Refused) as refused:
        distribute({"4g.40gb": 3}, gpus, thing="nvidia_mig_layout[0].node")
    assert refused.value.thing == "nvidia_mig_layout[0].node"
    assert "4g.40gb: 3 requested, the 2 GPUs can hold 2" in refused.value.reason


def test_totals_that_fit_one_by_one_only_are_refused():
    with pytest.raises(Refused) as refused:
        distribute({"3g.40gb": 2, "7g.80gb": 1}, [NodeGpu(0, H100)])
    assert "does not fit on 1 GPUs together" in refused.value.reason


def test_a_busy_instance_that_no_total_keeps_refuses_the_totals():
    busy = NodeGpu(0, H100, (instance("7g.80gb", 0, 8, busy=("job",)),), True)
    with pytest.raises(Refused):
        distribute({"1g.10gb": 1}, [busy])
    desired_gpus = distribute({"1g.10gb": 1}, [busy], FORCE)
    assert len(plan_node([busy], desired_gpus, FORCE).gpus[0].destroy) == 1


def test_a_busy_instance_of_an_unknown_profile_refuses_the_totals():
    stranger = NodeGpu(0, H100, (instance("1g.5gb", 0, 1, busy=("job",)),), True)
    with pytest.raises(Refused) as refused:
        distribute({"1g.10gb": 1}, [stranger])
    assert "busy instance of a profile" in refused.value.reason


def test_a_whole_gpu_in_use_is_not_partitioned():
    gpus = [NodeGpu(0, H100, (), False, ("python3 (PID 9)",)), NodeGpu(1, H100, (), False)]
    desired_gpus = distribute({"1g.10gb": 7}, gpus)
    assert not desired_gpus[0].enabled
    assert desired_gpus[1].counts == {"1g.10gb": 7}


def test_existing_instances_outside_every_known_layout_refuse_the_totals():
    overlapping = (instance("1g.10gb+me", 0, 1), instance("1g.10gb+me", 1, 1))
    with pytest.raises(Refused) as refused:
        distribute({"1g.10gb": 1}, [NodeGpu(0, H100, overlapping, True)])
    assert "match no known layout" in refused.value.reason


class TestPlanNode:
    GPUS = [
        NodeGpu(0, H100, (instance("7g.80gb", 0, 8, busy=("job",)),), True),
        NodeGpu(1, H100, (), True),
        NodeGpu(2, H100, (), False, ("python3 (PID 9)",)),
    ]

    def test_refuse_stops_at_the_busy_gpu(self):
        with pytest.raises(Refused) as refused:
            plan_node(self.GPUS, {0: desired({"1g.10gb": 1}), 1: desired({"1g.10gb": 1})}, REFUSE)
        assert refused.value.thing == "GPU 0"

    def test_idle_only_plans_the_others_and_says_what_it_left(self):
        plan = plan_node(self.GPUS, {index: desired({"1g.10gb": 1}) for index in range(3)}, IDLE_ONLY)
        assert list(plan.gpus) == [1]
        assert sorted(plan.left_alone) == [0, 2]
        assert any(one.changes for one in plan.gpus.values())
        assert plan.left_alone[2].thing == "GPU 2"
        assert plan.gpus[1].create[0].start == 6

    def test_idle_only_does_not_hide_an_impossible_desired_state(self):
        with pytest.raises(Refused) as refused:
            plan_node(self.GPUS, {0: desired({"3g.40gb": 3})}, IDLE_ONLY)
        assert "does not fit" in refused.value.reason

    def test_force_plans_all(self):
        plan = plan_node(self.GPUS, {index: desired({"1g.10gb": 1}) for index in range(3)}, FORCE)
        assert sum(len(one.destroy) for one in plan.gpus.values()) == 1
        assert list(plan.gpus) == [0, 1, 2]
