# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reset of one GPU by nvidia-smi, and the end of processes that use one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence

from . import locked_clocks
from .command import CommandError, Result, run
from .files import read_text

_RESET_SECONDS = 180.0


def reset_gpu(pci_address: str) -> str:
    """Reset one GPU, and no other, and return what nvidia-smi said, or why it did not run. That is no proof: callers read the state back."""
    try:
        answer = reset_gpus([pci_address])
    except CommandError as error:
        return str(error)
    return " ".join((answer.stdout + " " + answer.stderr).split()) or f"exit status {answer.rc}"


def reset_gpus(names: Sequence[str]) -> Result:
    """Reset several GPUs in one command, as those have to be that are reset together. The answer is not a proof.

    The locks of their clocks end with it, so that they are not taken for set any more.

    :param names: their UUIDs or PCI addresses.
    :raises CommandError: nvidia-smi is missing or does not come back.
    """
    locked_clocks.forget()
    return run(["nvidia-smi", "-r", "-i", ",".join(names)], timeout=_RESET_SECONDS * len(names))


def terminate(pids: Iterable[int], grace: float = 10.0) -> tuple[int, ...]:
    """End processes, politely for C(grace) seconds and then not; return those that are still there.

    :param pids: exactly these, which the caller took from the driver's list of processes on an instance.
    """
    wanted = tuple(sorted(set(pids)))
    left = _signal(wanted, signal.SIGTERM)
    end = time.monotonic() + grace
    while left and time.monotonic() < end:
        time.sleep(0.1)
        left = _alive(left)
    left = _signal(left, signal.SIGKILL)
    end = time.monotonic() + 5.0
    while left and time.monotonic() < end:
        time.sleep(0.1)
        left = _alive(left)
    return left


def _signal(pids: tuple[int, ...], number: signal.Signals) -> tuple[int, ...]:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return _alive(pids)


def _alive(pids: tuple[int, ...]) -> tuple[int, ...]:
    """Return those that still run; a zombie holds no GPU any more."""
    states = {pid: (read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split() for pid in pids}
    return tuple(pid for pid, fields in states.items() if fields and fields[0] not in ("Z", "X"))
