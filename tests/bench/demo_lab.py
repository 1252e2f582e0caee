# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo's three lab hosts, for benchmarks that need hosts which are as they are described."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
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
    """

    seconds: float
    processor_seconds: float
    output: str


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


def timed(program: str, *arguments: str, **environment: str) -> Cost:
    """Run a program of the virtual environment.

    :raises RuntimeError: it failed.
    """
    command = [str(_BINARIES / program), *arguments]
    collections = str(REPOSITORY / "build" / "collections")
    settings = {"ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg")}
    started, before = time.monotonic(), _processor_seconds()
    done = subprocess.run(
        command, env={**os.environ, **settings, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return Cost(time.monotonic() - started, _processor_seconds() - before, done.stdout)


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
