# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The errors that the driver wrote into the kernel's log. Pure.

Users without root have texts of theirs printed there: an unknown option of a tmpfs that is mounted in a user namespace, the name of a program.
So a record counts only if the kernel itself wrote it, it begins as the driver begins, and it names a device of this host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

from .report import Sxid, Xid

#: C(priority,number,microseconds,flags;text) (Documentation/ABI/testing/dev-kmsg of the kernel, which escapes the ends of lines in a text). Lines
#: that go on with a record begin with a space. The priority is eight times the facility, which is 0 for the kernel alone, and the level.
#: The flag C(-) is of a text that is whole, and does not go on with another's.
_RECORD = re.compile(r"^[0-7],([0-9]{1,19}),[0-9]+,-(?:,[^;]*)?;(.*)$", re.MULTILINE)
_BUS = "[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}"
#: By the kind of the device. An error in a MIG instance names it: C(NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, ...).
_ERRORS: Mapping[str, tuple[type[Xid] | type[Sxid], re.Pattern[str]]] = {
    "gpu": (Xid, re.compile(rf"NVRM: Xid \(PCI:({_BUS})(?: GPU-[^)]*)?\): ([0-9]{{1,5}})\b(?:,\s*(.*))?")),
    "nvswitch": (
        Sxid,
        re.compile(rf"nvidia-nvswitch[0-9]+: SXid \(PCI:({_BUS}\.[0-7])\): ([0-9]{{1,5}})\b(?:,\s*(.*))?"),
    ),
}
#: Of one error, how many texts are kept, the newest: programs that fail again and again log a new one each time.
_MOST = 20

Error = Union[Xid, Sxid]


def errors_in(log: str, devices: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[int, Error]]:
    """Return the Xid errors of GPUs and the SXid errors of NVSwitches, each with the number of its record.

    :param log: what /dev/kmsg gave.
    :param devices: those that the bus shows, as in the part C(pci) of the facts.
    """
    known = {(device["kind"], str(device["address"]).lower()) for device in devices or ()}
    known |= {(kind, address.rpartition(".")[0]) for kind, address in known if kind == "gpu"}
    for record in _RECORD.finditer(log):
        for kind, (error, pattern) in _ERRORS.items():
            match = pattern.match(record.group(2))
            if match and (kind, match.group(1).lower()) in known:
                yield int(record.group(1)), error(int(match.group(2)), match.group(1), (match.group(3) or "").strip())


def distinct(errors: Iterable[Error]) -> list[Error]:
    """Return every error once, in the order of the log, and of each number on a device the newest."""
    kept: list[Error] = []
    counts: dict[tuple[type, int, str], int] = {}
    for error in reversed(list(dict.fromkeys(errors))):
        key = (type(error), error.number, error.pci_address)
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _MOST:
            kept.append(error)
    return kept[::-1]
