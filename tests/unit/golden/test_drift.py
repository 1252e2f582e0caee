# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every row of C(tests/drift.py) as the facts of a lab host had it: C(plan) names it, and C(site), C(verify) and C(doctor) say the same. And the table
of C(docs/drift.md), which C(make golden) writes anew.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import REBOOT_NEEDED, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe

from ... import drift
from . import corpus
from .test_agree import disagreements

PAGE = corpus.ROOT / "docs" / "drift.md"
_BEGIN, _END = "<!-- rows: begin -->\n", "<!-- rows: end -->\n"


def stages(host: corpus.Host, name: str = "host") -> dict[str, StagePlan]:
    return describe(name, host.variables, {"pool": [name], "other": []}).stages(view_of(host.facts))


@pytest.mark.parametrize("pool", drift.POOLS)
def test_a_host_is_as_described_before_anything_is_done_to_it(call, pool):
    host = drift.host(pool)
    assert [(name, str(step)) for name, plan in stages(host).items() for step in plan.steps] == []
    assert disagreements(call, {pool: host}) == []


@pytest.mark.parametrize("row", drift.ROWS, ids=[row.what for row in drift.ROWS])
def test_it_is_named_or_refused_and_all_say_the_same(call, row):
    host = drift.host(row.pool, row)
    found = stages(host).values()
    assert {step.kind for plan in found for step in plan.steps} == {*row.steps}
    assert {refusal.thing for plan in found for refusal in plan.refusals} == {row.refused} - {""}
    assert disagreements(call, {"host": host}) == []


@pytest.mark.parametrize("row", drift.ROWS, ids=[row.what for row in drift.ROWS])
def test_a_plan_reboots_a_host_once_and_restarts_each_runtime_once(row):
    """C(tests/lab/restarts.py) counts what happens then. Who has the driver open, for which a host is rebooted, is not recorded."""
    host = drift.host(row.pool, row)
    found = stages(host)
    rebooting = {
        name for name, plan in found.items() for step in plan.steps if step.data.get("reboot") == REBOOT_NEEDED
    }
    restarting = [
        text for plan in found.values() for step in plan.steps for text in step.disturbs if "restarts" in text
    ]
    # What is dead is started, which disturbs nobody.
    dead = host.facts["runtimes"].get("containerd", {}).get("active") is False
    assert len(rebooting) <= row.reboots
    assert len(restarting) == (0 if dead else len(row.restarted) - row.reboots)


def test_rows_are_recorded_once():
    assert sorted(drift.recorded()["rows"]) == sorted(row.what for row in drift.ROWS)


def table() -> str:
    """Return the table of the page: what C(plan) says of each row, the first step of each kind."""
    lines = ["| done to a host | `plan`, `verify` and `doctor` say | `site` |", "|---|---|---|"]
    for row in drift.ROWS:
        found = stages(drift.host(row.pool, row)).values()
        steps = [step for plan in found for step in plan.steps]
        alike = Counter(step.kind for step in steps)
        first = {step.kind: step.what for step in reversed(steps)}
        said = [f"{first[kind]}{f', and {number - 1} more' if number > 1 else ''}" for kind, number in alike.items()]
        said += [refusal.reason for plan in found for refusal in plan.refusals]
        outcome = "refuses it" if row.refused else "corrects it" if steps else "has nothing to do"
        outcome = "fails, and corrects it once the cause is gone" if row.fails else outcome
        lines.append(f"| {row.what} | {'; '.join(said) or 'as described'} | {outcome} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_the_page_is_what_is_said():
    text = PAGE.read_text(encoding="utf-8")
    before, _begin, rest = text.partition(_BEGIN)
    _table, _end, after = rest.partition(_END)
    wanted = f"{before}{_BEGIN}{table()}{_END}{after}"
    if os.environ.get("RECORD_PLANS"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "make golden writes it anew"
