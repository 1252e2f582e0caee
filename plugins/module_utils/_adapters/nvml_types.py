# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVML says of a machine, as plain frozen data.

A value that NVML did not give is None, and the C(unknown) of its owner says why, by the value's name. Memory is in MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: C(nvmlDeviceGpuRecoveryAction_t) of nvml.h, in the order of its values; 5 came with branch 595, 6 and 7 with 615.
RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)


@dataclass(frozen=True)
class SystemInfo:
    """Versions of the driver, of NVML and of the CUDA that the driver supports (such as C(13.0))."""

    driver_version: str | None
    nvml_version: str | None
    cuda_version: str | None
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Process:
    """A process that holds a GPU or an instance.

    :param type: C(C) compute, C(G) graphics, C(M+C) a client or server of MPS: the letters of nvidia-smi.
    :param gpu_instance: id of the GPU instance that it runs on; None on a GPU without MIG.
    :param compute_instance: id of the compute instance within that GPU instance; None on a GPU without MIG.
    :param name: from procfs; None when the process has ended since, or runs in another PID namespace.
    """

    pid: int
    name: str | None
    memory_mib: int | None
    type: str
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True)
class Placement:
    """A place on the grid: C(size) units from C(start). The unit of the grid differs between boards."""

    start: int
    size: int


@dataclass(frozen=True)
class ComputeInstance:
    """A compute instance. C(placement) is in compute slices of its GPU instance, C(index) is the MIG device's."""

    id: int
    profile: str
    profile_id: int
    placement: Placement
    uuid: str | None
    index: int | None = None
    processes: tuple[Process, ...] = ()
    multiprocessors: int | None = None


@dataclass(frozen=True)
class GpuInstance:
    """A GPU instance. C(id) is the driver's and says nothing about the placement."""

    id: int
    profile: str
    profile_id: int
    placement: Placement
    memory_mib: int
    compute_instances: tuple[ComputeInstance, ...] = ()
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True)
class MigMode:
    """MIG mode of a GPU. C(supported) is False on a board without MIG; None where NVML did not answer."""

    supported: bool | None
    current: bool | None
    pending: bool | None


@dataclass(frozen=True)
class GpuState:
    """One GPU as NVML sees it.

    :param pci_address: lower case, with a domain of four digits where it fits: C(0000:18:00.0).
    :param pci_device_id: device and vendor in the form of mig-parted's device-filter: C(0x233010DE).
    :param pci_subsystem_id: the same for the subsystem: C(0x16C110DE).
    :param lost: NVML knows the GPU but cannot talk to it any more; all other values are None.
    :param processes: all of the GPU, those on its instances included; None when NVML did not answer.
    """

    index: int
    minor: int | None = None
    uuid: str | None = None
    pci_address: str | None = None
    pci_device_id: str | None = None
    pci_subsystem_id: str | None = None
    name: str | None = None
    memory_mib: int | None = None
    architecture: str | None = None
    compute_mode: str | None = None
    persistence_mode: bool | None = None
    mig: MigMode = MigMode(None, None, None)
    gpu_instances: tuple[GpuInstance, ...] = ()
    processes: tuple[Process, ...] | None = None
    lost: bool = False
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuInstanceProfile:
    """A GPU instance profile as the driver offers it on one GPU.

    :param enum: the index of the profile in NVML (C(NVML_GPU_INSTANCE_PROFILE_*)).
    :param id: the driver's id of the profile, the column ID of C(nvidia-smi mig -lgip).
    :param name: such as C(1g.10gb+me).
    :param max_instances: as NVML says, which is wrong on some boards (A30).
    :param placements: all that the profile can take on an empty GPU; None when NVML did not answer.
    :param remaining: how many more can be made now; None when NVML did not answer.
    """

    enum: int
    id: int
    name: str
    slices: int
    max_instances: int
    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg: int
    ofa: int
    placements: tuple[Placement, ...] | None = None
    remaining: int | None = None


@dataclass(frozen=True)
class ComputeInstanceProfile:
    """A compute instance profile as the driver offers it inside one GPU instance.

    :param enum: the index of the profile in NVML (C(NVML_COMPUTE_INSTANCE_PROFILE_*)).
    :param id: the driver's id of the profile.
    :param remaining: how many more can be made now; None when NVML did not answer.
    """

    enum: int
    id: int
    name: str
    slices: int
    max_instances: int
    multiprocessors: int
    remaining: int | None = None
