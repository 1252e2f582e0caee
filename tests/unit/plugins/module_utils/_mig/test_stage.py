# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import stage as stage_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Verdict
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document, gpu_instance, h100

LAYOUT = [{"devices": "all", "instances": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}]
DESIRED = {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": LAYOUT, "nvidia_mig_disruption": "refuse"}
PLACES = (("2g.20gb", 0, 2), ("1g.10gb", 2, 1), ("1g.10gb", 3, 1), ("3g.40gb", 4, 4))


stage = by_document(stage_of.stage)


def facts(*, mode=True, pending=None, places=PLACES, recorded=PLACES, busy=(), architecture="hopper"):
    gpu = h100(
        uuid="GPU-1",
        architecture=architecture,
        mig={"supported": True, "current": mode, "pending": mode if pending is None else pending},
        gpu_instances=[
            gpu_instance(number, *place, processes=[{"pid": 812, "name": "python3"}] if place in busy else ())
            for number, place in enumerate(places, start=1)
        ],
    )
    entries = [{"profile": p, "start": s, "size": z, "compute": [int(p[0])]} for p, s, z in recorded or ()]
    record = {"uuid": "GPU-1", "pci_address": "0000:18:00.0", "name": gpu["name"], "mig": True, "instances": entries}
    return {
        "schema": 1,
        "pci": [
            {"address": "0000:18:00.0", "device_id": "0x2330", "subsystem_id": "0x16c1", "kind": "gpu"},
            {"address": "0000:05:00.0", "device_id": "0x22a3", "kind": "nvswitch"},
        ],
        "nvml": {"available": True},
        "gpus": [gpu],
        "recorded": {"mig": {"schema": 1, "request": {}, "gpus": [record]} if recorded is not None else None},
    }


def test_nothing_is_needed_when_facts_prove_the_desired_state():
    plan = stage(facts(), DESIRED)
    assert (plan.needed, plan.steps, plan.unknown, plan.refusals, plan.warnings) == (False, (), None, (), ())


@pytest.mark.parametrize("recorded", [None, (), PLACES[:3], (("1g.10gb", 0, 1), *PLACES[1:])])
def test_what_is_not_recorded_is_recorded(recorded):
    plan = stage(facts(recorded=recorded), DESIRED)
    assert plan.needed
    assert [step.kind.key for step in plan.steps] == ["record_layout"]


def test_what_something_else_restores_is_not_recorded():
    assert not stage(facts(recorded=None), {**DESIRED, "nvidia_mig_restore": False}).needed


def test_another_recorded_mode_is_recorded_again():
    given = facts()
    given["recorded"]["mig"]["gpus"][0]["mig"] = False
    assert stage(given, DESIRED).needed


def test_a_change_that_was_cut_off_is_finished():
    given = facts()
    given["recorded"]["mig_unfinished"] = True
    plan = stage(given, DESIRED)
    assert plan.needed and [step.kind.key for step in plan.steps] == ["finish_mig_change"]


def test_no_layout_needs_nothing():
    assert not stage(facts(mode=False, places=()), {"nvidia_mig_strategy": "none", "nvidia_mig_layout": []}).needed
    assert not stage(facts(), {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": []}).needed
    assert not stage({}, {"nvidia_mig_strategy": "none"}).needed


NONE = {"nvidia_mig_strategy": "none", "nvidia_mig_layout": []}


@pytest.mark.parametrize("node", [True, False])
@pytest.mark.parametrize("places", [PLACES, ()])
def test_mig_that_is_left_on_is_disabled_under_none(places, node):
    given = {**facts(places=places), "kubelet": {"installed": node}}
    plan = stage(given, NONE)
    assert [step.kind.key for step in plan.steps] == ["destroy_gpu_instance"] * len(places) + ["disable_mig"]
    assert plan.refusals == ()
    # Nobody described these instances: what goes and what keeps them is said, beside the steps.
    assert plan.warnings == (
        (
            "no layout describes GPU 0 and nvidia_mig_strategy is none, so MIG is switched off there and idle instances are destroyed: "
            "3g.40gb + 2g.20gb + 1g.10gb x2. To keep them set it to mixed",
        )
        if places
        else ()
    )
    named = " ".join(map(str, plan.steps))
    assert all(f"{profile} at {start}:{size}" in named for profile, start, size in places)
    assert not stage(given, {**NONE, "nvidia_mig_strategy": "mixed"}).steps, "what the warning advises keeps them"
    # A layout that disables MIG asked for it.
    assert stage(given, {**NONE, "nvidia_mig_layout": "all-disabled"}).warnings == ()
    # The DRA driver may have made the instances itself.
    assert not stage(given, {**NONE, "nvidia_sharing_backend": "dra"}).needed


def test_mig_that_would_be_on_after_the_next_boot_is_cancelled_under_none():
    plan = stage(facts(mode=False, pending=True, places=()), NONE)
    assert [step.kind.key for step in plan.steps] == ["cancel_mig_change"]


def test_a_gpu_that_a_layout_does_not_select_is_disabled_under_none_too():
    given = facts(mode=False, places=(), recorded=())
    given["recorded"]["mig"]["gpus"][0]["mig"] = False
    other = facts(places=())["gpus"][0]
    given["gpus"].append({**other, "index": 1, "uuid": "GPU-2", "pci_address": "0000:3b:00.0"})
    plan = stage(given, {**NONE, "nvidia_mig_layout": [{"devices": [0], "enabled": False}]})
    assert [(step.kind.key, step.target) for step in plan.steps] == [("disable_mig", "0000:3b:00.0")]


@pytest.mark.parametrize("places", [PLACES, ()])
def test_mig_that_is_left_on_is_not_disabled_while_it_is_used(places):
    """On a node whose plugin offers it as a whole GPU, a pod may have it."""
    given = facts(places=places, busy=places[3:])
    if not places:
        given["gpus"][0]["allocations"] = [{"pod": "team/train"}]
    (refused,) = stage(given, NONE).refusals
    who = (
        "an instance is in use: 3g.40gb at 4:4 (id 4) by python3 (PID 812)"
        if places
        else "the GPU is in use: pod team/train"
    )
    assert refused.message.startswith(f"GPU 0: MIG cannot be switched off while {who}. Stop its users, or")
    left = stage(given, {**NONE, "nvidia_mig_disruption": "idle_only"})
    assert not left.refusals and left.warnings == (refused.message,)
    forced = stage(given, {**NONE, "nvidia_mig_disruption": "force"})
    assert forced.steps[-1].kind.key == "disable_mig" and forced.steps[-1].disturbs


def test_mig_that_is_left_on_waits_for_a_reset_as_a_layout_does():
    given = facts(places=(), architecture="ampere")
    assert [step.kind.key for step in stage(given, NONE).steps] == ["disable_mig", "reset_gpu"]
    given["gpus"][0]["minor"] = 3
    given["holders"] = [HOLDER]
    (refused,) = stage(given, NONE).refusals
    assert "MIG can be switched off only by a reset or a reboot" in refused.reason
    step = stage(given, {**NONE, "nvidia_mig_reboot": True}).steps[0]
    assert (step.kind.key, step.data["reboot"]) == ("disable_mig", "needed")


def test_mig_that_cannot_be_read_is_unread_where_it_is_on_under_none():
    given = {**facts(), "unknown": {"gpus[0].gpu_instances": "Timeout"}}
    assert stage(given, NONE).verdict is Verdict.UNREAD
    assert not stage({**facts(mode=False, places=()), "unknown": given["unknown"]}, NONE).needed


def test_boards_without_mig_are_off_and_nothing_is_recorded_of_them():
    given = facts(mode=None, places=(), recorded=None)
    given["gpus"][0].update(name="NVIDIA L40S", board="l40s-48gb", mig={"supported": False})
    assert not stage(given, {**DESIRED, "nvidia_mig_layout": [{"devices": "all", "enabled": False}]}).needed


def test_what_the_driver_says_of_mig_overrules_the_table_of_boards():
    given = facts(mode=None, places=(), recorded=None)
    given["gpus"][0]["mig"] = {"supported": False, "current": None, "pending": None}
    (refused,) = stage(given, DESIRED).refusals
    assert "MIG is not supported on GPU 0 (0000:18:00.0), NVIDIA H100 80GB HBM3, although" in refused.reason
    assert "displaymodeselector" in refused.remedy
    assert not stage(given, {**DESIRED, "nvidia_mig_layout": "all-disabled"}).needed
    # One beside others that have it is not passed over either.
    other = {**facts()["gpus"][0], "index": 1, "uuid": "GPU-2", "pci_address": "0000:3b:00.0"}
    assert stage({**given, "gpus": [*given["gpus"], other]}, DESIRED).refusals[0].reason == refused.reason


@pytest.mark.parametrize("key", ["mig", "gpu_instances", "minor"])
def test_a_gpu_that_nvml_does_not_tell_of_is_unread_where_it_is_selected(key):
    given = {**facts(), "unknown": {f"gpus[0].{key}": "Timeout", "gpus[0].compute_mode": "Timeout"}}
    plan = stage(given, DESIRED)
    assert (
        plan.verdict is Verdict.UNREAD and "GPU 0 (0000:18:00.0): its MIG state cannot be read: Timeout" in plan.unread
    )
    assert not plan.steps
    del given["unknown"][f"gpus[0].{key}"]
    assert not stage(given, DESIRED).needed


def test_instances_that_the_user_names_are_in_use():
    desired = {**DESIRED, "nvidia_mig_layout": "all-1g.10gb", "nvidia_mig_busy_instances": ["MIG-4"]}
    given = facts()
    (refused,) = stage(given, desired).refusals
    assert "3g.40gb at 4:4 (id 4) by pod that nvidia_mig_busy_instances names" in refused.reason
    assert given == facts()


def test_steps_of_a_change():
    plan = stage(facts(places=PLACES[:3]), DESIRED)
    assert [step.what for step in plan.steps] == ["create GPU instance GPU 0 (0000:18:00.0): 3g.40gb at 4:4"]
    assert [(step.kind.key, step.target) for step in plan.steps] == [("create_gpu_instance", "0000:18:00.0")]


@pytest.mark.parametrize(("architecture", "reset"), [("hopper", False), ("ampere", True), (None, True)])
def test_mode_is_enabled_before_instances_are_made(architecture, reset):
    plan = stage(facts(mode=False, places=(), architecture=architecture), DESIRED)
    mode = ["enable_mig", "reset_gpu"] if reset else ["enable_mig"]
    assert [step.kind.key for step in plan.steps] == mode + ["create_gpu_instance"] * 4


HOLDER = {"pid": 9, "command": "python3", "devices": ["/dev/nvidia3", "/dev/nvidiactl"], "container_id": None}


@pytest.mark.parametrize(
    ("holder", "desired", "said"),
    [
        ({}, {}, "the host, which is rebooted: GPU 0 (0000:18:00.0) is held by python3 (PID 9)"),
        ({}, {"nvidia_mig_reset": "never"}, "nvidia_mig_reset is never"),
        # It may be one of the services that are stopped; a container is none.
        ({}, {"nvidia_mig_restart_services": ["dcgm.service"]}, None),
        ({"container_id": "a"}, {"nvidia_mig_restart_services": ["dcgm.service"]}, "python3 (PID 9)"),
        ({"devices": ["/dev/nvidia1"]}, {}, None),
        ({"command": "nvidia-persiste"}, {}, None),
        ({"command": "nv-fabricmanage"}, {}, None),
    ],
)
def test_a_gpu_that_cannot_be_reset_asks_for_a_reboot(holder, desired, said):
    given = facts(mode=False, places=(), architecture="ampere")
    given["gpus"][0]["minor"] = 3
    given["holders"] = [{**HOLDER, **holder}]
    step = stage(given, {**DESIRED, "nvidia_mig_reboot": True, **desired}).steps[0]
    assert step.kind.key == "enable_mig"
    assert step.data.get("reboot") == ("needed" if said else None)
    assert (said in step.disturbs[-1]) if said else not step.disturbs
    # The module would refuse such a host before anything is changed.
    refused = stage(given, {**DESIRED, **desired}).refusals
    assert [said.rpartition(": ")[2] in one.reason and "nvidia_mig_reboot: true" in one.remedy for one in refused] == (
        [True] if said else []
    )
    # What needs no reset needs no reboot.
    hopper = {**facts(mode=False, places=()), "holders": [HOLDER]}
    assert "reboot" not in stage(hopper, DESIRED).steps[0].data


def test_mode_is_disabled_after_instances_are_destroyed():
    plan = stage(facts(), {**DESIRED, "nvidia_mig_layout": "all-disabled"})
    assert [step.kind.key for step in plan.steps] == ["destroy_gpu_instance"] * 4 + ["disable_mig"]


def test_a_pending_mode_leads_to_a_reset():
    plan = stage(facts(mode=False, pending=True, places=()), DESIRED)
    assert plan.steps[0].kind.key == "reset_gpu"


def test_busy_instances_refuse_the_stage_or_are_left_alone():
    given = facts(busy=(PLACES[3],))
    desired = {**DESIRED, "nvidia_mig_layout": "all-1g.10gb"}
    refused = stage(given, desired)
    assert refused.needed
    assert "python3 (PID 812)" in refused.refusals[0].reason
    assert refused.refusals[0].reason.count("PID 812") == 1
    left = stage(given, {**desired, "nvidia_mig_disruption": "idle_only"})
    assert left.needed
    assert not left.refusals
    assert "python3 (PID 812)" in left.warnings[0]
    forced = stage(given, {**desired, "nvidia_mig_disruption": "force"})
    assert [step.disturbs for step in forced.steps if step.disturbs] == [("python3 (PID 812)",)]


@pytest.mark.parametrize(
    "change",
    [{"nvidia_mig_disruption": "maybe"}, {"nvidia_mig_strategy": "none"}, {"nvidia_mig_layout": "all-1g.5gb"}],
)
def test_desired_states_that_cannot_be_met_are_refused(change):
    plan = stage(facts(), {**DESIRED, **change})
    assert plan.needed
    assert len(plan.refusals) == 1


def test_gpus_that_no_entry_selects_are_reported():
    given = facts()
    other = copy.deepcopy(given["gpus"][0])
    given["gpus"].append({**other, "index": 1, "uuid": "GPU-2", "pci_address": "0000:3b:00.0"})
    plan = stage(given, {**DESIRED, "nvidia_mig_layout": [{"devices": 0, "layout": "all-balanced"}]})
    assert not plan.needed
    assert plan.warnings == ("nvidia_mig_layout does not change GPU 1",)


def test_gpus_that_nobody_is_offered_are_reported():
    plan = stage(facts(places=()), {**DESIRED, "nvidia_mig_layout": "all-enabled"})
    assert "without instances on GPU 0" in plan.warnings[0]


def test_places_that_only_the_driver_knows_leave_the_plan_open():
    given = facts(places=())
    given["gpus"][0].update(board="h100-80gb-pcie", name="NVIDIA H100 PCIe")
    plan = stage(given, DESIRED)
    assert plan.needed
    assert "GPU 0" in plan.unknown


class TestWithoutDriver:
    @staticmethod
    def bare(*device_ids):
        cards = [
            {"address": f"0000:{0x18 + n:02x}:00.0", "device_id": device, "kind": "gpu"}
            for n, device in enumerate(device_ids)
        ]
        return {"pci": cards, "nvml": {"available": False, "reason": "libnvidia-ml.so.1 is not installed"}, "gpus": []}

    def test_the_desired_state_is_checked_by_the_table_and_the_rest_is_unknown(self):
        plan = stage(self.bare("0x2330", "0x2330"), DESIRED)
        assert plan.needed
        assert [step.kind.key for step in plan.steps] == ["partition_gpu"] * 2
        assert "libnvidia-ml.so.1 is not installed" in plan.unknown

    def test_impossible_desired_states_are_refused_already(self):
        plan = stage(self.bare("0x2330"), {**DESIRED, "nvidia_mig_layout": [{"instances": {"3g.40gb": 3}}]})
        assert plan.refusals[0].thing == "nvidia_mig_layout[0].instances"

    @pytest.mark.parametrize(
        ("device", "driver", "thing"),
        [
            ("0x2335", {"branch": "535"}, "nvidia_driver_branch"),
            ("0x2335", {"branch": "580", "version": "550.54.15"}, "nvidia_driver_version"),
            ("0x2335", {"branch": "550"}, None),
            ("0x2335", {"branch": "535", "state": "unmanaged"}, None),
            ("0x2335", {"version": "not one"}, None),
            ("0x2335", {"version": "580.126.09", "branch": "latest"}, None),
            ("0x2335", {"version": "535.183.01", "branch": "580-open"}, "nvidia_driver_version"),
            ("0x2bb1", {"branch": "570"}, "nvidia_driver_branch"),
            ("0x2330", {"branch": "535"}, None),
        ],
    )
    def test_a_driver_that_has_no_mig_for_the_board_yet_is_refused_before_it_is_installed(self, device, driver, thing):
        given = {f"nvidia_driver_{name}": value for name, value in {"state": "present", **driver}.items()}
        layout = {"nvidia_mig_layout": "all-enabled"}
        plan = stage(self.bare(device), {**DESIRED, **layout, **given})
        assert [refusal.thing for refusal in plan.refusals] == ([thing] if thing else [])
        if thing:
            assert "has MIG from driver" in plan.refusals[0].reason
            assert ("Use branch 5" in plan.refusals[0].remedy) == (thing == "nvidia_driver_branch")
        assert not stage(self.bare(device), {**DESIRED, **given, "nvidia_mig_layout": "all-disabled"}).refusals

    @pytest.mark.parametrize(("branch", "refused"), [("580", False), ("535", True)])
    def test_a_loaded_driver_without_mig_for_the_board_leaves_it_to_the_wanted_one(self, branch, refused):
        host = {**self.bare("0x2335"), "nvml": {"available": True}, "driver": {"loaded_version": "535.183.01"}}
        gpu = {"index": 0, "uuid": "GPU-1", "pci_address": "0000:18:00.0", "device_id": "0x2335"}
        host["gpus"] = [{**gpu, "name": "NVIDIA H200", "board": "h200-141gb", "mig": {"supported": False}}]
        given = {"nvidia_driver_state": "present", "nvidia_driver_branch": branch, "nvidia_mig_layout": "all-enabled"}
        plan = stage(host, {**DESIRED, **given})
        assert [refusal.thing for refusal in plan.refusals] == (["nvidia_driver_branch"] if refused else [])
        if not refused:
            assert "driver 535.183.01 has no MIG for the board" in plan.unknown
        # A driver that could have it says why it has not.
        host["driver"] = {"loaded_version": "580.126.09"}
        assert stage(host, {**DESIRED, **given}).refusals

    def test_boards_without_mig_need_nothing_to_be_off(self):
        assert not stage(self.bare("0x1eb8"), {**DESIRED, "nvidia_mig_layout": "all-disabled"}).needed

    def test_boards_that_the_table_does_not_have_are_told_by_their_driver(self):
        plan = stage(self.bare("0xffff"), {**DESIRED, "nvidia_mig_layout": "all-disabled"})
        assert plan.needed
        assert "not in the table of boards" in plan.unknown

    def test_a_host_without_gpus_needs_nothing(self):
        assert not stage({"pci": []}, DESIRED).needed


def profile(name, number, starts, size, count):
    return {
        "name": name,
        "id": number,
        "memory_mib": 9728 * size,
        "multiprocessors": 16,
        "max_instances": count,
        "remaining": 0,
        "starts": starts,
        "size": size if starts else None,
    }


def stranger(mode, **given):
    """A board that the table does not have, with what its driver offers: while MIG is off it does not say where."""
    found = facts(mode=mode, places=(), recorded=None, **given)
    places = ([0, 1, 2, 3], [0, 2], [0]) if mode else (None, None, None)
    found["gpus"][0].update(
        name="NVIDIA X1000 96GB",
        board=None,
        memory_mib=98304,
        profiles=[
            profile("1g.24gb", 19, places[0], 1, 4),
            profile("2g.48gb", 14, places[1], 2, 2),
            profile("4g.96gb", 0, places[2], 4, 1),
        ],
    )
    found["pci"][0]["device_id"] = "0xffff"
    return found


def wanting(layout):
    return {**DESIRED, "nvidia_mig_layout": layout}


def test_a_board_that_the_table_does_not_have_is_planned_from_what_its_driver_offers():
    plan = stage(stranger(True), wanting([{"devices": "all", "instances": {"2g.48gb": 1, "1g.24gb": 2}}]))
    assert not plan.refusals and [step.kind.key for step in plan.steps] == ["create_gpu_instance"] * 3
    plan = stage(stranger(True), wanting({"node": {"1g.24gb": 4}}))
    assert not plan.refusals and len(plan.steps) == 4
    (refused,) = stage(stranger(True), wanting([{"devices": "all", "instances": {"2g.48gb": 3}}])).refusals
    assert "2g.48gb" in refused.message


def test_before_mig_is_on_the_places_of_such_a_board_are_not_known_yet():
    plan = stage(stranger(False), wanting([{"devices": "all", "instances": {"1g.24gb": 4}}]))
    assert not plan.refusals and "enable_mig" in [step.kind.key for step in plan.steps]
    (refused,) = stage(stranger(False), wanting({"node": {"1g.24gb": 4}})).refusals
    assert "apply nvidia_mig_layout: all-enabled once" in refused.message
    assert "install the driver" in refused.message


def test_totals_over_a_board_without_places_are_planned_where_its_driver_says_them():
    found = stranger(True)
    places = {"1g.18gb": ([0, 1, 2, 3, 4, 5, 6], 1, 7), "3g.72gb": ([0, 4], 4, 2)}
    found["gpus"][0].update(
        name="NVIDIA GH200 144G HBM3e",
        board="gh200-144gb",
        memory_mib=143771,
        profiles=[profile(name, number, *place) for number, (name, place) in enumerate(places.items())],
    )
    plan = stage(found, wanting({"node": {"1g.18gb": 3, "3g.72gb": 1}}))
    assert not plan.refusals and len(plan.steps) == 4
    del found["gpus"][0]["profiles"]
    (refused,) = stage(found, wanting({"node": {"1g.18gb": 3, "3g.72gb": 1}})).refusals
    assert "places 1g.18gb, 3g.72gb." in refused.message


NOTEBOOK = {"pod": "team/notebook", "pod_uid": "u1", "container": "main", "resource": "nvidia.com/mig-3g.40gb"}


def allocated(to, **options):
    """Return facts in which the kubelet gave the 3g.40gb, or the whole GPU, to a pod without a process."""
    given = facts(**options)
    (gpu,) = given["gpus"]
    part = gpu["gpu_instances"][3]["compute_instances"][0] if gpu["gpu_instances"] else gpu
    part["allocations"] = [to]
    return given


def test_what_the_kubelet_gave_to_a_pod_is_in_use_without_a_process():
    desired = {**DESIRED, "nvidia_mig_layout": "all-1g.10gb"}
    (refusal,) = stage(allocated(NOTEBOOK), desired).refusals
    assert "3g.40gb at 4:4 (id 4) by pod team/notebook (nvidia.com/mig-3g.40gb)" in refusal.reason
    assert "gpufleet.nvidia.repartition" in refusal.remedy and "nvidia_mig_disruption to force" in refusal.remedy
    assert (
        "pod team/notebook" in stage(allocated(NOTEBOOK), {**desired, "nvidia_mig_disruption": "idle_only"}).warnings[0]
    )
    forced = stage(allocated(NOTEBOOK), {**desired, "nvidia_mig_disruption": "force"})
    assert [step.disturbs for step in forced.steps if step.disturbs] == [
        ("pod team/notebook (nvidia.com/mig-3g.40gb)",)
    ]
    # What the pod has may stay.
    assert not stage(allocated(NOTEBOOK), DESIRED).needed


@pytest.mark.parametrize("to", [NOTEBOOK, {"reason": "the record is half written"}])
def test_mig_is_not_switched_on_a_gpu_that_was_given_to_a_pod(to):
    (refusal,) = stage(allocated(to, mode=False, places=()), DESIRED).refusals
    assert "MIG cannot be switched on while the GPU is in use" in refusal.reason
    assert ("pod team/notebook" if "pod" in to else "unknown (the record is half written)") in refusal.reason
    off = {**DESIRED, "nvidia_mig_layout": "all-disabled"}
    assert "MIG cannot be switched off" in stage(allocated(NOTEBOOK), off).refusals[0].reason


@pytest.mark.parametrize(
    ("architecture", "modules", "warned"), [("ampere", True, True), ("ampere", False, False), ("hopper", True, False)]
)
def test_a_module_that_can_keep_gpus_from_a_reset_is_named_before(architecture, modules, warned):
    host = facts(mode=False, places=(), recorded=None, architecture=architecture)
    host["driver"] = {"modules": ["nvidia", *(["nvidia_drm"] if modules else [])]}
    plan = stage(host, DESIRED)
    assert plan.steps and plan.refusals == ()
    assert any("modprobe -r nvidia_drm" in text for text in plan.warnings) is warned
