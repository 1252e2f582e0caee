# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that the inventory does not know joins a pool by what it is: by its GPUs, which the real Node Feature Discovery reads, or by a label.

Its host is prepared as an image would be: by site, before the inventory without it is rendered.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from demo import Demo, wait_for

KNOWN, UNKNOWN = "elastic-known", "elastic-unknown"
SPEC = {
    "hosts": [
        {
            "name": name,
            "group": "elastic",
            "boards": [{"board": "h100-80gb-sxm", "count": 2}],
            "driver": "installed",
            "node": "containerd-2.4",
        }
        for name in (KNOWN, UNKNOWN)
    ]
}
COMMON = {
    "nvidia_driver_branch": "580",
    "nvidia_driver_state": "unmanaged",
    "nvidia_toolkit_version": "1.20.0",
    "gpu_kubernetes_cluster": "demo",
    "nvidia_sharing_mode": "time_slicing",
    "nvidia_sharing_replicas": 3,
}
GPU = "nvidia.com/gpu"
GROUP = {"node-restriction.kubernetes.io/group": "elastic"}
CONFIGURATION = "gpufleet.github.io/configuration"


class Elastic(Demo):
    """Two nodes, of which the inventory knows both while the hosts are prepared, and one afterwards."""

    @property
    def hosts(self) -> str:
        fewer = self.folder / "known.yaml"
        return str(fewer) if fewer.exists() else super().hosts

    def forget(self) -> None:
        inventory = yaml.safe_load(Path(super().hosts).read_text())
        del inventory["all"]["children"]["gpu_hosts"]["children"]["elastic"]["hosts"][UNKNOWN]
        (self.folder / "known.yaml").write_text(json.dumps(inventory))

    def describe(self, match: dict[str, Any]) -> None:
        variables = {**COMMON, "gpu_kubernetes_node_match": match}
        self.inventory.write_text(json.dumps({"gpu_hosts": {"vars": variables}}))

    def both_offer(self, count: int) -> None:
        wait_for(lambda: self.offered() == {name: {GPU: count} for name in (KNOWN, UNKNOWN)}, 600)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("property")
    spec = folder / "lab.json"
    spec.write_text(json.dumps(SPEC))
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-property"
    found = Elastic(name, folder, folder / "inventory.json", spec)
    try:
        found.lab("down")
        found.lab("up", "--nodes", "--spec", str(spec))
        found.describe({"boards": True})
        found.play("site")
        found.forget()
        found.play("render")
        found.lab("charts", str(found.tree))
        yield found
    finally:
        found.lab("down")


def test_a_node_joins_by_its_gpus_and_offers_what_each_node_does(nodes):
    assert set(nodes.capacity["nodes"]) == {KNOWN}
    each = nodes.capacity["configurations"]["elastic"]["each_node"]
    assert each["resources"] == {GPU: 6}
    nodes.both_offer(6)
    labels = {**each["labels"], **each["node_labels"]}
    wait_for(lambda: labels.items() <= nodes.labels(UNKNOWN).items(), 300)

    nodes.fill("elastic-gpu", 12)
    try:
        wait_for(lambda: [pod["status"]["phase"] for pod in nodes.pods("elastic-gpu")] == ["Running"] * 12, 300)
        where = [pod["spec"]["nodeName"] for pod in nodes.pods("elastic-gpu")]
        assert (where.count(KNOWN), where.count(UNKNOWN)) == (6, 6)
    finally:
        nodes.kubectl("delete", "pods", "-l", "example=elastic-gpu", "--force", "--grace-period=0")


def test_inspect_compares_it_with_the_pool_that_it_joined(nodes):
    nodes.both_offer(6)
    found = nodes.report("inspect")
    assert found["not_in_inventory"] == {UNKNOWN: {GPU: 6}}
    assert (found["offered"][UNKNOWN], found["mismatches"]) == ({GPU: 6}, {})


def test_a_group_of_nodes_is_served_by_its_own_label(nodes):
    """The kubelet may not set a label of node-restriction.kubernetes.io, and NFD cannot see one."""
    nodes.both_offer(6)
    label = "=".join(*GROUP.items())
    nodes.kubectl("label", "nodes", KNOWN, label)
    nodes.describe({"labels": GROUP})
    nodes.play("render")
    # What a GitOps controller prunes: the only rule is no longer in the tree.
    assert not (nodes.tree / "node-labels").exists()
    nodes.kubectl("delete", "nodefeaturerules.nfd.k8s-sigs.io", "gpufleet-pools")
    wait_for(lambda: CONFIGURATION not in {**nodes.labels(KNOWN), **nodes.labels(UNKNOWN)}, 300)
    # Their kubelets report the plugin of before until they notice that it is gone: only what is offered after that is the new one's.
    nodes.both_offer(0)
    nodes.lab("charts", str(nodes.tree))

    def plugins():
        pods = nodes.get("pods", "-n", "nvidia-gpu", "-l", "app.kubernetes.io/name=nvidia-device-plugin")["items"]
        return {pod["spec"].get("nodeName") for pod in pods if not pod["metadata"].get("deletionTimestamp")}

    wait_for(lambda: plugins() == {KNOWN}, 300)
    nodes.kubectl("label", "nodes", UNKNOWN, label)
    wait_for(lambda: plugins() == {KNOWN, UNKNOWN}, 300)
    nodes.both_offer(6)
    assert nodes.report("inspect")["mismatches"] == {}
