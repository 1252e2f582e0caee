# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import answer
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import (
    CommandAnswer,
    DcgmRun,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.software import (
    UnreadableDiagnosis,
    dcgm,
    parse,
)
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health import dcgm_outputs as outputs

#: DCGM_ERROR_ISOLATE of dcgm_errors.h, with a message of its list.
ISOLATE = {
    "error_category": 10,
    "error_id": 4,
    "error_severity": 2,
    "warning": "Detected 1 volatile double-bit ECC error(s) in GPU 0.",
}


def test_what_was_recorded_is_read():
    found = parse(outputs.LEVEL_2)
    assert found.version == "4.5.2"
    assert [(one.test, one.subject, one.status, one.configurable) for one in found.results] == [
        ("software", "GPU 0", "Fail", True),
        ("memory", "GPU 0", "Pass", False),
        ("pcie", "GPU 0", "Pass", False),
    ]
    assert found.results[0].warnings == (outputs.PERSISTENCE,)
    old = parse(f"a line before\n{outputs.VERSION_3}\nand after")
    assert [(one.test, one.subject, one.status) for one in old.results] == [
        ("PCIe", "GPU 0", "Skip"),
        ("GPU Memory", "GPU 0", "Skip"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (outputs.NO_HOST_ENGINE, "unable to establish a connection"),
        ("", "no output"),
        ("{}", "no results"),
        (json.dumps({"DCGM Diagnostic": {"test_categories": []}}), "no results"),
        (json.dumps({"DCGM Diagnostic": {"runtime_error": "the diag is busy"}}), "the diag is busy"),
    ],
)
def test_what_is_no_result_is_said(text, said):
    with pytest.raises(UnreadableDiagnosis, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("diagnosis", "status", "text"),
    [
        (None, "skipped", "no level was given"),
        (
            DcgmRun(2, CommandAnswer(None, ""), installed=False),
            "failed",
            "level 2 is requested, but dcgmi is not installed",
        ),
        (DcgmRun(2, CommandAnswer(None, "no answer within 5 s")), "failed", "did not end: no answer within 5 s"),
        (DcgmRun(1, CommandAnswer(1, outputs.NO_HOST_ENGINE)), "failed", "unable to establish a connection"),
        (DcgmRun(1, CommandAnswer(226, outputs.LEVEL_1)), "warning", "Persistence mode for GPU 0 is disabled"),
        (
            DcgmRun(2, CommandAnswer(0, outputs.HEALTHY)),
            "passed",
            "level 2 of DCGM 4.5.2: memory, pcie, software passed",
        ),
        (
            DcgmRun(2, CommandAnswer(0, outputs.spoiled(outputs.LEVEL_2_SKIPPED, status="Pass", warnings=[]))),
            "passed",
            "software passed, memory, pcie skipped",
        ),
        (DcgmRun(2, CommandAnswer(0, outputs.VERSION_3)), "warning", "nothing passed, GPU Memory, PCIe skipped"),
        (
            DcgmRun(2, CommandAnswer(226, outputs.spoiled(outputs.LEVEL_2, warnings=[ISOLATE]))),
            "failed",
            "software failed on GPU 0: Detected 1 volatile double-bit ECC error(s) in GPU 0.",
        ),
        # A failure without a reason is one all the same.
        (
            DcgmRun(2, CommandAnswer(0, outputs.spoiled(outputs.LEVEL_2, warnings=[]))),
            "failed",
            "software failed on GPU 0",
        ),
        (
            DcgmRun(1, CommandAnswer(0, outputs.HEALTHY), why="level 3 was not run, because GPU 0 is in use"),
            "warning",
            "level 3 was not run, because GPU 0 is in use",
        ),
    ],
)
def test_the_check(evidence, diagnosis, status, text):
    outcome = dcgm(evidence(dcgm=diagnosis))
    assert (outcome.status, text in outcome.evidence) == (status, True), outcome


IN_USE = "level 2 was not run, because GPU 0 is in use"


@pytest.mark.parametrize(
    ("diagnosis", "accepted"),
    [
        (None, False),
        (DcgmRun(2, CommandAnswer(0, outputs.HEALTHY)), True),
        # A matter of configuration is a warning, as it is for site.
        (DcgmRun(2, CommandAnswer(226, outputs.LEVEL_2)), True),
        (DcgmRun(1, CommandAnswer(0, outputs.HEALTHY), why=IN_USE), False),
        (DcgmRun(2, CommandAnswer(226, outputs.spoiled(outputs.LEVEL_2, status="Fail", warnings=[ISOLATE]))), False),
        (DcgmRun(2, CommandAnswer(1, outputs.NO_HOST_ENGINE)), False),
        (DcgmRun(2, CommandAnswer(None, ""), installed=False), False),
    ],
    ids=["none was run", "healthy", "configuration", "level 1 only", "broken", "no answer", "not installed"],
)
def test_what_pays_an_acceptance(evidence, diagnosis, accepted):
    parameters = {"checks": ["dcgm"], "fail": False}
    assert answer(evidence(dcgm=diagnosis), parameters, False)["accepted"] is accepted


def test_a_host_that_is_not_healthy_is_not_accepted(evidence, facts):
    facts["pci"] = []
    parameters = {"checks": ["pci", "dcgm"], "fail": False}
    answered = answer(evidence(dcgm=DcgmRun(2, CommandAnswer(0, outputs.HEALTHY))), parameters, False)
    assert (answered["failed_check"], answered["accepted"]) == ("pci", False)


@pytest.mark.parametrize(
    ("cuda", "package"),
    [("13.0", "-4-cuda13 "), ("12.8", "-4-cuda12 "), (None, "-4-cuda-all "), ("14.1", "-4-cuda-all ")],
)
def test_what_is_missing_is_named(evidence, facts, cuda, package):
    facts["nvml"] = {"available": True, "cuda_version": cuda}
    outcome = dcgm(evidence(dcgm=DcgmRun(1, CommandAnswer(None, ""), installed=False)))
    assert f"datacenter-gpu-manager{package}" in outcome.next_step
