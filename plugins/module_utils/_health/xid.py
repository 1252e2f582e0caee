# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The errors that the driver wrote into the kernel's log, Xids of GPUs and SXids of NVSwitches, judged by NVIDIA's catalogue. Pure.

Users without root have texts of theirs printed there: an unknown option of a tmpfs that is mounted in a user namespace, the name of a program.
So a record counts only if the kernel itself wrote it, it begins as the driver begins, and it names a device of this host.

Errors are told, with a remedy each, and never fail a host: the log keeps them until the next boot, also after the GPU was reset. Whether
a GPU may be used is what the driver's recovery action says (L(hardware.recovery)).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._adapters.nvml_library import RECOVERY_ACTIONS
from .._facts_view import LoggedFacts, Sxid, Xid
from .hardware import NO_RECOVERY, recovery_of
from .report import Evidence, Outcome, passed, skipped, warning
from .xid_catalogue import ALWAYS_FATAL_SXIDS, CATALOGUE, DATE, NAMES, Bucket

#: C(priority,number,microseconds,flags;text) (Documentation/ABI/testing/dev-kmsg of the kernel, which escapes the ends of lines in a text). Lines
#: that go on with a record begin with a space. The priority is eight times the facility, which is 0 for the kernel alone, and the level.
#: The flag C(-) is of a text that is whole, and does not go on with another's.
_RECORD = re.compile(r"^[0-7],([0-9]{1,19}),[0-9]+,-(?:,[^;]*)?;(.*)$", re.MULTILINE)
_BUS = "[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}"
#: By the kind of the device. An error in a MIG instance names it: C(NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, ...).
_ERRORS: Mapping[str, tuple[type[LoggedFacts], re.Pattern[str]]] = {
    "gpu": (Xid, re.compile(rf"NVRM: Xid \(PCI:({_BUS})(?: GPU-[^)]*)?\): ([0-9]{{1,5}})\b(?:,\s*(.*))?")),
    "nvswitch": (
        Sxid,
        re.compile(rf"nvidia-nvswitch[0-9]+: SXid \(PCI:({_BUS}\.[0-7])\): ([0-9]{{1,5}})\b(?:,\s*(.*))?"),
    ),
}
_NOT_INITIALIZED = re.compile(rf"NVRM: GPU ({_BUS}\.[0-7]): RmInitAdapter failed! \(([0-9A-Fa-fx:]{{1,64}})\)")
#: Of one error, how many texts are kept, the newest: programs that fail again and again log a new one each time.
_MOST = 20


def errors_in(log: str, devices: Iterable[tuple[Any, str]]) -> Iterator[tuple[int, LoggedFacts]]:
    """Return the Xid errors of GPUs and the SXid errors of NVSwitches, each with the number of its record. C(devices): kinds and addresses."""
    known = {(kind, address.lower()) for kind, address in devices}
    known |= {(kind, address.rpartition(".")[0]) for kind, address in known if kind == "gpu"}
    for record in _RECORD.finditer(log):
        for kind, (error, pattern) in _ERRORS.items():
            match = pattern.match(record.group(2))
            if match and (kind, match.group(1).lower()) in known:
                yield int(record.group(1)), error(int(match.group(2)), match.group(1), (match.group(3) or "").strip())


def not_initialized(log: str, devices: Iterable[tuple[Any, str]]) -> dict[str, str]:
    """Return the driver's last code for each device that it could not initialize since the boot, by address. C(devices): kinds and addresses."""
    known = {address.lower() for _kind, address in devices}
    found = filter(None, (_NOT_INITIALIZED.match(record.group(2)) for record in _RECORD.finditer(log)))
    return {match.group(1).lower(): match.group(2) for match in found if match.group(1).lower() in known}


def distinct(errors: Iterable[LoggedFacts]) -> list[LoggedFacts]:
    """Return every error once, in the order of the log, and of each number on a device the newest."""
    kept: list[LoggedFacts] = []
    counts: dict[tuple[type, int, str], int] = {}
    for error in reversed(list(dict.fromkeys(errors))):
        key = (type(error), error.number, error.pci_address)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _MOST:
            kept.append(error)
    return kept[::-1]


#: The errors that applications cause, or that need nothing. 45 is the end of an application, by Ctrl-C too: what the catalogue has to
#: do about it (a restart of the fabric manager) is for one that nothing explains.
_NOT_OF_THE_HOST = frozenset((Bucket.IGNORE, Bucket.RESTART_APP, Bucket.WORKFLOW_XID_45))
#: Ends one application only, and yet it is the board's memory that failed.
_CONTAINED_MEMORY_ERROR = 94

_RESET = "Drain the host and reset the GPU (nvidia-smi --gpu-reset), or reboot; if it recurs, have the board replaced"
_REBOOT = (
    "Drain and reboot the host, with a power cycle if the GPU does not come back; if it recurs, have the board replaced"
)
_SUPPORT = "Keep the output of nvidia-bug-report.sh and ask the vendor of the board"
_REMEDIES = {
    Bucket.RESET_GPU: _RESET,
    Bucket.RESTART_VM: "Drain and restart the virtual machine, or the host where there is none",
    Bucket.RESTART_BM: _REBOOT,
    Bucket.CONTACT_SUPPORT: _SUPPORT,
    Bucket.CHECK_MECHANICALS: "Check the seating and the power cables of the board",
    Bucket.UPDATE_SWFW: "Install matching versions of driver and firmware, and of those in the virtual machine",
    Bucket.CHECK_UVM: "Drain the host and reset the GPU if CUDA programs with managed memory ran on it",
    Bucket.WORKFLOW_XID_48: _RESET,
    Bucket.WORKFLOW_NVLINK_ERR: "Drain the host and reset the GPUs of the link, or reboot; if it recurs, have the link's boards tested",
    Bucket.WORKFLOW_NVLINK5_ERR: _RESET,
    Bucket.NONE: f"NVIDIA's catalogue names no action: look for other errors of the GPU beside it. {_SUPPORT} if it recurs",
}
_UNKNOWN = f"Look it up in NVIDIA's catalogue, which may be newer than that of {DATE}. {_SUPPORT}"
_CONTAINED = "Restart the application that it ended; a reset of the GPU, when there is time, replaces the memory"

#: Of Xids 144 to 150: C(145, RLW_REMAP Nonfatal XC0 i0 Link 00 (...)).
_SEVERITY = re.compile(r"\b(Nonfatal|Fatal)\b")
#: Of Xid 154: C(GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)).
_CHANGED = re.compile(r"\bto 0x([0-9A-Fa-f]+)")


@dataclass(frozen=True)
class LoggedFault:
    what: str
    meaning: str
    remedy: str


def xid(evidence: Evidence) -> Outcome:
    """The driver wrote no error since the boot that needs somebody's hand."""
    if evidence.xids is None:
        return skipped("the kernel's log cannot be read")
    asked = {bus_address(gpu.pci_address) for gpu in evidence.facts.gpus or [] if gpu.recovery_action}
    found = [_judge_xid(error, errors, asked) for error, errors in _grouped(evidence.xids).items()]
    found += [_judge_sxid(error, errors) for error, errors in _grouped(evidence.sxids or ()).items()]
    findings = [finding for finding in found if finding is not None]
    if not findings:
        others = len(evidence.xids) + len(evidence.sxids or ())
        return passed(f"none that requires action, {others} others" if others else "none since the boot")
    remedies: dict[str, list[str]] = {}
    for finding in findings:
        remedies.setdefault(finding.remedy, []).append(finding.what)
    steps = [f"{', '.join(what)}: {remedy}" for remedy, what in remedies.items()]
    return warning("; ".join(f"{finding.what}: {finding.meaning}" for finding in findings), ". ".join(steps))


#: What NVIDIA's catalogue says of an error, as it is named in metrics, that nobody has to look at.
QUIET_ACTIONS = tuple(sorted(bucket.value.lower() for bucket in (*_NOT_OF_THE_HOST, Bucket.XID_154)))
#: Errors that somebody has to look at whatever the catalogue says.
LOUD_XIDS = (_CONTAINED_MEMORY_ERROR,)


def bus_address(pci_address: str | None) -> str:
    """Return the address of a GPU as Xids have it: without the function."""
    return str(pci_address or "").rpartition(".")[0].lower()


def bucket_of(error: Xid) -> Bucket | None:
    """Return what NVIDIA's catalogue asks for at once, or None for an error that it lacks."""
    entry = CATALOGUE.get(error.number)
    if entry is not None and entry.immediate is Bucket.WORKFLOW_NVLINK5_ERR and _is_nonfatal(error.text):
        return Bucket.IGNORE
    return entry.immediate if entry else None


def recovery_after(text: str) -> str:
    """Return the name of the recovery action that Xid 154 announces; C(unknown) for one that is newer than this release."""
    match = _CHANGED.search(text)
    number = int(match.group(1), 16) if match else -1
    return RECOVERY_ACTIONS[number] if 0 <= number < len(RECOVERY_ACTIONS) else "unknown"


def action_of(error: Xid) -> str:
    """Return the name of what NVIDIA's catalogue asks for at once, in lower case: C(reset_gpu), C(restart_app), C(ignore), ... C(unnamed) where the
    catalogue names nothing, C(unknown) for an error that it lacks.
    """
    bucket = bucket_of(error)
    return "unknown" if bucket is None else bucket.value.lower() or "unnamed"


def severity_of_sxid(error: LoggedFacts) -> str:
    """Return C(fatal) or C(non_fatal); an NVSwitch's error that does not say which is taken for fatal."""
    harmless = error.number not in ALWAYS_FATAL_SXIDS and error.text.lower().startswith("non-fatal")
    return "non_fatal" if harmless else "fatal"


def _grouped(errors: Sequence[LoggedFacts]) -> Mapping[tuple[int, str], list[str]]:
    """Return the texts of the errors of each number and place, in the order of the log."""
    groups: dict[tuple[int, str], list[str]] = {}
    for error in errors:
        groups.setdefault((error.number, error.pci_address), []).append(error.text)
    return dict(sorted(groups.items()))


def _judge_xid(error: tuple[int, str], texts: Sequence[str], asked: set[str]) -> LoggedFault | None:
    """Return what is to be told of the errors of one number on one GPU. C(asked): addresses of the GPUs, without function, whose recovery action NVML
    told: what Xid 154 says of them is older.
    """
    number, address = error
    what = f"Xid {number} on {address}{_times(texts)}"
    entry = CATALOGUE.get(number)
    if entry is None:
        description = ": ".join(text for text in (NAMES.get(number, ""), texts[-1] or "no text") if text)
        return LoggedFault(what, f"not in NVIDIA's catalogue of {DATE} ({description})", _UNKNOWN)
    meaning = f"{entry.description} ({entry.mnemonic})"
    if entry.immediate is Bucket.XID_154:
        return None if address.lower() in asked else _changed_recovery(what, texts[-1])
    if number == _CONTAINED_MEMORY_ERROR:
        return LoggedFault(what, meaning, _CONTAINED)
    if entry.immediate in _NOT_OF_THE_HOST:
        return None
    if entry.immediate is Bucket.WORKFLOW_NVLINK5_ERR and all(map(_is_nonfatal, texts)):
        return None
    return LoggedFault(what, meaning, _REMEDIES[entry.immediate])


def _changed_recovery(what: str, text: str) -> LoggedFault | None:
    name = recovery_after(text)
    if name == NO_RECOVERY:
        return None
    action = recovery_of(name)
    return LoggedFault(what, f"the driver asked for {action.asked}", action.remedy)


def _judge_sxid(error: tuple[int, str], texts: Sequence[str]) -> LoggedFault | None:
    number, address = error
    what = f"SXid {number} of the NVSwitch {address}{_times(texts)}"
    if number in ALWAYS_FATAL_SXIDS:
        return LoggedFault(what, f"fatal for the whole fabric ({texts[-1]})", "Drain and reboot the host")
    if all(text.lower().startswith("non-fatal") for text in texts):
        return None
    remedy = "Drain the host and reset all its GPUs and NVSwitches (nvidia-smi --gpu-reset without -i), or reboot it"
    return LoggedFault(what, texts[-1] or "no text", remedy)


def _is_nonfatal(text: str) -> bool:
    match = _SEVERITY.search(text)
    return match is not None and match.group(1) == "Nonfatal"


def _times(texts: Sequence[str]) -> str:
    return f" ({len(texts)} times)" if len(texts) > 1 else ""
