# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MPS that the host runs: the real nvidia-cuda-mps-control of Debian (535), real systemd, virtual GPUs.

The tests run in order: each begins with what the one before left. What the daemon was told is read back from the daemon, with a
control program that the test calls, and not from what the module says. No process can be a client of MPS without a GPU; the one
test that needs a client says in its name that the answer about clients is not the daemon's.
"""

from __future__ import annotations

import os
import time

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

WHOLE, DIVIDED = "mps-whole", "mps-divided"
NODE = "/run/nvidia/mps/nvidia.com/gpu/pipe"
CONTROL = "/usr/bin/nvidia-cuda-mps-control"
SLICE = {"mode": "mps", "manager": "host", "memory_slice": "4GiB"}
#: Other limits, another percentage, another priority, and one GPU that differs.
OTHER = {
    **SLICE,
    "memory_slice": "6GiB",
    "active_thread_percentage": 25,
    "priority": "below_normal",
    "limits": [{"gpu": 1, "memory": "8GiB"}],
}


@pytest.fixture(scope="module")
def fleet(make_fleet):
    made = make_fleet(
        "faults-mps",
        {"name": WHOLE, "group": "shared", "boards": [{"board": "l40s", "count": 2}], "driver": "installed"},
        {
            "name": DIVIDED,
            "group": "divided",
            "boards": [{"board": "h100-80gb-sxm", "count": 1}],
            "driver": "installed",
        },
    )
    for host in (WHOLE, DIVIDED):
        assert made.module(host, "host_program")["changed"]
    return made


def steps(answer):
    assert "plan" in answer, answer.get("msg", answer)
    return [f"{step['action']} {step['target']}" for step in answer["plan"]["steps"]]


def settled(fleet, host, wish):
    """Apply a wish, see that a second run finds nothing to do, and return the steps of the first."""
    done = steps(fleet.module(host, "mps", wish))
    again = fleet.module(host, "mps", wish)
    assert not again["changed"], steps(again)
    return done


def ask(fleet, host, text, pipe=NODE):
    """One command to the daemon, on the standard input of the real control program."""
    return fleet.lab.sh(host, f"echo '{text}' | CUDA_MPS_PIPE_DIRECTORY={pipe} {CONTROL}").strip()


def settings(fleet, host, devices, pipe=NODE):
    """Percentage, priority and the limit of each device, as the daemon says them."""
    return (
        ask(fleet, host, "get_default_active_thread_percentage", pipe),
        ask(fleet, host, "get_default_client_priority", pipe),
        *(ask(fleet, host, f"get_default_device_pinned_mem_limit {ordinal}", pipe) for ordinal in range(devices)),
    )


def answers(fleet, host, pipe=NODE):
    script = f"echo get_default_active_thread_percentage | CUDA_MPS_PIPE_DIRECTORY={pipe} {CONTROL}"
    return fleet.lab.status(host, script) == 0


def unit(fleet, host, name, what):
    return fleet.lab.sh(host, f"systemctl show --value --property={what} gpufleet-mps@{name}.service").strip()


def modes(fleet, host):
    shown = fleet.lab.sh(host, "nvidia-smi --query-gpu=compute_mode --format=csv,noheader")
    return [line.strip() for line in shown.splitlines()]


def wait(what, seconds=180.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.3)


def test_check_mode_starts_nothing(fleet):
    before = fleet.facts(WHOLE)
    planned = fleet.module(WHOLE, "mps", SLICE, "--check")
    assert planned["changed"]
    assert "start MPS daemon node" in steps(planned)
    assert planned["sharing"]["compute_mode"] == "exclusive_process"
    assert fleet.facts(WHOLE) == before
    assert fleet.lab.status(WHOLE, "test -e /etc/gpufleet/mps -o -e /etc/gpufleet/sharing.json") != 0


def test_the_daemon_has_the_limits_and_the_gpus_are_its_own(fleet):
    settled(fleet, WHOLE, SLICE)
    assert settings(fleet, WHOLE, 2) == ("100.0", "0", "4G", "4G")
    assert modes(fleet, WHOLE) == ["Exclusive_Process"] * 2
    facts = fleet.facts(WHOLE)
    assert [(daemon["pipe_directory"], daemon["responds"]) for daemon in facts["mps"]] == [(NODE, True)]
    devices = fleet.lab.sh(WHOLE, f"tr '\\0' '\\n' < /proc/{unit(fleet, WHOLE, 'node', 'MainPID')}/environ")
    assert f"CUDA_VISIBLE_DEVICES={','.join(gpu['uuid'] for gpu in facts['gpus'])}" in devices.splitlines()
    # What the device plugin mounts into pods as /dev/shm is the shared memory of the servers.
    assert fleet.lab.sh(WHOLE, "touch /dev/shm/seen; ls /run/nvidia/mps/shm").split() == ["seen"]


def test_other_limits_reach_the_daemon_without_a_restart(fleet):
    daemon = unit(fleet, WHOLE, "node", "MainPID")
    assert settled(fleet, WHOLE, OTHER) == ["set MPS defaults node", "record the sharing of this host"]
    assert settings(fleet, WHOLE, 2) == ("25.0", "1", "6G", "8G")
    assert unit(fleet, WHOLE, "node", "MainPID") == daemon


def test_what_somebody_set_by_hand_is_set_back(fleet):
    ask(fleet, WHOLE, "set_default_device_pinned_mem_limit 0 1G")
    assert settled(fleet, WHOLE, OTHER) == ["set MPS defaults node"]
    assert settings(fleet, WHOLE, 2) == ("25.0", "1", "6G", "8G")


def test_a_killed_daemon_comes_back_with_the_same_limits(fleet):
    daemon = unit(fleet, WHOLE, "node", "MainPID")
    fleet.lab.sh(WHOLE, f"kill -9 {daemon}")
    wait(lambda: unit(fleet, WHOLE, "node", "MainPID") not in (daemon, "0"))
    wait(lambda: unit(fleet, WHOLE, "node", "ActiveState") == "active")
    assert settings(fleet, WHOLE, 2) == ("25.0", "1", "6G", "8G")
    assert not fleet.module(WHOLE, "mps", OTHER)["changed"]


def test_it_is_there_again_after_a_power_cut(fleet):
    fleet.lab.run("power-cut", WHOLE)
    wait(lambda: answers(fleet, WHOLE))
    assert settings(fleet, WHOLE, 2) == ("25.0", "1", "6G", "8G")
    assert modes(fleet, WHOLE) == ["Exclusive_Process"] * 2
    assert not fleet.module(WHOLE, "mps", OTHER)["changed"]
    assert fleet.module(WHOLE, "health")["healthy"]


def test_health_tells_a_dead_daemon_and_the_next_step(fleet):
    fleet.lab.sh(WHOLE, "systemctl stop gpufleet-mps@node.service")
    answer = fleet.module(WHOLE, "health")
    assert answer["failed_check"] == "sharing"
    assert "the recorded MPS daemon node does not run" in answer["msg"]
    assert "gpufleet-mps@node.service" in answer["msg"]
    assert settled(fleet, WHOLE, OTHER) == ["start MPS daemon node"]
    assert fleet.module(WHOLE, "health")["healthy"]


def test_a_daemon_for_each_gpu_takes_the_place_of_the_one(fleet):
    wish = {**OTHER, "scope": "gpu"}
    done = settled(fleet, WHOLE, wish)
    assert done[0] == "stop MPS daemon node"
    assert not answers(fleet, WHOLE)
    assert settings(fleet, WHOLE, 1, "/run/nvidia/mps/gpu0/pipe") == ("25.0", "1", "6G")
    assert settings(fleet, WHOLE, 1, "/run/nvidia/mps/gpu1/pipe") == ("25.0", "1", "8G")


def test_a_release_without_multi_user_server_or_protocol_3_is_known_before_anything_is_touched(fleet):
    daemon = unit(fleet, WHOLE, "gpu0", "MainPID")
    refused = fleet.module(WHOLE, "mps", {**OTHER, "scope": "gpu", "multi_user": True})
    assert refused["refusal"]["thing"] == "nvidia_sharing_mps_multi_user"
    third = fleet.module(WHOLE, "mps", {**OTHER, "scope": "gpu", "multi_user": True, "protocol": 3})
    assert third["refusal"]["thing"] == "nvidia_sharing_mps_protocol"
    assert unit(fleet, WHOLE, "gpu0", "MainPID") == daemon


def test_a_daemon_with_clients_is_not_ended_unless_allowed__clients_answered_by_a_stand_in(fleet):
    # Everything but the two lists goes to the real control program.
    fleet.lab.sh(
        WHOLE,
        f"""
mv {CONTROL} {CONTROL}.real
cat > {CONTROL} <<'END'
#!/bin/sh
test $# -eq 0 || exec {CONTROL}.real "$@"
read -r asked
case "$asked" in
    get_server_list) echo 4711 ;;
    "get_client_list 4711") echo 4712 ;;
    *) echo "$asked" | exec {CONTROL}.real ;;
esac
END
chmod 0755 {CONTROL}
""",
    )
    try:
        daemon = unit(fleet, WHOLE, "gpu0", "MainPID")
        refused = fleet.module(WHOLE, "mps", {"mode": "none"})
        assert "4712" in refused["refusal"]["reason"]
        assert "nvidia_sharing_mps_disruption: force" in refused["msg"]
        # Limits are told to the daemon while it has clients; the server keeps the old ones, and the module says so.
        told = fleet.module(WHOLE, "mps", {**OTHER, "scope": "gpu", "priority": "normal"})
        assert any("keeps its old limits until its clients end: 4712" in text for text in told["plan"]["warnings"])
        assert unit(fleet, WHOLE, "gpu0", "MainPID") == daemon
        forced = fleet.module(WHOLE, "mps", {"mode": "none", "disruption": "force"}, "--check")
        assert "MPS client 4712" in forced["plan"]["steps"][0]["disturbs"]
    finally:
        fleet.lab.sh(WHOLE, f"mv {CONTROL}.real {CONTROL}")


def test_whole_gpus_again(fleet):
    settled(fleet, WHOLE, {"mode": "none"})
    assert modes(fleet, WHOLE) == ["Default"] * 2
    assert fleet.facts(WHOLE)["mps"] == []
    assert fleet.lab.sh(WHOLE, "ls /etc/gpufleet/mps; systemctl --plain --no-legend list-units 'gpufleet-mps@*'") == ""
    fleet.lab.run("reboot", WHOLE)
    assert modes(fleet, WHOLE) == ["Default"] * 2
    assert fleet.facts(WHOLE)["mps"] == []


def test_gpus_that_others_compute_on_are_not_made_exclusive(fleet):
    fleet.lab.sh(WHOLE, "systemd-run --unit=foreign sleep 600")
    pid = fleet.lab.sh(WHOLE, "systemctl show --value --property=MainPID foreign").strip()
    fleet.lab.sh(WHOLE, f"virtual-gpu run --gpu 1 --pid {pid} --memory 512 --type C")
    try:
        refused = fleet.module(WHOLE, "mps", SLICE)
        assert refused["refusal"]["thing"].startswith("GPU 1")
        assert pid in refused["msg"]
        assert modes(fleet, WHOLE) == ["Default"] * 2
    finally:
        fleet.lab.sh(WHOLE, f"virtual-gpu stop --pid {pid}; systemctl stop foreign")


def test_a_second_daemon_for_the_same_gpus_is_refused(fleet):
    mine = "CUDA_MPS_PIPE_DIRECTORY=/tmp/mine CUDA_MPS_LOG_DIRECTORY=/tmp/mine"
    fleet.lab.sh(WHOLE, f"mkdir -p /tmp/mine; {mine} {CONTROL} -d")
    try:
        wait(lambda: answers(fleet, WHOLE, "/tmp/mine"))
        refused = fleet.module(WHOLE, "mps", SLICE)
        assert refused["refusal"]["thing"] == "nvidia_sharing_mps_manager"
        assert "is another MPS control daemon" in refused["msg"]
        assert modes(fleet, WHOLE) == ["Default"] * 2
        assert answers(fleet, WHOLE, "/tmp/mine")
    finally:
        fleet.lab.sh(WHOLE, f"echo quit | {mine} {CONTROL}")


def test_time_slices(fleet):
    wish = {"mode": "time_slicing", "replicas": 4, "time_slice": "long"}
    assert "set time slice all GPUs" in settled(fleet, WHOLE, wish)
    assert "Long" in fleet.lab.sh(WHOLE, "nvidia-smi compute-policy -l")
    fleet.lab.run("reboot", WHOLE)
    assert "Long" in fleet.lab.sh(WHOLE, "nvidia-smi compute-policy -l")
    settled(fleet, WHOLE, {"mode": "none"})


def test_a_daemon_for_each_mig_device(fleet):
    layout = {"layout": [{"devices": "all", "instances": {"3g.40gb": 1, "1g.10gb": 2}}], "strategy": "mixed"}
    fleet.module(DIVIDED, "mig", layout)
    refused = fleet.module(DIVIDED, "mps", {**SLICE, "scope": "node"})
    assert "nvidia_sharing_mps_scope: instance" in refused["refusal"]["remedy"]
    wish = {"mode": "mps", "manager": "host", "replicas": 2, "scope": "instance"}
    settled(fleet, DIVIDED, wish)
    gpu = fleet.facts(DIVIDED)["gpus"][0]
    instances = gpu["gpu_instances"]
    assert len(instances) == 3
    for instance in instances:
        name = f"mig0-{instance['id']}-0"
        limit = instance["memory_mib"] // 2
        text = f"{limit // 1024}G" if limit >= 1024 else f"{limit}M"
        assert settings(fleet, DIVIDED, 1, f"/run/nvidia/mps/{name}/pipe") == ("100.0", "0", text)
        environment = fleet.lab.sh(DIVIDED, f"tr '\\0' '\\n' < /proc/{unit(fleet, DIVIDED, name, 'MainPID')}/environ")
        assert f"CUDA_VISIBLE_DEVICES={instance['compute_instances'][0]['uuid']}" in environment.splitlines()


def test_instances_and_their_daemons_are_there_again_after_a_reboot(fleet):
    before = [part["profile"] for part in fleet.facts(DIVIDED)["gpus"][0]["gpu_instances"]]
    fleet.lab.run("reboot", DIVIDED)
    facts = fleet.facts(DIVIDED)
    assert [part["profile"] for part in facts["gpus"][0]["gpu_instances"]] == before
    assert sorted(daemon["responds"] for daemon in facts["mps"]) == [True] * 3
    assert not fleet.module(DIVIDED, "mps", {"mode": "mps", "manager": "host", "replicas": 2, "scope": "instance"})[
        "changed"
    ]


def test_health_tells_a_missing_instance_and_the_next_step(fleet):
    gone = fleet.facts(DIVIDED)["gpus"][0]["gpu_instances"][-1]["id"]
    settled(fleet, DIVIDED, {"mode": "none"})
    fleet.lab.sh(DIVIDED, f"nvidia-smi mig -dci -gi {gone} -i 0; nvidia-smi mig -dgi -gi {gone} -i 0")
    answer = fleet.module(DIVIDED, "health")
    assert answer["failed_check"] == "mig", answer["msg"]
    assert "nvidia_mig" in answer["msg"]


def test_health_tells_a_driver_that_is_not_the_described_one_and_the_next_step(fleet):
    loaded = fleet.facts(WHOLE)["driver"]["loaded_version"]
    answer = fleet.module(WHOLE, "health", {"expect": {"driver_version": "570.211.01"}})
    assert answer["failed_check"] == "driver"
    assert loaded in answer["msg"] and "570.211.01" in answer["msg"] and "nvidia_driver" in answer["msg"]
