# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a module's time is spent on, by the programs and the driver that it waits for: package managers tell it in no way that they have in common."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence

from .files import list_directory, read_text

#: What a moment is spent on: a download, a build of kernel modules, other work of a package manager, other programs, the driver (NVML), the module
#: itself.
DOWNLOAD, BUILD, PACKAGES, PROGRAMS, NVML, OWN = "download", "build", "packages", "programs", "nvml", "own"
#: apt has a program for each way to fetch a file, which ends with the download. dnf and zypper fetch files themselves: part of L(PACKAGES).
_APT_METHODS = "/usr/lib/apt/methods/"
_BUILDERS = frozenset({"dkms"})
_PACKAGE_MANAGERS = frozenset(
    {"apt-get", "apt-cache", "apt-mark", "dpkg", "dpkg-query", "dnf", "dnf-3", "dnf5", "yum", "rpm", "zypper"}
)
_PYNVML = "pynvml"
#: Seconds between two looks.
_PAUSE = 0.1


def activity(programs: Sequence[str], in_driver: bool = False) -> str:
    """Return what a moment is spent on, by names or paths of what runs on behalf of the module, and whether it waits for an answer of the driver."""
    names = {os.path.basename(program) for program in programs}
    if names & _BUILDERS:
        return BUILD
    if any(program.startswith(_APT_METHODS) for program in programs):
        return DOWNLOAD
    if names & _PACKAGE_MANAGERS:
        return PACKAGES
    if programs:
        return PROGRAMS
    return NVML if in_driver else OWN


class Stopwatch:
    """Looks ten times a second at the processes below this one and at its threads, for as long as it is entered. What the process did before,
    Python's start and imports, is the module's own.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {OWN: _age()}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def seconds(self) -> dict[str, float]:
        """Return the seconds spent so far, by what they were spent on; of what took none there is nothing."""
        rounded = {name: round(seconds, 1) for name, seconds in self._seconds.items()}
        return {name: seconds for name, seconds in rounded.items() if seconds}

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(_PAUSE):
            # A thread is inside a call of NVML where its innermost function is one of pynvml's, which wait for the library.
            frames = sys._current_frames().values()
            in_driver = any(frame.f_globals.get("__name__") == _PYNVML for frame in frames)
            found = activity(_programs(os.getpid()), in_driver)
            now = time.monotonic()
            self._seconds[found] = self._seconds.get(found, 0.0) + now - last
            last = now
        # The rest, of which nobody knows.
        self._seconds[OWN] += time.monotonic() - last


def since_start() -> dict[str, float]:
    """Return the seconds since this process began, all as the module's own: for modules that take less time than a few looks of a L(Stopwatch)."""
    return {OWN: round(_age(), 1)}


def _age() -> float:
    """Return the seconds since this process began; none where the kernel does not say it."""
    fields = (read_text("/proc/self/stat") or "").rpartition(")")[2].split()
    # proc(5): starttime, since the system was booted, is the 22nd field of stat, the 20th after the name.
    if len(fields) < 20:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def _programs(pid: int) -> list[str]:
    """Return the names of the processes below a process, and the first argument of each; empty where the kernel does not list children."""
    found: list[str] = []
    for task in list_directory(f"/proc/{pid}/task"):
        for child in (read_text(f"/proc/{pid}/task/{task}/children") or "").split():
            arguments = (read_text(f"/proc/{child}/cmdline") or "").split("\0")
            found += [(read_text(f"/proc/{child}/comm") or "").strip(), arguments[0], *_programs(int(child))]
    return [program for program in found if program]
