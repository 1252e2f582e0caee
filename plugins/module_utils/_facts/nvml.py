# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of the facts that NVML answers: read in a child process, which works while this one reads everything else."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
import traceback
from collections.abc import Sequence
from typing import Any, Callable

from .._adapters.files import HostFiles
from .._adapters.host_reader import HostReader
from .._formats.host_names import CONTAINER_FOLDERS, LIBRARY

#: Seconds for reading all GPUs. Eight GPUs without persistence mode take some seconds to wake up.
NVML_LIMIT = 60.0


def unavailable(code: str, reason: str) -> dict[str, Any]:
    """Return what L(begin_gpus) has in the end where NVML does not answer."""
    return {
        "nvml": {"available": False, "reason": reason, "code": code, "version": None, "cuda_version": None},
        "gpus": None,
        "fabric_state": None,
        "unknown": {"gpus": f"NVML does not answer: {reason}"},
    }


def begin_gpus(source: HostReader, archive: str | None, subsets: Sequence[str] = ()) -> Callable[[], dict[str, Any]]:
    """Start to read the GPUs, and return what waits for the parts C(nvml) and C(gpus) of the facts, and C(fabric_state)."""
    running = source.files if source.files.local else HostFiles()
    if library_path(running) is None and not os.environ.get("LD_LIBRARY_PATH"):
        # Without the library NVML cannot answer, and looking for pynvml would only cost time.
        return lambda: _noted(source, unavailable("library_not_found", f"{LIBRARY} is not installed"))

    def read() -> dict[str, Any]:
        # Only the child imports what speaks NVML.
        from .gpus import read_gpus

        return read_gpus(source, archive, subsets)

    answer = begin_isolated(read, NVML_LIMIT)

    def wait() -> dict[str, Any]:
        try:
            return _noted(source, answer())
        except Isolated as error:
            return _noted(source, unavailable("no_answer", f"Failed to read the GPUs through NVML: {error}"))

    return wait


def _noted(source: HostReader, answer: dict[str, Any]) -> dict[str, Any]:
    for path, reason in answer.pop("unknown").items():
        source.note(path, reason)
    return answer


_CACHED_LIBRARY = re.compile(rb"\0(/[^\0]*/libnvidia-ml\.so\.1)\0")
_LIBRARY_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
#: The directories of the dynamic linker on the supported systems, and where Debian and Ubuntu put alternatives.
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
)


def library_path(files: HostFiles) -> str | None:
    """Return the file that C(libnvidia-ml.so.1) stands for, or None where it is not installed. The host's own comes before a driver container's."""
    for folder in _LIBRARY_FOLDERS:
        target = files.resolve(f"{folder}/{LIBRARY}")
        if target is not None:
            return target
    # Anywhere else that the dynamic linker was told of. Its cache lists names and paths, each ended by a zero.
    cached = _CACHED_LIBRARY.search(files.read_bytes("/etc/ld.so.cache") or b"")
    paths = [cached.group(1).decode("utf-8", "replace")] if cached else []
    paths += [f"{folder}/{LIBRARY}" for folder in CONTAINER_FOLDERS]
    return next((target for target in map(files.resolve, paths) if target is not None), None)


def library_version(path: str) -> str | None:
    """Return the driver version that the library's file name carries, or None where it carries none."""
    match = _LIBRARY_VERSION.search(path)
    return match.group(1) if match else None


class Isolated(Exception):
    """The child did not answer; the message says how it ended."""


def begin_isolated(function: Callable[[], Any], limit: float) -> Callable[[], Any]:
    """Start C(function) in a child process, and return what waits for its answer, which JSON can carry. That raises L(Isolated) where the child hung,
    was killed, or C(function) raised an exception. C(limit): seconds from now after which the child is killed.
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
