# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import hardware
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import CommandAnswer


def judge(outcome, status, *texts):
    assert outcome.status == status, outcome
    for text in texts:
        assert text in f"{outcome.evidence}. {outcome.next_step}"


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
        (CommandAnswer(0, "GPU 0"), "passed", "ended with 0"),
        (CommandAnswer(15, "lost"), "failed", "fallen off the bus"),
        (CommandAnswer(None, "no answer within 60 s"), "failed", "no answer within 60 s"),
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
    facts["pci"][1]["kernel_driver"] = "vfio-pci"
    judge(hardware.nvml(evidence()), "failed", ", bound to vfio-pci", "unbind")
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
