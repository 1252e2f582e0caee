# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one unit of a resource is: a part of the memory of a GPU or MIG device. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...module_utils._boards.board import GpuInstanceProfile
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._mig.profiles import resolve
from ...module_utils._mig.state import profiles_of
from ...module_utils._sharing.host import client_limits, refuse_clients
from ...module_utils._sharing.modes import Sharing


@dataclass(frozen=True)
class Slice:
    """What one unit of a resource is.

    :param replicas: into how many units a GPU or MIG device is divided; 1 when it is not shared.
    :param memory_mib: memory of the GPU or MIG device; None when no source gives it.
    :param limit_mib: what one client can allocate; None when nothing limits it below C(memory_mib).
    :param active_thread_percentage: of an MPS client, else None.
    """

    replicas: int
    memory_mib: int | None
    limit_mib: int | None
    active_thread_percentage: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def slice_of(memory: int | None, sharing: Sharing, gpu: GpuFacts, resource: str) -> Slice:
    """Return what one unit of C(resource) is.

    :param memory: of the GPU or MIG device in MiB, where it is known.
    :raises Refused: the device has no room for so many clients.
    """
    replicas = sharing.replicas_on(memory, resource=resource) if sharing.replicated else 1
    if sharing.mode != "mps" or not sharing.replicated:
        return Slice(replicas, memory, None, None)
    refuse_clients(sharing, gpu.but(memory_mib=memory))
    limits = client_limits(sharing, gpu.index, memory)
    percentage = int(limits.percentage) if limits.percentage % 1 == 0 else limits.percentage
    return Slice(replicas, memory, limits.memory_mib or None, percentage)


def profile_of(gpu: GpuFacts, name: str) -> GpuInstanceProfile | None:
    """Return the MIG profile of this name that the GPU offers, where its profiles are known."""
    offered = profiles_of(gpu)
    return resolve(name, offered) if offered else None


def profile_memory(gpu: GpuFacts, name: str) -> int | None:
    """Return the memory in MiB of a MIG device: what an instance of this profile has, else what the profile says."""
    for instance in gpu.gpu_instances:
        if instance.profile == name and instance.memory_mib:
            return instance.memory_mib
    profile = profile_of(gpu, name)
    return profile.memory_mib if profile else None
