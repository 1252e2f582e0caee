# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import MigModeFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_exact import exact_gpu, plan_exact
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.desired import Unread
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.host_plan import (
    KEEP,
    OFF,
    ON,
    ModeChange,
    export,
    plan_host,
    stale_uuids,
    states,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import DesiredGpu, DesiredInstance
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.stage import plan_layout
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.state import NodeGpu, devices_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import GpuRecord, PlacedInstance
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.build import desired
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.live import gpu, instance

HELD = {0: "GPU 0 (0000:18:00.0) is held by Xorg (PID 7)"}


def record(*instances, mig=True, uuid="GPU-0"):
    return GpuRecord(
        uuid, "0000:18:00.0", "NVIDIA H100 80GB HBM3", mig, tuple(PlacedInstance(*one) for one in instances)
    )


def plan(one, wanted, no_reset=None, disruption="refuse", reboot=True):
    variables = {"nvidia_mig_disruption": disruption, "nvidia_mig_reboot": reboot}
    return plan_host([one], {0: wanted}, variables, no_reset or {})


@pytest.mark.parametrize(
    ("key", "current", "pending", "wanted", "mode", "set_mode", "needs_reset"),
    [
        ("h100-80gb-sxm", True, True, True, None, False, False),
        ("h100-80gb-sxm", False, False, True, ON, True, False),
        ("h100-80gb-sxm", True, True, False, OFF, True, False),
        ("h100-80gb-sxm", True, False, True, KEEP, True, False),
        ("h100-80gb-sxm", False, True, True, ON, False, True),
        ("a100-40gb", False, False, True, ON, True, True),
        ("a100-40gb", False, True, True, ON, False, True),
        ("a100-40gb", False, True, False, KEEP, True, False),
        ("a100-40gb", True, True, False, OFF, True, True),
    ],
)
def test_the_mode_changes_only_where_it_has_to(key, current, pending, wanted, mode, set_mode, needs_reset):
    change = plan(gpu(key=key, current=current, pending=pending), DesiredGpu(wanted)).changes[0]
    assert (change.toggle, change.deferred) == (ModeChange(mode, set_mode, needs_reset), None)
    assert change.changes == (mode is not None)


def actions(one):
    return [step.kind.key for step in one.steps()]


def test_the_mode_comes_on_before_instances_are_made_and_goes_off_after_they_are_gone():
    on = plan(gpu(key="a100-40gb", current=False), desired({"3g.20gb": 2}))
    assert actions(on) == ["enable_mig", "reset_gpu", "create_gpu_instance", "create_gpu_instance"]
    off = plan(gpu(instance("3g.40gb", 4, 4, 1)), DesiredGpu(False))
    assert actions(off) == ["destroy_gpu_instance", "disable_mig"]
    assert actions(plan(gpu(pending=False), DesiredGpu(True))) == ["cancel_mig_change"]


def test_steps_name_the_devices_that_go():
    def gone(one, wanted):
        return [step.data.get("gone", []) for step in plan(one, wanted).steps()]

    old = gpu(instance("3g.40gb", 4, 4, 1), instance("1g.10gb", 0, 1, 2))
    uuids = {one.profile: [part.uuid for part in one.compute_instances] for one in old.facts.gpu_instances}
    assert all(uuids.values())
    assert gone(old, desired({"3g.40gb": 1, "2g.20gb": 1})) == [uuids["1g.10gb"], []]
    # In parts, the GPU instance stays and its one compute instance goes.
    whole = gpu(instance("3g.40gb", 4, 4, 1))
    assert gone(whole, DesiredGpu(True, (DesiredInstance("3g.40gb", (1, 1, 1)),))) == [uuids["3g.40gb"], [], [], []]
    *_instances, mode = gone(old, DesiredGpu(False))
    assert mode == devices_of(old.facts) == ["GPU-0", "MIG-1-0", "MIG-2-0"]
    # The GPU as a device goes when MIG comes on, and a reset ends whatever is on it.
    ampere = gpu(key="a100-40gb", current=False)
    assert gone(ampere, desired({"3g.20gb": 1})) == [["GPU-0"], ["GPU-0"], []]
    assert gone(gpu(pending=False), DesiredGpu(True)) == [[]]


def test_a_gpu_that_cannot_be_reset_waits_for_a_reboot():
    found = plan(gpu(key="a100-40gb", current=False), desired({"3g.20gb": 2}), HELD)
    assert actions(found) == ["enable_mig"]
    assert found.deferred == HELD
    # What waits is told apart, with what it waits for; the plan names the reboot.
    assert [(step.kind.key, why) for step, why in found.waiting()] == [
        (kind, HELD[0]) for kind in ("reset_gpu", "create_gpu_instance", "create_gpu_instance")
    ]
    assert found.steps()[0].disturbs == (f"the host, which is rebooted: {HELD[0]}",)
    off = plan(gpu(instance("3g.20gb", 4, 4, 1), key="a100-40gb"), DesiredGpu(False), HELD)
    assert actions(off) == ["destroy_gpu_instance", "disable_mig"]
    assert [step.kind.key for step, _why in off.waiting()] == ["reset_gpu"]
    waiting = plan(gpu(key="a100-40gb", current=False, pending=True), desired({"3g.20gb": 2}), HELD)
    assert not waiting.active and waiting.deferred == HELD


def test_without_a_reboot_such_a_gpu_refuses_the_host():
    with pytest.raises(Refused, match=r"held by Xorg \(PID 7\).*nvidia_mig_reboot"):
        plan(gpu(key="a100-40gb", current=False), desired({"3g.20gb": 2}), HELD, reboot=False)
    alone = plan(gpu(key="a100-40gb", current=False), desired({"3g.20gb": 2}), HELD, "idle_only", reboot=False)
    assert list(alone.left_alone) == [0] and not alone.changes


def test_a_gpu_that_does_not_tell_its_state_refuses_the_host():
    with pytest.raises(Refused, match="GPU is lost"):
        layout({"devices": "all", "instances": {"3g.40gb": 1}}, LOST)
    # Whether it has MIG is not even known: it is not passed over where MIG is to be off.
    strange = gpu(key="t4-16gb", unknown={"mig": "Timeout"})
    unknown = NodeGpu(0, (), facts=strange.facts.but(mig=MigModeFacts()))
    with pytest.raises(Unread, match="Timeout"):
        layout({"devices": "all", "enabled": False}, unknown)
    # One that has none is, and so is one that no entry selects.
    assert layout({"devices": "all", "enabled": False}, strange).desired.gpus == {}
    assert layout({"devices": [0], "layout": "all-enabled"}, gpu(), LOST_TOO).desired.unselected == (1,)


LOST = gpu(lost=True, unknown={"handle": "GPU is lost"})
LOST_TOO = gpu(index=1, lost=True, unknown={"handle": "GPU is lost"})


def layout(entry, *gpus):
    return plan_layout(gpus, {"nvidia_mig_layout": [entry], "nvidia_mig_strategy": "mixed"}, {})


def test_the_state_afterwards():
    one = gpu(instance("3g.40gb", 4, 4, 1), instance("2g.20gb", 0, 2, 3))
    found = plan(one, desired({"3g.40gb": 1, "1g.10gb": 1}))
    after = states([one, gpu(index=1)], found)
    assert after["GPU 1 (0000:19:00.0)"] == {"mig": True, "instances": []}
    texts = after["GPU 0 (0000:18:00.0)"]["instances"]
    assert len(texts) == 2 and "3g.40gb at 4:4" in texts and "1g.10gb at" in texts[0]
    assert found.changes[0].after.mig is True


def test_stale_uuids():
    before = [gpu(instance("3g.40gb", 4, 4, 1), instance("2g.20gb", 0, 2, 3))]
    assert stale_uuids(before, [gpu(instance("3g.40gb", 4, 4, 1))]) == ["MIG-3-0"]


def test_exact_keeps_what_is_in_place_and_makes_the_rest_there():
    one = gpu(instance("3g.40gb", 4, 4, 1), instance("1g.10gb", 0, 1, 9))
    found, lacking = exact_gpu(one, record(("3g.40gb", 4, 4, (3,)), ("2g.20gb", 0, 2, (2,))))
    assert [keep.instance.profile for keep in found.keep] == ["3g.40gb"]
    assert [gone.instance.profile for gone in found.destroy] == ["1g.10gb"]
    assert [(made.profile.name, made.start) for made in found.create] == [("2g.20gb", 0)]
    assert found.create[0].profile.profile_id == 14 and not lacking


def test_exact_does_not_touch_what_is_in_use():
    one = gpu(instance("3g.40gb", 0, 4, 2, busy=True))
    found, lacking = exact_gpu(one, record(("2g.20gb", 0, 2, (2,)), ("2g.20gb", 4, 2, (2,))))
    assert not found.destroy
    assert [made.start for made in found.create] == [4]
    assert len(lacking) == 2 and "in use" in lacking[0] and "cannot be created" in lacking[1]
    off, reasons = exact_gpu(one, record(mig=False))
    assert off is None and "MIG stays on" in reasons[0]


def test_exact_changes_idle_compute_instances_inside_an_instance_that_stays():
    one = gpu(instance("3g.40gb", 4, 4, 1, ["1c.3g.40gb", "2c.3g.40gb"]))
    found, _lacking = exact_gpu(one, record(("3g.40gb", 4, 4, (3,))))
    assert len(found.keep[0].change.destroy) == 2 and found.keep[0].change.create == (3,)
    busy = gpu(instance("3g.40gb", 4, 4, 1, ["1c.3g.40gb"], busy=True))
    kept, _lacking = exact_gpu(busy, record(("3g.40gb", 4, 4, (3,))))
    assert not kept.keep[0].change.destroy


def test_exact_of_a_profile_that_the_gpu_does_not_have():
    found, lacking = exact_gpu(gpu(), record(("5g.70gb", 0, 8, (5,))))
    assert not found.changes and "5g.70gb" in lacking[0]


def test_exact_plans_of_a_host():
    gone = GpuRecord("GPU-9", "0000:99:00.0", "NVIDIA A30", True)
    without = GpuRecord("GPU-1", "0000:19:00.0", "x", None)
    found = plan_exact([gpu(current=False), gpu(index=1)], [record(("3g.40gb", 4, 4, (3,))), gone, without], {})
    assert [change.gpu.index for change in found.changes] == [0]
    assert found.changes[0].mode == ON
    assert found.missing == ("GPU-9 (0000:99:00.0): this host no longer has this GPU",)


def test_exact_reports_a_gpu_that_does_not_tell_its_state():
    lost = gpu(lost=True, unknown={"handle": "GPU is lost"})
    assert plan_exact([lost], [record()], {}).missing == ("GPU 0 (0000:18:00.0): GPU is lost",)


def test_export_in_both_forms():
    gpus = [gpu(instance("3g.40gb", 4, 4, 1), instance("1g.10gb", 0, 1, 9)), gpu(index=1, current=False)]
    found = export(gpus, "today")
    assert found["layout"] == [
        {"devices": [0], "instances": {"1g.10gb": 1, "3g.40gb": 1}},
        {"devices": [1], "enabled": False},
    ]
    assert list(found["mig_parted"]["mig-configs"]) == ["today"]
    assert found["gpus"][0]["instances"][0]["compute_instances"][0]["uuid"] == "MIG-1-0"


def test_export_refuses_to_leave_a_gpu_out():
    with pytest.raises(Failure, match="GPU is lost"):
        export([gpu(lost=True, unknown={"handle": "GPU is lost"})], "current")


def test_force_may_destroy_what_is_in_use():
    one = gpu(instance("3g.40gb", 4, 4, 1, busy=True))
    with pytest.raises(Refused):
        plan(one, DesiredGpu(False))
    found = plan(one, DesiredGpu(False), disruption="force")
    assert found.steps()[0].disturbs == ("python3 (PID 812)",)
