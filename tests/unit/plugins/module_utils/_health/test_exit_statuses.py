# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.hardware import (
    EXIT_STATUSES,
    judge_exit_status,
)

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
