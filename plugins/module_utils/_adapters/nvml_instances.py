# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read MIG through NVML: the profiles that the driver offers, and the instances that exist."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping
from typing import Any

from .nvml_library import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    ComputeInstanceProfile,
    Library,
    NvmlError,
    Process,
)

# NVML fills arrays that its caller allocates. No board has more places or instances than this, and the count that
# a profile claims for itself is wrong on some boards.
_ROOM = 64

_ABSENT = (NOT_SUPPORTED, INVALID_ARGUMENT, NOT_FOUND)

#: What the index of a profile says about its attributes, for drivers that do not name their profiles.
_ATTRIBUTES = {0x7: "+me", 0x8: "+me", 0xA: "+gfx", 0xB: "+gfx", 0xC: "+gfx", 0xD: "-me", 0xE: "-me"}
_ATTRIBUTES.update({0xF: "+me.all", 0x10: "+me.all", 0x11: "+gfx"})


Facts = dict[str, Any]


def gpu_instance_profiles(library: Library, device: Any, total_memory_mib: int | None) -> tuple[Facts, ...]:
    """Return the GPU instance profiles that the driver offers on C(device), as entries of C(profiles) of the facts, in NVML's order, without places.
    C(total_memory_mib): of the GPU; names the profiles where the driver does not.
    """
    found = []
    for enum in range(library.constant("NVML_GPU_INSTANCE_PROFILE_COUNT", 0x12)):
        info = _profile_info(library, "nvmlDeviceGetGpuInstanceProfileInfo", device, enum)
        if info is None:
            continue
        found.append(
            {
                "name": _driver_name(info)
                or _computed_name(enum, info.sliceCount, info.memorySizeMB, total_memory_mib),
                "enum": enum,
                "id": info.id,
                "slices": info.sliceCount,
                "max_instances": info.instanceCount,
                "memory_mib": info.memorySizeMB,
                "multiprocessors": info.multiprocessorCount,
                "copy_engines": info.copyEngineCount,
                "decoders": info.decoderCount,
                "encoders": info.encoderCount,
                "jpeg": info.jpegCount,
                "ofa": info.ofaCount,
            }
        )
    return tuple(found)


def with_places(library: Library, device: Any, profiles: Iterable[Facts], remaining: bool) -> list[Facts]:
    """Return profiles with the places that they can take on an empty GPU, C(starts) and C(size), where the driver tells them. C(remaining): also ask
    how many more of each can be made now.
    """
    call = "nvmlDeviceGetGpuInstanceRemainingCapacity"
    return [
        {
            **profile,
            **_places(library, device, profile["id"]),
            "remaining": _number(library, call, device, profile["id"]) if remaining else None,
        }
        for profile in profiles
    ]


def compute_instance_profiles(
    library: Library, gpu_instance: Any, name: str, slices: int, remaining: bool
) -> tuple[ComputeInstanceProfile, ...]:
    """Return the compute instance profiles that the driver offers inside one GPU instance, which is of the profile C(name) with C(slices)."""
    found = []
    for enum in range(library.constant("NVML_COMPUTE_INSTANCE_PROFILE_COUNT", 0x9)):
        for engines in range(library.constant("NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT", 0x1)):
            call = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
            info = _profile_info(library, call, gpu_instance, enum, engines)
            if info is None:
                continue
            capacity = "nvmlGpuInstanceGetComputeInstanceRemainingCapacity"
            found.append(
                ComputeInstanceProfile(
                    enum=enum,
                    id=info.id,
                    name=name if info.sliceCount == slices else f"{info.sliceCount}c.{name}",
                    slices=info.sliceCount,
                    max_instances=info.instanceCount,
                    multiprocessors=info.multiprocessorCount,
                    remaining=_number(library, capacity, gpu_instance, info.id) if remaining else None,
                )
            )
    return tuple(found)


def gpu_instances(
    library: Library,
    device: Any,
    profiles: Iterable[Facts],
    processes: tuple[Process, ...],
) -> list[Facts]:
    """Return the GPU instances of C(device) with their compute instances and the processes on them, as the facts have them, by place on the grid."""
    uuids = _mig_devices(library, device)
    found = []
    for profile in profiles:
        offered: tuple[ComputeInstanceProfile, ...] | None = None
        kind = library.pynvml.c_nvmlGpuInstance_t
        for handle in _handles(library, "nvmlDeviceGetGpuInstances", kind, device, profile["id"]):
            if offered is None:
                # GPU instances of one profile offer the same: most of all calls of a GPU with instances would be for this.
                offered = compute_instance_profiles(
                    library, handle, profile["name"], profile["slices"], remaining=False
                )
            info = library.call("nvmlGpuInstanceGetInfo", handle)
            mine = tuple(process for process in processes if process.gpu_instance == info.id)
            found.append(
                {
                    "id": info.id,
                    "profile": profile["name"],
                    "profile_id": profile["id"],
                    "start": info.placement.start,
                    "size": info.placement.size,
                    "memory_mib": profile["memory_mib"],
                    "processes": [process.facts for process in mine],
                    "compute_instances": _compute_instances(library, handle, info.id, offered, uuids, mine),
                }
            )
    return sorted(found, key=lambda instance: (instance["start"], instance["id"]))


def _handles(library: Library, call: str, kind: Any, owner: Any, profile_id: int) -> list[Any]:
    """Return NVML's handles of the instances of one profile on a GPU, or inside a GPU instance."""
    handles = (kind * _ROOM)()
    count = ctypes.c_uint(_ROOM)
    library.call(call, owner, profile_id, handles, ctypes.byref(count))
    return [handles[index] for index in range(min(count.value, _ROOM))]


def _compute_instances(
    library: Library,
    gpu_instance: Any,
    gpu_instance_id: int,
    profiles: tuple[ComputeInstanceProfile, ...],
    uuids: Mapping[tuple[int, int], tuple[int, str]],
    processes: tuple[Process, ...],
) -> list[Facts]:
    found = []
    for offered in profiles:
        kind = library.pynvml.c_nvmlComputeInstance_t
        for handle in _handles(library, "nvmlGpuInstanceGetComputeInstances", kind, gpu_instance, offered.id):
            info = library.call("nvmlComputeInstanceGetInfo", handle)
            index, uuid = uuids.get((gpu_instance_id, info.id), (None, None))
            found.append(
                {
                    "id": info.id,
                    "profile": offered.name,
                    "profile_id": offered.id,
                    "multiprocessors": offered.multiprocessors,
                    "uuid": uuid,
                    "index": index,
                    "processes": [process.facts for process in processes if process.compute_instance == info.id],
                }
            )
    return sorted(found, key=lambda instance: int(instance["id"]))


def mig_device_handles(library: Library, device: Any) -> list[tuple[int, Any]]:
    """Return index and handle of the MIG devices (compute instances) of C(device); the index can have holes."""
    found = []
    for index in range(int(library.call("nvmlDeviceGetMaxMigDeviceCount", device))):
        try:
            found.append((index, library.call("nvmlDeviceGetMigDeviceHandleByIndex", device, index)))
        except NvmlError as error:
            if error.code not in _ABSENT:
                raise
    return found


def _mig_devices(library: Library, device: Any) -> dict[tuple[int, int], tuple[int, str]]:
    """Return index and UUID of the MIG devices, by the ids of their GPU instance and compute instance."""
    return {
        (
            library.call("nvmlDeviceGetGpuInstanceId", handle),
            library.call("nvmlDeviceGetComputeInstanceId", handle),
        ): (index, library.call("nvmlDeviceGetUUID", handle))
        for index, handle in mig_device_handles(library, device)
    }


def _profile_info(library: Library, name: str, *arguments: Any) -> Any | None:
    """Return a profile's structure, version 2 where the driver has it, or None where the profile does not exist."""
    for version in (2, 1):
        try:
            return library.call(name, *arguments, version=version)
        except NvmlError as error:
            if error.code in _ABSENT:
                return None
            if error.symbol not in ("FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH") or version == 1:
                raise
    return None


def _places(library: Library, device: Any, profile_id: int) -> Facts:
    """All places of a profile have one size; a driver that breaks that is believed about the size of its first."""
    places = (library.pynvml.c_nvmlGpuInstancePlacement_t * _ROOM)()
    count = ctypes.c_uint(_ROOM)
    call = "nvmlDeviceGetGpuInstancePossiblePlacements"
    try:
        library.call(call, device, profile_id, places, ctypes.byref(count))
    except NvmlError:
        # Older drivers do not tell while MIG is off; callers have the table of boards.
        return {"starts": None, "size": None}
    found = sorted((place.start, place.size) for place in places[: count.value])
    size = found[0][1] if found else None
    return {"starts": sorted({start for start, other in found if other == size}) if found else None, "size": size}


def _number(library: Library, name: str, owner: Any, profile_id: int) -> int | None:
    try:
        return int(library.call(name, owner, profile_id))
    except NvmlError:
        return None


def _driver_name(info: Any) -> str | None:
    raw = getattr(info, "name", b"")
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    text = text.strip()
    return (text[len("MIG ") :] if text.startswith("MIG ") else text) or None


def _computed_name(enum: int, slices: int, memory_mib: int, total_memory_mib: int | None) -> str:
    """Name a profile as NVIDIA's tools do for drivers that do not: memory in eighths of the GPU's, in whole GiB."""
    if not total_memory_mib:
        return f"{slices}g.{round(memory_mib / 1024)}gb{_ATTRIBUTES.get(enum, '')}"
    eighths = math.ceil(memory_mib / total_memory_mib * 8) / 8
    return f"{slices}g.{math.floor(eighths * math.ceil(total_memory_mib / 1024) + 0.5)}gb{_ATTRIBUTES.get(enum, '')}"
