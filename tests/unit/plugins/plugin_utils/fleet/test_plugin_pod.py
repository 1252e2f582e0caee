# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A device plugin that runs, and whose pods get nothing all the same."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.plugin_pod import check, mps_check, mps_limits_check
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

SYS_ADMIN = {"capabilities": {"add": ["SYS_ADMIN"]}}


def plugin(strategy="cdi-cri", context=None, runtime_class="nvidia", name="nvidia-device-plugin-ctr", **environment):
    """The pod that the chart makes."""
    given = {"MPS_ROOT": "/run/nvidia/mps", "CONFIG_FILE": "/config/config.yaml", **environment}
    if strategy:
        given["DEVICE_LIST_STRATEGY"] = strategy
    container = {
        "name": name,
        "env": [{"name": key, "value": value} for key, value in given.items() if value],
        "securityContext": SYS_ADMIN if context is None else context,
        "volumeMounts": [{"name": "dir", "mountPath": "/var/lib/kubelet/device-plugins"}],
    }
    spec = {"containers": [{"name": "nvidia-device-plugin-sidecar"}, container]}
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    return {"metadata": {"namespace": "nvidia-gpu", "name": "plugin-1"}, "spec": spec}


def host(envvar=False, mounts=False, containerd="2.1.5", default="runc"):
    return {
        "toolkit": {"accept_envvar_unprivileged": envvar, "accept_volume_mounts": mounts},
        "runtimes": {"containerd": {"version": containerd, "active": True, "default_runtime": default}},
    }


@pytest.mark.parametrize(
    ("pod", "facts"),
    [
        (plugin(), host()),
        (plugin("volume-mounts"), host(mounts=True, containerd="1.6.20")),
        (plugin("envvar", {}), host(envvar=True)),
        (plugin("envvar,cdi-cri"), host()),
        (plugin("cdi-annotations,cdi-cri", {"privileged": True}, name="nvidia-device-plugin"), host(envvar=True)),
        (plugin(runtime_class=None), host(default="nvidia")),
        (plugin(), {}),
    ],
)
def test_what_fits(pod, facts):
    assert check([pod], seen(facts)).status == "passed"


@pytest.mark.parametrize(
    ("pod", "facts", "evidence"),
    [
        (plugin("envvar"), host(), "hands devices over by envvar, which the host's container toolkit"),
        (plugin("volume-mounts"), host(), "hands devices over by volume-mounts"),
        (plugin(), host(mounts=True, containerd="1.6.20"), "hands devices over by cdi-cri"),
        (plugin(None, CONFIG_FILE=""), host(), "hands devices over by envvar"),
        (
            plugin(context={"capabilities": {"drop": ["ALL"]}}),
            host(),
            "sees no driver: the host's container toolkit accepts",
        ),
        (plugin(runtime_class=None), host(), "sees no driver: it has no runtime class"),
    ],
)
def test_what_leaves_pods_without_their_gpu(pod, facts, evidence):
    found = check([pod], seen(facts))
    assert found.status == "failed"
    assert evidence in found.evidence
    assert "nvidia-gpu/plugin-1" in found.evidence
    assert "nvidia_toolkit_device_injection" in found.next_step


def test_what_cannot_be_judged_says_so():
    assert check([], seen(host())).status == "skipped"
    assert check([plugin(None)], seen(host())).evidence.endswith("only in its configuration file")
    tenant = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "nvidia-device-plugin-ctr"}]}}
    assert check([tenant], seen(host())).evidence == "no device plugin runs on the node"


@pytest.mark.parametrize(
    ("resources", "pipes", "status", "evidence"),
    [
        (["nvidia.com/gpu"], ["/run/nvidia/mps/nvidia.com/gpu/pipe"], "passed", "gpu/pipe"),
        (["nvidia.com/gpu.shared"], ["/run/nvidia/mps/nvidia.com/gpu.shared/pipe"], "passed", "gpu.shared/pipe"),
        (
            ["nvidia.com/gpu.shared"],
            ["/run/nvidia/mps/nvidia.com/gpu/pipe"],
            "failed",
            "clients look for the MPS daemon at /run/nvidia/mps/nvidia.com/gpu.shared/pipe, and daemons serve /run/nvidia/mps/nvidia.com/gpu/pipe",
        ),
        (["nvidia.com/gpu"], [], "failed", "no MPS daemon runs"),
    ],
)
def test_the_pipe_of_the_name_that_is_offered(resources, pipes, status, evidence):
    found = mps_check(
        [plugin()], resources, seen({"mps": [{"pipe_directory": pipe, "responds": True} for pipe in pipes]}).mps
    )
    assert found.status == status
    assert evidence in found.evidence


def test_a_daemon_that_does_not_answer():
    daemon = {"pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe", "responds": False}
    assert "does not answer" in mps_check([plugin()], ["nvidia.com/gpu"], seen({"mps": [daemon]}).mps).evidence
    assert mps_check([], ["nvidia.com/gpu"], seen({"mps": [daemon]}).mps).status == "skipped"


def plugins_daemon(**changes):
    """Of 2 x H100 80GB in ten slices."""
    pipe = "/run/nvidia/mps/nvidia.com/gpu/pipe"
    daemon = {
        "pipe_directory": pipe,
        "in_container": True,
        "responds": True,
        "percentage": 10.0,
        "limits": ["7G", "7G"],
    }
    return {"gpus": [{"index": index, "memory_mib": 81559} for index in range(2)], "mps": [{**daemon, **changes}]}


@pytest.mark.parametrize(
    ("changes", "status", "evidence"),
    [
        ({}, "passed", "follow from the pool's replicas"),
        ({"limits": ["7G", "1G"]}, "failed", "gpu/pipe limits a client to 1G on GPU 1 instead of 8155 MiB"),
        ({"limits": ["", "7G"]}, "failed", "limits no client on GPU 0"),
        ({"percentage": 100.0}, "failed", "gives a client 100 % of the threads instead of 10 %"),
        ({"responds": False}, "failed", "no MPS daemon of the device plugin answers at /run/nvidia/mps"),
        ({"in_container": False}, "failed", "no MPS daemon of the device plugin runs at /run/nvidia/mps"),
        ({"limits": None}, "skipped", "did not report its limits"),
    ],
)
def test_the_limits_of_the_device_plugins_own_daemon(changes, status, evidence):
    found = mps_limits_check({"nvidia.com/gpu": 10}, seen(plugins_daemon(**changes)))
    assert found.status == status
    assert evidence in found.evidence
    assert bool(found.next_step) is (status == "failed")


def test_a_plugin_with_a_root_of_its_own_is_not_called_dead():
    elsewhere = mps_limits_check({"nvidia.com/gpu": 10}, seen({"mps": []}), [plugin(MPS_ROOT="/srv/mps")])
    assert (elsewhere.status, "/srv/mps" in elsewhere.evidence) == ("skipped", True)
    assert mps_limits_check({"nvidia.com/gpu": 10}, seen({"mps": []}), [plugin()]).status == "failed"


def test_a_gpu_that_fell_off_the_bus_moves_no_limit_to_another():
    found = plugins_daemon(limits=["7G", "1G"])
    found["gpus"][0] = {"index": 0, "lost": True}
    assert "on GPU 1 instead of" in mps_limits_check({"nvidia.com/gpu": 10}, seen(found)).evidence


def test_a_daemon_of_the_plugin_is_none_of_the_host():
    daemon = {"pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe", "in_container": True, "responds": True}
    assert "no MPS daemon runs" in mps_check([plugin()], ["nvidia.com/gpu"], seen({"mps": [daemon]}).mps).evidence
