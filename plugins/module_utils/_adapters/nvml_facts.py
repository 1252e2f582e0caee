# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A GPU that NVML read as an entry of C(gpus) of the facts document: the one form in which planners take it."""

from __future__ import annotations

from typing import Any

from .._boards.lookup import find_board
from .nvml_types import ComputeInstance, GpuInstance, GpuState, Process


def shape_gpu(gpu: GpuState) -> dict[str, Any]:
    """Return the entry of C(gpus)."""
    board = find_board(gpu.pci_device_id, gpu.name, gpu.memory_mib)
    shaped: dict[str, Any] = {
        "index": gpu.index,
        "minor": gpu.minor,
        "uuid": gpu.uuid,
        "pci_address": gpu.pci_address,
        "name": gpu.name,
        "board": board.key if board else None,
        "architecture": gpu.architecture or (board.architecture if board else None),
        "memory_mib": gpu.memory_mib,
        "compute_mode": gpu.compute_mode,
        "persistence_mode": gpu.persistence_mode,
        "mig": {"supported": gpu.mig.supported, "current": gpu.mig.current, "pending": gpu.mig.pending},
        "processes": None if gpu.processes is None else [_process(process) for process in gpu.processes],
        "gpu_instances": [_gpu_instance(instance) for instance in gpu.gpu_instances],
    }
    if gpu.lost:
        shaped["lost"] = True
    return shaped


def _gpu_instance(instance: GpuInstance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "profile": instance.profile,
        "profile_id": instance.profile_id,
        "start": instance.placement.start,
        "size": instance.placement.size,
        "memory_mib": instance.memory_mib,
        "processes": [_process(process) for process in instance.processes],
        "compute_instances": [_compute_instance(compute) for compute in instance.compute_instances],
    }


def _compute_instance(instance: ComputeInstance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "profile": instance.profile,
        "profile_id": instance.profile_id,
        "uuid": instance.uuid,
        "index": instance.index,
        "processes": [_process(process) for process in instance.processes],
    }


def _process(process: Process) -> dict[str, Any]:
    shaped: dict[str, Any] = {
        "pid": process.pid,
        "name": process.name,
        "memory_mib": process.memory_mib,
        "type": process.type,
    }
    if process.gpu_instance is not None:
        shaped["gpu_instance"] = process.gpu_instance
    return shaped
