# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Sxid, Xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid_catalogue import (
    ALWAYS_FATAL_SXIDS,
    CATALOGUE,
    Bucket,
)

BOARD = "0000:18:00"
REBOOT_154 = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"


def numbers(bucket):
    return {number for number, entry in CATALOGUE.items() if entry.immediate is bucket}


def test_the_catalogue():
    """What NVIDIA's page says of the errors on which most depends, and how many rows of each kind it has."""
    assert sorted(CATALOGUE) == list(range(1, 173))
    assert numbers(Bucket.RESET_GPU) == {46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
    assert numbers(Bucket.WORKFLOW_NVLINK5_ERR) == set(range(144, 151))
    assert numbers(Bucket.RESTART_BM) == {79}
    assert {63, 43, 92} < numbers(Bucket.IGNORE)
    assert {13, 31, 94} < numbers(Bucket.RESTART_APP)
    assert CATALOGUE[119].mnemonic == "GSP_RPC_TIMEOUT"
    assert len(ALWAYS_FATAL_SXIDS) == 20


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        (79, "", "Xid 79 on 0000:18:00: GPU has fallen off the bus (ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS)"),
        (79, "", "power cycle"),
        (46, "", "reset the GPU"),
        (110, "", "reset the GPU"),
        (140, "", "reset the GPU"),
        (48, "", "reset the GPU"),
        (74, "", "reset the GPUs of the link"),
        (54, "", "power cables"),
        (78, "", "driver and firmware"),
        (142, "", "ask the vendor"),
        (151, "", "virtual machine"),
        (159, "", "managed memory"),
        # The application is restarted, but it is the board's memory that failed.
        (94, "", "Restart the application"),
        (167, "", "names no action"),
        # What NVIDIA says is unused is not known to be harmless.
        (58, "", "ask the vendor"),
        (999, "something new", "not in NVIDIA's catalogue of 2025-10-29 (something new)"),
        (999, "", "Look it up"),
        # The driver's source names it.
        (173, "text", "not in NVIDIA's catalogue of 2025-10-29 (C2C_FATAL_LINK_FAILURE: text)"),
        (145, "RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040)", "reset the GPU"),
        (149, "no severity", "reset the GPU"),
        (154, REBOOT_154, "the driver asked for a reboot of the host"),
        (154, REBOOT_154, "Drain and reboot the host"),
        (154, "GPU recovery action changed from 0x0 (None) to 0xf (New)", "does not know"),
    ],
)
def test_an_error_is_told_with_its_remedy(evidence, facts, number, text, expected):
    # A driver before NVML's recovery action: only Xid 154 tells of it then.
    facts["gpus"][0]["recovery_action"] = None
    outcome = xid(evidence(xids=[Xid(number, BOARD, text)]))
    assert outcome.status == "warning"
    assert expected in f"{outcome.evidence}. {outcome.next_step}"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((number, "") for number in sorted(numbers(Bucket.IGNORE))),
        *((number, "") for number in sorted(numbers(Bucket.RESTART_APP) - {94})),
        (45, "Ch 00000008"),
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000100)"),
        (154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"),
    ],
)
def test_what_applications_cause_or_the_catalogue_ignores_is_no_fault_of_the_host(evidence, number, text):
    outcome = xid(evidence(xids=[Xid(number, BOARD, text)]))
    assert (outcome.status, outcome.evidence) == ("passed", "none that requires action, 1 others")


def test_every_finding_has_its_own_remedy(evidence):
    errors = [
        Xid(95, BOARD, "a"),
        Xid(95, BOARD, "b"),
        Xid(140, "0000:2a:00", ""),
        Xid(79, "0000:2a:00", ""),
        Xid(13, BOARD, ""),
    ]
    outcome = xid(evidence(xids=errors))
    assert outcome.evidence.count(";") == 2
    assert outcome.next_step.startswith(
        "Xid 79 on 0000:2a:00: Drain and reboot the host, with a power cycle if the GPU does not come back; if it recurs, have the board replaced. "
        "Xid 95 on 0000:18:00 (2 times), Xid 140 on 0000:2a:00: Drain the host and reset the GPU"
    )


def test_the_last_announcement_of_a_recovery_counts_and_only_where_nvml_does_not_tell(evidence, facts):
    errors = [Xid(154, BOARD, REBOOT_154), Xid(154, BOARD, "GPU recovery action changed from 0x2 (x) to 0x1 (y)")]
    for gpu in facts["gpus"]:
        gpu["recovery_action"] = None
    assert "asked for a reset" in xid(evidence(xids=errors)).evidence
    facts["gpus"][0]["recovery_action"] = "none"
    assert xid(evidence(xids=errors)).status == "passed"
    facts["gpus"][0]["recovery_action"] = None
    facts["gpus"][1]["recovery_action"] = "none"
    assert xid(evidence(xids=errors)).status == "warning"


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        (12028, "Non-fatal, Link 32 egress non-posted PRIV error (First)", None),
        (20034, "Fatal, Link 30 LTSSM Fault Up", "reset all its GPUs and NVSwitches"),
        (22003, "Non-fatal, x", "Drain and reboot the host"),
        (1, "", "no text"),
    ],
)
def test_errors_of_the_switches(evidence, number, text, expected):
    outcome = xid(evidence(sxids=[Sxid(number, "0000:05:00.0", text)]))
    assert outcome.status == ("warning" if expected else "passed")
    assert (expected or "1 others") in f"{outcome.evidence}. {outcome.next_step}"
    assert ("SXid" in outcome.evidence) is bool(expected)


def test_a_log_without_errors_and_one_that_cannot_be_read(evidence):
    assert xid(evidence()).evidence == "none since the boot"
    assert xid(evidence(xids=None)).status == "skipped"
