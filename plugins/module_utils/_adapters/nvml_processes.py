# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes on GPUs, through NVML, with their names from procfs."""

from __future__ import annotations

from typing import Any

from .files import read_text
from .nvml_library import FUNCTION_NOT_FOUND, NOT_SUPPORTED, Library, NvmlError
from .nvml_types import Process

#: What NVML says where a process is on no instance.
_NO_INSTANCE = 0xFFFFFFFF
_MIB = 1024 * 1024

# A client of MPS is in the list of compute processes as well: the later kind wins.
_KINDS = (
    ("C", "nvmlDeviceGetComputeRunningProcesses"),
    ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("M+C", "nvmlDeviceGetMPSComputeRunningProcesses"),
)


def processes(library: Library, device: Any) -> tuple[Process, ...]:
    """Return the processes on C(device), a GPU (with those on its instances) or a MIG device, by process id.

    :raises NvmlError: NVML does not tell of compute processes.
    """
    found: dict[tuple[int, int | None, int | None], Process] = {}
    for kind, name in _KINDS:
        for raw in _running(library, name, device, required=kind == "C"):
            gpu_instance = _instance(getattr(raw, "gpuInstanceId", None))
            compute_instance = _instance(getattr(raw, "computeInstanceId", None))
            memory = raw.usedGpuMemory
            found[(raw.pid, gpu_instance, compute_instance)] = Process(
                pid=raw.pid,
                name=read_text(f"/proc/{raw.pid}/comm"),
                memory_mib=None if memory is None else memory // _MIB,
                type=kind,
                gpu_instance=gpu_instance,
                compute_instance=compute_instance,
            )
    return tuple(sorted(found.values(), key=lambda p: (p.pid, p.gpu_instance or 0, p.compute_instance or 0)))


def _running(library: Library, name: str, device: Any, required: bool) -> list[Any]:
    for version in ("_v3", "_v2"):
        try:
            return list(library.call(name + version, device))
        except NvmlError as error:
            if error.code == FUNCTION_NOT_FOUND and version == "_v3":
                continue
            if required:
                raise
            if error.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                return []
            raise
    return []


def _instance(number: int | None) -> int | None:
    return None if number is None or number == _NO_INSTANCE else number
