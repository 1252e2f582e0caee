# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every kind of pool, by every way in which devices reach containers: on a node whose containerd injects CDI devices, on one whose containerd
cannot and is given volume mounts, and on one that accepts the environment variable, as NVIDIA ships it.

The hosts are changed from one kind to the next as a site changes them: other variables, site, the rendered tree synced. After each
change the nodes offer what capacity.json says, and have its labels; the rendered example runs until they are full, and its containers see
exactly theirs.
N GiB over M GPUs is shown with time slices. The device plugin 0.19, the newest that can be built here, refuses a container that asks for two
slices of MPS whatever its configuration says (C(internal/rm/rm.go), C(ValidateRequest)); 0.20 does not (its pull request 1762).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.clients import LABEL, PAUSED
from demo import Demo, wait_for
from test_nodes import devices

SPEC = {
    "hosts": [
        {
            "name": f"node-{pool}",
            "group": pool,
            "boards": [{"board": "h100-80gb-sxm", "count": 2}],
            "driver": "installed",
        }
        | {"node": node}
        for pool, node in (("mounts", "containerd-1.6"), ("cdi", "containerd-2.4"), ("variable", "containerd-2.4"))
    ]
}
#: What they differ in. The lab's own inventory says volume_mounts for the one with containerd 1.6.
POOLS: dict[str, dict[str, Any]] = {
    "mounts": {},
    "cdi": {},
    "variable": {"nvidia_toolkit_device_injection": "envvar"},
}
COMMON = {
    "nvidia_driver_branch": "580",
    "nvidia_driver_state": "unmanaged",
    "nvidia_toolkit_version": "1.20.0",
    "gpu_kubernetes_cluster": "demo",
}
PLUGIN = "app.kubernetes.io/name=nvidia-device-plugin"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


@dataclass(frozen=True)
class Kind:
    """A kind of pool.

    :param variables: that describe it.
    :param resources: that a node with 2 x H100 80GB then offers.
    :param examples: rendered ones, without the pool's name, to how many devices a container is given. They are for the first of the resources.
    :param shares: how many containers are given the same device.
    :param mode_changes: whether MIG is switched off for it, which nobody who has a GPU open survives.
    """

    variables: dict[str, Any]
    resources: dict[str, int]
    examples: dict[str, int]
    shares: int = 1
    mode_changes: bool = False


SLICES = {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 3}
OVER_TWO = {
    "nvidia_sharing_mode": "time_slicing",
    "nvidia_sharing_memory_slice": "20GiB",
    "nvidia_sharing_gpus_per_pod": 2,
    "gpu_kubernetes_requests": [{"memory": "40GiB", "gpus": 2}],
}
MPS = {"nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "20GiB"}
HOST = {**MPS, "nvidia_sharing_mps_manager": "host"}
MIXED = {
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}],
}
WHOLE = {"nvidia_mig_layout": [{"devices": "all", "enabled": False}]}
SINGLE = {"nvidia_mig_strategy": "single", "nvidia_mig_layout": [{"devices": "all", "instances": {"2g.20gb": 3}}]}
KINDS = {
    "MIG mixed": Kind(
        MIXED,
        {"nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-3g.40gb": 2},
        {"mig-1g-10gb": 1},
    ),
    # The resource that no number is given for is not shared.
    "MIG mixed, time slices of one profile": Kind(
        {**MIXED, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": {"nvidia.com/mig-1g.10gb": 2}},
        {"nvidia.com/mig-1g.10gb": 8, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-3g.40gb": 2},
        {"mig-1g-10gb": 1},
        shares=2,
    ),
    "MIG single": Kind(SINGLE, {GPU: 6}, {"gpu": 1}),
    "whole GPUs": Kind(WHOLE, {GPU: 2}, {"gpu": 1}, mode_changes=True),
    "time slicing, N GiB over M GPUs": Kind(OVER_TWO, {GPU: 6}, {"gpu": 1, "40gib-over-2": 2}, shares=3),
    "time slicing, renamed": Kind({**SLICES, "nvidia_sharing_rename": True}, {SHARED: 6}, {"gpu-shared": 1}, shares=3),
    "MPS by the host": Kind(HOST, {GPU: 6}, {"gpu": 1}, shares=3),
    "MPS by the host, renamed": Kind({**HOST, "nvidia_sharing_rename": True}, {SHARED: 6}, {"gpu-shared": 1}, shares=3),
    "MPS by the device plugin": Kind(MPS, {GPU: 6}, {"gpu": 1}, shares=3),
}


@dataclass(frozen=True)
class Nodes(Demo):
    """The nodes, which one set of variables after the other describes.

    :param pools: of one node each, named after it, and what they differ in.
    """

    pools: Mapping[str, dict[str, Any]] = field(default_factory=lambda: POOLS)

    def describe(self, variables: dict[str, Any], **of_pool: dict[str, Any]) -> None:
        children = {pool: {"vars": {**own, **of_pool.get(pool, {})}} for pool, own in self.pools.items()}
        hosts = {"gpu_hosts": {"vars": {**COMMON, **variables}, "children": children}}
        self.inventory.write_text(json.dumps(hosts))

    def switch(self, kind: Kind, **more: Any) -> None:
        """Make it a pool of this kind.

        :param more: variables besides those of the kind.
        """
        variables = {**kind.variables, **more}
        if kind.mode_changes:
            self.kubectl("label", "nodes", "--all", f"{LABEL}={PAUSED}")
            wait_for(lambda: not self.get("pods", "-n", "nvidia-gpu", "-l", PLUGIN)["items"], 120)
            self.describe(variables)
            self.play("site")
            self.kubectl("label", "nodes", "--all", f"{LABEL}-")
        self.become(variables)
        assert self.expected() == {f"node-{pool}": kind.resources for pool in self.pools}, "what is rendered"
        self.offers_what_is_rendered()

    def become(self, variables: dict[str, Any], *arguments: str) -> None:
        """Describe the pools, change the hosts, render, and bring the cluster to what is rendered."""
        self.describe(variables)
        self.play("site", *arguments)
        self.lab("charts", str(self.tree))
        if variables.get("nvidia_sharing_mode") == "mps":
            # A new configuration reaches the nodes of an MPS pool when somebody deletes the plugin's pods: the nodes are drained here.
            self.kubectl("delete", "pods", "-n", "nvidia-gpu", "-l", PLUGIN)
        wait_for(self.plugin_is_ready, 180)

    def plugin_is_ready(self) -> bool:
        """One plugin on each node, and none of before: what those offered stays on the node until the new ones have registered."""
        pods = self.get("pods", "-n", "nvidia-gpu", "-l", PLUGIN)["items"]
        ready = [
            pod
            for pod in pods
            for condition in pod["status"].get("conditions", [])
            if condition["type"] == "Ready"
            and condition["status"] == "True"
            and not pod["metadata"].get("deletionTimestamp")
        ]
        return len(ready) == len(pods) > 0

    def expected(self) -> dict[str, dict[str, int]]:
        return {name: node["resources"] for name, node in self.capacity["nodes"].items()}

    def offers_what_is_rendered(self) -> None:
        """A resource that was offered before stays on a node with 0."""
        wait_for(lambda: {name: _nonzero(found) for name, found in self.offered().items()} == self.expected(), 180)

    def shows_its_labels(self, node: str) -> None:
        """gpu-feature-discovery writes them after the plugin has come, and Node Feature Discovery reads them once a minute."""
        expected = self.expected_labels(node)
        with contextlib.suppress(AssertionError):
            wait_for(lambda: expected.items() <= self.labels(node).items(), 150)
        found = self.labels(node)
        assert {name: found.get(name) for name in expected} == expected


def _nonzero(resources: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in resources.items() if count}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    spec = folder / "lab.json"
    spec.write_text(json.dumps(SPEC))
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-kinds"
    found = Nodes(name, folder, folder / "inventory.json", spec)
    try:
        found.lab("down")
        found.lab("up", "--nodes", "--spec", str(spec))
        yield found
    finally:
        found.lab("down")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_pod_gets_exactly_what_was_described(nodes, kind):
    nodes.switch(kind)
    with ThreadPoolExecutor(max_workers=len(POOLS)) as pool:
        list(pool.map(lambda name: fill(nodes, kind, name), POOLS))
    for pool in POOLS:
        nodes.shows_its_labels(f"node-{pool}")


def test_verify_is_red_where_somebody_told_the_plugins_mps_daemon_other_limits(nodes):
    """And green again when the daemon's pod was made anew, as it says."""
    nodes.become(MPS)
    nodes.offers_what_is_rendered()

    def limits():
        report = nodes.folder / "verify.json"
        values = {
            "gpu_cluster_kubeconfig": nodes.lab("kubeconfig").strip(),
            "gpu_verify_capacity": str(nodes.tree / "capacity.json"),
            "gpu_verify_report": str(report),
            "gpu_verify_fail": False,
        }
        nodes.play("verify", "-e", json.dumps(values))
        found = json.loads(report.read_text())
        return {
            name: check for name, host in found.items() for check in host["checks"] if check["name"] == "MPS limits"
        }

    assert [check["status"] for check in limits().values()] == ["passed"] * len(POOLS)
    ask = "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia/mps/nvidia.com/gpu/pipe nvidia-cuda-mps-control"
    told = f"echo set_default_device_pinned_mem_limit 1 1G | {ask}"
    nodes.lab("exec", "node-mounts", "--", "sh", "-c", told)
    red = limits()
    assert [name for name, check in red.items() if check["status"] != "passed"] == ["node-mounts"]
    assert "limits a client to 1G on GPU 1 instead of 27186 MiB" in red["node-mounts"]["evidence"]
    assert "mps-control-daemon" in red["node-mounts"]["next_step"]

    pods = nodes.get("pods", "-n", "nvidia-gpu", "--field-selector=spec.nodeName=node-mounts")["items"]
    (daemon,) = [name for pod in pods if "mps-control-daemon" in (name := pod["metadata"]["name"])]
    nodes.kubectl("delete", "pod", "-n", "nvidia-gpu", daemon)
    wait_for(lambda: limits()["node-mounts"]["status"] == "passed", 120)


def test_the_plugin_has_no_privilege_where_every_container_may_name_its_devices(nodes):
    """And the one capability elsewhere; each of them offered and gave out what was described above."""
    nodes.become({})
    nodes.offers_what_is_rendered()
    # The same release has gpu-feature-discovery and the MPS daemon, which its chart makes privileged.
    contexts = {
        item["metadata"]["name"].rpartition("-")[2]: container.get("securityContext", {})
        for item in nodes.get("daemonsets", "-n", "nvidia-gpu")["items"]
        for container in item["spec"]["template"]["spec"]["containers"]
        if container["name"] == "nvidia-device-plugin-ctr"
    }
    assert not [pool for pool, context in contexts.items() if context.get("privileged")]
    added = {pool: context.get("capabilities", {}).get("add", []) for pool, context in contexts.items()}
    assert added == {"mounts": ["SYS_ADMIN"], "cdi": ["SYS_ADMIN"], "variable": []}


def fill(nodes: Nodes, kind: Kind, pool: str) -> None:
    for example, gpus in kind.examples.items():
        fill_with(nodes, f"{pool}-{example}", next(iter(kind.resources.values())) // gpus, gpus, kind.shares)


def fill_with(nodes: Nodes, example: str, fits: int, gpus: int, shares: int) -> None:
    """Make one pod more than the node has room for, and look into all of them."""
    nodes.fill(example, fits + 1)
    try:
        wait_for(lambda: [pod["status"]["phase"] for pod in nodes.pods(example)].count("Running") == fits, 180)
        pods = nodes.pods(example)
        assert {pod["status"]["phase"] for pod in pods} == {"Running", "Pending"}, "the next one waits"
        running = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]
        seen = {name: devices(nodes.kubectl("logs", name)) for name in running}
        assert seen == {name: devices(nodes.kubectl("exec", name, "--", "nvidia-smi", "-L")) for name in running}
        assert {len(set(found)) for found in seen.values()} == {gpus}, "the devices that it asked for, and no other"
        given = Counter(uuid for found in seen.values() for uuid in found)
        host = "node-" + example.partition("-")[0]
        assert set(given) <= set(devices(nodes.lab("exec", host, "--", "nvidia-smi", "-L")))
        assert set(given.values()) == {shares}, "evenly over the devices that it was given"
    finally:
        nodes.kubectl("delete", "pods", "-l", f"example={example}", "--force", "--grace-period=0")
        wait_for(lambda: not nodes.pods(example), 120)


CONFIG = "nvidia.com/device-plugin.config"
NAMED = {
    "gpu_kubernetes_sharing_configurations": {
        "four": {"replicas": 4},
        "renamed": {"replicas": 3, "rename": True, "gpus_per_pod": 2},
    },
    "gpu_kubernetes_sharing_default": "four",
}
VERIFIED = ("configuration", "allocatable")


def test_a_node_chooses_its_sharing_by_a_label_and_verify_follows_it(nodes):
    """The plugin's own config-manager reads the label. NFD puts back what the inventory chose, and leaves alone what it did not."""
    nodes.become(NAMED)
    nodes.offers_what_is_rendered()
    assert nodes.expected() == {f"node-{pool}": {GPU: 8} for pool in POOLS}

    nodes.kubectl("label", "node", "node-cdi", f"{CONFIG}=renamed")
    wait_for(lambda: _nonzero(nodes.offered()["node-cdi"]) == {SHARED: 6}, 180)
    assert _nonzero(nodes.offered()["node-mounts"]) == {GPU: 8}
    assert verified(nodes)["node-cdi"] == {"configuration": "passed", "allocatable": "passed"}
    assert verified(nodes)["node-mounts"] == {"allocatable": "passed"}

    # What runs keeps its configuration when the name does not exist, and the node is red.
    nodes.kubectl("label", "node", "node-cdi", "--overwrite", f"{CONFIG}=renamde")
    assert verified(nodes)["node-cdi"]["configuration"] == "failed"
    nodes.kubectl("label", "node", "node-cdi", f"{CONFIG}-")
    nodes.kubectl("delete", "pods", "-n", "nvidia-gpu", "-l", PLUGIN)
    wait_for(lambda: _nonzero(nodes.offered()["node-cdi"]) == {GPU: 8}, 180)

    nodes.describe(NAMED, cdi={"gpu_kubernetes_sharing_configuration": "renamed"})
    nodes.play("site")
    nodes.lab("charts", str(nodes.tree))
    wait_for(lambda: nodes.labels("node-cdi").get(CONFIG) == "renamed", 150)
    wait_for(lambda: _nonzero(nodes.offered()["node-cdi"]) == {SHARED: 6}, 180)
    assert verified(nodes)["node-cdi"] == {"allocatable": "passed"}
    nodes.kubectl("label", "node", "node-cdi", "--overwrite", f"{CONFIG}=four")
    # NFD watches no labels: it looks again when the features of the node change, as those of gpu-feature-discovery do by the other configuration.
    wait_for(lambda: nodes.labels("node-cdi").get(CONFIG) == "renamed", 300)


def verified(nodes: Nodes) -> dict[str, dict[str, str]]:
    """Return, by host, the status of what is to be said of the label and of what the node offers."""
    report = nodes.folder / "verify-configuration.json"
    values = {
        "gpu_cluster_kubeconfig": nodes.lab("kubeconfig").strip(),
        "gpu_verify_capacity": str(nodes.tree / "capacity.json"),
        "gpu_verify_report": str(report),
        "gpu_verify_fail": False,
    }
    nodes.play("verify", "-e", json.dumps(values))
    return {
        name: {check["name"]: check["status"] for check in host["checks"] if check["name"] in VERIFIED}
        for name, host in json.loads(report.read_text()).items()
    }
