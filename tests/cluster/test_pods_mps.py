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


def test_without_a_cuda_client_the_limits_that_the_daemon_of_release_535_says_to_pods_are_the_described_ones(
    demo, pods
):
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


def test_without_policies_a_pod_without_a_gpu_that_mounts_the_hosts_directory_reaches_the_daemon(demo):
    """The policies refuse the hostPath, and Pod Security does."""
    mounts = {"/mps": "/run/nvidia/mps", "/bin/control": "/usr/bin/nvidia-cuda-mps-control"}
    container = {
        "name": "main",
        "image": demo.example(EXAMPLE)["spec"]["containers"][0]["image"],
        "command": ["sh", "-c", f"echo {PERCENTAGE} | CUDA_MPS_PIPE_DIRECTORY={IN_POD} /bin/control"],
        "volumeMounts": [{"name": f"v{number}", "mountPath": path} for number, path in enumerate(mounts)],
    }
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "containers": [container],
        "volumes": [{"name": f"v{number}", "hostPath": {"path": path}} for number, path in enumerate(mounts.values())],
    }
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reaches-mps"}, "spec": spec}
    demo.kubectl("create", "-f", "-", text=json.dumps(item))
    try:
        demo.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", "pod/reaches-mps")
        assert demo.kubectl("logs", "reaches-mps").strip() == "100.0"
    finally:
        demo.kubectl("delete", "pod", "reaches-mps", "--force", "--grace-period=0")


def test_without_a_cuda_client_after_a_power_cut_the_daemon_of_release_535_says_the_same_limits_to_pods(demo):
    """The daemon is there before its clients are; those that ran fail, as the kubelet has it, and are replaced."""
    item = demo.staying(demo.example(EXAMPLE))
    del item["spec"]["restartPolicy"]
    template = {"metadata": {"labels": {"survives": "a-power-cut"}}, "spec": item["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "survives"}, "spec": spec}
    demo.kubectl("create", "-f", "-", text=json.dumps(deployment))

    def running():
        """Name and start of the container, once it is ready."""
        return [
            (pod["metadata"]["name"], one["state"]["running"]["startedAt"])
            for pod in demo.get("pods", "-l", "survives")["items"]
            for one in pod["status"].get("containerStatuses", [])
            if one["ready"] and not pod["metadata"].get("deletionTimestamp")
        ]

    try:
        before = wait_for(running, 120)
        demo.lab("power-cut", NODE)
        ((name, _started),) = wait_for(lambda: [one for one in running() if one not in before], 400)
        assert (ask(demo, name, PERCENTAGE), ask(demo, name, LIMIT)) == ("100.0", "4G")
        inode = "stat -c %i {}/control"
        assert inside(demo, name, inode.format(IN_POD)) == on_host(demo, inode.format(ON_HOST))
        expected = demo.capacity["nodes"][NODE]["resources"]
        wait_for(lambda: demo.offered()[NODE] == expected, 120)
    finally:
        demo.kubectl("delete", "deployment", "survives", "--cascade=foreground", "--grace-period=1")
