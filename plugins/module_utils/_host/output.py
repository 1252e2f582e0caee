# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the host program says: to the journal of systemd, which reads its output."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Say something on standard output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def fail(text: str) -> None:
    """Say what went wrong on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
