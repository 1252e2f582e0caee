# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import json
import threading
import time

import pytest
from ansible import constants
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.utc_time import text_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease, lease_renewal
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import upgrade_lease, upgrade_node, upgrade_waves
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import Record, from_annotations
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import inventory_lines
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.upgrade_run import UpgradeRun

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


@pytest.fixture(autouse=True)
def run_folder(monkeypatch, tmp_path):
    """The folder of one run of Ansible."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(upgrade_waves, "_PAUSE", 0.02)
    monkeypatch.setattr(upgrade_waves, "_SHORTEST", 5.0)
    return str(tmp_path)


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
        return call(upgrade_node, given, {"inventory_hostname": "a"})[0]

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


OLD, NEW = "580.126.09", "580.178.04"


def rolled_out(cluster):
    return cluster.record.driver, cluster.record.former


def test_what_a_rollout_and_a_rollback_left_is_recorded_and_outlives_the_next_rollout(mark):
    cluster = FakeCluster()
    mark(cluster, "started", driver=OLD)
    assert rolled_out(cluster) == ("", "")
    mark(cluster, "done", driver=NEW)
    assert rolled_out(cluster) == (NEW, OLD)
    # The toolkit alone.
    mark(cluster, "started", driver=NEW, origin=NEW, target="toolkit 1.20.0")
    mark(cluster, "done", driver=NEW, origin=NEW, target="toolkit 1.20.0")
    assert rolled_out(cluster) == (NEW, OLD)
    mark(cluster, "rolling-back", driver=NEW, origin=OLD, target=TARGET)
    assert rolled_out(cluster) == ("", NEW)
    # Cut off, and begun again with the packages of before.
    mark(cluster, "rolling-back", driver=OLD, origin=OLD, target=TARGET)
    mark(cluster, "refused", driver=OLD, reason="Rolled back by hand.")
    assert rolled_out(cluster) == (OLD, NEW)
    assert json.loads(mark(cluster, "refused", driver=OLD)["text"])["driver"] == OLD


def test_a_rollout_that_failed_and_was_rolled_back_is_not_brought_again_by_site(mark):
    cluster = FakeCluster(Record("verifying", OLD, TARGET), unschedulable=True)
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
    assert "you@there/1-2 has held the fleet lock since" in lease(cluster, "present")["msg"]
    assert "failed" not in lease(cluster, "present", take_over=True)
    assert [started[2] for started in renewed] == ["default", "default"], "where it was taken, and nowhere else"


def test_without_a_cluster_there_is_no_lease(lease):
    cluster = FakeCluster()
    assert "failed" not in lease(cluster, "present", kubernetes=False)
    assert cluster.held is None


#: The variables of a host of a play that lost none.
AT_A = {"inventory_hostname": "a", "ansible_play_hosts": ["a"]}


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


HOLDER = {"pid": 4711, "command": "python3", "devices": ["/dev/nvidia0"], "container_id": None}
EXPORTER = {**HOLDER, "pid": 4712, "command": "node", "unit": "dcgm-exporter.service"}
MPS_SERVER = {**HOLDER, "pid": 4713, "command": "nvidia-cuda-mps", "unit": "gpufleet-mps@node.service"}


def plain_host(*holders, **variables):
    """A host of no cluster, as the survey leaves it."""
    facts = {"schema": 1, "holders": list(holders), "gpus": [{"index": 0, "processes": []}]}
    about = {"node": "a", "needed": True, "reboots": True, "target": TARGET}
    return {"__gpu_upgrade_host": about, "gpu_facts_host": {"gpu": facts}, **variables}


@pytest.fixture
def plan_plain(call):
    def do(host, check=False, **arguments):
        given = {"target": TARGET, "hosts": ["a"], "kubernetes": False, **arguments}
        return call(upgrade_waves, {"state": "planned", **given}, {**AT_A, "hostvars": {"a": host}}, check)

    return do


def test_without_a_cluster_a_host_with_users_is_refused_before_any_is_begun(plan_plain):
    result, _shown = plan_plain(plain_host(HOLDER, EXPORTER, MPS_SERVER))
    assert result["failed"]
    for part in ("host a, in use by python3 (PID 4711):", "gpu_node_drain_command", "gpu_node_disruption: force"):
        assert part in result["msg"]
    assert "4712" not in result["msg"] and "4713" not in result["msg"], "what the playbook stops itself"


@pytest.mark.parametrize(
    "host",
    [
        plain_host(EXPORTER, MPS_SERVER),
        plain_host(HOLDER, gpu_node_drain_command=["scontrol", "update"]),
        plain_host(HOLDER, gpu_node_disruption="force"),
        {**plain_host(HOLDER), "__gpu_upgrade_host": {"node": "a", "needed": False}},
    ],
)
def test_without_a_cluster_a_host_goes_that_is_free_or_emptied_or_allowed_or_has_nothing_to_do(plan_plain, host):
    assert "failed" not in plan_plain(host)[0]


def test_check_mode_says_what_would_be_and_counts_nothing_as_done(plan_plain, call):
    host = plain_host(HOLDER, gpu_node_disruption="force")
    _result, shown = plan_plain(host, check=True)
    assert "  would change a; would end the work of python3 (PID 4711); would reboot" in shown.text
    call(upgrade_waves, {"state": "next"}, {**AT_A, "hostvars": {"a": host}}, True)
    call(upgrade_node, {"node": "a", "state": "done", "kubernetes": False}, AT_A, True)
    call(upgrade_waves, {"state": "ended"}, AT_A, True)
    _result, shown = call(upgrade_waves, {"state": "finished"}, AT_A, True)
    assert "1 hosts would be changed" in shown.text and "Nothing was changed." in shown.text
    assert "done" not in shown.text


@pytest.mark.parametrize(("state", "refused"), [("started", True), ("rolling-back", True), ("evicting", False)])
@pytest.mark.parametrize("reason", ["", "CUDA error"])
def test_a_host_is_asked_once_more_in_its_turn_and_never_kept_from_going_back_after_a_failure(
    call, state, refused, reason
):
    given = {"node": "a", "state": state, "target": TARGET, "kubernetes": False, "reason": reason}
    result, _shown = call(upgrade_node, given, {**AT_A, **plain_host(HOLDER)})
    assert bool(result.get("failed")) == (refused and not reason), result


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


COMPUTES = {"pid": 4711, "name": "python3", "type": "C"}
POD = {"container_id": "c", "pod_uid": "u"}


@pytest.mark.parametrize(
    ("holders", "processes", "variables", "refused"),
    [
        ([HOLDER], [COMPUTES], {}, True),
        # Of Docker, for one.
        ([{**HOLDER, "container_id": "c"}], [COMPUTES], {}, True),
        ([HOLDER], [COMPUTES], {"gpu_node_disruption": "force"}, False),
        ([HOLDER], [COMPUTES], {"gpu_node_drain_command": ["scontrol"]}, False),
        ([{**HOLDER, "unit": "render.service"}], [COMPUTES], {"gpu_node_stop_services": ["render"]}, False),
        ([{**HOLDER, **POD}], [COMPUTES], {}, False),
        # A monitor, and a process that has ended meanwhile.
        ([HOLDER], [], {}, False),
        ([], [COMPUTES], {}, False),
    ],
)
def test_a_job_that_is_no_pod_keeps_its_node_from_being_upgraded(
    call, monkeypatch, holders, processes, variables, refused
):
    """It would end with the reboot, and nothing evicts it."""
    cluster = Nodes("a")
    monkeypatch.setattr(upgrade_waves.ActionModule, "cluster", lambda _self, _arguments: cluster)
    host = plain_host(*holders, **variables)
    host["gpu_facts_host"]["gpu"]["gpus"][0]["processes"] = processes
    given = {"state": "planned", "target": TARGET, "hosts": ["a"]}
    found, _shown = call(upgrade_waves, given, {**AT_A, "hostvars": {"a": host}})
    assert bool(found.get("failed")) is refused
    if refused:
        assert (
            "host a, in use by python3 (PID 4711): they are no pods" in found["msg"]
            and "gpu_node_disruption: force" in found["msg"]
        )
        assert cluster.held["spec"]["holderIdentity"] is None, "the lease is not kept"


def used_by_a_job():
    host = plain_host(HOLDER)
    host["gpu_facts_host"]["gpu"]["gpus"][0]["processes"] = [COMPUTES]
    return host


def test_a_node_that_is_skipped_is_not_asked_for_jobs(call, monkeypatch):
    class Skipping(Nodes):
        def nodes(self):
            return {**super().nodes(), "a": node(**{"gpufleet.github.io/upgrade.skip": "true"})}

    monkeypatch.setattr(upgrade_waves.ActionModule, "cluster", lambda _self, _arguments: Skipping("a", "b"))
    hosts = {"a": used_by_a_job(), "b": plain_host()}
    hosts["b"]["__gpu_upgrade_host"]["node"] = "b"
    given = {"state": "planned", "target": TARGET, "hosts": ["a", "b"]}
    found, _shown = call(upgrade_waves, given, {**AT_A, "hostvars": hosts})
    assert found.get("order") == ["b"], found


@pytest.mark.parametrize(
    ("work", "state", "refused"),
    [
        ("upgrade", "started", True),
        ("migrate", "started", False),
        # By hand, and the playbook for it has no run of its own.
        ("", "rolling-back", True),
        ("upgrade", "evicting", False),
    ],
)
def test_a_node_is_asked_for_jobs_once_more_in_its_turn(call, monkeypatch, work, state, refused):
    cluster = Nodes("a")
    for action in (upgrade_waves, upgrade_node):
        monkeypatch.setattr(action.ActionModule, "cluster", lambda _self, _arguments: cluster)
    given = {"state": "planned", "target": TARGET, "hosts": ["a"], "work": work}
    if work:
        call(upgrade_waves, given, {**AT_A, "hostvars": {"a": plain_host()}})
    found, _shown = call(upgrade_node, {"node": "a", "state": state, "target": TARGET}, {**AT_A, **used_by_a_job()})
    assert bool(found.get("failed")) is refused, found


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


def test_a_file_of_a_host_that_is_no_record_leaves_the_host_alone(call):
    hosts = {name: {"__gpu_upgrade_host": {"needed": True}, "__gpu_upgrade_record": {}} for name in ("a", "b")}
    hosts["a"]["__gpu_upgrade_record"] = [1]
    given = {"state": "planned", "target": TARGET, "hosts": ["a", "b"], "kubernetes": False, "max_unavailable": "2"}
    found, shown = call(upgrade_waves, given, {**AT_A, "hostvars": hosts})
    assert found["order"] == ["b"]
    assert "a is left out: its record in /var/lib/gpufleet/upgrade.json cannot be read" in shown.warnings[0]


def test_check_mode_takes_no_lease(plan_cluster):
    cluster = Nodes("node-a")
    assert plan_cluster(cluster, ("a", True), check=True)["order"] == ["a"]
    assert cluster.held is None


def moment(**ago):
    return text_of(datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(**ago))


def test_of_two_operators_on_plain_hosts_the_second_is_refused(plan):
    record = Record("installing", "580.126.09", TARGET, operator="you@there/1-2", since=moment(seconds=10))
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
    record = Record("installing", "580.126.09", TARGET, operator="you@there/1-2", since=since)
    assert plan(record)["order"] == ["a"]
    (warning,) = [text for text in plan.warnings if "in the future" in text]
    assert warning.startswith("a: its record in /var/lib/gpufleet/upgrade.json")


def test_a_dead_run_of_the_same_machine_is_continued_at_once(plan):
    where = cluster_lease.this_run().where
    record = Record(
        "installing", "580.126.09", TARGET, operator=f"{where}/1-2-{cluster_lease._space()}", since=moment(seconds=10)
    )
    assert plan(record)["order"] == ["a"]


@pytest.mark.parametrize(("reason", "turn"), [("CUDA error", "revert"), ("", "rollback")])
def test_a_host_learns_that_a_rollback_has_to_be_finished(plan, call, reason, turn):
    record = Record("rolling-back", "580.126.09", TARGET, failed_reason=reason)
    assert plan(record)["order"] == ["a"]
    found = call(upgrade_waves, {"state": "next"}, AT_A)[0]
    assert (found["start"], found["turn"], found["wave"]) == (True, turn, 1)
    assert found["record"]["failed_reason"] == reason
    assert found["if_failed"] == {"state": "failed", "uncordon": False, "revert": True}


def test_what_the_run_was_planned_for_is_the_turn_of_its_hosts(plan, call):
    record = Record("installing", "580.126.09", TARGET)
    assert plan(record, work="migrate")["order"] == ["a"]
    assert call(upgrade_waves, {"state": "next"}, AT_A)[0]["turn"] == "migrate"


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
        UpgradeRun(constants.DEFAULT_LOCAL_TMP).record(host, Record(state, target=TARGET).values())
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
    UpgradeRun(run_folder).record("a", Record("rolling-back", target=TARGET, failed_reason="CUDA error").values())
    rollout.ends("b")
    rollout.arrive("c").join(10)
    assert not rollout.results["c"]["start"]
    assert all(not thread.is_alive() for thread in first)


def test_a_host_that_ansible_lost_makes_no_room_for_another(call, run_folder):
    rollout = Rollout(call, "abc", canary=0, max_parallel=1)
    rollout.arrive("a").join(10)
    UpgradeRun(run_folder).record("a", Record("installing", target=TARGET).values())
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


def test_a_node_that_stays_not_ready_is_left_out_once_nothing_else_is_worked_on(call, monkeypatch):
    class OneAway(Nodes):
        def nodes(self):
            found = super().nodes()
            found["b"]["status"]["conditions"] = []
            return found

    cluster = OneAway("a", "b", "c")
    monkeypatch.setattr(upgrade_waves.ActionModule, "cluster", lambda _self, _arguments: cluster)
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


def test_check_mode_comes_past_the_canary_of_a_cluster(call, monkeypatch):
    """Nothing is recorded on its nodes then, and what this run would have recorded counts all the same."""
    monkeypatch.setattr(upgrade_waves.ActionModule, "cluster", lambda _self, _arguments: Nodes("a", "b"))
    rollout = Rollout(call, "ab", kubernetes=True)
    for host in "ab":
        rollout.arrive(host).join(10)
        rollout.ends(host)
    assert all(result["start"] for result in rollout.results.values())
    assert call(upgrade_waves, {"state": "finished"}, AT_A)[0]["complete"]
