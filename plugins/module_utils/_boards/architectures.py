# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPU architectures in order of age, and what depends on them: kernel modules, driver branches, MIG mode, MPS clients.

None means that no source says; it is never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

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
