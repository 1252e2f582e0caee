# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Python in a process of its own, in which nothing is imported yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def printed(code: str) -> str:
    """Return what a program prints that can import the collection of this checkout."""
    path = os.pathsep.join(filter(None, (str(ROOT / "build" / "collections"), *sys.path)))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()
