# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether CUDA is proven: by a program, by DCGM, or not at all, which is said and is no failure."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import CHECKS, judged
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import (
    CommandAnswer,
    DcgmRun,
    evaluate,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.software import cuda, obstacle, reason_unproven
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health import dcgm_outputs as outputs

SAMPLE = "/usr/local/cuda/extras/demo_suite/vectorAdd"


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (None, "skipped", "no command"),
        (CommandAnswer(0, "Vector addition\nTest PASSED\n"), "passed", "Test PASSED"),
        (CommandAnswer(1, "error 802: system not yet initialized"), "failed", "ended with 1: error 802"),
        (CommandAnswer(None, "no answer within 120 s"), "failed", "did not end: no answer within 120 s"),
        (CommandAnswer(0, ""), "passed", "no output"),
    ],
)
def test_by_a_program(evidence, answer, status, text):
    found = cuda(evidence(cuda=answer))
    assert found.status == status and text in found.evidence


@pytest.mark.parametrize(
    ("text", "rc", "status", "said"),
    [
        (outputs.HEALTHY, 0, "passed", "by dcgmi: level 1 of DCGM 4.5.2"),
        (outputs.LEVEL_2, 226, "warning", "by dcgmi: "),
        (outputs.NO_HOST_ENGINE, 1, "unproven", "CUDA is not proven: dcgmi could not say: Error: unable to establish"),
    ],
)
def test_by_dcgm(evidence, text, rc, status, said):
    found = cuda(evidence(cuda=None, cuda_by_dcgm=DcgmRun(1, CommandAnswer(rc, text))))
    assert found.status == status and said in found.evidence


def test_what_dcgm_finds_is_a_failure_of_cuda_too(evidence):
    broken = outputs.spoiled(outputs.LEVEL_2, status="Fail", warnings=[{"warning": "x", "error_severity": 2}])
    found = DcgmRun(1, CommandAnswer(1, broken))
    assert cuda(evidence(cuda=None, cuda_by_dcgm=found)).status == "failed"
    # Where a level is asked for, the same finding is the check dcgm's.
    report = evaluate(CHECKS, evidence(cuda=None, cuda_by_dcgm=found, dcgm=found))
    assert report.first_failure[0] == "dcgm" and report.outcomes["cuda"].status == "unproven"


def test_not_proven_is_said_and_is_no_failure(evidence, facts):
    reason = reason_unproven(facts)
    report = evaluate(CHECKS, evidence(cuda=None, cuda_unproven=reason))
    assert report.healthy and report.message == "Every check passed; not proven: cuda."
    found = next(one for one in report.as_list() if one["name"] == "cuda")
    assert found["status"] == "unproven" and "nvidia_dcgm_state: present" in found["next_step"]
    assert "CUDA is not proven: the host has neither vectorAdd nor deviceQuery" in found["evidence"]


def test_why_what_is_there_was_not_run(facts):
    facts["dcgm"], facts["mps"] = {"dcgmi": "/usr/bin/dcgmi"}, []
    assert reason_unproven(facts) == "/usr/bin/dcgmi was not run for this check"
    facts["health"] = {"cuda_program": SAMPLE}
    assert reason_unproven(facts) == f"{SAMPLE} was not run for this check"
    facts["mps"] = [{"pid": 1}]
    assert reason_unproven(facts) == f"{SAMPLE} was not run, because MPS serves the GPUs"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"compute_mode": "exclusive_process"}, "GPU 0 is in compute mode exclusive_process"),
        ({"gpu_instances": []}, "GPU 0 has MIG on and no instance"),
        ({"processes": [{"pid": 7}]}, "GPU 0 is in use"),
        ({"processes": None}, "GPU 0 is in use"),
    ],
)
def test_a_sample_is_not_run_where_it_would_fail_or_disturb(facts, change, text):
    facts["mps"] = []
    facts["gpus"][0].update(change)
    assert obstacle(facts) == text
    facts["gpus"] = None
    assert obstacle(facts) == "NVML shows no GPU"


def test_an_acceptance_that_is_owed_is_a_failure_where_the_pool_asks_for_a_level(evidence, facts):
    check = next(one for one in CHECKS if one.name == "dcgm")
    assert check.evaluate(evidence()).status == "skipped"
    found = check.evaluate(evidence(owed=True))
    assert found.status == "failed" and "has not accepted it since" in found.evidence
    diagnosed = evidence(owed=True, dcgm=DcgmRun(2, CommandAnswer(0, outputs.HEALTHY)))
    assert check.evaluate(diagnosed).status == "passed"
    facts |= {"health": {}}
    facts["recorded"]["acceptance_owed"] = True
    # What is not asked for any more is not owed.
    statuses = [judged(facts, ["dcgm"], dcgm_level=level).outcomes["dcgm"].status for level in (0, 2)]
    assert statuses == ["skipped", "failed"]
