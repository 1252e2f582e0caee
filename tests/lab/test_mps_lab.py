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
#: Where the device plugin looks when it offers nvidia.com/gpu.shared.
RENAMED = "/run/nvidia/mps/nvidia.com/gpu.shared/pipe"
SHM = "/run/nvidia/mps/shm"
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
    assert "steps" in answer, answer.get("msg", answer)
    return [f"{step['kind']} {step['target']}" for step in answer["steps"]]


def settled(fleet, host, desired):
    """Apply a desired state, see that a second run finds nothing to do, and return the steps of the first."""
    done = steps(fleet.module(host, "mps", desired))
    again = fleet.module(host, "mps", desired)
    assert steps(again) == []
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


def shared_memory(fleet, host, name="node"):
    """Type and options of what is mounted for pods, and whether the daemon has it as its /dev/shm."""
    mounted = fleet.lab.sh(host, f"findmnt --noheadings --output FSTYPE,OPTIONS --mountpoint {SHM} || true").split()
    pid = unit(fleet, host, name, "MainPID")
    same = fleet.lab.sh(host, f"stat -c %d:%i /proc/{pid}/root/dev/shm {SHM} | sort -u | wc -l").strip() == "1"
    return mounted[0] if mounted else None, set(mounted[1].split(",")) if mounted else set(), same


def with_control_in_between(fleet, host, script):
    """Put a shell script between the callers and the real control program, C("$real")."""
    fleet.lab.sh(
        host,
        f"""
test -e {CONTROL}.real || mv {CONTROL} {CONTROL}.real
cat > {CONTROL}.new <<'END'
#!/bin/sh
real={CONTROL}.real
{script}
END
chmod 0755 {CONTROL}.new
mv {CONTROL}.new {CONTROL}
""",
    )


def control_as_it_was(fleet, host):
    fleet.lab.sh(host, f"mv {CONTROL}.real {CONTROL}; rm -f /run/late")


#: Everything but the two lists goes to the real control program.
CLIENTS = """
test $# -eq 0 || exec "$real" "$@"
read -r asked
case "$asked" in
    get_server_list) echo 4711 ;;
    "get_client_list 4711") echo 4712 ;;
    *) echo "$asked" | exec "$real" ;;
esac
"""

#: As if the daemon did not answer yet: before /run/late is that many seconds old, its words for "there is none".
LATE = """
case " $* " in *" -d "*) touch /run/late; exec "$real" "$@" ;; esac
if test $(( $(date +%s) - $(stat -c %Y /run/late) )) -lt 8; then
    echo "Cannot find MPS control daemon process" >&2
    exit 1
fi
exec "$real" "$@"
"""


def wait(what, seconds=180.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.3)


def test_check_mode_starts_nothing(fleet):
    before = fleet.facts(WHOLE)
    planned = fleet.module(WHOLE, "mps", SLICE, "--check")
    assert planned["changed"]
    assert "start_mps_daemon node" in steps(planned)
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


def test_pods_get_shared_memory_of_mps_and_not_the_hosts(fleet):
    fs, options, same = shared_memory(fleet, WHOLE)
    assert (fs, same) == ("tmpfs", True)
    assert {"nosuid", "nodev", "noexec", "rw"} <= options
    # What the device plugin mounts into pods as /dev/shm is that of the daemon, and holds nothing of the host's.
    pid = unit(fleet, WHOLE, "node", "MainPID")
    fleet.lab.sh(WHOLE, f"touch /dev/shm/of-the-host; touch /proc/{pid}/root/dev/shm/of-the-daemon")
    assert fleet.lab.sh(WHOLE, f"ls {SHM}").split() == ["of-the-daemon"]
    assert "of-the-daemon" not in fleet.lab.sh(WHOLE, "ls /dev/shm")
    # A user other than root can use it, as a tenant's pod does.
    assert fleet.lab.sh(WHOLE, f"stat -c %a {SHM}").strip() == "1777"


def test_a_daemon_whose_clients_have_other_shared_memory_is_replaced(fleet):
    daemon = unit(fleet, WHOLE, "node", "MainPID")
    fleet.lab.sh(WHOLE, f"umount {SHM}")
    assert settled(fleet, WHOLE, SLICE) == ["stop_mps_daemon node", "start_mps_daemon node"]
    assert unit(fleet, WHOLE, "node", "MainPID") != daemon
    assert shared_memory(fleet, WHOLE)[0::2] == ("tmpfs", True)


@pytest.mark.by_name
def test_a_host_that_shared_its_own_memory_does_not_any_more(fleet):
    # As this collection left hosts before: a bind mount, no drop-in, and a daemon that knows of no memory of its own.
    fleet.lab.sh(
        WHOLE,
        """
systemctl stop gpufleet-mps@node.service run-nvidia-mps-shm.mount
rm -r /etc/systemd/system/gpufleet-mps@node.service.d
sed -i 's/, "shm_directory": "[^"]*"//' /etc/gpufleet/mps/node.env
unit=/etc/systemd/system/run-nvidia-mps-shm.mount
sed -i -e 's/^What=.*/What=\\/dev\\/shm/' -e 's/^Type=.*/Type=none/' -e 's/^Options=.*/Options=bind/' $unit
systemctl daemon-reload
systemctl start run-nvidia-mps-shm.mount gpufleet-mps@node.service
touch /dev/shm/of-the-host
""",
    )
    assert "of-the-host" in fleet.lab.sh(WHOLE, f"ls {SHM}"), "the old state"
    assert settled(fleet, WHOLE, SLICE)[:2] == ["stop_mps_daemon node", "start_mps_daemon node"]
    fs, options, same = shared_memory(fleet, WHOLE)
    assert (fs, same) == ("tmpfs", True)
    assert "noexec" in options
    assert fleet.lab.sh(WHOLE, f"ls {SHM}") == ""


@pytest.mark.by_name
def test_a_renamed_resource_has_the_daemon_in_the_directory_of_its_name(fleet):
    desired = {**SLICE, "rename": True}
    assert settled(fleet, WHOLE, desired)[:2] == ["stop_mps_daemon node", "start_mps_daemon node"]
    assert settings(fleet, WHOLE, 2, RENAMED) == ("100.0", "0", "4G", "4G")
    assert not answers(fleet, WHOLE, NODE)
    assert [daemon["pipe_directory"] for daemon in fleet.facts(WHOLE)["mps"]] == [RENAMED]
    assert fleet.module(WHOLE, "health")["healthy"]
    fleet.lab.run("reboot", WHOLE)
    wait(lambda: answers(fleet, WHOLE, RENAMED))
    assert not fleet.module(WHOLE, "mps", desired)["changed"]


@pytest.mark.by_name
def test_a_new_name_does_not_end_a_daemon_with_clients_unless_allowed__clients_answered_by_a_stand_in(fleet):
    with_control_in_between(fleet, WHOLE, CLIENTS)
    try:
        daemon = unit(fleet, WHOLE, "node", "MainPID")
        refused = fleet.module(WHOLE, "mps", SLICE)
        assert "4712" in refused["refusals"][0]["reason"]
        assert unit(fleet, WHOLE, "node", "MainPID") == daemon
        assert answers(fleet, WHOLE, RENAMED)
    finally:
        control_as_it_was(fleet, WHOLE)
    settled(fleet, WHOLE, SLICE)
    assert answers(fleet, WHOLE) and not answers(fleet, WHOLE, RENAMED)


@pytest.mark.by_name
def test_a_daemon_that_is_late_is_waited_for__its_silence_by_a_stand_in(fleet):
    with_control_in_between(fleet, WHOLE, LATE)
    try:
        # Late when it was started: its settings are told when it answers.
        fleet.lab.sh(WHOLE, "systemctl stop gpufleet-mps@node.service")
        assert settled(fleet, WHOLE, SLICE) == ["start_mps_daemon node"]
        assert settings(fleet, WHOLE, 2) == ("100.0", "0", "4G", "4G")
        # Late on a host that is busy: it is not taken for dead, and nobody ends its clients by starting it anew.
        daemon = unit(fleet, WHOLE, "node", "MainPID")
        fleet.lab.sh(WHOLE, "touch /run/late")
        assert not fleet.module(WHOLE, "mps", SLICE)["changed"]
        assert unit(fleet, WHOLE, "node", "MainPID") == daemon
    finally:
        control_as_it_was(fleet, WHOLE)


def test_one_user_at_a_time_is_said(fleet):
    # Debian's 535 has no multi-user server, so that auto is one user at a time.
    fleet.lab.sh(WHOLE, "systemctl stop gpufleet-mps@node.service")
    fleet.module(WHOLE, "mps", SLICE)
    assert "serves one user ID at a time" in fleet.shown
    command_line = fleet.lab.sh(WHOLE, f"tr '\\0' ' ' < /proc/{unit(fleet, WHOLE, 'node', 'MainPID')}/cmdline")
    assert command_line.split() == [CONTROL, "-d"]
    fleet.lab.sh(WHOLE, "systemctl stop gpufleet-mps@node.service")
    accepted = fleet.module(WHOLE, "mps", {**SLICE, "multi_user": False})
    assert accepted["changed"] and "serves one user ID at a time" not in fleet.shown, accepted


def test_other_limits_reach_the_daemon_without_a_restart(fleet):
    daemon = unit(fleet, WHOLE, "node", "MainPID")
    assert settled(fleet, WHOLE, OTHER) == ["set_mps_defaults node", "record_sharing sharing"]
    assert settings(fleet, WHOLE, 2) == ("25.0", "1", "6G", "8G")
    assert unit(fleet, WHOLE, "node", "MainPID") == daemon


def test_what_somebody_set_by_hand_is_set_back(fleet):
    ask(fleet, WHOLE, "set_default_device_pinned_mem_limit 0 1G")
    assert fleet.module(WHOLE, "health")["healthy"], "what it gives to clients is a matter of its description"
    assert settled(fleet, WHOLE, OTHER) == ["set_mps_defaults node"]
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


def test_a_dead_daemon_is_started(fleet):
    fleet.lab.sh(WHOLE, "systemctl stop gpufleet-mps@node.service")
    assert settled(fleet, WHOLE, OTHER) == ["start_mps_daemon node"]
    assert fleet.module(WHOLE, "health")["healthy"]


def test_a_daemon_for_each_gpu_takes_the_place_of_the_one(fleet):
    desired = {**OTHER, "scope": "gpu"}
    done = settled(fleet, WHOLE, desired)
    assert done[0] == "stop_mps_daemon node"
    assert not answers(fleet, WHOLE)
    # Their clients run on the host, with its shared memory.
    assert shared_memory(fleet, WHOLE, "gpu0")[0::2] == (None, False)
    assert settings(fleet, WHOLE, 1, "/run/nvidia/mps/gpu0/pipe") == ("25.0", "1", "6G")
    assert settings(fleet, WHOLE, 1, "/run/nvidia/mps/gpu1/pipe") == ("25.0", "1", "8G")


def test_a_release_without_multi_user_server_or_protocol_3_is_known_before_anything_is_touched(fleet):
    daemon = unit(fleet, WHOLE, "gpu0", "MainPID")
    refused = fleet.module(WHOLE, "mps", {**OTHER, "scope": "gpu", "multi_user": True})
    assert refused["refusals"][0]["thing"] == "nvidia_sharing_mps_multi_user"
    third = fleet.module(WHOLE, "mps", {**OTHER, "scope": "gpu", "multi_user": True, "protocol": 3})
    assert third["refusals"][0]["thing"] == "nvidia_sharing_mps_protocol"
    assert unit(fleet, WHOLE, "gpu0", "MainPID") == daemon


def test_a_daemon_with_clients_is_not_ended_unless_allowed__clients_answered_by_a_stand_in(fleet):
    with_control_in_between(fleet, WHOLE, CLIENTS)
    try:
        daemon = unit(fleet, WHOLE, "gpu0", "MainPID")
        refused = fleet.module(WHOLE, "mps", {"mode": "none"})
        assert "4712" in refused["refusals"][0]["reason"]
        assert "nvidia_sharing_mps_disruption: force" in refused["msg"]
        # Limits are told to the daemon while it has clients; the server keeps the old ones, and the module says so.
        fleet.module(WHOLE, "mps", {**OTHER, "scope": "gpu", "priority": "normal"})
        assert "keeps its old limits until its clients end: MPS client (PID 4712)" in " ".join(fleet.shown.split())
        assert unit(fleet, WHOLE, "gpu0", "MainPID") == daemon
        forced = fleet.module(WHOLE, "mps", {"mode": "none", "disruption": "force"}, "--check")
        assert "MPS client (PID 4712)" in forced["steps"][0]["disturbs"]
    finally:
        control_as_it_was(fleet, WHOLE)


def test_whole_gpus_again(fleet):
    settled(fleet, WHOLE, {"mode": "none"})
    assert modes(fleet, WHOLE) == ["Default"] * 2
    assert fleet.facts(WHOLE)["mps"] == []
    assert fleet.lab.status(WHOLE, f"mountpoint --quiet {SHM}") != 0, "nobody needs the shared memory any more"
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
        assert refused["refusals"][0]["thing"].startswith("GPU 1")
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
        assert refused["refusals"][0]["thing"] == "nvidia_sharing_mps_manager"
        assert "is another MPS control daemon" in refused["msg"]
        assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/mine nvidia-cuda-mps-control" in refused["msg"]
        assert modes(fleet, WHOLE) == ["Default"] * 2
        assert answers(fleet, WHOLE, "/tmp/mine")
    finally:
        fleet.lab.sh(WHOLE, f"echo quit | {mine} {CONTROL}")


def test_time_slices(fleet):
    desired = {"mode": "time_slicing", "replicas": 4, "time_slice": "long"}
    assert "set_time_slice gpus" in settled(fleet, WHOLE, desired)
    assert "Long" in fleet.lab.sh(WHOLE, "nvidia-smi compute-policy -l")
    fleet.lab.run("reboot", WHOLE)
    assert "Long" in fleet.lab.sh(WHOLE, "nvidia-smi compute-policy -l")
    settled(fleet, WHOLE, {"mode": "none"})


def test_a_daemon_for_each_mig_device(fleet):
    layout = {"layout": [{"devices": "all", "instances": {"3g.40gb": 1, "1g.10gb": 2}}], "strategy": "mixed"}
    fleet.module(DIVIDED, "mig", layout)
    refused = fleet.module(DIVIDED, "mps", {**SLICE, "scope": "node"})
    assert "nvidia_sharing_mps_scope: instance" in refused["refusals"][0]["remedy"]
    desired = {"mode": "mps", "manager": "host", "replicas": 2, "scope": "instance"}
    # 48 clients of a GPU of seven compute slices are 6 of one slice.
    crowded = fleet.module(DIVIDED, "mps", {**desired, "replicas": 7})
    assert "the MIG device 1g.10gb, 1 of the 7 compute slices of its GPU" in crowded["refusals"][0]["reason"]
    assert "at most 6 clients, not 7" in crowded["refusals"][0]["reason"]
    settled(fleet, DIVIDED, {**desired, "replicas": 6})
    settled(fleet, DIVIDED, desired)
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
