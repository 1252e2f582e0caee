# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From hosts to clusters: what is computed once, and what contradicts."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import fleet as module
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.clusters import dns_label, pool_label
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet


def test_a_description_is_computed_once_for_all_hosts_that_share_it(clusters_of, pools, monkeypatch):
    calls = []
    original = module._describe
    monkeypatch.setattr(module, "_describe", lambda *arguments: calls.append(1) or original(*arguments))
    clusters_of(pools, hosts=50)
    assert len(calls) == len(pools)


def test_templates_are_rendered_for_each_host(pools):
    groups = {"gpu_hosts": ["a", "b"], "shared": ["a", "b"]}
    fleet = Fleet(groups, lambda *_ignored: None)
    for host, size in (("a", "4GiB"), ("b", "8GiB")):
        variables = {**pools["shared"], "nvidia_sharing_memory_slice": "{{ slice }}"}
        fleet.add(host, variables, lambda value, size=size: size if value == "{{ slice }}" else value)
    assert {item.nodes: item.sharing.slice_mib for item in fleet.clusters()[0].configurations} == {
        ("a",): 4096,
        ("b",): 8192,
    }


def test_clusters_are_separate(clusters_of, pools):
    pools["batch"]["gpu_kubernetes_cluster"] = "night"
    pools["batch"]["gpu_kubernetes_namespace"] = "gpu-operator"
    assert [cluster.name for cluster in clusters_of(pools)] == ["cluster", "night"]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"batch": {"gpu_kubernetes_namespace": "other"}}, "both belong to cluster"),
        (
            {name: {"gpu_kubernetes_runtime_class": "nvidia'"} for name in ("batch", "shared", "training")},
            "is not a valid name of a runtime class",
        ),
        ({"batch": {"gpu_kubernetes_cluster": "Night Shift"}}, "is not a valid name of a cluster"),
        (
            {name: {"gpu_kubernetes_namespace": "kube-system"} for name in ("batch", "shared", "training")},
            "pods of kube-system could do everything",
        ),
        ({"batch": {"gpu_node_name": "one"}}, "two hosts of cluster"),
        ({"batch": {"gpu_facts_gpus": []}}, "nothing says which GPUs"),
        ({"batch": {"nvidia_mig_layout": [{"devices": "all", "instances": {"1g.10gb": 7}}]}}, "pool batch"),
        ({"batch": {"gpu_kubernetes_stak": "gpu_operator"}}, "gpu_kubernetes_stak"),
        (
            {"batch": {"gpu_kubernetes_stack": "helm"}},
            "gpu_kubernetes_stack: .helm. must be one of device_plugin",
        ),
        ({"batch": {"gpu_facts_pool": "bach"}}, "no group below"),
        ({"shared": {"nvidia_sharing_memory_slice": "4GB"}}, "pool shared"),
    ],
)
def test_bad_input_names_host_or_pool(clusters_of, pools, change, match):
    for pool, variables in change.items():
        pools[pool].update(variables)
    with pytest.raises(Refused, match=match):
        clusters_of(pools)


@pytest.mark.parametrize(
    ("name", "label"),
    [("training", "training"), ("Rack_1", "rack-1"), ("a" * 40, "a" * 40)],
)
def test_dns_label(name, label):
    assert dns_label(name) == label


def test_long_names_stay_different():
    one, two = dns_label("a" * 50 + "1"), dns_label("a" * 50 + "2")
    assert one != two
    assert len(one) <= 40


def test_every_wrong_variable_is_named_at_once(clusters_of, pools):
    pools["batch"].update(gpu_kubernetes_stack="helm", nvidia_mig_strategy="singel")
    with pytest.raises(Refused) as refusal:
        clusters_of(pools)
    assert "batch-0: gpu_kubernetes_stack" in refusal.value.message
    assert "batch-0: nvidia_mig_strategy" in refusal.value.message


@pytest.mark.parametrize("pool", ["training", "a" * 27, "a" * 28, "rack_12_of_the_second_hall_with_h100"])
def test_releases_of_a_pool_have_names_that_helm_takes(pool):
    """Helm refuses names of more than 53 characters (helm.sh/helm/v3, pkg/chartutil/validate_name.go)."""
    assert len(f"nvidia-device-plugin-{pool_label(pool)}-1234") <= 53
    assert pool_label(pool) == pool or len(pool) > 27


@pytest.mark.parametrize(
    ("name", "instead"),
    [("GPU-Node01.DC1", "gpu-node01.dc1"), ("n_1", "n-1"), ("-n1", "n1"), ("a..b", "a.b"), ("a" * 254, "a")],
)
def test_a_name_that_no_node_has_is_refused_with_one_that_it_can_have(clusters_of, name, instead):
    pools = {"shared": {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}]}}
    with pytest.raises(Refused) as refused:
        clusters_of(pools, hosts=1, of_host={"shared-0": {"gpu_node_name": name}})
    assert refused.value.thing == "shared-0: gpu_node_name"
    assert f"such as {instead}" in refused.value.remedy
    pools["shared"]["gpu_kubernetes_cluster"] = ""
    assert clusters_of(pools, hosts=1, of_host={"shared-0": {"gpu_node_name": name}}) == []


def test_more_than_a_hundred_slices_follow_from_a_size_and_are_refused_as_a_number(clusters_of):
    gpus = {"gpu_facts_gpus": [{"board": "h200-141gb", "count": 8}], "nvidia_sharing_mode": "time_slicing"}
    (cluster,) = clusters_of({"small": {**gpus, "nvidia_sharing_memory_slice": "1GiB"}})
    assert "replicas: 140" in cluster.configurations[0].plugin_text
    with pytest.raises(Refused, match=r"140 pods on one GPU.*nvidia_sharing_memory_slice"):
        clusters_of({"small": {**gpus, "nvidia_sharing_replicas": 140}})


def test_hosts_of_no_cluster_have_nothing_rendered(clusters_of):
    gpus = [{"board": "l40s-48gb", "count": 4}]
    pools = {
        "slurm": {"gpu_facts_gpus": gpus, "gpu_kubernetes_cluster": ""},
        "shared": {"gpu_facts_gpus": gpus},
    }
    (cluster,) = clusters_of(pools)
    assert {item.pool for item in cluster.configurations} == {"shared"}
    assert clusters_of({"slurm": pools["slurm"]}) == []
