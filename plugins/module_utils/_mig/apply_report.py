# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs and plans as the module returns them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .apply_plan import GpuChange, MigPlan
from .current import HostGpu, describe_record
from .model import GpuInstance
from .record import GpuRecord, PlacedInstance


def describe_gpus(gpus: Sequence[HostGpu]) -> list[dict[str, Any]]:
    """Return GPUs with their instances; GPUs without MIG are in it, with C(mig) null."""
    return [
        {
            "index": gpu.index,
            "uuid": gpu.state.uuid,
            "pci_address": gpu.state.pci_address,
            "name": gpu.state.name,
            "mig": gpu.state.mig.current,
            "mig_pending": gpu.state.mig.pending,
            "instances": [
                {
                    "id": instance.id,
                    "profile": instance.profile,
                    "start": instance.placement.start,
                    "size": instance.placement.size,
                    "compute_instances": [
                        {
                            "id": compute.id,
                            "profile": compute.profile,
                            "multiprocessors": compute.multiprocessors,
                            "uuid": compute.uuid,
                        }
                        for compute in instance.compute_instances
                    ],
                }
                for instance in gpu.state.gpu_instances
            ],
        }
        for gpu in gpus
    ]


def planned_record(change: GpuChange) -> GpuRecord:
    """Return one GPU as it is when the plan is carried out.

    Where the places are not known before MIG is on, it is recorded without instances: the next run fills them in.
    """
    instances = [_after(keep.instance, keep.change.destroy, keep.change.create) for keep in change.plan.keep]
    instances += [PlacedInstance(made.profile.name, made.start, made.size, made.compute) for made in change.plan.create]
    return GpuRecord(
        uuid=change.gpu.state.uuid or "",
        pci_address=change.gpu.state.pci_address or "",
        name=change.gpu.state.name or "",
        mig=change.plan.desired.enabled if change.gpu.has_mig else None,
        instances=tuple(sorted(instances, key=lambda instance: instance.start)),
    )


def state_after(plan: MigPlan, gpus: Sequence[HostGpu]) -> dict[str, Any]:
    """Return the MIG state of the GPUs as the plan makes it, in the form of C(current.state_of)."""
    planned = {change.gpu.index: change for change in plan.changes}
    found: dict[str, Any] = {}
    for gpu in gpus:
        if not gpu.has_mig:
            continue
        change = planned.get(gpu.index)
        found[gpu.title] = describe_record(gpu.record if change is None else planned_record(change))
        if change is not None and change.plan.unknown is not None:
            found[gpu.title] = {"mig": True, "instances": f"not known before MIG is on: {change.plan.desired}"}
    return found


def stale_uuids(before: Sequence[HostGpu], after: Sequence[HostGpu]) -> list[str]:
    """Return the UUIDs of MIG devices that were there and are not any more, in order."""
    there = {uuid for gpu in after for uuid in gpu.mig_uuids}
    return [uuid for gpu in before for uuid in gpu.mig_uuids if uuid not in there]


def _after(instance: GpuInstance, destroy: Sequence[Any], create: Sequence[int]) -> PlacedInstance:
    gone = {compute.id for compute in destroy}
    slices = [compute.slices for compute in instance.compute if compute.id not in gone] + list(create)
    return PlacedInstance(instance.profile, instance.start, instance.size, tuple(sorted(slices, reverse=True)))
