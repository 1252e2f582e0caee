# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import waves
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.objects import is_ready
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import (
    HAND_OVER,
    HEAL,
    MIGRATE,
    ROLLING_BACK,
    UPGRADE_STEPS,
    FleetHost,
    NodeRecord,
    advance,
    at_work_elsewhere,
    begin,
    from_annotations,
    from_values,
    if_failed,
    progress,
    turn,
    unfinished,
    wave_node,
)

TARGET = "driver 580.178.04"
NOW = "2026-11-21T07:00:00Z"


def node(unschedulable=False, ready="True", **labels):
    return {
        "metadata": {"name": "n", "labels": labels},
        "spec": {"unschedulable": unschedulable} if unschedulable else {},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def started(**changes):
    values = {"state": "installing", "origin": "580.126.09", "target": TARGET, "wave": 2, **changes}
    return NodeRecord(**values)


RECORD = started(initial_unschedulable=True, failed_reason="why", operator="me@here/1-2", since=NOW, toolkit="1.19.1")


def test_a_record_survives_annotations_and_the_file():
    assert from_annotations(RECORD.annotations()) == RECORD
    assert from_values(json.loads(RECORD.as_text())) == RECORD
    assert from_values(RECORD.values()) == RECORD


def test_an_empty_record_removes_its_annotations_and_false_is_written():
    found = NodeRecord().annotations()
    assert all(key.startswith("gpufleet.github.io/upgrade-") for key in found)
    assert {value for key, value in found.items() if not key.endswith("unschedulable")} == {None}
    assert found["gpufleet.github.io/upgrade-initial-unschedulable"] == "false"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1], "the document: a list must be a mapping"),
        ({"wave": "first"}, "wave: 'first' must be an integer"),
        ({"state": "almost"}, "state: 'almost' is not of the form"),
        ({"operator": "\x1b[2J"}, r"operator: '\x1b[2J' has control characters"),
        ({"from": "5" * 2000}, "from: the text has 2000 characters"),
        ({"initial_unschedulable": "perhaps"}, "initial_unschedulable: 'perhaps' must be true or false"),
    ],
)
def test_what_is_no_record_is_refused_with_its_path(values, said):
    with pytest.raises(Unfit) as caught:
        from_values(values)
    assert caught.value.message.startswith(said)


def test_annotations_that_are_no_record_are_refused():
    with pytest.raises(Unfit, match="wave: 'first' must be an integer"):
        from_annotations({"gpufleet.github.io/upgrade-wave": "first"})


def test_a_node_whose_record_cannot_be_read_waits_and_counts_as_out_of_service():
    node = wave_node(FleetHost("a", NodeRecord(), True, unread="wave: 'first' must be an integer"), TARGET, False)
    assert node.unavailable and not node.ready and node.phase == "waiting"


@pytest.mark.parametrize(
    ("record", "unschedulable", "kept"),
    [
        (NodeRecord(), False, False),
        (NodeRecord(), True, True),
        (NodeRecord(state="done", target=TARGET), True, True),
        (started(state="failed"), True, False),
        (started(state="failed", initial_unschedulable=True), True, True),
        (started(state="failed", initial_unschedulable=True), False, False),
        (started(state="refused"), True, True),
        (started(target="driver 1"), True, False),
    ],
)
def test_a_cordon_by_hand_is_told_from_our_own(record, unschedulable, kept):
    found = begin(record, "580.126.09", TARGET, 1, unschedulable, "me", NOW)
    assert (found.state, found.target, found.initial_unschedulable) == ("started", TARGET, kept)


def test_an_interrupted_run_keeps_what_the_first_one_found():
    found = begin(RECORD, "580.178.04", TARGET, 5, True, "you", "later")
    assert (found.state, found.origin, found.wave, found.operator) == ("installing", "580.126.09", 5, "you")


def test_a_new_target_after_a_half_installed_one_still_comes_from_the_first_driver():
    assert begin(started(), "580.178.04", "driver 595", 1, True, "me", NOW).origin == "580.126.09"
    assert begin(started(state="evicting"), "580.126.09", "driver 595", 1, True, "me", NOW).origin == "580.126.09"


def test_the_toolkit_is_remembered_as_the_driver_is():
    assert begin(NodeRecord(), "580.126.09", TARGET, 1, False, "me", NOW, "1.19.1").toolkit == "1.19.1"
    assert begin(RECORD, "580.178.04", "driver 595", 1, True, "me", NOW, "1.20.2").toolkit == "1.19.1"
    assert begin(started(state="done"), "580.178.04", "driver 595", 1, True, "me", NOW, "1.20.2").toolkit == "1.20.2"


def test_on_plain_hosts_the_records_say_whether_another_run_is_at_work():
    now = datetime.datetime.fromisoformat("2026-11-21T07:10:00+00:00")
    theirs = FleetHost("a", started(operator="you@there/3-4", since=NOW), True)
    mine = FleetHost("b", started(operator="me@here/1-2", since=NOW), True)
    ended = FleetHost("c", started(state="done", operator="you@there/3-4", since=NOW), True)
    unknown = [
        FleetHost("d", started(operator="you@there/3-4", since=since), True)
        for since in (
            "",
            "yesterday",
            "2026-11-20",
            "2026-11-21T08:10:00Z",
            "2999-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
        )
    ]
    assert at_work_elsewhere([mine, ended, *unknown[:2], theirs], "me@here/1-2", now, 1800) == theirs.record
    assert at_work_elsewhere([mine, ended, *unknown], "me@here/1-2", now, 1800) is None
    ahead = FleetHost("e", started(operator="you@there/3-4", since="2026-11-21T07:13:00Z"), True)
    assert at_work_elsewhere([ahead], "me@here/1-2", now, 1800) == ahead.record, "clocks differ by minutes"
    assert at_work_elsewhere([theirs], "me@here/1-2", now, 600) is None


@pytest.mark.parametrize("step", UPGRADE_STEPS)
def test_every_step_is_an_interruption(step):
    record = NodeRecord(state=step)
    assert record.interrupted
    assert record.host_changed == (UPGRADE_STEPS.index(step) >= UPGRADE_STEPS.index("installing"))


@pytest.mark.parametrize(
    ("record", "needed", "retry", "here", "phase"),
    [
        (NodeRecord(), True, False, False, waves.WAITING),
        (NodeRecord(), False, False, False, waves.CURRENT),
        (NodeRecord(state="done", target=TARGET), False, False, False, waves.DONE),
        (NodeRecord(state="done", target=TARGET), True, False, False, waves.WAITING),
        (NodeRecord(state="done", target=TARGET), True, False, True, waves.DONE),
        (NodeRecord(state="done", target="older"), False, False, False, waves.CURRENT),
        (started(), False, False, False, waves.WAITING),
        (started(), False, False, True, waves.FAILED),
        (started(state="failed"), True, False, False, waves.FAILED),
        (started(state="failed"), False, True, False, waves.WAITING),
        (started(state="failed"), True, True, True, waves.FAILED),
        (started(state="failed", target="older"), True, False, False, waves.WAITING),
        (started(state="refused"), True, False, False, waves.FAILED),
        (started(state="refused"), True, True, False, waves.WAITING),
        (started(state="rolling-back"), True, False, False, waves.WAITING),
        (started(state="rolling-back", target="older"), True, False, False, waves.WAITING),
        (started(state="rolling-back"), True, False, True, waves.FAILED),
        (started(state="failed", target="older"), True, False, True, waves.FAILED),
    ],
)
def test_phases(record, needed, retry, here, phase):
    member = FleetHost("h", record, needed, node())
    assert wave_node(member, TARGET, retry, started_here=here).phase == phase


def test_what_the_cluster_says_of_a_node():
    found = wave_node(FleetHost("h", NodeRecord(), True, node(unschedulable=True, ready="Unknown")), TARGET, False)
    assert (found.cordoned, found.cordoned_by_hand, found.ready) == (True, True, False)
    ours = wave_node(FleetHost("h", started(), True, node(unschedulable=True)), TARGET, False)
    assert (ours.cordoned, ours.cordoned_by_hand) == (True, False)
    assert wave_node(
        FleetHost("h", NodeRecord(), True, node(**{"gpufleet.github.io/upgrade.skip": "true"})), TARGET, False
    ).skip
    assert not wave_node(FleetHost("h", NodeRecord(), True, None, reachable=False), TARGET, False).ready
    assert not is_ready({"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}})


def test_progress_names_what_matters():
    members = {
        "a": FleetHost("a", NodeRecord(state="done", target=TARGET), False, node()),
        "b": FleetHost("b", started(), True, node(unschedulable=True)),
        "c": FleetHost("c", NodeRecord(), True, node(**{"gpufleet.github.io/upgrade.skip": "true"})),
        "d": FleetHost("d", NodeRecord(), False, node()),
    }
    nodes = [wave_node(member, TARGET, False) for member in members.values()]
    assert progress(nodes, members, TARGET) == (
        f"{TARGET}: 1 done, 1 to go, 0 failed, 1 had nothing to do, 1 skipped by label (c), 1 cut off earlier (b)"
    )


def test_nodes_that_need_nothing_are_no_canary_and_count_in_the_fleet():
    nodes = [waves.Node("a", waves.CURRENT), waves.Node("b"), waves.Node("c")]
    assert waves.order(nodes) == ("b", "c")
    assert waves.decide(nodes, waves.Budget(max_parallel=2, max_unavailable="100%")).start == ("b",)


def test_the_file_on_the_host_is_json_for_people():
    assert json.loads(RECORD.as_text())["failed_reason"] == "why"


@pytest.mark.parametrize(
    ("present", "state", "result"),
    [
        ("started", "evicting", "evicting"),
        ("installing", "evicting", "installing"),
        ("verifying", "installing", "verifying"),
        ("verifying", "done", "done"),
        ("evicting", "refused", "refused"),
        ("installing", "failed", "failed"),
        ("failed", "failed", "failed"),
    ],
)
def test_a_record_never_goes_back_to_an_earlier_step(present, state, result):
    assert advance(NodeRecord(state=present), state).state == result


@pytest.mark.parametrize(
    ("state", "reason", "work", "result"),
    [
        ("", "", "upgrade", "upgrade"),
        ("done", "", "upgrade", "upgrade"),
        ("failed", "CUDA error", "upgrade", "upgrade"),
        ("installing", "", "upgrade", "upgrade"),
        # A rollback that was cut off is finished first: by its reason, as what follows a failure or as one by hand.
        ("rolling-back", "CUDA error", "upgrade", "revert"),
        ("rolling-back", "", "upgrade", "rollback"),
        ("", "", "migrate", "migrate"),
        ("installing", "", "migrate", "migrate"),
        ("failed", "CUDA error", "migrate", "migrate"),
        ("rolling-back", "CUDA error", "migrate", "migrate"),
        ("", "", "hand_over", "hand_over"),
        ("installing", "", "hand_over", "hand_over"),
        ("rolling-back", "CUDA error", "hand_over", "hand_over"),
    ],
)
def test_the_turn_of_a_node_is_what_its_record_asks_for(state, reason, work, result):
    assert turn(started(state=state, failed_reason=reason), work) == result


@pytest.mark.parametrize(
    ("state", "result"),
    [
        # Nothing was begun: it stays in service, and a node that failed earlier stays out of it.
        ("", ("refused", False, False)),
        ("done", ("refused", False, False)),
        ("refused", ("refused", False, False)),
        ("failed", ("failed", False, False)),
        # Nothing of the host was changed: the cordon goes.
        ("started", ("refused", True, False)),
        ("waiting-for-jobs", ("refused", True, False)),
        ("evicting", ("refused", True, False)),
        # The host is not as it was.
        ("installing", ("failed", False, True)),
        ("verifying", ("failed", False, True)),
        # It works, or it is on its way back already.
        ("returning", ("failed", False, False)),
        ("rolling-back", ("failed", False, False)),
    ],
)
def test_how_a_turn_that_fails_ends_depends_on_how_far_the_node_came(state, result):
    assert if_failed(started(state=state)) == dict(zip(("state", "uncordon", "revert"), result))
    # What has left a host that is handed over does not come back by itself.
    assert if_failed(started(state=state), HAND_OVER) == dict(
        zip(("state", "uncordon", "revert"), (*result[:2], False))
    )


MIGRATION = "nvidia.com/gpu by the DRA driver"
TASKS = Path(__file__).parents[5] / "roles" / "gpu_upgrade" / "tasks"


def recorded_by_migrate():
    """The steps that a migration writes into the record of a node, in order, out of its own tasks."""
    found = " ".join(re.findall(r"__gpu_upgrade_state: (.+)", (TASKS / "turn.yml").read_text()))
    return [step for step in UPGRADE_STEPS if step != ROLLING_BACK and re.search(rf"\b{step}\b", found)]


def test_a_migration_records_steps_that_a_run_can_be_killed_in():
    assert {"started", "installing", "verifying"} <= set(recorded_by_migrate())


@pytest.mark.parametrize("state", ["", *UPGRADE_STEPS, "failed"])
def test_a_migration_that_fails_leaves_its_node_cordoned_and_goes_back_by_itself_never(state):
    assert if_failed(started(state=state), MIGRATE) == {"state": "failed", "uncordon": False, "revert": False}


@pytest.mark.parametrize("moved", [False, True], ids=["label as before", "label set"])
@pytest.mark.parametrize("by_hand", [False, True], ids=["", "cordoned before"])
@pytest.mark.parametrize("step", recorded_by_migrate())
def test_a_migration_that_is_killed_at_any_step_is_finished_by_the_next_run(step, by_hand, moved):
    """At every step of the record, whether or not the label already says that the node was moved."""
    first = begin(NodeRecord(), "580", MIGRATION, 1, by_hand, "me@one/1", NOW)
    for state in recorded_by_migrate():
        first = advance(first, state)
        if state == step:
            break
    left = from_annotations(first.annotations())
    member = FleetHost("n", left, needed=not moved, node=node(unschedulable=True))
    waiting = wave_node(member, MIGRATION, retry=False)
    assert waiting.phase == waves.WAITING, "it has to be worked on, although its label may say that it was moved"
    assert waiting.cordoned_by_hand == by_hand, "the cordon of the run that was killed is not somebody's"
    again = begin(left, "580", MIGRATION, 2, True, "me@two/2", NOW)
    assert again.initial_unschedulable == by_hand
    for state in recorded_by_migrate():
        again = advance(again, state)
        assert UPGRADE_STEPS.index(again.state) >= UPGRADE_STEPS.index(step), "the record goes back to no earlier step"
    done = FleetHost("n", advance(again, waves.DONE), needed=False, node=node())
    assert wave_node(done, MIGRATION, retry=False).phase == waves.DONE
    back = wave_node(
        FleetHost("n", done.record, needed=True, node=node()), "nvidia.com/gpu by the device plugin", False
    )
    assert back.phase == waves.WAITING, "the way back is another migration"


HANDED_OVER, SERVED, NEWER = "driver and container toolkit of the host", "GPUs served by dra", "driver 580.178.04"


@pytest.mark.parametrize("step", UPGRADE_STEPS)
def test_each_run_finishes_what_is_its_own_and_no_other_takes_it(step):
    migration, upgrade = NodeRecord(step, target=HANDED_OVER), NodeRecord(step, target=NEWER)
    nothing = NodeRecord()
    for work in ("upgrade", "rollback", ""):
        refused = unfinished(nothing, migration, work, NEWER)
        assert refused.reason == f"a migration of it was cut off while {step}, or is still running"
        assert "gpufleet.nvidia.migrate continues it" in refused.remedy and HANDED_OVER in refused.remedy
    assert not unfinished(migration, migration, "hand_over", HANDED_OVER)
    assert unfinished(migration, migration, "migrate", SERVED)
    # One upgrade takes over another, and a rollback goes back from it.
    assert not unfinished(upgrade, upgrade, "upgrade", "driver branch 590") and not unfinished(
        upgrade, upgrade, "rollback"
    )
    for work, target in (("", ""), ("migrate", SERVED)):
        assert "gpufleet.nvidia.upgrade continues it" in unfinished(upgrade, upgrade, work, target).remedy


@pytest.mark.parametrize(
    ("work", "target"),
    [("migrate", SERVED), ("hand_over", HANDED_OVER), ("change_stack", "device plugin of its own release")],
)
def test_every_kind_of_migration_is_finished_by_one_for_the_same(work, target):
    record = NodeRecord("installing", target=target)
    assert not unfinished(record, record, work, target)
    for other in ("device plugin of the GPU Operator", NEWER):
        assert "gpufleet.nvidia.migrate continues it" in unfinished(record, record, work, other).remedy
    assert "gpufleet.nvidia.migrate continues it" in unfinished(record, record, "upgrade", NEWER).remedy


def test_what_failed_is_tried_again_by_its_own_kind_and_a_whole_host_is_repaired():
    migration, upgrade = NodeRecord("failed", target=SERVED), NodeRecord("failed", target=NEWER)
    for work in ("upgrade", "rollback", ""):
        assert "gpu_upgrade_retry=true" in unfinished(migration, migration, work).remedy
        assert not unfinished(upgrade, upgrade, work)
    assert not unfinished(migration, migration, "migrate", "GPUs served by device-plugin"), "the way back"
    # Another one would return a node that works for nobody.
    for failed, work, target in (
        (migration, "hand_over", HANDED_OVER),
        (upgrade, "change_stack", "device plugin of its own release"),
    ):
        assert "Finish it first" in unfinished(failed, failed, work, target).remedy
    half = NodeRecord("failed", target=HANDED_OVER)
    assert not unfinished(migration, migration, HEAL) and unfinished(half, half, HEAL)
    assert not unfinished(upgrade, upgrade, HEAL) and unfinished(*[NodeRecord("installing", target=SERVED)] * 2, HEAL)
    for state in ("", "done", "refused"):
        assert not unfinished(*[NodeRecord(state, target=SERVED)] * 2)


def test_the_node_knows_of_an_end_that_its_host_was_not_told():
    behind = NodeRecord("returning", target=SERVED)
    assert not unfinished(behind, NodeRecord("done", target=SERVED))
    assert unfinished(behind, NodeRecord("done", target=NEWER)), "the end of another rollout"
    assert unfinished(behind, NodeRecord()), "the node object was made anew"
