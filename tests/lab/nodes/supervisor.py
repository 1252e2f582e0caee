# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps programs of a lab's cluster running, the control plane or Argo CD. TERM ends it with everything that it started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from hosts.paths import LabPaths

from .cluster import control_plane_of
from .control_plane import stop


def main(arguments: list[str]) -> int:
    """Run the control plane of the lab in the directory C(arguments[0])."""
    return keep(control_plane_of(LabPaths(Path(arguments[0]).name)).start)


def keep(start: Callable[[], list[subprocess.Popen[bytes]]]) -> int:
    """Run what C(start) starts until TERM; as soon as one of them ends, end all with status 1."""
    over = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal over
        over = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    processes = start()
    while not over:
        ended = next((process for process in processes if process.poll() is not None), None)
        if ended is not None:
            print(f"{time.strftime('%H:%M:%S')} {ended.args[0]} ended with status {ended.returncode}", flush=True)
            break
        time.sleep(0.2)
    stop(processes)
    return 0 if over else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
