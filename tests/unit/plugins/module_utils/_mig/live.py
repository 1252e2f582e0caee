# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs as NVML would describe them, for tests of what is planned from that."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_facts import (
    shape_gpu,
    shape_profile,
    unknown_of,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_types import (
    ComputeInstance,
    GpuInstance,
    GpuInstanceProfile,
    GpuState,
    MigMode,
    Placement,
    Process,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.current import NodeGpu, node_gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.profiles import parse
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import add_allocations

BUSY = Process(812, "python3", 100, "C")


def state(key="h100-80gb-sxm", index=0, current=True, pending=None, **values):
    row = board(key)
    values.setdefault("processes", ())
    return GpuState(
        index=index,
        minor=index,
        uuid=f"GPU-{index}",
        pci_address=f"0000:{index + 24:02x}:00.0",
        pci_device_id=row.pci_device_ids[0],
        name=row.product_names[0],
        memory_mib=row.total_memory_mib,
        architecture=row.architecture,
        mig=MigMode(row.mig, *((current, current if pending is None else pending) if row.mig else (None, None))),
        **values,
    )


def offered(key="h100-80gb-sxm", places=True):
    return tuple(
        GpuInstanceProfile(
            enum=row.nvml_enum,
            id=row.profile_id,
            name=row.name,
            slices=row.gpu_slices,
            max_instances=row.max_instances,
            memory_mib=row.memory_mib,
            multiprocessors=row.multiprocessors,
            copy_engines=row.copy_engines,
            decoders=row.decoders,
            encoders=row.encoders,
            jpeg=row.jpeg,
            ofa=row.ofa,
            placements=tuple(Placement(start, row.placements.size) for start in row.placements.starts)
            if places
            else None,
        )
        for row in board(key).profiles
    )


def instance(profile, start, size, number, compute=None, busy=False):
    """Return an instance; C(compute) holds the profile names of its compute instances."""
    process = replace(BUSY, gpu_instance=number, compute_instance=0)
    inner = tuple(
        ComputeInstance(i, name, i, Placement(i, 1), f"MIG-{number}-{i}", i, (process,) if busy and i == 0 else ())
        for i, name in enumerate([profile] if compute is None else compute)
    )
    return GpuInstance(number, profile, 9, Placement(start, size), 1000, inner, (process,) if busy else ())


def gpu(*instances, key="h100-80gb-sxm", pods=(), named=(), **values) -> NodeGpu:
    busy = tuple(process for one in instances for process in one.processes)
    values.setdefault("processes", busy)
    return of(state(key, gpu_instances=tuple(instances), **values), offered(key), pods, named)


def of(one: GpuState, profiles=(), pods=(), named=()) -> NodeGpu:
    """Return a GPU as a host reads it; C(pods) have the devices of these UUIDs, and C(named) are in nvidia_mig_busy_instances."""
    entry = {**shape_gpu(one), "device_id": one.pci_device_id, "subsystem_id": one.pci_subsystem_id}
    if profiles:
        entry["profiles"] = [shape_profile(profile) for profile in profiles]
    add_allocations([entry], {uuid: [{"pod": "team/notebook"}] for uuid in pods})
    (found,) = node_gpus({"gpus": [entry], "unknown": unknown_of(one)}, named)
    return found


def slices(name):
    return parse(name).compute
