# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVML says of a machine. A value that it did not give is None, and the C(unknown) of its owner says why, by the value's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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

    @property
    def facts(self) -> dict[str, Any]:
        """It as an entry of C(processes) of the facts."""
        found = {"pid": self.pid, "name": self.name, "memory_mib": self.memory_mib, "type": self.type}
        return found if self.gpu_instance is None else {**found, "gpu_instance": self.gpu_instance}


@dataclass(frozen=True)
class GpuState:
    """One GPU as NVML sees it.

    :param facts: it as an entry of C(gpus) of the facts document, the one form in which planners take it.
    :param device_id: device and vendor in the form of mig-parted's device-filter: C(0x233010DE).
    :param subsystem_id: the same for the subsystem: C(0x16C110DE).
    :param unknown: why NVML did not give a value, by its name.
    """

    facts: dict[str, Any]
    device_id: str | None = None
    subsystem_id: str | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def index(self) -> int:
        return int(self.facts["index"])

    @property
    def lost(self) -> bool:
        """Whether NVML knows the GPU but cannot talk to it any more."""
        return bool(self.facts.get("lost"))

    @property
    def unknown_facts(self) -> dict[str, str]:
        """The part of C(unknown) of the facts that is about it: without a handle nothing of it is known but that the driver counts it."""
        path = f"gpus[{self.index}]"
        return {path if name == "handle" else f"{path}.{name}": reason for name, reason in self.unknown.items()}


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
