# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock that everything which changes GPUs of a host holds, so that two runs never interleave.

It is a lock of the kernel on an open file: it ends with its holder, however that ends. Whoever can open a file can lock it, so only root
can open this one.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .._formats.numbers import whole_number
from .._plan import Refused
from .files import read_text

LOCK_PATH = "/run/gpufleet/lock"
_POLL_SECONDS = 0.1


class Locked(Refused):
    """Somebody else is changing the GPUs of this host. C(holder): process id of who holds the lock; None when it does not say."""

    def __init__(self, path: str, holder: int | None, program: str | None, waited: float) -> None:
        self.path = path
        self.holder = holder
        who = "another process" if holder is None else f"process {holder}"
        name = f" ({program})" if program else ""
        super().__init__(
            f"the lock {path}",
            f"{who}{name} is changing the GPUs of this host and did not finish within {waited:g} s",
            "Wait for it and run again, or raise lock_timeout.",
        )


@contextmanager
def exclusive(timeout: float, path: str = LOCK_PATH) -> Iterator[None]:
    """Hold the lock for the block. Raises Locked: another process still holds it after C(timeout)."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _wait(descriptor, path, timeout)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: str, timeout: float) -> None:
    end = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                holder = whole_number(read_text(path))
                program = read_text(f"/proc/{holder}/comm") if holder else None
                raise Locked(path, holder, program, timeout) from None
        time.sleep(min(_POLL_SECONDS, max(0.0, end - time.monotonic())))
