# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every kind of pool, by every way in which devices reach containers: on a node whose containerd injects CDI devices, on one whose containerd
cannot and is given volume mounts, and on one that accepts the environment variable, as NVIDIA ships it.

There is a node of each way, and they are pools of different kinds. By default each way has one of MIG; a whole run has every kind by every way.
Whole GPUs, time slices and MPS are by default in C(test_nodes) and C(test_memory_shares). The hosts are changed
from one kind to the next as a site changes them: other variables, site, the rendered tree synced. After each change the nodes offer what
capacity.json says, and have its labels; the rendered example runs until they are full, and its containers see exactly theirs.
N GiB over M GPUs is shown with time slices. The device plugin 0.19, the newest that can be built here, refuses a container that asks for two
slices of MPS whatever its configuration says (C(internal/rm/rm.go), C(ValidateRequest)); 0.20 does not (its pull request 1762).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.clients import LABEL, PAUSED
from demo import devices, wait_for
from pool_nodes import PoolNodes, nonzero

#: What they differ in. The lab's own inventory says volume_mounts for the one with containerd 1.6.
POOLS: dict[str, dict[str, Any]] = {
    "mounts": {},
    "cdi": {},
    "variable": {"nvidia_toolkit_device_injection": "envvar"},
}
HOSTS = {pool: [f"node-{pool}"] for pool in POOLS}
PLUGIN = "app.kubernetes.io/name=nvidia-device-plugin"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


@dataclass(frozen=True)
class Kind:
    """A kind of pool.

    :param variables: that describe it.
    :param resources: that a node with 2 x H100 80GB then offers.
    :param examples: rendered ones, without the pool's name, to how many devices a container is given. They are for the first of the resources.
    :param shares: how many containers are given the same device.
    """

    variables: dict[str, Any]
    resources: dict[str, int]
    examples: dict[str, int]
    shares: int = 1

    @property
    def mig(self) -> bool:
        return "nvidia_mig_strategy" in self.variables


REQUESTS = "gpu_kubernetes_requests"
SLICES = {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 3}
OVER_TWO = {
    "nvidia_sharing_mode": "time_slicing",
    "nvidia_sharing_memory_slice": "20GiB",
    "nvidia_sharing_gpus_per_pod": 2,
    REQUESTS: [{"memory": "40GiB", "gpus": 2}],
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
    "whole GPUs": Kind(WHOLE, {GPU: 2}, {"gpu": 1}),
    "time slicing, N GiB over M GPUs": Kind(OVER_TWO, {GPU: 6}, {"gpu": 1, "40gib-over-2": 2}, shares=3),
    "time slicing, renamed": Kind({**SLICES, "nvidia_sharing_rename": True}, {SHARED: 6}, {"gpu-shared": 1}, shares=3),
    "MPS by the host": Kind(HOST, {GPU: 6}, {"gpu": 1}, shares=3),
    "MPS by the host, renamed": Kind({**HOST, "nvidia_sharing_rename": True}, {SHARED: 6}, {"gpu-shared": 1}, shares=3),
    "MPS by the device plugin": Kind(MPS, {GPU: 6}, {"gpu": 1}, shares=3),
}


@dataclass(frozen=True)
class Nodes(PoolNodes):
    """The nodes, which one set of variables after the other describes.

    :param own: what the pools differ in.
    """

    own: Mapping[str, dict[str, Any]] = field(default_factory=lambda: POOLS)

    def describe(
        self, variables: Mapping[str, Any], of_pools: Mapping[str, Any] | None = None, without: tuple[str, ...] = ()
    ) -> None:
        given = {pool: {**own, **(of_pools or {}).get(pool, {})} for pool, own in self.own.items()}
        super().describe(variables, given, without)

    def switch(self, kind: Kind, **more: Any) -> None:
        """Make all of them pools of this kind.

        :param more: variables besides those of the kind.
        """
        self.switch_each(dict.fromkeys(self.pools, kind), **more)

    def switch_each(self, kinds: Mapping[str, Kind], **more: Any) -> None:
        """Make each pool one of its kind."""
        with_mig = {pool: self._has_mig(pool) for pool in kinds}
        paused = [host for pool, kind in kinds.items() if kind.mig != with_mig[pool] for host in self.pools[pool]]
        # What was said of a layout before is not taken back by saying nothing.
        of_pools = {
            pool: {**(WHOLE if with_mig[pool] and not kind.mig else {}), **kind.variables, **more}
            for pool, kind in kinds.items()
        }
        if paused:
            # Nobody who has a GPU open survives a change of MIG.
            self.kubectl("label", "nodes", *paused, f"{LABEL}={PAUSED}")
            wait_for(lambda: not set(paused) & self._plugin_nodes(), 120)
        # An option of the cluster, which all its pools have alike.
        requests = {name: value for one in of_pools.values() for name, value in one.items() if name == REQUESTS}
        self.describe(requests, of_pools)
        self.play("site")
        if paused:
            self.kubectl("label", "nodes", *paused, f"{LABEL}-")
        self.sync(
            mps=any("nvidia_sharing_mode" in one and one["nvidia_sharing_mode"] == "mps" for one in of_pools.values())
        )
        expected = {host: kind.resources for pool, kind in kinds.items() for host in self.pools[pool]}
        assert self.expected() == expected, "what is rendered"
        self.offers_what_is_rendered()

    def _has_mig(self, pool: str) -> bool:
        return any("MIG " in self.lab("exec", host, "--", "nvidia-smi", "-L") for host in self.pools[pool])

    def _plugin_nodes(self) -> set[str]:
        found = self.get("pods", "-n", "nvidia-gpu", "-l", PLUGIN)["items"]
        return {pod["spec"].get("nodeName") for pod in found}

    def become(self, variables: dict[str, Any], *arguments: str) -> None:
        """Describe the pools, change the hosts, render, and bring the cluster to what is rendered."""
        self.describe(variables)
        self.play("site", *arguments)
        self.sync(mps=variables.get("nvidia_sharing_mode") == "mps")

    def sync(self, mps: bool) -> None:
        """Bring the cluster to what is rendered."""
        self.lab("charts", str(self.tree))
        if mps:
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

    def shows_its_labels(self, node: str) -> None:
        """gpu-feature-discovery writes them after the plugin has come, and Node Feature Discovery reads them once a minute."""
        expected = self.expected_labels(node)
        with contextlib.suppress(AssertionError):
            wait_for(lambda: expected.items() <= self.labels(node).items(), 150)
        found = self.labels(node)
        assert {name: found.get(name) for name in expected} == expected


@pytest.fixture(scope="module")
def nodes(make_pools):
    return make_pools(HOSTS, kind=Nodes)


#: In an order in which three that are as far from each other as they can be are one of MIG, one of whole GPUs or time slices, and one of MPS.
_ORDER = (
    *("MIG mixed", "whole GPUs", "MPS by the host"),
    *("MIG single", "time slicing, N GiB over M GPUs", "MPS by the device plugin"),
    *("MIG mixed, time slices of one profile", "time slicing, renamed", "MPS by the host, renamed"),
)
#: Each has a kind for every pool; after the first three every kind was there, after all of them by every way.
ROUNDS = [
    {pool: _ORDER[(number + 3 * place) % len(_ORDER)] for place, pool in enumerate(POOLS)}
    for number in range(len(_ORDER))
]


#: The one of MIG.
BY_DEFAULT = 0


def test_by_default_each_way_has_a_kind_of_mig_and_in_a_whole_run_every_kind():
    assert sorted(_ORDER) == sorted(KINDS)
    assert all(KINDS[kind].mig for kind in ROUNDS[BY_DEFAULT].values())
    assert sorted(kind for one in ROUNDS[:3] for kind in one.values()) == sorted(KINDS)
    assert {way: {one[way] for one in ROUNDS} for way in POOLS} == {way: set(KINDS) for way in POOLS}


@pytest.mark.parametrize(
    "kinds",
    [pytest.param(one, marks=[pytest.mark.by_name] * (number != BY_DEFAULT)) for number, one in enumerate(ROUNDS)],
    ids=[", ".join(f"{pool}: {kind}" for pool, kind in one.items()) for one in ROUNDS],
)
def test_a_pod_gets_exactly_what_was_described(nodes, kinds):
    nodes.switch_each({pool: KINDS[kind] for pool, kind in kinds.items()})
    with ThreadPoolExecutor(max_workers=len(POOLS)) as pool:
        list(pool.map(lambda name: fill(nodes, KINDS[kinds[name]], name), POOLS))
    for pool in POOLS:
        nodes.shows_its_labels(f"node-{pool}")


@pytest.mark.by_name
def test_verify_is_red_where_somebody_told_the_plugins_mps_daemon_other_limits(nodes):
    """And green again when the daemon's pod was made anew, as it says."""
    nodes.switch(KINDS["MPS by the device plugin"])

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
    wait_for(lambda: limits()["node-mounts"]["status"] == "passed", 240)


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


@pytest.fixture(scope="module")
def named(nodes):
    """The nodes with sharing that a label of the node chooses."""
    nodes.become(NAMED)
    nodes.offers_what_is_rendered()
    return nodes


@pytest.mark.by_name
def test_the_plugin_has_no_privilege_where_every_container_may_name_its_devices(named):
    """And the one capability elsewhere; each of them offered and gave out what was described above."""
    # The same release has gpu-feature-discovery and the MPS daemon, which its chart makes privileged.
    contexts = {
        item["metadata"]["name"].rpartition("-")[2]: container.get("securityContext", {})
        for item in named.get("daemonsets", "-n", "nvidia-gpu")["items"]
        for container in item["spec"]["template"]["spec"]["containers"]
        if container["name"] == "nvidia-device-plugin-ctr"
    }
    assert not [pool for pool, context in contexts.items() if context.get("privileged")]
    added = {pool: context.get("capabilities", {}).get("add", []) for pool, context in contexts.items()}
    assert added == {"mounts": ["SYS_ADMIN"], "cdi": ["SYS_ADMIN"], "variable": []}


@pytest.mark.by_name
def test_a_node_chooses_its_sharing_by_a_label_and_verify_follows_it(named):
    """The plugin's own config-manager reads the label. NFD puts back what the inventory chose, and leaves alone what it did not."""
    nodes = named
    assert nodes.expected() == {f"node-{pool}": {GPU: 8} for pool in POOLS}

    nodes.kubectl("label", "node", "node-cdi", f"{CONFIG}=renamed")
    wait_for(lambda: nonzero(nodes.offered()["node-cdi"]) == {SHARED: 6}, 180)
    assert nonzero(nodes.offered()["node-mounts"]) == {GPU: 8}
    chosen = verified(nodes)
    assert chosen["node-cdi"] == {"configuration": "passed", "allocatable": "passed"}
    assert chosen["node-mounts"] == {"allocatable": "passed"}

    # What runs keeps its configuration when the name does not exist, and the node is red.
    nodes.kubectl("label", "node", "node-cdi", "--overwrite", f"{CONFIG}=renamde")
    assert verified(nodes)["node-cdi"]["configuration"] == "failed"
    nodes.kubectl("label", "node", "node-cdi", f"{CONFIG}-")
    nodes.kubectl("delete", "pods", "-n", "nvidia-gpu", "-l", PLUGIN)
    wait_for(lambda: nonzero(nodes.offered()["node-cdi"]) == {GPU: 8}, 180)

    nodes.describe(NAMED, {"cdi": {"gpu_kubernetes_sharing_configuration": "renamed"}})
    # The hosts have nothing of it.
    nodes.play("render")
    nodes.lab("charts", str(nodes.tree))
    wait_for(lambda: nodes.labels("node-cdi").get(CONFIG) == "renamed", 150)
    wait_for(lambda: nonzero(nodes.offered()["node-cdi"]) == {SHARED: 6}, 180)
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
