# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import served
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.served import DRA, PLUGIN, Served

A, B, C = Served("a", "moved", PLUGIN, DRA), Served("b", "moved", PLUGIN, DRA), Served("c", "batch", PLUGIN)


def node(label=None):
    return {"metadata": {"labels": {served.MIGRATED_LABEL: label} if label else {}}}


def test_nodes_that_are_served_alike_are_one_entry():
    said = served.entries([A, B, C])
    assert [entry["nodes"] for entry in said] == [["a", "b"], ["c"]]
    assert served.read(said) == (A, B, C)


def test_labels_say_which_nodes_were_moved():
    assert served.now([A, B, C], {"a": node(DRA), "b": node()}) == (Served("a", "moved", DRA), B, C)
    assert served.now([C], {"c": node(DRA)}) == (C,), "its pool is not migrated"
    assert served.lines("production", served.now([A, B, C], {"a": node(DRA)})) == [
        "cluster production: pods that request nvidia.com/gpu: N may land on",
        "  c: served by the device plugin",
        "  b: served by the device plugin, until gpufleet.nvidia.migrate moves them to the DRA driver",
        "  a: served by the DRA driver",
    ]
    assert served.lines("production", [C]) == []


def test_each_resource_has_its_own_nodes():
    mig = "nvidia.com/mig-1g.10gb"
    both = Served("a", "moved", PLUGIN, DRA, (served.GPU, mig))
    assert served.lines("production", served.now([both, C], {"a": node(DRA)})) == [
        "cluster production: pods that request nvidia.com/gpu: N may land on",
        "  c: served by the device plugin",
        "  a: served by the DRA driver",
        "cluster production: pods that request nvidia.com/mig-1g.10gb: N may land on",
        "  a: served by the DRA driver",
    ]
    assert served.claimed([both, C]) == [served.GPU, mig]
    assert served.claimed([C]) == []


@pytest.mark.parametrize(
    ("version", "old"), [("v1.33.5", True), ("1.29", True), ("v1.34.4", False), ("v1.36.0", False)]
)
def test_a_cluster_that_is_too_old_is_told_the_version_that_does(version, old):
    text = served.too_old(version)
    assert bool(text) is old
    assert not old or ("1.36 does by default, 1.34 with the feature gate DRAExtendedResource" in text)


def test_exactly_one_class_has_the_name():
    def one(name, resource="nvidia.com/gpu"):
        return {"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}

    mig = {"metadata": {"name": "mig.nvidia.com"}, "spec": {}}
    assert served.class_problem([one("gpu.nvidia.com"), mig, one("nic", "example.com/nic")], "v1.34.4") == ""
    assert "gpu.nvidia.com and own both have extendedResourceName: nvidia.com/gpu" in served.class_problem(
        [one("own"), one("gpu.nvidia.com")], "v1.34.4"
    )
    for version in ("v1.34.4", "v1.36.3"):
        assert f"{version} drops the field without the feature gate" in served.class_problem([mig], version)
    assert served.class_problem([mig], "v1.37.2").endswith("Install the release dra-driver-nvidia-gpu"), (
        "it cannot be off"
    )
    name = "nvidia.com/mig-1g.10gb"
    assert served.class_problem([one("gpu.nvidia.com"), one("x", name)], "v1.34.4", name) == ""
    assert "Apply objects/device-classes.yaml of the rendered tree" in served.class_problem([mig], "v1.34.4", name)
    assert "Delete all but the one of the rendered tree" in served.class_problem(
        [one("x", name), one("y", name)], "", name
    )


def daemon_set(uid, operator, value, **more):
    expression = {"key": served.MIGRATED_LABEL, "operator": operator, "values": [value]}
    paused = {"key": "gpufleet.github.io/gpu-clients", "operator": "NotIn", "values": ["paused"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression, paused]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    spec = {"affinity": affinity, "nodeSelector": {"pool": "moved"}, **more}
    return {"metadata": {"uid": uid}, "spec": {"template": {"spec": spec}}}


SETS = [daemon_set("plugin", "NotIn", DRA), daemon_set("dra", "In", DRA), {"metadata": {"uid": "other"}, "spec": {}}]
LABELS = {"pool": "moved", "gpufleet.github.io/gpu-clients": "paused"}


def pod(uid):
    owners = [{"uid": uid, "controller": True}]
    return {"metadata": {"namespace": "gpu", "name": f"{uid}-x", "ownerReferences": owners}}


def test_nothing_is_moved_to_a_server_that_is_not_installed():
    assert served.unready(SETS, LABELS, DRA) == served.unready(SETS, LABELS, PLUGIN) == ""
    assert "Render the clusters with nvidia_sharing_migrate_from" in served.unready(SETS[:1], LABELS, DRA)
    assert served.unready(SETS, {"pool": "other"}, DRA), "the node is of no pool that is migrated"


def test_what_is_left_of_the_other_side_is_waited_for():
    there = [pod("plugin"), pod("dra"), pod("other")]
    a = {"a": {"metadata": {"uid": "uid-a"}}}
    assert served.not_left(SETS, there, [], a, LABELS, DRA) == ["pod gpu/plugin-x"]
    owned = {"ownerReferences": [{"kind": "Node", "name": "a", "uid": "uid-a"}]}
    device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-1"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a", "pool": {"name": "a", "generation": 1}, "devices": [device]}
    assert served.not_left(SETS, there[2:], [{"metadata": owned, "spec": spec}], a, LABELS, PLUGIN) == [
        "1 devices in ResourceSlices of the node"
    ]
    assert served.not_left(SETS, there[1:], [], a, {**LABELS, served.MIGRATED_LABEL: DRA}, DRA) == []


def test_only_the_resources_of_nvidias_plugin_are_left_over():
    status = {
        "capacity": {"cpu": "8", "nvidia.com/gpu": "0", "example.com/nic": "1"},
        "allocatable": {"nvidia.com/mig-1g.10gb": "0"},
    }
    assert served.left_over({"status": status}) == ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]
    assert served.left_over({}) == []
