# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's catalogue of Xid errors, as a table: what each number is called, and what NVIDIA says is to be done at once.

Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html ("Xid Catalog", for Ampere and newer), columns Code,
Mnemonic, Description and Resolution Bucket (Immediate Action), in the state of L(DATE). An Xid that is not in it is not harmless but
unknown. The NVSwitches' SXids are from the Fabric Manager User Guide, "Always Fatal NVSwitch SXid Errors".
"""

from __future__ import annotations

from collections.abc import Mapping
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
class XidEntry:
    """A row of the catalogue. C(description): C(Unused) for numbers that current drivers do not write."""

    mnemonic: str
    description: str
    immediate: Bucket


_UNUSED = "Unused"
_ROWS: Mapping[int, tuple[str, str, Bucket]] = {
    1: ("ROBUST_CHANNEL_FIFO_ERROR_FIFO_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    2: ("ROBUST_CHANNEL_FIFO_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    3: ("ROBUST_CHANNEL_FIFO_ERROR_UNK_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    4: ("ROBUST_CHANNEL_FIFO_ERROR_CHANNEL_BUSY", _UNUSED, Bucket.CONTACT_SUPPORT),
    5: ("ROBUST_CHANNEL_FIFO_ERROR_RUNOUT_OVERFLOW", _UNUSED, Bucket.CONTACT_SUPPORT),
    6: ("ROBUST_CHANNEL_FIFO_ERROR_PARSE_ERR", _UNUSED, Bucket.CONTACT_SUPPORT),
    7: ("ROBUST_CHANNEL_FIFO_ERROR_PTE_ERR", _UNUSED, Bucket.CONTACT_SUPPORT),
    8: ("ROBUST_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT", "GPU stopped processing", Bucket.RESTART_APP),
    9: ("ROBUST_CHANNEL_GR_ERROR_INSTANCE", _UNUSED, Bucket.CONTACT_SUPPORT),
    10: ("ROBUST_CHANNEL_GR_ERROR_SINGLE_STEP", _UNUSED, Bucket.CONTACT_SUPPORT),
    11: ("ROBUST_CHANNEL_GR_ERROR_MISSING_HW", "Invalid or corrupted push buffer stream", Bucket.RESTART_APP),
    12: ("ROBUST_CHANNEL_GR_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    13: (
        "ROBUST_CHANNEL_GR_EXCEPTION / ROBUST_CHANNEL_GR_ERROR_SW_NOTIFY",
        "Graphics Engine Exception",
        Bucket.RESTART_APP,
    ),
    14: ("ROBUST_CHANNEL_FAKE_ERROR", _UNUSED, Bucket.IGNORE),
    15: ("ROBUST_CHANNEL_SCANLINE_TIMEOUT", _UNUSED, Bucket.CONTACT_SUPPORT),
    16: ("ROBUST_CHANNEL_VBLANK_CALLBACK_TIMEOUT", _UNUSED, Bucket.CONTACT_SUPPORT),
    17: ("ROBUST_CHANNEL_PARAMETER_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    18: ("ROBUST_CHANNEL_BUS_MASTER_TIMEOUT_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    19: ("ROBUST_CHANNEL_DISP_MISSED_NOTIFIER", _UNUSED, Bucket.CONTACT_SUPPORT),
    20: ("ROBUST_CHANNEL_MPEG_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    21: ("ROBUST_CHANNEL_ME_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    22: ("ROBUST_CHANNEL_VP_ERROR_SW_METHOD", _UNUSED, Bucket.CONTACT_SUPPORT),
    23: ("ROBUST_CHANNEL_RC_LOGGING_ENABLED", _UNUSED, Bucket.CONTACT_SUPPORT),
    24: ("ROBUST_CHANNEL_GR_SEMAPHORE_TIMEOUT", _UNUSED, Bucket.CONTACT_SUPPORT),
    25: ("ROBUST_CHANNEL_GR_ILLEGAL_NOTIFY", "Invalid or illegal push buffer stream", Bucket.RESTART_APP),
    26: ("ROBUST_CHANNEL_FIFO_ERROR_FBISTATE_TIMEOUT", _UNUSED, Bucket.CONTACT_SUPPORT),
    27: ("ROBUST_CHANNEL_VP_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    28: ("ROBUST_CHANNEL_VP2_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    29: ("ROBUST_CHANNEL_BSP_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    30: ("ROBUST_CHANNEL_BAD_ADDR_ACCESS", _UNUSED, Bucket.CONTACT_SUPPORT),
    31: ("ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT", "GPU memory page fault", Bucket.RESTART_APP),
    32: ("ROBUST_CHANNEL_PBDMA_ERROR", "Invalid or corrupted push buffer stream", Bucket.RESTART_APP),
    33: ("ROBUST_CHANNEL_SEC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    34: ("ROBUST_CHANNEL_MSVLD_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    35: ("ROBUST_CHANNEL_MSPDEC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    36: ("ROBUST_CHANNEL_MSPPP_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    37: ("ROBUST_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD", "Driver firmware error", Bucket.IGNORE),
    38: ("ROBUST_CHANNEL_FECS_ERR_WATCHDOG_TIMEOUT", "Driver firmware error", Bucket.IGNORE),
    39: ("ROBUST_CHANNEL_CE0_ERROR", "Copy Engine Exception", Bucket.RESTART_APP),
    40: ("ROBUST_CHANNEL_CE1_ERROR", "Copy Engine Exception", Bucket.RESTART_APP),
    41: ("ROBUST_CHANNEL_CE2_ERROR", "Copy Engine Exception", Bucket.RESTART_APP),
    42: ("ROBUST_CHANNEL_VIC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    43: ("ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR", "GPU stopped processing", Bucket.IGNORE),
    44: ("ROBUST_CHANNEL_GR_FAULT_DURING_CTXSW", "Graphics Engine fault during context switch", Bucket.IGNORE),
    45: (
        "ROBUST_CHANNEL_PREEMPTIVE_REMOVAL",
        "Preemptive cleanup, due to previous errors, Most likely to see when running multiple cuda applications and hitting a DBE",
        Bucket.WORKFLOW_XID_45,
    ),
    46: ("ROBUST_CHANNEL_GPU_TIMEOUT_ERROR", "GPU stopped processing", Bucket.RESET_GPU),
    47: ("ROBUST_CHANNEL_NVENC0_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    48: ("ROBUST_CHANNEL_GPU_ECC_DBE", "Double Bit ECC Error", Bucket.WORKFLOW_XID_48),
    49: ("SILENT_RUNNING_CONSTANT_LEVEL_SET_BY_REGISTRY", _UNUSED, Bucket.CONTACT_SUPPORT),
    50: ("SILENT_RUNNING_LEVEL_TRANSITION_DUE_TO_RC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    51: ("SILENT_RUNNING_STRESS_TEST_FAILURE", _UNUSED, Bucket.CONTACT_SUPPORT),
    52: ("SILENT_RUNNING_LEVEL_TRANS_DUE_TO_TEMP_RISE", _UNUSED, Bucket.CONTACT_SUPPORT),
    53: ("SILENT_RUNNING_TEMP_REDUCED_CLOCKING", _UNUSED, Bucket.CONTACT_SUPPORT),
    54: (
        "SILENT_RUNNING_PWR_REDUCED_CLOCKING",
        "Auxiliary power is not connected to the GPU board",
        Bucket.CHECK_MECHANICALS,
    ),
    55: ("SILENT_RUNNING_TEMPERATURE_READ_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    56: ("DISPLAY_CHANNEL_EXCEPTION", _UNUSED, Bucket.CONTACT_SUPPORT),
    57: ("FB_LINK_TRAINING_FAILURE_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    58: ("FB_MEMORY_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    59: ("PMU_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    60: ("ROBUST_CHANNEL_SEC2_ERROR", "Video processor exception", Bucket.RESTART_APP),
    61: ("PMU_BREAKPOINT", _UNUSED, Bucket.CONTACT_SUPPORT),
    62: ("PMU_HALT_ERROR", "Internal micro-controller halt (newer drivers)", Bucket.RESET_GPU),
    63: ("INFOROM_DRAM_RETIREMENT_EVENT", "GPU memory remapping event", Bucket.IGNORE),
    64: ("INFOROM_DRAM_RETIREMENT_FAILURE", "GPU memory remapping failure", Bucket.RESET_GPU),
    65: ("ROBUST_CHANNEL_NVENC1_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    66: ("ROBUST_CHANNEL_FECS_ERR_REG_ACCESS_VIOLATION", "Illegal access by driver", Bucket.IGNORE),
    67: ("ROBUST_CHANNEL_FECS_ERR_VERIF_VIOLATION", "Illegal access by driver", Bucket.IGNORE),
    68: ("ROBUST_CHANNEL_NVDEC0_ERROR", "NVDEC0 Exception", Bucket.RESTART_APP),
    69: ("ROBUST_CHANNEL_GR_CLASS_ERROR", "Graphics Engine class error", Bucket.RESTART_APP),
    70: ("ROBUST_CHANNEL_CE3_ERROR", "CE3: Unknown Error", Bucket.RESTART_APP),
    71: ("ROBUST_CHANNEL_CE4_ERROR", "CE4: Unknown Error", Bucket.RESTART_APP),
    72: ("ROBUST_CHANNEL_CE5_ERROR", "CE5: Unknown Error", Bucket.RESTART_APP),
    73: ("ROBUST_CHANNEL_NVENC2_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    74: ("NVLINK_ERROR", "NVLINK Error", Bucket.WORKFLOW_NVLINK_ERR),
    75: ("ROBUST_CHANNEL_CE6_ERROR", "CE6: Unknown Error", Bucket.RESTART_APP),
    76: ("ROBUST_CHANNEL_CE7_ERROR", "CE7: Unknown Error", Bucket.RESTART_APP),
    77: ("ROBUST_CHANNEL_CE8_ERROR", "CE8: Unknown Error", Bucket.RESTART_APP),
    78: ("VGPU_START_ERROR", "vGPU Start Error", Bucket.UPDATE_SWFW),
    79: ("ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", "GPU has fallen off the bus", Bucket.RESTART_BM),
    80: ("PBDMA_PUSHBUFFER_CRC_MISMATCH", "Corrupted data sent to GPU", Bucket.RESTART_APP),
    81: ("ROBUST_CHANNEL_VGA_SUBSYSTEM_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    82: ("ROBUST_CHANNEL_NVJPG0_ERROR", "NVJPG0 Error", Bucket.RESTART_APP),
    83: ("ROBUST_CHANNEL_NVDEC1_ERROR", "NVDEC1 Error", Bucket.RESTART_APP),
    84: ("ROBUST_CHANNEL_NVDEC2_ERROR", "NVDEC2 Error", Bucket.RESTART_APP),
    85: ("ROBUST_CHANNEL_CE9_ERROR", "CE9: Unknown Error", Bucket.RESTART_APP),
    86: ("ROBUST_CHANNEL_OFA0_ERROR", "OFA Exception", Bucket.RESTART_APP),
    87: ("NVTELEMETRY_DRIVER_REPORT", _UNUSED, Bucket.CONTACT_SUPPORT),
    88: ("ROBUST_CHANNEL_NVDEC3_ERROR", "NVDEC3 Error", Bucket.RESTART_APP),
    89: ("ROBUST_CHANNEL_NVDEC4_ERROR", "NVDEC4 Error", Bucket.RESTART_APP),
    90: ("LTC_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    91: ("RESERVED_XID", _UNUSED, Bucket.CONTACT_SUPPORT),
    92: ("EXCESSIVE_SBE_INTERRUPTS", "High single-bit ECC error rate", Bucket.IGNORE),
    93: ("INFOROM_ERASE_LIMIT_EXCEEDED", "Non-fatal violation of provisioned InfoROM wear limit", Bucket.IGNORE),
    94: ("ROBUST_CHANNEL_CONTAINED_ERROR", "Contained memory error", Bucket.RESTART_APP),
    95: ("ROBUST_CHANNEL_UNCONTAINED_ERROR", "Uncontained memory error", Bucket.RESET_GPU),
    96: ("ROBUST_CHANNEL_NVDEC5_ERROR", "NVDEC5 Error", Bucket.RESTART_APP),
    97: ("ROBUST_CHANNEL_NVDEC6_ERROR", "NVDEC6 Error", Bucket.RESTART_APP),
    98: ("ROBUST_CHANNEL_NVDEC7_ERROR", "NVDEC7 Error", Bucket.RESTART_APP),
    99: ("ROBUST_CHANNEL_NVJPG1_ERROR", "NVJPG1 Error", Bucket.RESTART_APP),
    100: ("ROBUST_CHANNEL_NVJPG2_ERROR", "NVJPG2 Error", Bucket.RESTART_APP),
    101: ("ROBUST_CHANNEL_NVJPG3_ERROR", "NVJPG3 Error", Bucket.RESTART_APP),
    102: ("ROBUST_CHANNEL_NVJPG4_ERROR", "NVJPG4 Error", Bucket.RESTART_APP),
    103: ("ROBUST_CHANNEL_NVJPG5_ERROR", "NVJPG5 Error", Bucket.RESTART_APP),
    104: ("ROBUST_CHANNEL_NVJPG6_ERROR", "NVJPG6 Error", Bucket.RESTART_APP),
    105: ("ROBUST_CHANNEL_NVJPG7_ERROR", "NVJPG7 Error", Bucket.RESTART_APP),
    106: ("SMBPBI_TEST_MESSAGE", "SMBPBI Test Message", Bucket.IGNORE),
    107: ("SMBPBI_TEST_MESSAGE_SILENT", "SMBPBI Test Message Silent", Bucket.IGNORE),
    108: ("NVLINK_REMOTE_TRANSLATION_ERROR", _UNUSED, Bucket.IGNORE),
    109: ("ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR", "Context Switch Timeout Error", Bucket.RESET_GPU),
    110: ("SEC_FAULT_ERROR", "Security Fault Error", Bucket.RESET_GPU),
    111: ("BUNDLE_ERROR_EVENT", _UNUSED, Bucket.CONTACT_SUPPORT),
    112: ("DISP_SUPERVISOR_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    113: ("DP_LT_FAILURE", _UNUSED, Bucket.CONTACT_SUPPORT),
    114: ("HEAD_RG_UNDERFLOW", _UNUSED, Bucket.CONTACT_SUPPORT),
    115: ("CORE_CHANNEL_REGS", _UNUSED, Bucket.CONTACT_SUPPORT),
    116: ("WINDOW_CHANNEL_REGS", _UNUSED, Bucket.CONTACT_SUPPORT),
    117: ("CURSOR_CHANNEL_REGS", _UNUSED, Bucket.CONTACT_SUPPORT),
    118: ("HEAD_REGS", _UNUSED, Bucket.CONTACT_SUPPORT),
    119: ("GSP_RPC_TIMEOUT", "GSP RPC Timeout", Bucket.RESET_GPU),
    120: ("GSP_ERROR", "GSP Error", Bucket.RESET_GPU),
    121: ("C2C_ERROR", "C2C Error", Bucket.IGNORE),
    122: ("SPI_PMU_RPC_READ_FAIL", _UNUSED, Bucket.CONTACT_SUPPORT),
    123: ("SPI_PMU_RPC_WRITE_FAIL", _UNUSED, Bucket.CONTACT_SUPPORT),
    124: ("SPI_PMU_RPC_ERASE_FAIL", _UNUSED, Bucket.CONTACT_SUPPORT),
    125: ("INFOROM_FS_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    126: ("ROBUST_CHANNEL_CE10_ERROR", "CE10: Unknown Error", Bucket.RESTART_APP),
    127: ("ROBUST_CHANNEL_CE11_ERROR", "CE11: Unknown Error", Bucket.RESTART_APP),
    128: ("ROBUST_CHANNEL_CE12_ERROR", "CE12: Unknown Error", Bucket.RESTART_APP),
    129: ("ROBUST_CHANNEL_CE13_ERROR", "CE13: Unknown Error", Bucket.RESTART_APP),
    130: ("ROBUST_CHANNEL_CE14_ERROR", "CE14: Unknown Error", Bucket.RESTART_APP),
    131: ("ROBUST_CHANNEL_CE15_ERROR", "CE15: Unknown Error", Bucket.RESTART_APP),
    132: ("ROBUST_CHANNEL_CE16_ERROR", "CE16: Unknown Error", Bucket.RESTART_APP),
    133: ("ROBUST_CHANNEL_CE17_ERROR", "CE17: Unknown Error", Bucket.RESTART_APP),
    134: ("ROBUST_CHANNEL_CE18_ERROR", "CE18: Unknown Error", Bucket.RESTART_APP),
    135: ("ROBUST_CHANNEL_CE19_ERROR", "CE19: Unknown Error", Bucket.RESTART_APP),
    136: ("ALI_TRAINING_FAIL", "Link Training Failed", Bucket.RESET_GPU),
    137: ("NVLINK_PRIV_ERR", "NVLink Privilege Error", Bucket.IGNORE),
    138: ("ROBUST_CHANNEL_DLA_ERROR", _UNUSED, Bucket.CONTACT_SUPPORT),
    139: ("ROBUST_CHANNEL_OFA1_ERROR", "OFA1 Error", Bucket.RESTART_APP),
    140: ("UNRECOVERABLE_ECC_ERROR_ESCAPE", "ECC Unrecovered Error", Bucket.RESET_GPU),
    141: ("ROBUST_CHANNEL_FAST_PATH_ERROR", "CUDA Fast Path Error", Bucket.IGNORE),
    142: ("ROBUST_CHANNEL_NVENC3_ERROR", "NVENC3 Error", Bucket.CONTACT_SUPPORT),
    143: ("GPU_INIT_ERROR", "GPU Initialization Error", Bucket.RESET_GPU),
    144: ("NVLINK_SAW_ERROR", "NVLINK: SAW Error", Bucket.WORKFLOW_NVLINK5_ERR),
    145: ("NVLINK_RLW_ERROR", "NVLINK: RLW Error", Bucket.WORKFLOW_NVLINK5_ERR),
    146: ("NVLINK_TLW_ERROR", "NVLINK: TLW Error", Bucket.WORKFLOW_NVLINK5_ERR),
    147: ("NVLINK_TREX_ERROR", "NVLINK: TREX Error", Bucket.WORKFLOW_NVLINK5_ERR),
    148: ("NVLINK_NVLPW_CTRL_ERROR", "NVLINK: NVLPW_CTRL Error", Bucket.WORKFLOW_NVLINK5_ERR),
    149: ("NVLINK_NETIR_ERROR", "NVLINK: NETIR Error", Bucket.WORKFLOW_NVLINK5_ERR),
    150: ("NVLINK_MSE_ERROR", "NVLINK: MSE Error", Bucket.WORKFLOW_NVLINK5_ERR),
    151: ("ROBUST_CHANNEL_KEY_ROTATION_ERROR", "Key rotation Error", Bucket.RESTART_VM),
    152: ("ROBUST_CHANNEL_DLA_SMMU_ERROR", "DLA SMMU Error", Bucket.IGNORE),
    153: ("ROBUST_CHANNEL_DLA_TIMEOUT", "DLA timeout Error", Bucket.IGNORE),
    154: ("GPU_RECOVERY_ACTION_CHANGED", "GPU Recovery Action Changed", Bucket.XID_154),
    155: ("NVLINK_SW_DEFINED_ERROR", "NVLINK: SW Defined Error", Bucket.RESET_GPU),
    156: ("RESOURCE_RETIREMENT_EVENT", "Resource Retirement Event", Bucket.RESET_GPU),
    157: ("RESOURCE_RETIREMENT_FAILURE", "Resource Retirement Failure", Bucket.IGNORE),
    158: ("GPU_FATAL_TIMEOUT", "GPU Fatal Timeout", Bucket.RESET_GPU),
    159: ("ROBUST_CHANNEL_CHI_NON_DATA_ERROR", "CHI Non-Data Error", Bucket.CHECK_UVM),
    160: ("CHANNEL_RETIREMENT_EVENT", "Channel Retirement Event", Bucket.IGNORE),
    161: ("CHANNEL_RETIREMENT_FAILURE", "Channel Retirement Failure", Bucket.IGNORE),
    162: ("PSHC_REENGAGED", "Power Smoothing HW Circuitry capability reengaged", Bucket.NONE),
    163: ("PSHC_DISENGAGED", "Power Smoothing HW Circuitry capability disengaged", Bucket.NONE),
    164: ("PSHC_LOW_LIFETIME", "Power Smoothing HW Circuitry low lifetime reached", Bucket.NONE),
    165: ("PSHC_ZERO_LIFETIME", "Power Smoothing HW Circuitry lifetime exhausted", Bucket.NONE),
    166: (
        "NVLINK_SECURE_CRYPTO_ERR",
        "CC traffic seen prior to link properly being configured for encrypted traffic",
        Bucket.NONE,
    ),
    167: ("PCIE_FATAL_TIMEOUT", "PCIE_FATAL_TIMEOUT", Bucket.NONE),
    168: ("REDUCED_GPU_MEMORY_CAPACITY", "Errors found in WPR (write protected region)", Bucket.NONE),
    169: ("SEC2_HALT_ERROR", "Internal micro-controller halt", Bucket.NONE),
    170: ("NVLINK_SECURE_OTHER", "Interrupt seen in CC mode", Bucket.NONE),
    171: (
        "UNCORRECTABLE_DRAM_ERROR",
        "Additional to Xid 48 providing more details on particulars of fault to differentiate DRAM/SRAM",
        Bucket.NONE,
    ),
    172: (
        "UNCORRECTABLE_SRAM_ERROR",
        "Additional to Xid 48 providing more details on particulars of fault to differentiate DRAM/SRAM",
        Bucket.NONE,
    ),
}
#: By number.
CATALOGUE = {number: XidEntry(*row) for number, row in _ROWS.items()}

#: SXids after which the whole fabric has to be started anew with its host. The others say by themselves whether they are fatal.
ALWAYS_FATAL_SXIDS = frozenset((12020, 22003, 22011, *range(23001, 23018)))
