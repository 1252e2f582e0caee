# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(plans.txt) has what C(site) would do on every host of the corpus, and what every variable at another value changes of that.

C(make golden) writes it anew. A commit that changes it says why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import StagePlan, Step
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe

from . import corpus

PLANS = Path(__file__).with_name("plans.txt")


def plan(host: corpus.Host, **variables: Any) -> dict[str, StagePlan]:
    given = {**host.variables, **variables}
    return describe("host", given, {"pool": ["host"], "other": []}).stages(view_of(host.facts))


def written(stages: dict[str, StagePlan]) -> dict[str, list[str]]:
    """Return the plan of each stage in lines: all that a stage says, and nothing that differs from run to run."""
    return {name: list(_lines(name, stage)) for name, stage in stages.items()}


def _lines(name: str, stage: StagePlan) -> Iterator[str]:
    yield f"  {name}: {stage.verdict.value}"
    for step in stage.steps:
        yield f"    {step}{_data(step)}"
    if stage.unknown:
        yield f"    not known yet: {stage.unknown}"
    if stage.unread:
        yield f"    not known: {stage.unread}"
    for refusal in stage.refusals:
        yield f"    impossible: {refusal.message}"
    for warning in stage.warnings:
        yield f"    warning: {warning}"


def _data(step: Step) -> str:
    return f" {json.dumps(step.as_dict()['data'], sort_keys=True)}" if step.data else ""


def plans() -> str:
    """Return the text of C(plans.txt)."""
    lines = []
    found = {name: written(plan(host)) for name, host in corpus.hosts().items()}
    for name, base in found.items():
        lines += [f"== {name}", *_shown(base, {})]
        if name in corpus.WITH_EVERY_VARIABLE:
            lines += _by_variables(corpus.hosts()[name], base)
    for name, host in corpus.edited().items():
        before = found["training after site" if name.startswith(corpus.TRAINING) else "shared after site"]
        lines += [f"== {name}", *(_shown(written(plan(host)), before) or ["  the same"])]
    return "\n".join(lines) + "\n"


def _by_variables(host: corpus.Host, base: dict[str, list[str]]) -> list[str]:
    lines, without_effect = [], []
    for variables in (one for settings in corpus.settings().values() for one in settings):
        differs = _shown(written(plan(host, **variables)), base)
        said = ", ".join(f"{one}: {json.dumps(value)}" for one, value in variables.items())
        if differs:
            lines += [f"-- {said}", *differs]
        else:
            without_effect.append(f"     {said}")
    return [*lines, "-- the same with", *without_effect]


def _shown(found: dict[str, list[str]], base: dict[str, list[str]]) -> list[str]:
    """Return the lines that are not those of C(base); stages of which nothing can be said but that are as described, or not planned, together."""
    differs = {stage: lines for stage, lines in found.items() if lines != base.get(stage)}
    nothing = [stage for stage, lines in differs.items() if lines == [f"  {stage}: as described"]]
    gone = [stage for stage in base if stage not in found]
    return [
        *(line for stage, lines in differs.items() if stage not in nothing for line in lines),
        *([f"  as described: {', '.join(nothing)}"] if nothing else []),
        *([f"  not planned: {', '.join(gone)}"] if gone else []),
    ]


def test_the_plans_of_the_corpus_are_those_of_the_file():
    found = plans()
    if os.environ.get("RECORD_PLANS"):
        PLANS.write_text(found, encoding="utf-8")
    assert PLANS.read_text(encoding="utf-8") == found, "make golden writes it anew; the commit says why it differs"


@pytest.mark.parametrize("name", corpus.settings())
def test_every_variable_has_another_value_than_its_default(name):
    """Of a new variable whose type says none, corpus.VALUES has to."""
    assert corpus.settings()[name], f"{name} needs another value than its default in corpus.VALUES"
    assert all(name in variables for variables in corpus.settings()[name])
