# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import metrics
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import ErrorCounts, parse_counts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Sxid, Xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import (
    QUIET_ACTIONS,
    action_of,
    severity_of_sxid,
)
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.faults import record

XID = "NVRM: Xid (PCI:0000:18:00): 119, pid=1, Timeout"
KEY = ("0000:18:00", 119, "reset_gpu")


PCI = [{"address": "0000:18:00.0", "kind": "gpu"}, {"address": "0000:05:00.0", "kind": "nvswitch"}]


def counted(before, log):
    return metrics.counted(before, log, PCI)


def test_an_error_that_comes_again_counts_again_and_is_never_counted_twice():
    log = record(5, XID) + record(6, "usb: connected") + record(7, XID)
    first = counted(ErrorCounts("boot"), log)
    assert (first.xids, first.last) == ({KEY: 2}, 7)
    assert counted(first, log) == first
    assert counted(first, log + record(8, XID)).xids == {KEY: 3}


def test_what_was_overwritten_in_the_log_stays_counted():
    first = counted(ErrorCounts("boot"), record(5, XID))
    assert counted(first, record(900, "usb: connected")).xids == {KEY: 1}


def test_lines_that_go_on_with_a_record_and_text_that_looks_like_one():
    log = record(5, XID) + " SUBSYSTEM=pci\n DEVICE=+pci:0000:18:00.0\n" + record(6, f"5,9,1,-;{XID}")
    found = counted(ErrorCounts("boot"), log)
    assert (found.xids, found.last) == ({KEY: 1}, 5)


def test_counts_survive_in_a_file_until_the_next_boot():
    sxid = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32"
    found = counted(ErrorCounts("boot"), record(1, XID) + record(2, sxid))
    assert parse_counts(found.as_text(), "boot") == found
    assert found.sxids == {("0000:05:00.0", 12028, "non_fatal"): 1}
    assert parse_counts(found.as_text(), "next") == ErrorCounts("next")


@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"schema": 1, "boot_id": "boot"}', '{"schema": 2}'])
def test_a_file_that_cannot_be_used_counts_anew(text):
    assert parse_counts(text, "boot") == ErrorCounts("boot")


def test_a_flood_of_different_errors_makes_no_flood_of_series(monkeypatch):
    monkeypatch.setattr(metrics, "_MOST", 2)
    log = "".join(record(n, f"NVRM: Xid (PCI:0000:18:00): {n}, x") for n in (13, 31, 48, 13))
    assert {number: count for (_pci, number, _action), count in counted(ErrorCounts("b"), log).xids.items()} == {
        13: 2,
        31: 1,
    }


@pytest.mark.parametrize(
    ("number", "text", "action"),
    [
        (79, "", "restart_bm"),
        (31, "", "restart_app"),
        (63, "", "ignore"),
        (145, "RLW_REMAP Nonfatal XC0", "ignore"),
        (145, "RLW_REMAP Fatal XC0", "workflow_nvlink5_err"),
        (167, "", "unnamed"),
        (999, "", "unknown"),
    ],
)
def test_the_action_of_an_xid(number, text, action):
    assert action_of(Xid(number, "0000:18:00", text)) == action


def test_what_applications_cause_is_quiet():
    assert QUIET_ACTIONS == ("ignore", "restart_app", "workflow_xid_45", "xid_154")


def test_the_severity_of_an_sxid():
    assert severity_of_sxid(Sxid(12028, "x", "Non-fatal, Link 32")) == "non_fatal"
    assert severity_of_sxid(Sxid(22003, "x", "Non-fatal, Link 32")) == "fatal", "always fatal by NVIDIA's guide"
    assert severity_of_sxid(Sxid(20034, "x", "")) == "fatal"
