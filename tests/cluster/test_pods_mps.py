# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods of a pool with the host's MPS daemon: where they find it, and what it says to them. Two of them, of different users.

The control program in the containers is NVIDIA's, of release 535 (Debian's): the toolkit puts the host's there.
"""

from __future__ import annotations

import json

import pytest
from demo import wait_for

NODE, EXAMPLE = "gpu-shared-1", "shared-gpu"
#: The first is the rendered example's.
USERS = (65532, 2000)
#: Where the plugin mounts the daemon's directory of its resource, and where that is on the host.
IN_POD, ON_HOST = "/mps/nvidia.com/gpu/pipe", "/run/nvidia/mps/nvidia.com/gpu/pipe"
SHM = "/run/nvidia/mps/shm"
PERCENTAGE = "get_default_active_thread_percentage"
LIMIT = "get_default_device_pinned_mem_limit 0"


@pytest.fixture(scope="module")
def pods(demo):
    """A pod of each user, by its user."""
    names = {}
    for number, user in enumerate(USERS):
        item = demo.staying(demo.example(EXAMPLE), number)
        item["spec"]["securityContext"].update(runAsUser=user, runAsGroup=user)
        demo.kubectl("create", "-f", "-", text=json.dumps(item))
        names[user] = item["metadata"]["name"]
    try:
        wait_for(lambda: [pod["status"]["phase"] for pod in demo.pods(EXAMPLE)] == ["Running"] * len(USERS), 120)
        yield names
    finally:
        demo.kubectl("delete", "pods", "-l", f"example={EXAMPLE}", "--force", "--grace-period=0")


def inside(demo, pod, script):
    return demo.kubectl("exec", pod, "--", "sh", "-c", script).strip()


def ask(demo, pod, command):
    """One command to the daemon from inside of the container, by the pipe that its environment names."""
    return inside(demo, pod, f"echo '{command}' | nvidia-cuda-mps-control")


def on_host(demo, script):
    return demo.lab("exec", NODE, "--", "sh", "-c", script).strip()


@pytest.mark.parametrize("user", USERS)
def test_the_pod_is_told_of_the_pipe_and_has_the_hosts_daemon_in_it(demo, pods, user):
    pod = pods[user]
    assert inside(demo, pod, "id -u") == str(user)
    assert inside(demo, pod, "echo $CUDA_MPS_PIPE_DIRECTORY") == IN_POD
    inode = "stat -c %i {}/control"
    assert inside(demo, pod, inode.format(IN_POD)) == on_host(demo, inode.format(ON_HOST))


def test_the_limits_that_the_daemon_says_to_pods_are_the_described_ones(demo, pods):
    """Of a slice of 4 GiB and no percentage, the same to both users, as on the host."""
    for pod in pods.values():
        assert (ask(demo, pod, PERCENTAGE), ask(demo, pod, LIMIT)) == ("100.0", "4G")


def test_the_shared_memory_is_that_of_mps_and_no_other_of_the_host(demo, pods):
    first, second = pods.values()
    inside(demo, first, "touch /dev/shm/of-a-client")
    try:
        assert "of-a-client" in inside(demo, second, "ls /dev/shm").split(), "all clients of a server have the same"
        assert "of-a-client" in on_host(demo, f"ls {SHM}").split()
        assert "of-a-client" not in on_host(demo, "ls /dev/shm")
    finally:
        inside(demo, first, "rm /dev/shm/of-a-client")


def test_limits_are_no_wall_against_a_pod_that_tells_the_daemon_others(demo, pods):
    """NVIDIA's daemon takes them from every user who reaches its pipe, which all its clients must. The role's README says so."""
    first, second = pods.values()
    try:
        ask(demo, second, "set_default_device_pinned_mem_limit 0 40G")
        assert ask(demo, first, LIMIT) == "40G"
    finally:
        ask(demo, second, "set_default_device_pinned_mem_limit 0 4G")
    assert ask(demo, first, LIMIT) == "4G"
