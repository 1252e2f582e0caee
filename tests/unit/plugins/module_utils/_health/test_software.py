# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether CUDA is proven: by a program, by DCGM, or not at all, which is said and is no failure."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import AnswerFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import software
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import CHECKS, answer, judged
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.records import broken_daemons, sharing_differences
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import DcgmRun, evaluate
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.software import (
    UnreadableDiagnosis,
    cuda,
    dcgm,
    obstacle,
    parse,
    reason_unproven,
)
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health import dcgm_outputs as outputs
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import judge


@pytest.mark.parametrize(
    ("runtime", "status", "text"),
    [
        ({}, "passed", "containerd 1.7.22"),
        ({"version": None, "active": None}, "passed", "containerd of unknown version"),
        ({"active": False}, "failed", "containerd does not run. Start containerd"),
        ({"nvidia": False}, "skipped", "no container runtime has the NVIDIA runtime"),
        ({"nvidia": None, "active": False}, "skipped", "no container runtime has the NVIDIA runtime"),
    ],
)
def test_a_runtime_that_is_to_give_gpus_to_containers_runs(evidence, facts, runtime, status, text):
    facts["runtimes"]["containerd"].update(runtime)
    judge(software.runtime(evidence()), status, text)


def test_one_of_two_runtimes_is_enough_and_the_other_is_named(evidence, facts):
    facts["runtimes"]["docker"] = {**facts["runtimes"]["containerd"], "version": "28.3.3", "active": False}
    judge(software.runtime(evidence()), "warning", "docker does not run; containerd 1.7.22 does")


@pytest.mark.parametrize(
    ("daemon", "status", "text"),
    [
        ({}, "passed", "1 MPS daemons answer"),
        ({"responds": False}, "failed", "pid 900 does not answer"),
        ({"responds": None}, "warning", "pid 900 answers is unknown"),
        ({"in_container": True, "responds": False}, "skipped", "no MPS daemon of the host runs"),
        # That it is not the recorded one the stage sharing says.
        ({"pipe_directory": "/elsewhere", "percentage": 100.0}, "passed", "answer"),
    ],
)
def test_every_daemon_of_the_host_answers(evidence, facts, daemon, status, text):
    facts["mps"][0].update(daemon)
    judge(software.mps(evidence()), status, text)


def test_what_a_restart_would_end_clients_for_is_no_broken_daemon(facts):
    """Settings that somebody changed are told again, and no client ends."""
    facts["mps"][0]["limits"] = ["1G", "4G"]
    assert broken_daemons(seen(facts)) == []
    assert "limit 1G on device 0" in sharing_differences(seen(facts), seen(facts).gpus, answering=True)["sharing"]
    facts["mps"][0]["responds"] = False
    assert broken_daemons(seen(facts)) == ["node"]


SAMPLE = "/usr/local/cuda/extras/demo_suite/vectorAdd"


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (None, "skipped", "no command"),
        (AnswerFacts(0, "Vector addition\nTest PASSED\n"), "passed", "Test PASSED"),
        (AnswerFacts(1, "error 802: system not yet initialized"), "failed", "ended with 1: error 802"),
        (AnswerFacts(None, "no answer within 120 s"), "failed", "did not end: no answer within 120 s"),
        (AnswerFacts(0, ""), "passed", "no output"),
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
    found = cuda(evidence(cuda=None, cuda_by_dcgm=DcgmRun(1, AnswerFacts(rc, text))))
    assert found.status == status and said in found.evidence


def test_what_dcgm_finds_is_a_failure_of_cuda_too(evidence):
    broken = outputs.spoiled(outputs.LEVEL_2, status="Fail", warnings=[{"warning": "x", "error_severity": 2}])
    found = DcgmRun(1, AnswerFacts(1, broken))
    assert cuda(evidence(cuda=None, cuda_by_dcgm=found)).status == "failed"
    # Where a level is asked for, the same finding is the check dcgm's.
    report = evaluate(CHECKS, evidence(cuda=None, cuda_by_dcgm=found, dcgm=found))
    assert report.first_failure[0] == "dcgm" and report.outcomes["cuda"].status == "unproven"


def test_not_proven_is_said_and_is_no_failure(evidence, facts):
    reason = reason_unproven(seen(facts))
    report = evaluate(CHECKS, evidence(cuda=None, cuda_unproven=reason))
    assert report.healthy and report.message == "Every check passed; not proven: cuda."
    found = next(one for one in report.checks if one.name == "cuda")
    assert found.status == "unproven" and "nvidia_dcgm_state: present" in found.next_step
    assert "CUDA is not proven: the host has neither vectorAdd nor deviceQuery" in found.evidence


def test_why_what_is_there_was_not_run(facts):
    facts["dcgm"], facts["mps"] = {"dcgmi": "/usr/bin/dcgmi"}, []
    assert reason_unproven(seen(facts)) == "/usr/bin/dcgmi was not run for this check"
    facts["health"] = {"cuda_program": SAMPLE}
    assert reason_unproven(seen(facts)) == f"{SAMPLE} was not run for this check"
    facts["mps"] = [{"pid": 1}]
    assert reason_unproven(seen(facts)) == f"{SAMPLE} was not run, because MPS serves the GPUs"


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
    assert obstacle(seen(facts)) == text
    facts["gpus"] = None
    assert obstacle(seen(facts)) == "NVML shows no GPU"


def test_an_acceptance_that_is_owed_is_a_failure_where_the_pool_asks_for_a_level(evidence, facts):
    check = next(one for one in CHECKS if one.name == "dcgm")
    assert check.evaluate(evidence()).status == "skipped"
    found = check.evaluate(evidence(owed=True))
    assert found.status == "failed" and "has not accepted it since" in found.evidence
    diagnosed = evidence(owed=True, dcgm=DcgmRun(2, AnswerFacts(0, outputs.HEALTHY)))
    assert check.evaluate(diagnosed).status == "passed"
    facts |= {"health": {}}
    facts["recorded"]["acceptance_owed"] = True
    # What is not asked for any more is not owed.
    statuses = [judged(seen(facts), ["dcgm"], dcgm_level=level).outcomes["dcgm"].status for level in (0, 2)]
    assert statuses == ["skipped", "failed"]


#: DCGM_ERROR_ISOLATE of dcgm_errors.h, with a message of its list.
ISOLATE = {
    "error_category": 10,
    "error_id": 4,
    "error_severity": 2,
    "warning": "Detected 1 volatile double-bit ECC error(s) in GPU 0.",
}


def test_what_was_recorded_is_read():
    version, found = parse(outputs.LEVEL_2)
    assert version == "4.5.2"
    assert [(one.test, one.subject, one.status, one.configurable) for one in found] == [
        ("software", "GPU 0", "Fail", True),
        ("memory", "GPU 0", "Pass", False),
        ("pcie", "GPU 0", "Pass", False),
    ]
    assert found[0].warnings == (outputs.PERSISTENCE,)
    _version, old = parse(f"a line before\n{outputs.VERSION_3}\nand after")
    assert [(one.test, one.subject, one.status) for one in old] == [
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
            DcgmRun(2, AnswerFacts(None, ""), installed=False),
            "failed",
            "level 2 is requested, but dcgmi is not installed",
        ),
        (DcgmRun(2, AnswerFacts(None, "no answer within 5 s")), "failed", "did not end: no answer within 5 s"),
        (DcgmRun(1, AnswerFacts(1, outputs.NO_HOST_ENGINE)), "failed", "unable to establish a connection"),
        (DcgmRun(1, AnswerFacts(226, outputs.LEVEL_1)), "warning", "Persistence mode for GPU 0 is disabled"),
        (
            DcgmRun(2, AnswerFacts(0, outputs.HEALTHY)),
            "passed",
            "level 2 of DCGM 4.5.2: memory, pcie, software passed",
        ),
        (
            DcgmRun(2, AnswerFacts(0, outputs.spoiled(outputs.LEVEL_2_SKIPPED, status="Pass", warnings=[]))),
            "passed",
            "software passed, memory, pcie skipped",
        ),
        (DcgmRun(2, AnswerFacts(0, outputs.VERSION_3)), "warning", "nothing passed, GPU Memory, PCIe skipped"),
        (
            DcgmRun(2, AnswerFacts(226, outputs.spoiled(outputs.LEVEL_2, warnings=[ISOLATE]))),
            "failed",
            "software failed on GPU 0: Detected 1 volatile double-bit ECC error(s) in GPU 0.",
        ),
        # A failure without a reason is one all the same.
        (
            DcgmRun(2, AnswerFacts(0, outputs.spoiled(outputs.LEVEL_2, warnings=[]))),
            "failed",
            "software failed on GPU 0",
        ),
        (
            DcgmRun(1, AnswerFacts(0, outputs.HEALTHY), why="level 3 was not run, because GPU 0 is in use"),
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
        (DcgmRun(2, AnswerFacts(0, outputs.HEALTHY)), True),
        # A matter of configuration is a warning, as it is for site.
        (DcgmRun(2, AnswerFacts(226, outputs.LEVEL_2)), True),
        (DcgmRun(1, AnswerFacts(0, outputs.HEALTHY), why=IN_USE), False),
        (DcgmRun(2, AnswerFacts(226, outputs.spoiled(outputs.LEVEL_2, status="Fail", warnings=[ISOLATE]))), False),
        (DcgmRun(2, AnswerFacts(1, outputs.NO_HOST_ENGINE)), False),
        (DcgmRun(2, AnswerFacts(None, ""), installed=False), False),
    ],
    ids=["none was run", "healthy", "configuration", "level 1 only", "broken", "no answer", "not installed"],
)
def test_what_pays_an_acceptance(evidence, diagnosis, accepted):
    parameters = {"checks": ["dcgm"], "fail": False}
    assert answer(evidence(dcgm=diagnosis), parameters, False)["accepted"] is accepted


def test_a_host_that_is_not_healthy_is_not_accepted(evidence, facts):
    facts["pci"] = []
    parameters = {"checks": ["pci", "dcgm"], "fail": False}
    answered = answer(evidence(dcgm=DcgmRun(2, AnswerFacts(0, outputs.HEALTHY))), parameters, False)
    assert (answered["failed_check"], answered["accepted"]) == ("pci", False)


@pytest.mark.parametrize(
    ("cuda", "package"),
    [("13.0", "-4-cuda13 "), ("12.8", "-4-cuda12 "), (None, "-4-cuda-all "), ("14.1", "-4-cuda-all ")],
)
def test_what_is_missing_is_named(evidence, facts, cuda, package):
    facts["nvml"] = {"available": True, "cuda_version": cuda}
    outcome = dcgm(evidence(dcgm=DcgmRun(1, AnswerFacts(None, ""), installed=False)))
    assert f"datacenter-gpu-manager{package}" in outcome.next_step
