# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person sees while the lab works: one line per event, with the seconds since the start."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HEARTBEAT_SECONDS = 15.0


class LabError(Exception):
    """The lab cannot do what was asked. The message names what was tried, the reason and the remedy."""


class Progress:
    """Prints lines with the elapsed time; safe to share between threads."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Print one line at once: pipes and CI logs must show progress while it happens."""
        with self._lock:
            sys.stdout.write(f"[{time.monotonic() - self._start:7.1f} s] {text}\n")
            sys.stdout.flush()

    @contextmanager
    def alive(self, what: str, log: Path | None = None) -> Iterator[None]:
        """Say every quarter of a minute that C(what) goes on, with the last line of its log."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_HEARTBEAT_SECONDS):
                last = _last_line(log) if log is not None else ""
                self.say(f"  {what} goes on" + (f": {last}" if last else ""))

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - 2000))
            lines = stream.read().decode(errors="replace").replace("\r", "\n").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:100] for line in reversed(lines) if line.strip()), "")
