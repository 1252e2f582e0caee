# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The breaker, the order and the budget."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_faults import Fault
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_plan import Decided, RepairPlan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import Action, RepairRecord
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import repair

NOW = datetime.datetime(2026, 11, 23, 12, 0, 0, tzinfo=datetime.timezone.utc)


def broken(action=Action.RESET_GPU, error=None, resumed=False):
    fault = Fault("0000:18:00.0", "x", "GPU 0", "it is broken", action)
    errors = frozenset() if error is None else frozenset({error})
    return RepairPlan(action, (Decided(fault, action),), gpus=("0000:18:00.0",), resumed=resumed, errors=errors)


def fleet(count, size, **options):
    plans = {f"n{number}": broken(**options) for number in range(count)}
    return {**plans, "well": RepairPlan()}, size


@pytest.mark.parametrize(
    ("count", "size", "hosts", "trips"),
    [
        (0, 100, "10%", False),
        (1, 1, "10%", False),
        (2, 10, "10%", True),
        (10, 100, "10%", False),
        (11, 100, "10%", True),
        (2, 1000, "1", True),
        (2, 4, "50%", False),
    ],
)
def test_more_than_the_budget_trips_the_breaker(count, size, hosts, trips):
    why = repair.tripped(*fleet(count, size), most=hosts, same_xid=99)
    assert bool(why) is trips
    assert not trips or f"{count} hosts need a repair at once" in why


def test_the_same_xid_on_many_hosts_trips_the_breaker():
    why = repair.tripped(*fleet(3, 1000, error=119), same_xid=3)
    assert why == "3 hosts have the same error, Xid 119 (n0, n1, n2)"
    assert repair.tripped(*fleet(2, 1000, error=119), same_xid=3) == ""
    mixed = {"a": broken(error=119), "b": broken(error=79), "c": broken(error=48)}
    assert repair.tripped(mixed, 1000, same_xid=3) == ""


def test_hosts_that_other_runs_repaired_lately_count():
    """A run for each alert, with --limit, must not walk around the breaker."""
    state = {repair.STATE: "done", repair.SINCE: "2026-11-23T11:30:00Z"}
    nodes = {
        "mine": {"metadata": {"annotations": state}},
        "other": {"metadata": {"annotations": state}},
        "old": {"metadata": {"annotations": {**state, repair.SINCE: "2026-11-20T11:30:00Z"}}},
        "refused": {"metadata": {"annotations": {**state, repair.STATE: "refused"}}},
        "odd": {"metadata": {"annotations": {**state, repair.SINCE: "yesterday"}}},
        "future": {"metadata": {"annotations": {**state, repair.SINCE: "2999-11-20T11:30:00Z"}}},
        "never": {"metadata": {}},
    }
    lately = repair.repaired_lately(nodes, {"mine"}, NOW, 3600)
    assert lately == ("other",)
    assert "and other recently" in repair.tripped({"mine": broken()}, 10, lately)


def test_what_was_handed_over_does_not_count():
    handed = RepairPlan(handed_over="the board is broken")
    assert repair.tripped({"a": handed, "b": handed, "c": broken()}, 10) == ""


def test_a_share_that_is_none_is_refused():
    with pytest.raises(Refused, match="must be a number of nodes"):
        repair.tripped(*fleet(1, 1), most="some")


def test_first_what_was_cut_off_then_what_disturbs_least():
    plans = {
        "reboot": broken(Action.REBOOT),
        "service": broken(Action.RESTART_SERVICE),
        "cut-off": broken(Action.REBOOT, resumed=True),
        "reset": broken(),
        "well": RepairPlan(),
    }
    assert repair.order(plans) == ["cut-off", "service", "reset", "reboot"]


def node(unschedulable=False, ready=True):
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions}}


def test_the_budget_counts_whoever_is_out_of_service():
    nodes = {"a": node(), "b": node(unschedulable=True), "c": node(), "d": node(ready=False), "foreign": node(True)}
    members = ["a", "b", "c", "d"]
    assert repair.no_room(nodes, members, "a", "3") == ""
    assert (
        repair.no_room(nodes, members, "a", "50%") == "2 of 4 nodes are out of service (b, d), and at most 50% may be"
    )
    assert repair.no_room(nodes, members, "b", "1") == "", "it costs nothing: it is out of service already"


def test_the_record_of_a_repair_on_its_node():
    record = RepairRecord("repairing", since="2026-11-23T11:30:00Z", initial_unschedulable=True, operator="me@here/1-2")
    marked = {name: value for name, value in repair.marked(record).items() if value}
    assert all(name.startswith("gpufleet.github.io/heal-") for name in marked)
    found = repair.known(RepairRecord(), {"metadata": {"annotations": marked}})
    assert (found.state, found.since, found.initial_unschedulable) == ("repairing", record.since, True)
    ended = repair.marked(replace(record, state="done"))
    kept = RepairRecord("failed", initial_unschedulable=True)
    assert repair.known(kept, {"metadata": {"annotations": ended}}) == kept, "one that ended says nothing of the next"
    # What releases before wrote: those four alone.
    older = {"state": "handed-over", "since": "x", "failed-reason": "burnt", "initial-unschedulable": "true"}
    annotations = {f"gpufleet.github.io/heal-{name}": value for name, value in older.items()}
    found = repair.known(RepairRecord(), {"metadata": {"annotations": annotations}})
    assert (found.state, found.reason, found.initial_unschedulable) == ("handed-over", "burnt", True)
    for name, value in (("initial-unschedulable", "maybe"), ("state", "evicting")):
        with pytest.raises(Unfit):
            repair.known(RepairRecord(), {"metadata": {"annotations": {f"gpufleet.github.io/heal-{name}": value}}})


def test_the_plan_in_words():
    text = "\n".join(repair.lines("n1", broken()))
    assert text == "n1: reset gpu\n    GPU 0: it is broken\n    concerns 0000:18:00.0"
    assert repair.lines("n1", RepairPlan(notes=("a note",))) == ["n1: nothing to repair", "    note: a note"]
    assert repair.lines("n1", RepairPlan(handed_over="why")) == ["n1: handed over to people: why"]
    assert "return it to service" in repair.lines("n1", RepairPlan(resumed=True))[0]
