# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import evict_gpu_pods
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.pods import evictions, read

ROLE = Path(__file__).parents[4] / "roles" / "gpu_repartition" / "tasks"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


def document(name, terminating=False, limits=None):
    metadata = {
        "namespace": "jobs",
        "name": name,
        "uid": name,
        "ownerReferences": [{"kind": "Job", "controller": True}],
    }
    if terminating:
        metadata["deletionTimestamp"] = "now"
    container = {"resources": {"limits": {"nvidia.com/gpu": "1"} if limits is None else limits}}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Running"}}


class FakeCluster:
    """Pods that leave some looks after their eviction was accepted; a budget that has room after some requests."""

    def __init__(self, *names, leaves_after=1, budget_after=0, never=()):
        self.there = {name: document(name) for name in names}
        self.leaves_after, self.never = leaves_after, never
        self.refusals = budget_after
        self.asked, self.accepted = [], {}
        self.sets = []

    def evict(self, _namespace, name, uid):
        assert name == uid
        self.asked.append(name)
        if self.refusals:
            self.refusals -= 1
            return BUDGET
        self.accepted[name] = self.leaves_after
        return None

    def daemon_sets(self):
        return [{"metadata": {"namespace": namespace, "uid": uid}} for namespace, uid in self.sets]

    def pods_on(self, _node):
        for name in [name for name in self.accepted if name not in self.never]:
            self.accepted[name] -= 1
            if self.accepted[name] <= 0:
                self.there.pop(name, None)
        return list(self.there.values())


def run(cluster, timeout=1.0):
    plan = evictions([read(pod) for pod in cluster.there.values()], daemon_sets=())
    return evict_gpu_pods._evict(cluster, "n", plan, timeout, 0.0)


def test_all_pods_leave_and_each_eviction_is_asked_for_once():
    cluster = FakeCluster("a", "b", leaves_after=3)
    assert run(cluster) == {}
    assert sorted(cluster.asked) == ["a", "b"]


def test_a_budget_without_room_is_asked_again():
    cluster = FakeCluster("a", "b", budget_after=3)
    assert run(cluster) == {}
    assert len(cluster.asked) == 5


def test_a_budget_that_never_has_room_gives_its_own_words():
    assert run(FakeCluster("a", budget_after=10**9), timeout=0.01) == {"jobs/a": BUDGET}


def test_a_pod_that_does_not_end_is_named():
    remaining = run(FakeCluster("a", "b", never=("b",)), timeout=0.01)
    assert remaining == {"jobs/b": "its eviction was accepted, but it does not terminate"}


def test_a_pod_that_is_ending_is_not_asked_again():
    cluster = FakeCluster()
    cluster.there["a"] = document("a", terminating=True)
    assert list(run(cluster, timeout=0.01)) == ["jobs/a"]
    assert cluster.asked == []


def test_without_a_checkpoint_gpu_pods_are_not_guessed_at():
    with pytest.raises(Refused, match="it is not known which devices jobs/a hold"):
        evict_gpu_pods._holdings("", "n", [read(document("a"))], ())
    assert evict_gpu_pods._holdings("", "n", [], ()) == ()


@pytest.fixture
def evict(call, monkeypatch):
    def do(cluster, **arguments):
        monkeypatch.setattr(evict_gpu_pods.ActionModule, "cluster", lambda _self, _arguments: cluster)
        return call(evict_gpu_pods, {"node": "n", "timeout": 1, "poll": 0, **arguments}, {})[0]

    return do


def test_pods_that_use_no_gpu_leave_only_when_they_hold_one_or_the_node_is_drained(evict):
    def cluster():
        found = FakeCluster("work")
        found.there.update({name: document(name, limits={}) for name in ("web", "monitor")})
        return found

    assert evict(cluster())["evicted"] == ["jobs/work"]
    assert evict(cluster(), holders=["monitor"])["evicted"] == ["jobs/work", "jobs/monitor"]
    assert evict(cluster(), every_pod=True)["evicted"] == ["jobs/work", "jobs/web", "jobs/monitor"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, ["n: would evict jobs/work"]),
        ({"devices": []}, []),
        ({"every_pod": True}, ["n: would evict jobs/work, jobs/web"]),
    ],
)
def test_check_mode_names_who_would_leave_a_whole_node(call, monkeypatch, arguments, said):
    cluster = FakeCluster("work")
    cluster.there["web"] = document("web", limits={})
    monkeypatch.setattr(evict_gpu_pods.ActionModule, "cluster", lambda _self, _arguments: cluster)
    checkpoint = json.dumps({"Data": {"PodDeviceEntries": []}})
    _result, shown = call(evict_gpu_pods, {"node": "n", "checkpoint": checkpoint, **arguments}, {}, check_mode=True)
    assert (shown.lines, cluster.asked) == (said, [])


def test_a_drain_in_which_a_pod_does_not_end_fails(evict):
    found = evict(FakeCluster("work", "stuck", never=("stuck",)), every_pod=True, timeout=0)
    assert found["failed"]
    assert found["not_evicted"] == {"jobs/stuck": "its eviction was accepted, but it does not terminate"}
    assert "jobs/stuck: its eviction was accepted, but it does not terminate" in found["msg"]


def test_what_draining_cannot_help_against_is_no_pod_that_was_not_evicted(evict, monkeypatch):
    def forbidden(*_arguments):
        raise ApiError("evict pod jobs/work", "forbidden", 403)

    cluster = FakeCluster("work")
    monkeypatch.setattr(cluster, "evict", forbidden)
    found = evict(cluster)
    assert found["failed"] and "not_evicted" not in found


def test_a_refusal_says_what_was_to_leave(evict):
    cluster = FakeCluster("work")
    cluster.there["alone"] = document("alone", limits={})
    cluster.there["alone"]["metadata"]["ownerReferences"] = []
    refused = evict(cluster, every_pod=True)
    assert refused["msg"].startswith("Failed to evict the pods of n; none was touched: jobs/alone")
    assert list(refused["not_evicted"]) == ["jobs/alone"]
    done = evict(cluster)
    assert done["evicted"] == ["jobs/work"] and "not_evicted" not in done
    assert "the GPU pods of n" in evict(cluster, holders=["alone"])["msg"]


def test_the_cluster_is_asked_for_the_daemon_set_that_a_pod_names(evict):
    cluster = FakeCluster("work")
    cluster.there["plugin"] = document("plugin")
    cluster.there["plugin"]["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "uid": "set", "controller": True}]
    refused = evict(cluster)
    assert list(refused["not_evicted"]) == ["jobs/plugin"] and cluster.asked == []
    cluster.sets = [("other", "set")]
    assert list(evict(cluster)["not_evicted"]) == ["jobs/plugin"], "an owner is in the namespace of its pod"
    cluster.sets = [("jobs", "set")]
    assert evict(cluster)["evicted"] == ["jobs/work"]


def test_the_role_learns_which_devices_are_in_use_before_anything_is_planned(evict):
    """With what its own task passes: C(mig_plan) of a run that has planned nothing would be refused."""
    (block,) = (task for task in yaml.safe_load((ROLE / "plan.yml").read_text()) if "in_use" in str(task))
    (match,) = (task["gpufleet.nvidia.node"] for task in block["block"] if "Match" in task["name"])
    assert match.pop("action") == "evict_gpu_pods"
    given = {name: value for name, value in match.items() if not isinstance(value, str) or "{{" not in value}
    entry = {
        "PodUID": "work",
        "ContainerName": "c",
        "ResourceName": "nvidia.com/gpu",
        "DeviceIDs": {"0": ["GPU-1"]},
    }
    cluster = FakeCluster("work")
    found = evict(cluster, **given, checkpoint=json.dumps({"Data": {"PodDeviceEntries": [entry]}}))
    assert "failed" not in found, found
    assert found["in_use"] == {"GPU-1": ["work"]} and cluster.asked == []


def claimed(pod, uuid, **more):
    said = {"pod": f"jobs/{pod}", "pod_uid": pod, "container": None, "resource": "claim mine", **more}
    part = {"id": 0, "profile": "1g.10gb", "uuid": uuid, "allocations": [said]}
    instance = {"id": 1, "profile": "1g.10gb", "start": 0, "size": 1, "compute_instances": [part]}
    return {"index": 0, "uuid": "GPU-0", "gpu_instances": [instance]}


def test_the_pod_of_a_claim_leaves_with_what_goes_and_keeps_what_stays(evict):
    """The checkpoint has nothing of claims, or is not there where no device plugin ever was."""
    for checkpoint in ("", json.dumps({"Data": {"PodDeviceEntries": []}})):
        cluster = FakeCluster("work")
        kept = evict(cluster, devices=["MIG-b"], gpus=[claimed("work", "MIG-a")], checkpoint=checkpoint)
        assert (kept["evicted"], kept["stay"], kept["in_use"]) == ([], ["jobs/work"], {"MIG-a": ["work"]})
        gone = evict(cluster, devices=["MIG-a"], gpus=[claimed("work", "MIG-a")], checkpoint=checkpoint)
        assert gone["evicted"] == ["jobs/work"]


def test_nobody_is_evicted_while_the_record_of_claims_cannot_be_read(evict):
    unread = {"pod_uid": None, "resource": None, "reason": "/var/lib/kubelet/dra_manager_state: it is not readable"}
    cluster = FakeCluster("work")
    refused = evict(
        cluster,
        devices=["MIG-a"],
        gpus=[claimed("work", "MIG-a", **unread)],
        checkpoint='{"Data": {"PodDeviceEntries": []}}',
    )
    assert refused["failed"] and "dra_manager_state: it is not readable" in refused["msg"] and cluster.asked == []


@pytest.mark.parametrize(
    "file", ["gpu_repartition/tasks/plan.yml", "gpu_repartition/tasks/change.yml", "gpu_heal/tasks/evict.yml"]
)
def test_a_role_that_names_devices_passes_claims_too(file):
    def tasks(listed):
        for task in listed:
            yield task
            yield from tasks(task.get("block", ()))

    given = [
        task.get("gpufleet.nvidia.node", {}) for task in tasks(yaml.safe_load((ROLE.parents[1] / file).read_text()))
    ]
    calls = [call for call in given if call.get("action") == "evict_gpu_pods"]
    assert calls and all("gpus" in call for call in calls if "checkpoint" in call)
