# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a node, step by step, and the lease of the fleet."""

from __future__ import annotations

import datetime
import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import upgrade_lease, upgrade_node
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import NodeRecord
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import inventory_lines

from .rollouts import NEW, OLD, TARGET, FakeCluster

pytestmark = pytest.mark.usefixtures("run_folder", "renewed")


@pytest.fixture
def mark(call, on_cluster):
    def do(cluster, state, **arguments):
        on_cluster(cluster)
        given = {
            "node": "n",
            "state": state,
            "target": TARGET,
            "origin": "580.126.09",
            "toolkit": "1.19.1",
            **arguments,
        }
        return call(upgrade_node, given, {"inventory_hostname": "a"})[0]

    return do


def test_the_first_step_cordons_and_remembers_driver_and_toolkit(mark):
    cluster = FakeCluster()
    mark(cluster, "started")
    assert cluster.unschedulable
    assert (cluster.record.origin, cluster.record.toolkit, cluster.record.state) == ("580.126.09", "1.19.1", "started")


def test_a_rollback_after_a_failure_keeps_its_reason_while_it_lasts(mark):
    cluster = FakeCluster(NodeRecord("verifying", "580.126.09", TARGET, toolkit="1.19.1"), unschedulable=True)
    mark(cluster, "failed", reason="CUDA error")
    mark(cluster, "rolling-back", reason="CUDA error", origin="580.178.04", toolkit="1.20.2")
    found = cluster.record
    assert (found.state, found.failed_reason) == ("rolling-back", "CUDA error")
    assert (found.origin, found.toolkit, found.initial_unschedulable) == ("580.126.09", "1.19.1", False)
    mark(cluster, "failed", reason="CUDA error Rolled back.")
    assert cluster.record.failed_reason == "CUDA error Rolled back."
    assert cluster.unschedulable


def test_a_rollback_by_hand_has_no_reason_and_is_given_back(mark):
    cluster = FakeCluster(NodeRecord("done", "580.126.09", TARGET, failed_reason="old", toolkit="1.19.1"))
    mark(cluster, "rolling-back")
    assert (cluster.record.state, cluster.record.failed_reason, cluster.unschedulable) == ("rolling-back", "", True)
    mark(cluster, "refused", reason="Rolled back by hand.")
    assert (cluster.record.state, cluster.unschedulable) == ("refused", False)


@pytest.mark.parametrize("state", ["", "done", "failed", "refused"])
def test_a_rollback_by_hand_goes_back_to_what_was_before_the_last_change_and_not_before_an_older_rollout(mark, state):
    old = NodeRecord(state, "575.51.03", "driver 580.126.09", toolkit="1.18.0") if state else None
    cluster = FakeCluster(old)
    mark(cluster, "rolling-back", origin="580.126.09", toolkit="1.19.1", target="driver 580.178.04")
    found = cluster.record
    assert (found.origin, found.toolkit, found.target) == ("580.126.09", "1.19.1", "driver 580.178.04")


def test_a_rollback_by_hand_of_a_rollout_keeps_what_the_rollout_found_and_brought(mark):
    cluster = FakeCluster(NodeRecord("done", "580.126.09", TARGET, toolkit="1.19.1"))
    mark(cluster, "rolling-back", origin="580.126.09", toolkit="1.20.2", target="driver 580.178.04")
    assert (cluster.record.toolkit, cluster.record.target) == ("1.19.1", TARGET)


def rolled_out(cluster):
    return cluster.record.driver, cluster.record.former


def test_what_a_rollout_and_a_rollback_left_is_recorded_and_outlives_the_next_rollout(mark):
    cluster = FakeCluster()
    mark(cluster, "started", driver=OLD)
    assert rolled_out(cluster) == ("", "")
    mark(cluster, "done", driver=NEW)
    assert rolled_out(cluster) == (NEW, OLD)
    # The toolkit alone.
    mark(cluster, "started", driver=NEW, origin=NEW, target="toolkit 1.20.2")
    mark(cluster, "done", driver=NEW, origin=NEW, target="toolkit 1.20.2")
    assert rolled_out(cluster) == (NEW, OLD)
    mark(cluster, "rolling-back", driver=NEW, origin=OLD, target=TARGET)
    assert rolled_out(cluster) == ("", NEW)
    # Cut off, and begun again with the packages of before.
    mark(cluster, "rolling-back", driver=OLD, origin=OLD, target=TARGET)
    mark(cluster, "refused", driver=OLD, reason="Rolled back by hand.")
    assert rolled_out(cluster) == (OLD, NEW)
    assert json.loads(mark(cluster, "refused", driver=OLD)["text"])["driver"] == OLD


def test_a_rollout_that_failed_and_was_rolled_back_is_not_brought_again_by_site(mark):
    cluster = FakeCluster(NodeRecord("verifying", OLD, TARGET), unschedulable=True)
    mark(cluster, "failed", driver=NEW, reason="CUDA error")
    assert rolled_out(cluster) == ("", "")
    mark(cluster, "rolling-back", driver=NEW, reason="CUDA error")
    mark(cluster, "failed", driver=OLD, reason="CUDA error Rolled back.")
    assert rolled_out(cluster) == (OLD, NEW)


def test_lines_for_the_inventory_are_those_of_hosts_that_were_given_for_this_run_alone():
    given = {
        "nvidia_driver_branch": "595",
        "gpu_upgrade_retry": True,
        "nvidia_mig_layout": [{"devices": "all"}],
        "x": 1,
    }
    assert inventory_lines(given) == ['nvidia_driver_branch: "595"', 'nvidia_mig_layout: [{"devices": "all"}]']


@pytest.fixture
def lease(call, on_cluster):
    def do(cluster, state, **arguments):
        on_cluster(cluster)
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
    assert "you@there/1-2 has held the fleet lock since" in lease(cluster, "present")["msg"]
    assert "failed" not in lease(cluster, "present", take_over=True)
    assert [started[2] for started in renewed] == ["default", "default"], "where it was taken, and nowhere else"


def test_without_a_cluster_there_is_no_lease(lease):
    cluster = FakeCluster()
    assert "failed" not in lease(cluster, "present", kubernetes=False)
    assert cluster.held is None
