# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: RUF009 (the functions declare fields)

"""A GPU of the facts document, typed (see L(_facts_view)). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._gpu_settings import GpuSettings
from ._plan import Step
from ._schema import View, boolean, check, has, items, needs, number, of, text
from ._steps import Kind, gpu_title

_NAME, _TEXT, _PROFILE = text(256), text(), text(64)
ID = number(0, 2**32 - 1)
#: 4 TiB, of a GPU or a process on it.
_MIB = number(0, 4 * 1024 * 1024)
_INDEX, _COUNT = number(0, 1023), number(0, 4096)
#: Memory slices of a GPU; all boards have twelve or fewer.
SLICES = 64
_SLICE = number(0, SLICES)


@dataclass(frozen=True)
class ProcessFacts(View):
    pid: int = needs(ID)
    name: str | None = has(_TEXT)
    memory_mib: int | None = has(_MIB)
    type: str | None = has(_NAME)
    gpu_instance: int | None = has(ID)


@dataclass(frozen=True)
class AllocationFacts(View):
    pod: str | None = has(_NAME)
    pod_uid: str | None = has(_NAME)
    job: str | None = has(_NAME)
    user: str | None = has(_NAME)
    #: The devices that the job was told, where that are others than the one that it was given.
    sees: str | None = has(_TEXT)
    container: str | None = has(_NAME)
    # The name of a claim, which a user chooses, has up to 253 characters, and what it is stands before it.
    resource: str | None = has(text(320))
    reason: str | None = has(_TEXT)


_PROCESSES = items(of(ProcessFacts))
#: A shared device has up to some hundred replicas, each of which is one container's.
_ALLOCATIONS = items(of(AllocationFacts), 4096)


@dataclass(frozen=True)
class ComputeInstanceFacts(View):
    id: int = needs(ID)
    profile: str = needs(_PROFILE)
    profile_id: int | None = has(ID)
    multiprocessors: int | None = has(_COUNT)
    uuid: str | None = has(_NAME)
    index: int | None = has(_INDEX)
    processes: tuple[ProcessFacts, ...] | None = has(_PROCESSES)
    allocations: tuple[AllocationFacts, ...] = has(_ALLOCATIONS, ())


@dataclass(frozen=True)
class GpuInstanceFacts(View):
    id: int = needs(ID)
    profile: str = needs(_PROFILE)
    start: int = needs(_SLICE)
    size: int = needs(_SLICE)
    profile_id: int | None = has(ID)
    memory_mib: int | None = has(_MIB)
    processes: tuple[ProcessFacts, ...] | None = has(_PROCESSES)
    compute_instances: tuple[ComputeInstanceFacts, ...] = has(items(of(ComputeInstanceFacts), 64), ())


@dataclass(frozen=True)
class ProfileFacts(View):
    name: str = needs(_PROFILE)
    id: int = needs(ID)
    memory_mib: int = needs(_MIB)
    multiprocessors: int | None = has(_COUNT)
    enum: int | None = has(_COUNT)
    copy_engines: int | None = has(_COUNT)
    decoders: int | None = has(_COUNT)
    encoders: int | None = has(_COUNT)
    jpeg: int | None = has(_COUNT)
    ofa: int | None = has(_COUNT)
    max_instances: int | None = has(_SLICE)
    remaining: int | None = has(_SLICE)
    starts: tuple[int, ...] = has(items(_SLICE, 64), ())
    size: int | None = has(_SLICE)


@dataclass(frozen=True)
class MigModeFacts(View):
    supported: bool | None = has(boolean)
    current: bool | None = has(boolean)
    pending: bool | None = has(boolean)


@dataclass(frozen=True)
class MemoryErrorFacts(View):
    uncorrected: int | None = has(number())
    remapped_correctable: int | None = has(number())
    remapped_uncorrectable: int | None = has(number())
    remap_pending: bool | None = has(boolean)
    remap_failed: bool | None = has(boolean)


@dataclass(frozen=True)
class GpuFabricFacts(View):
    state: str | None = has(_NAME)
    summary: str | None = has(_NAME)
    clique: str | None = has(_NAME)
    status: int | None = has(number())
    degraded: tuple[str, ...] | None = has(items(_NAME, 64))


@dataclass(frozen=True)
class GpuFacts(View):
    """A GPU. Without C(processes) it was described and not read; null, NVML does not tell them."""

    index: int = needs(_INDEX)
    minor: int | None = has(_INDEX)
    uuid: str | None = has(_NAME)
    pci_address: str | None = has(_NAME)
    name: str | None = has(_NAME)
    board: str | None = has(_NAME)
    device_id: str | None = has(_NAME)
    architecture: str | None = has(_NAME)
    compute_mode: str | None = has(_NAME)
    memory_mib: int | None = has(_MIB)
    persistence_mode: bool | None = has(boolean)
    mig: MigModeFacts = has(of(MigModeFacts), MigModeFacts())
    processes: tuple[ProcessFacts, ...] | None = has(_PROCESSES)
    allocations: tuple[AllocationFacts, ...] = has(_ALLOCATIONS, ())
    gpu_instances: tuple[GpuInstanceFacts, ...] = has(items(of(GpuInstanceFacts), 64), ())
    profiles: tuple[ProfileFacts, ...] = has(items(of(ProfileFacts), 256), ())
    errors: MemoryErrorFacts = has(of(MemoryErrorFacts), MemoryErrorFacts())
    recovery_action: str | None = has(_NAME)
    fabric: GpuFabricFacts = has(of(GpuFabricFacts), GpuFabricFacts())
    settings: GpuSettings | None = has(of(GpuSettings))
    lost: bool = has(boolean, False)
    # What the planners add: what the bus says of its card, why it cannot be changed now, and whether the inventory alone says that it is there.
    subsystem_id: str | None = None
    problem: str | None = None
    from_table: bool = False

    @property
    def devices(self) -> tuple[ComputeInstanceFacts, ...]:
        """Its MIG devices."""
        return tuple(part for one in self.gpu_instances for part in one.compute_instances)

    @property
    def parts(self) -> tuple[GpuFacts | ComputeInstanceFacts, ...]:
        """Itself and its MIG devices."""
        return (self, *self.devices)

    @property
    def title(self) -> str:
        """How people call it."""
        return gpu_title(self.index, self.pci_address)


_GPU = of(GpuFacts)


def gpu_view(read: Mapping[str, Any]) -> GpuFacts:
    """Return one entry of C(gpus), as it stands in a document or was just read. Raises Unfit: it is no such entry."""
    found: GpuFacts = check(_GPU, read)
    return found


def gpu_step(
    kind: Kind, gpu: GpuFacts, why: str, disturbs: Sequence[str] = (), data: Mapping[str, Any] | None = None
) -> Step:
    """Return a step on a GPU; its target is the PCI address, which is also known without a driver."""
    identity = {"index": gpu.index, "uuid": gpu.uuid, "pci_address": gpu.pci_address}
    target = gpu.pci_address or gpu.uuid or str(gpu.index)
    return Step(kind, target, why, tuple(disturbs), {**identity, **(data or {})})
