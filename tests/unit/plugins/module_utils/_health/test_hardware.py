# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a host from being rebooted."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import RECOVERY_ACTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import AnswerFacts, view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import hardware
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.hardware import (
    EXIT_STATUSES,
    NO_RECOVERY,
    RECOVERIES,
    judge_exit_status,
    module_problem,
    recovery,
)
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import judge


def test_pci(evidence, facts):
    judge(hardware.pci(evidence()), "passed", "2 x h100-80gb-sxm")
    facts["pci"] = facts["pci"][2:]
    judge(hardware.pci(evidence()), "failed", "no NVIDIA GPU")
    facts["pci"] = None
    facts["unknown"] = {"pci": "/sys is not there"}
    judge(hardware.pci(evidence()), "warning", "/sys is not there")


@pytest.mark.parametrize(
    ("driver", "status", "text"),
    [
        ({}, "passed", "580.126.09, open modules"),
        ({"flavour": None}, "passed", "unknown modules"),
        ({"on_disk_version": "595.91.07"}, "failed", "but on disk 595.91.07 is installed"),
        (
            {"on_disk_version": "595.91.07", "library_version": "595.91.07"},
            "failed",
            "on disk 595.91.07 and library 595.91.07",
        ),
        ({"library_version": "595.91.07"}, "failed", "library 595.91.07"),
        ({"library_version": None}, "failed", "libnvidia-ml.so.1 is not installed"),
        ({"loaded_version": None}, "failed", "580.126.09 is on disk but not loaded"),
        ({"loaded_version": None, "nouveau_loaded": True}, "failed", "nouveau"),
        ({"loaded_version": None, "on_disk_version": None}, "failed", "no driver is installed"),
        ({"on_disk_version": None}, "warning", "after a reboot"),
    ],
)
def test_driver(evidence, facts, driver, status, text):
    facts["driver"].update(driver)
    judge(hardware.driver(evidence()), status, text)


def test_a_container_has_no_module_on_its_disk(evidence, facts):
    facts["driver"]["on_disk_version"] = None
    facts["host"]["container"] = True
    judge(hardware.driver(evidence()), "passed", "580.126.09")


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (AnswerFacts(0, "GPU 0"), "passed", "ended with 0"),
        (AnswerFacts(15, "lost"), "failed", "fallen off the bus"),
        (AnswerFacts(None, "no answer within 60 s"), "failed", "no answer within 60 s"),
        (None, "warning", "not installed"),
    ],
)
def test_nvidia_smi(evidence, answer, status, text):
    judge(hardware.nvidia_smi(evidence(nvidia_smi=answer)), status, text)


def test_nvml(evidence, facts):
    judge(hardware.nvml(evidence()), "passed", "2 GPUs")
    facts["gpus"][1]["lost"] = True
    judge(hardware.nvml(evidence()), "failed", "cannot reach 0000:2a:00.0", "Xid 79")
    facts["gpus"][1]["pci_address"] = None
    judge(hardware.nvml(evidence()), "failed", "cannot reach GPU 1")
    del facts["gpus"][1]
    judge(hardware.nvml(evidence()), "failed", "does not see 0000:2a:00.0", "power-cycle")
    facts["health"] = {"not_initialized": {"0000:2a:00.0": "0x62:0x65:1792", "0000:18:00.0": "0x1:0x2:3"}}
    said = "the driver cannot initialize 0000:2a:00.0 (RmInitAdapter failed: 0x62:0x65:1792)"
    judge(hardware.nvml(evidence()), "failed", said, "power cables")
    facts["pci"][1]["kernel_driver"] = "NovaCore"
    judge(hardware.nvml(evidence()), "failed", ", bound to NovaCore", "unbind")
    facts["pci"][1]["kernel_driver"] = "vfio-pci"
    judge(hardware.nvml(evidence()), "passed", "1 GPU; virtual machines have 1 more")
    facts["gpus"], facts["pci"] = [], None
    judge(hardware.nvml(evidence()), "failed", "sees no GPU")
    facts["nvml"] = {"available": False, "reason": "the NVML library killed its caller (SIGSEGV)."}
    judge(hardware.nvml(evidence()), "failed", "killed its caller")


def test_persistence(evidence, facts):
    judge(hardware.persistence(evidence()), "passed", "on for 2 GPUs")
    facts["gpus"][1]["persistence_mode"] = False
    judge(hardware.persistence(evidence()), "warning", "off on GPU 1", "--no-persistence-mode")
    facts["driver"]["persistence_daemon"]["active"] = False
    judge(hardware.persistence(evidence()), "warning", "Start nvidia-persistenced")
    for gpu in facts["gpus"]:
        gpu["persistence_mode"] = None
    judge(hardware.persistence(evidence()), "passed", "not reported")


@pytest.mark.parametrize(
    ("errors", "status", "text"),
    [
        ({}, "passed", "no memory error"),
        ({"remap_failed": True, "remap_pending": True}, "failed", "no spare memory rows left; GPU 0 has memory"),
        ({"remap_pending": True}, "warning", "at its next reset"),
        ({"uncorrected": 3}, "warning", "3 uncorrected"),
        ({"remap_pending": None, "remap_failed": None, "uncorrected": None}, "passed", "no memory error"),
    ],
)
def test_memory(evidence, facts, errors, status, text):
    facts["gpus"][0]["errors"].update(errors)
    judge(hardware.memory(evidence()), status, text)


def test_memory_that_nobody_tells_of(evidence, facts):
    for gpu in facts["gpus"]:
        gpu["errors"] = {"remap_pending": None, "remap_failed": None, "uncorrected": None}
    judge(hardware.memory(evidence()), "skipped", "do not report")


NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"


@pytest.mark.parametrize("rc", [2, 3, 4, 6, 8, 9, 10, 12, 13, 14, 15, 255])
def test_every_documented_status_has_a_meaning_and_a_next_step(rc):
    outcome = judge_exit_status(rc, "said")
    assert outcome.status == "failed"
    assert f"ended with {rc}: {EXIT_STATUSES[rc][0]} (said)" in outcome.evidence
    assert outcome.next_step


def test_success():
    assert judge_exit_status(0, "GPU 0").status == "passed"


def test_an_undocumented_status():
    outcome = judge_exit_status(99, "")
    assert outcome.evidence == "nvidia-smi ended with 99: a status that NVIDIA does not document"
    assert outcome.next_step


def test_the_message_on_standard_output_is_quoted():
    outcome = judge_exit_status(9, NO_DRIVER)
    assert "the driver is not loaded (NVIDIA-SMI has failed" in outcome.evidence
    assert "nvidia_driver" in outcome.next_step


def test_a_mismatch_is_recognised_whatever_the_status():
    for rc in (1, 18, 255):
        assert "different versions" in judge_exit_status(rc, MISMATCH).evidence
        assert "gpufleet.nvidia.upgrade" in judge_exit_status(rc, MISMATCH).next_step


NEW, VERSION = "6.1.0-51-amd64", "580.178.04"
GOOD = {"release": NEW, "version": VERSION, "vermagic": NEW}
SIGNED = {**GOOD, "signer": "DKMS module signing key", "key_enrolled": True}


@pytest.mark.parametrize(
    "driver",
    [
        {"on_disk_version": VERSION},
        {"on_disk_version": None, "next_kernel": {"release": NEW, "version": None}},
        {"on_disk_version": VERSION, "next_kernel": GOOD},
        {"on_disk_version": VERSION, "next_kernel": {**GOOD, "vermagic": None}},
        {"on_disk_version": VERSION, "next_kernel": SIGNED},
    ],
)
def test_a_host_may_be_rebooted(driver):
    assert module_problem(view_of({"driver": driver}).driver) is None


@pytest.mark.parametrize(
    ("found", "reason", "remedy"),
    [
        ({"release": NEW, "version": None}, "has no module of the driver", "dkms autoinstall"),
        ({**GOOD, "version": "570.1"}, "with driver 570.1, not 580.178.04", "dkms autoinstall"),
        ({**GOOD, "vermagic": "6.1.0-50-amd64"}, "was built for 6.1.0-50-amd64", "dkms autoinstall"),
        ({**SIGNED, "signer": None, "key_enrolled": False}, "is not signed", "mokutil --import"),
        (
            {**SIGNED, "key_enrolled": False},
            "key of DKMS module signing key, which is not enrolled",
            "mokutil --import",
        ),
        ({**SIGNED, "key_enrolled": None}, "not known whether it is enrolled", "mokutil and kmod"),
    ],
)
def test_a_kernel_that_cannot_load_the_driver_is_named_with_the_reason_and_a_remedy(found, reason, remedy):
    problem = module_problem(view_of({"driver": {"on_disk_version": VERSION, "next_kernel": found}}).driver)
    assert NEW in problem[0] and reason in problem[0]
    assert remedy in problem[1] and "grub-set-default" in problem[1]


def judge_recovery(evidence, facts, *actions):
    for gpu, action in zip(facts["gpus"], actions):
        gpu["recovery_action"] = action
    return recovery(evidence())


def test_every_action_that_the_adapter_names_has_a_remedy():
    assert {NO_RECOVERY, *RECOVERIES} == set(RECOVERY_ACTIONS)


def test_none_is_needed(evidence, facts):
    assert judge_recovery(evidence, facts, NO_RECOVERY, NO_RECOVERY).status == "passed"
    assert judge_recovery(evidence, facts, None, NO_RECOVERY).evidence == "none is needed on 1 GPU"
    assert judge_recovery(evidence, facts, None, None).status == "skipped"


@pytest.mark.parametrize(
    ("action", "evidence_text", "remedy"),
    [
        ("gpu_reset", "GPU 1 asks for a reset (gpu_reset)", "GPU 1: Drain the host and reset the GPU"),
        ("node_reboot", "GPU 1 asks for a reboot of the host", "GPU 1: Drain and reboot the host"),
        # A value that is not known is not "none".
        ("value_9", "GPU 1 asks for something that this release does not know (value_9)", "GPU Recovery Action"),
    ],
)
def test_a_gpu_that_asks_for_recovery_is_not_healthy(evidence, facts, action, evidence_text, remedy):
    outcome = judge_recovery(evidence, facts, NO_RECOVERY, action)
    assert outcome.status == "failed"
    assert evidence_text in outcome.evidence
    assert remedy in outcome.next_step


def test_one_remedy_for_each_kind(evidence, facts):
    outcome = judge_recovery(evidence, facts, "node_reboot", "node_reboot")
    assert outcome.next_step == "GPU 0, 1: Drain and reboot the host"
    assert judge_recovery(evidence, facts, "gpu_reset", "node_reboot").next_step.count(". GPU 1: ") == 1
