# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control group per lab host: two systemds in one group would end each other's services."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_PREFIX = "gpufleet-lab-"
_EMPTY_WITHIN = 20.0


def _hierarchies() -> list[Path]:
    """Where processes are tracked: the unified hierarchy and, on older layouts, the one named systemd."""
    found: list[Path] = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        mount_point = Path(left.split()[4])
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            found.append(mount_point)
    return found


def enter_own_cgroup(machine: str) -> None:
    """Move the calling process into the group of C(machine), made if needed."""
    for hierarchy in _hierarchies():
        group = hierarchy / f"{_PREFIX}{machine}"
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def remove_cgroup(machine: str) -> None:
    """Remove the group of C(machine) with the groups below it, as soon as the last process of the host has ended."""
    until = time.monotonic() + _EMPTY_WITHIN
    for hierarchy in _hierarchies():
        top = hierarchy / f"{_PREFIX}{machine}"
        while True:
            for directory, _names, _files in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()
            if not top.exists() or time.monotonic() > until:
                break
            # A killed process is in its group until the kernel is done with it.
            time.sleep(0.05)
