# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counters of the errors in the kernel's log, which overwrites its oldest records. Pure.

Every record of the log has a number that only grows until the next boot (Documentation/ABI/testing/dev-kmsg of the kernel). What was counted
is kept with the number of the last error's record, so that no error is counted twice and none is lost when its record is
overwritten later.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._formats.documents import read_json
from .kernel_log import errors_in
from .report import Xid
from .xid import action_of, severity_of_sxid

SCHEMA = 1
#: More different errors than this are no sign of anything any more, and each is a time series.
_MOST = 1000

_Key = tuple[str, int, str]


@dataclass(frozen=True)
class ErrorCounts:
    """How many errors of each kind were logged since the boot.

    :param last: number of the record of the last error; -1 before the first.
    :param xids: by PCI address, number and action (see L(xid.action_of)).
    :param sxids: by PCI address, number and severity.
    """

    boot_id: str
    last: int = -1
    xids: Mapping[_Key, int] = field(default_factory=dict)
    sxids: Mapping[_Key, int] = field(default_factory=dict)

    def as_text(self) -> str:
        document = {
            "schema": SCHEMA,
            "boot_id": self.boot_id,
            "last": self.last,
            "xids": [[*key, count] for key, count in sorted(self.xids.items())],
            "sxids": [[*key, count] for key, count in sorted(self.sxids.items())],
        }
        return json.dumps(document) + "\n"


def parse_counts(text: str | None, boot_id: str) -> ErrorCounts:
    """Return what was counted since this boot; nothing where the file is missing, of another boot, or cannot be used."""
    try:
        document = read_json(text or "")
        if document["schema"] != SCHEMA or document["boot_id"] != boot_id:
            return ErrorCounts(boot_id)
        return ErrorCounts(boot_id, int(document["last"]), _counted(document["xids"]), _counted(document["sxids"]))
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return ErrorCounts(boot_id)


def _counted(rows: Any) -> dict[_Key, int]:
    return {(str(address), int(number), str(kind)): int(count) for address, number, kind, count in rows}


def counted(before: ErrorCounts, log: str, devices: Sequence[Mapping[str, Any]] | None) -> ErrorCounts:
    """Return C(before) and the errors of the records of C(log) that are newer (see L(kernel_log.errors_in))."""
    xids, sxids, last = Counter(before.xids), Counter(before.sxids), before.last
    for number, error in errors_in(log, devices):
        if number <= before.last:
            continue
        last = max(last, number)
        if isinstance(error, Xid):
            _add(xids, (error.pci_address, error.number, action_of(error)))
        else:
            _add(sxids, (error.pci_address, error.number, severity_of_sxid(error)))
    return ErrorCounts(before.boot_id, last, dict(xids), dict(sxids))


def _add(counts: Counter[_Key], key: _Key) -> None:
    if key in counts or len(counts) < _MOST:
        counts[key] += 1
