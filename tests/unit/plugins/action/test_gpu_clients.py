# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import gpu_clients

from .rollouts import Nodes

LABEL = "gpufleet.github.io/gpu-clients"
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": LABEL, "operator": "NotIn", "values": ["paused"]}]},
            ]
        }
    }
}


class FakeCluster(Nodes):
    """A node, and a DaemonSet whose pod comes and goes some looks after the label did."""

    def __init__(self, labels=(), looks=2, obeys=True):
        super().__init__("n")
        self.kept["n"]["metadata"]["labels"] = dict(labels)
        self.looks, self.obeys, self.there = looks, obeys, LABEL not in self.labels

    @property
    def labels(self):
        return self.kept["n"]["metadata"]["labels"]

    @property
    def written(self):
        return [labels for *_rest, labels in self.changed]

    def daemon_sets(self):
        metadata = {"namespace": "nvidia-gpu", "name": "plugin", "uid": "u"}
        return [{"metadata": metadata, "spec": {"template": {"spec": {"affinity": AFFINITY}}}}]

    def pods_on(self, _name):
        self.looks -= 1
        if self.looks <= 0 and self.obeys:
            self.there = LABEL not in self.labels
        owner = {"uid": "u", "controller": True}
        pod = {
            "metadata": {"namespace": "nvidia-gpu", "name": "plugin-x", "ownerReferences": [owner]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        return [pod] if self.there else []


@pytest.fixture
def run(call, monkeypatch):
    def do(cluster, state, check_mode=False, timeout=5):
        monkeypatch.setattr(gpu_clients.ActionModule, "cluster", lambda _self, _arguments: cluster)
        arguments = {"node": "n", "state": state, "timeout": timeout, "poll": 0.0}
        return call(gpu_clients, arguments, {}, check_mode)[0]

    return do


def test_pausing_waits_until_the_pods_have_left(run):
    cluster = FakeCluster()
    result = run(cluster, "paused")
    assert result["changed"]
    assert result["clients"] == ["nvidia-gpu/plugin"]
    assert cluster.written == [{LABEL: "paused"}]
    assert not cluster.there


def test_pausing_again_writes_nothing_and_still_waits(run):
    cluster = FakeCluster({LABEL: "paused"})
    cluster.there = True
    result = run(cluster, "paused")
    assert not result["changed"]
    assert cluster.written == []
    assert not cluster.there


def test_resuming_waits_until_they_are_ready(run):
    cluster = FakeCluster({LABEL: "paused"})
    assert run(cluster, "resumed")["labels"] == {LABEL: None}
    assert cluster.there


def test_where_nothing_is_paused_nothing_is_resumed(run):
    cluster = FakeCluster()
    cluster.there = False
    assert not run(cluster, "resumed")["changed"]
    assert cluster.written == []


def test_check_mode_writes_nothing(run):
    cluster = FakeCluster()
    assert run(cluster, "paused", check_mode=True)["changed"]
    assert cluster.written == []


@pytest.mark.parametrize(
    ("state", "labels", "text"),
    [
        ("paused", {}, "nvidia-gpu/plugin-x did not leave node n within 0 s"),
        ("resumed", {LABEL: "paused"}, "nvidia-gpu/plugin were not ready on node n within 0 s"),
    ],
)
def test_pods_that_do_not_obey_are_named(run, state, labels, text):
    result = run(FakeCluster(labels, obeys=False), state, timeout=0)
    assert result["failed"]
    assert text in result["msg"]


class WithTenant(FakeCluster):
    """Beside it a DaemonSet of a tenant that excludes paused nodes and never gets ready, and a pod that names the plugin's DaemonSet as its owner."""

    def daemon_sets(self):
        (mine,) = super().daemon_sets()
        return [mine, {**mine, "metadata": {"namespace": "tenant", "name": "hostile", "uid": "h"}}]

    def pods_on(self, name):
        owner = {"kind": "DaemonSet", "uid": "u", "controller": True}
        forged = {"metadata": {"namespace": "tenant", "name": "forged", "ownerReferences": [owner]}}
        return [*super().pods_on(name), forged]


@pytest.mark.parametrize(("state", "labels"), [("paused", {}), ("resumed", {LABEL: "paused"})])
def test_nothing_of_a_tenant_is_waited_for(run, state, labels):
    result = run(WithTenant(labels), state, timeout=5)
    assert not result.get("failed") and result["clients"] == ["nvidia-gpu/plugin"]
