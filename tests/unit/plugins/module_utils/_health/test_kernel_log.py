# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which records of the kernel's log are errors of the driver, and which are texts that users had printed there."""

from __future__ import annotations

import secrets

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.health import kernel_log
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import ErrorCounts, counted
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Sxid, Xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import distinct, errors_in
from ansible_collections.gpufleet.nvidia.tests import forged_records
from hypothesis import strategies as st

from ....mutation import examples_of, property_of

PCI = [
    {"address": "0000:18:00.0", "kind": "gpu"},
    {"address": "10000:2A:00.0", "kind": "gpu"},
    {"address": "0000:05:00.0", "kind": "nvswitch"},
]
XID = "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."
SXID = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)"
FALLEN = Xid(79, "0000:18:00", "GPU has fallen off the bus.")


def found(log, devices=PCI):
    return [error for _number, error in errors_in(log, devices)]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (f"4,1021,12345,-;{XID}\n", FALLEN),
        # Of a kernel with CONFIG_PRINTK_CALLER, and with the lines that name the device.
        (f"3,1021,12345,-,caller=T4711;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:18:00.0\n", FALLEN),
        (
            "4,7,1,-;NVRM: Xid (PCI:0000:18:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No\n",
            Xid(94, "0000:18:00", "pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"),
        ),
        (
            "4,7,1,-;NVRM: Xid (PCI:0000:18:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a\n",
            Xid(13, "0000:18:00", "pid=9, name=a"),
        ),
        ("4,7,1,-;NVRM: Xid (PCI:10000:2a:00): 43\n", Xid(43, "10000:2a:00", "")),
        (f"3,8,1,-;{SXID}\n", Sxid(12028, "0000:05:00.0", SXID.partition("12028, ")[2])),
        # The name of a program is text of a user, too: one record is one error.
        (f"4,7,1,-;NVRM: Xid (PCI:0000:18:00): 13, pid=9, name={XID}\n", Xid(13, "0000:18:00", f"pid=9, name={XID}")),
    ],
)
def test_the_records_of_the_driver(record, error):
    assert found(f"6,1,1,-;usb 1-1: new device\n{record}") == [error]


FORGED = [
    # As this kernel writes them: a mount option, the same with an end of line, and a program that was started with a NULL argv.
    f"3,1021,1,-;tmpfs: Unknown parameter '{XID}'",
    f"3,1021,1,-;tmpfs: Unknown parameter 'x\\x0a{XID}'",
    f"4,1021,1,-;process '{XID}' launched '/bin/{XID}' with NULL argv: empty string added",
    # The longest name of a process is as long as the beginning of the driver's text.
    "6,1021,1,-;NVRM: Xid (PCI:[4711]: segfault at 0 ip 0000 sp 0000 error 4 in x[400000+1000]",
    # Written into /dev/kmsg by a program with the right to: the kernel gives such a record another facility.
    f"12,1021,1,-;{XID}",
    f"30,1021,1,-,caller=T1;{SXID}",
    # A text that goes on with another's, and a line of a record's own.
    f"4,1021,1,c;{XID}",
    f"4,1021,1,+;{XID}",
    f"6,1021,1,-;x\n {XID}\n DEVICE={XID}\n 4,1,1,-;{XID}",
    # Devices that the host does not have, a GPU as a switch, a switch as a GPU.
    f"4,1021,1,-;{XID.replace('18', '19')}",
    "4,1021,1,-;NVRM: Xid (PCI:0000:05:00): 79, x",
    "4,1021,1,-;nvidia-nvswitch0: SXid (PCI:0000:18:00.0): 20034, Fatal",
    "4,1021,1,-;SXid (PCI:0000:05:00.0): 20034, Fatal",
    # Not the driver's format.
    "4,1021,1,-;NVRM: Xid (PCI:0000:18:00): ²",
    "4,1021,1,-;NVRM: Xid (PCI:0000:18:00): 9999999",
]


@pytest.mark.parametrize("record", FORGED)
def test_a_text_of_a_user_is_no_error(record):
    assert found(f"{record}\n") == []


@pytest.mark.parametrize("devices", [None, [], PCI[:2]])
def test_a_switch_error_counts_only_where_the_bus_shows_the_switch(devices):
    assert found(f"4,1,1,-;{SXID}\n", devices) == []


@examples_of(tests=2)
def test_whatever_is_printed_behind_a_beginning_of_the_kernels_changes_nothing(examples):
    beginnings = st.sampled_from(["tmpfs: Unknown parameter '", "process '", "x"])

    @property_of(st.tuples(st.text(), beginnings, st.integers(0, 400)), examples)
    def check(drawn):
        text, beginning, priority = drawn
        text = text.encode("unicode_escape").decode()
        log = f"4,5,1,-;{XID}\n{priority},6,1,-;{beginning}{text}{XID}\n4,7,1,-;{XID}\n"
        assert found(log) == [FALLEN, FALLEN]
        assert counted(ErrorCounts("boot"), log, PCI).xids == {("0000:18:00", 79, "restart_bm"): 2}


_WHOLE_RECORDS = [f"\n4,1,1,-;{XID}\n", f"\n3,2,1,-;{SXID}\n", f"\n4,3,1,-;{XID.replace('18', 'ff')}\n"]
_PARTS = [
    "4,1,1,-;",
    "12,1,1,-;",
    "4,1,1,c;",
    "NVRM: Xid (PCI:",
    "nvidia-nvswitch0: SXid (PCI:",
    "0000:18:00",
    "0000:05:00.0",
]
_PARTS += ["ffff:ff:1f", "): ", "79", "20034", ", ", "\n", "\n ", "\x00", "\ud800", "9" * 5000, XID, SXID, "x" * 20000]
_LOGS = st.lists(st.sampled_from(_WHOLE_RECORDS + _PARTS) | st.text(max_size=9), max_size=30).map("".join)


@examples_of(tests=2)
def test_whatever_the_log_holds_is_read_and_names_devices_of_the_host_alone(examples):
    @property_of(_LOGS, examples)
    def check(log):
        errors = found(log)
        for error in errors:
            assert error.pci_address.lower() in ("0000:18:00", "10000:2a:00", "0000:05:00.0")
            assert isinstance(error, Sxid) == error.pci_address.startswith("0000:05")
        assert len(distinct(errors)) <= len(errors)
        counted(ErrorCounts("boot"), log, PCI)
        assert found(log, []) == []


def test_forged_errors_fill_no_counter():
    forged = "".join(f"3,{n},1,-;tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:18:00): {n}'\n" for n in range(2000))
    alien = "".join(f"4,{n},1,-;NVRM: Xid (PCI:{n:04x}:18:00): 79, x\n" for n in range(2001, 4000))
    counts = counted(ErrorCounts("boot"), f"{forged}{alien}4,5000,1,-;{XID}\n", PCI)
    assert counts.xids == {("0000:18:00", 79, "restart_bm"): 1}


def test_a_program_that_fails_again_and_again_fills_no_document():
    log = (
        "".join(f"4,{n},1,-;NVRM: Xid (PCI:0000:18:00): 13, pid={n}\n" for n in range(5000)) + f"4,6000,1,-;{XID}\n" * 2
    )
    errors = distinct(found(log))
    assert len(errors) == 21 and errors[-1] == FALLEN and errors[0] == Xid(13, "0000:18:00", "pid=4980")


@pytest.mark.parametrize("text", [forged_records.XID, forged_records.SXID, f"x\n{forged_records.XID}"])
def test_what_a_user_without_root_has_the_real_kernel_print(text):
    """A pod may do the same: every user may have a user namespace on most hosts."""
    mark = secrets.token_hex(8)
    why = forged_records.forge(f"{text} {mark}")
    log = kernel_log() or ""
    printed = [line for line in log.splitlines() if mark in line]
    if why or not printed:
        pytest.skip(why or "this kernel does not print the options of a mount, or nobody may read its log here")
    assert "Xid (PCI:ffff:ff:1f" in printed[0]
    devices = [{"address": forged_records.ADDRESS, "kind": kind} for kind in ("gpu", "nvswitch")]
    assert found(log, devices) == []
