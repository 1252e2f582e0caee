# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import repair_record
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import (
    Action,
    RepairRecord,
    advance,
    begin,
    if_failed,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit

FAULTS = (("0000:18:00.0", "recovery"),)
HERE, NOW, LATER = "me@controller/1", "2026-11-23T12:00:00Z", "2026-11-23T12:10:00Z"


def started(record=None, action=Action.RESET_GPU, unschedulable=False, now=NOW):
    return begin(record or RepairRecord(), action, FAULTS, unschedulable, HERE, now)


def after(record, *states, reason=""):
    for state in states:
        record = advance(record, state, HERE, LATER, reason)
    return record


def outcomes(record):
    return [(one.action.value, one.outcome, one.tries) for one in record.attempts]


def test_a_repair_that_helps():
    done = after(started(), "repairing", "proving", "returning", "done")
    assert outcomes(done) == [("reset_gpu", "repaired", 1)]
    assert not done.interrupted and not done.ours


def test_a_repair_that_does_not():
    failed = after(after(started(), "repairing"), "failed", reason="it asks for a reset still")
    assert outcomes(failed) == [("reset_gpu", "failed", 1)]
    assert failed.ours and failed.reason == failed.attempts[0].reason == "it asks for a reset still"


@pytest.mark.parametrize("state", ["refused", "failed"])
def test_what_never_came_to_the_repair_was_no_attempt(state):
    assert after(started(), state).attempts == ()


def test_a_gpu_in_use_was_no_attempt():
    assert after(started(), "repairing", "refused").attempts == ()


def test_an_attempt_that_was_cut_off_is_taken_up_again_once():
    cut_off = after(started(), "repairing")
    again = after(started(cut_off, now=LATER), "repairing")
    assert outcomes(again) == [("reset_gpu", "", 2)] and again.attempts[0].counts
    third = started(again, Action.REBOOT)
    assert outcomes(third) == [("reset_gpu", "", 2), ("reboot", "", 0)]


def test_one_that_was_cut_off_before_the_repair_is_forgotten():
    assert outcomes(started(started(), Action.REBOOT)) == [("reboot", "", 0)]


def test_a_host_that_is_well_again_ends_what_failed():
    failed = after(started(), "repairing", "failed")
    done = after(started(failed, Action.NOTHING), "repairing", "done")
    assert outcomes(done) == [("reset_gpu", "failed", 1), ("nothing", "repaired", 1)]
    cut_off = after(started(), "repairing")
    assert outcomes(after(started(cut_off, Action.NOTHING), "repairing", "done")) == [("reset_gpu", "repaired", 2)]


def test_a_handover_is_no_attempt():
    assert started(action=Action.HAND_OVER).attempts == ()


def test_who_had_cordoned_the_node():
    assert started(unschedulable=True).initial_unschedulable
    ours = started()
    assert not started(ours, unschedulable=True).initial_unschedulable
    people = after(started(unschedulable=True), "repairing")
    assert started(people, unschedulable=True).initial_unschedulable
    assert started(after(ours, "done"), unschedulable=True).initial_unschedulable


def test_the_file_on_the_host_is_read_again():
    record = after(started(), "repairing", "failed", reason="two\nlines")
    assert repair_record.from_values(json.loads(record.as_text())) == record
    assert repair_record.from_values(None) == repair_record.from_values({}) == RepairRecord()


def test_the_record_does_not_grow_for_ever():
    record = RepairRecord()
    for _number in range(80):
        record = after(started(record), "repairing", "done")
    assert len(record.attempts) == 50
    assert repair_record.from_values(record.as_dict()) == record


@pytest.mark.parametrize(
    "values",
    [
        {"schema": 2},
        {"schema": 1, "state": "gone"},
        {"schema": 1, "attempts": [{"at": "x", "action": "explode", "faults": []}]},
        {"schema": 1, "attempts": "many"},
        {"schema": 1, "reason": "\u001b[2J"},
        {"schema": 1, "dealt_with": [1]},
        {"schema": 1, "initial_unschedulable": "yes"},
    ],
)
def test_what_is_no_record_is_refused(values):
    with pytest.raises(Unfit):
        repair_record.from_values(values)


@pytest.mark.parametrize(
    ("state", "found", "untouched", "result"),
    [
        # Nothing was begun, whatever was repaired there earlier.
        ("", "", False, ""),
        ("done", "done", False, ""),
        ("refused", "refused", False, ""),
        # The GPUs were emptied, and no more: back to service.
        ("started", "", False, "refused"),
        ("started", "done", False, "refused"),
        ("repairing", "", True, "refused"),
        ("repairing", "", False, "failed"),
        ("proving", "done", False, "failed"),
        ("returning", "", False, "failed"),
        # It was out of service before for a repair, and stays so.
        ("failed", "failed", False, "failed"),
        ("handed-over", "handed-over", False, "failed"),
        ("started", "failed", False, "failed"),
        ("started", "proving", False, "failed"),
        ("repairing", "handed-over", True, "failed"),
    ],
)
def test_how_a_turn_that_fails_ends_depends_on_how_far_the_host_came_and_on_how_it_was_found(
    state, found, untouched, result
):
    assert if_failed(RepairRecord(state=state), found, untouched) == result
