# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime

import pytest
from ansible_collections.gpufleet.nvidia.plugins.action import upgrade_lease, upgrade_node, upgrade_waves
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease, lease_renewal
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import SINCE, Record, from_annotations

TARGET = "driver 580.178.04"


class FakeCluster:
    """One node whose annotations and cordon are kept, and a lease."""

    def __init__(self, record=None, unschedulable=False):
        self.annotations = {key: value for key, value in (record or Record()).annotations().items() if value}
        self.unschedulable = unschedulable
        self.held = None

    def node(self, name):
        spec = {"unschedulable": True} if self.unschedulable else {}
        return {"metadata": {"name": name, "annotations": dict(self.annotations)}, "spec": spec}

    def change_node(self, _name, annotations, unschedulable):
        self.annotations = {key: value for key, value in {**self.annotations, **annotations}.items() if value}
        if unschedulable is not None:
            self.unschedulable = unschedulable

    def lease(self, _namespace, _name):
        return self.held

    def clock(self, _namespace):
        return datetime.datetime.now(datetime.timezone.utc)

    def write_lease(self, _namespace, _name, spec, _version):
        self.held = {"metadata": {"resourceVersion": "1"}, "spec": dict(spec)}
        return True

    @property
    def record(self):
        return from_annotations(self.annotations)


@pytest.fixture(autouse=True)
def renewed(monkeypatch):
    """The leases for which a process that renews them would be started."""
    started = []
    monkeypatch.setattr(lease_renewal, "start", lambda *arguments: started.append(arguments))
    return started


@pytest.fixture
def mark(call, monkeypatch):
    def do(cluster, state, **arguments):
        monkeypatch.setattr(upgrade_node.ActionModule, "cluster", lambda _self, _arguments: cluster)
        given = {
            "node": "n",
            "state": state,
            "target": TARGET,
            "origin": "580.126.09",
            "toolkit": "1.19.1",
            **arguments,
        }
        return call(upgrade_node, given, {})[0]

    return do


def test_the_first_step_cordons_and_remembers_driver_and_toolkit(mark):
    cluster = FakeCluster()
    mark(cluster, "started")
    assert cluster.unschedulable
    assert (cluster.record.origin, cluster.record.toolkit, cluster.record.state) == ("580.126.09", "1.19.1", "started")


def test_a_rollback_after_a_failure_keeps_its_reason_while_it_lasts(mark):
    cluster = FakeCluster(Record("verifying", "580.126.09", TARGET, toolkit="1.19.1"), unschedulable=True)
    mark(cluster, "failed", reason="CUDA error")
    mark(cluster, "rolling-back", reason="CUDA error", origin="580.178.04", toolkit="1.20.0")
    found = cluster.record
    assert (found.state, found.failed_reason) == ("rolling-back", "CUDA error")
    assert (found.origin, found.toolkit, found.initial_unschedulable) == ("580.126.09", "1.19.1", False)
    mark(cluster, "failed", reason="CUDA error Rolled back.")
    assert cluster.record.failed_reason == "CUDA error Rolled back."
    assert cluster.unschedulable


def test_a_rollback_by_hand_has_no_reason_and_is_given_back(mark):
    cluster = FakeCluster(Record("done", "580.126.09", TARGET, failed_reason="old", toolkit="1.19.1"))
    mark(cluster, "rolling-back")
    assert (cluster.record.state, cluster.record.failed_reason, cluster.unschedulable) == ("rolling-back", "", True)
    mark(cluster, "refused", reason="Rolled back by hand.")
    assert (cluster.record.state, cluster.unschedulable) == ("refused", False)


@pytest.mark.parametrize("state", ["", "done", "failed", "refused"])
def test_a_rollback_by_hand_goes_back_to_what_was_before_the_last_change_and_not_before_an_older_rollout(mark, state):
    old = Record(state, "575.51.03", "driver 580.126.09", toolkit="1.18.0") if state else None
    cluster = FakeCluster(old)
    mark(cluster, "rolling-back", origin="580.126.09", toolkit="1.19.1", target="driver 580.178.04")
    found = cluster.record
    assert (found.origin, found.toolkit, found.target) == ("580.126.09", "1.19.1", "driver 580.178.04")


def test_a_rollback_by_hand_of_a_rollout_keeps_what_the_rollout_found_and_brought(mark):
    cluster = FakeCluster(Record("done", "580.126.09", TARGET, toolkit="1.19.1"))
    mark(cluster, "rolling-back", origin="580.126.09", toolkit="1.20.0", target="driver 580.178.04")
    assert (cluster.record.toolkit, cluster.record.target) == ("1.19.1", TARGET)


@pytest.fixture
def lease(call, monkeypatch):
    def do(cluster, state, **arguments):
        monkeypatch.setattr(upgrade_lease.ActionModule, "cluster", lambda _self, _arguments: cluster)
        return call(upgrade_lease, {"state": state, **arguments}, {}, arguments.pop("check", False))[0]

    return do


def test_a_lease_is_taken_renewed_given_back_and_refused_to_others(lease, renewed):
    cluster = FakeCluster()
    assert lease(cluster, "present")["holder"] == cluster.held["spec"]["holderIdentity"]
    lease(cluster, "absent")
    assert cluster.held["spec"]["holderIdentity"] is None
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    theirs = {"holderIdentity": "you@there/1-2", "leaseDurationSeconds": 1800, "acquireTime": now, "renewTime": now}
    cluster.held = {"metadata": {"resourceVersion": "1"}, "spec": theirs}
    assert "you@there/1-2 works on this fleet since" in lease(cluster, "present")["msg"]
    assert "failed" not in lease(cluster, "present", take_over=True)
    assert [started[2] for started in renewed] == ["default", "default"], "where it was taken, and nowhere else"


def test_without_a_cluster_there_is_no_lease(lease):
    cluster = FakeCluster()
    assert "failed" not in lease(cluster, "present", kubernetes=False)
    assert cluster.held is None


@pytest.fixture
def plan(call):
    def do(record, **arguments):
        host = {"node": "a", "needed": True, "target": TARGET}
        known = {"__gpu_upgrade_host": host, "__gpu_upgrade_record": record.values(), "__gpu_upgrade_started": False}
        given = {"state": "planned", "target": TARGET, "hosts": ["a"], "kubernetes": False, **arguments}
        return call(upgrade_waves, given, {"hostvars": {"a": known}})[0]

    return do


def node(**labels):
    conditions = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"annotations": {}, "labels": labels}, "spec": {}, "status": {"conditions": conditions}}


class Nodes(FakeCluster):
    def __init__(self, *names):
        super().__init__()
        self.names = names

    def nodes(self):
        return {name: node() for name in self.names}


@pytest.fixture
def plan_cluster(call, monkeypatch):
    def do(cluster, *hosts, check=False, **arguments):
        monkeypatch.setattr(upgrade_waves.ActionModule, "cluster", lambda _self, _arguments: cluster)
        known = {
            name: {"__gpu_upgrade_host": {"node": f"node-{name}", "needed": True, "target": TARGET}} if read else {}
            for name, read in hosts
        }
        given = {"state": "planned", "target": TARGET, "hosts": [name for name, _read in hosts], **arguments}
        return call(upgrade_waves, given, {"hostvars": known}, check)[0]

    return do


def test_a_host_that_is_no_node_ends_the_rollout_before_anything_is_touched(plan_cluster):
    cluster = Nodes("node-a")
    refused = plan_cluster(cluster, ("a", True), ("b", True))
    assert refused["failed"]
    assert refused["msg"].startswith("b (node node-b): the cluster has no such node. Set gpu_upgrade_node")
    assert "--limit 'gpu_hosts,!b'" in refused["msg"]
    assert cluster.held["spec"]["holderIdentity"] is None, "the lease is not kept"
    unread = plan_cluster(cluster, ("a", True), ("b", False), max_unavailable="2")
    assert unread["order"] == ["a"], "a host that could not be read is not begun, and is named at the end"


def test_a_record_that_cannot_be_read_leaves_its_node_alone_and_no_other(plan_cluster):
    class Marked(Nodes):
        def nodes(self):
            found = super().nodes()
            found["node-a"]["metadata"]["annotations"]["gpufleet.github.io/upgrade-wave"] = "first"
            return found

    cluster = Marked("node-a", "node-b")
    assert plan_cluster(cluster, ("a", True), ("b", True), max_unavailable="2")["order"] == ["b"]
    ended = plan_cluster(cluster, ("a", True), ("b", True), state="finished")
    assert ended["report"]["a"]["failed_reason"] == "wave: 'first' must be an integer."
    assert "a" in ended["left"] and not ended["complete"]


def test_a_file_of_a_host_that_is_no_record_leaves_the_host_alone(call):
    hosts = {name: {"__gpu_upgrade_host": {"needed": True}, "__gpu_upgrade_record": {}} for name in ("a", "b")}
    hosts["a"]["__gpu_upgrade_record"] = [1]
    given = {"state": "planned", "target": TARGET, "hosts": ["a", "b"], "kubernetes": False, "max_unavailable": "2"}
    found, shown = call(upgrade_waves, given, {"hostvars": hosts})
    assert found["order"] == ["b"]
    assert "a is left out: its record in /var/lib/gpufleet/upgrade.json cannot be read" in shown.warnings[0]


def test_check_mode_takes_no_lease(plan_cluster):
    cluster = Nodes("node-a")
    assert plan_cluster(cluster, ("a", True), check=True)["order"] == ["a"]
    assert cluster.held is None


def moment(**ago):
    return (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(**ago)).strftime(SINCE)


def test_of_two_operators_on_plain_hosts_the_second_is_refused(plan):
    record = Record("installing", "580.126.09", TARGET, operator="you@there/1-2", since=moment(seconds=10))
    refused = plan(record)
    assert refused["failed"]
    assert "host a: you@there/1-2 works on this fleet" in refused["msg"]
    assert "gpu_upgrade_take_over=true" in refused["msg"]
    assert plan(record, take_over=True)["order"] == ["a"]
    assert plan(record, lease_duration=5)["order"] == ["a"]


def test_a_dead_run_of_the_same_machine_is_continued_at_once(plan):
    where = cluster_lease.this_run().where
    record = Record(
        "installing", "580.126.09", TARGET, operator=f"{where}/1-2-{cluster_lease._space()}", since=moment(seconds=10)
    )
    assert plan(record)["order"] == ["a"]


def test_a_wave_says_where_a_rollback_has_to_be_finished(plan):
    record = Record("rolling-back", "580.126.09", TARGET, failed_reason="CUDA error")
    found = plan(record, state="next", batch=["a"], wait=0)
    assert found["start"] == ["a"]
    assert found["rolling_back"] == ["a"]
    assert found["records"]["a"]["failed_reason"] == "CUDA error"
