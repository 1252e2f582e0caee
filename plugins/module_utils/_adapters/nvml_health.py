# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVML knows about the soundness of a GPU: its fabric, the recovery that it needs, and the errors of its memory."""

from __future__ import annotations

import ctypes
from typing import Any
from uuid import UUID

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
#: C(NVML_GPU_FABRIC_HEALTH_MASK_*) of nvml.h: at which bit the two begin that tell of it, and which of their values does. What stands from bit 12
#: on, the partition and the connection to a global fabric manager, is not judged.
_FABRIC_HEALTH = {0: "degraded_bandwidth", 2: "route_recovery", 4: "route_unhealthy", 6: "access_timeout_recovery"}
_HEALTH_WIDTH, _HEALTH_WRONG = 3, 1
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


def fabric_of(nvml: Nvml, index: int) -> dict[str, Any] | None:
    """Return C(fabric) of a GPU in the facts, where it stands in its NVLink fabric, or None for one that is on none. CUDA only starts on a GPU of a
    fabric once its state is C(completed) (host.md, section 6). Only newer drivers tell of its health.

    C(status): NVML's error code of the registration, 0 for none; before C(completed) it means nothing. C(clique): the GPUs that reach each other's
    memory over NVLink, in several hosts: the cluster's UUID and the number of the clique, as gpu-feature-discovery writes them into the label
    C(nvidia.com/gpu.clique); None on a fabric that is within the host.
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
        return {
            "state": state,
            "status": int(info.status) if state == "completed" else None,
            "degraded": None if mask is None else degraded_by(int(mask)),
            "summary": _FABRIC_SUMMARIES.get(int(getattr(info, "healthSummary", 0)), "unknown"),
            "clique": _clique(bytes(info.clusterUuid), int(info.cliqueId)) if state == "completed" else None,
        }
    return None


def _clique(cluster: bytes, clique: int) -> str | None:
    """A fabric within one host has a cluster of zeros."""
    return f"{UUID(bytes=cluster)}.{clique}" if any(cluster) else None


def degraded_by(mask: int) -> list[str]:
    """Return what is wrong with a GPU on its fabric, such as C(route_unhealthy)."""
    found = [wrong for shift, wrong in _FABRIC_HEALTH.items() if mask >> shift & _HEALTH_WIDTH == _HEALTH_WRONG]
    configuration = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_WIDTH
    if configuration > _CONFIGURATION_RIGHT:
        found.append(_CONFIGURATIONS.get(configuration, f"incorrect_configuration_{configuration}"))
    return found


def recovery_action(nvml: Nvml, index: int) -> str | None:
    """Return what the driver asks for to bring a GPU back: one of L(RECOVERY_ACTIONS), or C(value_N) for one that is newer; None where nobody tells."""
    fields = nvml.told("nvmlDeviceGetFieldValues", index, [_RECOVERY_FIELD])
    if fields is None or fields[0].nvmlReturn != 0:
        return None
    value = int(fields[0].value.uiVal)
    return RECOVERY_ACTIONS[value] if value < len(RECOVERY_ACTIONS) else f"value_{value}"


def memory_errors(nvml: Nvml, index: int) -> dict[str, Any]:
    """Return C(errors) of a GPU in the facts: whether rows (Ampere and newer) or pages (older) are replaced at its next reset, whether one could not
    be, what was replaced, and the double-bit errors since the driver was loaded; None for what the board or the driver does not tell.
    """
    rows = nvml.told("nvmlDeviceGetRemappedRows", index)
    correctable, uncorrectable, pending, failed = (None,) * 4 if rows is None else rows
    if pending is None:
        pending = nvml.told("nvmlDeviceGetRetiredPagesPendingStatus", index)
    return {
        "remap_pending": None if pending is None else bool(pending),
        "remap_failed": None if failed is None else bool(failed),
        "uncorrected": nvml.told("nvmlDeviceGetTotalEccErrors", index, _UNCORRECTED, _VOLATILE),
        "remapped_correctable": correctable,
        "remapped_uncorrectable": uncorrectable,
    }
