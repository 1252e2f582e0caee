# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Entry, Journal, parse, previous_layout
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal_lines import (
    NOT_RESTORED,
    REACHED,
    REBOOT_REQUIRED,
    RESTORED,
    is_over,
    lines_of,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import GpuRecord, PlacedInstance

FORMER = (GpuRecord("GPU-1", "0000:18:00.0", "NVIDIA A30", True, (PlacedInstance("2g.12gb", 0, 2, (2,)),)),)
PRESENT = (GpuRecord("GPU-1", "0000:18:00.0", "NVIDIA A30", True),)
ENTRY = Entry(FORMER, "2026-01-02T03:04:05Z", "boot", "mig", {"layout": "all-balanced", "strategy": "mixed"})


@pytest.fixture
def journal(tmp_path):
    return Journal(str(tmp_path / "gpufleet" / "journal.jsonl"))


def test_there_is_none_before_the_first_change(journal):
    assert journal.last() is None


def test_a_run_that_ended_is_finished(journal):
    journal.begin(ENTRY)
    journal.step("destroy GPU instance 3")
    journal.step("create GPU instance 4g.24gb at 0:4")
    journal.end(REACHED)
    last = journal.last()
    assert last.steps == ("destroy GPU instance 3", "create GPU instance 4g.24gb at 0:4")
    assert last.previous == FORMER
    assert (last.outcome, last.unfinished) == (REACHED, False)
    assert last.as_dict()["request"] == {"layout": "all-balanced", "strategy": "mixed"}
    assert os.stat(journal.path).st_mode & 0o777 == 0o600


def test_a_run_without_an_end_was_cut_off(journal):
    journal.begin(ENTRY)
    journal.step("destroy GPU instance 3")
    assert journal.last().unfinished


def test_a_line_that_was_cut_off_is_not_there(journal):
    journal.begin(ENTRY)
    journal.step("destroy GPU instance 3")
    with open(journal.path, "a", encoding="utf-8") as handle:
        handle.write('{"outcome": "rea')
    assert journal.last().steps == ("destroy GPU instance 3",)
    assert journal.last().unfinished


def test_the_next_run_replaces_the_journal(journal):
    journal.begin(ENTRY)
    journal.end(RESTORED, "why")
    journal.begin(ENTRY)
    assert (journal.last().steps, journal.last().outcome) == ((), None)


@pytest.mark.parametrize("text", ["", "no json\n", "[1]\n", '{"previous": 3}\n', '{"previous": [{"uuid": 1}]}\n'])
def test_a_file_that_is_no_journal_is_none(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(None, FORMER), (NOT_RESTORED, FORMER), (REACHED, PRESENT), (RESTORED, PRESENT)],
)
def test_after_a_run_that_was_cut_off_the_way_back_leads_to_where_that_began(outcome, expected):
    last = Entry(FORMER, outcome=outcome)
    assert previous_layout(last, PRESENT) == expected


def test_the_way_back_of_a_first_run_leads_to_the_present():
    assert previous_layout(None, PRESENT) == PRESENT


def test_the_services_of_a_run_are_owed_until_they_are_back_or_the_host_booted(journal):
    journal.begin(replace(ENTRY, services=("nvidia-dcgm.service",)))
    journal.end(REACHED)
    assert journal.last().owed("boot") == ("nvidia-dcgm.service",)
    assert journal.last().owed("another boot") == ()
    assert journal.last().as_dict()["services"] == ["nvidia-dcgm.service"]
    journal.followed()
    assert journal.last().owed("boot") == ()


@pytest.mark.parametrize("outcome", [None, REACHED, REBOOT_REQUIRED, RESTORED, NOT_RESTORED])
@pytest.mark.parametrize("followed", [True, False])
def test_whether_a_run_is_over_can_be_told_without_its_layouts(journal, outcome, followed):
    journal.begin(ENTRY)
    if outcome:
        journal.end(outcome)
    if followed:
        journal.followed()
    text = Path(journal.path).read_text()
    assert is_over(lines_of(text)) is not parse(text).open
    assert is_over(lines_of(text)) is (followed and outcome in (REACHED, REBOOT_REQUIRED, RESTORED))


@pytest.mark.parametrize(
    "head",
    [
        {"program": "x" * 300, "started": None, "request": "7g.80gb"},
        {"boot_id": 7, "services": ["a\nb"], "request": {"layout": {"a\u00a0b": 1}}},
        {"request": [], "services": None},
    ],
)
def test_what_is_for_people_alone_keeps_nothing_from_being_brought_back(head):
    line = json.dumps({"previous": [one.as_dict() for one in FORMER], **head})
    assert parse(f"{line}\n").previous == FORMER and parse(f"{line}\n").unfinished
