# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way back to a layout with its places: what the journal restores and what is recorded for the next boot. Pure.

The planner chooses places; here they are given. What is in place stays, what is in the way goes unless somebody uses
it, and what is missing is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .._boards.board import GpuInstanceProfile
from .._plan import Refused
from .._records import GpuRecord, PlacedInstance
from .certificate import NOT_REQUESTED, Certificate
from .host_plan import GpuChange, MigPlan, gpu_change
from .model import DesiredGpu, DesiredInstance, GpuInstance, compute_change, resolve
from .plan import Create, Destroy, GpuPlan, Keep
from .record import match
from .state import NodeGpu

_WHY = Certificate(NOT_REQUESTED, "it is not part of the layout that is restored")


def plan_exact(gpus: Sequence[NodeGpu], records: Sequence[GpuRecord], no_reset: Mapping[int, str]) -> MigPlan:
    """Return the plan that brings GPUs to a layout with its places. C(records): the layout; GPUs that it does not name are left alone."""
    changes: list[GpuChange] = []
    missing: list[str] = []
    for gpu in gpus:
        record = match(records, gpu.facts)
        if record is None or record.mig is None:
            continue
        if gpu.problem is not None:
            missing.append(f"{gpu.title}: {gpu.problem}")
            continue
        plan, lacking = exact_gpu(gpu, record)
        missing += [f"{gpu.title}: {text}" for text in lacking]
        if plan is not None:
            changes.append(gpu_change(gpu, plan, no_reset))
    missing += [
        f"{record.uuid} ({record.pci_address}): this host no longer has this GPU"
        for record in records
        if not any(match([record], gpu.facts) for gpu in gpus)
    ]
    return MigPlan(tuple(changes), {}, tuple(missing))


def exact_gpu(gpu: NodeGpu, record: GpuRecord) -> tuple[GpuPlan | None, list[str]]:
    """Return the plan of one GPU, or None where it cannot be changed, and what it cannot bring back."""
    busy = [instance for instance in gpu.current if instance.users]
    if not record.mig:
        if busy:
            return None, [f"MIG stays on: {_who(instance)}" for instance in busy]
        return GpuPlan(DesiredGpu(False), destroy=tuple(Destroy(i, _WHY) for i in gpu.current)), []
    profiles, lacking = _profiles(gpu, record)
    wanted = [(place, profiles[place.profile]) for place in record.instances if place.profile in profiles]
    missing = Counter((profile.name, place.start, place.size) for place, profile in wanted)
    keep, destroy = [], []
    for instance in gpu.current:
        key = (instance.profile, instance.start, instance.size)
        if missing[key] > 0:
            missing[key] -= 1
            keep.append(_keep(instance, wanted))
        elif instance.users:
            lacking.append(f"{_who(instance)} stays")
            keep.append(Keep(instance, compute_change(instance.compute, [c.slices for c in instance.compute])))
        else:
            destroy.append(Destroy(instance, _WHY))
    create = []
    for place, profile in wanted:
        if missing[(profile.name, place.start, place.size)] <= 0:
            continue
        missing[(profile.name, place.start, place.size)] -= 1
        if any(_overlaps(place, kept.instance) for kept in keep):
            lacking.append(f"{profile.name} at {place.start}:{place.size} cannot be created: its place is in use")
            continue
        create.append(Create(profile, place.start, place.size, place.compute))
    desired = DesiredGpu(True, tuple(sorted(DesiredInstance(profile.name, place.compute) for place, profile in wanted)))
    return GpuPlan(desired, tuple(keep), tuple(destroy), tuple(create)), lacking


def _profiles(gpu: NodeGpu, record: GpuRecord) -> tuple[dict[str, GpuInstanceProfile], list[str]]:
    found, lacking = {}, []
    for name in sorted({instance.profile for instance in record.instances}):
        try:
            found[name] = resolve(name, gpu.profiles, gpu.title)
        except Refused as refused:
            lacking.append(refused.reason)
    return found, lacking


def _keep(instance: GpuInstance, wanted: Sequence[tuple[PlacedInstance, GpuInstanceProfile]]) -> Keep:
    compute = next(w.compute for w, p in wanted if (p.name, w.start) == (instance.profile, instance.start))
    change = compute_change(instance.compute, compute)
    if change.busy:
        change = compute_change(instance.compute, [inner.slices for inner in instance.compute])
    return Keep(instance, change)


def _overlaps(wanted: PlacedInstance, instance: GpuInstance) -> bool:
    return wanted.start < instance.start + instance.size and instance.start < wanted.start + wanted.size


def _who(instance: GpuInstance) -> str:
    return f"{instance.place} (id {instance.id}) is in use by {', '.join(instance.users)}"
