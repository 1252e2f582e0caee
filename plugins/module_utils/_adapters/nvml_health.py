# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVML knows about the soundness of a GPU: its fabric, the recovery that it needs, and the errors of its memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

from .nvml_gpus import Nvml
from .nvml_library import RECOVERY_ACTIONS, NvmlError

_FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
#: The newest structure first: version 3 came with branch 580.
_FABRIC_CALLS = (
    ("c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetGpuFabricInfoV"),
    ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
    ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
)
_FABRIC_SUMMARIES = {0: None, 1: "healthy", 2: "unhealthy", 3: "limited_capacity"}
#: C(NVML_GPU_FABRIC_HEALTH_MASK_*) of nvml.h: where a value is, and the ones that tell of something wrong. What
#: stands from bit 12 on, the partition and the connection to a global fabric manager, is not judged.
_FABRIC_HEALTH: tuple[tuple[int, int, Mapping[int, str]], ...] = (
    (0, 3, {1: "degraded_bandwidth"}),
    (2, 3, {1: "route_recovery"}),
    (4, 3, {1: "route_unhealthy"}),
    (6, 3, {1: "access_timeout_recovery"}),
)
_CONFIGURATION_SHIFT, _CONFIGURATION_WIDTH, _CONFIGURATION_RIGHT = 8, 15, 1
_CONFIGURATIONS = {
    2: "incorrect_system_guid",
    3: "incorrect_chassis_serial_number",
    4: "no_partition",
    5: "insufficient_nvlinks",
    6: "incompatible_gpu_firmware",
    7: "invalid_location",
    8: "invalid_gpu_state",
}
#: C(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION): a field, there is no function.
_RECOVERY_FIELD = 230
_UNCORRECTED = 1
_VOLATILE = 0


@dataclass(frozen=True)
class Fabric:
    """A GPU in its NVLink fabric.

    :param state: C(not_started), C(in_progress) or C(completed).
    :param status: NVML's error code of the registration, 0 for none; None before C(completed), when it means nothing.
    :param degraded: what is wrong, such as C(route_unhealthy); None where the driver does not tell.
    :param summary: C(healthy), C(unhealthy), C(limited_capacity), or C(unknown) for a value newer than these; None where the driver does not tell.
    :param clique: the GPUs that reach each other's memory over NVLink, in several hosts: the cluster's UUID and the number of the clique, as
        gpu-feature-discovery writes them into the label C(nvidia.com/gpu.clique); None on a fabric that is within the host.
    """

    state: str
    status: int | None = None
    degraded: tuple[str, ...] | None = None
    summary: str | None = None
    clique: str | None = None


@dataclass(frozen=True)
class MemoryErrors:
    """Errors of a GPU's memory; None where the board or the driver does not tell.

    :param remap_pending: rows (Ampere and newer) or pages (older) are replaced at the next reset of the GPU.
    :param uncorrected: double-bit errors since the driver was loaded.
    """

    remap_pending: bool | None
    remap_failed: bool | None
    uncorrected: int | None
    remapped_correctable: int | None
    remapped_uncorrectable: int | None


def fabric_of(nvml: Nvml, index: int) -> Fabric | None:
    """Return where a GPU stands in its NVLink fabric, or None for one that is on none. CUDA only starts on a GPU of a fabric once its state is
    C(completed) (host.md, section 6). Only newer drivers tell of its health.
    """
    for structure, call in _FABRIC_CALLS:
        kind = getattr(nvml.library.pynvml, structure, None)
        if kind is None:
            continue
        info = kind()
        try:
            nvml.call(call, index, ctypes.byref(info))
        except NvmlError:
            continue
        state = _FABRIC_STATES.get(int(info.state))
        if state is None:
            return None
        mask = getattr(info, "healthMask", None)
        return Fabric(
            state=state,
            status=int(info.status) if state == "completed" else None,
            degraded=None if mask is None else degraded_by(int(mask)),
            summary=_FABRIC_SUMMARIES.get(int(getattr(info, "healthSummary", 0)), "unknown"),
            clique=_clique(bytes(info.clusterUuid), int(info.cliqueId)) if state == "completed" else None,
        )
    return None


def _clique(cluster: bytes, clique: int) -> str | None:
    """A fabric within one host has a cluster of zeros."""
    digits = cluster.hex()
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return f"{uuid}.{clique}" if any(cluster) else None


def degraded_by(mask: int) -> tuple[str, ...]:
    found = []
    for shift, width, wrong in _FABRIC_HEALTH:
        value = mask >> shift & width
        if value in wrong:
            found.append(wrong[value])
    configuration = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_WIDTH
    if configuration > _CONFIGURATION_RIGHT:
        found.append(_CONFIGURATIONS.get(configuration, f"incorrect_configuration_{configuration}"))
    return tuple(found)


def recovery_action(nvml: Nvml, index: int) -> str | None:
    """Return what the driver asks for to bring a GPU back: one of L(RECOVERY_ACTIONS), or C(value_N) for one that is newer; None where nobody tells."""
    fields = nvml.told("nvmlDeviceGetFieldValues", index, [_RECOVERY_FIELD])
    if fields is None or fields[0].nvmlReturn != 0:
        return None
    value = int(fields[0].value.uiVal)
    return RECOVERY_ACTIONS[value] if value < len(RECOVERY_ACTIONS) else f"value_{value}"


def memory_errors(nvml: Nvml, index: int) -> MemoryErrors:
    rows = nvml.told("nvmlDeviceGetRemappedRows", index)
    correctable, uncorrectable, pending, failed = (None,) * 4 if rows is None else rows
    if pending is None:
        pending = nvml.told("nvmlDeviceGetRetiredPagesPendingStatus", index)
    return MemoryErrors(
        remap_pending=None if pending is None else bool(pending),
        remap_failed=None if failed is None else bool(failed),
        uncorrected=nvml.told("nvmlDeviceGetTotalEccErrors", index, _UNCORRECTED, _VOLATILE),
        remapped_correctable=correctable,
        remapped_uncorrectable=uncorrectable,
    )
