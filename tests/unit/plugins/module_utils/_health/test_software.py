# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import software
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.records import broken_daemons, sharing_differences


def judge(outcome, status, *texts):
    assert outcome.status == status, outcome
    for text in texts:
        assert text in f"{outcome.evidence}. {outcome.next_step}"


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


def test_one_of_two_runtimes_is_enough(evidence, facts):
    facts["runtimes"]["docker"] = {**facts["runtimes"]["containerd"], "version": "28.3.3", "active": False}
    judge(software.runtime(evidence()), "passed", "containerd 1.7.22")


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
    assert broken_daemons(facts) == []
    assert "limit 1G on device 0" in sharing_differences(facts, facts["gpus"], answering=True)["sharing"]
    facts["mps"][0]["responds"] = False
    assert broken_daemons(facts) == ["node"]
