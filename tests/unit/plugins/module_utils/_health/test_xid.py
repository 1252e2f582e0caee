# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which records of the kernel's log are errors of the driver, and which are texts that users had printed there."""

from __future__ import annotations

import secrets

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.health import kernel_log
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import CardFacts, Sxid, Xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import ErrorCounts, counted
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import (
    distinct,
    errors_in,
    not_initialized,
    xid,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid_catalogue import (
    ALWAYS_FATAL_SXIDS,
    CATALOGUE,
    Bucket,
)
from ansible_collections.gpufleet.nvidia.tests import forged_records
from hypothesis import strategies as st

from ....mutation import examples_of, property_of

PCI = [("gpu", "0000:18:00.0"), ("gpu", "10000:2A:00.0"), ("nvswitch", "0000:05:00.0")]
CARDS = [CardFacts(address, kind=kind) for kind, address in PCI]
XID = "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."
SXID = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)"
FALLEN = Xid(79, "0000:18:00", "GPU has fallen off the bus.")


def found(log, devices=PCI):
    return [error for _number, error in errors_in(log, devices or ())]


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
        assert counted(ErrorCounts("boot"), log, CARDS).xids == (("0000:18:00", 79, "restart_bm", 2),)


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
        counted(ErrorCounts("boot"), log, CARDS)
        assert found(log, []) == []


def test_forged_errors_fill_no_counter():
    forged = "".join(f"3,{n},1,-;tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:18:00): {n}'\n" for n in range(2000))
    alien = "".join(f"4,{n},1,-;NVRM: Xid (PCI:{n:04x}:18:00): 79, x\n" for n in range(2001, 4000))
    counts = counted(ErrorCounts("boot"), f"{forged}{alien}4,5000,1,-;{XID}\n", CARDS)
    assert counts.xids == (("0000:18:00", 79, "restart_bm", 1),)


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
    devices = [(kind, forged_records.ADDRESS) for kind in ("gpu", "nvswitch")]
    assert found(log, devices) == []


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


def test_gpus_that_the_driver_could_not_initialize():
    """As the driver logs it, open or not, at every attempt, and as a user might have it printed."""
    failed = "4,{},1,-;NVRM: GPU {}: RmInitAdapter failed! ({})\n"
    log = "".join(
        (
            "4,1,1,-;NVRM: RmInitAdapter: Cannot initialize GSP firmware RM\n",
            failed.format(2, "0000:18:00.0", "0x62:0x65:1792"),
            "4,3,1,-;NVRM: GPU 0000:18:00.0: rm_init_adapter failed, device minor number 0\n",
            failed.format(4, "0000:18:00.0", "0x62:0x40:2168"),
            failed.format(5, "10000:2a:00.0", "0x26:0x56:1463"),
            failed.format(6, "0000:99:00.0", "0x26:0x56:1463"),
            failed.format(7, "0000:05:00.0", "$(reboot)"),
            "12,8,1,-;NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x1:0x2:3)\n",
            "4,9,1,-;tmpfs: Unknown parameter 'NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x1:0x2:3)'\n",
        )
    )
    # The addresses are those of the bus.
    assert not_initialized(log, PCI) == {"0000:18:00.0": "0x62:0x40:2168", "10000:2a:00.0": "0x26:0x56:1463"}
    assert not_initialized(log, ()) == not_initialized("", PCI) == {}
