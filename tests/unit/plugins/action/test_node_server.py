# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import node_server
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import objects, served


def daemon_set(uid, operator):
    expression = {"key": served.MIGRATED_LABEL, "operator": operator, "values": [served.DRA]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    return {"metadata": {"namespace": "nvidia-gpu", "uid": uid}, "spec": {"template": {"spec": spec}}}


class FakeCluster:
    """A node whose pod of the plugin leaves some looks after the label said so, and whose kubelet writes its resource some times more."""

    def __init__(self, sets=("NotIn", "In"), stays=2, again=0):
        self.sets = [daemon_set(operator, operator) for operator in sets]
        self.stays, self.again = stays, again
        self.labels: dict[str, str] = {}
        self.annotations: dict[str, str] = {}
        self.resources = ["nvidia.com/gpu"]

    def kinds(self, api):
        return {"resourceslices"} if api == objects.CLAIMS else set()

    def node(self, _name):
        return {
            "metadata": {"labels": self.labels, "annotations": self.annotations},
            "status": {"capacity": dict.fromkeys(["cpu", *self.resources], "0")},
        }

    def daemon_sets(self):
        return self.sets

    def change_node(self, _name, annotations, labels):
        assert annotations == {}
        self.labels.update(labels)

    def pods_on(self, _name):
        self.stays -= served.MIGRATED_LABEL in self.labels
        metadata = {
            "namespace": "nvidia-gpu",
            "name": "x",
            "uid": "u1",
            "ownerReferences": [{"uid": "NotIn", "controller": True}],
        }
        app = {"metadata": {"namespace": "jobs", "name": "app", "uid": "u2"}}
        return [app, *([{"metadata": metadata}] if self.stays > 0 else [])]

    def resource_slices(self):
        return []

    def remove_resources(self, _name, names):
        assert names == ["nvidia.com/gpu"]
        self.again -= 1
        if self.again < 0:
            self.resources = []


@pytest.fixture
def run(call, monkeypatch):
    monkeypatch.setattr(node_server, "_PAUSE", 0.01)

    def do(cluster, state, check_mode=False, timeout=5, settle=0, **more):
        monkeypatch.setattr(node_server.ActionModule, "cluster", lambda _self, _arguments: cluster)
        arguments = {"node": "a", "server": "dra", "state": state, "timeout": timeout, "settle": settle, **more}
        result, _shown = call(node_server, arguments, {}, check_mode=check_mode)
        return result

    return do


def test_the_label_is_set_and_the_other_side_waited_for(run):
    cluster = FakeCluster()
    result = run(cluster, "chosen")
    assert result["changed"] and result["pods"] == ["u2"] and cluster.labels == {served.MIGRATED_LABEL: "dra"}
    assert run(cluster, "chosen")["changed"] is False, "a run that was cut off is repeated"


def test_nothing_is_labelled_before_the_tree_is_applied(run):
    cluster = FakeCluster(sets=("NotIn",))
    result = run(cluster, "chosen")
    assert result["failed"] and "Render the clusters" in result["msg"] and not cluster.labels


def test_a_pod_that_does_not_leave_is_named(run):
    result = run(FakeCluster(stays=10**6), "chosen", timeout=0)
    assert result["failed"] and "there still is pod nvidia-gpu/x" in result["msg"]


def test_what_a_starting_kubelet_writes_again_is_removed_again(run):
    cluster = FakeCluster(again=2)
    assert run(cluster, "cleared", settle=0)["changed"] and cluster.resources == []
    assert run(cluster, "cleared")["changed"] is False
    result = run(FakeCluster(again=10**6), "cleared", timeout=0)
    assert result["failed"] and "again and again" in result["msg"]


def test_check_mode_changes_nothing(run):
    cluster = FakeCluster()
    assert run(cluster, "chosen", check_mode=True)["changed"] and not cluster.labels
    assert run(cluster, "cleared", check_mode=True)["resources"] == ["nvidia.com/gpu"] and cluster.resources


def test_nothing_of_a_tenant_serves_a_node_or_is_waited_for(run):
    cluster = FakeCluster(sets=("NotIn",))
    cluster.sets.append({**daemon_set("In", "In"), "metadata": {"namespace": "tenant", "uid": "In"}})
    assert run(cluster, "chosen")["failed"], "the DaemonSet of a tenant is no DRA driver"
    cluster = FakeCluster()
    there = cluster.pods_on
    owner = [{"uid": "NotIn", "controller": True}]
    forged = {"metadata": {"namespace": "tenant", "name": "forged", "uid": "f", "ownerReferences": owner}}
    cluster.pods_on = lambda name: [*there(name), forged]
    assert sorted(run(cluster, "chosen")["pods"]) == ["f", "u2"]


@pytest.mark.parametrize("moved", [False, True])
def test_a_survey_says_whether_the_node_was_moved_and_changes_nothing(run, moved):
    cluster = FakeCluster()
    cluster.labels = {served.MIGRATED_LABEL: "dra" if moved else "device-plugin"}
    before = dict(cluster.labels)
    assert run(cluster, "surveyed") == {"changed": False, "moved": moved}
    assert cluster.labels == before


def test_a_cluster_without_claims_is_refused_before_anything_is_touched(run):
    class Old(FakeCluster):
        def kinds(self, _api):
            return set()

    result = run(Old(), "surveyed")
    assert result["failed"] and "has no resource.k8s.io/v1" in result["msg"] and "Kubernetes 1.34" in result["msg"]
    assert run(Old(), "surveyed", server="device-plugin")["moved"] is False, "the way back needs none"


def test_what_is_no_node_is_left_to_the_plan_and_plain_hosts_are_refused(run):
    class Nobody(FakeCluster):
        def node(self, name):
            raise ApiError(404, f"read node {name}", "not found")

    assert run(Nobody(), "surveyed")["moved"] is False
    assert run(None, "surveyed", kubernetes=False)["msg"].startswith("gpu_node_kubernetes is false: a migration is")
