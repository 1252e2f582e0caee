# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs as NVML would describe them, for tests of what is planned from that."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import GpuState
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.processes import add_allocations
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.state import NodeGpu, node_gpus

BUSY = {"pid": 812, "name": "python3", "memory_mib": 100, "type": "C"}


def state(key="h100-80gb-sxm", index=0, current=True, pending=None, unknown=None, lost=False, **values):
    row = board(key)
    mode = (current, current if pending is None else pending) if row.mig else (None, None)
    facts = {
        "index": index,
        "minor": index,
        "uuid": f"GPU-{index}",
        "pci_address": f"0000:{index + 24:02x}:00.0",
        "name": row.product_names[0],
        "board": key,
        "memory_mib": row.total_memory_mib,
        "architecture": row.architecture,
        "mig": {"supported": row.mig, "current": mode[0], "pending": mode[1]},
        "processes": [],
        "gpu_instances": [],
        **values,
    }
    return GpuState({**facts, **({"lost": True} if lost else {})}, row.pci_device_ids[0], None, unknown or {})


def offered(key="h100-80gb-sxm", places=True):
    return [
        {
            "enum": row.nvml_enum,
            "id": 99 if row.profile_id is None else row.profile_id,
            "name": row.name,
            "slices": row.gpu_slices,
            "memory_mib": row.memory_mib or 0,
            "starts": list(row.placements.starts) if places else None,
            "size": row.placements.size if places else None,
            **{key: getattr(row, key) for key in ("max_instances", "multiprocessors", "copy_engines")},
            **{key: getattr(row, key) for key in ("decoders", "encoders", "jpeg", "ofa")},
        }
        for row in board(key).profiles
    ]


def instance(profile, start, size, number, compute=None, busy=False):
    """Return an instance; C(compute) holds the profile names of its compute instances."""
    mine = [{**BUSY, "gpu_instance": number}] if busy else []
    inner = [
        {
            "id": i,
            "profile": name,
            "profile_id": i,
            "multiprocessors": None,
            "uuid": f"MIG-{number}-{i}",
            "index": i,
            "processes": mine if i == 0 else [],
        }
        for i, name in enumerate([profile] if compute is None else compute)
    ]
    place = {"id": number, "profile": profile, "profile_id": 9, "start": start, "size": size, "memory_mib": 1000}
    return {**place, "processes": mine, "compute_instances": inner}


def gpu(*instances, key="h100-80gb-sxm", pods=(), named=(), **values) -> NodeGpu:
    values.setdefault("processes", [process for one in instances for process in one["processes"]])
    return of(state(key, gpu_instances=list(instances), **values), offered(key), pods, named)


def of(one: GpuState, profiles=(), pods=(), named=()) -> NodeGpu:
    """Return a GPU as a host reads it; C(pods) have the devices of these UUIDs, and C(named) are in nvidia_mig_busy_instances."""
    entry = {**one.facts, "device_id": one.device_id, "subsystem_id": one.subsystem_id}
    if profiles:
        entry["profiles"] = list(profiles)
    add_allocations([entry], {uuid: [{"pod": "team/notebook"}] for uuid in pods})
    (found,) = node_gpus(view_of({"gpus": [entry], "unknown": one.unknown_facts}), named)
    return found
