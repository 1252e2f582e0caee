# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a cluster whose nodes move between the device plugins of two stacks, and what each node has of them at every step."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import clients
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint_files
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.capacity_document import former
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree

POOL = {
    "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}],
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": [1], "instances": {"1g.10gb": 2}}],
}
FORWARD = {"stack": "device_plugin", "migrate_from": "gpu_operator"}
BACK = {"stack": "gpu_operator", "migrate_from": "device_plugin"}
PLUGIN, EXPORTER, OPERATOR = (
    "values/nvidia-device-plugin-moved.yaml",
    "values/dcgm-exporter.yaml",
    "values/gpu-operator.yaml",
)
STACK, CONFIG = "gpufleet.github.io/stack", "nvidia.com/device-plugin.config"
DEPLOY = {f"nvidia.com/gpu.deploy.{name}": "true" for name in clients.REPLACED}
MOVED = {**dict.fromkeys(DEPLOY, "false"), STACK: "device_plugin"}


def tree_of(clusters_of, variables=POOL, **options):
    options = {"gitops": "argocd", "gitops_repository": "https://git.example/fleet.git", **options}
    return cluster_tree(clusters_of({"moved": variables}, **options)[0])


def rule_of(tree):
    return yaml.safe_load(tree["node-labels/pools.yaml"])["spec"]["rules"][0]["labels"]


def on_node(tree, labels):
    """Whose pods a node of the pool has with these labels and those of the rule: of our releases, and of the operator's operands."""
    there = {**rule_of(tree), **labels}
    ours = {name for name in (PLUGIN, EXPORTER) if name in tree and clients.placed(yaml.safe_load(tree[name]), there)}
    operands = {name for name in clients.REPLACED if there.get(f"nvidia.com/gpu.deploy.{name}") == "true"}
    return ours | (operands if OPERATOR in tree else set())


@pytest.mark.parametrize("options", [FORWARD, BACK])
def test_each_node_has_one_plugin_at_every_step_and_none_between_the_two(clusters_of, options):
    tree = tree_of(clusters_of, **options)
    assert on_node(tree, DEPLOY) == {*clients.REPLACED}
    assert on_node(tree, {**DEPLOY, STACK: "gpu_operator"}) == {*clients.REPLACED}
    for between in (MOVED | {STACK: "gpu_operator"}, dict.fromkeys(DEPLOY, "false")):
        assert on_node(tree, between) == set()
    assert on_node(tree, MOVED) == {PLUGIN, EXPORTER}
    # A node that joins is nobody's of ours, whatever the operator has labelled by then.
    assert on_node(tree, {}) == set()


def test_the_tree_of_one_stack_alone_serves_what_was_moved_to_it(clusters_of):
    assert on_node(tree_of(clusters_of, stack="device_plugin"), MOVED) == {PLUGIN, EXPORTER}
    alone = tree_of(clusters_of, stack="gpu_operator")
    assert PLUGIN not in alone and EXPORTER not in alone
    assert on_node(alone, {**DEPLOY, STACK: "gpu_operator"}) == {*clients.REPLACED}


def test_both_directions_have_one_tree_and_the_operator_is_left_as_it_is(clusters_of):
    forward, back = (tree_of(clusters_of, **options) for options in (FORWARD, BACK))
    assert forward == back
    before = tree_of(clusters_of, stack="gpu_operator")
    assert rule_of(forward) == rule_of(before)
    now, then = (yaml.safe_load(tree[OPERATOR]) for tree in (forward, before))
    discovery = now.pop("node-feature-discovery")
    assert now == then
    # When the operator leaves, the labels stay by which the plugin's pods know their nodes.
    assert discovery == {"postDeleteCleanup": False, "worker": {"config": {"core": {"noOwnerRefs": True}}}}
    assert "node-feature-discovery" not in yaml.safe_load(
        tree_of(clusters_of, stack="gpu_operator", node_feature_discovery=False)[OPERATOR]
    )
    assert "values/node-feature-discovery.yaml" not in forward
    after = yaml.safe_load(tree_of(clusters_of, stack="device_plugin")["values/node-feature-discovery.yaml"])
    assert after["worker"]["ownerRefs"] == ["node"] and after["postDeleteCleanup"] is False


def test_pods_find_the_same_names_and_the_same_devices_on_both_sides(clusters_of):
    trees = [
        tree_of(clusters_of, **options) for options in ({"stack": "gpu_operator"}, FORWARD, {"stack": "device_plugin"})
    ]
    shown = [json.loads(tree["capacity.json"])["nodes"]["moved-0"]["resources"] for tree in trees]
    assert shown[0] == shown[1] == shown[2] == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 2}
    plugin = yaml.safe_load(trees[1][PLUGIN])
    assert (plugin["deviceListStrategy"], plugin["migStrategy"]) == ("cdi-cri", "mixed")
    assert yaml.safe_load(trees[1][OPERATOR])["cdi"] == {"enabled": True}


SHARED = {
    "gpu_facts_gpus": POOL["gpu_facts_gpus"],
    "nvidia_sharing_mode": "time_slicing",
    "nvidia_sharing_replicas": 4,
}


def config_map_of(tree):
    (name,) = [path for path in tree if path.startswith("objects/nvidia-device-plugin-moved")]
    return yaml.safe_load(tree[name])


@pytest.mark.parametrize("chosen", ["", "halves", "default"])
def test_a_label_that_names_a_file_of_the_operators_names_the_same_one_of_ours(clusters_of, chosen):
    options = {
        "sharing_configurations": {"halves": {"mode": "time_slicing", "replicas": 2}},
        "sharing_configuration": chosen,
    }
    tree = tree_of(clusters_of, SHARED, **FORWARD, **options)
    found, label = config_map_of(tree), rule_of(tree)[CONFIG]
    theirs = yaml.safe_load(tree["objects/nvidia-device-plugin.yaml"])["data"]
    assert yaml.safe_load(found["data"][label])["sharing" if chosen != "default" else "flags"]
    assert yaml.safe_load(found["data"][label]).get("sharing") == yaml.safe_load(theirs[label]).get("sharing")
    assert yaml.safe_load(tree[PLUGIN])["config"]["name"] == found["metadata"]["name"]
    # It is immutable: with other content it has another name.
    after = config_map_of(tree_of(clusters_of, SHARED, stack="device_plugin", **options))
    assert after["metadata"]["name"] != found["metadata"]["name"] and after["data"].items() <= found["data"].items()


def test_the_pool_keeps_its_names_through_the_change(clusters_of):
    before = tree_of(clusters_of, stack="gpu_operator")["capacity.json"]
    tree = tree_of(clusters_of, **FORWARD, before=former(before, "capacity.json"))
    assert PLUGIN in tree
    after = tree_of(clusters_of, stack="device_plugin", before=former(tree["capacity.json"], "capacity.json"))
    assert PLUGIN in after and rule_of(after)["gpufleet.github.io/configuration"] == "moved"


@pytest.mark.parametrize("gitops", [{}, {"gitops": "flux", "gitops_source": "fleet"}, {"gitops": "none"}])
def test_the_linter_finds_nothing_in_the_tree_of_both(clusters_of, gitops):
    tree = tree_of(clusters_of, **FORWARD, **gitops)
    verdicts = lint_files({f"clusters/cluster/{name}": text for name, text in tree.items() if name.endswith(".yaml")})
    found = [finding for one in verdicts.values() for finding in one.findings if finding.level != "note"]
    assert verdicts and not found


@pytest.mark.parametrize(
    ("variables", "options", "text"),
    [
        ({}, {"stack": "gpu_operator"}, "and so is gpu_kubernetes_stack. Set gpu_kubernetes_stack: device_plugin"),
        ({"nvidia_driver_state": "unmanaged"}, {}, "the GPU Operator brings the driver to nodes of pool moved"),
        ({"nvidia_toolkit_runtime": "none"}, {}, "the GPU Operator brings the toolkit to nodes of pool moved"),
        ({"nvidia_driver_migrate_from": "gpu_operator"}, {}, "gpu_kubernetes_stack is device_plugin"),
        ({"nvidia_driver_migrate_from": "gpu_operator"}, BACK, "no pool has nvidia_driver_migrate_from"),
        ({}, {"mig_manager": "operator"}, "Set gpu_kubernetes_mig_manager: host first"),
        ({"gpu_kubernetes_node_match": {"boards": True}}, {}, "does not know, and nothing would serve them"),
        (
            {**SHARED, "nvidia_sharing_mode": "mps", "nvidia_mig_strategy": "none", "nvidia_mig_layout": None, "nvidia_sharing_mps_manager": "device_plugin"},
            {},
            "pool moved is shared by MPS, and the clients of an MPS daemon end",
        ),
        ({}, {"values": {"nvidia-device-plugin": {"deviceListStrategy": "envvar"}}}, "deviceListStrategy"),
    ],
)  # fmt: skip
def test_what_would_take_something_from_pods_is_refused(clusters_of, variables, options, text):
    with pytest.raises(Refused, match=re.escape(text)):
        tree_of(
            clusters_of, {**POOL, **variables}, **{"migrate_from": "gpu_operator", "stack": "device_plugin", **options}
        )


def test_a_driver_of_an_image_that_the_operator_is_told_of_is_no_reason(clusters_of):
    given = {"gpu-operator": {"driver": {"enabled": False}}}
    assert PLUGIN in tree_of(clusters_of, {**POOL, "nvidia_driver_state": "unmanaged"}, **FORWARD, values=given)


def test_a_pool_of_the_dra_driver_stays_what_it_is(clusters_of):
    pools = {"moved": POOL, "claims": {"gpu_facts_gpus": POOL["gpu_facts_gpus"], "nvidia_sharing_backend": "dra"}}
    tree = cluster_tree(clusters_of(pools, **FORWARD)[0])
    assert "values/nvidia-device-plugin-claims.yaml" not in tree and PLUGIN in tree
    rules = yaml.safe_load(tree["node-labels/pools.yaml"])["spec"]["rules"]
    (labels,) = [rule["labels"] for rule in rules if rule["name"] == "gpufleet claims"]
    assert labels["nvidia.com/gpu.deploy.device-plugin"] == "false"
