# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a reading function in a child process, so that what it calls can neither hang nor kill the caller.

NVML is a library of the driver: with a GPU that fell off the bus, or a driver that is going away, a call may never
return, or end the process. Facts are needed most just then.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from typing import Any, Callable


class Isolated(Exception):
    """The child did not answer; the message says how it ended."""


def begin_isolated(function: Callable[[], Any], limit: float) -> Callable[[], Any]:
    """Start C(function) in a child process, and return what waits for its answer, which JSON can carry. That raises L(Isolated) where the child
    hung, was killed, or C(function) raised an exception.

    :param limit: seconds from now after which the child is killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(function, writer)
    os.close(writer)
    deadline = time.monotonic() + limit
    return lambda: _wait(child, reader, deadline, limit)


def _wait(child: int, reader: int, deadline: float, limit: float) -> Any:
    try:
        raw = _read_all(reader, deadline)
    finally:
        os.close(reader)
    if raw is None:
        os.kill(child, signal.SIGKILL)
        # A process that hangs inside the kernel does not even die now: it is not waited for.
        _reap(child, 1.0)
        raise Isolated(f"no answer within {limit:g} s")
    status = _reap(child, 5.0)
    if not raw:
        raise Isolated(_how_it_ended(status))
    answer = json.loads(raw)
    if "error" in answer:
        raise Isolated(answer["error"])
    return answer["value"]


def _answer(function: Callable[[], Any], writer: int) -> None:
    """Write the function's result and end the process without running any of the caller's clean-up."""
    code = 1
    try:
        try:
            answer = {"value": function()}
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            answer = {"error": f"{type(error).__name__}: {error} ({os.path.basename(last.filename)}:{last.lineno})"}
        view = memoryview(json.dumps(answer).encode())
        while view:
            view = view[os.write(writer, view) :]
        code = 0
    finally:
        os._exit(code)


def _read_all(reader: int, deadline: float) -> bytes | None:
    parts: list[bytes] = []
    while True:
        ready, _writable, _exceptional = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(reader, 65536)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _reap(child: int, limit: float) -> int | None:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.005)
    return None


def _how_it_ended(status: int | None) -> str:
    if status is not None and os.WIFSIGNALED(status):
        return f"the NVML library killed its caller ({signal.Signals(os.WTERMSIG(status)).name})"
    return "the NVML library ended its caller"
