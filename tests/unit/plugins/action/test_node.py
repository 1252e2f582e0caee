# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is read once its jobs have ended, and cordoned for a new MIG layout with what was found in one change."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import node_state as module
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import repartition_node
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError

from .rollouts import Nodes


def job(name, phase="Running"):
    return {"metadata": {"namespace": "default", "name": name, "uid": name}, "status": {"phase": phase}, "spec": {}}


class Api(Nodes):
    """A cluster with the node C(n), and a clock that stands until somebody sleeps."""

    def __init__(self, jobs=(), **spec):
        super().__init__("n")
        self.jobs, self.now, self.asked, self.object = [*jobs], 0.0, [], self.kept["n"]
        self.object["metadata"].update(annotations={"kept": "1"}, labels={"zone": "a"})
        self.object["spec"].update(spec)

    def keep(self, **annotations):
        self.object["metadata"]["annotations"].update(annotations)
        return self

    def pods_on(self, name, selector):
        self.asked.append((name, selector))
        return self.jobs.pop(0) if len(self.jobs) > 1 else self.jobs[0]

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        assert self.now < 1000, "it never ends"


@pytest.fixture
def ask(call, monkeypatch):
    def do(api, check_mode=False, **arguments):
        monkeypatch.setattr(module.ActionModule, "cluster", lambda _self, _arguments: api)
        monkeypatch.setattr(module, "time", api)
        return call(module, {"node": "n", **arguments}, {}, check_mode)

    return do


def test_reading_changes_nothing(ask):
    api = Api(unschedulable=True)
    result, _shown = ask(api)
    assert (result["annotations"], result["labels"]) == ({"kept": "1"}, {"zone": "a"})
    assert not result["changed"] and api.changed == []


def test_a_node_that_is_not_there_has_nothing(ask):
    result, _shown = ask(Api(), node="other")
    assert (result["annotations"], result["labels"]) == ({}, {})


@pytest.mark.parametrize("error", [403, 500])
def test_an_answer_that_is_no_answer_fails(ask, monkeypatch, error):
    api = Api()
    monkeypatch.setattr(api, "node", lambda name: (_ for _ in ()).throw(ApiError(error, f"read node {name}", "no")))
    assert ask(api)[0]["msg"] == "Failed to read node n: no"


def test_jobs_are_waited_for_and_named_once(ask):
    api = Api([[job("a"), job("b")], [job("a"), job("b")], [job("a"), job("b", "Succeeded")], [job("a", "Failed")]])
    result, shown = ask(api, without_pods="app=job", timeout=60)
    assert "failed" not in result
    assert shown.lines == ["n: waiting for default/a, default/b", "n: waiting for default/a"]
    assert set(api.asked) == {("n", "app=job")} and api.now == 30


def test_jobs_that_stay_are_named_with_the_remedy_and_nothing_is_changed(ask):
    api = Api([[job("a")]])
    result, _shown = ask(api, without_pods="app=job", timeout=25)
    assert result["msg"] == (
        "Failed to wait for the pods app=job of node n: after 25 s there still is default/a. Wait for them or delete them, and run again."
    )
    assert api.changed == []


@pytest.mark.parametrize("kubernetes", [True, False])
@pytest.mark.parametrize("work", ["rollback", "repartition"])
def test_a_host_that_migrate_has_to_finish_is_refused_by_what_does_not_continue_it(call, monkeypatch, kubernetes, work):
    api, target = Api(), "driver and container toolkit of the host"
    monkeypatch.setattr(module.ActionModule, "cluster", lambda _self, _arguments: api)
    facts = {"schema": 1, "recorded": {"upgrade_state": "installing", "upgrade_to": target}}
    given = {"node": "n", "work": work, "kubernetes": kubernetes}

    def asked():
        return call(module, given, {"gpu_facts_host": {"gpu": facts}})[0]

    found = asked()
    assert found["failed"] and "gpufleet.nvidia.migrate continues it" in found["msg"] and not api.changed
    facts["recorded"]["upgrade_to"] = "driver 580.178.04"
    assert bool(asked().get("failed")) is (work == "repartition"), (
        "a rollback goes back from an upgrade that was cut off"
    )
    if kubernetes:
        api.keep(
            **{f"gpufleet.github.io/upgrade-{key}": value for key, value in {"state": "failed", "to": target}.items()}
        )
        assert "gpu_upgrade_retry=true" in asked()["msg"]
        facts["recorded"] = {"upgrade_state": "returning", "upgrade_to": target}
        api.keep(**{"gpufleet.github.io/upgrade-state": "done"})
        assert not asked().get("failed"), "the node knows of the end"


def test_a_run_learns_that_another_one_has_taken_the_node_ahead_of_a_turn_that_did_not_come(call, monkeypatch):
    api = Api()
    monkeypatch.setattr(module.ActionModule, "cluster", lambda _self, _arguments: api)
    facts = {"gpu_facts_host": {"gpu": {"schema": 1}}}
    given = {"node": "n", "work": "repartition", "kubernetes": True}
    assert call(module, given, facts)[0]["taken"] is False
    assert call(module, {**given, "kubernetes": False}, facts)[0]["taken"] is False
    api.keep(**{STATE: "started"})
    assert call(module, given, facts)[0]["taken"] is True


STATE, INITIAL, REASON, OPERATOR, SINCE = (
    f"gpufleet.github.io/repartition-{name}"
    for name in ("state", "initial-unschedulable", "failed-reason", "operator", "since")
)


@pytest.fixture
def repartition(call, monkeypatch):
    def do(api, state, check_mode=False, **arguments):
        monkeypatch.setattr(repartition_node.ActionModule, "cluster", lambda _self, _arguments: api)
        return call(repartition_node, {"node": "n", "state": state, **arguments}, {}, check_mode)[0]

    return do


def now(api):
    """What of the node is a repartition's: whether it is cordoned, and its annotations."""
    annotations = {**api.object["metadata"]["annotations"]}
    assert annotations.pop("kept") == "1", "what is not its own stays"
    # Who wrote a record, and when.
    assert (OPERATOR in annotations) == (SINCE in annotations)
    annotations.pop(OPERATOR, None)
    annotations.pop(SINCE, None)
    return bool(api.object["spec"].get("unschedulable")), annotations


@pytest.mark.parametrize("cordoned", [False, True])
def test_a_node_is_returned_as_it_was_found_also_by_the_run_after_the_one_that_was_cut_off(repartition, cordoned):
    api = Api(unschedulable=cordoned).keep(**{REASON: "of an earlier run"})
    for _run in range(2):
        assert repartition(api, "started")["returned"] is False
        assert now(api) == (True, {STATE: "started", INITIAL: str(cordoned).lower()})
    assert len(api.changed) == 1, "the second run finds it so"
    assert repartition(api, "done") == {"changed": True, "returned": True}
    assert now(api) == (cordoned, {})


@pytest.mark.parametrize("cordoned", [False, True])
def test_a_node_that_is_cordoned_ahead_of_its_turn_is_returned_as_it_was_found_with_its_turn_and_without_one(
    repartition, cordoned
):
    for turn in ([], ["started"]):
        api = Api(unschedulable=cordoned)
        assert repartition(api, "ahead") == {"changed": True, "returned": False}
        assert now(api) == (True, {STATE: "started", INITIAL: str(cordoned).lower()})
        for state in turn:
            repartition(api, state)
        repartition(api, "done")
        assert now(api) == (cordoned, {})


@pytest.mark.parametrize("state", ["started", "failed"])
def test_a_node_that_an_earlier_run_left_out_of_service_stays_as_it_is_ahead_of_its_turn(repartition, state):
    api = Api()
    repartition(api, state, layout_changed=True, reason="no")
    before = now(api)
    assert repartition(api, "ahead") == {"changed": False, "returned": False}
    assert now(api) == before and len(api.changed) == 1


@pytest.mark.parametrize("cordoned", [False, True])
def test_a_failure_returns_the_node_with_its_reason_only_where_the_layout_is_what_it_was(repartition, cordoned):
    api = Api(unschedulable=cordoned)
    repartition(api, "started")
    failed = repartition(api, "failed", layout_changed=True, reason="CUDA \x1b[31merror")
    assert failed["returned"] is False
    assert now(api) == (True, {STATE: "failed", INITIAL: str(cordoned).lower(), REASON: "CUDA ?[31merror"})
    assert repartition(api, "failed", reason="no")["returned"] is True
    assert now(api) == (cordoned, {STATE: "refused", INITIAL: str(cordoned).lower(), REASON: "no"})


def test_a_node_with_half_a_layout_that_people_had_uncordoned_is_cordoned_by_the_failure(repartition):
    api = Api()
    repartition(api, "started")
    api.object["spec"]["unschedulable"] = False
    repartition(api, "failed", layout_changed=True, reason="no")
    assert now(api)[0] is True


@pytest.mark.parametrize("cordoned", [False, True])
def test_a_node_that_a_run_of_an_older_release_left_is_returned_as_that_found_it(repartition, cordoned):
    api = Api(unschedulable=True).keep(**{INITIAL: str(cordoned).lower()})
    repartition(api, "started")
    assert repartition(api, "done")["returned"] is True
    assert now(api) == (cordoned, {})


def test_check_mode_and_plain_hosts_change_no_node(repartition):
    api = Api()
    assert repartition(api, "started", check_mode=True)["changed"] and api.changed == []
    found = repartition(None, "failed", kubernetes=False, layout_changed=True)
    assert found == {"changed": False, "returned": False}
    assert repartition(None, "failed", kubernetes=False)["returned"] is True
