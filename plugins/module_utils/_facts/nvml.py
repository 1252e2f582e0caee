# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of the facts that NVML answers: read in a child process, which works while this one reads everything else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable

from .._adapters.files import HostFiles
from .._adapters.host_reader import HostReader
from .isolated import Isolated, begin_isolated
from .library import LIBRARY, library_path

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
    """Start to read the GPUs, and return what waits for the parts C(nvml) and C(gpus) of the facts, and C(fabric_state).

    :param archive: a zip file with pynvml that was sent for this call.
    :param subsets: as L(gpus.read_gpus) has them.
    """
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
