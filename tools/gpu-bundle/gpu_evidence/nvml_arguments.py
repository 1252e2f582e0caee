# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""With what NVML's read-only calls are asked: the arguments behind a GPU's handle, and the structures that callers hand over.

Where a value that no driver knows is among them (a link 18, a clock 4), it is there for the error that a driver gives for it.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, Iterable

_LINKS = range(19)
_CLOCKS = range(5)


def _each(*ranges: Iterable[Any]) -> list[tuple[Any, ...]]:
    return list(itertools.product(*ranges))


#: Arguments behind the handle of a GPU, by call.
BEHIND_GPU: dict[str, list[tuple[Any, ...]]] = {
    "nvmlDeviceGetAPIRestriction": _each(range(3)),
    "nvmlDeviceGetAccountingStats": [(1,), (os.getpid(),)],
    "nvmlDeviceGetAccountingStats_v2": [(1,)],
    "nvmlDeviceGetApplicationsClock": _each(_CLOCKS),
    "nvmlDeviceGetClock": _each(_CLOCKS, range(5)),
    "nvmlDeviceGetClockInfo": _each(_CLOCKS),
    "nvmlDeviceGetCpuAffinity": [(1,), (16,)],
    "nvmlDeviceGetCpuAffinityWithinScope": _each((16,), range(3)),
    "nvmlDeviceGetDefaultApplicationsClock": _each(_CLOCKS),
    "nvmlDeviceGetDetailedEccErrors": _each(range(2), range(2)),
    "nvmlDeviceGetEncoderCapacity": _each(range(4)),
    "nvmlDeviceGetFanControlPolicy_v2": [(0,)],
    "nvmlDeviceGetFanSpeed_v2": [(0,)],
    "nvmlDeviceGetGpuInstanceById": _each(range(3)),
    "nvmlDeviceGetGpuInstanceProfileInfoById": _each(range(80)),
    "nvmlDeviceGetGpuInstanceProfileInfoByIdV": _each(range(80)),
    "nvmlDeviceGetGpuInstanceRemainingCapacity": _each(range(80)),
    "nvmlDeviceGetInforomVersion": _each(range(6)),
    "nvmlDeviceGetMaxClockInfo": _each(_CLOCKS),
    "nvmlDeviceGetMaxCustomerBoostClock": _each(_CLOCKS),
    "nvmlDeviceGetMemoryAffinity": _each((4,), range(3)),
    "nvmlDeviceGetMemoryErrorCounter": _each(range(2), range(2), range(10)),
    "nvmlDeviceGetMigDeviceHandleByIndex": _each(range(9)),
    "nvmlDeviceGetMinMaxClockOfPState": _each(range(4), (0, 1, 2, 3, 5, 8, 12, 15, 32)),
    "nvmlDeviceGetNvLinkCapability": _each(_LINKS, range(7)),
    "nvmlDeviceGetNvLinkErrorCounter": _each(_LINKS, range(6)),
    "nvmlDeviceGetNvLinkRemoteDeviceType": _each(_LINKS),
    "nvmlDeviceGetNvLinkRemotePciInfo": _each(_LINKS),
    "nvmlDeviceGetNvLinkState": _each(_LINKS),
    "nvmlDeviceGetNvLinkUtilizationControl": _each(_LINKS, range(2)),
    "nvmlDeviceGetNvLinkUtilizationCounter": _each(_LINKS, range(2)),
    "nvmlDeviceGetNvLinkVersion": _each(_LINKS),
    "nvmlDeviceGetPcieThroughput": _each(range(3)),
    "nvmlDeviceGetProcessUtilization": [(0,)],
    "nvmlDeviceGetProcessesUtilizationInfo": [(0,)],
    "nvmlDeviceGetRetiredPages": _each(range(3)),
    "nvmlDeviceGetRetiredPages_v2": _each(range(3)),
    # Version 1 of the structure is 0x01000020 on every release so far; the modes are compute, graphics and MPS.
    "nvmlDeviceGetRunningProcessDetailList": _each((0x1000018, 0x1000020), range(3)),
    "nvmlDeviceGetSamples": _each(range(9), (0,)),
    "nvmlDeviceGetTargetFanSpeed": [(0,)],
    "nvmlDeviceGetTemperature": _each(range(3)),
    "nvmlDeviceGetTemperatureV": _each(range(3)),
    "nvmlDeviceGetTemperatureV1": _each(range(3)),
    "nvmlDeviceGetTemperatureThreshold": _each(range(10)),
    "nvmlDeviceGetThermalSettings": _each((0, 1, 2, 15)),
    "nvmlDeviceGetTopologyNearestGpus": _each(range(0, 60, 10)),
    "nvmlDeviceGetTotalEccErrors": _each(range(3), range(3)),
    "nvmlDeviceGetVgpuCapabilities": _each(range(12)),
    "nvmlDeviceGetVgpuInstancesUtilizationInfo": [(0,)],
    "nvmlDeviceGetVgpuProcessUtilization": [(0,)],
    "nvmlDeviceGetVgpuProcessesUtilizationInfo": [(0,)],
    "nvmlDeviceGetVgpuUtilization": [(0,)],
    "nvmlDeviceGetViolationStatus": _each(range(16)),
}

#: Structures that the caller hands over by reference, by call; the newest first.
STRUCTURES: dict[str, tuple[str, ...]] = {
    "nvmlDeviceGetAdaptiveTgpModeInfo_v1": ("c_nvmlAdaptiveTgpModeInfo_v1_t",),
    "nvmlDeviceGetBankRemapperStatus_v1": ("c_nvmlEccBankRemapperStatus_v1_t",),
    "nvmlDeviceGetCapabilities": ("c_nvmlDeviceCapabilities_v1_t",),
    "nvmlDeviceGetClockOffsets": ("c_nvmlClockOffset_t",),
    "nvmlDeviceGetGpuFabricInfo": ("c_nvmlGpuFabricInfo_t",),
    "nvmlDeviceGetGpuFabricInfoV": ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"),
    "nvmlDeviceGetGpuFabricInfo_v4": ("c_nvmlGpuFabricInfo_v4_t",),
    "nvmlDeviceGetMemoryLimits_v1": ("c_nvmlGetMemoryLimits_v1_t",),
    "nvmlDeviceGetNvLinkInfo": ("c_nvmlNvLinkInfo_v2_t", "c_nvmlNvLinkInfo_v1_t"),
    "nvmlDeviceGetNvlinkBwMode": ("c_nvmlNvlinkGetBwMode_v1_t",),
    "nvmlDeviceGetNvlinkSupportedBwModes": ("c_nvmlNvlinkSupportedBwModes_v1_t",),
    "nvmlDeviceGetPciInfoExt": ("nvmlPciInfoExt_v1_t",),
    "nvmlDeviceGetPlatformInfo": ("c_nvmlPlatformInfo_v2_t", "c_nvmlPlatformInfo_v1_t"),
    "nvmlDeviceGetPowerMizerMode_v1": ("c_nvmlDevicePowerMizerModes_v1_t",),
    "nvmlDeviceGetRemappedRows_v2": ("c_nvmlRemappedRowsInfo_v2_t",),
    "nvmlDeviceGetSramEccErrorStatus": ("c_nvmlEccSramErrorStatus_v1_t",),
    "nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts": ("c_nvmlEccSramUniqueUncorrectedErrorCounts_v1_t",),
    "nvmlDeviceGetVgpuSchedulerState_v2": ("c_nvmlVgpuSchedulerStateInfo_v2_t",),
    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles": ("c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t",),
    "nvmlDeviceWorkloadPowerProfileGetProfilesInfo": ("c_nvmlWorkloadPowerProfileProfilesInfo_v1_t",),
}

#: Calls that only read, and are asked with a GPU's handle alone although their names do not say Get.
ALSO_GPU = ("nvmlDeviceIsMigDeviceHandle", "nvmlGpmQueryDeviceSupport", "nvmlGpmQueryIfStreamingEnabled")

#: Left out: what makes the GPU sign something, what reads raw registers, and handles, which are asked for by name.
LEFT_OUT = {
    "nvmlDeviceGetConfComputeGpuAttestationReport": "makes the GPU sign a report",
    "nvmlDeviceGetConfComputeGpuCertificate": "is the certificate of one GPU",
    "nvmlDeviceGetHandleByIndex": "asked for each GPU",
    "nvmlDeviceGetHandleByPciBusId": "asked for each GPU",
    "nvmlDeviceGetHandleBySerial": "asked for each GPU",
    "nvmlDeviceGetHandleByUUID": "asked for each GPU",
    "nvmlDeviceGetHandleByUUIDV": "asked for each GPU",
    "nvmlSystemGetCPER_v1": "takes error records away from who reads next",
}
