# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster as module
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError, Cluster

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}


@pytest.fixture
def connect(tmp_path, monkeypatch):
    """Return a function that makes a cluster whose calls get the given answers, in order; the last one stays."""
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))
    monkeypatch.setattr(module, "_PAUSE", 0.0)

    def make(*answers, patience=5.0):
        told = []
        found = Cluster(str(path), "", patience, told.append)
        left = list(answers)
        calls = []

        def answer(method, url, body, _patch, query):
            calls.append((method, url, body, query))
            return left.pop(0) if len(left) > 1 else left[0]

        monkeypatch.setattr(found, "_try", answer)
        found.calls, found.told = calls, told
        return found

    return make


def test_a_server_that_is_away_is_waited_for_and_said_once(connect):
    cluster = connect((0, "refused"), (503, "starting"), {"items": []})
    assert cluster.nodes() == {}
    assert len(cluster.calls) == 3
    assert len(cluster.told) == 1
    assert "waiting up to 5 s to list the nodes" in cluster.told[0]


def test_kinds_that_the_server_lacks_are_none(connect):
    assert connect((404, "not found")).kinds("a.example/v1") == set()
    cluster = connect({"resources": [{"name": "policies"}, {"name": "policies/status"}]})
    assert cluster.kinds("a.example/v1") == {"policies", "policies/status"}
    assert cluster.calls[0][:2] == ("GET", "/apis/a.example/v1")


def test_a_server_that_stays_away_ends_with_what_was_tried(connect):
    with pytest.raises(ApiError, match="Failed to read node a: refused"):
        connect((0, "refused"), patience=0).node("a")


def test_an_answer_is_not_asked_for_again(connect):
    cluster = connect((403, "not allowed"))
    with pytest.raises(ApiError, match="not allowed") as caught:
        cluster.node("a")
    assert caught.value.status == 403
    assert len(cluster.calls) == 1


def test_a_real_connection_that_is_refused_is_an_absent_server(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))
    with pytest.raises(ApiError) as caught:
        Cluster(str(path), "", 0).node("a")
    assert caught.value.status == 0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, None),
        ((404, "gone"), None),
        ((409, "another uid"), None),
        ((429, "budget"), "Failed to evict pod n/p: budget"),
    ],
)
def test_what_an_eviction_answers(connect, answer, reason):
    cluster = connect(answer)
    assert cluster.evict("n", "p", "uid") == reason
    assert cluster.calls[0][2]["deleteOptions"] == {"preconditions": {"uid": "uid"}}


def test_other_refusals_of_an_eviction_are_errors(connect):
    with pytest.raises(ApiError, match="forbidden"):
        connect((403, "forbidden")).evict("n", "p", "uid")


def test_a_cordon_and_its_record_are_one_change(connect):
    cluster = connect({})
    cluster.change_node("a", {"k": "v"}, True)
    cluster.change_node("a", {"k": None}, False)
    cluster.change_node("a", {"k": "v"})
    cluster.change_node("a", {}, labels={"l": None})
    assert [call[2] for call in cluster.calls] == [
        {"metadata": {"annotations": {"k": "v"}}, "spec": {"unschedulable": True}},
        {"metadata": {"annotations": {"k": None}}, "spec": {"unschedulable": None}},
        {"metadata": {"annotations": {"k": "v"}}},
        {"metadata": {"annotations": {}, "labels": {"l": None}}},
    ]


def test_a_lease_is_made_changed_or_lost_to_another(connect):
    cluster = connect({})
    assert cluster.write_lease("n", "l", {}, None)
    assert cluster.write_lease("n", "l", {}, "7")
    assert [(call[0], call[1].rpartition("leases")[2]) for call in cluster.calls] == [("POST", ""), ("PUT", "/l")]
    assert cluster.calls[1][2]["metadata"]["resourceVersion"] == "7"
    assert not connect((409, "conflict")).write_lease("n", "l", {}, "7")
    assert connect((404, "none")).lease("n", "l") is None


def test_pods_that_have_ended_are_not_asked_for_and_what_is_no_pod_is_none(connect):
    """Anybody can assign any number of pods to a node; the kubelet rejects them, and they stay."""
    pod = {"metadata": {"name": "a"}}
    for ask in (lambda cluster: cluster.pods_on("n"), lambda cluster: cluster.pods()):
        cluster = connect({"items": [pod, {"metadata": "x"}, None, {"spec": {"containers": {}}}]})
        assert ask(cluster) == [pod]
        assert "status.phase!=Failed" in str(cluster.calls[0])


def test_a_kubeconfig_that_cannot_be_read_names_the_variable(tmp_path):
    with pytest.raises(Failure, match="Set gpu_cluster_kubeconfig"):
        Cluster(str(tmp_path / "missing"), "", 0)


def test_a_pod_is_deleted_by_its_uid_and_one_that_is_gone_or_another_is_no_error(connect):
    for answer in ({}, (404, "not found"), (409, "the UID in the precondition differs")):
        cluster = connect(answer)
        cluster.delete_pod("gpu", "plugin", "u1")
        assert cluster.calls == [("DELETE", "/api/v1/namespaces/gpu/pods/plugin", {"preconditions": {"uid": "u1"}}, {})]
    with pytest.raises(ApiError, match="Failed to delete pod gpu/plugin: not allowed"):
        connect((403, "not allowed")).delete_pod("gpu", "plugin", "u1")
