# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The linter against verdicts recorded from the real plugin, and against what its Go code makes of YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.finding import Report
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.plugin_fields import CONFIGURATION

DATA = Path(__file__).parent / "data"
RECORDED = json.loads((DATA / "device_plugin_verdicts.json").read_text())["cases"]
GO = json.loads((DATA / "go_verdicts.json").read_text())

#: Files that the plugin takes for what they say. Everything else in the recording is refused, or ignored in part.
CLEAN = {"alloc_ok", "gfd_sleep2", "mps48", "name_short", "ok_mps", "ok_ts", "ver_missing"}
#: Accepted by the plugin, but the MPS daemon beside it dies.
DIES_LATER = {"rep_49"}
#: Refused where it was recorded, on a machine without NVML. Whether a node has it cannot be known from the file.
UNKNOWN = {"dls_cdi"}


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"])
def test_recorded_verdict(case):
    verdict = lint(case["config"])
    levels = {finding.level for finding in verdict.findings}
    if case["name"] in UNKNOWN:
        assert levels == {"note"}
    elif not case["plugin"]["started"] or case["name"] in DIES_LATER:
        assert "error" in levels
    elif case["name"] in CLEAN:
        assert not levels
    else:
        assert levels == {"warning"}


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"])
def test_effective_configuration_is_what_the_plugin_printed(case):
    effective = lint(case["config"]).effective
    plugin = case["plugin"]
    assert (effective["sharing"] if effective else None) == plugin["effective_sharing"]
    assert (effective["flags"]["migStrategy"] if effective else None) == plugin["effective_mig"]


def decoded(text):
    """What the file becomes before any rule beyond Go's own is applied, or None when Go refuses it."""
    report = Report()
    try:
        document = yaml.load(text, report)
    except yaml.YamlError:
        return None
    if document is None:
        return {}
    config = CONFIGURATION(document, "", report)
    return None if report.refused or config.get("version") not in (None, "", "v1") else config


@pytest.mark.parametrize("place", sorted(GO["templates"]))
def test_every_kind_of_scalar_in_every_kind_of_field(place):
    template = GO["templates"][place]
    accepted = [scalar for scalar in GO["scalars"] if decoded(template.replace("%s", scalar)) is not None]
    assert accepted == GO["accepted"][place]


@pytest.mark.parametrize("case", GO["files"], ids=range(len(GO["files"])))
def test_damaged_files(case):
    config = decoded(case["config"])
    assert (config is None) == case["refused"], case["config"]
    if config is not None:
        mps = (config.get("sharing") or {}).get("mps")
        assert (mps is not None) == ("mps" in case["sharing"])
        for kind, section in (("mps", mps), ("timeSlicing", (config.get("sharing") or {}).get("timeSlicing"))):
            expected = [(item["name"], item["replicas"]) for item in case["sharing"].get(kind, {}).get("resources", [])]
            assert [(item["name"], item["replicas"]) for item in (section or {}).get("resources", [])] == expected
