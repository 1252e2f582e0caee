# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.writer import leaving, removed_clusters

NODES = [f"gpu-{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("known", "gone"),
    [
        (NODES, []),
        ([*NODES, "gpu-new"], []),
        (NODES[3:], NODES[:3]),
    ],
    ids=["none", "one more", "less than a third"],
)
def test_a_few_nodes_leave_the_tree(known, gone):
    assert leaving("/gitops", NODES, known, allowed=False) == gone


def test_the_only_node_leaves_the_tree():
    assert leaving("/gitops", ["gpu-0"], ["gpu-1"], allowed=False) == ["gpu-0"]


@pytest.mark.parametrize("slices", [2, 3, 4, 10])
@pytest.mark.parametrize("hosts", [4, 5, 9, 10])
def test_no_slice_of_a_fleet_renders(slices, hosts):
    nodes = NODES[:hosts]
    for first in range(slices):
        with pytest.raises(Refused) as refused:
            leaving("/gitops", nodes, nodes[first::slices], allowed=False)
        assert "gpu_kubernetes_remove_nodes: true" in refused.value.remedy


def test_many_nodes_leave_the_tree_where_that_is_asked_for():
    assert leaving("/gitops", NODES, [], allowed=True) == NODES


def test_a_cluster_goes_only_by_its_name():
    assert removed_clusters([], ["here"], ["staging", "test"]) == []
    assert removed_clusters(["test"], ["here"], ["staging", "test"]) == ["test"]
    assert removed_clusters(["gone-before"], ["here"], ["staging", "test"]) == []


def test_a_slurm_cluster_goes_by_its_name_or_its_directory():
    left = ["staging", "slurm/hpc", "slurm/staging"]
    assert removed_clusters(["hpc"], ["here"], left) == ["slurm/hpc"]
    assert removed_clusters(["slurm/staging"], ["here"], left) == ["slurm/staging"]
    assert removed_clusters(["staging"], ["here"], left) == ["staging"]
    # The Kubernetes cluster of the same name has hosts, and stays.
    assert removed_clusters(["hpc"], ["hpc"], left) == ["slurm/hpc"]
    with pytest.raises(Refused, match="hosts of this inventory"):
        removed_clusters(["viz"], ["slurm/viz"], left)


@pytest.mark.parametrize(("name", "said"), [("here", "hosts of this inventory"), ("stagin", "Did you mean staging?")])
def test_a_cluster_that_is_described_or_misspelt_is_refused(name, said):
    with pytest.raises(Refused, match="gpu_kubernetes_remove_clusters") as refused:
        removed_clusters([name], ["here"], ["staging", "test"])
    assert said in refused.value.message
