# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that the inventory does not know joins a pool by what it is: by its GPUs, which the real Node Feature Discovery reads, or by a label.

Its host is prepared as an image would be: by site, before the inventory without it is rendered.
"""

from __future__ import annotations

from typing import Any

import pytest
from demo import wait_for
from pool_nodes import CDI, VARIABLE, PoolNodes

KNOWN, UNKNOWN = CDI, VARIABLE
SHARED = {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 3}
# Whatever they were before: the layout of a node that nobody names is its host's.
WHOLE = {"nvidia_mig_layout": [{"devices": "all", "enabled": False}]}
GPU = "nvidia.com/gpu"
GROUP = {"node-restriction.kubernetes.io/group": "elastic"}
CONFIGURATION = "gpufleet.github.io/configuration"


class Elastic(PoolNodes):
    """Two nodes, of which the inventory knows both while the hosts are prepared, and one afterwards."""

    def matching(self, match: dict[str, Any]) -> None:
        """Describe the pool without the node that joins it by this."""
        self.describe({**SHARED, "gpu_kubernetes_node_match": match}, without=(UNKNOWN,))

    def both_offer(self, count: int) -> None:
        wait_for(lambda: self.offered() == {name: {GPU: count} for name in (KNOWN, UNKNOWN)}, 600)


@pytest.fixture(scope="module")
def nodes(make_pools):
    found = make_pools({"elastic": [KNOWN, UNKNOWN]}, kind=Elastic)
    found.describe({**SHARED, **WHOLE})
    found.play("site")
    found.matching({"boards": True})
    found.play("render")
    found.lab("charts", str(found.tree))
    return found


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


@pytest.mark.by_name
def test_a_group_of_nodes_is_served_by_its_own_label(nodes):
    """The kubelet may not set a label of node-restriction.kubernetes.io, and NFD cannot see one."""
    nodes.both_offer(6)
    label = "=".join(*GROUP.items())
    nodes.kubectl("label", "nodes", KNOWN, label)
    nodes.matching({"labels": GROUP})
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
