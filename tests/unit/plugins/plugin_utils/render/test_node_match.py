# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pools whose nodes are found by what they are: what is rendered of them, and what is refused."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import clients
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.expectations import chosen, compare, expected
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.capacity_document import former
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree

MATCH = "gpu_kubernetes_node_match"
BOARDS = {MATCH: {"boards": True}}
GROUP = {MATCH: {"labels": {"node-restriction.kubernetes.io/group": "elastic"}}}
OTHER_GROUP = {MATCH: {"labels": {"node-restriction.kubernetes.io/group": "steady"}}}
H100 = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 8}]}
L40S = {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}]}
SLICED = {**L40S, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 3}
CONFIGURATION, CHOICE = "gpufleet.github.io/configuration", "nvidia.com/device-plugin.config"


def tree_of(clusters_of, pools, **options):
    return cluster_tree(clusters_of(pools, **options)[0])


def rules(tree):
    return yaml.safe_load(tree["node-labels/pools.yaml"])["spec"]["rules"]


def plugin(tree, pool):
    return yaml.safe_load(tree[f"values/nvidia-device-plugin-{pool}.yaml"])


def exporter(tree):
    return yaml.safe_load(tree["values/dcgm-exporter.yaml"])


def capacity(tree):
    return json.loads(tree["capacity.json"])


def refused(clusters_of, pools, **options):
    with pytest.raises(Refused) as caught:
        tree_of(clusters_of, pools, **options)
    return caught.value.message


def test_a_rule_finds_every_node_with_a_gpu_of_the_pools_boards(clusters_of):
    tree = tree_of(clusters_of, {"elastic": {**SLICED, **BOARDS}, "named": H100})
    by_device, by_name = rules(tree)
    assert by_device["matchFeatures"] == [
        {
            "feature": "pci.device",
            "matchExpressions": {
                "vendor": {"op": "In", "value": ["10de"]},
                "class": {"op": "In", "value": ["0300", "0302"]},
                "device": {"op": "In", "value": ["26b9"]},
            },
        }
    ]
    assert by_device["labels"] == {"gpufleet.github.io/pool": "elastic", CONFIGURATION: "elastic"}
    assert by_name["matchFeatures"][0]["matchExpressions"] == {
        "nodename": {"op": "In", "value": ["named-0", "named-1"]}
    }
    assert plugin(tree, "elastic")["nodeSelector"] == {CONFIGURATION: "elastic"}


def test_a_device_that_yaml_takes_for_a_number_stays_a_text(clusters_of):
    """As 1e30, and all digits of the class 0302."""
    pools = {"elastic": {**SLICED, MATCH: {"pci_devices": ["26b9", "1e30"]}}}
    text = tree_of(clusters_of, pools)["node-labels/pools.yaml"]
    assert "'1e30'" in text and "'0302'" in text


def test_all_ids_of_a_board_are_in_the_rule_whether_a_host_was_read_or_not(clusters_of):
    read = [
        {"index": 0, "name": "NVIDIA A100-SXM4-40GB", "board": "a100-40gb", "device_id": "0x20b0", "memory_mib": 40960}
    ]
    pools = {"a": {"gpu_facts_gpus": [{"board": "a100-40gb", "count": 1}], **BOARDS}}
    devices = [
        rules(tree_of(clusters_of, pools, facts=facts))[0]["matchFeatures"][0]["matchExpressions"]["device"]["value"]
        for facts in (None, {"a-0": read, "a-1": read}, {"a-0": read})
    ]
    assert devices == [["20b0", "20b1", "20f1", "20f6"]] * 3


def test_each_node_that_joins_is_compared_with_what_the_pool_says_of_each(clusters_of):
    tree = tree_of(clusters_of, {"elastic": {**SLICED, **BOARDS}})
    item = capacity(tree)["configurations"]["elastic"]
    assert item["each_node"]["resources"] == {"nvidia.com/gpu": 12}
    assert item["each_node"]["match"] == {"pci_devices": ["26b9"]}
    labels = {**item["each_node"]["labels"], **item["each_node"]["node_labels"]}
    joined = {"metadata": {"labels": labels}, "status": {"allocatable": {"nvidia.com/gpu": "12"}}}
    wanted = expected(tree["capacity.json"], "capacity.json", "autoscaled-7", joined)
    assert {check.status for check in compare(joined, wanted)} == {"passed"}
    fewer = {**joined, "status": {"allocatable": {"nvidia.com/gpu": "6"}}}
    assert "nvidia.com/gpu: 6 instead of 12" in [check.evidence for check in compare(fewer, wanted)]
    for there in ({"metadata": {"labels": {CONFIGURATION: "other"}}}, {}, None):
        with pytest.raises(Refused, match="it has no node autoscaled-7"):
            expected(tree["capacity.json"], "capacity.json", "autoscaled-7", there)


def test_a_node_that_joins_chooses_its_sharing_by_its_label(clusters_of):
    named = {"configurations": {"two": {"replicas": 2}, "four": {"replicas": 4}}, "default": "two"}
    options = {f"sharing_{name}": value for name, value in named.items()}
    tree = tree_of(clusters_of, {"elastic": {**L40S, **GROUP}}, **options)
    there = {"metadata": {"labels": {**GROUP[MATCH]["labels"], CHOICE: "four"}}}
    wanted, (check,) = chosen(there, expected(tree["capacity.json"], "capacity.json", "x", there))
    assert (wanted.resources, check.status) == ({"nvidia.com/gpu": 16}, "passed")


def test_a_group_of_nodes_is_selected_by_its_own_labels(clusters_of):
    tree = tree_of(clusters_of, {"elastic": {**SLICED, **GROUP}, "named": SLICED})
    assert [rule["labels"][CONFIGURATION] for rule in rules(tree)] == ["named"], "NFD cannot see labels of nodes"
    group = {"node-restriction.kubernetes.io/group": "elastic"}
    assert yaml.safe_load(tree["examples/elastic-gpu.yaml"])["spec"]["nodeSelector"] == group
    (check,) = [
        one
        for one in yaml.safe_load(tree["values/gpufleet-nvidia.yaml"])["verification"]["checks"]
        if one["name"] == "elastic"
    ]
    assert check["nodeSelector"] == group
    specs = {name: plugin(tree, name) for name in ("elastic", "named")} | {"exporter": exporter(tree)}

    def running(labels):
        return {name for name, spec in specs.items() if clients.placed(spec, labels)}

    assert running(group) == {"elastic", "exporter"}
    assert running({CONFIGURATION: "named"}) == {"named", "exporter"}
    assert running({**group, CONFIGURATION: "named"}) == {"named", "exporter"}, "a name wins, and nothing serves twice"
    assert running({**group, clients.LABEL: clients.PAUSED}) == set()
    assert running({"node-restriction.kubernetes.io/group": "steady"}) == set()
    assert capacity(tree)["configurations"]["elastic"]["each_node"]["node_labels"] == group


def test_a_cluster_of_groups_alone_needs_no_rule(clusters_of):
    tree = tree_of(clusters_of, {"elastic": {**SLICED, **GROUP}, "steady": {**H100, **OTHER_GROUP}})
    assert not any(path.startswith("node-labels") for path in tree)
    without = tree_of(clusters_of, {"elastic": {**SLICED, **GROUP}, "named": H100}, node_feature_discovery=False)
    nodes = [item["metadata"]["name"] for item in yaml.safe_load_all(without["node-labels.yaml"])]
    assert nodes == ["named-0", "named-1"]
    alone = tree_of(clusters_of, {"elastic": {**SLICED, **GROUP}}, node_feature_discovery=False)
    assert ["-f node-labels.yaml" in tree["README.md"] for tree in (without, alone)] == [True, False]


def test_the_gpu_operators_labels_are_set_by_the_same_rule(clusters_of):
    tree = tree_of(clusters_of, {"elastic": {**SLICED, **BOARDS}}, stack="gpu_operator")
    (rule,) = rules(tree)
    assert rule["matchFeatures"][0]["feature"] == "pci.device"
    assert rule["labels"][CHOICE].startswith("elastic-")


@pytest.mark.parametrize("backend", ["hami", "dra"])
def test_other_backends_find_their_nodes_by_the_label_that_the_rule_sets(clusters_of, backend):
    pools = {"elastic": {**L40S, **BOARDS, "nvidia_sharing_backend": backend, "nvidia_sharing_memory_slice": "4GiB"}}
    (rule,) = rules(tree_of(clusters_of, pools, version="1.36"))
    assert rule["labels"]["gpufleet.github.io/backend"] == backend


def test_the_readme_says_what_joins_and_what_its_host_must_bring(clusters_of):
    mig = {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": "all-balanced"}
    mps = {"nvidia_sharing_mode": "mps", "nvidia_sharing_replicas": 4, "nvidia_sharing_mps_manager": "host"}
    text = tree_of(clusters_of, {"a": {**H100, **mig, **BOARDS}, "b": {**L40S, **mps, **GROUP}})["README.md"]
    assert "| a | a GPU `10de:2324` or `10de:2330` |" in text and "GPUs partitioned as `nvidia_mig_layout` says" in text
    assert "| b | `node-restriction.kubernetes.io/group=elastic` |" in text and "the MPS daemon of" in text
    assert "2 and those that join" in text
    assert "join" not in tree_of(clusters_of, {"a": H100})["README.md"]


def test_a_pool_keeps_its_names_when_its_nodes_are_found_otherwise(clusters_of):
    before = former(tree_of(clusters_of, {"elastic": SLICED})["capacity.json"], "capacity.json")
    for match in (BOARDS, GROUP):
        after = tree_of(clusters_of, {"elastic": {**SLICED, **match}}, before=before)
        assert list(capacity(after)["configurations"]) == ["elastic"]
        old = tree_of(clusters_of, {"elastic": SLICED})["objects/nvidia-device-plugin-elastic.yaml"]
        assert after["objects/nvidia-device-plugin-elastic.yaml"] == old


@pytest.mark.parametrize("empty", [{}, {MATCH: {}}])
def test_nothing_changes_for_pools_by_name(clusters_of, pools, empty):
    same = {name: {**variables, **empty} for name, variables in pools.items()}
    assert tree_of(clusters_of, same) == tree_of(clusters_of, pools)
    assert "each_node" not in tree_of(clusters_of, same)["capacity.json"]


@pytest.mark.parametrize(
    ("match", "reason"),
    [
        ({"board": True}, "exactly one of boards, pci_devices, labels"),
        ({"boards": True, "labels": {"a": "b"}}, "exactly one of"),
        ({"boards": False}, "must be true"),
        ({"pci_devices": []}, "must be a list"),
        ({"pci_devices": "26b9"}, "must be a list"),
        ({"pci_devices": [2330]}, r"pci_devices\[0\]: 2330 must be a text"),
        ({"pci_devices": ["0x26b9"]}, "four lower-case hexadecimal digits"),
        ({"pci_devices": ["2330"]}, "its node would leave the pool"),
        ({"labels": {}}, "must be a mapping"),
        ({"labels": {"a/b/c": "d"}}, "cannot be the key of a label"),
        ({"labels": {"gpu": True}}, "True cannot be the value of a label"),
        ({"labels": {"gpufleet.github.io/pool": "a"}}, "set by the rendered tree"),
    ],
)
def test_a_match_that_no_node_can_meet_is_refused(clusters_of, match, reason):
    with pytest.raises(Refused, match=reason):
        clusters_of({"elastic": {**L40S, MATCH: match}})


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        (BOARDS, BOARDS, "a node with a GPU 10de:26b9 would belong to both"),
        (BOARDS, {}, "a node with a GPU 10de:26b9 would belong to both"),
        ({}, BOARDS, "a node with a GPU 10de:26b9 would belong to both"),
        (BOARDS, GROUP, "a node with a GPU 10de:26b9 would belong to both"),
        (GROUP, GROUP, "a node can have the labels of both"),
        (GROUP, {MATCH: {"labels": {"other": "x"}}}, "a node can have the labels of both"),
    ],
)
def test_pools_that_the_same_node_could_join_are_refused_with_both_names(clusters_of, one, other, reason):
    message = refused(clusters_of, {"first": {**L40S, **one}, "second": {**L40S, **other}})
    assert reason in message
    assert "first" in message and "second" in message


@pytest.mark.parametrize(("one", "other"), [(GROUP, OTHER_GROUP), (GROUP, {})])
def test_pools_of_one_board_that_a_label_distinguishes_are_rendered(clusters_of, one, other):
    tree = tree_of(clusters_of, {"first": {**L40S, **one}, "second": {**L40S, **other}})
    assert {"first", "second"} == set(capacity(tree)["configurations"])


def test_hosts_of_one_pool_that_need_different_files_are_refused(clusters_of):
    other = {"elastic-1": {"nvidia_sharing_replicas": 2}}
    message = refused(clusters_of, {"elastic": {**SLICED, **BOARDS}}, of_host=other)
    assert "pool elastic, whose hosts need different files (elastic, elastic-" in message


def test_hosts_that_show_different_counts_are_refused(clusters_of):
    other = {"elastic-1": {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": 2}]}}
    message = refused(clusters_of, {"elastic": {**SLICED, **BOARDS}}, of_host=other)
    assert "elastic-0: nvidia.com/gpu: 12; elastic-1: nvidia.com/gpu: 6" in message


DRA = {**L40S, "nvidia_sharing_backend": "dra"}
RACK = {"gpu_facts_gpus": [{"board": "gb200-186gb", "count": 4}], "nvidia_driver_imex": "masked"}


@pytest.mark.parametrize(
    ("variables", "options", "reason"),
    [
        ({**L40S, **BOARDS}, {"node_feature_discovery": False}, "nothing reads PCI device IDs"),
        ({**L40S, **GROUP}, {"stack": "gpu_operator"}, "gpu_kubernetes_stack: gpu_operator needs labels"),
        ({**DRA, **GROUP}, {"version": "1.36"}, "nvidia_sharing_backend: dra needs labels"),
        (
            {**L40S, **GROUP, "nvidia_sharing_backend": "hami", "nvidia_sharing_memory_slice": "4GiB"},
            {"version": "1.36"},
            "nvidia_sharing_backend: hami needs labels",
        ),
        ({**RACK, **GROUP}, {"version": "1.36"}, "nvidia_driver_imex: masked needs labels"),
        ({**DRA, **BOARDS, "nvidia_sharing_migrate_from": "mps"}, {"version": "1.36"}, "all at once"),
        (
            {**L40S, **GROUP, "gpu_kubernetes_sharing_configuration": "two"},
            {"sharing_configurations": {"two": {"replicas": 2}}},
            "gpu_kubernetes_sharing_configuration: two needs labels",
        ),
    ],
)
def test_what_needs_labels_that_nothing_sets_is_refused(clusters_of, variables, options, reason):
    assert reason in refused(clusters_of, {"elastic": variables}, **options)


def test_a_choice_of_one_host_is_refused_and_one_of_the_pool_is_in_the_rule(clusters_of):
    options = {"sharing_configurations": {"two": {"replicas": 2}}}
    one = {"elastic-1": {"gpu_kubernetes_sharing_configuration": "two", "gpu_kubernetes_sharing_default": ""}}
    pools = {"elastic": {**L40S, **BOARDS}}
    assert "show different resources" in refused(clusters_of, pools, of_host=one, **options)
    options["sharing_configurations"]["twice"] = {"replicas": 2}
    other = {"elastic-0": {"gpu_kubernetes_sharing_configuration": "twice"}, **one}
    assert "differs between its hosts (twice, two)" in refused(clusters_of, pools, of_host=other, **options)
    pools["elastic"]["gpu_kubernetes_sharing_configuration"] = "two"
    tree = tree_of(clusters_of, pools, **options)
    (rule,) = rules(tree)
    assert rule["labels"][CHOICE] == "two"
    assert capacity(tree)["configurations"]["elastic"]["each_node"]["resources"] == {"nvidia.com/gpu": 8}
