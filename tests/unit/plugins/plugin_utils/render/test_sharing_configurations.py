# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Named configurations of the device plugin: what is rendered of them, who chooses, and what a node must show that chose."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import expectations
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree

LABEL = "nvidia.com/device-plugin.config"
GPU = "nvidia.com/gpu"
#: Three boards and one ConfigMap, as users of the GPU Operator have it.
NAMED = {
    "tesla-t4": {"replicas": 4},
    "a100-40gb": {"replicas": {"gpu": 8, "1g.5gb": 2, "3g.20gb": 3}},
    "2080ti-12gb": {"replicas": 6, "rename": True, "gpus_per_pod": 2},
}
T4 = {"gpu_facts_gpus": [{"board": "t4-16gb", "count": 2}]}
A100 = {
    "gpu_facts_gpus": [{"board": "a100-40gb", "count": 2}],
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}}],
}


@pytest.fixture
def render(clusters_of):
    def rendered(pools, of_host=None, **options):
        options = {"sharing_configurations": NAMED, **options}
        return cluster_tree(clusters_of(pools, of_host=of_host, **options)[0])

    return rendered


def config_map(tree, release="nvidia-device-plugin-t4"):
    return next(item for item in yaml.safe_load_all(tree[f"objects/{release}.yaml"]) if item)


def shown(tree, node, **labels):
    """What a node of the tree must show that is labelled like this, and the checks of the label."""
    wanted = expectations.expected(tree["capacity.json"], "capacity.json", node)
    return expectations.chosen({"metadata": {"name": node, "labels": labels}}, wanted)


def rules(tree):
    (rule,) = [item for item in yaml.safe_load_all(tree["node-labels/pools.yaml"]) if item]
    return {one["name"]: one for one in rule["spec"]["rules"]}


def test_one_config_map_has_all_that_the_pools_gpus_can_have(render):
    tree = render({"t4": T4, "a100": A100}, sharing_default="", of_host={})
    found = config_map(tree)
    assert set(found["data"]) == {"default", "t4", "tesla-t4", "a100-40gb", "2080ti-12gb"}
    assert all(not lint(text).findings for text in found["data"].values())
    sharing = {name: yaml.safe_load(text).get("sharing") for name, text in found["data"].items()}
    assert sharing["default"] is sharing["t4"] is None
    assert sharing["tesla-t4"] == {
        "timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [{"name": GPU, "replicas": 4}]}
    }
    assert sharing["2080ti-12gb"]["timeSlicing"]["renameByDefault"] is True
    assert sharing["2080ti-12gb"]["timeSlicing"]["failRequestsGreaterThanOne"] is False
    # What a node does not have the plugin would ignore without a word.
    assert sharing["a100-40gb"]["timeSlicing"]["resources"] == [{"name": GPU, "replicas": 8}]
    of_a100 = yaml.safe_load(config_map(tree, "nvidia-device-plugin-a100")["data"]["a100-40gb"])["sharing"][
        "timeSlicing"
    ]["resources"]
    assert of_a100 == [
        {"name": "nvidia.com/mig-1g.5gb", "replicas": 2},
        {"name": "nvidia.com/mig-3g.20gb", "replicas": 3},
    ]


def test_the_default_is_the_charts_and_of_a_pool(render):
    tree = render({"t4": {**T4, "gpu_kubernetes_sharing_default": "tesla-t4"}, "other": T4})
    assert yaml.safe_load(tree["values/nvidia-device-plugin-t4.yaml"])["config"]["default"] == "tesla-t4"
    assert yaml.safe_load(tree["values/nvidia-device-plugin-other.yaml"])["config"]["default"] == "other"
    nodes = json.loads(tree["capacity.json"])["nodes"]
    assert nodes["t4-0"]["resources"] == {GPU: 8}
    assert nodes["other-0"]["resources"] == {GPU: 2}


def test_what_the_inventory_chooses_is_a_label_of_the_rule_and_no_release_of_its_own(render):
    of_host = {"t4-1": {"gpu_kubernetes_sharing_configuration": "2080ti-12gb"}}
    tree = render({"t4": {**T4, "gpu_kubernetes_sharing_default": "tesla-t4"}}, of_host)
    assert [path for path in tree if path.startswith("values/nvidia-device-plugin")] == [
        "values/nvidia-device-plugin-t4.yaml"
    ]
    found = rules(tree)
    assert LABEL not in found["gpufleet t4"]["labels"]
    assert found["gpufleet t4 2080ti-12gb"]["labels"][LABEL] == "2080ti-12gb"
    nodename = found["gpufleet t4 2080ti-12gb"]["matchFeatures"][0]["matchExpressions"]["nodename"]
    assert nodename["value"] == ["t4-1"]
    capacity = json.loads(tree["capacity.json"])
    assert capacity["nodes"]["t4-1"]["resources"] == {"nvidia.com/gpu.shared": 12}
    assert capacity["nodes"]["t4-1"]["node_labels"][LABEL] == "2080ti-12gb"
    # NFD puts that label back, so what somebody else wrote there is not what must be.
    wanted, checks = shown(tree, "t4-1", **{LABEL: "tesla-t4"})
    assert (wanted.resources, checks) == ({"nvidia.com/gpu.shared": 12}, ())
    assert "t4-1" in tree["README.md"].partition("## Sharing configurations")[2]


@pytest.mark.parametrize(
    ("label", "resources"),
    [
        (None, {GPU: 8}),
        ("tesla-t4", {GPU: 8}),
        ("2080ti-12gb", {"nvidia.com/gpu.shared": 12}),
        ("default", {GPU: 2}),
        ("t4", {GPU: 2}),
    ],
)
def test_what_a_node_must_show_follows_its_label_where_that_is_left_to_users(render, label, resources):
    tree = render({"t4": {**T4, "gpu_kubernetes_sharing_default": "tesla-t4"}})
    wanted, checks = shown(tree, "t4-0", **({LABEL: label} if label else {}))
    assert wanted.resources == resources
    assert [check.status for check in checks] == ([expectations.PASSED] if label else [])
    assert wanted.labels[f"{GPU}.replicas"] == str({8: 4, 12: 6, 2: 1}[sum(resources.values())])


def test_a_label_that_the_config_map_lacks_is_the_first_failure(render):
    _wanted, (check,) = shown(render({"t4": T4}), "t4-0", **{LABEL: "tesla-t5"})
    assert check.status == expectations.FAILED and "do not start" in check.evidence
    assert check.next_step == (
        f"kubectl label node t4-0 --overwrite {LABEL}=NAME with one of 2080ti-12gb, a100-40gb, default, t4, tesla-t4; or remove the label: {LABEL}-"
    )


def test_one_config_map_of_an_operator_and_what_a_cluster_policy_is_told(render):
    pools = {name: {**pool, "gpu_kubernetes_sharing_default": "tesla-t4"} for name, pool in {"t4": T4}.items()}
    of_host = {"t4-1": {"gpu_kubernetes_sharing_configuration": "a100-40gb"}}
    tree = render(pools, of_host, stack="gpu_operator")
    data = config_map(tree, "nvidia-device-plugin")["data"]
    assert {"default", "tesla-t4", "a100-40gb", "2080ti-12gb"} <= set(data)
    config = yaml.safe_load(tree["values/gpu-operator.yaml"])["devicePlugin"]["config"]
    assert (config["name"], config["default"]) == ("nvidia-device-plugin-configurations", "tesla-t4")
    found = rules(tree)
    assert LABEL not in found["gpufleet t4"]["labels"], "kubectl label chooses"
    # config-manager looks at nothing but the label: a changed file needs another name to be read.
    key = found["gpufleet t4 a100-40gb"]["labels"][LABEL]
    assert key.startswith("a100-40gb-") and data[key] == data["a100-40gb"]
    assert '{"config": {"name": "nvidia-device-plugin-configurations", "default": "tesla-t4"}}' in tree["README.md"]
    assert shown(tree, "t4-0", **{LABEL: "2080ti-12gb"})[0].resources == {"nvidia.com/gpu.shared": 12}


def test_an_operator_serves_all_pools_from_one_file(render):
    tree = render({"t4": T4, "a100": A100}, stack="gpu_operator")
    text = config_map(tree, "nvidia-device-plugin")["data"]["a100-40gb"]
    resources = {one["name"]: one["replicas"] for one in yaml.safe_load(text)["sharing"]["timeSlicing"]["resources"]}
    assert resources == {GPU: 8, "nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-3g.20gb": 3}
    # Without a default NFD names each pool's own file, and owns the label.
    assert all(LABEL in rule["labels"] for rule in rules(tree).values())


def test_another_configuration_gives_the_config_map_another_name(render):
    before = config_map(render({"t4": T4}))["metadata"]["name"]
    changed = {**NAMED, "tesla-t4": {"replicas": 5}}
    assert config_map(render({"t4": T4}, sharing_configurations=changed))["metadata"]["name"] != before


def test_without_named_configurations_nothing_of_it_is_rendered(clusters_of):
    tree = cluster_tree(clusters_of({"t4": T4})[0])
    assert "choices" not in tree["capacity.json"]
    assert "Sharing configurations" not in tree["README.md"]


MPS = {**T4, "nvidia_sharing_mode": "mps", "nvidia_sharing_replicas": 4}


def test_mps_is_for_pools_whose_hosts_are_prepared_for_it(render):
    named = {"mps-8": {"mode": "mps", "replicas": 8}, "slices": {"replicas": 2}}
    tree = render({"t4": T4, "shared": MPS}, sharing_configurations=named)
    assert (
        "mps-8" not in config_map(tree)["data"]
        and "slices" not in config_map(tree, "nvidia-device-plugin-shared")["data"]
    )
    assert yaml.safe_load(config_map(tree, "nvidia-device-plugin-shared")["data"]["mps-8"])["sharing"]["mps"]
    assert (
        "not in this pool: mps, and the hosts of the pool are prepared for nvidia_sharing_mode: none"
        in tree["README.md"]
    )
    wanted, _checks = shown(tree, "shared-0", **{LABEL: "mps-8"})
    assert (wanted.resources, wanted.mps_replicas) == ({GPU: 16}, {GPU: 8})
    assert shown(tree, "shared-0", **{LABEL: "default"})[0].mps_replicas == {}


@pytest.mark.parametrize(
    ("pool", "options", "match"),
    [
        ({"gpu_kubernetes_sharing_configuration": "tesla-t5"}, {}, "there is no configuration 'tesla-t5'.*tesla-t4"),
        ({"gpu_kubernetes_sharing_default": "a"}, {}, "there is no configuration 'a'"),
        ({"gpu_kubernetes_sharing_configuration": "mig"}, {}, "the node has none of nvidia.com/mig-1g.5gb"),
        ({"nvidia_sharing_backend": "dra", "gpu_kubernetes_sharing_configuration": "tesla-t4"}, {}, "backend is dra"),
        ({}, {"a": {"replicas": 1}}, r"configurations\.a\.replicas: 1 replicas share nothing"),
        ({}, {"a": {}}, r"configurations\.a.*time_slicing needs the number"),
        ({}, {"a": {"replicas": 2, "rename_": True}}, r"a\.rename_: there is no such option"),
        ({}, {"a": {"mode": "mig"}}, r"configurations\.a\.mode: 'mig' is not valid"),
        ({}, {"a": 4}, "it must be a mapping"),
        ({}, {"A100": {"replicas": 2}}, "cannot be the value of the nodes' label"),
        ({}, {"a" * 55: {"replicas": 2}}, "cannot be the value of the nodes' label"),
        ({}, {"default": {"replicas": 2}}, "shares nothing"),
        ({}, {"t4": {"replicas": 2}}, "the pool's own"),
        ({}, [{"a": {}}], "must be a mapping"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(render, pool, options, match):
    named = options or {**NAMED, "mig": {"replicas": {"1g.5gb": 2}}}
    with pytest.raises(Refused, match=match):
        render({"t4": {**T4, **pool}}, sharing_configurations=named)


def test_one_operator_has_one_default(render):
    pools = {"t4": {**T4, "gpu_kubernetes_sharing_default": "tesla-t4"}, "other": T4}
    with pytest.raises(Refused, match="one GPU Operator has one default"):
        render(pools, stack="gpu_operator")


def test_what_hami_offers_no_choice_may_offer_a_second_time(render):
    soft = {**T4, "nvidia_sharing_backend": "hami", "nvidia_sharing_memory_slice": "4GiB"}
    shared = {**T4, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 2, "nvidia_sharing_rename": True}
    render({"t4": shared, "soft": soft}, sharing_configurations={"three": {"replicas": 3, "rename": True}})
    with pytest.raises(
        Refused, match=r"configurations\.three: a node of pool t4 that chooses it would offer nvidia.com/gpu"
    ):
        render({"t4": shared, "soft": soft}, sharing_configurations={"three": {"replicas": 3}})
