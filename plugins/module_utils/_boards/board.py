# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shape of the board table: boards, their MIG profiles and where instances of a profile can be placed; and the GPU architectures.

None always means that no source gives the value. It never means zero and is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Placements:
    """Where instances of a profile can start, on the board's grid of units, as C(nvidia-smi mig -lgipp) prints it, and how many units each takes."""

    starts: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class GpuInstanceProfile:
    """One kind of GPU instance that a board (or a live driver) offers.

    :param nvml_profile: the part of the NVML constant after C(NVML_GPU_INSTANCE_PROFILE_).
    :param nvml_enum: the index passed to C(nvmlDeviceGetGpuInstanceProfileInfo).
    :param profile_id: the ID column of C(nvidia-smi mig -lgip), unlike C(nvml_enum).
    :param memory_mib: memory of an instance in MiB; differs a little between drivers.
    :param source: key of C(SOURCES) for the numbers; C(live) for a profile read from NVML.
    """

    name: str
    gpu_slices: int
    max_instances: int
    placements: Placements | None = None
    memory_mib: int | None = None
    multiprocessors: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg: int | None = None
    ofa: int | None = None
    nvml_profile: str | None = None
    nvml_enum: int | None = None
    profile_id: int | None = None
    source: str = "live"
    placements_source: str | None = None
    note: str | None = None


#: NVLink 5 with the switches in the GPU's own host (HGX): its fabric manager and subnet manager have to run there.
SWITCHES_IN_HOST = "host"
#: NVLink 5 with the switches outside of it (NVL72): a GPU host has no fabric manager of its own (aks-gpu#170).
SWITCHES_IN_RACK = "rack"

#: Which switches a fabric manager serves: NVSwitches of before NVLink 5, which the PCI bus shows as such, or those of NVLink 5.
NVSWITCH, NVLINK5 = "nvswitch", "nvlink5"

#: What the fabric manager's check before its start asks for with NVLink 5 (570 and newer): it speaks to the switches through a ConnectX
#: function (gpu-driver-container, nvidia-driver; canvos#700). In Ubuntu mlx5_ib is in linux-modules-extra.
NVLINK5_MODULES = ("mlx5_core", "mlx5_ib", "ib_umad")


@dataclass(frozen=True)
class Board:
    """One kind of GPU board.

    :param pci_device_ids: C(0xDDDDVVVV), device id followed by NVIDIA's vendor id 10DE, upper case.
    :param total_memory_mib: memory in MiB as a driver reports it, with ECC as the board is delivered; on boards with GDDR6 that is less than the
        label says. Drivers before 510 report a little less.
    :param memory_label: the size in the vendor's name of the product, such as C(80GB); a label, not a measure.
    :param placement_grid_units: how many memory units MIG divides the board into; not always a power of two.
    :param nvlink5_switches: L(SWITCHES_IN_HOST) or L(SWITCHES_IN_RACK) for boards with NVLink 5. Their switches are not found on the PCI bus as
        NVSwitches are: the GPU decides (gpu-operator#2781). None for all other boards, whether they have NVLink or not.
    """

    key: str
    product_names: tuple[str, ...]
    pci_device_ids: tuple[str, ...]
    architecture: str
    total_memory_mib: int | None = None
    memory_label: str | None = None
    memory_source: str | None = None
    compute_slices: int | None = None
    placement_grid_units: int | None = None
    sm_total: int | None = None
    profiles: tuple[GpuInstanceProfile, ...] = ()
    caveat: str | None = None
    placements_note: str | None = None
    source: str | None = None
    nvlink5_switches: str | None = None

    @property
    def mig(self) -> bool:
        return bool(self.profiles)

    @property
    def most_memory_mib(self) -> int | None:
        """The most that a driver can report, which it does where ECC was switched off: what the label says."""
        return int(self.memory_label[:-2]) * 1024 if self.memory_label else self.total_memory_mib


#: A row of the tables, read like a line of nvidia-smi mig -lgip: what stands in L(_COLUMNS), and the source where it is not the table's.
Row = tuple[Any, ...]
_COLUMNS = (
    *("name", "nvml_profile", "nvml_enum", "profile_id", "gpu_slices", "max_instances", "memory_mib"),
    *("multiprocessors", "copy_engines", "decoders", "encoders", "jpeg", "ofa", "placements"),
)

# Where one-unit instances go on the boards with seven slices: never on the last of the eight units.
EIGHTHS = "{0,1,2,3,4,5,6}:1"


def parse_placements(text: str) -> Placements:
    """Read placements as C(nvidia-smi mig -lgipp) prints them: C({0,2,4}:2). Raises ValueError: when the text has another form."""
    starts, separator, size = text.partition("}:")
    if not separator or not starts.startswith("{"):
        raise ValueError(f"placements are written {{starts}}:size, got {text!r}")
    return Placements(tuple(int(start) for start in starts[1:].split(",")), int(size))


def profiles_from(
    *rows: Row, source: str, placements_source: str | None = None, notes: Mapping[str, str] | None = None
) -> tuple[GpuInstanceProfile, ...]:
    """Turn table rows into profiles. C(source): key of C(SOURCES) for rows that name none of their own, and for their places where those have no other."""
    profiles = []
    for row in rows:
        values = dict(zip(_COLUMNS, row))
        placed = values.pop("placements")
        profiles.append(
            GpuInstanceProfile(
                **values,
                placements=None if placed is None else parse_placements(placed),
                source=row[len(_COLUMNS)] if len(row) > len(_COLUMNS) else source,
                placements_source=None if placed is None else placements_source or source,
                note=(notes or {}).get(values["name"]),
            )
        )
    return tuple(profiles)


# GPU architectures in order of age, and what depends on them: kernel modules, driver branches, MIG mode, MPS clients.

OPEN = "open"
PROPRIETARY = "proprietary"

# From this branch on NVIDIA's guide lists no proprietary kernel modules (driver-installation-guide/620 [doc]).
FIRST_BRANCH_WITHOUT_PROPRIETARY = 620

# From this branch on the MPS control program has a multi-user server: Debian's nvidia-cuda-mps 555.58.02 has the option and
# 550.163.01 and 535.261.03 have not (looked for in the programs, and tried) [run].
FIRST_BRANCH_WITH_MPS_MULTI_USER = 555

# CUDA 13.1 comes with this branch, and with it more MPS clients (CUDA release notes, table of driver versions [doc]).
FIRST_BRANCH_WITH_CUDA_13_1 = 590

# [code] go-nvlib default_pci.ids: GH200 120GB / 480GB, GH200 144G HBM3e. Grace Hopper runs the open modules only [doc].
GRACE_HOPPER_DEVICE_IDS = ("0x2342", "0x2348")


@dataclass(frozen=True)
class Architecture:
    """What an architecture decides.

    :param nvml: its number in NVML's answer (nvmlDeviceArchitecture_t of nvml.h).
    :param mig_toggle_needs_reset: whether changing the MIG mode takes effect only after a reset of the GPU.
    :param mps_clients_device_plugin: most replicas that k8s-device-plugin accepts with MPS; it compares the compute capability with 7.5 and so gives
        Volta the limit of older GPUs.
    """

    name: str
    nvml: int
    compute_capabilities: tuple[str, ...]
    kernel_modules: tuple[str, ...]
    last_driver_branch: int | None
    mig: bool
    mig_toggle_needs_reset: bool | None
    mps_clients: int
    mps_clients_cuda_13_1: int
    mps_clients_device_plugin: int


_BOTH = (OPEN, PROPRIETARY)

# Kernel modules and last branches: NVIDIA's driver installation guide [doc] and the legacy_580 branch [secondary].
# MIG mode: the MIG guide for Ampere [doc], supportsMIGModeToggle of the DRA driver for Hopper and newer [code].
# MPS clients: man page of nvidia-cuda-mps-control [doc], MPS PDF of R590 [secondary], k8s-device-plugin 0.20 [code].
_ORDERED = (
    Architecture("maxwell", 3, ("5.0", "5.2"), (PROPRIETARY,), 580, False, None, 16, 16, 16),
    Architecture("pascal", 4, ("6.0", "6.1"), (PROPRIETARY,), 580, False, None, 16, 16, 16),
    Architecture("volta", 5, ("7.0",), (PROPRIETARY,), 580, False, None, 48, 60, 16),
    Architecture("turing", 6, ("7.5",), _BOTH, None, False, None, 48, 60, 48),
    Architecture("ampere", 7, ("8.0", "8.6"), _BOTH, None, True, True, 48, 60, 48),
    Architecture("ada", 8, ("8.9",), _BOTH, None, False, None, 48, 60, 48),
    Architecture("hopper", 9, ("9.0",), _BOTH, None, True, False, 48, 60, 48),
    Architecture("blackwell", 10, ("10.0", "10.3", "12.0"), (OPEN,), None, True, False, 48, 60, 48),
)

ARCHITECTURES: dict[str, Architecture] = {architecture.name: architecture for architecture in _ORDERED}

# Older than what the collection supports, and newer than its sources: their names are all that is known of them (nvml.h).
_NAMES = {2: "kepler", 13: "rubin", **{architecture.nvml: architecture.name for architecture in _ORDERED}}

# What holds for a GPU whose architecture is not known, or newer than the table: that of the newest one.
_NEWEST = _ORDERED[-1]
# The first architecture whose MPS clients submit their work themselves. Older ones have fewer clients and no multi-user server:
# Pascal's control program takes the option, and clients of other users then fail (dra-driver-nvidia-gpu#1153 [code]).
_FIRST_WITH_MPS_OF_VOLTA = "volta"


def name_of(number: int) -> str:
    """Return the name of the architecture that NVML calls C(number), or the number for one that has none here."""
    return _NAMES.get(number, str(number))


def mps_clients(architecture: str | None, branch: int | None, slices: int | None = None, of: int | None = None) -> int:
    """Return how many client contexts a GPU, or a MIG device, has under MPS.

    :param branch: of the driver; None when it is not known, which gives the most that any branch has.
    :param slices: compute slices of the MIG device; None for a whole GPU. The number of clients "is lowered proportionally to the Compute Instance
        size" (MIG user guide, deployment considerations [doc]); no source gives the rounding, so it is down.
    """
    known = ARCHITECTURES.get(architecture or "", _NEWEST)
    new = branch is None or branch >= FIRST_BRANCH_WITH_CUDA_13_1
    clients = known.mps_clients_cuda_13_1 if new else known.mps_clients
    return max(1, clients * slices // of) if slices and of else clients


def mps_clients_of_device_plugin(architecture: str | None) -> int:
    """Return how many replicas of a GPU the MPS daemon of the device plugin starts with, whatever CUDA allows."""
    return ARCHITECTURES.get(architecture or "", _NEWEST).mps_clients_device_plugin


def mps_has_multi_user(architecture: str | None) -> bool:
    known = ARCHITECTURES.get(architecture or "", _NEWEST)
    return is_at_least(known.name, _FIRST_WITH_MPS_OF_VOLTA)


def kernel_modules(architecture: str, device_id: str | None = None) -> tuple[str, ...]:
    """Return the flavours of kernel modules that drive a GPU, the recommended one first. C(device_id): PCI device id such as C(0x2342), because Grace
    Hopper differs from other Hopper boards.
    """
    if device_id is not None and device_id[:6].lower() in GRACE_HOPPER_DEVICE_IDS:
        return (OPEN,)
    return ARCHITECTURES[architecture].kernel_modules


def is_at_least(architecture: str, other: str) -> bool:
    """Return whether an architecture is the other one or newer. Raises KeyError: for an unknown architecture."""
    order = list(ARCHITECTURES)
    if architecture not in ARCHITECTURES or other not in ARCHITECTURES:
        raise KeyError(architecture if architecture not in ARCHITECTURES else other)
    return order.index(architecture) >= order.index(other)
