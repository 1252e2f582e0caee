# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The journal of a change of MIG: written before the first destruction, closed when the change is over.

It is a file of JSON lines. The first says what is intended and how every GPU was before; then comes a line for every
step, before it is taken; the last says how it ended. Every line is on the disk before the next thing happens. A line
that was cut off by a power loss is not there. A journal without an end is that of a run that was cut off.

The journal is never needed to reach the desired state again (the plan is made from the present state), only to bring the
former layout back where the desired state cannot be reached, to start the services again that a run had stopped when it was cut
off, and to report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._adapters.files import read_text, write_whole
from .._records import GPUS, REQUEST, GpuRecord
from .._schema import has, if_it_fits, items, needs, of, taken, text
from .journal_lines import JOURNAL_PATH, end_of, is_followed, is_unfinished, lines_of


@dataclass(frozen=True)
class Entry:
    """What a journal says.

    :param started: UTC, ISO 8601.
    :param boot_id: of the boot in which the run began.
    :param outcome: how it ended, or None when the run was cut off.
    :param services: the services that ran before and that the run stops or restarts.
    :param followed: whether everything that has to follow the change was done, those services included.
    """

    # Without what was there before there is nothing to come back to. What else does not fit is no reason to lose that.
    previous: tuple[GpuRecord, ...] = needs(GPUS)
    started: str = has(if_it_fits(text(256)), "")
    boot_id: str = has(if_it_fits(text(64)), "")
    program: str = has(if_it_fits(text(256)), "")
    request: Mapping[str, Any] | None = has(REQUEST)
    services: tuple[str, ...] = has(if_it_fits(items(text(256))), ())
    steps: tuple[str, ...] = ()
    outcome: str | None = None
    message: str = ""
    followed: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether the run was cut off, or ended without either layout."""
        return is_unfinished(self.outcome)

    @property
    def open(self) -> bool:
        """Whether a part of the run is still to be done: of the change, or of what follows it."""
        return self.unfinished or not self.followed

    def owed(self, boot_id: str) -> tuple[str, ...]:
        """Return the services that still have to be started or restarted. C(boot_id): of the present boot: a boot starts services by itself."""
        return self.services if not self.followed and self.boot_id == boot_id else ()

    def intention(self) -> dict[str, Any]:
        """Return what is known before the run begins, without the layout that there was."""
        return {
            "started": self.started,
            "boot_id": self.boot_id,
            "program": self.program,
            "request": dict(self.request or {}),
            "services": list(self.services),
        }

    def as_dict(self) -> dict[str, Any]:
        return {**self.intention(), "steps": list(self.steps), "outcome": self.outcome, "message": self.message}


_BEGUN = of(Entry)


def parse(text: str) -> Entry | None:
    """Return what the text of a journal says; None where it does not even hold a whole first line."""
    lines = lines_of(text)
    begun: Entry | None = taken(_BEGUN, lines[0]) if lines else None
    if begun is None:
        return None
    said = [line for line in lines[1:] if isinstance(line, dict)]
    end = end_of(lines)
    return replace(
        begun,
        steps=tuple(str(line["step"]) for line in said if "step" in line),
        outcome=str(end["outcome"]) if end else None,
        message=str(end.get("message", "")),
        followed=is_followed(lines),
    )


class Journal:
    """The journal file of a host."""

    def __init__(self, path: str = JOURNAL_PATH) -> None:
        self.path = path

    def last(self) -> Entry | None:
        """Return the last run's entry, or None where there was none."""
        text = read_text(self.path, links=False)
        return None if text is None else parse(text)

    def begin(self, entry: Entry) -> None:
        """Replace the journal by one that says what is about to happen. It is on the disk on return."""
        head = {**entry.intention(), "previous": [gpu.as_dict() for gpu in entry.previous]}
        write_whole(self.path, _line(head), mode=0o600)

    def step(self, words: str) -> None:
        """Say that a step is about to be taken. It is on the disk on return."""
        self._append({"step": words})

    def end(self, outcome: str, message: str = "") -> None:
        """Say how the run ended. It is on the disk on return."""
        self._append({"outcome": outcome, "message": message})

    def followed(self) -> None:
        """Say that everything that has to follow the change was done. It is on the disk on return."""
        self._append({"followed": True})

    def _append(self, item: Mapping[str, Any]) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.write(descriptor, _line(item).encode())
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def previous_layout(last: Entry | None, present: Sequence[GpuRecord]) -> tuple[GpuRecord, ...]:
    """Return the layout to come back to if this run fails: what is there now, or, after a run that was cut off, what was there before that one began."""
    if last is None or not last.unfinished:
        return tuple(present)
    return last.previous


def _line(item: Mapping[str, Any]) -> str:
    return json.dumps(item, sort_keys=True) + "\n"
