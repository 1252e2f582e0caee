# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The decision for all hosts of a run, and the record of one with the cordon that belongs to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import from_values
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import lease_renewal
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import heal_node, heal_plan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import repair

from .rollouts import Nodes

GPU = {"index": 0, "minor": 0, "uuid": "GPU-0", "pci_address": "0000:18:00.0", "architecture": "hopper"}


def facts(asks=None, xids=(), recorded=None):
    return {
        "schema": 1,
        "host": {"name": "n", "boot_id": "b"},
        "pci": [{"address": "0000:18:00.0", "kind": "gpu", "kernel_driver": "nvidia"}],
        "driver": {f"{place}_version": "580.126.09" for place in ("loaded", "on_disk", "library")},
        "nvml": {"available": True},
        "gpus": [{**GPU, "recovery_action": asks}],
        "health": {"nvidia_smi": {"rc": 0, "text": "GPU 0"}, "xids": list(xids), "sxids": []},
        "holders": [],
        "recorded": recorded or {},
    }


BROKEN, WELL = facts("gpu_reset"), facts("none")


class FakeCluster(Nodes):
    """With what the DRA driver and NVSentinel keep in it."""

    slices: tuple[dict[str, Any], ...] = ()
    #: Name to DeviceTaintRule; None where the server has none.
    rules: dict[str, Any] | None = None
    #: The ExternalRemediationRequest that there is.
    request: dict[str, Any] | None = None

    def resource_slices(self):
        return list(self.slices)

    def device_taint_rules(self):
        return None if self.rules is None else list(self.rules.values())

    def write_device_taint_rule(self, rule):
        self.rules[rule["metadata"]["name"]] = rule

    def delete_device_taint_rule(self, name):
        self.rules.pop(name, None)

    def remediation_request(self, _name):
        return self.request

    def report_remediation(self, _name, conditions):
        self.request = {**self.request, "status": {"conditions": conditions(self.request)}}

    def set_condition(self, name, told):
        others = [one for one in self.kept[name]["status"]["conditions"] if one["type"] != told["type"]]
        self.kept[name]["status"] = {"conditions": [*others, told]}


@pytest.fixture(autouse=True)
def renewed(monkeypatch):
    monkeypatch.setattr(lease_renewal, "start", lambda *_arguments: None)


@pytest.fixture
def plan(call, monkeypatch):
    def run(read, cluster=None, size=0, described=None, **arguments):
        monkeypatch.setattr(heal_plan.ActionModule, "cluster", lambda _self, _arguments: cluster)
        hosts = list(read)
        hostvars = {host: {"gpu_facts_host": {"gpu": document}} for host, document in read.items()}
        others = [f"other-{number}" for number in range(size - len(hosts))]
        hostvars.update({host: {} for host in others})
        for host in hosts:
            hostvars[host].update(described or {})
        variables = {"groups": {"gpu_hosts": [*hosts, *others]}, "hostvars": hostvars}
        given = {"hosts": hosts, "kubernetes": cluster is not None, **arguments}
        return call(heal_plan, given, variables)

    return run


def test_only_hosts_with_work_are_in_the_order(plan):
    result, shown = plan({"a": WELL, "b": BROKEN}, size=20)
    assert result["order"] == ["b"] and "failed" not in result
    assert result["plans"]["b"]["action"] == "reset_gpu" and result["plans"]["b"]["boot_id"] == "b"
    assert "b: reset gpu" in shown.text and "a:" not in shown.text


@pytest.mark.parametrize(
    ("given", "action"), [([], "nothing"), (["0000:3b:00.0"], "reboot"), ("1", "reboot"), (0, "nothing")]
)
def test_a_gpu_that_is_gone_is_missed_beside_those_of_virtual_machines(plan, given, action):
    """One of its own two is gone, and one that a virtual machine has is there."""
    read = facts("none")
    read["pci"] = [*read["pci"], {"address": "0000:3b:00.0", "kind": "gpu", "kernel_driver": "vfio-pci"}]
    described = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}], "gpu_facts_passthrough": given}
    result, _shown = plan({"a": read}, size=20, described=described)
    assert result["plans"]["a"]["action"] == action


HELD = [{"pid": 4711, "command": "python3", "devices": ["/dev/nvidia0"], "container_id": None}]


@pytest.mark.parametrize(
    ("asks", "cluster", "computes", "refused"),
    [
        ("node_reboot", None, False, True),
        # Of a node the pods leave, and a monitor is no work.
        ("node_reboot", ("a",), False, False),
        ("node_reboot", ("a",), True, True),
        ("gpu_reset", None, False, False),
        ("gpu_reset", ("a",), True, False),
    ],
)
def test_no_host_is_rebooted_under_users_whom_no_cluster_takes_away(plan, asks, cluster, computes, refused):
    # Of a reset the host's own program asks, which may wait until they have left.
    document = {**facts(asks), "holders": HELD}
    for gpu in document["gpus"] if computes else ():
        gpu["processes"] = [{"pid": 4711, "name": "python3", "type": "C"}]
    result, _shown = plan({"a": document}, cluster=FakeCluster(*cluster) if cluster else None, size=20)
    assert result["order"] == ([] if refused else ["a"])
    found = [refusal["message"] for refusal in result["refusals"]]
    assert len(found) == refused
    for message in found:
        assert "in use by python3 (PID 4711)" in message and "gpu_node_disruption: force" in message


def test_the_breaker_repairs_nothing(plan):
    result, _shown = plan({"a": BROKEN, "b": BROKEN, "c": BROKEN}, size=20)
    assert result["failed"] and result["order"] == []
    assert result["msg"].startswith("Nothing is repaired: 3 hosts need a repair at once (a, b, c), and at most 2 of 20")
    assert "gpu_heal_ignore_breaker=true" in result["msg"]
    # Those that somebody uses are refused, and no less broken.
    used = {**facts("node_reboot"), "holders": HELD}
    result, _shown = plan({"a": used, "b": used, "c": BROKEN}, size=20)
    assert result["failed"] and "3 hosts need a repair at once (a, b, c)" in result["msg"]
    ignored, shown = plan({"a": BROKEN, "b": BROKEN, "c": BROKEN}, size=20, ignore_breaker=True)
    assert len(ignored["order"]) == 3 and "The breaker is ignored" in shown.warnings[0]


LOST = {"index": 0, "pci_address": "0000:18:00.0", "lost": True}


@pytest.mark.parametrize(
    ("number", "gpu"),
    [
        (119, {**GPU, "recovery_action": None, "errors": {"uncorrected": 1}}),
        # The driver says what to do about its GPU, and not that a hundred others ask for the same.
        (119, {**GPU, "recovery_action": "gpu_reset"}),
        (79, LOST),
    ],
    ids=["the catalogue decides", "the driver decides", "fell off the bus"],
)
def test_the_same_xid_on_many_hosts(plan, number, gpu):
    xids = [
        {"number": number, "pci_address": "0000:18:00", "text": "pid=1"},
        {"number": 154, "pci_address": "0000:18:00", "text": "from 0x0 (None) to 0x1 (GPU Reset Required)"},
    ]
    read = {name: {**facts(None, xids), "gpus": [gpu]} for name in ("a", "b", "c")}
    result, _shown = plan(read, size=100)
    assert result["failed"] and f"3 hosts have the same error, Xid {number} (a, b, c)" in result["msg"]


def test_hosts_that_need_nothing_have_no_error_in_common(plan):
    """The log keeps an error until the next boot; a driver that takes its request back says that it is over."""
    xid = {"number": 119, "pci_address": "0000:18:00", "text": "pid=1"}
    read = {name: facts("none", [xid]) for name in ("a", "b", "c")}
    result, _shown = plan(read, size=100)
    assert "failed" not in result and result["order"] == []


def refusals(result):
    return {host: refusal["message"] for refusal in result["refusals"] for host in refusal["hosts"]}


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ({"upgrade_state": "installing"}, "an upgrade of it was cut off while installing"),
        (
            {"upgrade_state": "failed", "upgrade_to": "driver and container toolkit of the host"},
            "a migration of it failed",
        ),
        ({"repartition_unfinished": True}, "a repartition of it was cut off"),
        ({"heal": {"schema": 9}}, "9 is not between 1 and 1"),
    ],
)
def test_a_host_in_the_middle_of_something_else_is_refused_and_others_go_on(plan, recorded, said):
    result, shown = plan({"a": facts("gpu_reset", recorded=recorded), "b": BROKEN}, size=20)
    assert said in refusals(result)["a"] and said in shown.warnings[0]
    assert result["order"] == ["b"]


def test_a_record_that_cannot_be_read_is_not_taken_for_none(plan):
    document = {**BROKEN, "unknown": {"recorded.heal": "/var/lib/gpufleet/heal.json is not JSON"}}
    assert "heal.json is not JSON" in refusals(plan({"a": document}, size=20)[0])["a"]


def test_an_upgrade_that_ended_is_none(plan):
    assert plan({"a": facts("gpu_reset", recorded={"upgrade_state": "done"})}, size=20)[0]["order"] == ["a"]


def test_a_host_that_was_not_read_is_refused(plan):
    result, _shown = plan({"a": {}, "b": {"schema": "x"}}, size=20)
    assert set(refusals(result)) == {"a", "b"} and "could not be read" in refusals(result)["a"]


def test_the_node_of_a_host_has_to_be_there_and_not_in_an_upgrade(plan):
    cluster = FakeCluster("a", "b")
    cluster.kept["b"]["metadata"]["annotations"] = {"gpufleet.github.io/upgrade-state": "evicting"}
    result, _shown = plan({"a": BROKEN, "b": BROKEN, "c": BROKEN}, cluster, size=40)
    assert result["order"] == ["a"]
    assert "the cluster has no such node" in refusals(result)["c"]
    assert "an upgrade of it was cut off while evicting" in refusals(result)["b"]


@pytest.fixture
def mark(call, monkeypatch):
    def run(cluster, state, record=None, check_mode=False, **arguments):
        monkeypatch.setattr(heal_node.ActionModule, "cluster", lambda _self, _arguments: cluster)
        given = {"node": "a", "state": state, "record": record or {}, "members": ["a", "b", "c", "d"], **arguments}
        given["kubernetes"] = cluster is not None
        return call(heal_node, given, {}, check_mode)[0]

    return run


PLAN = {
    "action": "reset_gpu",
    "faults": [{"subject": "0000:18:00.0", "kind": "recovery"}],
    "boot_id": "b",
    "dealt_with": ["Xid 119 0000:18:00 x"],
}


def test_a_repair_from_cordon_to_return(mark):
    cluster = FakeCluster("a", "b", "c", "d")
    result = mark(cluster, "started", plan=PLAN)
    assert cluster.kept["a"]["spec"]["unschedulable"]
    for state in ("repairing", "proving", "returning", "done"):
        assert cluster.kept["a"]["spec"]["unschedulable"]
        result = mark(cluster, state, result["record"], plan=PLAN)
    assert not cluster.kept["a"]["spec"]["unschedulable"]
    record = from_values(json.loads(result["text"]))
    assert (record.state, record.boot_id, record.dealt_with) == ("done", "b", ("Xid 119 0000:18:00 x",))
    assert cluster.kept["a"]["metadata"]["annotations"][repair.STATE] == "done"
    assert cluster.kept["a"]["metadata"]["annotations"]["gpufleet.github.io/heal-initial-unschedulable"] == "false"


@pytest.mark.parametrize("end", ["done", "refused"])
def test_a_node_that_people_had_cordoned_stays_cordoned(mark, end):
    cluster = FakeCluster("a")
    cluster.kept["a"]["spec"]["unschedulable"] = True
    result = mark(cluster, "started", plan=PLAN)
    # Continued from another machine, which has no record of it but the node's own.
    mark(cluster, end, {} if end == "done" else result["record"], plan=PLAN)
    assert cluster.kept["a"]["spec"]["unschedulable"]


@pytest.mark.parametrize("cordoned", [False, True])
@pytest.mark.parametrize("written", [True, False], ids=["host and node", "node alone"])
@pytest.mark.parametrize("last", range(5))
def test_a_run_that_is_killed_after_any_record_is_finished_from_another_machine(mark, plan, last, written, cordoned):
    """The node is marked first: a run that is killed between leaves it cordoned, and a host that says nothing of it."""
    cluster = FakeCluster("a", "b", "c", "d")
    cluster.kept["a"]["spec"]["unschedulable"] = cordoned
    steps = ("started", "repairing", "proving", "returning", "done")
    on_host, record = None, {}
    for step in steps[: last + 1]:
        before, record = on_host, mark(cluster, step, record, plan=PLAN)["record"]
        on_host = record
    on_host = on_host if written else before

    # The fault itself is gone meanwhile.
    found = plan({"a": facts("none", recorded={"heal": on_host})}, cluster, size=20)[0]
    again = last < len(steps) - 1 or not written
    assert found["order"] == (["a"] if again else [])
    record = on_host or {}
    for step in steps if again else ():
        record = mark(cluster, step, record, plan=found["plans"]["a"])["record"]
    assert cluster.kept["a"]["spec"]["unschedulable"] is cordoned
    assert cluster.kept["a"]["metadata"]["annotations"][repair.STATE] == "done"


def test_a_host_that_was_set_up_anew_after_its_board_was_replaced_is_proven_and_returned(mark, plan):
    cluster = FakeCluster("a")
    record = mark(cluster, "started", plan=PLAN)["record"]
    mark(cluster, "handed-over", record, plan=PLAN, reason="no spare rows")
    waits = plan({"a": WELL}, cluster, size=20)[0]
    assert waits["order"] == [] and waits["handed_over"]["a"].startswith("no spare rows (since 2")
    retried = plan({"a": WELL}, cluster, size=20, retry=True)[0]
    assert retried["order"] == ["a"] and retried["plans"]["a"]["state_before"] == "handed-over"
    record = mark(cluster, "started", {}, plan=retried["plans"]["a"], forget=True)["record"]
    mark(cluster, "done", record, plan=retried["plans"]["a"])
    assert not cluster.kept["a"]["spec"]["unschedulable"]


@pytest.mark.parametrize("end", ["failed", "handed-over"])
def test_what_is_not_repaired_stays_out_of_service_with_its_reason(mark, end):
    cluster = FakeCluster("a")
    result = mark(cluster, "started", plan=PLAN)
    result = mark(cluster, end, result["record"], plan=PLAN, reason="broken", bundle="/var/lib/gpufleet/bundles/x")
    assert cluster.kept["a"]["spec"]["unschedulable"]
    assert cluster.kept["a"]["metadata"]["annotations"]["gpufleet.github.io/heal-failed-reason"] == "broken"
    assert result["record"]["bundle"] == "/var/lib/gpufleet/bundles/x"


def test_a_record_says_how_the_turn_ends_if_it_fails_now(mark, plan):
    cluster = FakeCluster("a")
    planned = plan({"a": BROKEN}, cluster, size=20)[0]["plans"]["a"]
    assert planned["if_failed"] == {"state": "", "untouched": ""}
    begun = mark(cluster, "started", plan=planned)
    assert begun["if_failed"] == {"state": "refused", "untouched": "refused"}
    changed = mark(cluster, "repairing", begun["record"], plan=planned)
    assert changed["if_failed"] == {"state": "failed", "untouched": "refused"}
    mark(cluster, "failed", changed["record"], plan=planned)
    again = plan({"a": BROKEN}, cluster, size=20)[0]["plans"]["a"]
    assert again["if_failed"] == {"state": "failed", "untouched": "failed"}
    assert mark(cluster, "started", plan=again)["if_failed"] == {"state": "failed", "untouched": "failed"}


def test_no_node_is_taken_out_of_service_beyond_the_budget(mark):
    cluster = FakeCluster("a", "b", "c", "d")
    cluster.kept["b"]["spec"]["unschedulable"] = True
    result = mark(cluster, "started", plan=PLAN)
    assert result["failed"] and "1 of 4 nodes are out of service (b), and at most 25% may be" in result["msg"]
    assert "unschedulable" not in cluster.kept["a"]["spec"]
    assert "failed" not in mark(cluster, "started", plan=PLAN, max_unavailable="2")


def test_check_mode_writes_nothing(mark):
    cluster = FakeCluster("a", "b", "c", "d")
    mark(cluster, "started", check_mode=True, plan=PLAN)
    assert cluster.kept["a"]["spec"] == {} and cluster.kept["a"]["metadata"]["annotations"] == {}


def condition(cluster, name="a"):
    found = repair.condition_of(cluster.kept[name], "GpusHealthy")
    return found.get("status"), found.get("reason"), found.get("message")


def test_a_condition_of_the_node_follows_the_repair_where_one_is_asked_for(mark, plan):
    cluster = FakeCluster("a", "b", "c", "d")
    mark(cluster, "started", plan=PLAN)
    assert condition(cluster) == (None, None, None)
    for state in ("started", "repairing", "proving"):
        mark(cluster, state, plan=PLAN, condition="GpusHealthy")
        assert condition(cluster)[:2] == ("False", "Repairing")
    began = repair.condition_of(cluster.kept["a"], "GpusHealthy")["lastTransitionTime"]
    mark(cluster, "handed-over", plan=PLAN, reason="no spare rows", condition="GpusHealthy")
    assert condition(cluster) == ("False", "HandedOver", "no spare rows")
    assert repair.condition_of(cluster.kept["a"], "GpusHealthy")["lastTransitionTime"] == began
    assert repair.condition_of(cluster.kept["a"], "Ready")["status"] == "True"
    mark(cluster, "done", plan=PLAN, condition="GpusHealthy")
    assert condition(cluster)[:2] == ("True", "Repaired")
    mark(cluster, "refused", plan=PLAN, condition="GpusHealthy", check_mode=True)
    assert condition(cluster)[:2] == ("True", "Repaired")
    mark(cluster, "refused", plan=PLAN, condition="GpusHealthy", reason="somebody uses it")
    assert condition(cluster) == ("False", "NotRepaired", "somebody uses it")

    # The fault went away by itself: the next run says so, and of the others too; what is broken stays as it is.
    plan({"a": WELL, "b": WELL, "c": BROKEN}, cluster, size=40, condition="")
    assert condition(cluster)[0] == "False"
    plan({"a": WELL, "b": WELL, "c": BROKEN}, cluster, size=40, condition="GpusHealthy")
    assert [condition(cluster, name)[:2] for name in "abcd"] == [
        ("True", "Healthy"),
        ("True", "Healthy"),
        (None, None),
        (None, None),
    ]


def test_forget_begins_anew(mark):
    before = mark(None, "started", plan=PLAN)["record"]
    before = mark(None, "repairing", before, plan=PLAN)["record"]
    before = mark(None, "failed", before, plan=PLAN)["record"]
    assert len(before["attempts"]) == 1
    assert mark(None, "started", before, plan={"action": "nothing"}, forget=True)["record"]["attempts"] == []


def claimed(*others, rules=(), status=None):
    """A cluster whose node a offers two GPUs, or others, to claims."""
    cluster = FakeCluster("a", "b", "c", "d")
    cluster.kept["a"]["metadata"]["uid"] = "uid-a"
    cluster.kept["a"]["status"].update(status or {})
    devices = others or (device("gpu-0", "GPU-0"), device("gpu-1", "GPU-1"))
    owner = {"ownerReferences": [{"kind": "Node", "name": "a", "uid": "uid-a"}]}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a", "pool": {"name": "a", "generation": 1}, "devices": [*devices]}
    cluster.slices, cluster.rules = ({"metadata": owner, "spec": spec},), dict(rules)
    return cluster


def device(name, uuid, **more):
    kind = {"type": "mig", "profile": "1g.10gb"} if more else {"type": "gpu"}
    attributes = {"uuid": uuid, **kind, **more}
    return {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}}


def two(asks=None, **changed):
    """A host of which the first of two GPUs asks for something."""
    other = {**GPU, "index": 1, "minor": 1, "uuid": "GPU-1", "pci_address": "0000:3b:00.0", "recovery_action": "none"}
    pci = [{"address": one, "kind": "gpu", "kernel_driver": "nvidia"} for one in ("0000:18:00.0", "0000:3b:00.0")]
    return {**facts(asks), "gpus": [{**GPU, "recovery_action": asks}, other], "pci": pci, **changed}


CLAIMS = {"nvidia_sharing_backend": "dra"}
INSTANCES = {"gpu_instances": [{"compute_instances": [{"uuid": "MIG-0"}, {"uuid": "MIG-1"}]}]}


@pytest.mark.parametrize(
    ("read", "offered", "tainted"),
    [
        (two("gpu_reset"), (), ["gpu-0"]),
        # For people.
        (two("value_9"), (), ["gpu-0"]),
        # Its MIG devices, also one that was not there yet when the host was read.
        (
            two("gpu_reset"),
            (
                device("gpu-0-mig-a", "MIG-0", parentUUID="GPU-0"),
                device("gpu-0-mig-b", "MIG-2", parentUUID="GPU-0"),
                device("gpu-1-mig-a", "MIG-9", parentUUID="GPU-1"),
            ),
            ["gpu-0-mig-a", "gpu-0-mig-b"],
        ),
        # What the whole host has to be emptied for.
        (two("node_reboot"), (), []),
        (facts("gpu_reset"), (), []),
        # The driver does not publish it: nobody knows who could get it.
        (two("gpu_reset"), (device("gpu-1", "GPU-1"),), []),
        # Of the switches.
        ({**two("none"), "health": {"nvidia_smi": {"rc": 9, "text": "x"}, "xids": [], "sxids": []}}, (), []),
    ],
)
def test_the_devices_of_a_gpu_are_tainted_where_the_others_of_its_node_go_on(plan, mark, read, offered, tainted):
    cluster = claimed(*offered)
    result, shown = plan({"a": read}, cluster, size=40, described=CLAIMS)
    planned = result["plans"]["a"]
    assert [device for _pool, device in planned["taints"]] == tainted
    assert (f"taints {', '.join(tainted)}; the node stays in service" in shown.text) is bool(tainted)
    mark(cluster, "started", plan=planned)
    assert cluster.kept["a"]["spec"].get("unschedulable", False) is not bool(tainted)
    found = [rule["spec"]["deviceSelector"] for rule in cluster.rules.values()]
    assert found == [{"driver": "gpu.nvidia.com", "pool": "a", "device": name} for name in tainted]


@pytest.mark.parametrize(
    ("described", "rules", "status"),
    [
        ({}, (), {}),
        (CLAIMS, None, {}),
        # A device plugin offers them as well, and heeds no taint.
        (CLAIMS, (), {"allocatable": {"nvidia.com/gpu": "2"}}),
    ],
)
def test_the_node_is_cordoned_where_no_taint_keeps_pods_from_the_device(plan, mark, described, rules, status):
    cluster = claimed(status=status)
    cluster.rules = rules if rules is None else dict(rules)
    result, shown = plan({"a": two("gpu_reset")}, cluster, size=40, described=described)
    planned = result["plans"]["a"]
    assert planned["taints"] == []
    assert ("the cluster serves no DeviceTaintRule of resource.k8s.io/v1" in shown.text) is (rules is None)
    mark(cluster, "started", plan=planned)
    assert cluster.kept["a"]["spec"]["unschedulable"] and not cluster.rules


def test_what_a_device_plugin_offered_once_is_no_reason_to_cordon_the_node(plan):
    cluster = claimed(status={"allocatable": {"nvidia.com/gpu": "0"}, "capacity": {"nvidia.com/gpu": "0"}})
    assert plan({"a": two("gpu_reset")}, cluster, size=40, described=CLAIMS)[0]["plans"]["a"]["taints"]


def test_a_taint_takes_no_room_of_the_budget_ends_what_returns_by_a_shared_claim_and_goes_after_the_proof(plan, mark):
    cluster = claimed()
    cluster.kept["b"]["spec"]["unschedulable"] = True
    planned = plan({"a": two("gpu_reset")}, cluster, size=40, described=CLAIMS)[0]["plans"]["a"]
    effects, record = [], {}
    for state in ("started", "repairing", "proving", "done"):
        record = mark(cluster, state, record, plan=planned)["record"]
        effects.append([rule["spec"]["taint"]["effect"] for rule in cluster.rules.values()])
    assert effects == [["NoSchedule"], ["NoExecute"], ["NoExecute"], []]
    assert "unschedulable" not in cluster.kept["a"]["spec"] or not cluster.kept["a"]["spec"]["unschedulable"]


@pytest.mark.parametrize("last", ["started", "repairing", "failed", "handed-over"])
@pytest.mark.parametrize("known", [True, False], ids=["recorded", "its node was made anew"])
def test_a_taint_that_a_run_left_is_found_by_the_next_one_and_goes_when_the_gpu_is_proven(plan, mark, last, known):
    cluster = claimed()
    planned = plan({"a": two("gpu_reset")}, cluster, size=40, described=CLAIMS)[0]["plans"]["a"]
    record = mark(cluster, "started", plan=planned)["record"]
    if last != "started":
        mark(cluster, last, record, plan=planned, reason="broken")
    (left,) = cluster.rules
    # Somebody else's, and another node's, are not touched.
    others = {name: json.loads(json.dumps(cluster.rules[left])) for name in ("theirs", "of-b")}
    others["theirs"]["spec"]["taint"]["key"] = "example.com/slow"
    others["of-b"]["metadata"]["annotations"] = {"gpufleet.github.io/node": "b"}
    cluster.rules.update(others)
    if not known:
        cluster.kept["a"]["metadata"]["annotations"] = {}
    found = plan({"a": two("none")}, cluster, size=40, described=CLAIMS, retry=True)[0]
    assert found["order"] == ["a"]
    again = found["plans"]["a"]
    assert (again["action"], again["taints"], again["tainted"]) == ("nothing", [("a", "gpu-0")], [left])
    record = mark(cluster, "started", plan=again)["record"]
    assert left in cluster.rules and not cluster.kept["a"]["spec"].get("unschedulable")
    mark(cluster, "done", record, plan=again)
    assert cluster.rules == others and not cluster.kept["a"]["spec"].get("unschedulable")


@pytest.mark.parametrize("asks", ["none", "gpu_reset"])
def test_a_taint_goes_after_the_proof_also_where_the_dra_driver_no_longer_serves_the_node(plan, mark, asks):
    cluster = claimed()
    planned = plan({"a": two("gpu_reset")}, cluster, size=40, described=CLAIMS)[0]["plans"]["a"]
    mark(cluster, "handed-over", mark(cluster, "started", plan=planned)["record"], plan=planned, reason="broken")
    left = [*cluster.rules]
    again = plan({"a": two(asks)}, cluster, size=40, retry=True)[0]["plans"]["a"]
    assert (again["taints"], again["tainted"]) == ([], left)
    record = mark(cluster, "started", plan=again)["record"]
    assert cluster.kept["a"]["spec"]["unschedulable"]
    mark(cluster, "done", record, plan=again)
    assert not cluster.rules and not cluster.kept["a"]["spec"]["unschedulable"]


def test_the_right_to_read_taints_is_needed_where_the_dra_driver_serves_alone(plan, monkeypatch):
    asked = []

    def forbidden(_self):
        asked.append(1)
        raise ApiError(403, "list the DeviceTaintRules", "forbidden")

    monkeypatch.setattr(FakeCluster, "device_taint_rules", forbidden)
    cluster = claimed()
    cluster.kept["b"] = json.loads(json.dumps(cluster.kept["a"]))
    cluster.kept["b"]["metadata"]["name"] = "b"
    assert plan({"a": two("gpu_reset"), "b": two("none")}, cluster, size=40)[0]["order"] == ["a"]
    assert len(asked) == 1
    refused = plan({"a": two("gpu_reset")}, cluster, size=40, described=CLAIMS)[0]
    assert refused["failed"] and "DeviceTaintRules" in refused["msg"]


@pytest.mark.parametrize("handed_over", [False, True])
@pytest.mark.parametrize("asks", ["gpu_reset", "none"])
def test_a_cordon_of_people_stays_where_the_repair_tainted_the_device_alone(plan, mark, handed_over, asks):
    cluster = claimed()
    planned = plan({"a": two("gpu_reset")}, cluster, size=40, described=CLAIMS)[0]["plans"]["a"]
    record = mark(cluster, "started", plan=planned)["record"]
    if handed_over:
        mark(cluster, "handed-over", record, plan=planned, reason="broken")
    cluster.kept["a"]["spec"]["unschedulable"] = True
    again = plan({"a": two(asks)}, cluster, size=40, described=CLAIMS, retry=True)[0]["plans"]["a"]
    record = mark(cluster, "started", plan=again)["record"]
    mark(cluster, "done", record, plan=again)
    assert cluster.kept["a"]["spec"]["unschedulable"] and not cluster.rules


def test_a_node_that_serves_on_without_a_gpu_is_watched_by_nvsentinel_again(plan, mark):
    cluster = claimed()
    cluster.groups = ("nvsentinel.dgxc.nvidia.com",)
    planned = plan({"a": two("gpu_reset")}, cluster, size=40, described=CLAIMS)[0]["plans"]["a"]
    record = mark(cluster, "started", plan=planned)["record"]
    assert "false" in cluster.kept["a"]["metadata"]["labels"].values()
    mark(cluster, "handed-over", record, plan=planned, reason="broken")
    assert cluster.kept["a"]["metadata"]["labels"] == {} and not cluster.kept["a"]["spec"].get("unschedulable")


def test_a_gpu_that_a_reset_did_not_repair_is_rebooted_under_the_cordon_and_returned_whole(plan, mark):
    cluster = claimed()
    planned = plan({"a": two("gpu_reset")}, cluster, size=40, described=CLAIMS)[0]["plans"]["a"]
    record = mark(cluster, "started", plan=planned)["record"]
    mark(cluster, "repairing", record, plan=planned)
    again = plan({"a": two("node_reboot")}, cluster, size=40, described=CLAIMS)[0]["plans"]["a"]
    assert (again["action"], again["taints"]) == ("reboot", []) and again["tainted"] == [*cluster.rules]
    record = mark(cluster, "started", plan=again)["record"]
    assert cluster.kept["a"]["spec"]["unschedulable"]
    mark(cluster, "done", record, plan=again)
    assert not cluster.kept["a"]["spec"]["unschedulable"] and not cluster.rules


OWNERSHIP, COMPLETE = "NVSentinelOwnershipReleased", "ExternalRemediationComplete"
RELEASE = {"key": "nvsentinel.dgxc.nvidia.com/external-remediation", "value": "extrr-1", "effect": "NoSchedule"}


def quarantined(*taints, **conditions):
    """A cluster of which NVSentinel has cordoned the node a, and released it with the taint."""
    cluster = FakeCluster("a", "b", "c", "d")
    cluster.kept["a"]["metadata"]["annotations"] = {"quarantineHealthEvent": "[{}]"}
    cluster.kept["a"]["spec"] = {"unschedulable": True, "taints": [*taints]}
    if taints:
        cluster.kept["a"]["metadata"]["labels"] = {"nvsentinel.dgxc.nvidia.com/managed": "false"}
    found = {OWNERSHIP: "True", COMPLETE: "Unknown", **conditions}
    cluster.request = {"status": {"conditions": [{"type": key, "status": value} for key, value in found.items()]}}
    return cluster


def complete(cluster):
    """The result in the request, and that NVSentinel's condition is left."""
    found = {one["type"]: one for one in cluster.request["status"]["conditions"]}
    assert found.keys() == {OWNERSHIP, COMPLETE} and found[OWNERSHIP]["status"] == "True"
    return found[COMPLETE]["status"], found[COMPLETE].get("message")


@pytest.mark.parametrize(
    ("taints", "mode", "said"),
    [
        ((), "exclude", "NVSentinel has quarantined it (annotation quarantineHealthEvent)"),
        ((), "remediate", "NVSentinel has quarantined it (annotation quarantineHealthEvent)"),
        ((RELEASE,), "exclude", "set gpu_node_nvsentinel: remediate"),
        ((RELEASE,), "remediate", ""),
        ((), "ignore", ""),
    ],
)
def test_what_nvsentinel_repairs_is_left_to_it_unless_it_has_released_the_node_for_that(plan, taints, mode, said):
    result, _shown = plan({"a": BROKEN, "b": WELL}, quarantined(*taints), size=40, nvsentinel=mode)
    assert result["order"] == ([] if said else ["a"])
    assert said in refusals(result).get("a", "")
    # Where nothing is wrong, there is nothing to refuse.
    well, _shown = plan({"a": WELL}, quarantined(), size=40, nvsentinel="exclude")
    assert (well["order"], well["refusals"]) == ([], [])


def test_a_request_is_answered_when_the_node_is_proven_and_nvsentinel_returns_it(plan, mark):
    cluster = quarantined(RELEASE)
    planned = plan({"a": BROKEN}, cluster, size=40, nvsentinel="remediate")[0]["plans"]["a"]
    record = {}
    for state in ("started", "repairing", "proving", "done"):
        assert complete(cluster) == ("Unknown", None)
        record = mark(cluster, state, record, plan=planned, nvsentinel="remediate")["record"]
    assert complete(cluster) == ("True", "gpufleet.nvidia.heal repaired and verified the host.")
    # The uncordon is its own, when its monitors have seen the node.
    assert cluster.kept["a"]["spec"]["unschedulable"]
    assert cluster.kept["a"]["metadata"]["labels"]["nvsentinel.dgxc.nvidia.com/managed"] == "false"


def test_what_is_handed_over_is_reported_as_not_repaired_and_a_retry_may_complete_it(plan, mark):
    cluster = quarantined(RELEASE)
    planned = plan({"a": BROKEN}, cluster, size=40, nvsentinel="remediate")[0]["plans"]["a"]
    record = mark(cluster, "started", plan=planned, nvsentinel="remediate")["record"]
    mark(cluster, "handed-over", record, plan=planned, reason="no spare rows", nvsentinel="remediate")
    assert complete(cluster) == ("False", "no spare rows")
    again = plan({"a": WELL}, cluster, size=40, retry=True, nvsentinel="remediate")[0]["plans"]["a"]
    record = mark(cluster, "started", plan=again, nvsentinel="remediate")["record"]
    mark(cluster, "done", record, plan=again, nvsentinel="remediate")
    assert complete(cluster)[0] == "True" and cluster.kept["a"]["spec"]["unschedulable"]


@pytest.mark.parametrize(
    ("conditions", "proven"),
    [
        ({}, True),
        # Not released yet, and answered already.
        ({OWNERSHIP: "Unknown"}, False),
        ({COMPLETE: "True"}, False),
        ({COMPLETE: "False"}, False),
    ],
)
def test_a_node_whose_fault_only_nvsentinel_saw_is_proven_before_its_request_is_answered(plan, conditions, proven):
    """So is one whose run was cut off before it could answer."""
    result, shown = plan({"a": WELL}, quarantined(RELEASE, **conditions), size=40, nvsentinel="remediate")
    assert result["order"] == (["a"] if proven else [])
    assert ("a: prove it and return it to service" in shown.text) is proven
