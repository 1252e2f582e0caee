# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts of a rollout start when: the plan, the wait for room, and what follows a failure, a lost host and another run."""

from __future__ import annotations

import datetime
import threading
import time

import pytest
from ansible import constants
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.utc_time import text_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import upgrade_node, upgrade_waves
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import NodeRecord
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.upgrade_run import UpgradeRun

from .rollouts import AT_A, TARGET, Nodes

pytestmark = pytest.mark.usefixtures("run_folder", "renewed")


@pytest.fixture
def plan(call):
    def do(record, **arguments):
        host = {"node": "a", "needed": True, "target": TARGET}
        known = {"__gpu_upgrade_host": host, "__gpu_upgrade_record": record.values()}
        given = {"state": "planned", "target": TARGET, "hosts": ["a"], "kubernetes": False, **arguments}
        result, shown = call(upgrade_waves, given, {**AT_A, "hostvars": {"a": known}})
        do.warnings = shown.warnings
        return result

    return do


@pytest.fixture
def plan_cluster(call, on_cluster):
    def do(cluster, *hosts, check=False, **arguments):
        on_cluster(cluster)
        known = {
            name: {"__gpu_upgrade_host": {"node": f"node-{name}", "needed": True, "target": TARGET}} if read else {}
            for name, read in hosts
        }
        given = {"state": "planned", "target": TARGET, "hosts": [name for name, _read in hosts], **arguments}
        return call(upgrade_waves, given, {**AT_A, "hostvars": known}, check)[0]

    return do


def test_a_host_that_is_no_node_ends_the_rollout_before_anything_is_touched(plan_cluster):
    cluster = Nodes("node-a")
    refused = plan_cluster(cluster, ("a", True), ("b", True))
    assert refused["failed"]
    assert refused["msg"].startswith("b (node node-b): the cluster has no such node. Set gpu_node_name")
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
    ended = plan_cluster(cluster, state="finished")
    assert ended["report"]["a"]["failed_reason"] == "wave: 'first' must be an integer."
    assert "a" in ended["left"] and not ended["complete"]


def test_a_node_that_nvsentinel_has_is_left_out_and_no_other(plan_cluster):
    class Quarantined(Nodes):
        def nodes(self):
            found = super().nodes()
            found["node-a"]["metadata"]["annotations"]["quarantineHealthEvent"] = "[{}]"
            return found

    cluster = Quarantined("node-a", "node-b")
    for mode in ("exclude", "remediate"):
        given = {"max_unavailable": "2", "nvsentinel": mode}
        assert plan_cluster(cluster, ("a", True), ("b", True), **given)["order"] == ["b"]
        ended = plan_cluster(cluster, state="finished")
        assert ended["report"]["a"]["failed_reason"].startswith("NVSentinel has quarantined it")
        assert "a" in ended["left"] and not ended["complete"]
    given["nvsentinel"] = "ignore"
    assert plan_cluster(cluster, ("a", True), ("b", True), **given)["order"] == ["a", "b"]


HANDED_OVER, SERVED = "driver and container toolkit of the host", "GPUs served by dra"


@pytest.mark.parametrize(
    ("work", "target", "found", "said"),
    [
        (
            "upgrade",
            TARGET,
            NodeRecord("installing", target=HANDED_OVER),
            "a migration of it was cut off while installing",
        ),
        ("upgrade", TARGET, NodeRecord("failed", target=SERVED), "a migration of it failed"),
        ("migrate", SERVED, NodeRecord("verifying", target=TARGET), "an upgrade of it was cut off while verifying"),
        (
            "hand_over",
            HANDED_OVER,
            NodeRecord("evicting", target=SERVED),
            "a migration of it was cut off while evicting",
        ),
    ],
)
@pytest.mark.parametrize("where", ["node", "host"])
def test_what_another_playbook_has_to_finish_is_left_out_by_name_and_nothing_else(
    call, on_cluster, work, target, found, said, where
):
    class Halfway(Nodes):
        def nodes(self):
            nodes = super().nodes()
            if where == "node":
                nodes["node-a"]["metadata"]["annotations"].update(
                    {key: value for key, value in found.annotations().items() if value}
                )
            return nodes

    on_cluster(Halfway("node-a", "node-b"))
    known = {
        name: {"__gpu_upgrade_host": {"node": f"node-{name}", "needed": True, "target": target}} for name in ("a", "b")
    }
    if where == "host":
        known["a"]["__gpu_upgrade_record"] = found.values()
    given = {"state": "planned", "work": work, "target": target, "hosts": ["a", "b"], "max_unavailable": "2"}
    planned, shown = call(upgrade_waves, given, {**AT_A, "hostvars": known})
    assert planned["order"] == ["b"]
    assert shown.warnings[0].startswith(f"a is left out: the host: {said}")
    ended, _shown = call(upgrade_waves, {"state": "finished"}, {**AT_A, "hostvars": known})
    assert said in ended["report"]["a"]["failed_reason"] and "a" in ended["left"]


def test_a_node_of_a_pool_that_nothing_is_migrated_of_is_left_as_it_is_and_no_reason_to_fail(call, on_cluster):
    """Its upgrade failed: it is cordoned, and a migration would prove nothing of it and return it."""

    class Failed(Nodes):
        def nodes(self):
            nodes = super().nodes()
            failed = NodeRecord("failed", target=TARGET, failed_reason="no CUDA").annotations()
            nodes["node-a"]["metadata"]["annotations"].update({key: value for key, value in failed.items() if value})
            return nodes

    on_cluster(Failed("node-a", "node-b"))
    target = "device plugin of its own release"
    work = {"a": "", "b": "change_stack"}
    known = {
        name: {"__gpu_upgrade_host": {"node": f"node-{name}", "needed": bool(its), "work": its, "target": target}}
        for name, its in work.items()
    }
    given = {"state": "planned", "work": "change_stack", "target": target, "hosts": ["a", "b"], "max_unavailable": "2"}
    planned, shown = call(upgrade_waves, given, {**AT_A, "hostvars": known})
    assert planned["order"] == ["b"] and not [text for text in shown.warnings if "left out" in text]
    ended, _shown = call(upgrade_waves, {"state": "finished"}, {**AT_A, "hostvars": known})
    assert "a" not in ended["left"] + ended["failed_hosts"]
    # In a pool that is migrated it is named.
    known["a"]["__gpu_upgrade_host"].update(work="change_stack", needed=True)
    planned, shown = call(upgrade_waves, given, {**AT_A, "hostvars": known})
    assert planned["order"] == ["b"] and "an upgrade of it failed" in shown.warnings[0]


def test_what_a_node_that_was_made_anew_had_is_continued(call, on_cluster):
    on_cluster(Nodes("node-a"))
    record = NodeRecord("failed", target=TARGET, failed_reason="no CUDA").values()
    host = {"node": "node-a", "needed": False, "target": TARGET}
    known = {"a": {"__gpu_upgrade_host": host, "__gpu_upgrade_record": record}}
    given = {"state": "planned", "target": TARGET, "hosts": ["a"], "retry": True}
    assert call(upgrade_waves, given, {**AT_A, "hostvars": known})[0]["order"] == ["a"]


def test_a_file_of_a_host_that_is_no_record_leaves_the_host_alone(call):
    hosts = {name: {"__gpu_upgrade_host": {"needed": True}, "__gpu_upgrade_record": {}} for name in ("a", "b")}
    hosts["a"]["__gpu_upgrade_record"] = [1]
    given = {"state": "planned", "target": TARGET, "hosts": ["a", "b"], "kubernetes": False, "max_unavailable": "2"}
    found, shown = call(upgrade_waves, given, {**AT_A, "hostvars": hosts})
    assert found["order"] == ["b"]
    assert "a is left out: its record in /var/lib/gpufleet/upgrade.json cannot be read" in shown.warnings[0]
    assert shown.warnings[0].endswith("must be a mapping. Correct or remove it, and run again.")
    hosts["a"] = {"__gpu_upgrade_host": {"needed": True, "unreadable": "invalid JSON (Expecting value)"}}
    found, shown = call(upgrade_waves, given, {**AT_A, "hostvars": hosts})
    assert found["order"] == ["b"] and "mapping" not in shown.warnings[0]
    assert shown.warnings[0].endswith("invalid JSON (Expecting value). Correct or remove it, and run again.")


@pytest.mark.parametrize("recorded", [{}, [1], NodeRecord("failed", target=TARGET, failed_reason="no CUDA").values()])
def test_what_a_host_has_recorded_is_read_once_where_its_node_has_nothing(call, on_cluster, monkeypatch, recorded):
    on_cluster(Nodes("node-a"))
    read = []
    taken = upgrade_waves.from_values
    monkeypatch.setattr(upgrade_waves, "from_values", lambda values: read.append(values) or taken(values))
    host = {"node": "node-a", "needed": True, "target": TARGET}
    known = {"a": {"__gpu_upgrade_host": host, "__gpu_upgrade_record": recorded}}
    call(upgrade_waves, {"state": "planned", "target": TARGET, "hosts": ["a"]}, {**AT_A, "hostvars": known})
    assert read == [recorded]


def test_check_mode_takes_no_lease(plan_cluster, call):
    cluster = Nodes("node-a")
    assert plan_cluster(cluster, ("a", True), check=True)["order"] == ["a"]
    step = {"node": "node-a", "state": "evicting", "target": TARGET, "lease_namespace": "default"}
    assert call(upgrade_node, step, AT_A, True)[0]["record"]["state"] == "evicting"
    assert cluster.held is None
    assert "failed" not in call(upgrade_node, step, AT_A)[0] and cluster.held


def moment(**ago):
    return text_of(datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(**ago))


def test_of_two_operators_on_plain_hosts_the_second_is_refused(plan):
    record = NodeRecord("installing", "580.126.09", TARGET, operator="you@there/1-2", since=moment(seconds=10))
    refused = plan(record)
    assert refused["failed"]
    assert "host a: you@there/1-2 is working on this fleet" in refused["msg"]
    assert "gpu_node_lease_take_over=true" in refused["msg"]
    assert plan(record, take_over=True)["order"] == ["a"]
    assert plan(record, lease_duration=5)["order"] == ["a"]


@pytest.mark.parametrize(
    "since",
    ["2999-01-01T00:00:00Z", "9999-12-31T23:59:59Z", pytest.param(moment(hours=-1), id="in an hour")],
)
def test_a_record_of_the_future_stops_nobody_and_its_host_is_named(plan, since):
    record = NodeRecord("installing", "580.126.09", TARGET, operator="you@there/1-2", since=since)
    assert plan(record)["order"] == ["a"]
    (warning,) = [text for text in plan.warnings if "in the future" in text]
    assert warning.startswith("a: its record in /var/lib/gpufleet/upgrade.json")


def test_a_dead_run_of_the_same_machine_is_continued_at_once(plan):
    where = cluster_lease.this_run().where
    record = NodeRecord(
        "installing", "580.126.09", TARGET, operator=f"{where}/1-2-{cluster_lease._space()}", since=moment(seconds=10)
    )
    assert plan(record)["order"] == ["a"]


@pytest.mark.parametrize(("reason", "turn"), [("CUDA error", "revert"), ("", "rollback")])
def test_a_host_learns_that_a_rollback_has_to_be_finished(plan, call, reason, turn):
    record = NodeRecord("rolling-back", "580.126.09", TARGET, failed_reason=reason)
    assert plan(record)["order"] == ["a"]
    found = call(upgrade_waves, {"state": "next"}, AT_A)[0]
    assert (found["start"], found["turn"], found["wave"]) == (True, turn, 1)
    assert found["record"]["failed_reason"] == reason
    assert found["if_failed"] == {"state": "failed", "uncordon": False, "revert": False}


def test_what_the_run_was_planned_for_is_the_turn_of_its_hosts(plan, call):
    record = NodeRecord("installing", "580.126.09", TARGET)
    assert plan(record, work="migrate")["order"] == ["a"]
    assert call(upgrade_waves, {"state": "next"}, AT_A)[0]["turn"] == "migrate"


def migrated(**targets):
    """Hosts of pools that are migrated, each to its target; those without one are not."""
    works = {"GPUs": "migrate", "driver": "hand_over"}
    return {
        host: {
            "__gpu_upgrade_host": {
                "node": host,
                "needed": bool(to),
                "target": to,
                "work": works.get(to.split()[0] if to else "", ""),
            }
        }
        for host, to in targets.items()
    }


def test_the_work_of_a_migration_is_that_of_its_pools_whichever_host_is_the_first(call, on_cluster):
    on_cluster(Nodes("a", "b"))
    known = migrated(a="", b="driver and container toolkit of the host")
    given = {"state": "planned", "target": "GPUs served by device-plugin", "work": "migrate", "hosts": ["a", "b"]}
    found, shown = call(upgrade_waves, given, {**AT_A, "hostvars": known})
    assert found["order"] == ["b"] and "driver and container toolkit of the host: 0 done, 1 to go" in shown.text
    at_b = {**AT_A, "inventory_hostname": "b", "ansible_play_hosts": ["a", "b"]}
    assert call(upgrade_waves, {"state": "next"}, at_b)[0]["turn"] == "hand_over"


@pytest.mark.parametrize("other", ["GPUs served by dra", "driver and container toolkit of the GPU Operator"])
def test_pools_that_are_migrated_to_different_things_are_refused_before_the_lease_is_taken(call, on_cluster, other):
    cluster = Nodes("a", "b", "c")
    on_cluster(cluster)
    known = migrated(a="driver and container toolkit of the host", b=other, c="")
    found, _shown = call(upgrade_waves, {"state": "planned", "hosts": ["a", "b", "c"]}, {**AT_A, "hostvars": known})
    assert found["failed"] and f"b: {other}" in found["msg"] and "--limit" in found["msg"]
    assert cluster.held is None


class Rollout:
    """Hosts that take part in the play of an upgrade, each in a thread as in a worker."""

    def __init__(self, call, hosts, racks=None, **arguments):
        self._call = call
        self.present = list(hosts)
        self.results = {}
        self.shown = []
        about = {host: {"needed": True, "imex": (racks or {}).get(host, {})} for host in hosts}
        known = {host: {"__gpu_upgrade_host": about[host], "__gpu_upgrade_record": {}} for host in hosts}
        given = {"target": TARGET, "hosts": list(hosts), "kubernetes": False, "max_unavailable": "100%", **arguments}
        self.order = self._act({"state": "planned", **given}, {"hostvars": known})["order"]

    def _act(self, arguments, variables):
        result, shown = self._call(upgrade_waves, arguments, variables)
        self.shown += shown.warnings
        assert "failed" not in result, result
        return result

    def _at(self, host):
        return {"inventory_hostname": host, "ansible_play_hosts": list(self.present)}

    def arrive(self, host):
        thread = threading.Thread(
            target=lambda: self.results.update({host: self._act({"state": "next"}, self._at(host))}), daemon=True
        )
        thread.start()
        return thread

    def ends(self, host, state="done"):
        UpgradeRun(constants.DEFAULT_LOCAL_TMP).record(host, NodeRecord(state, target=TARGET).values())
        self._act({"state": "ended"}, self._at(host))

    def finish(self):
        return self._act({"state": "finished"}, {})

    def started(self, *hosts):
        """Wait until exactly these hosts were told to start."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            found = [host for host, result in self.results.items() if result["start"]]
            if sorted(found) == sorted(hosts):
                time.sleep(0.15)
                return sorted(host for host, result in self.results.items() if result["start"]) == sorted(hosts)
            time.sleep(0.02)
        return False


def test_a_node_follows_as_soon_as_another_ends_and_the_canary_is_alone(call):
    rollout = Rollout(call, "abcde", canary=1, max_parallel=2)
    assert rollout.order == list("abcde")
    for host in rollout.order:
        rollout.arrive(host)
        time.sleep(0.05)
    assert rollout.started("a"), "nobody else before the canary is done"
    rollout.ends("a")
    assert rollout.started("a", "b", "c")
    rollout.ends("c")
    assert rollout.started("a", "b", "c", "d"), "b takes long, and d does not wait for it"
    rollout.ends("d")
    assert rollout.started("a", "b", "c", "d", "e")


def test_a_rack_is_announced_changed_in_one_go_and_named_where_a_failure_leaves_it_with_two_drivers(call):
    imex = {"mode": "host", "driver": "580.126.09", "version": "580.178.04", "changes": True}
    racks = {"a": "rack_a", "b": "rack_b", "c": "rack_a", "d": "rack_b"}
    rollout = Rollout(
        call, "abcd", racks={host: {"group": rack, **imex} for host, rack in racks.items()}, max_parallel=0
    )
    assert rollout.order == list("acbd")
    assert [told.split(":")[0] for told in rollout.shown] == ["rack_a", "rack_b"]
    for host in rollout.order:
        rollout.arrive(host)
        time.sleep(0.05)
    assert rollout.started("a")
    rollout.ends("a")
    assert rollout.started("a", "c"), "its rack first, although the budget has room for all"
    rollout.ends("c", "failed")
    ended = rollout.finish()
    assert list(ended["mixed_racks"]) == ["rack_a"]
    assert "rack_a has two driver versions: a has the new one, c failed" in rollout.shown[-1]


def test_the_order_is_kept_however_late_the_worker_of_an_earlier_host_asks(call):
    rollout = Rollout(call, "abc", canary=1, max_parallel=1)
    rollout.arrive("c")
    assert rollout.started(), "a and b are about to ask"
    rollout.arrive("b")
    assert rollout.started()
    rollout.arrive("a")
    assert rollout.started("a")
    rollout.ends("a")
    assert rollout.started("a", "b")


@pytest.mark.parametrize("state", ["failed", "refused"])
def test_a_failure_stops_all_that_wait_and_none_that_are_worked_on(call, state):
    rollout = Rollout(call, "abcd", canary=0, max_parallel=2)
    threads = []
    for host in rollout.order:
        threads.append(rollout.arrive(host))
        time.sleep(0.05)
    assert rollout.started("a", "b")
    rollout.ends("a", state)
    for thread in threads:
        thread.join(10)
    assert [rollout.results[host]["start"] for host in "abcd"] == [True, True, False, False]
    assert rollout.results["d"]["stopped"] == "1 failed (a) and at most 0 may"
    assert rollout.shown == ["The rollout stops: 1 failed (a) and at most 0 may."], "it is said once"


def test_a_node_that_is_rolled_back_lets_no_other_start_while_it_lasts(call, run_folder):
    rollout = Rollout(call, "abc", canary=0, max_parallel=2)
    first = [rollout.arrive("a"), rollout.arrive("b")]
    assert rollout.started("a", "b")
    UpgradeRun(run_folder).record("a", NodeRecord("rolling-back", target=TARGET, failed_reason="CUDA error").values())
    rollout.ends("b")
    rollout.arrive("c").join(10)
    assert not rollout.results["c"]["start"]
    assert all(not thread.is_alive() for thread in first)


def test_a_host_that_ansible_lost_makes_no_room_for_another(call, run_folder):
    rollout = Rollout(call, "abc", canary=0, max_parallel=1)
    rollout.arrive("a").join(10)
    UpgradeRun(run_folder).record("a", NodeRecord("installing", target=TARGET).values())
    rollout.present.remove("a")
    rollout.arrive("b").join(10)
    assert rollout.results["b"]["stopped"] == "1 failed (a) and at most 0 may"
    assert rollout.shown[0] == "The connection to a was lost during its upgrade."
    ended = call(upgrade_waves, {"state": "finished"}, AT_A)[0]
    assert ended["failed_hosts"] == ["a"]
    assert ended["report"]["a"]["failed_reason"] == "the host was lost while installing"
    assert ended["left"] == ["b", "c"]


def test_a_host_that_waits_long_comes_back_to_learn_whom_ansible_lost(call, monkeypatch):
    monkeypatch.setattr(upgrade_waves, "_SHORTEST", 0.2)
    rollout = Rollout(call, "ab", canary=0, max_parallel=1)
    rollout.arrive("a").join(10)
    rollout.arrive("b").join(10)
    assert rollout.results["b"] == {
        "start": False,
        "wait": True,
        "stopped": None,
        "turn": "",
        "changed": False,
    }
    rollout.present.remove("a")
    rollout.arrive("b").join(10)
    assert rollout.results["b"]["stopped"]


def test_a_node_that_stays_not_ready_is_left_out_once_nothing_else_is_worked_on(call, on_cluster):
    class OneAway(Nodes):
        def nodes(self):
            found = super().nodes()
            found["b"]["status"]["conditions"] = []
            return found

    cluster = OneAway("a", "b", "c")
    on_cluster(cluster)
    rollout = Rollout(call, "abc", kubernetes=True, canary=0, max_parallel=1, wait=1)
    assert rollout.order == ["a", "c", "b"]
    for host in rollout.order:
        rollout.arrive(host)
        time.sleep(0.05)
    assert rollout.started("a")
    rollout.ends("a")
    assert rollout.started("a", "c"), "it waits for none that is not ready"
    rollout.ends("c")
    assert rollout.started("a", "c")
    until = time.monotonic() + 10
    while "b" not in rollout.results and time.monotonic() < until:
        time.sleep(0.05)
    assert rollout.results["b"]["start"] is False and not rollout.results["b"]["wait"]
    assert rollout.shown[-1] == "Left out: b: b not ready."


def test_check_mode_comes_past_the_canary_of_a_cluster(call, on_cluster):
    """Nothing is recorded on its nodes then, and what this run would have recorded counts all the same."""
    on_cluster(Nodes("a", "b"))
    rollout = Rollout(call, "ab", kubernetes=True)
    for host in "ab":
        rollout.arrive(host).join(10)
        rollout.ends(host)
    assert all(result["start"] for result in rollout.results.values())
    assert call(upgrade_waves, {"state": "finished"}, AT_A)[0]["complete"]
