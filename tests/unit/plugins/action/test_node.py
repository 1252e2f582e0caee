# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node is read, annotated and cordoned in one call, and its jobs are waited for before."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import node_state as module
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError


def job(name, phase="Running"):
    return {"metadata": {"namespace": "default", "name": name, "uid": name}, "status": {"phase": phase}, "spec": {}}


class Api:
    """A cluster with the node C(n), and a clock that stands until somebody sleeps."""

    def __init__(self, jobs=(), **spec):
        self.jobs, self.now, self.changed, self.asked = [*jobs], 0.0, [], []
        self.object = {"metadata": {"name": "n", "annotations": {"kept": "1"}, "labels": {"zone": "a"}}, "spec": spec}

    def node(self, name):
        if name != "n":
            raise ApiError(404, f"read node {name}", f'nodes "{name}" not found')
        return self.object

    def change_node(self, name, annotations, unschedulable):
        self.changed.append((name, annotations, unschedulable))

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
    assert (result["annotations"], result["labels"], result["unschedulable"]) == ({"kept": "1"}, {"zone": "a"}, True)
    assert not result["changed"] and api.changed == []


def test_a_node_that_is_not_there_has_nothing(ask):
    result, _shown = ask(Api(), node="other")
    assert (result["annotations"], result["labels"], result["unschedulable"]) == ({}, {}, False)


@pytest.mark.parametrize("error", [403, 500])
def test_an_answer_that_is_no_answer_fails(ask, monkeypatch, error):
    api = Api()
    monkeypatch.setattr(api, "node", lambda name: (_ for _ in ()).throw(ApiError(error, f"read node {name}", "no")))
    assert ask(api)[0]["msg"] == "Failed to read node n: no"


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"annotations": {"kept": "1"}}, False),
        ({"annotations": {"kept": None}}, True),
        ({"annotations": {"absent": None}}, False),
        ({"annotations": {"new": "2"}}, True),
        ({"unschedulable": False}, False),
        ({"unschedulable": True}, True),
    ],
)
def test_only_what_differs_is_a_change_and_check_mode_makes_none(ask, given, changes):
    api = Api()
    assert ask(api, check_mode=True, **given)[0]["changed"] is changes
    assert api.changed == []
    assert ask(api, **given)[0]["changed"] is changes
    assert api.changed == ([("n", given.get("annotations", {}), given.get("unschedulable"))] if changes else [])


def test_jobs_are_waited_for_and_named_once(ask):
    api = Api([[job("a"), job("b")], [job("a"), job("b")], [job("a"), job("b", "Succeeded")], [job("a", "Failed")]])
    result, shown = ask(api, without_pods="app=job", timeout=60)
    assert "failed" not in result
    assert shown.lines == ["n: waiting for default/a, default/b", "n: waiting for default/a"]
    assert set(api.asked) == {("n", "app=job")} and api.now == 30


def test_jobs_that_stay_are_named_with_the_remedy_and_nothing_is_changed(ask):
    api = Api([[job("a")]])
    result, _shown = ask(api, without_pods="app=job", timeout=25, unschedulable=True)
    assert result["msg"] == (
        "Failed to wait for the pods app=job of node n: after 25 s there still is default/a. Wait for them or delete them, and run again."
    )
    assert api.changed == []
