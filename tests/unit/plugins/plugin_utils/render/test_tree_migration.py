# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a cluster with a pool that moves between the device plugin and the DRA driver."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import clients
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint, lint_files
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.capacity_document import former
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree

DRA_DEVICES = {
    "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}],
    "nvidia_sharing_backend": "dra",
}


def tree_of(clusters_of, pools, **options):
    return cluster_tree(clusters_of(pools, **options)[0])


def driver_values(tree):
    return yaml.safe_load(tree["values/dra-driver-nvidia-gpu.yaml"])


TO_CLAIMS = {**DRA_DEVICES, "nvidia_sharing_migrate_from": "mps"}
BACK = {**DRA_DEVICES, "nvidia_sharing_backend": "mps", "nvidia_sharing_migrate_from": "dra"}
MIGRATED, NODE_BACKEND = "gpufleet.github.io/migrated-to", "gpufleet.github.io/backend"


def servers_of(tree, labels):
    """Which rendered releases run on a node of the pool with these labels, with those that the rule gives it."""
    rule = yaml.safe_load(tree["node-labels/pools.yaml"])["spec"]["rules"][0]["labels"]
    there = {**rule, **labels}
    plugin = yaml.safe_load(tree.get("values/nvidia-device-plugin-moved.yaml", "{}"))
    specs = {"plugin": plugin, "dra": driver_values(tree)["kubeletPlugin"] if DRIVER in tree else {}}
    return {name for name, spec in specs.items() if spec and clients.placed(spec, there)}


DRIVER = "values/dra-driver-nvidia-gpu.yaml"
CLASSES = "objects/device-classes.yaml"


@pytest.mark.parametrize(
    ("variables", "labels", "served_by"),
    [
        (TO_CLAIMS, {}, {"plugin"}),
        (TO_CLAIMS, {MIGRATED: "device-plugin"}, {"plugin"}),
        (TO_CLAIMS, {MIGRATED: "dra"}, {"dra"}),
        (DRA_DEVICES, {MIGRATED: "dra"}, {"dra"}),
        (BACK, {}, {"dra"}),
        (BACK, {MIGRATED: "dra"}, {"dra"}),
        (BACK, {MIGRATED: "device-plugin"}, {"plugin"}),
        ({**DRA_DEVICES, "nvidia_sharing_backend": "mps"}, {MIGRATED: "device-plugin"}, {"plugin"}),
    ],
)
def test_each_node_has_exactly_one_server_at_every_step_of_a_migration(clusters_of, variables, labels, served_by):
    tree = tree_of(clusters_of, {"moved": variables})
    assert servers_of(tree, labels) == served_by
    assert servers_of(tree, {**labels, "gpufleet.github.io/gpu-clients": "paused"}) == set()


def test_a_driver_that_is_changed_before_the_labels_serves_no_node_that_was_moved_back(clusters_of):
    """Controllers apply the release and the rule in any order: with both labels the node has been moved."""
    tree = tree_of(clusters_of, {"moved": DRA_DEVICES})
    assert servers_of(tree, {NODE_BACKEND: "dra", MIGRATED: "device-plugin"}) == set()


def test_the_pool_keeps_its_names_when_its_migration_begins(clusters_of):
    before = json.loads(
        tree_of(clusters_of, {"moved": {**DRA_DEVICES, "nvidia_sharing_backend": "mps"}})["capacity.json"]
    )
    tree = tree_of(clusters_of, {"moved": TO_CLAIMS}, before=former(json.dumps(before), "capacity.json"))
    assert "values/nvidia-device-plugin-moved.yaml" in tree
    node = json.loads(tree["capacity.json"])["nodes"]["moved-0"]
    assert node["devices"] == {"gpu.nvidia.com": 2}
    assert (node["migration"]["to"], node["migration"]["resources"]) == ("dra", {"nvidia.com/gpu": 2})
    assert "migration" not in before["nodes"]["moved-0"]
    assert "feature gate DRAExtendedResource" in tree_of(clusters_of, {"moved": TO_CLAIMS}, version="1.34")[DRIVER]
    assert "DRAExtendedResource" not in tree_of(clusters_of, {"moved": TO_CLAIMS}, version="1.36")[DRIVER]


def test_who_serves_the_nodes_of_a_pool_that_is_migrated_is_said(clusters_of):
    text = tree_of(clusters_of, {"moved": TO_CLAIMS})["README.md"]
    assert (
        "moved-0, moved-1: served by the device plugin, until gpufleet.nvidia.migrate moves them to the DRA driver"
        in text
    )


SLICED = {
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": [1], "instances": {"1g.10gb+me": 1, "1g.10gb": 2}}],
}


def test_mig_devices_keep_their_names_while_the_pool_is_migrated_and_when_it_is(clusters_of):
    plugin = tree_of(clusters_of, {"moved": {**DRA_DEVICES, **SLICED, "nvidia_sharing_backend": "mps"}})
    assert CLASSES not in plugin
    names = json.loads(plugin["capacity.json"])["nodes"]["moved-0"]["resources"]
    served = [tree_of(clusters_of, {"moved": {**one, **SLICED}}) for one in (TO_CLAIMS, DRA_DEVICES, BACK)]
    assert len({tree[CLASSES] for tree in served}) == 1
    classes = list(yaml.safe_load_all(served[0][CLASSES]))
    by_name = {one["metadata"]["name"]: one["spec"] for one in classes}
    assert {one["extendedResourceName"] for one in by_name.values()} == names.keys() - {"nvidia.com/gpu"}
    media = by_name["gpufleet-mig-1g.10gb.me"]
    assert media["extendedResourceName"] == "nvidia.com/mig-1g.10gb.me"
    (selector,) = media["selectors"]
    assert selector["cel"]["expression"].endswith("].profile == '1g.10gb+me'")
    assert not [found for one in classes for found in lint(yaml.safe_dump(one)).findings]
    assert servers_of(served[0], {}) == {"plugin"} and servers_of(served[0], {MIGRATED: "dra"}) == {"dra"}
    text = served[0]["README.md"]
    assert (
        "cluster cluster: pods that request nvidia.com/mig-1g.10gb: N may land on\n  - moved-0, moved-1: served by"
        in text
    )
    node = json.loads(served[0]["capacity.json"])["nodes"]["moved-0"]
    assert node["migration"]["resources"] == names


def test_whole_gpus_and_the_strategy_single_have_no_class_of_their_own(clusters_of):
    single = {"nvidia_mig_strategy": "single", "nvidia_mig_layout": "all-1g.10gb"}
    assert CLASSES not in tree_of(clusters_of, {"claims": {**DRA_DEVICES, **single}})
    assert CLASSES not in tree_of(clusters_of, {"claims": DRA_DEVICES})


@pytest.mark.parametrize(
    ("variables", "options", "text"),
    [
        ({"nvidia_sharing_migrate_from": "dra"}, {}, "Set nvidia_sharing_backend: mps"),
        ({"nvidia_sharing_migrate_from": "hami"}, {}, "must be one of , mps, dra"),
        ({"nvidia_mig_strategy": "single", "nvidia_mig_layout": "all-1g.10gb"}, {}, "no second class may have it"),
        ({"nvidia_sharing_memory_slice": "4GiB"}, {}, "nvidia_sharing_memory_slice is set, and for a request by name"),
        (
            {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4},
            {},
            "nvidia_sharing_mode is set, and for a request by name the DRA driver gives each pod a device of its own",
        ),
        (
            {"nvidia_sharing_mode": "mps", "nvidia_sharing_replicas": 4},
            {},
            "nvidia_sharing_mode is set, and for a request",
        ),
        ({"nvidia_driver_imex": "masked"}, {}, "ComputeDomains of the DRA driver run IMEX on its nodes"),
        ({"nvidia_toolkit_device_injection": "volume_mounts"}, {}, "by CDI"),
        ({}, {"stack": "gpu_operator"}, "Set gpu_kubernetes_stack: device_plugin first"),
        ({}, {"version": "1.33"}, "1.34 with the feature gate DRAExtendedResource"),
    ],
)
def test_what_cannot_be_migrated_in_place_is_refused(clusters_of, variables, options, text):
    with pytest.raises(Refused, match=re.escape(text)):
        tree_of(clusters_of, {"moved": {**TO_CLAIMS, **variables}}, **options)


def test_hami_and_the_dra_driver_do_not_both_serve_a_name(clusters_of):
    hami = {**DRA_DEVICES, "nvidia_sharing_backend": "hami", "nvidia_sharing_memory_slice": "4GiB"}
    with pytest.raises(Refused, match=r"HAMi and the DRA driver of pool claims would both serve nvidia.com/gpu"):
        tree_of(clusters_of, {"claims": DRA_DEVICES, "hami": hami})


@pytest.mark.parametrize("migrating", [False, True])
def test_the_linter_finds_one_server_for_each_node_and_two_where_an_affinity_is_taken_out(clusters_of, migrating):
    counted = {"gpu_facts_gpus": DRA_DEVICES["gpu_facts_gpus"]}
    moved = {**(TO_CLAIMS if migrating else DRA_DEVICES), **SLICED}
    tree = tree_of(clusters_of, {"counted": counted, "moved": moved})
    linted = {name: text for name, text in tree.items() if name.startswith("values/") or name == CLASSES}
    linted = {f"clusters/c/{name}": text for name, text in linted.items()}
    assert len([name for name in linted if "nvidia-device-plugin" in name]) == 1 + migrating
    twice = "offer the same GPUs twice"
    assert twice not in str(lint_files(linted))
    assert not [
        found for name, verdict in lint_files(linted).items() if "DeviceClass" in name for found in verdict.findings
    ]

    values = driver_values(tree)
    del values["kubeletPlugin"]["affinity"]
    linted[f"clusters/c/{DRIVER}"] = yaml.safe_dump(values)
    verdict = lint_files(linted)[f"clusters/c/{DRIVER}[values]"]
    assert [found.message.count(twice) for found in verdict.findings] == [1] * (1 + migrating)
