# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused of a host before it is read is refused of every host: none of the corpus can meet it either."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Verdict, verdict_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import RUNTIMES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import encode
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import descriptions
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe

from . import corpus

POOLS = {"pool": ["host"], "other": []}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in corpus.WITH_EVERY_VARIABLE else ())
        for name in corpus.hosts()
    ],
)
def test_nothing_is_refused_that_the_host_itself_could_meet(name):
    host, refused = corpus.hosts()[name], 0
    variables = [{}]
    if name in corpus.WITH_EVERY_VARIABLE:
        variables += [one for settings in corpus.settings().values() for one in settings]
    for one in variables:
        # Most inventories leave the boards to the hosts.
        for boards in ({}, {"gpu_facts_gpus": []}):
            description = describe("host", {**host.variables, **one, **boards}, POOLS)
            _text, planned = description.without_host()
            refusals = [refusal for stage in planned.values() for refusal in stage.refusals]
            refused += bool(refusals)
            if refusals:
                verdict = verdict_of(description.stages(view_of(host.facts)).values())
                assert verdict is Verdict.IMPOSSIBLE, (one, [refusal.message for refusal in refusals])
    assert refused or name not in corpus.WITH_EVERY_VARIABLE


def test_what_is_assumed_of_every_board_and_runtime_is_a_bare_host(monkeypatch):
    seen = []
    plan = descriptions.plan_stages
    monkeypatch.setattr(descriptions, "plan_stages", lambda facts, desired: seen.append(facts) or plan(facts, desired))
    for number, board in enumerate(BOARDS):
        runtime = list(RUNTIMES)[number % len(RUNTIMES)]
        given = {"gpu_facts_gpus": [{"board": board.key, "count": 2}], "nvidia_toolkit_runtime": runtime}
        text, stages = describe("host", given, POOLS).without_host()
        check_facts(encode(seen[-1]))
        assert f"2 x {board.key} (gpu_facts_gpus)" in text and RUNTIMES[runtime].title in text
        assert "aarch64" in text or board.key not in ("gb200-186gb", "gh200-144gb")
        assert verdict_of(stages.values()) in (Verdict.TO_CHANGE, Verdict.IMPOSSIBLE)
    assert len({facts.host.architecture for facts in seen}) == 2
