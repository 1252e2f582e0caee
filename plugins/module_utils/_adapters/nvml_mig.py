# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change GPUs through NVML: MIG mode, instances, compute mode, persistence. Every function is one change.

Nothing here decides: what is changed, and in which order, is in the plan. A return is not a proof: callers read back.
"""

from __future__ import annotations

import ctypes

from .nvml import Nvml
from .nvml_library import IN_USE, RESET_REQUIRED

#: What L(set_mig_mode) answers.
ACTIVE = "active"
PENDING_IN_USE = "in_use"
PENDING_RESET = "reset_required"

COMPUTE_MODES = {"default": 0, "prohibited": 2, "exclusive_process": 3}


def set_mig_mode(nvml: Nvml, index: int, enabled: bool) -> str:
    """Ask for MIG mode C(enabled) on one GPU.

    The call succeeds even when the mode does not change yet: the activation status tells the truth.

    :returns: C(active), C(in_use) (somebody holds the GPU) or C(reset_required), or the error's name.
    :raises NvmlError: the driver refused.
    """
    status = int(nvml.library.call("nvmlDeviceSetMigMode", nvml.device(index), int(enabled)))
    return {0: ACTIVE, IN_USE: PENDING_IN_USE, RESET_REQUIRED: PENDING_RESET}.get(status, f"status {status}")


def create_gpu_instance(nvml: Nvml, index: int, profile_id: int, start: int, size: int) -> int:
    """Make a GPU instance at a place and return its id.

    :raises NvmlError: the place is taken (INSUFFICIENT_RESOURCES), or the driver refused otherwise.
    """
    place = nvml.library.pynvml.c_nvmlGpuInstancePlacement_t()
    place.start, place.size = start, size
    handle = nvml.library.call(
        "nvmlDeviceCreateGpuInstanceWithPlacement", nvml.device(index), profile_id, ctypes.byref(place)
    )
    return int(nvml.library.call("nvmlGpuInstanceGetInfo", handle).id)


def create_compute_instance(nvml: Nvml, index: int, gpu_instance_id: int, profile_id: int) -> int:
    """Make a compute instance inside a GPU instance, where the driver puts it, and return its id.

    :raises NvmlError: the driver refused.
    """
    parent = nvml.gpu_instance_handle(index, gpu_instance_id)
    handle = nvml.library.call("nvmlGpuInstanceCreateComputeInstance", parent, profile_id)
    return int(nvml.library.call("nvmlComputeInstanceGetInfo", handle).id)


def destroy_compute_instance(nvml: Nvml, index: int, gpu_instance_id: int, compute_instance_id: int) -> None:
    """Destroy one compute instance.

    :raises NvmlError: a process is on it (IN_USE), it is gone (NOT_FOUND), or the driver refused otherwise.
    """
    parent = nvml.gpu_instance_handle(index, gpu_instance_id)
    handle = nvml.library.call("nvmlGpuInstanceGetComputeInstanceById", parent, compute_instance_id)
    nvml.library.call("nvmlComputeInstanceDestroy", handle)


def destroy_gpu_instance(nvml: Nvml, index: int, gpu_instance_id: int) -> None:
    """Destroy one GPU instance, which must hold no compute instance.

    :raises NvmlError: it holds one (IN_USE), it is gone (NOT_FOUND), or the driver refused otherwise.
    """
    nvml.library.call("nvmlGpuInstanceDestroy", nvml.gpu_instance_handle(index, gpu_instance_id))


def set_compute_mode(nvml: Nvml, index: int, mode: str) -> None:
    """Set the compute mode: C(default), C(prohibited) or C(exclusive_process).

    :raises NvmlError: the driver refused.
    """
    nvml.library.call("nvmlDeviceSetComputeMode", nvml.device(index), COMPUTE_MODES[mode])
