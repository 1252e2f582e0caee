# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's catalogue of Xid errors, as a table: what each number is called, and what NVIDIA says is to be done at once.

Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html ("Xid Catalog", for Ampere and newer), columns Code,
Mnemonic, Description and Resolution Bucket (Immediate Action), in the state of L(DATE). An Xid that is not in it is not harmless but
unknown. The NVSwitches' SXids are from the Fabric Manager User Guide, "Always Fatal NVSwitch SXid Errors".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

#: When the table was taken over from NVIDIA's page.
DATE = "2025-10-29"
#: Numbers that the driver has a name for, and the catalogue no row yet. Source: src/common/sdk/nvidia/inc/nverror.h of NVIDIA's
#: open-gpu-kernel-modules, version 595.45.04 of 2026-03-05. What is to be done about them NVIDIA has not published.
NAMES = {
    173: "C2C_FATAL_LINK_FAILURE",
    174: "ROBUST_CHANNEL_RESETCHANNEL_KILL_PROCESS_SILENT",
    175: "MEMORY_SUBSYSTEM_ERROR",
    176: "PCIE_CORRECTABLE_ERROR_FAULT",
}


@unique
class Bucket(Enum):
    """NVIDIA's resolution buckets, by their names in the catalogue."""

    IGNORE = "IGNORE"
    RESTART_APP = "RESTART_APP"
    RESET_GPU = "RESET_GPU"
    RESTART_VM = "RESTART_VM"
    #: The bare metal machine.
    RESTART_BM = "RESTART_BM"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"
    CHECK_MECHANICALS = "CHECK_MECHANICALS"
    UPDATE_SWFW = "UPDATE_SWFW"
    CHECK_UVM = "CHECK_UVM"
    WORKFLOW_XID_45 = "WORKFLOW_XID_45"
    WORKFLOW_XID_48 = "WORKFLOW_XID_48"
    WORKFLOW_NVLINK_ERR = "WORKFLOW_NVLINK_ERR"
    WORKFLOW_NVLINK5_ERR = "WORKFLOW_NVLINK5_ERR"
    XID_154 = "XID_154"
    #: The catalogue's cell is empty.
    NONE = ""


@dataclass(frozen=True)
class Entry:
    """A row of the catalogue.

    :param mnemonic: the name in the driver's source.
    :param description: C(Unused) for numbers that current drivers do not write.
    :param immediate: what is to be done at once.
    """

    mnemonic: str
    description: str
    immediate: Bucket


_UNUSED = "Unused"
#: By number.
CATALOGUE = {
    1: Entry("ROBUST_CHANNEL_FIFO_ERROR_FIFO_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    2: Entry("ROBUST_CHANNEL_FIFO_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    3: Entry("ROBUST_CHANNEL_FIFO_ERROR_UNK_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    4: Entry("ROBUST_CHANNEL_FIFO_ERROR_CHANNEL_BUSY", _UNUSED, Bucket.CONTACT_SUPPORT),
    5: Entry("ROBUST_CHANNEL_FIFO_ERROR_RUNOUT_OVERFLOW", _UNUSED, Bucket.CONTACT_SUPPORT),
    6: Entry("ROBUST_CHANNEL_FIFO_ERROR_PARSE_ERR", _UNUSED, Bucket.CONTACT_SUPPORT),
    7: Entry("ROBUST_CHANNEL_FIFO_ERROR_PTE_ERR", _UNUSED, Bucket.CONTACT_SUPPORT),
    8: Entry("ROBUST_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT", "GPU stopped processing", Bucket.RESTART_APP),
    9: Entry("ROBUST_CHANNEL_GR_ERROR_INSTANCE", _UNUSED, Bucket.CONTACT_SUPPORT),
    10: Entry("ROBUST_CHANNEL_GR_ERROR_SINGLE_STEP", _UNUSED, Bucket.CONTACT_SUPPORT),
    11: Entry("ROBUST_CHANNEL_GR_ERROR_MISSING_HW", "Invalid or corrupted push buffer stream", Bucket.RESTART_APP),
    12: Entry("ROBUST_CHANNEL_GR_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    13: Entry(
        "ROBUST_CHANNEL_GR_EXCEPTION / ROBUST_CHANNEL_GR_ERROR_SW_NOTIFY",
        "Graphics Engine Exception",
        Bucket.RESTART_APP,
    ),
    14: Entry("ROBUST_CHANNEL_FAKE_ERROR", _UNUSED, Bucket.IGNORE),
    15: Entry("ROBUST_CHANNEL_SCANLINE_TIMEOUT", _UNUSED, Bucket.CONTACT_SUPPORT),
    16: Entry("ROBUST_CHANNEL_VBLANK_CALLBACK_TIMEOUT", _UNUSED, Bucket.CONTACT_SUPPORT),
    17: Entry("ROBUST_CHANNEL_PARAMETER_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    18: Entry("ROBUST_CHANNEL_BUS_MASTER_TIMEOUT_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    19: Entry("ROBUST_CHANNEL_DISP_MISSED_NOTIFIER", _UNUSED, Bucket.CONTACT_SUPPORT),
    20: Entry("ROBUST_CHANNEL_MPEG_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    21: Entry("ROBUST_CHANNEL_ME_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    22: Entry("ROBUST_CHANNEL_VP_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    23: Entry("ROBUST_CHANNEL_RC_LOGGING_ENABLED", _UNUSED, Bucket.CONTACT_SUPPORT),
    24: Entry("ROBUST_CHANNEL_GR_SEMAPHORE_TIMEOUT", _UNUSED, Bucket.CONTACT_SUPPORT),
    25: Entry("ROBUST_CHANNEL_GR_ILLEGAL_NOTIFY", "Invalid or illegal push buffer stream", Bucket.RESTART_APP),
    26: Entry("ROBUST_CHANNEL_FIFO_ERROR_FBISTATE_TIMEOUT", _UNUSED, Bucket.CONTACT_SUPPORT),
    27: Entry("ROBUST_CHANNEL_VP_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    28: Entry("ROBUST_CHANNEL_VP2_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    29: Entry("ROBUST_CHANNEL_BSP_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    30: Entry("ROBUST_CHANNEL_BAD_ADDR_ACCESS", _UNUSED, Bucket.CONTACT_SUPPORT),
    31: Entry("ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT", "GPU memory page fault", Bucket.RESTART_APP),
    32: Entry("ROBUST_CHANNEL_PBDMA_ERROR", "Invalid or corrupted push buffer stream", Bucket.RESTART_APP),
    33: Entry("ROBUST_CHANNEL_SEC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    34: Entry("ROBUST_CHANNEL_MSVLD_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    35: Entry("ROBUST_CHANNEL_MSPDEC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    36: Entry("ROBUST_CHANNEL_MSPPP_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    37: Entry("ROBUST_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD", "Driver firmware error", Bucket.IGNORE),
    38: Entry("ROBUST_CHANNEL_FECS_ERR_WATCHDOG_TIMEOUT", "Driver firmware error", Bucket.IGNORE),
    39: Entry("ROBUST_CHANNEL_CE0_ERROR", "Copy Engine Exception", Bucket.RESTART_APP),
    40: Entry("ROBUST_CHANNEL_CE1_ERROR", "Copy Engine Exception", Bucket.RESTART_APP),
    41: Entry("ROBUST_CHANNEL_CE2_ERROR", "Copy Engine Exception", Bucket.RESTART_APP),
    42: Entry("ROBUST_CHANNEL_VIC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    43: Entry("ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR", "GPU stopped processing", Bucket.IGNORE),
    44: Entry("ROBUST_CHANNEL_GR_FAULT_DURING_CTXSW", "Graphics Engine fault during context switch", Bucket.IGNORE),
    45: Entry(
        "ROBUST_CHANNEL_PREEMPTIVE_REMOVAL",
        "Preemptive cleanup, due to previous errors, Most likely to see when running multiple cuda applications and hitting a DBE",
        Bucket.WORKFLOW_XID_45,
    ),
    46: Entry("ROBUST_CHANNEL_GPU_TIMEOUT_ERROR", "GPU stopped processing", Bucket.RESET_GPU),
    47: Entry("ROBUST_CHANNEL_NVENC0_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    48: Entry("ROBUST_CHANNEL_GPU_ECC_DBE", "Double Bit ECC Error", Bucket.WORKFLOW_XID_48),
    49: Entry("SILENT_RUNNING_CONSTANT_LEVEL_SET_BY_REGISTRY", _UNUSED, Bucket.CONTACT_SUPPORT),
    50: Entry("SILENT_RUNNING_LEVEL_TRANSITION_DUE_TO_RC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    51: Entry("SILENT_RUNNING_STRESS_TEST_FAILURE", _UNUSED, Bucket.CONTACT_SUPPORT),
    52: Entry("SILENT_RUNNING_LEVEL_TRANS_DUE_TO_TEMP_RISE", _UNUSED, Bucket.CONTACT_SUPPORT),
    53: Entry("SILENT_RUNNING_TEMP_REDUCED_CLOCKING", _UNUSED, Bucket.CONTACT_SUPPORT),
    54: Entry(
        "SILENT_RUNNING_PWR_REDUCED_CLOCKING",
        "Auxiliary power is not connected to the GPU board",
        Bucket.CHECK_MECHANICALS,
    ),
    55: Entry("SILENT_RUNNING_TEMPERATURE_READ_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    56: Entry("DISPLAY_CHANNEL_EXCEPTION", _UNUSED, Bucket.CONTACT_SUPPORT),
    57: Entry("FB_LINK_TRAINING_FAILURE_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    58: Entry("FB_MEMORY_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    59: Entry("PMU_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    60: Entry("ROBUST_CHANNEL_SEC2_ERROR", "Video processor exception", Bucket.RESTART_APP),
    61: Entry("PMU_BREAKPOINT", _UNUSED, Bucket.CONTACT_SUPPORT),
    62: Entry("PMU_HALT_ERROR", "Internal micro-controller halt (newer drivers)", Bucket.RESET_GPU),
    63: Entry("INFOROM_DRAM_RETIREMENT_EVENT", "GPU memory remapping event", Bucket.IGNORE),
    64: Entry("INFOROM_DRAM_RETIREMENT_FAILURE", "GPU memory remapping failure", Bucket.RESET_GPU),
    65: Entry("ROBUST_CHANNEL_NVENC1_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    66: Entry("ROBUST_CHANNEL_FECS_ERR_REG_ACCESS_VIOLATION", "Illegal access by driver", Bucket.IGNORE),
    67: Entry("ROBUST_CHANNEL_FECS_ERR_VERIF_VIOLATION", "Illegal access by driver", Bucket.IGNORE),
    68: Entry("ROBUST_CHANNEL_NVDEC0_ERROR", "NVDEC0 Exception", Bucket.RESTART_APP),
    69: Entry("ROBUST_CHANNEL_GR_CLASS_ERROR", "Graphics Engine class error", Bucket.RESTART_APP),
    70: Entry("ROBUST_CHANNEL_CE3_ERROR", "CE3: Unknown Error", Bucket.RESTART_APP),
    71: Entry("ROBUST_CHANNEL_CE4_ERROR", "CE4: Unknown Error", Bucket.RESTART_APP),
    72: Entry("ROBUST_CHANNEL_CE5_ERROR", "CE5: Unknown Error", Bucket.RESTART_APP),
    73: Entry("ROBUST_CHANNEL_NVENC2_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    74: Entry("NVLINK_ERROR", "NVLINK Error", Bucket.WORKFLOW_NVLINK_ERR),
    75: Entry("ROBUST_CHANNEL_CE6_ERROR", "CE6: Unknown Error", Bucket.RESTART_APP),
    76: Entry("ROBUST_CHANNEL_CE7_ERROR", "CE7: Unknown Error", Bucket.RESTART_APP),
    77: Entry("ROBUST_CHANNEL_CE8_ERROR", "CE8: Unknown Error", Bucket.RESTART_APP),
    78: Entry("VGPU_START_ERROR", "vGPU Start Error", Bucket.UPDATE_SWFW),
    79: Entry("ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", "GPU has fallen off the bus", Bucket.RESTART_BM),
    80: Entry("PBDMA_PUSHBUFFER_CRC_MISMATCH", "Corrupted data sent to GPU", Bucket.RESTART_APP),
    81: Entry("ROBUST_CHANNEL_VGA_SUBSYSTEM_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    82: Entry("ROBUST_CHANNEL_NVJPG0_ERROR", "NVJPG0 Error", Bucket.RESTART_APP),
    83: Entry("ROBUST_CHANNEL_NVDEC1_ERROR", "NVDEC1 Error", Bucket.RESTART_APP),
    84: Entry("ROBUST_CHANNEL_NVDEC2_ERROR", "NVDEC2 Error", Bucket.RESTART_APP),
    85: Entry("ROBUST_CHANNEL_CE9_ERROR", "CE9: Unknown Error", Bucket.RESTART_APP),
    86: Entry("ROBUST_CHANNEL_OFA0_ERROR", "OFA Exception", Bucket.RESTART_APP),
    87: Entry("NVTELEMETRY_DRIVER_REPORT", _UNUSED, Bucket.CONTACT_SUPPORT),
    88: Entry("ROBUST_CHANNEL_NVDEC3_ERROR", "NVDEC3 Error", Bucket.RESTART_APP),
    89: Entry("ROBUST_CHANNEL_NVDEC4_ERROR", "NVDEC4 Error", Bucket.RESTART_APP),
    90: Entry("LTC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    91: Entry("RESERVED_XID", _UNUSED, Bucket.CONTACT_SUPPORT),
    92: Entry("EXCESSIVE_SBE_INTERRUPTS", "High single-bit ECC error rate", Bucket.IGNORE),
    93: Entry("INFOROM_ERASE_LIMIT_EXCEEDED", "Non-fatal violation of provisioned InfoROM wear limit", Bucket.IGNORE),
    94: Entry("ROBUST_CHANNEL_CONTAINED_ERROR", "Contained memory error", Bucket.RESTART_APP),
    95: Entry("ROBUST_CHANNEL_UNCONTAINED_ERROR", "Uncontained memory error", Bucket.RESET_GPU),
    96: Entry("ROBUST_CHANNEL_NVDEC5_ERROR", "NVDEC5 Error", Bucket.RESTART_APP),
    97: Entry("ROBUST_CHANNEL_NVDEC6_ERROR", "NVDEC6 Error", Bucket.RESTART_APP),
    98: Entry("ROBUST_CHANNEL_NVDEC7_ERROR", "NVDEC7 Error", Bucket.RESTART_APP),
    99: Entry("ROBUST_CHANNEL_NVJPG1_ERROR", "NVJPG1 Error", Bucket.RESTART_APP),
    100: Entry("ROBUST_CHANNEL_NVJPG2_ERROR", "NVJPG2 Error", Bucket.RESTART_APP),
    101: Entry("ROBUST_CHANNEL_NVJPG3_ERROR", "NVJPG3 Error", Bucket.RESTART_APP),
    102: Entry("ROBUST_CHANNEL_NVJPG4_ERROR", "NVJPG4 Error", Bucket.RESTART_APP),
    103: Entry("ROBUST_CHANNEL_NVJPG5_ERROR", "NVJPG5 Error", Bucket.RESTART_APP),
    104: Entry("ROBUST_CHANNEL_NVJPG6_ERROR", "NVJPG6 Error", Bucket.RESTART_APP),
    105: Entry("ROBUST_CHANNEL_NVJPG7_ERROR", "NVJPG7 Error", Bucket.RESTART_APP),
    106: Entry("SMBPBI_TEST_MESSAGE", "SMBPBI Test Message", Bucket.IGNORE),
    107: Entry("SMBPBI_TEST_MESSAGE_SILENT", "SMBPBI Test Message Silent", Bucket.IGNORE),
    108: Entry("NVLINK_REMOTE_TRANSLATION_ERROR", _UNUSED, Bucket.IGNORE),
    109: Entry("ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR", "Context Switch Timeout Error", Bucket.RESET_GPU),
    110: Entry("SEC_FAULT_ERROR", "Security Fault Error", Bucket.RESET_GPU),
    111: Entry("BUNDLE_ERROR_EVENT", _UNUSED, Bucket.CONTACT_SUPPORT),
    112: Entry("DISP_SUPERVISOR_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    113: Entry("DP_LT_FAILURE", _UNUSED, Bucket.CONTACT_SUPPORT),
    114: Entry("HEAD_RG_UNDERFLOW", _UNUSED, Bucket.CONTACT_SUPPORT),
    115: Entry("CORE_CHANNEL_REGS", _UNUSED, Bucket.CONTACT_SUPPORT),
    116: Entry("WINDOW_CHANNEL_REGS", _UNUSED, Bucket.CONTACT_SUPPORT),
    117: Entry("CURSOR_CHANNEL_REGS", _UNUSED, Bucket.CONTACT_SUPPORT),
    118: Entry("HEAD_REGS", _UNUSED, Bucket.CONTACT_SUPPORT),
    119: Entry("GSP_RPC_TIMEOUT", "GSP RPC Timeout", Bucket.RESET_GPU),
    120: Entry("GSP_ERROR", "GSP Error", Bucket.RESET_GPU),
    121: Entry("C2C_ERROR", "C2C Error", Bucket.IGNORE),
    122: Entry("SPI_PMU_RPC_READ_FAIL", _UNUSED, Bucket.CONTACT_SUPPORT),
    123: Entry("SPI_PMU_RPC_WRITE_FAIL", _UNUSED, Bucket.CONTACT_SUPPORT),
    124: Entry("SPI_PMU_RPC_ERASE_FAIL", _UNUSED, Bucket.CONTACT_SUPPORT),
    125: Entry("INFOROM_FS_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    126: Entry("ROBUST_CHANNEL_CE10_ERROR", "CE10: Unknown Error", Bucket.RESTART_APP),
    127: Entry("ROBUST_CHANNEL_CE11_ERROR", "CE11: Unknown Error", Bucket.RESTART_APP),
    128: Entry("ROBUST_CHANNEL_CE12_ERROR", "CE12: Unknown Error", Bucket.RESTART_APP),
    129: Entry("ROBUST_CHANNEL_CE13_ERROR", "CE13: Unknown Error", Bucket.RESTART_APP),
    130: Entry("ROBUST_CHANNEL_CE14_ERROR", "CE14: Unknown Error", Bucket.RESTART_APP),
    131: Entry("ROBUST_CHANNEL_CE15_ERROR", "CE15: Unknown Error", Bucket.RESTART_APP),
    132: Entry("ROBUST_CHANNEL_CE16_ERROR", "CE16: Unknown Error", Bucket.RESTART_APP),
    133: Entry("ROBUST_CHANNEL_CE17_ERROR", "CE17: Unknown Error", Bucket.RESTART_APP),
    134: Entry("ROBUST_CHANNEL_CE18_ERROR", "CE18: Unknown Error", Bucket.RESTART_APP),
    135: Entry("ROBUST_CHANNEL_CE19_ERROR", "CE19: Unknown Error", Bucket.RESTART_APP),
    136: Entry("ALI_TRAINING_FAIL", "Link Training Failed", Bucket.RESET_GPU),
    137: Entry("NVLINK_PRIV_ERR", "NVLink Privilege Error", Bucket.IGNORE),
    138: Entry("ROBUST_CHANNEL_DLA_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    139: Entry("ROBUST_CHANNEL_OFA1_ERROR", "OFA1 Error", Bucket.RESTART_APP),
    140: Entry("UNRECOVERABLE_ECC_ERROR_ESCAPE", "ECC Unrecovered Error", Bucket.RESET_GPU),
    141: Entry("ROBUST_CHANNEL_FAST_PATH_ERROR", "CUDA Fast Path Error", Bucket.IGNORE),
    142: Entry("ROBUST_CHANNEL_NVENC3_ERROR", "NVENC3 Error", Bucket.CONTACT_SUPPORT),
    143: Entry("GPU_INIT_ERROR", "GPU Initialization Error", Bucket.RESET_GPU),
    144: Entry("NVLINK_SAW_ERROR", "NVLINK: SAW Error", Bucket.WORKFLOW_NVLINK5_ERR),
    145: Entry("NVLINK_RLW_ERROR", "NVLINK: RLW Error", Bucket.WORKFLOW_NVLINK5_ERR),
    146: Entry("NVLINK_TLW_ERROR", "NVLINK: TLW Error", Bucket.WORKFLOW_NVLINK5_ERR),
    147: Entry("NVLINK_TREX_ERROR", "NVLINK: TREX Error", Bucket.WORKFLOW_NVLINK5_ERR),
    148: Entry("NVLINK_NVLPW_CTRL_ERROR", "NVLINK: NVLPW_CTRL Error", Bucket.WORKFLOW_NVLINK5_ERR),
    149: Entry("NVLINK_NETIR_ERROR", "NVLINK: NETIR Error", Bucket.WORKFLOW_NVLINK5_ERR),
    150: Entry("NVLINK_MSE_ERROR", "NVLINK: MSE Error", Bucket.WORKFLOW_NVLINK5_ERR),
    151: Entry("ROBUST_CHANNEL_KEY_ROTATION_ERROR", "Key rotation Error", Bucket.RESTART_VM),
    152: Entry("ROBUST_CHANNEL_DLA_SMMU_ERROR", "DLA SMMU Error", Bucket.IGNORE),
    153: Entry("ROBUST_CHANNEL_DLA_TIMEOUT", "DLA timeout Error", Bucket.IGNORE),
    154: Entry("GPU_RECOVERY_ACTION_CHANGED", "GPU Recovery Action Changed", Bucket.XID_154),
    155: Entry("NVLINK_SW_DEFINED_ERROR", "NVLINK: SW Defined Error", Bucket.RESET_GPU),
    156: Entry("RESOURCE_RETIREMENT_EVENT", "Resource Retirement Event", Bucket.RESET_GPU),
    157: Entry("RESOURCE_RETIREMENT_FAILURE", "Resource Retirement Failure", Bucket.IGNORE),
    158: Entry("GPU_FATAL_TIMEOUT", "GPU Fatal Timeout", Bucket.RESET_GPU),
    159: Entry("ROBUST_CHANNEL_CHI_NON_DATA_ERROR", "CHI Non-Data Error", Bucket.CHECK_UVM),
    160: Entry("CHANNEL_RETIREMENT_EVENT", "Channel Retirement Event", Bucket.IGNORE),
    161: Entry("CHANNEL_RETIREMENT_FAILURE", "Channel Retirement Failure", Bucket.IGNORE),
    162: Entry("PSHC_REENGAGED", "Power Smoothing HW Circuitry capability reengaged", Bucket.NONE),
    163: Entry("PSHC_DISENGAGED", "Power Smoothing HW Circuitry capability disengaged", Bucket.NONE),
    164: Entry("PSHC_LOW_LIFETIME", "Power Smoothing HW Circuitry low lifetime reached", Bucket.NONE),
    165: Entry("PSHC_ZERO_LIFETIME", "Power Smoothing HW Circuitry lifetime exhausted", Bucket.NONE),
    166: Entry(
        "NVLINK_SECURE_CRYPTO_ERR",
        "CC traffic seen prior to link properly being configured for encrypted traffic",
        Bucket.NONE,
    ),
    167: Entry("PCIE_FATAL_TIMEOUT", "PCIE_FATAL_TIMEOUT", Bucket.NONE),
    168: Entry("REDUCED_GPU_MEMORY_CAPACITY", "Errors found in WPR (write protected region)", Bucket.NONE),
    169: Entry("SEC2_HALT_ERROR", "Internal micro-controller halt", Bucket.NONE),
    170: Entry("NVLINK_SECURE_OTHER", "Interrupt seen in CC mode", Bucket.NONE),
    171: Entry(
        "UNCORRECTABLE_DRAM_ERROR",
        "Additional to Xid 48 providing more details on particulars of fault to differentiate DRAM/SRAM",
        Bucket.NONE,
    ),
    172: Entry(
        "UNCORRECTABLE_SRAM_ERROR",
        "Additional to Xid 48 providing more details on particulars of fault to differentiate DRAM/SRAM",
        Bucket.NONE,
    ),
}

#: SXids after which the whole fabric has to be started anew with its host. The others say by themselves whether they are fatal.
ALWAYS_FATAL_SXIDS = frozenset((12020, 22003, 22011, *range(23001, 23018)))
