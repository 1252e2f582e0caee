# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import ProfileFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import UNREADABLE, HostSharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import mps_units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import plan as sharing_plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.host import (
    ROOT,
    SHM,
    client_limits,
    host_sharing,
    one_user_at_a_time,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.modes import HostOptions, Sharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.state import (
    Observed,
    ObservedDaemon,
    Server,
    SharedGpu,
    from_facts,
    pods_of,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import PROCESS, User, names
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen, seen_gpu

L40S = 46068
RAW = [{"index": index, "uuid": f"GPU-{index}", "memory_mib": L40S, "mig": {"current": False}} for index in range(2)]
GPUS = [seen_gpu(gpu) for gpu in RAW]
SLICES = Sharing(mode="mps", slice_mib=4096, mps_manager="host")


#: Of Debian 12: its MPS has no multi-user server.
BRANCH = 535


def with_options(sharing=SLICES, **options):
    return dataclasses.replace(sharing, host=HostOptions(**options), mps_scope=options.get("scope", "node"))


def desired(sharing=SLICES, gpus=GPUS, branch=BRANCH, **options):
    return host_sharing(with_options(sharing, **options), gpus, branch)


def observed(sharing, *, clients=(), enabled=True, limits=None, foreign=(), mode=None, responds=True):
    return Observed(
        gpus=tuple(SharedGpu(gpu.index, gpu.uuid, mode or sharing.compute_mode, foreign) for gpu in GPUS),
        daemons=tuple(
            ObservedDaemon(
                daemon.name,
                daemon,
                responds=responds,
                enabled=enabled,
                percentage=daemon.percentage,
                limits=limits or tuple(f"{mib // 1024}G" for mib in daemon.limits_mib),
                priority=str(daemon.priority),
                servers=(Server(910, tuple(clients)),) if clients is not None else (),
            )
            for daemon in sharing.daemons
        ),
        recorded=sharing,
    )


def actions(plan):
    return [(step.kind.key, step.target) for step in plan.steps]


def test_the_order_of_recorded_daemons_is_no_difference():
    sharing = desired(scope="gpu")
    assert len(sharing.daemons) == 2
    reversed_order = dataclasses.replace(sharing, daemons=sharing.daemons[::-1])
    assert not sharing_plan.plan(observed(reversed_order), sharing).changes
    assert sharing_plan.plan(observed(dataclasses.replace(sharing, compute_mode="default")), sharing).changes


def test_nothing_to_do_when_the_host_is_as_described():
    sharing = desired()
    assert not sharing_plan.plan(observed(sharing, clients=(7,)), sharing).changes


def test_a_bare_host_gets_mode_daemon_and_record():
    plan = sharing_plan.plan(Observed(gpus=tuple(SharedGpu(gpu.index, gpu.uuid, "default") for gpu in GPUS)), desired())
    assert actions(plan) == [
        ("set_compute_mode", GPUS[0].uuid),
        ("set_compute_mode", GPUS[1].uuid),
        ("start_mps_daemon", "node"),
        ("record_sharing", "sharing"),
    ]


def test_a_gpu_with_other_processes_is_not_made_exclusive():
    sharing = desired()
    state = observed(sharing, mode="default", foreign=(User(PROCESS, "train", 4711),))
    with pytest.raises(Refused, match=r"GPU 0: it is in use by train \(PID 4711\), without MPS"):
        sharing_plan.plan(state, sharing)


def test_new_limits_need_no_restart_and_spare_clients():
    before, after = desired(), desired(Sharing(mode="mps", slice_mib=8192, mps_manager="host"))
    plan = sharing_plan.plan(observed(before, clients=(812,)), after)
    assert actions(plan) == [("set_mps_defaults", "node"), ("record_sharing", "sharing")]
    assert not any(step.disturbs for step in plan.steps)
    assert plan.warnings == ("MPS server 910 of node keeps its old limits until its clients end: MPS client (PID 812)",)


def test_an_idle_server_ends_so_that_the_next_one_has_the_new_limits():
    before, after = desired(), desired(Sharing(mode="mps", slice_mib=8192, mps_manager="host"))
    assert ("end_idle_mps_server", "node") in actions(sharing_plan.plan(observed(before, clients=()), after))


@pytest.mark.parametrize("after", [desired(multi_user=True), HostSharing(compute_mode="default"), desired(scope="gpu")])
def test_a_daemon_with_clients_is_not_ended(after):
    state = observed(desired(), clients=(812, 813))
    with pytest.raises(
        Refused,
        match=r"MPS daemon node: it has to end .* terminates its clients: MPS client \(PIDs 812, 813\).*disruption: force",
    ):
        sharing_plan.plan(state, after)
    steps = sharing_plan.plan(state, after, "force").steps
    stop = next(step for step in steps if step.kind.key == "stop_mps_daemon")
    assert stop.disturbs == ("MPS client (PIDs 812, 813)",)


def test_a_dead_daemon_is_started():
    sharing = desired()
    assert actions(sharing_plan.plan(observed(sharing, responds=False, clients=None), sharing)) == [
        ("start_mps_daemon", "node")
    ]


def test_a_daemon_that_would_not_survive_a_reboot_is_enabled():
    sharing = desired()
    assert actions(sharing_plan.plan(observed(sharing, enabled=False), sharing)) == [("enable_mps_daemon", "node")]


def test_what_differs_is_a_step_each():
    sharing = desired()
    state = observed(sharing, limits=("8G", None), enabled=False, mode="default", clients=(812,))
    assert [str(step) for step in sharing_plan.plan(state, sharing).steps] == [
        *(f"set compute mode GPU {index} (it is default, the desired state is exclusive_process)" for index in (0, 1)),
        "set MPS defaults node (limit 8G on device 0 in place of 4096 MiB; limit none on device 1 in place of 4096 MiB)",
        "enable MPS daemon node (it would not come back after a reboot)",
    ]
    # A daemon that prints a limit of its first device alone.
    step = sharing_plan.plan(observed(sharing, limits=("4G",), clients=None), sharing).steps[0]
    assert str(step) == "set MPS defaults node (limit none on device 1 in place of 4096 MiB)"
    assert actions(sharing_plan.plan(Observed(), desired()))[0] == ("start_mps_daemon", "node")
    assert actions(sharing_plan.plan(observed(desired()), HostSharing()))[0] == ("stop_mps_daemon", "node")


def test_time_slice_is_set_once():
    desired = host_sharing(Sharing(mode="time_slicing", replicas=4, time_slice="long"), GPUS)
    assert desired == HostSharing(compute_mode="default", time_slice="long")
    assert ("set_time_slice", "gpus") in actions(sharing_plan.plan(Observed(), desired))
    assert not sharing_plan.plan(Observed(recorded=desired), desired).changes


def test_the_device_plugins_daemon_is_none_of_the_hosts_business():
    assert host_sharing(Sharing(mode="mps", replicas=4), GPUS) == HostSharing()
    assert host_sharing(Sharing(), GPUS) == HostSharing(compute_mode="default")


@pytest.mark.parametrize(
    ("sharing", "options", "limits"),
    [
        (SLICES, {}, (4096, 4096)),
        (SLICES, {"limits_mib": {1: 8192}}, (4096, 8192)),
        (Sharing(mode="mps", replicas=11, mps_manager="host"), {}, (4188, 4188)),
    ],
)
def test_limits_of_a_client(sharing, options, limits):
    assert desired(sharing, **options).daemons[0].limits_mib == limits


def test_one_daemon_for_each_gpu():
    daemons = desired(scope="gpu").daemons
    assert [daemon.name for daemon in daemons] == ["gpu0", "gpu1"]
    assert [daemon.devices for daemon in daemons] == [("GPU-0",), ("GPU-1",)]
    assert len({daemon.pipe_directory for daemon in daemons}) == 2


def test_one_daemon_for_each_mig_device():
    gpu = {
        **RAW[0],
        "board": "h100-80gb-sxm",
        "mig": {"current": True},
        "gpu_instances": [
            {
                "id": 1,
                "memory_mib": 40448,
                "compute_instances": [
                    {"id": 0, "profile": "2c.3g.40gb", "uuid": "MIG-a"},
                    {"id": 1, "profile": "1c.3g.40gb", "uuid": "MIG-b"},
                ],
            }
        ],
    }
    daemons = desired(gpus=[seen_gpu(gpu)], scope="instance").daemons
    assert [daemon.name for daemon in daemons] == ["mig0-1-0", "mig0-1-1"]
    with pytest.raises(Refused, match="nvidia_sharing_mps_scope: GPU 0 is in MIG mode"):
        desired(gpus=[seen_gpu(gpu)], scope="gpu")
    with pytest.raises(Refused, match="this host has none"):
        desired(scope="instance")


def test_a_limit_for_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(Refused, match="this host has no GPU 5"):
        desired(limits_mib={5: 4096})


def test_an_environment_file_is_read_back_whole():
    for daemon in desired(multi_user=True, scope="gpu").daemons:
        text = mps_units.environment_text(daemon)
        assert mps_units.daemon_of(text) == daemon
        assert f"CUDA_VISIBLE_DEVICES={daemon.devices[0]}\n" in text
    assert mps_units.daemon_of("CUDA_MPS_PIPE_DIRECTORY=/x\n") is None
    assert mps_units.daemon_of("# {not json\n") is None


def test_the_unit_names_the_host_program():
    text = mps_units.unit_text("/opt/program.pyz", python="/usr/bin/python3.9")
    assert "ExecStartPost=/usr/bin/python3.9 /opt/program.pyz mps-settings %i" in text
    assert "${CUDA_MPS_PIPE_DIRECTORY}" in text
    assert mps_units.instance("gpu0") == "gpufleet-mps@gpu0.service"


def test_sharing_survives_its_record():
    sharing = desired(scope="gpu", limits_mib={0: 1024}, priority="below_normal", percentage=25.0)
    assert recorded(json.loads(json.dumps(sharing.as_dict()))) == sharing
    assert recorded(None) is None


def recorded(document):
    return view_of({"recorded": {"sharing": document}}).recorded.sharing


def _without(daemon, name):
    return {key: value for key, value in daemon.items() if key != name}


@pytest.mark.parametrize(
    ("change", "read"),
    [
        # Of a release before protocol 3 and shared memory.
        (lambda one: _without(_without(one, "protocol"), "shm_directory"), True),
        (lambda one: {**one, "of_a_newer_release": [1]}, True),
        (lambda one: _without(one, "devices"), False),
        (lambda one: {**one, "devices": "GPU-0"}, False),
        (lambda one: {**one, "multi_user": "no"}, False),
        (lambda one: {**one, "percentage": "25"}, False),
        (lambda one: {**one, "pipe_directory": "/run\n"}, False),
        (lambda _one: [], False),
    ],
)
def test_a_record_is_read_whole_or_not_at_all(change, read):
    sharing = desired(scope="gpu")
    record = sharing.as_dict()
    record["daemons"][1] = change(record["daemons"][1])
    assert recorded(record) == (sharing if read else UNREADABLE)
    assert recorded({**sharing.as_dict(), "schema": 2}) is UNREADABLE


def test_the_daemon_of_a_node_is_where_the_plugin_looks_for_the_resource():
    (plain,) = desired().daemons
    (renamed,) = desired(dataclasses.replace(SLICES, rename=True)).daemons
    assert plain.pipe_directory == f"{ROOT}/nvidia.com/gpu/pipe"
    assert renamed.pipe_directory == f"{ROOT}/nvidia.com/gpu.shared/pipe"
    # The name is the resource's: daemons that the cluster does not see keep theirs.
    assert desired(dataclasses.replace(SLICES, rename=True), scope="gpu") == desired(scope="gpu")


POD = {"pod": "team/notebook", "resource": "nvidia.com/gpu.shared"}
SERVED = "pod team/notebook (nvidia.com/gpu.shared)"


def test_a_daemon_whose_gpu_was_given_to_a_pod_is_not_ended_though_no_client_runs():
    before, after = desired(), HostSharing(compute_mode="default")
    (daemon,) = before.daemons
    facts = {
        "recorded": {"sharing": before.as_dict()},
        "mps": [{"pipe_directory": daemon.pipe_directory, "responds": True}],
    }
    gpus = [seen_gpu({**gpu, "compute_mode": before.compute_mode, "allocations": [POD]}) for gpu in RAW]
    state = from_facts(seen(facts), gpus)
    with pytest.raises(
        Refused, match=r"its clients: pod team/notebook \(nvidia.com/gpu.shared\).*mps_disruption: force"
    ):
        sharing_plan.plan(state, after)
    (stop,) = [one for one in sharing_plan.plan(state, after, "force").steps if one.kind.key == "stop_mps_daemon"]
    assert stop.disturbs == (SERVED,)
    silent = from_facts(seen({**facts, "mps": []}), gpus)
    assert not silent.daemons[0].pods, "what does not run serves nobody"
    assert actions(sharing_plan.plan(silent, after))


@pytest.mark.parametrize(
    ("on_gpu", "on_part", "expected"),
    [
        ((), (POD,), (SERVED,)),
        ((), (), ()),
        (({"reason": "half written"},), (POD,), (SERVED, "unknown (half written)")),
    ],
)
def test_the_pods_of_a_daemon_of_an_instance(on_gpu, on_part, expected):
    parts = [{"id": 0, "uuid": "MIG-a", "allocations": on_part}, {"id": 1, "uuid": "MIG-b", "allocations": [POD]}]
    gpu = seen_gpu({"uuid": "GPU-0", "allocations": on_gpu, "gpu_instances": [{"id": 1, "compute_instances": parts}]})
    daemon = dataclasses.replace(desired().daemons[0], devices=("MIG-a",))
    assert names(pods_of(daemon, [gpu])) == expected
    assert pods_of(dataclasses.replace(daemon, devices=("GPU-7",)), [gpu]) == ()


def test_a_new_name_moves_the_daemon_and_spares_its_clients():
    before, after = desired(), desired(dataclasses.replace(SLICES, rename=True))
    with pytest.raises(Refused, match=r"its clients: MPS client \(PID 812\)"):
        sharing_plan.plan(observed(before, clients=(812,)), after)
    assert actions(sharing_plan.plan(observed(before), after)) == [
        ("stop_mps_daemon", "node"),
        ("start_mps_daemon", "node"),
        ("record_sharing", "sharing"),
    ]


def test_only_clients_in_pods_have_shared_memory_of_their_own():
    assert [daemon.shm_directory for daemon in desired().daemons] == [SHM]
    assert [daemon.shm_directory for daemon in desired(scope="gpu").daemons] == ["", ""]


def test_a_daemon_with_other_shared_memory_than_its_clients_is_started_anew():
    sharing = desired()
    (found,) = observed(sharing).daemons
    state = dataclasses.replace(observed(sharing, clients=()), daemons=(dataclasses.replace(found, shm=False),))
    assert actions(sharing_plan.plan(state, sharing, "force")) == [
        ("stop_mps_daemon", "node"),
        ("start_mps_daemon", "node"),
    ]


@pytest.mark.parametrize(
    ("options", "branch", "can", "architecture", "multi_user"),
    [
        # Pods of a node come from tenants that run as different users.
        ({}, 580, None, "ada", True),
        ({}, None, None, None, True),
        ({}, 535, None, "ada", False),
        ({}, 550, None, "ada", False),
        # The program on the host knows better than its number.
        ({}, 580, False, "ada", False),
        ({}, 580, True, "pascal", False),
        ({"multi_user": False}, 580, True, "ada", False),
        ({"multi_user": True}, 580, True, "ada", True),
        ({"scope": "gpu"}, 580, True, "ada", False),
        ({"scope": "gpu", "multi_user": True}, 580, True, "ada", True),
        ({"scope": "gpu", "protocol": 3}, 615, True, "ada", True),
    ],
)
def test_who_shares_a_server(options, branch, can, architecture, multi_user):
    gpus = [gpu.but(architecture=architecture) for gpu in GPUS]
    found = host_sharing(with_options(**options), gpus, branch, can)
    assert {daemon.multi_user for daemon in found.daemons} == {multi_user}


def test_several_users_on_gpus_that_cannot_are_refused():
    gpus = [GPUS[0].but(architecture="pascal")]
    with pytest.raises(Refused, match="nvidia_sharing_mps_multi_user: GPU 0 is of the pascal architecture"):
        desired(gpus=gpus, multi_user=True)


@pytest.mark.parametrize(
    ("sharing", "branch", "text"),
    [
        (with_options(), 535, "The MPS daemon of this host serves one user ID at a time"),
        (with_options(), 535, "555 or later"),
        (with_options(), 580, None),
        (with_options(scope="gpu"), 580, "set nvidia_sharing_mps_multi_user: true"),
        (Sharing(mode="mps", replicas=4), 580, "The MPS daemon of the device plugin serves one user ID at a time"),
        # Accepted, or nothing to accept.
        (with_options(multi_user=False), 535, None),
        (Sharing(mode="mps", replicas=4, host=HostOptions(multi_user=False)), 580, None),
        (Sharing(mode="time_slicing", replicas=4), 580, None),
        (Sharing(), 580, None),
    ],
)
def test_one_user_at_a_time_is_said_where_nobody_accepted_it(sharing, branch, text):
    said = one_user_at_a_time(sharing, host_sharing(sharing, GPUS, branch))
    assert said is None if text is None else text in said


def mig_gpu(*devices):
    instances = [
        {
            "id": number,
            "memory_mib": memory,
            "compute_instances": [{"id": 0, "profile": profile, "uuid": f"MIG-{number}"}],
        }
        for number, (profile, memory) in enumerate(devices)
    ]
    hopper = {"board": "h100-80gb-sxm", "architecture": "hopper", "mig": {"current": True}}
    return seen_gpu({**RAW[0], **hopper, "gpu_instances": instances})


@pytest.mark.parametrize(
    ("replicas", "branch", "refused"),
    [
        (6, 580, None),
        (
            7,
            580,
            "1g.10gb, 1 of the 7 compute slices of its GPU with driver branch 580 allows at most 6 clients, not 7",
        ),
        (8, 595, None),
        (9, 595, "1g.10gb, 1 of the 7 compute slices of its GPU, allows at most 8 clients, not 9"),
        (40, 580, "at most 6 clients, not 40"),
    ],
)
def test_clients_of_a_mig_device(replicas, branch, refused):
    gpu = mig_gpu(("3g.40gb", 40448), ("1g.10gb", 9984))
    sharing = Sharing(mode="mps", replicas=replicas, mps_manager="host")
    if refused is None:
        assert len(desired(sharing, [gpu], branch, scope="instance").daemons) == 2
        return
    with pytest.raises(Refused, match=f"nvidia_sharing_replicas on GPU 0: .*{refused}"):
        desired(sharing, [gpu], branch, scope="instance")


def test_a_slice_is_what_one_client_gets_where_nobody_counts_clients():
    # Nine slices of 1 GiB fit, six clients can have one each.
    (daemon,) = desired(
        dataclasses.replace(SLICES, slice_mib=1024), [mig_gpu(("1g.10gb", 9984))], 580, scope="instance"
    ).daemons
    assert daemon.limits_mib == (1024,)


def test_compute_slices_of_a_board_that_the_table_does_not_know():
    gpu = mig_gpu(("1g.24gb", 24000)).but(board=None, name="NVIDIA Next")
    sharing = Sharing(mode="mps", replicas=12, mps_manager="host")
    with pytest.raises(Refused, match="1 of the 7 compute slices"):
        desired(sharing, [gpu], 580, scope="instance")
    offered = gpu.but(profiles=tuple(ProfileFacts(name, 0, 0) for name in ("1g.24gb", "4g.96gb")))
    assert desired(sharing, [offered], 580, scope="instance").daemons


@pytest.mark.parametrize(
    ("replicas", "branch", "refused"), [(48, 580, False), (49, 580, True), (60, 590, False), (61, 590, True)]
)
def test_clients_of_a_whole_gpu(replicas, branch, refused):
    gpus = [gpu.but(architecture="volta") for gpu in GPUS]
    sharing = Sharing(mode="mps", replicas=replicas, mps_manager="host")
    if refused:
        with pytest.raises(Refused, match=f"a GPU of the volta architecture.* at most .* clients, not {replicas}"):
            desired(sharing, gpus, branch)
    else:
        assert desired(sharing, gpus, branch).daemons


def test_what_the_clients_of_the_plugins_daemon_get_is_the_plugins_arithmetic():
    limits = client_limits(Sharing(mode="mps", replicas=11), 0, L40S)
    assert (limits.memory_mib, limits.percentage) == (4188, 9)
