# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the control command of MPS is told and how its answers are read.

Its exit status says only that it talked to a daemon: an invalid value, an unknown command and a refusal all end with 0.
What a setting really is, is known only from reading it back; the observed answers are in the tests.
"""

from __future__ import annotations

import math
import re

from .documents import whole_number

_MIB_PER_GIB = 1024
_LIMIT = re.compile(r"(?P<number>[0-9]{1,15})(?P<unit>[GMK]?)")
_NO_LIMIT = ("", "-", "0", "none", "unlimited")

#: C(sockaddr_un.sun_path) holds 108 bytes and the daemon adds C(/control_privileged); longer directories fail at start.
LONGEST_PIPE_DIRECTORY = 80


def percentage(answer: str) -> float | None:
    """Return the active thread percentage that C(answer) holds, or None when it is anything else. A float here is the health contract of MPS, the
    same as the device plugin's.
    """
    try:
        number = float(answer.strip())
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def pids(answer: str) -> tuple[int, ...]:
    """Return the process ids of a server or client list; an empty answer, or one that is a sentence, holds none."""
    found = (whole_number(line.strip()) for line in answer.splitlines())
    return tuple(pid for pid in found if pid is not None)


def limit_text(mib: int) -> str:
    """Return how the daemon prints a limit of C(mib) MiB when it is read back: whole GiB from 1 GiB on, MiB below. 40960 MiB is printed as C(40G),
    1025 MiB as C(1G), 900 MiB as C(900M), no limit as nothing.
    """
    if mib <= 0:
        return ""
    return f"{mib // _MIB_PER_GIB}G" if mib >= _MIB_PER_GIB else f"{mib}M"


def limit(answer: str) -> str | None:
    """Return the limit in C(answer) as the daemon prints it, C("") for no limit, or None when the answer is no limit."""
    text = answer.strip()
    if not text:
        return ""
    return text if _LIMIT.fullmatch(text) else None


def limit_mib(answer: str) -> int | None:
    """Return the limit in C(answer) in whole MiB, 0 for no limit, or None when the answer is no limit."""
    text = answer.strip()
    if text.lower() in _NO_LIMIT:
        return 0
    match = _LIMIT.fullmatch(text)
    if match is None:
        return None
    number = int(match.group("number"))
    return {"G": number * _MIB_PER_GIB, "K": number // 1024}.get(match.group("unit"), number)


def rows(answer: str) -> list[list[str]]:
    """Return the rows of a list that was asked for as CSV without a header (protocol 3)."""
    return [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]


def refused(answer: str) -> str | None:
    """Return the daemon's words when C(answer) is a refusal or an error in spite of exit status 0, else None. A set command of a valid value answers
    with nothing or with the value. The misspelling is that of R550 and R580.
    """
    text = answer.strip()
    marks = (
        "Unknown command",
        "Insufficient privileges",
        "Not enough privilege",
        "not found",
        "Failed to",
        "Error:",
        "Invalid",
    )
    return text if any(mark in text for mark in marks) else None
