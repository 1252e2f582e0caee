# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import software
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Expectation
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.drift import drift

ANY = Expectation()


def judge(outcome, status, *texts):
    assert outcome.status == status, outcome
    for text in texts:
        assert text in f"{outcome.evidence}. {outcome.next_step}"


@pytest.mark.parametrize(
    ("version", "expectation", "status", "text"),
    [
        ("1.20.0", ANY, "passed", "1.20.0"),
        ("1.20.0", Expectation(toolkit_version="1.20.0"), "passed", "1.20.0"),
        ("1.19.1", Expectation(toolkit_version="1.20.0"), "failed", "1.20.0 is expected"),
        (None, Expectation(runtime="containerd"), "failed", "not installed"),
        (None, ANY, "skipped", "none is expected"),
    ],
)
def test_toolkit(evidence, facts, version, expectation, status, text):
    facts["toolkit"]["version"] = version
    judge(software.toolkit(evidence(), expectation), status, text)


CONTAINERD = Expectation(runtime="containerd")


@pytest.mark.parametrize(
    ("runtime", "expectation", "status", "text"),
    [
        ({}, CONTAINERD, "passed", "nvidia is a runtime class"),
        (
            {"default_runtime": "nvidia", "version": None},
            CONTAINERD,
            "passed",
            "unknown version: nvidia is the default",
        ),
        ({}, Expectation(runtime="docker"), "failed", "docker is not installed"),
        ({"active": False}, CONTAINERD, "failed", "does not run"),
        ({"active": None}, CONTAINERD, "passed", "runtime class"),
        ({"nvidia": None}, CONTAINERD, "failed", "is unknown"),
        ({"nvidia": False}, CONTAINERD, "failed", "does not know the runtime nvidia"),
        ({"nvidia": False}, ANY, "skipped", "without the NVIDIA runtime"),
        ({"nvidia": False, "cdi": True}, Expectation(runtime="containerd", cdi=True), "passed", "by CDI"),
        ({"active": False}, ANY, "skipped", "no single one runs"),
    ],
)
def test_runtime(evidence, facts, runtime, expectation, status, text):
    facts["runtimes"]["containerd"].update(runtime)
    judge(software.runtime(evidence(), expectation), status, text)


def test_dockers_containerd_is_docker(evidence, facts):
    facts["runtimes"]["docker"] = {**facts["runtimes"]["containerd"], "version": "28.3.3"}
    judge(software.runtime(evidence(), ANY), "passed", "docker 28.3.3")


@pytest.mark.parametrize(
    ("cdi", "expectation", "status", "text"),
    [
        ({}, ANY, "passed", "3 devices"),
        ({"missing": ["MIG-1"]}, ANY, "failed", "lacks MIG-1"),
        ({"stale": ["MIG-9"]}, ANY, "failed", "names devices that do not exist: MIG-9"),
        ({"kind": None}, ANY, "failed", "cannot be read"),
        ({"kind": "vendor.com/nic"}, ANY, "skipped", "none is expected"),
        ({"kind": "vendor.com/nic"}, Expectation(cdi=True), "failed", "there is no CDI specification"),
    ],
)
def test_cdi(evidence, facts, cdi, expectation, status, text):
    facts["cdi"][0].update(cdi)
    judge(software.cdi(evidence(), expectation), status, text)


def test_mig_as_recorded(evidence, facts):
    judge(software.mig(evidence(), Expectation(mig=True)), "passed", "2 of 2 GPUs, 2 GPU instances, as recorded")
    facts["recorded"]["mig"] = None
    judge(software.mig(evidence(), ANY), "passed", "nothing is recorded")


def test_no_mig(evidence, facts):
    for gpu in facts["gpus"]:
        gpu["mig"] = {"supported": False, "current": None, "pending": None}
    judge(software.mig(evidence(), ANY), "skipped", "no GPU has MIG")


def test_mig_mode(evidence, facts):
    judge(
        software.mig(evidence(), Expectation(mig=False)), "failed", "MIG mode is not off on GPU 0 (0000:18:00.0), GPU 1"
    )
    facts["gpus"][1]["mig"]["pending"] = False
    judge(software.mig(evidence(), ANY), "failed", "pending on GPU 1 (0000:2a:00.0)", "Reset")


def test_mig_that_is_not_as_recorded(evidence, facts):
    facts["gpus"][0]["gpu_instances"] = []
    judge(software.mig(evidence(), ANY), "failed", "GPU 0 (0000:18:00.0) has no instance, recorded is 3g.40gb@4")
    facts["recorded"]["mig"]["gpus"][0]["mig"] = False
    judge(software.mig(evidence(), ANY), "failed", "MIG mode of GPU 0 (0000:18:00.0) is recorded as off")


def test_a_gpu_that_no_layout_selects_is_not_compared(evidence, facts):
    del facts["recorded"]["mig"]["gpus"][0]
    judge(software.mig(evidence(), ANY), "passed", "as recorded; nothing is recorded of GPU 0 (0000:18:00.0)")


def test_a_change_of_mig_that_was_cut_off(evidence, facts):
    facts["recorded"]["mig_unfinished"] = True
    judge(software.mig(evidence(), ANY), "failed", "cut off before its end", "nvidia_mig")


def test_compute_instances_count_too(evidence, facts):
    facts["recorded"]["mig"]["gpus"][0]["instances"] = [
        {"profile": "3g.40gb", "start": 4, "size": 4, "compute": [2, 1]}
    ]
    assert software.mig(evidence(), ANY).status == "failed"


def test_a_mig_record_of_another_kind(evidence, facts):
    facts["recorded"]["mig"] = {"schema": 9}
    judge(software.mig(evidence(), ANY), "failed", "mig.json cannot be used")


def test_sharing_as_recorded(evidence, facts):
    judge(software.sharing(evidence(), ANY), "passed", "1 MPS daemons answer")
    facts["recorded"]["sharing"]["daemons"] = []
    judge(software.sharing(evidence(), ANY), "passed", "no MPS daemon is recorded")
    facts["recorded"]["sharing"] = None
    judge(software.sharing(evidence(), ANY), "passed", "1 MPS daemons answer")
    facts["mps"] = []
    judge(software.sharing(evidence(), ANY), "skipped", "no sharing is recorded")


@pytest.mark.parametrize(
    ("daemon", "status", "text"),
    [
        ({"responds": False}, "failed", "pid 900 does not answer"),
        ({"pipe_directory": "/elsewhere"}, "failed", "the recorded MPS daemon node does not run"),
        ({"percentage": 100.0}, "failed", "gives a client 100 % of the threads, recorded is 25 %"),
        ({"percentage": 25.04}, "passed", "answer"),
        ({"limits": ["4G", "4G"]}, "passed", "with the recorded limits of memory and threads"),
        (
            {"limits": ["4G", "1G"]},
            "failed",
            "the MPS daemon node limits a client to 1G on its device 1, recorded is 4096 MiB",
        ),
        (
            {"limits": ["", "4G"]},
            "failed",
            "the MPS daemon node limits no client on its device 0, recorded is 4096 MiB",
        ),
        (
            {"percentage": 50.0, "limits": ["1G", "4G"]},
            "failed",
            "gives a client 50 % of the threads, recorded is 25 % and limits a client to 1G",
        ),
        ({"in_container": True}, "failed", "the recorded MPS daemon node does not run"),
        ({"responds": None, "percentage": None}, "warning", "unknown"),
    ],
)
def test_daemons(evidence, facts, daemon, status, text):
    facts["mps"][0].update(daemon)
    judge(software.sharing(evidence(), ANY), status, text)


def test_settings_that_somebody_changed_are_told_again_and_no_client_ends(evidence, facts):
    """A restart, by hand or by heal, would end the clients of all for what one of them can do."""
    facts["mps"][0]["limits"] = ["1G", "4G"]
    judge(software.sharing(evidence(), ANY), "failed", "limits a client to 1G", "without ending a client")
    assert drift(facts)["sharing"] is True
    assert software.broken_daemons(facts) == []
    facts["mps"][0]["responds"] = False
    assert software.broken_daemons(facts) == ["node"]


def test_no_recorded_percentage_is_all_threads(evidence, facts):
    facts["recorded"]["sharing"]["daemons"] = [{**facts["recorded"]["sharing"]["daemons"][0], "percentage": 0}]
    facts["mps"][0]["percentage"] = 100.0
    assert software.sharing(evidence(), ANY).status == "passed"


def test_a_sharing_record_of_another_kind(evidence, facts):
    facts["recorded"]["sharing"] = {"daemons": [{}]}
    judge(software.sharing(evidence(), ANY), "failed", "sharing.json cannot be used: KeyError")


def test_compute_mode(evidence, facts):
    judge(software.compute_mode(evidence(), ANY), "passed", "default")
    judge(
        software.compute_mode(evidence(), Expectation(compute_mode="exclusive_process")),
        "failed",
        "GPU 0, 1 is default, not exclusive_process",
    )
    facts["recorded"]["sharing"] = None
    judge(software.compute_mode(evidence(), ANY), "passed", "default")
    facts["gpus"] = []
    judge(software.compute_mode(evidence(), ANY), "skipped", "no GPU")
