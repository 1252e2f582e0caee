# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person sees while the lab works: one line per event, with the seconds since the start."""

from __future__ import annotations

import sys
import threading
import time


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
