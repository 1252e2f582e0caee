# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kinds of pools by every way in which devices reach containers, on full nodes: a reboot, a power cut, an upgrade of the driver and its
rollback, and a change of what the pool is.

After each of them the nodes offer what capacity.json says and have its labels, and every pod sees exactly its devices. Deployments hold the
pods: a driver cannot be changed under a pod, and after a reboot the kubelet fails those that it starts before the device plugin has registered.
A change of the layout is made by repartition, and evicts only the pods on instances that go; where the pool has no layout, site changes how its
GPUs are shared, and no pod goes. The three nodes, one of each way, are changed at once.

There is no CUDA client here: of MPS it is shown what NVIDIA's daemon, of release 535, says in the pods.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
import yaml
from demo import devices, wait_for
from fleet import NEW, OLD
from pool_nodes import SPEC
from test_pods_day_two import living, starts
from test_pods_mps import LIMIT, PERCENTAGE
from test_pool_kinds import GPU, HOST, HOSTS, KINDS, MIXED, MPS, OVER_TWO, POOLS, SHARED, SINGLE, SLICES, Kind, Nodes


@dataclass(frozen=True)
class Change:
    """What becomes of a kind when it is changed.

    :param variables: that describe the kind afterwards.
    :param resources: that a node then offers.
    :param going: Resource to how many of its instances on a node have to go, of those that the pods hold.
    """

    variables: dict[str, Any]
    resources: dict[str, int]
    going: dict[str, int]


NIGHT = [{"devices": "all", "instances": {"3g.40gb": 1, "1g.10gb": 4}}]
ONE_G, TWO_G, THREE_G = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb"
SLICED = KINDS["MIG mixed, time slices of one profile"].variables
RENAMED = {"nvidia_sharing_rename": True}
SMALLER = {"nvidia_sharing_memory_slice": "16GiB"}
CHANGES = {
    "MIG mixed": Change({**MIXED, "nvidia_mig_layout": NIGHT}, {ONE_G: 8, THREE_G: 2}, {TWO_G: 2}),
    "MIG mixed, time slices of one profile": Change(
        {**SLICED, "nvidia_mig_layout": NIGHT}, {ONE_G: 16, THREE_G: 2}, {TWO_G: 2}
    ),
    "MIG single": Change(
        {**SINGLE, "nvidia_mig_layout": [{"devices": "all", "instances": {"2g.20gb": 2}}]}, {GPU: 4}, {GPU: 2}
    ),
    "whole GPUs": Change(SLICES, {GPU: 6}, {}),
    "time slicing, N GiB over M GPUs": Change(
        {**OVER_TWO, **SMALLER, "gpu_kubernetes_requests": [{"memory": "32GiB", "gpus": 2}]}, {GPU: 8}, {}
    ),
    "time slicing, renamed": Change({**SLICES, **RENAMED, "nvidia_sharing_replicas": 4}, {SHARED: 8}, {}),
    "MPS by the host": Change({**HOST, **SMALLER}, {GPU: 8}, {}),
    "MPS by the host, renamed": Change({**HOST, **RENAMED, **SMALLER}, {SHARED: 8}, {}),
    "MPS by the device plugin": Change({**MPS, **SMALLER}, {GPU: 8}, {}),
}


def of_driver(version: str) -> dict[str, Any]:
    return {
        "nvidia_driver_state": "present",
        "nvidia_driver_version": version,
        "nvidia_driver_allow_vulnerable": version == OLD,
    }


@dataclass
class Full:
    """The nodes as pools of one kind, full of its pods."""

    nodes: Nodes
    kind: Kind
    change: Change

    @cached_property
    def examples(self) -> dict[str, str]:
        """Rendered example, without the pool's name, to its resource. Pods for several GPUs where the kind has them."""
        several = {name: next(iter(self.kind.resources)) for name, gpus in self.kind.examples.items() if gpus > 1}
        return several or {name.partition("/")[2].replace(".", "-"): name for name in self.kind.resources}

    def gpus(self, example: str) -> int:
        return self.kind.examples.get(example, 1)

    def count(self, example: str) -> int:
        return self.kind.resources[self.examples[example]] // self.gpus(example)

    @property
    def names(self) -> list[str]:
        return [f"{pool}-{example}" for pool in POOLS for example in self.examples]

    def deploy(self) -> None:
        items = []
        for pool in POOLS:
            for example in self.examples:
                name = f"{pool}-{example}"
                pod = self.nodes.staying(self.nodes.example(name))
                del pod["spec"]["restartPolicy"]
                labels = {"example": name}
                spec = {
                    "replicas": self.count(example),
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
                }
                items.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
        self.nodes.kubectl("create", "-f", "-", text=yaml.safe_dump_all(items))

    def alive(self) -> dict[str, list[dict[str, Any]]]:
        return {name: living(self.nodes, name) for name in self.names}

    def all_run(self) -> bool:
        wanted = {f"{pool}-{example}": self.count(example) for pool in POOLS for example in self.examples}
        return {name: len(pods) for name, pods in self.alive().items()} == wanted

    def given(self) -> dict[str, dict[str, list[str]]]:
        """What each living pod sees, by kubectl exec: rendered example to UID to devices."""
        found: dict[str, dict[str, list[str]]] = {}

        def look(name: str, pod: dict[str, Any]) -> tuple[str, str, list[str]]:
            shown = self.nodes.kubectl("exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L")
            return name, pod["metadata"]["uid"], devices(shown)

        pods = [(name, pod) for name, found in self.alive().items() for pod in found]
        with ThreadPoolExecutor(max_workers=4) as threads:
            for name, uid, seen in threads.map(lambda one: look(*one), pods):
                found.setdefault(name, {})[uid] = seen
        return found

    def present(self) -> dict[str, str]:
        """What each host has, with its UUIDs."""
        return {pool: self.nodes.lab("exec", f"node-{pool}", "--", "nvidia-smi", "-L") for pool in POOLS}

    def said(self) -> dict[str, list[str]]:
        """What the host's MPS daemon says of its limits in a pod of each pool."""
        return {
            name: [
                self.nodes.kubectl(
                    "exec", pods[0]["metadata"]["name"], "--", "sh", "-c", f"echo '{command}' | nvidia-cuda-mps-control"
                ).strip()
                for command in (PERCENTAGE, LIMIT)
            ]
            for name, pods in self.alive().items()
        }

    def check(self) -> None:
        """Everything is as the tree says, and the pods are evenly on all that the hosts have for them."""
        self.nodes.offers_what_is_rendered()
        wait_for(self.all_run, 300)
        given = self.given()
        present = self.present()
        for pool in POOLS:
            for example, resource in self.examples.items():
                seen = given[f"{pool}-{example}"].values()
                assert {len(set(found)) for found in seen} == {self.gpus(example)}, "what it asked for, and no other"
                times = Counter(uuid for found in seen for uuid in found)
                assert set(times) <= set(devices(present[pool]))
                # Only the first of the resources is shared.
                shares = self.kind.shares if resource == next(iter(self.kind.resources)) else 1
                assert set(times.values()) == {shares}, "evenly over the devices"
        if self.kind.variables.get("nvidia_sharing_mode") == "mps":
            host = self.kind.variables.get("nvidia_sharing_mps_manager") == "host"
            # The host's has the slice; the device plugin's has equal parts for all, 27186 MiB, of which the daemon tells the whole GiB.
            limits = ["100.0", "20G"] if host else ["33.0", "26G"]
            assert self.said() == dict.fromkeys(self.names, limits)
        for pool in POOLS:
            self.nodes.shows_its_labels(f"node-{pool}")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("day-two")
    spec = folder / "lab.json"
    # site installs the driver, so that it is the one to upgrade from.
    members = [host for host in SPEC["hosts"] if [host["name"]] in HOSTS.values()]
    spec.write_text(json.dumps({"hosts": [{**host, "driver": "none"} for host in members]}))
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-days"
    found = Nodes(name, folder, folder / "inventory.json", spec, pools=HOSTS)
    try:
        yield found
    finally:
        found.lab("down")


@pytest.fixture(scope="module")
def with_mig() -> list[bool]:
    """Whether the hosts that there are have MIG: nothing of that is switched under the device plugin here."""
    return []


@pytest.fixture(scope="module", params=CHANGES)
def full(nodes, with_mig, request) -> Iterator[Full]:
    kind = KINDS[request.param]
    if with_mig != ["nvidia_mig_layout" in kind.variables]:
        nodes.boot()
        with_mig[:] = ["nvidia_mig_layout" in kind.variables]
    nodes.switch(kind, **of_driver(OLD))
    found = Full(nodes, kind, CHANGES[request.param])
    found.deploy()
    try:
        found.check()
        yield found
    finally:
        nodes.kubectl("delete", "deployments", *found.names, "--cascade=foreground", "--grace-period=1")
        wait_for(lambda: not any(nodes.pods(name) for name in found.names), 120)


@pytest.mark.parametrize("event", ["reboot", "power-cut"])
def test_the_nodes_offer_the_same_again_and_every_pod_has_its_devices(full, event):
    present = full.present()
    started = {pod["metadata"]["name"]: starts(pod) for pods in full.alive().values() for pod in pods}
    with ThreadPoolExecutor(max_workers=len(POOLS)) as threads:
        list(threads.map(lambda pool: full.nodes.lab(event, f"node-{pool}"), POOLS))

    def started_again() -> bool:
        # What the API server says of before the reboot is not what runs.
        now = [pod for pods in full.alive().values() for pod in pods]
        return not any(started.get(pod["metadata"]["name"]) == starts(pod) for pod in now)

    wait_for(lambda: full.all_run() and started_again(), 400)
    full.check()
    assert full.present() == present, "the same devices with the same UUIDs"


def test_an_upgrade_of_the_driver_and_the_rollback_give_pods_their_devices_again(full):
    nodes = full.nodes
    rollout = {
        "gpu_cluster_kubeconfig": nodes.lab("kubeconfig").strip(),
        "gpu_upgrade_canary": 0,
        "gpu_upgrade_max_parallel": len(POOLS),
        "gpu_upgrade_max_unavailable": "100%",
        # The nodes came back by hand from the same upgrade as pools of another kind.
        "gpu_upgrade_retry": True,
    }
    present = full.present()
    for playbook, version in (("upgrade", NEW), ("rollback", OLD)):
        nodes.describe({**full.kind.variables, **of_driver(version)})
        nodes.play(playbook, "-e", json.dumps(rollout))
        nodes.play("render")
        for pool in POOLS:
            running = nodes.lab("exec", f"node-{pool}", "--", "cat", "/sys/module/nvidia/version")
            assert running.strip() == version
        full.check()
        assert full.present() == present, "the same devices with the same UUIDs"


def test_a_change_moves_only_pods_on_instances_that_go(full):
    nodes, change = full.nodes, full.change
    before = full.given()
    variables = {**change.variables, **of_driver(OLD)}
    if change.going:
        nodes.describe(variables)
        values = {"gpu_cluster_kubeconfig": nodes.lab("kubeconfig").strip(), "gpu_repartition_serial": len(POOLS)}
        nodes.play("repartition", "-e", json.dumps(values))
        nodes.lab("charts", str(nodes.tree))
    else:
        nodes.become(variables)
    assert nodes.expected() == {f"node-{pool}": change.resources for pool in POOLS}, "what is rendered"
    nodes.offers_what_is_rendered()
    after = full.given()
    for pool in POOLS:
        for example, resource in full.examples.items():
            name = f"{pool}-{example}"
            kept = {uid for uid, seen in before[name].items() if after.get(name, {}).get(uid) == seen}
            assert len(kept) == full.count(example) - change.going.get(resource, 0)
            assert kept == after.get(name, {}).keys(), "the others wait for room"
    for pool in POOLS:
        nodes.shows_its_labels(f"node-{pool}")
