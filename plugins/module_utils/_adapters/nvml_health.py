# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVML knows about the soundness of a GPU: its fabric, the recovery that it needs, and the errors of its memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .nvml import Nvml, NvmlError
from .nvml_types import RECOVERY_ACTIONS

_FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
#: C(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION): a field, there is no function.
_RECOVERY_FIELD = 230
_UNCORRECTED = 1
_VOLATILE = 0


@dataclass(frozen=True)
class MemoryErrors:
    """Errors of a GPU's memory; None where the board or the driver does not tell.

    :param remap_pending: rows (Ampere and newer) or pages (older) are replaced at the next reset of the GPU.
    :param remap_failed: there was no spare row left: the board is to be replaced.
    :param uncorrected: double-bit errors since the driver was loaded.
    """

    remap_pending: bool | None
    remap_failed: bool | None
    uncorrected: int | None


def fabric_state(nvml: Nvml, index: int) -> str | None:
    """Return C(not_started), C(in_progress) or C(completed), or None for a GPU that is on no fabric.

    CUDA only starts on a GPU of a fabric once this is C(completed) (host.md, section 6).
    """
    structure = getattr(nvml.library.pynvml, "c_nvmlGpuFabricInfo_t", None)
    if structure is None:
        return None
    info = structure()
    try:
        nvml.library.call("nvmlDeviceGetGpuFabricInfo", nvml.device(index), ctypes.byref(info))
    except NvmlError:
        return None
    return _FABRIC_STATES.get(int(info.state))


def recovery_action(nvml: Nvml, index: int) -> str | None:
    """Return what the driver asks for to bring a GPU back: C(none), C(gpu_reset), C(node_reboot), C(drain_p2p), C(drain_and_reset),
    C(recover_imex_domain), C(bus_reset), C(system_reboot), or C(value_N) for one that is newer than these.

    None where driver or board does not tell.
    """
    try:
        field = nvml.library.call("nvmlDeviceGetFieldValues", nvml.device(index), [_RECOVERY_FIELD])[0]
    except NvmlError:
        return None
    if field.nvmlReturn != 0:
        return None
    value = int(field.value.uiVal)
    return RECOVERY_ACTIONS[value] if value < len(RECOVERY_ACTIONS) else f"value_{value}"


def memory_errors(nvml: Nvml, index: int) -> MemoryErrors:
    """Return the errors of the memory of one GPU."""
    pending, failed = _remapped(nvml, index)
    if pending is None:
        answer = _value(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", index)
        pending = None if answer is None else bool(answer)
    return MemoryErrors(
        remap_pending=pending,
        remap_failed=failed,
        uncorrected=_value(nvml, "nvmlDeviceGetTotalEccErrors", index, _UNCORRECTED, _VOLATILE),
    )


def _remapped(nvml: Nvml, index: int) -> tuple[bool | None, bool | None]:
    try:
        _corrected, _uncorrected, pending, failed = nvml.library.call("nvmlDeviceGetRemappedRows", nvml.device(index))
    except NvmlError:
        return None, None
    return bool(pending), bool(failed)


def _value(nvml: Nvml, call: str, index: int, *arguments: int) -> int | None:
    try:
        return int(nvml.library.call(call, nvml.device(index), *arguments))
    except NvmlError:
        return None
