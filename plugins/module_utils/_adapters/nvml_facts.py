# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A GPU that NVML read as an entry of C(gpus) of the facts document: the one form in which planners take it, and what it offers."""

from __future__ import annotations

from typing import Any

from .._boards.lookup import find_board
from .nvml_types import ComputeInstance, GpuInstance, GpuInstanceProfile, GpuState, Process


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


def unknown_of(gpu: GpuState) -> dict[str, str]:
    """Return the part of C(unknown) of the facts that is about a GPU: without a handle nothing of it is known but that the driver counts it."""
    path = f"gpus[{gpu.index}]"
    return {path if name == "handle" else f"{path}.{name}": reason for name, reason in gpu.unknown.items()}


def shape_profile(profile: GpuInstanceProfile) -> dict[str, Any]:
    """Return one entry of C(profiles) of a GPU. All places of a profile have one size; a driver that breaks that is believed about its first."""
    places = profile.placements or ()
    size = places[0].size if places else None
    return {
        "name": profile.name,
        "id": profile.id,
        "enum": profile.enum,
        "memory_mib": profile.memory_mib,
        "multiprocessors": profile.multiprocessors,
        "copy_engines": profile.copy_engines,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "jpeg": profile.jpeg,
        "ofa": profile.ofa,
        "max_instances": profile.max_instances,
        "remaining": profile.remaining,
        "starts": sorted({place.start for place in places if place.size == size}) if places else None,
        "size": size,
    }


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
        "multiprocessors": instance.multiprocessors,
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
