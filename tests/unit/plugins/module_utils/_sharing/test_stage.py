# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sharing stage from facts alone."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import stage as stage_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.desired import read
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.host import host_sharing
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document, seen_gpu

stage = by_document(stage_of.stage)


def gpus(count=2, **changes):
    return [
        {
            "index": index,
            "uuid": f"GPU-{index}",
            "memory_mib": 46068,
            "architecture": "ada",
            "compute_mode": "default",
            "mig": {"supported": False, "current": None},
            **changes,
        }
        for index in range(count)
    ]


def desired(**options):
    return {f"nvidia_sharing_{name}": value for name, value in options.items()}


def recorded(options, devices):
    variables = desired(**options)
    return {"sharing": host_sharing(read(variables), [seen_gpu(gpu) for gpu in devices]).as_dict()}


HOST = {"mode": "mps", "memory_slice": "4GiB", "mps_manager": "host"}


@pytest.mark.parametrize("mode", ["exclusive_process", "prohibited"])
def test_a_compute_mode_of_the_pools_own(mode):
    plan = stage({"gpus": gpus()}, desired(mode="none", compute_mode=mode))
    assert [step.data.get("mode") for step in plan.steps] == [mode, mode, None]
    kept = {"gpus": gpus(compute_mode=mode), "recorded": recorded({"mode": "none", "compute_mode": mode}, gpus())}
    assert not stage(kept, desired(mode="none", compute_mode=mode)).needed
    assert stage(kept, desired(mode="none")).steps[0].data["mode"] == "default"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mode": "time_slicing", "replicas": 4}, "time slices"),
        ({"mode": "mps", "memory_slice": "4GiB", "mps_manager": "host"}, "the MPS daemon of the host"),
        ({"mode": "mps", "replicas": 4}, "the MPS daemon of the device plugin"),
        ({"backend": "hami", "memory_slice": "4GiB"}, "hami"),
    ],
)
def test_a_compute_mode_is_refused_where_sharing_needs_its_own(options, why):
    with pytest.raises(Refused, match=why) as refused:
        stage({"gpus": gpus()}, desired(compute_mode="exclusive_process", **options))
    assert refused.value.thing == "nvidia_sharing_compute_mode"


def test_a_compute_mode_is_refused_with_mig():
    wanted = desired(compute_mode="exclusive_process")
    with pytest.raises(Refused, match="nvidia_mig_strategy is single"):
        stage({"gpus": gpus()}, {**wanted, "nvidia_mig_strategy": "single"})
    on = {"gpus": gpus(mig={"supported": True, "current": True})}
    # The stage before this one switches it off.
    assert [step.kind.key for step in stage(on, wanted).steps] == ["set_compute_mode"] * 2 + ["record_sharing"]
    assert not stage({"gpus": gpus()}, desired(mode="time_slicing", replicas=4, compute_mode="default")).refusals


def test_a_bare_host_says_why_it_cannot_be_planned():
    plan = stage({"nvml": {"available": False, "reason": "libnvidia-ml.so.1 is not installed"}}, desired(**HOST))
    assert plan.needed
    assert "libnvidia-ml.so.1 is not installed" in plan.unknown


def cards(count=2, board="l40s-48gb"):
    return [{"address": f"0000:{bus:02x}:00.0", "kind": "gpu", "board": board} for bus in range(count)]


def test_a_bare_host_is_planned_for_the_boards_on_its_bus():
    plan = stage({"pci": [*cards(), {"kind": "nvswitch"}], "nvml": {"reason": "no driver"}}, desired(**HOST))
    assert [step.what for step in plan.steps] == [
        "set compute mode GPU 0",
        "set compute mode GPU 1",
        "start MPS daemon node",
        "record the sharing of this host",
    ]
    assert plan.unknown == "the GPUs cannot be queried yet: no driver"


@pytest.mark.parametrize(
    ("facts", "variables"),
    [
        ({"pci": cards(board=None)}, desired(**HOST)),
        ({"pci": cards(board="nobodys")}, desired(**HOST)),
        ({"pci": []}, desired(**HOST)),
        ({"pci": cards()}, desired(**HOST, mps_scope="instance")),
        (
            {"pci": cards(board=None)},
            {**desired(**HOST, mps_scope="instance"), "nvidia_mig_layout": [{"instances": {"1g.10gb": 1}}]},
        ),
        ({"pci": cards()}, {**desired(**HOST), "nvidia_mig_strategy": "mixed"}),
    ],
)
def test_what_no_table_can_tell_is_left_open(facts, variables):
    plan = stage(facts, variables)
    assert plan.needed and plan.unknown and plan.steps == ()


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        (desired(mode="mps", memory_slice="40GiB"), "fits 1 times"),
        (desired(**HOST, mps_limits=[{"gpu": 2, "memory": "1GiB"}]), "no GPU 2"),
    ],
)
def test_a_bare_host_refuses_what_its_boards_can_never_do(variables, match):
    with pytest.raises(Refused, match=match):
        stage({"pci": cards()}, variables)


def test_a_bare_host_is_not_refused_what_its_boards_can_do_without_ecc():
    """An L40S has 46068 MiB, and with ECC off room for two slices of 23.5 GiB: only its driver can tell."""
    wanted = desired(mode="mps", memory_slice="24064MiB")
    assert stage({"pci": cards()}, wanted).unknown
    with pytest.raises(Refused, match="fits 1 times"):
        stage({"gpus": gpus(memory_mib=46068)}, wanted)


def test_a_record_that_cannot_be_read_is_written_anew():
    for record in ({"schema": 9}, {"daemons": [{}]}, {"daemons": 3}):
        actions = [step.kind.key for step in stage({"gpus": gpus(), "recorded": {"sharing": record}}, {}).steps]
        assert actions == ["record_sharing"]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"percentage": 100.0, "limits": ["4G", "4G"]}, ""),
        ({}, ""),
        ({"percentage": 100.0, "limits": ["4G", "1G"]}, "limit 1G on device 1 in place of 4096 MiB"),
        ({"percentage": 10.0}, "active thread percentage 10.0 in place of 100"),
        ({"percentage": 100.0, "limits": ["", "4G"]}, "limit none on device 0"),
    ],
)
def test_a_daemon_that_somebody_told_other_limits_is_told_the_described_ones(told, why):
    devices = gpus(compute_mode="exclusive_process")
    daemon = {"pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe", "responds": True, **told}
    facts = {"gpus": devices, "recorded": recorded(HOST, devices), "mps": [daemon]}
    plan = stage(facts, desired(**HOST))
    assert [step.kind.key for step in plan.steps] == (["set_mps_defaults"] if why else [])
    assert plan.needed is bool(why) and all(why in step.why for step in plan.steps)
    daemon["in_container"] = True
    assert [step.kind.key for step in stage(facts, desired(**HOST)).steps] == ["start_mps_daemon"]


@pytest.mark.parametrize("record", [None, {"daemons": 7}])
def test_a_daemon_whose_record_is_gone_is_not_said_to_be_dead(record):
    devices = gpus(compute_mode="exclusive_process")
    daemon = {"pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe", "responds": True}
    facts = {"gpus": devices, "recorded": {"sharing": record}, "mps": [daemon]}
    assert [step.kind.key for step in stage(facts, desired(**HOST)).steps] == ["record_sharing"]
    facts["mps"] = []
    steps = [step.kind.key for step in stage(facts, desired(**HOST)).steps]
    assert steps == ["start_mps_daemon", "record_sharing"]


def test_a_daemon_that_somebody_started_is_refused_before_anything_is_changed_or_named():
    """One GPU has one daemon, and NVIDIA's runtime mounts the default directory into every container with a GPU."""
    devices = gpus(compute_mode="default")
    daemon = {"pid": 99, "pipe_directory": "/tmp/nvidia-mps", "responds": True}
    facts = {"gpus": devices, "mps": [daemon]}
    with pytest.raises(Refused, match=r"process 99 is another MPS control daemon for these GPUs \(on the host\)"):
        stage(facts, desired(**HOST))
    with pytest.raises(
        Refused, match=r"time_slicing, but process 99 is an MPS control daemon at /tmp/nvidia-mps, which"
    ):
        stage(facts, desired(mode="time_slicing", replicas=4))
    of_plugin = {"mode": "mps", "replicas": 4}
    for pipe in ("/tmp/nvidia-mps", "/opt/mps"):
        refused = rf"process 99 is another MPS control daemon .*CUDA_MPS_PIPE_DIRECTORY={pipe} nvidia-cuda-mps-control"
        with pytest.raises(Refused, match=refused):
            stage({**facts, "mps": [{**daemon, "pipe_directory": pipe}]}, desired(**of_plugin))
    (warning,) = stage(facts, desired(mode="none")).warnings
    assert "they are its clients" in warning
    # No container gets a daemon of another directory.
    elsewhere = {**facts, "mps": [{**daemon, "pipe_directory": "/opt/mps"}]}
    for mode in ({"mode": "none"}, {"mode": "time_slicing", "replicas": 4}):
        assert stage(elsewhere, desired(**mode)).warnings == ()
    # For GPUs that the pool does not share, in a container, or a user's own, which does not answer root.
    for other in ({"devices": ["GPU-none-of-these"]}, {"in_container": True}, {"responds": None}):
        assert stage({**facts, "mps": [{**daemon, **other}]}, desired(**HOST)).steps
        assert stage({**facts, "mps": [{**daemon, **other}]}, desired(**of_plugin)).refusals == ()


def test_daemons_of_mig_devices_that_are_there_and_answer_need_nothing():
    options = {"mode": "mps", "replicas": 2, "mps_manager": "host", "mps_scope": "instance"}
    part = {"id": 0, "profile": "1g.10gb", "uuid": "MIG-1"}
    instance = {"id": 3, "profile": "1g.10gb", "start": 0, "size": 1, "memory_mib": 9856, "compute_instances": [part]}
    devices = gpus(1, mig={"current": True}, gpu_instances=[instance])
    facts = {"gpus": devices, "recorded": recorded(options, devices)}
    variables = {**desired(**options), "nvidia_mig_strategy": "mixed"}
    assert [step.kind.key for step in stage(facts, variables).steps] == ["start_mps_daemon"]
    facts["mps"] = [{"pipe_directory": "/run/nvidia/mps/mig0-3-0/pipe", "responds": True}]
    assert not stage(facts, variables).needed


@pytest.mark.parametrize(
    "options", [{}, {"mode": "mps", "replicas": 4}, {"mode": "time_slicing", "replicas": 4, "time_slice": "long"}]
)
def test_what_is_recorded_and_true_needs_nothing(options):
    devices = gpus()
    assert not stage({"gpus": devices, "recorded": recorded(options, devices)}, desired(**options)).needed


def test_a_daemon_of_the_host_has_to_answer():
    devices = gpus(compute_mode="exclusive_process")
    facts = {"gpus": devices, "recorded": recorded(HOST, devices)}
    assert [step.kind.key for step in stage(facts, desired(**HOST)).steps] == ["start_mps_daemon"]
    facts["mps"] = [{"pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe", "responds": True, "clients": 1}]
    assert not stage(facts, desired(**HOST)).needed


def test_from_nothing_to_a_daemon_of_the_host():
    actions = [step.kind.key for step in stage({"gpus": gpus()}, desired(**HOST)).steps]
    assert actions == ["set_compute_mode", "set_compute_mode", "start_mps_daemon", "record_sharing"]


def test_back_to_whole_gpus():
    devices = gpus(compute_mode="exclusive_process")
    facts = {"gpus": devices, "recorded": recorded(HOST, devices)}
    actions = [step.kind.key for step in stage(facts, {}).steps]
    assert actions == ["stop_mps_daemon", "set_compute_mode", "set_compute_mode", "record_sharing"]


@pytest.mark.parametrize(
    ("variables", "devices", "match"),
    [
        (desired(mode="mps", memory_slice="40GiB"), gpus(), "fits 1 times"),
        (desired(mode="mps", replicas=17), gpus(architecture="volta"), "at most 16"),
        ({**desired(mode="mps", replicas=2), "nvidia_mig_strategy": "mixed"}, gpus(), "does not share MIG devices"),
        (desired(**HOST, mps_scope="nodes"), gpus(), "must be one of"),
        (desired(**HOST, mps_priority="high"), gpus(), "must be one of"),
        (desired(**HOST, mps_active_thread_percentage=101), gpus(), "is not a percentage"),
        (desired(**HOST, mps_limits=[{"gpu": 0}]), gpus(), "every entry must be a mapping with gpu and memory"),
        (desired(**HOST, mps_limits=[{"gpu": 7, "memory": "8GiB"}]), gpus(), "no GPU 7"),
        (desired(**HOST, mps_limits=[{"gpu": 0, "memory": "8GB"}]), gpus(), "ambiguous"),
        (desired(**HOST, mps_protocol=4), gpus(), "no protocol 4"),
        (desired(**HOST, mps_protocol=3), gpus(), "speaks protocol 2 only"),
        (desired(**HOST, mps_protocol=3, mps_scope="gpu", mps_multi_user=False), gpus(), "only in multi-user mode"),
        (desired(**HOST, mps_multi_user="several"), gpus(), "must be one of auto, true, false"),
        (
            desired(**HOST, mps_protocol=3, mps_scope="gpu", mps_active_thread_percentage=12.5),
            gpus(),
            "whole percents",
        ),
    ],
)
def test_what_can_never_be_met_is_refused(variables, devices, match):
    with pytest.raises(Refused, match=match):
        stage({"gpus": devices}, variables)


def test_protocol_3_where_the_cluster_does_not_count():
    plan = stage({"gpus": gpus()}, desired(**HOST, mps_protocol=3, mps_scope="gpu", mps_multi_user=True))
    assert [step.kind.key for step in plan.steps].count("start_mps_daemon") == 2


@pytest.mark.parametrize("multi_user", [True, False])
def test_the_installed_program_says_who_shares_a_server_and_not_the_drivers_branch(multi_user):
    devices = gpus(compute_mode="exclusive_process")
    kept = recorded({**HOST, "mps_multi_user": multi_user}, devices)
    facts = {"gpus": devices, "driver": {"loaded_version": "580.126.09"}, "recorded": kept}
    facts["mps"] = [{"pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe", "responds": True, "clients": 0}]
    assert not stage({**facts, "mps_control": {"installed": True, "multi_user": multi_user}}, desired(**HOST)).needed
    assert stage({**facts, "mps_control": {"installed": True, "multi_user": not multi_user}}, desired(**HOST)).needed


H100 = {"board": "h100-80gb-sxm", "memory_mib": 81559, "architecture": "hopper"}
ON, OFF = ({"mig": {"supported": True, "current": current}} for current in (True, False))
DIVIDED = {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 2}}]}
WHOLE = {"nvidia_mig_layout": [{"devices": "all", "enabled": False}]}


def test_daemons_for_mig_devices_follow_from_the_stage_before():
    plan = stage({"gpus": gpus(**H100, **OFF)}, {**desired(**HOST, mps_scope="instance"), **DIVIDED})
    assert plan.needed
    assert "MIG" in plan.unknown
    # Without a layout that can be met nothing is known of them.
    unmet = {**DIVIDED, "nvidia_mig_layout": "all-6g.60gb"}
    assert stage({"gpus": gpus(**H100, **OFF)}, {**desired(**HOST), **unmet}).unknown == plan.unknown


@pytest.mark.parametrize(
    ("scope", "state", "layout", "reason"),
    [
        # The mode was switched on by hand, and nothing switches it off.
        ("node", ON, {"nvidia_mig_strategy": "mixed"}, "GPU 0 is in MIG mode"),
        # The stage before this one switches it on.
        ("node", OFF, DIVIDED, "GPU 0 is in MIG mode"),
        # Nothing makes the devices.
        ("instance", ON, {}, "this host has none"),
        ("instance", ON, {"nvidia_mig_strategy": "mixed"}, "this host has none"),
        ("instance", ON, WHOLE, "this host has none"),
    ],
)
def test_what_the_gpus_are_after_the_stage_before_is_refused_as_the_module_refuses_it(scope, state, layout, reason):
    variables = {**desired(**HOST, mps_scope=scope), **layout}
    with pytest.raises(Refused, match=reason) as refused:
        stage({"gpus": gpus(**H100, **state)}, variables)
    assert refused.value.thing == "nvidia_sharing_mps_scope"
    after = [{**gpu, **(ON if layout is DIVIDED else {})} for gpu in gpus(**H100, **state)]
    with pytest.raises(Refused) as by_module:
        host_sharing(read(variables), [seen_gpu(gpu) for gpu in after])
    assert by_module.value.message == refused.value.message


@pytest.mark.parametrize("layout", [WHOLE, {}, {"nvidia_mig_layout": [{"devices": [1], "enabled": False}]}])
def test_daemons_of_whole_gpus_are_planned_where_the_stage_before_switches_mig_off(layout):
    plan = stage({"gpus": gpus(**H100, **ON)}, {**desired(**HOST), **layout})
    kinds = [step.kind.key for step in plan.steps]
    assert (kinds, plan.unknown) == (
        ["set_compute_mode", "set_compute_mode", "start_mps_daemon", "record_sharing"],
        None,
    )
    with pytest.raises(Refused, match="allows at most 48 clients, not 79"):
        stage({"gpus": gpus(**H100, **ON)}, {**desired(mode="mps", memory_slice="1GiB"), **layout})


def test_a_host_that_was_set_up_by_hand_is_not_changed_for_a_record_of_what_every_boot_brings():
    for options in ({}, {"mode": "time_slicing", "replicas": 2}):
        assert stage({"gpus": gpus()}, desired(**options)).steps == ()
        assert not stage({"gpus": gpus()}, desired(**options)).needed
    exclusive = [{**gpu, "compute_mode": "exclusive_process"} for gpu in gpus()]
    steps = stage({"gpus": exclusive}, desired()).steps
    assert [step.kind.key for step in steps] == ["set_compute_mode"] * len(exclusive) + ["record_sharing"]


def test_time_slicing_on_mig_needs_nothing_of_the_instances():
    # More than MPS could serve.
    shared = desired(mode="time_slicing", replicas=100, time_slice="long")
    plan = stage({"gpus": gpus()}, {**shared, "nvidia_mig_strategy": "mixed"})
    assert [step.kind.key for step in plan.steps] == ["set_time_slice", "record_sharing"]


@pytest.mark.parametrize(
    "facts",
    [
        {
            "gpus": gpus(
                1,
                board="h100-80gb-sxm",
                memory_mib=81559,
                architecture="hopper",
                mig={"supported": True, "current": False},
            )
        },
        {"pci": cards(1, "h100-80gb-sxm"), "nvml": {"reason": "no driver"}},
    ],
    ids=["with a driver", "without one"],
)
@pytest.mark.parametrize(("replicas", "refused"), [(6, False), (7, True)])
def test_clients_are_counted_before_the_mig_devices_are_made(facts, replicas, refused):
    variables = {
        **desired(mode="mps", replicas=replicas, mps_manager="host", mps_scope="instance"),
        "nvidia_mig_strategy": "mixed",
        "nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 1, "1g.10gb": 1}}],
        "nvidia_driver_branch": "580",
    }
    if refused:
        with pytest.raises(Refused, match=r"the MIG device 1g.10gb, .* at most 6 clients, not 7"):
            stage(facts, variables)
    else:
        assert stage(facts, variables).needed
    # A layout that cannot be met is refused where it is planned.
    assert stage(facts, {**variables, "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.11gb": 1}}]}).needed


@pytest.mark.parametrize(
    ("driver", "variables", "refused"),
    [
        ({"loaded_version": "580.126.09"}, {"nvidia_driver_branch": "595"}, True),
        ({"loaded_version": "595.45.04"}, {"nvidia_driver_branch": "580"}, False),
        ({"on_disk_version": "595.45.04"}, {}, False),
        ({}, {"nvidia_driver_branch": "580"}, True),
        ({}, {"nvidia_driver_branch": "580", "nvidia_driver_version": "595.45.04"}, False),
        ({}, {}, False),
    ],
)
def test_the_driver_says_how_many_clients_there_are(driver, variables, refused):
    facts = {"gpus": gpus(), "driver": driver}
    described = {**desired(mode="mps", replicas=60, mps_manager="host"), **variables}
    if refused:
        with pytest.raises(Refused, match="with driver branch 580 allows at most 48 clients, not 60"):
            stage(facts, described)
    else:
        assert stage(facts, described).needed


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({**desired(**HOST), "nvidia_driver_branch": "535"}, True),
        ({**desired(**HOST), "nvidia_driver_branch": "580"}, False),
        ({**desired(**HOST, mps_multi_user="false"), "nvidia_driver_branch": "535"}, False),
        (desired(mode="mps", replicas=4), True),
        (desired(mode="mps", replicas=4, mps_multi_user=False), False),
        ({}, False),
    ],
)
def test_the_plan_says_where_mps_serves_one_user_at_a_time(variables, said):
    warnings = stage({"gpus": gpus()}, variables).warnings
    assert any("one user ID at a time" in text for text in warnings) is said


def test_the_record_and_the_plan_agree_on_who_shares_a_server():
    devices = gpus(compute_mode="exclusive_process")
    facts = {"gpus": devices, "driver": {"loaded_version": "580.126.09"}, "recorded": recorded(HOST, devices)}
    facts["mps"] = [{"pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe", "responds": True, "clients": 0}]
    assert not stage(facts, desired(**HOST)).needed
    steps = stage(facts, desired(**HOST, mps_multi_user=False)).steps
    assert [step.kind.key for step in steps] == ["stop_mps_daemon", "start_mps_daemon", "record_sharing"]
    renamed = stage(facts, desired(**HOST, rename=True)).steps
    assert [step.kind.key for step in renamed] == ["stop_mps_daemon", "start_mps_daemon", "record_sharing"]


RENAMED = {**HOST, "rename": True}
_POD = {"pod": "team/notebook", "pod_uid": "u", "container": "c", "resource": "nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("clients", "allocations", "who"),
    [
        (0, (), ""),
        (2, (), "2 MPS clients"),
        (1, [_POD], r"pod team/notebook \(nvidia.com/gpu\)"),
        (None, [_POD], "pod team/notebook"),
    ],
)
def test_a_daemon_with_clients_is_ended_only_where_that_is_allowed(clients, allocations, who):
    """C(plan), and C(site) before it changes the first host, say what the module would refuse in the middle of the run."""
    devices = gpus(compute_mode="exclusive_process", allocations=list(allocations))
    facts = {"gpus": devices, "recorded": recorded(HOST, devices)}
    facts["mps"] = [{"pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe", "responds": True, "clients": clients}]
    forced = stage(facts, desired(**RENAMED, mps_disruption="force"))
    assert [bool(step.disturbs) for step in forced.steps][:1] == [bool(who)]
    if not who:
        assert stage(facts, desired(**RENAMED)).steps == forced.steps
        return
    with pytest.raises(Refused, match=rf"MPS daemon node: .* terminates its clients: {who}.*mps_disruption: force"):
        stage(facts, desired(**RENAMED))
    # New limits are told to it.
    assert stage(facts, desired(**{**HOST, "memory_slice": "8GiB"})).needed


def test_a_driver_of_somebody_else_without_the_control_program_is_refused_before_anything_is_changed():
    """A driver that the collection installs brings the program; one that it leaves alone may lack it."""

    def unmanaged(**options):
        return {**desired(**options), "nvidia_driver_state": "unmanaged"}

    without = {"gpus": gpus(), "mps_control": {"installed": False, "multi_user": None}}
    with pytest.raises(Refused, match="nvidia-cuda-mps-control is not installed"):
        stage(without, unmanaged(**HOST))
    assert stage(without, {**desired(**HOST), "nvidia_driver_state": "present"}).steps
    assert stage({"gpus": gpus()}, unmanaged(**HOST)).steps
    # The device plugin's daemon is its container's.
    stage(without, unmanaged(mode="mps", replicas=4))
