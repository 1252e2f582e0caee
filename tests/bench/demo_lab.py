# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo's three lab hosts, for benchmarks that need hosts which are as they are described."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unavailable import Unavailable

REPOSITORY = Path(__file__).resolve().parents[2]
FLEET = REPOSITORY / "examples" / "fleet"
OUTPUT = REPOSITORY / "build" / "bench"
_BINARIES = Path(sys.executable).parent
_LAB = REPOSITORY / "tests" / "lab" / "lab"


@dataclass(frozen=True)
class Cost:
    """What a command cost.

    :param seconds: of the clock.
    :param processor_seconds: of all processes that it started and that have ended.
    :param output: what it printed.
    :param memory_mib: the most that all of its processes had at a time, in MiB, pages that they share counted once; 0 where it was not measured.
    """

    seconds: float
    processor_seconds: float
    output: str
    memory_mib: float = 0.0


@contextmanager
def demo_lab(name: str) -> Iterator[Path]:
    """Boot the hosts and give the path of their inventory, to be used beside C(FLEET).

    :raises Unavailable: this user cannot boot lab hosts.
    """
    if os.geteuid() != 0:
        raise Unavailable("it boots lab hosts and needs root: sudo make bench")
    subprocess.run([_LAB, "up", "--name", name], check=True, stdout=subprocess.DEVNULL)
    try:
        found = subprocess.run([_LAB, "inventory", "--name", name], check=True, capture_output=True, text=True)
        yield Path(found.stdout.strip())
    finally:
        subprocess.run([_LAB, "down", "--name", name], check=False, stdout=subprocess.DEVNULL)


def timed(program: str, *arguments: str, with_memory: bool = False, **environment: str) -> Cost:
    """Run a program of the virtual environment.

    :param with_memory: whether its memory is measured, twice a second.
    :raises RuntimeError: it failed.
    """
    command = [str(_BINARIES / program), *arguments]
    collections = str(REPOSITORY / "build" / "collections")
    settings = {"ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg")}
    started, before = time.monotonic(), _processor_seconds()
    process = subprocess.Popen(
        command,
        env={**os.environ, **settings, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    most = [0.0]
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, most, ended), daemon=True)
    if with_memory:
        watcher.start()
    output, errors = process.communicate()
    ended.set()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{output}\n{errors}")
    return Cost(time.monotonic() - started, _processor_seconds() - before, output, most[0])


def _watch(pid: int, most: list[float], ended: threading.Event) -> None:
    # At once, and often enough for a run of a few seconds.
    while True:
        most[0] = max(most[0], _memory_mib(pid))
        if ended.wait(0.5):
            return


def _memory_mib(pid: int) -> float:
    """Return the memory of a process and of all that it started: proportional set sizes, so that what is shared is counted once."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return 0.0
    own = next((int(line.split()[1]) / 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0.0)
    return own + sum(_memory_mib(int(child)) for child in children)


def nothing_changed(output: str) -> None:
    """Hold a run against its recap.

    :raises RuntimeError: a host was changed, so that this is no measure of a run without work.
    """
    recap = [line for line in output.partition("PLAY RECAP")[2].splitlines() if "changed=" in line]
    if not recap or any("changed=0 " not in line for line in recap):
        raise RuntimeError(f"the run changed something, so this is no measure of a run without work:\n{output}")


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
