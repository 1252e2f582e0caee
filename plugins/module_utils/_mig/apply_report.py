# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs as the modules return them: in our form, in nvidia-mig-parted's, and as C(--diff) compares them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._records import GpuRecord
from .host_plan import MigPlan
from .mig_parted import layout_of, write
from .model import DesiredGpu
from .profiles import parse
from .state import NodeGpu, devices_of, present


def describe_gpus(gpus: Sequence[NodeGpu]) -> list[dict[str, Any]]:
    """Return GPUs with their instances; GPUs without MIG are in it, with C(mig) null."""
    return [
        {
            **{key: getattr(gpu.facts, key) for key in ("index", "uuid", "pci_address", "name")},
            "mig": gpu.enabled,
            "mig_pending": gpu.facts.mig.pending,
            "instances": [
                {
                    **{key: getattr(instance, key) for key in ("id", "profile", "start", "size")},
                    "compute_instances": [
                        {key: getattr(compute, key) for key in ("id", "profile", "multiprocessors", "uuid")}
                        for compute in instance.compute_instances
                    ],
                }
                for instance in gpu.facts.gpu_instances
            ],
        }
        for gpu in gpus
    ]


def states(gpus: Sequence[NodeGpu], plan: MigPlan | None = None) -> dict[str, Any]:
    """Return the MIG state of the GPUs for people, as it is or as a plan makes it."""
    changes = {change.gpu.index: change for change in plan.changes} if plan is not None else {}
    found: dict[str, Any] = {}
    for gpu in gpus:
        change = changes.get(gpu.index)
        if change is not None and change.plan.unknown is not None:
            found[gpu.title] = {"mig": True, "instances": f"not known before MIG is on: {change.plan.desired}"}
        elif gpu.has_mig:
            found[gpu.title] = _state(gpu.record if change is None else change.after)
    return found


def _state(record: GpuRecord) -> Mapping[str, object]:
    return {
        "mig": record.mig,
        "instances": [
            f"{instance.profile} at {instance.start}:{instance.size}"
            + ("" if instance.compute == (parse(instance.profile).gpu_slices,) else f" {list(instance.compute)}")
            for instance in record.instances
        ],
    }


def stale_uuids(before: Sequence[NodeGpu], after: Sequence[NodeGpu]) -> list[str]:
    """Return the UUIDs of MIG devices that were there and are not any more, in order."""
    there = {uuid for gpu in after for uuid in devices_of(gpu.facts)}
    return [uuid for gpu in before for uuid in devices_of(gpu.facts) if uuid not in there]


class Unexportable(Exception):
    """The layout of a GPU cannot be read."""


def export(gpus: Sequence[NodeGpu], label: str) -> dict[str, Any]:
    """Return the GPUs, the layout in our form, and mig-parted's file. Raises Unexportable: a GPU does not tell its layout; what is exported without
    it would be wrong.
    """
    layouts: dict[int, DesiredGpu] = {}
    for gpu in gpus:
        if gpu.problem is not None:
            raise Unexportable(
                f"Failed to export the MIG layout: {gpu.title} cannot be read: {gpu.problem}. "
                "Check it with the module gpufleet.nvidia.health"
            )
        now = present(gpu.facts)
        if now is not None:
            layouts[gpu.index] = now
    return {
        "gpus": describe_gpus(gpus),
        "layout": layout_of(layouts, len(gpus)),
        "mig_parted": write(label, layouts, len(gpus)),
    }
