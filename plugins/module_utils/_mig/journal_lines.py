# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines of the journal of MIG, without what they mean: whether a run is over can be told without the layouts in them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._formats.documents import read_json

JOURNAL_PATH = "/var/lib/gpufleet/mig-journal.jsonl"

#: How a run ends.
REACHED = "reached"
REBOOT_REQUIRED = "reboot_required"
RESTORED = "restored"
NOT_RESTORED = "not_restored"


def lines_of(text: str) -> list[Any]:
    """Return what the lines of a journal hold, up to the first that was not written whole."""
    lines = []
    for line in text.splitlines():
        try:
            lines.append(read_json(line))
        except ValueError:
            break
    return lines


def end_of(lines: Sequence[Any]) -> Mapping[str, Any]:
    """Return the line that says how the run ended; empty where it was cut off."""
    ends = [line for line in lines[1:] if isinstance(line, dict) and "outcome" in line]
    return ends[-1] if ends else {}


def is_followed(lines: Sequence[Any]) -> bool:
    """Whether everything that has to follow the change was done."""
    return any(isinstance(line, dict) and "followed" in line for line in lines[1:])


def is_unfinished(outcome: str | None) -> bool:
    """Whether a run was cut off, or ended without either layout."""
    return outcome in (None, NOT_RESTORED)


def is_over(lines: Sequence[Any]) -> bool:
    """Whether nothing of a run is still to be done: of the change, and of what follows it."""
    return not is_unfinished(end_of(lines).get("outcome")) and is_followed(lines)
