# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power limit, clocks and ECC of GPUs, through NVML: read them and change them. Every function that changes is one change.

Power limit and clocks are the driver's and are gone after a reload of the driver, a reset of the GPU or a reboot. ECC is the board's: a
change waits for the next reset or reboot (nvml.h, C(nvmlDeviceSetEccMode)).
"""

from __future__ import annotations

from collections.abc import Mapping

from .._gpu_settings import Clocks, ClockSpeeds, Ecc, GpuSettings, Power
from .gpu_reset import GRAPHICS, MEMORY
from .nvml_gpus import Nvml

#: C(nvmlClockType_t) of nvml.h.
_GRAPHICS, _MEMORY = 0, 2
_MILLIWATTS = 1000

#: NVML's calls that keep a clock within a range, and that leave it to the driver.
_LOCKS = {
    GRAPHICS: ("nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"),
    MEMORY: ("nvmlDeviceSetMemoryLockedClocks", "nvmlDeviceResetMemoryLockedClocks"),
}


def settings_of(nvml: Nvml, index: int, locks: Mapping[str, Clocks] | None = None) -> GpuSettings:
    """Return the settings of a GPU. C(locks): how its clocks were locked, which NVML does not tell."""
    limits, locks = nvml.told("nvmlDeviceGetPowerManagementLimitConstraints", index), locks or {}
    ecc = nvml.told("nvmlDeviceGetEccMode", index)
    return GpuSettings(
        Power(
            limit=_watts(nvml.told("nvmlDeviceGetPowerManagementLimit", index)),
            default=_watts(nvml.told("nvmlDeviceGetPowerManagementDefaultLimit", index)),
            # Of a limit with a fraction only whole watts within it can be set.
            min=None if limits is None else -(-int(limits[0]) // _MILLIWATTS),
            max=None if limits is None else int(limits[1]) // _MILLIWATTS,
        ),
        Ecc() if ecc is None else Ecc(bool(ecc[0]), bool(ecc[1])),
        ClockSpeeds(
            graphics=nvml.told("nvmlDeviceGetClockInfo", index, _GRAPHICS),
            max=_clocks(nvml, "nvmlDeviceGetMaxClockInfo", index),
            application=_clocks(nvml, "nvmlDeviceGetApplicationsClock", index),
            default=_clocks(nvml, "nvmlDeviceGetDefaultApplicationsClock", index),
            locked_graphics=locks.get(GRAPHICS),
            locked_memory=locks.get(MEMORY),
        ),
    )


def supported_clocks(nvml: Nvml, index: int) -> Mapping[int, tuple[int, ...]]:
    """Return the graphics clocks that a GPU takes with each of its memory clocks, as application clocks. Raises NvmlError: the board has none."""
    return {
        int(memory): tuple(map(int, nvml.call("nvmlDeviceGetSupportedGraphicsClocks", index, memory)))
        for memory in nvml.call("nvmlDeviceGetSupportedMemoryClocks", index)
    }


def set_power_limit(nvml: Nvml, index: int, watts: int) -> None:
    nvml.call("nvmlDeviceSetPowerManagementLimit", index, watts * _MILLIWATTS)


def lock_clocks(nvml: Nvml, index: int, clock: str, lowest: int, highest: int) -> None:
    """Keep a clock, C(graphics) or C(memory), within a range. Raises NvmlError: the board does not take it."""
    lock, _unlock = _LOCKS[clock]
    nvml.call(lock, index, lowest, highest)


def unlock_clocks(nvml: Nvml, index: int, clock: str) -> None:
    """Leave a clock, C(graphics) or C(memory), to the driver. Raises NvmlError: the driver refused."""
    _lock, unlock = _LOCKS[clock]
    nvml.call(unlock, index)


def set_application_clocks(nvml: Nvml, index: int, clocks: Clocks) -> None:
    nvml.call("nvmlDeviceSetApplicationsClocks", index, *clocks)


def reset_application_clocks(nvml: Nvml, index: int) -> None:
    nvml.call("nvmlDeviceResetApplicationsClocks", index)


def set_ecc(nvml: Nvml, index: int, enabled: bool) -> None:
    """Have ECC on or off after the next reset of the GPU or reboot. Raises NvmlError: the board has none, or the driver refused."""
    nvml.call("nvmlDeviceSetEccMode", index, int(enabled))


def _clocks(nvml: Nvml, call: str, index: int) -> Clocks | None:
    memory, graphics = (nvml.told(call, index, kind) for kind in (_MEMORY, _GRAPHICS))
    return None if memory is None or graphics is None else (memory, graphics)


def _watts(milliwatts: int | None) -> int | None:
    return None if milliwatts is None else round(milliwatts / _MILLIWATTS)
