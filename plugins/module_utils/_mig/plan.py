# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the instances of a GPU to the instances that are wanted, destroying as few as possible.

Of all layouts of the desired state the planner takes the one that, in this order: keeps every busy instance (with force: the
most of those that are named as busy, then the most busy ones), destroys the fewest GPU instances, disturbs the fewest
compute instances, leaves the most room for later. It looks at every layout, so the result is the optimum and not an
approximation of it; the certificate of each destroyed instance says why. A desired state that the GPU already meets changes
nothing, whatever the table says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._boards.board import GpuInstanceProfile, Placements
from .._gpu_facts import GpuFacts, gpu_step
from .._plan import Refused, Step
from .._steps import Kind
from .certificate import MODE_OFF, Certificate, certify
from .geometry import Geometry, bits, geometry, nearest, refuse_infeasible
from .model import (
    ComputeChange,
    ComputeInstance,
    DesiredGpu,
    GpuInstance,
    assign,
    canonical,
    compute_name,
    describe,
    left_over,
    resolve,
    wanted_of,
)

REFUSE = "refuse"
IDLE_ONLY = "idle_only"
FORCE = "force"
DISRUPTIONS = (REFUSE, IDLE_ONLY, FORCE)
IN_USE_REMEDY = (
    "Stop its users, or set nvidia_mig_disruption to force. On a node of Kubernetes, ansible-playbook -i INVENTORY gpufleet.nvidia.repartition evicts "
    "the pods first."
)


def plan_gpu(
    current: Sequence[GpuInstance],
    desired: DesiredGpu,
    profiles: Sequence[GpuInstanceProfile],
    disruption: str = REFUSE,
    thing: str = "GPU",
) -> GpuPlan:
    """Return the plan of one GPU.

    :param current: the instances that exist; those with users are busy.
    :param desired: what the GPU is to be.
    :param profiles: the profiles with their placements, from the driver where there is one, else the board's.
    :param disruption: C(refuse) and C(idle_only) never touch a busy instance, C(force) may. (What the first two differ
        in, leaving one GPU alone or refusing the whole host, is decided in C(nodes.plan_node).)
    :raises Refused: when the desired state cannot be met, or not without touching a busy instance.
    """
    desired = _with_names_of(desired, profiles, thing)
    current = named_as(current, profiles)
    if not desired.enabled:
        return _switch_off(current, desired, disruption, thing)
    if wanted_of(current) == sorted(desired.instances):
        in_order = sorted(current, key=lambda instance: instance.start)
        return GpuPlan(desired, tuple(Keep(instance, ComputeChange()) for instance in in_order))
    shape = geometry_with(profiles, current)
    request = shape.request(desired.counts)
    slots = [slot_of(shape, instance) for instance in current]
    existing = sum(slots)
    if all(slots) and _request_of(shape, existing) == request:
        layouts: tuple[int, ...] = (existing,)
    else:
        layouts = shape.layouts_of(request)
        placed = {profile.name for profile in profiles if profile.placements is not None}
        missing = sorted(set(desired.counts) - placed)
        if not layouts and missing:
            return GpuPlan(desired, unknown=_unknown(shape, request, missing, thing, desired))
        if not layouts:
            raise refuse_infeasible(shape, request, thing, describe(desired.counts))
    pinned = 0
    if disruption != FORCE:
        pinned = _pinned(current, slots, desired, shape, layouts, thing)
        layouts = tuple(layout for layout in layouts if layout & pinned == pinned)
    layout, changes = _best(current, slots, desired, shape, layouts, disruption, thing)
    return _plan(current, slots, desired, shape, request, layouts, layout, changes)


def _with_names_of(desired: DesiredGpu, profiles: Sequence[GpuInstanceProfile], thing: str) -> DesiredGpu:
    known = {profile.name for profile in profiles}
    if all(instance.profile in known for instance in desired.instances):
        return desired
    renamed = [replace(i, profile=resolve(i.profile, profiles, thing).name) for i in desired.instances]
    return DesiredGpu(desired.enabled, tuple(sorted(renamed)))


def named_as(current: Sequence[GpuInstance], profiles: Sequence[GpuInstanceProfile]) -> tuple[GpuInstance, ...]:
    """Return the instances under the names that the table of profiles has for them."""
    known = {profile.name for profile in profiles}
    return tuple(
        instance if instance.profile in known else replace(instance, profile=canonical(instance.profile, profiles))
        for instance in current
    )


def geometry_with(profiles: Sequence[GpuInstanceProfile], current: Sequence[GpuInstance]) -> Geometry:
    """Return the geometry, widened by the places where instances are although the table does not list them."""
    shape = geometry(tuple(profiles))
    if all(slot_of(shape, instance) or instance.profile not in shape.index for instance in current):
        return shape
    widened = list(profiles)
    for instance in current:
        number = shape.index.get(instance.profile)
        if number is None:
            continue
        known = widened[number].placements or Placements((), instance.size)
        if known.size == instance.size:
            starts = tuple(sorted({*known.starts, instance.start}))
            widened[number] = replace(widened[number], placements=Placements(starts, known.size))
    return geometry(tuple(widened))


def slot_of(shape: Geometry, instance: GpuInstance) -> int:
    number = shape.index.get(instance.profile)
    return 0 if number is None else shape.slot_bit.get((number, instance.start, instance.size), 0)


def _request_of(shape: Geometry, layout: int) -> tuple[int, ...]:
    request = [0] * len(shape.profiles)
    for slot in shape.slots_of(layout):
        request[slot.profile] += 1
    return tuple(request)


def _unknown(shape: Geometry, request: tuple[int, ...], missing: Sequence[str], thing: str, desired: DesiredGpu) -> str:
    """Return why nothing can be planned, after refusing what is impossible wherever instances can be placed."""
    for count, profile in zip(request, shape.profiles):
        if count > profile.max_instances:
            raise refuse_infeasible(shape, request, thing, describe(desired.counts))
    slices = sum(count * profile.gpu_slices for count, profile in zip(request, shape.profiles))
    if shape.whole is not None and slices > shape.whole.gpu_slices:
        raise refuse_infeasible(shape, request, thing, describe(desired.counts))
    return f"no source says where instances of {', '.join(missing)} can be placed; only the driver of this GPU knows"


def _pinned(
    current: Sequence[GpuInstance],
    slots: Sequence[int],
    desired: DesiredGpu,
    shape: Geometry,
    layouts: Sequence[int],
    thing: str,
) -> int:
    """Return the slots of the busy instances. Raises Refused: when no layout of the desired state keeps them all."""
    busy = [(instance, slot) for instance, slot in zip(current, slots) if instance.users]
    pinned = sum(slot for _instance, slot in busy)
    if all(slot for _instance, slot in busy) and any(layout & pinned == pinned for layout in layouts):
        return pinned
    raise _refuse_busy([instance for instance, _slot in busy], desired, shape, pinned, thing)


def _refuse_busy(busy: Sequence[GpuInstance], desired: DesiredGpu, shape: Geometry, pinned: int, thing: str) -> Refused:
    who = "; ".join(f"{instance.place} (id {instance.id}) by {', '.join(instance.users)}" for instance in busy)
    near = "; ".join(describe(counts) for counts in nearest(shape, shape.request(desired.counts), pinned))
    return Refused(
        thing,
        f"{desired} cannot be reached without destroying an instance that is in use: {who}",
        IN_USE_REMEDY + (f" The nearest layouts that keep what is in use: {near}." if near else ""),
    )


def _switch_off(current: Sequence[GpuInstance], desired: DesiredGpu, disruption: str, thing: str) -> GpuPlan:
    busy = [instance for instance in current if instance.users]
    if busy and disruption != FORCE:
        who = "; ".join(f"{instance.place} (id {instance.id}) by {', '.join(instance.users)}" for instance in busy)
        raise Refused(thing, f"MIG cannot be switched off while an instance is in use: {who}", IN_USE_REMEDY)
    certificate = Certificate(MODE_OFF, "MIG is switched off, and no instance outlives its mode")
    in_order = sorted(current, key=lambda instance: instance.start)
    return GpuPlan(desired, destroy=tuple(Destroy(instance, certificate) for instance in in_order))


def _best(
    current: Sequence[GpuInstance],
    slots: Sequence[int],
    desired: DesiredGpu,
    shape: Geometry,
    layouts: Sequence[int],
    disruption: str,
    thing: str,
) -> tuple[int, dict[int, ComputeChange]]:
    """Return the best layout, and what changes inside each instance that it keeps, by instance id."""
    existing = sum(slots)
    busy = sum(slot for instance, slot in zip(current, slots) if instance.users)
    named = sum(slot for instance, slot in zip(current, slots) if instance.named)
    ranked: dict[tuple[tuple[int, int], int], list[int]] = {}
    for layout in layouts:
        # Without force every layout left keeps all busy instances, so the first part is the same for all.
        kept = -bits(layout & named) if named else 0
        rank_of = (kept, -bits(layout & busy)), -bits(layout & existing)
        ranked.setdefault(rank_of, []).append(layout)
    best: tuple[Any, ...] | None = None
    found: tuple[int, dict[int, ComputeChange]] | None = None
    for rank in sorted(ranked):
        changes_of: dict[int, dict[int, ComputeChange]] = {}
        for layout in ranked[rank]:
            kept = layout & existing
            if kept not in changes_of:
                changes_of[kept] = _compute_changes(current, slots, desired, kept)
            changes = changes_of[kept]
            hurt = sum(change.busy for change in changes.values())
            if hurt and disruption != FORCE:
                continue
            moved = sum(len(change.destroy) for change in changes.values())
            key = (rank[0], hurt, rank[1], moved, -shape.room(layout), layout)
            if best is None or key < best:
                best, found = key, (layout, changes)
        if found is not None and disruption != FORCE:
            break
    if found is None:
        users = [instance for instance in current if instance.users]
        raise _refuse_busy(users, desired, shape, busy, thing)
    return found


def _compute_changes(
    current: Sequence[GpuInstance], slots: Sequence[int], desired: DesiredGpu, kept: int
) -> dict[int, ComputeChange]:
    stay: dict[str, list[GpuInstance]] = {}
    for instance, slot in zip(current, slots):
        if slot & kept:
            stay.setdefault(instance.profile, []).append(instance)
    changes: dict[int, ComputeChange] = {}
    for profile, instances in stay.items():
        desired_slices = [instance.compute for instance in desired.instances if instance.profile == profile]
        assigned = assign(instances, desired_slices)
        changes.update((instance.id, change) for instance, (change, _desired) in zip(instances, assigned))
    return changes


def _plan(
    current: Sequence[GpuInstance],
    slots: Sequence[int],
    desired: DesiredGpu,
    shape: Geometry,
    request: tuple[int, ...],
    layouts: Sequence[int],
    layout: int,
    changes: dict[int, ComputeChange],
) -> GpuPlan:
    existing = sum(slots)
    kept_bits = layout & existing
    kept = bits(kept_bits)
    keep, destroy = [], []
    stay: dict[str, list[GpuInstance]] = {}
    counts = shape.counts(request)
    for instance, slot in zip(current, slots):
        if slot & kept_bits:
            keep.append(Keep(instance, changes[instance.id]))
            stay.setdefault(instance.profile, []).append(instance)
        else:
            why = certify(instance, slot, shape, counts, layouts, existing, len(current), kept)
            destroy.append(Destroy(instance, why))
    computes = {
        name: left_over(stay.get(name, ()), [i.compute for i in desired.instances if i.profile == name])
        for name in counts
    }
    create = []
    for slot_wanted in shape.slots_of(layout & ~existing):
        profile = shape.profiles[slot_wanted.profile]
        create.append(Create(profile, slot_wanted.start, slot_wanted.size, computes[profile.name].pop(0)))
    return GpuPlan(
        desired=desired,
        keep=tuple(sorted(keep, key=lambda kept_one: kept_one.instance.start)),
        destroy=tuple(sorted(destroy, key=lambda gone: gone.instance.start)),
        create=tuple(sorted(create, key=lambda made: made.start)),
    )


@dataclass(frozen=True)
class Keep:
    """An instance that stays where it is, and what changes inside it."""

    instance: GpuInstance
    change: ComputeChange


@dataclass(frozen=True)
class Destroy:
    """An instance that goes, with its compute instances, and why it must."""

    instance: GpuInstance
    certificate: Certificate


@dataclass(frozen=True)
class Create:
    """An instance that is made.

    :param profile: its profile; C(profile_id) may be None where the table does not know it.
    :param compute: slices of the compute instances inside, widest first.
    """

    profile: GpuInstanceProfile
    start: int
    size: int
    compute: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "profile": self.profile.name,
            "profile_id": self.profile.profile_id,
            "start": self.start,
            "size": self.size,
            "compute": [compute_name(self.profile.name, slices) for slices in self.compute],
        }


@dataclass(frozen=True)
class GpuPlan:
    """What one GPU goes through. Applied in this order: destroy, change what stays, create.

    :param desired: what the GPU is to be, with the GPU's own profile names.
    :param create: instances that are made; destroying everything first makes their order irrelevant.
    :param unknown: why the plan cannot be made without a driver, or None. Then nothing else is set.
    """

    desired: DesiredGpu
    keep: tuple[Keep, ...] = ()
    destroy: tuple[Destroy, ...] = ()
    create: tuple[Create, ...] = ()
    unknown: str | None = None

    @property
    def changes(self) -> bool:
        return bool(self.destroys or self.create or any(keep.change.create for keep in self.keep))

    @property
    def destroys(self) -> bool:
        """Whether a GPU instance or a compute instance goes."""
        return bool(self.destroy or any(keep.change.destroy for keep in self.keep))

    def steps(self, gpu: GpuFacts) -> tuple[Step, ...]:
        wanted = f"wanted: {self.desired}"
        found = []
        for destroy in self.destroy:
            instance = destroy.instance
            data = {
                **instance.as_dict(),
                "certificate": destroy.certificate.as_dict(),
                "gone": _uuids(instance.compute),
            }
            found.append(gpu_step(Kind.DESTROY_GPU_INSTANCE, gpu, destroy.certificate.text, instance.users, data))
        for keep in self.keep:
            instance = keep.instance
            for compute in keep.change.destroy:
                name = compute_name(instance.profile, compute.slices)
                why = f"the GPU instance stays, its compute instances become {self.desired}"
                data = {**instance.as_dict(), "compute_instance": compute.id, "name": name, "gone": _uuids([compute])}
                found.append(gpu_step(Kind.DESTROY_COMPUTE_INSTANCE, gpu, why, compute.busy, data))
            for slices in keep.change.create:
                data = {**instance.as_dict(), "slices": slices, "name": compute_name(instance.profile, slices)}
                found.append(gpu_step(Kind.CREATE_COMPUTE_INSTANCE, gpu, wanted, (), data))
        found += [gpu_step(Kind.CREATE_GPU_INSTANCE, gpu, wanted, (), create.as_dict()) for create in self.create]
        return tuple(found)


def _uuids(compute: Iterable[ComputeInstance]) -> list[str]:
    return [one.uuid for one in compute if one.uuid]
