# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.meanings import (
    EXIT_STATUSES,
    judge_exit_status,
    parse_xids,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Xid

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"


@pytest.mark.parametrize("rc", [2, 3, 4, 6, 8, 9, 10, 12, 13, 14, 15, 255])
def test_every_documented_status_has_a_meaning_and_a_next_step(rc):
    outcome = judge_exit_status(rc, "said")
    assert outcome.status == "failed"
    assert f"ended with {rc}: {EXIT_STATUSES[rc].meaning} (said)" in outcome.evidence
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
        assert "Reload" in judge_exit_status(rc, MISMATCH).next_step


def test_xids():
    log = (
        "4,1021,12345,-;NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
        "6,1022,12346,-;usb 1-1: new device\n"
        "4,1023,12347,-;NVRM: Xid (PCI:0000:2a:00): 13, Graphics Exception\n"
        "4,1024,12348,-;NVRM: Xid (PCI:0000:2a:00): 43\n"
    )
    assert parse_xids(log) == [
        Xid(79, "0000:18:00", "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        Xid(13, "0000:2a:00", "Graphics Exception"),
        Xid(43, "0000:2a:00", ""),
    ]
