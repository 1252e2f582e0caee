# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.board import GpuInstanceProfile, Placements
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import GpuFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import plan as plan_of_mig
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import (
    ComputeInstance,
    DesiredGpu,
    DesiredInstance,
    GpuInstance,
    assign,
    compute_change,
    left_over,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.plan import FORCE, plan_gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.build import (
    H100,
    desired,
    instance,
    instances_of,
)
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.oracle import oracle
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLE = [instance("3g.40gb", 4, 4), instance("2g.20gb", 0, 2), instance("1g.10gb", 2, 1), instance("1g.10gb", 3, 1)]


def test_removing_one_instance_destroys_one():
    plan = plan_gpu(EXAMPLE, desired({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1}), H100)
    assert [gone.instance.place for gone in plan.destroy] == ["1g.10gb at 3:1"]
    assert plan.create == ()
    assert plan.destroy[0].certificate.kind == "surplus"


def test_a_desired_state_that_is_met_changes_nothing():
    plan = plan_gpu(EXAMPLE, desired({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}), H100)
    assert not plan.changes
    assert plan.steps(GpuFacts(0)) == ()


@pytest.mark.parametrize("disruption", ["refuse", FORCE])
def test_a_gpu_that_is_as_wanted_is_not_laid_out_and_comes_to_the_same(disruption, monkeypatch):
    wanted = desired({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2})
    with monkeypatch.context() as patched:
        patched.setattr(plan_of_mig, "geometry_with", lambda *_given: pytest.fail("it is laid out"))
        found = plan_gpu(EXAMPLE, wanted, H100, disruption)
    monkeypatch.setattr(plan_of_mig, "wanted_of", lambda _current: None)
    assert plan_gpu(EXAMPLE, wanted, H100, disruption) == found


@pytest.mark.parametrize(
    ("counts", "resource"),
    [
        ({"3g.40gb": 2, "1g.10gb": 1}, "memory units: 9 requested, the GPU has 8"),
        ({"1g.10gb": 4, "1g.20gb": 2, "2g.20gb": 1}, "memory units: 10 requested, the GPU has 8"),
        ({"1g.10gb+me": 2}, "instances of 1g.10gb+me: 2 requested, the GPU can hold 1"),
        ({"2g.20gb": 4}, "instances of 2g.20gb: 4 requested, the GPU can hold 3"),
        ({"1g.10gb": 7, "1g.10gb+me": 1}, "compute slices: 8 requested, the GPU has 7"),
        ({"3g.40gb": 1, "4g.40gb": 1, "1g.10gb": 1}, "memory units: 9 requested"),
    ],
)
def test_impossible_desired_states_name_the_resource_that_runs_out(counts, resource):
    with pytest.raises(Refused) as refused:
        plan_gpu(EXAMPLE, desired(counts), H100, thing="GPU 3")
    assert refused.value.thing == "GPU 3"
    assert resource in refused.value.reason
    assert refused.value.remedy.startswith("The nearest that fit: ")


def test_places_that_do_not_align_are_named():
    # No request of the boards in the table fails for this reason alone, but a grid of a later board may.
    half = GpuInstanceProfile("3g.30gb", 3, 2, Placements((0, 4), 3))
    pair = GpuInstanceProfile("2g.20gb", 2, 2, Placements((2, 6), 2))
    whole = GpuInstanceProfile("7g.80gb", 7, 1, Placements((0,), 8))
    with pytest.raises(Refused) as refused:
        plan_gpu([], desired({"3g.30gb": 1, "2g.20gb": 2}), (half, pair, whole))
    assert "alignment: the 7 memory units requested are there (8)" in refused.value.reason


def test_engines_that_run_out_are_named():
    with pytest.raises(Refused) as refused:
        plan_gpu([], desired({"1g.24gb+me.all": 1, "2g.48gb": 1}), board("rtx-pro-6000-96gb").profiles)
    assert "decoders: 6 requested, the GPU has 4" in refused.value.reason
    with pytest.raises(Refused) as refused:
        plan_gpu([], desired({"1g.6gb+me": 1, "2g.12gb+me": 1}), board("a30-24gb").profiles)
    assert "JPEG engines: 2 requested, the GPU has 1" in refused.value.reason


def test_the_nearest_layouts_are_ones_that_fit():
    with pytest.raises(Refused) as refused:
        plan_gpu([], desired({"3g.40gb": 2, "1g.10gb": 1}), H100)
    assert refused.value.remedy == ("The nearest that fit: 3g.40gb x2; 3g.40gb + 1g.10gb; 3g.40gb + 2g.20gb + 1g.10gb.")


class TestBusy:
    BUSY = [instance("3g.40gb", 0, 4, busy=("python3 (PID 812)",)), instance("2g.20gb", 4, 2)]

    def test_a_busy_instance_is_never_moved(self):
        with pytest.raises(Refused) as refused:
            plan_gpu(self.BUSY, desired({"4g.40gb": 1, "3g.40gb": 1}), H100)
        assert "3g.40gb at 0:4 (id 7) by python3 (PID 812)" in refused.value.reason
        assert "nvidia_mig_disruption to force" in refused.value.remedy
        assert "3g.40gb x2" in refused.value.remedy

    def test_force_moves_it_and_says_whom_it_disturbs(self):
        plan = plan_gpu(self.BUSY, desired({"4g.40gb": 1, "3g.40gb": 1}), H100, FORCE)
        assert len(plan.destroy) == 2
        assert plan.steps(GpuFacts(0))[0].disturbs == ("python3 (PID 812)",)

    def test_force_rather_loses_idle_than_busy_instances(self):
        current = [instance("1g.10gb", 0, 1, busy=("job",)), instance("1g.10gb", 4, 1), instance("1g.10gb", 5, 1)]
        plan = plan_gpu(current, desired({"3g.40gb": 1, "1g.10gb": 1}), H100, FORCE)
        assert [keep.instance.start for keep in plan.keep] == [0]

    def test_switching_off_waits_for_users(self):
        with pytest.raises(Refused) as refused:
            plan_gpu(self.BUSY, desired(None), H100)
        assert "cannot be switched off" in refused.value.reason
        plan = plan_gpu(self.BUSY, desired(None), H100, FORCE)
        assert {gone.certificate.kind for gone in plan.destroy} == {"mode_off"}

    def test_busy_instance_of_an_unknown_profile_is_refused_and_an_idle_one_goes(self):
        stranger = instance("1g.5gb", 0, 1, busy=("job",))
        with pytest.raises(Refused):
            plan_gpu([stranger], desired({"1g.10gb": 1}), H100)
        plan = plan_gpu([instance("1g.5gb", 0, 1)], desired({"1g.10gb": 1}), H100)
        assert plan.destroy[0].certificate.kind == "not_requested"


class TestCompute:
    def test_compute_changes_leave_the_gpu_instance_alone(self):
        current = [instance("3g.40gb", 4, 4, compute=(3,))]
        wanted = DesiredGpu(True, (DesiredInstance("3g.40gb", (1, 1, 1)),))
        plan = plan_gpu(current, wanted, H100)
        assert not plan.destroy
        assert not plan.create
        assert [step.kind.key for step in plan.steps(GpuFacts(0))] == ["destroy_compute_instance"] + [
            "create_compute_instance"
        ] * 3
        assert plan.changes

    def test_busy_compute_instance_stays(self):
        busy = ComputeInstance(0, 1, ("job",))
        current = [instance("3g.40gb", 4, 4, compute=(busy, ComputeInstance(1, 1)))]
        plan = plan_gpu(current, DesiredGpu(True, (DesiredInstance("3g.40gb", (2, 1)),)), H100)
        assert [compute.id for compute in plan.keep[0].change.destroy] == [1]
        assert plan.keep[0].change.create == (2,)

    def test_busy_compute_instance_that_is_not_wanted_is_refused(self):
        current = [instance("3g.40gb", 4, 4, compute=(ComputeInstance(0, 3, ("job",)),))]
        wanted = DesiredGpu(True, (DesiredInstance("3g.40gb", (1, 1, 1)),))
        with pytest.raises(Refused):
            plan_gpu(current, wanted, H100)
        plan = plan_gpu(current, wanted, H100, FORCE)
        assert [step.disturbs for step in plan.steps(GpuFacts(0)) if step.disturbs] == [("job",)]

    def test_desired_states_go_to_the_instances_that_are_like_them(self):
        kept = [instance("3g.40gb", 0, 4, compute=(1, 1, 1)), instance("3g.40gb", 4, 4, compute=(3,))]
        assert all(not step.destroy and not step.create for step, _desired in assign(kept, [(3,), (1, 1, 1)]))
        assert left_over(kept[:1], [(3,), (1, 1, 1)]) == [(3,)]
        wanted = DesiredGpu(True, (DesiredInstance("3g.40gb", (1, 1, 1)), DesiredInstance("3g.40gb", (3,))))
        assert [made.compute for made in plan_gpu(kept[1:], wanted, H100).create] == [(1, 1, 1)]

    def test_idle_neighbours_of_a_wider_new_one_are_made_anew(self):
        step = compute_change([ComputeInstance(0, 1), ComputeInstance(1, 1)], (2, 1))
        assert [compute.id for compute in step.destroy] == [0, 1]
        assert step.create == (2, 1)

    def test_missing_compute_instance_is_made(self):
        plan = plan_gpu([instance("1g.10gb", 6, 1, compute=())], desired({"1g.10gb": 1}), H100)
        assert plan.keep[0].change.create == (1,)


class TestWithoutPlacements:
    PCIE = board("h100-80gb-pcie").profiles

    def test_creating_needs_the_driver(self):
        plan = plan_gpu([], desired({"2g.20gb": 1}), self.PCIE)
        assert "2g.20gb" in plan.unknown
        assert not plan.changes
        assert plan.unknown

    def test_what_is_impossible_anywhere_is_refused_anyway(self):
        with pytest.raises(Refused):
            plan_gpu([], desired({"2g.20gb": 4}), self.PCIE)
        with pytest.raises(Refused) as refused:
            plan_gpu([], desired({"4g.40gb": 1, "2g.20gb": 2}), self.PCIE)
        assert "compute slices: 8 requested" in refused.value.reason

    def test_destroying_needs_no_places(self):
        current = [instance("2g.20gb", 0, 2), instance("2g.20gb", 2, 2)]
        plan = plan_gpu(current, desired({"2g.20gb": 1}), self.PCIE)
        assert len(plan.destroy) == 1
        assert plan.unknown is None


def test_names_of_another_driver_are_the_same_instances():
    current = [instance("1g.24gb", 6, 1)]
    plan = plan_gpu(current, desired({"1g.24gb": 1}), board("gb200-186gb").profiles)
    assert not plan.changes
    assert plan.desired.counts == {"1g.23gb": 1}


def test_new_instances_keep_large_places_free():
    plan = plan_gpu([], desired({"1g.10gb": 3}), H100)
    assert sorted(create.start for create in plan.create) == [4, 5, 6]
    assert plan.create[0].profile.name == "1g.10gb"


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_invariants(data):
    truth = oracle(H100)
    requests = sorted(truth.layouts, key=sorted)
    current = data.draw(st.sampled_from(requests).flatmap(lambda request: st.sampled_from(truth.layouts[request])))
    busy = frozenset(data.draw(st.sets(st.sampled_from(sorted(current)))) if current else ())
    request = data.draw(st.sampled_from(requests))
    instances = instances_of(current, H100, busy)
    try:
        plan = plan_gpu(data.draw(st.permutations(instances)), desired(dict(request)), H100)
    except Refused:
        assert busy
        return
    stay = {(keep.instance.profile, keep.instance.start) for keep in plan.keep}
    made = {(create.profile.name, create.start) for create in plan.create}
    assert busy <= stay <= current
    assert truth.request_of(stay | made) == request
    # Doing what the plan says and planning again changes nothing.
    after = [keep.instance for keep in plan.keep]
    after += [
        GpuInstance(
            50 + n, made_one.profile.name, made_one.start, made_one.size, (ComputeInstance(0, made_one.compute[0]),)
        )
        for n, made_one in enumerate(plan.create)
    ]
    assert not plan_gpu(after, desired(dict(request)), H100).changes
