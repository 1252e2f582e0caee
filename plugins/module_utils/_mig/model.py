# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the MIG planners speak: the instances that exist, those that are wanted, and what changes inside a GPU instance that stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .profiles import compute_name


@dataclass(frozen=True)
class ComputeInstance:
    """A compute instance that exists. C(busy): who uses it, for people: C(python3 (pid 812)) or a pod; empty when idle."""

    id: int
    slices: int
    busy: tuple[str, ...] = ()
    uuid: str | None = None


@dataclass(frozen=True)
class GpuInstance:
    """A GPU instance that exists.

    :param id: the driver's id; says nothing about the place.
    :param busy: who uses the instance beside the users of its compute instances.
    :param named: somebody says that it is in use (C(nvidia_mig_busy_instances)): of instances that force may take, it goes last.
    """

    id: int
    profile: str
    start: int
    size: int
    compute: tuple[ComputeInstance, ...] = ()
    busy: tuple[str, ...] = ()
    named: bool = False

    @property
    def users(self) -> tuple[str, ...]:
        """Everybody who uses the instance or one of its compute instances."""
        return self.busy + tuple(user for compute in self.compute for user in compute.busy)

    @property
    def place(self) -> str:
        return f"{self.profile} at {self.start}:{self.size}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "profile": self.profile,
            "start": self.start,
            "size": self.size,
            "compute": [compute_name(self.profile, compute.slices) for compute in self.compute],
        }


@dataclass(frozen=True, order=True)
class DesiredInstance:
    """One GPU instance that is wanted. C(compute): slices of each compute instance inside, widest first."""

    profile: str
    compute: tuple[int, ...]


def wanted_of(instances: Iterable[GpuInstance]) -> list[DesiredInstance]:
    """Return instances that exist in the form of those that are wanted, in the order of these."""
    return sorted(
        DesiredInstance(one.profile, tuple(sorted((inner.slices for inner in one.compute), reverse=True)))
        for one in instances
    )


@dataclass(frozen=True)
class DesiredGpu:
    """What one GPU is to be. C(instances): the GPU instances, in a stable order; empty when MIG is off, or on without instances."""

    enabled: bool
    instances: tuple[DesiredInstance, ...] = ()

    @property
    def counts(self) -> Counter[str]:
        """How many GPU instances of each profile are wanted."""
        return Counter(instance.profile for instance in self.instances)

    @property
    def devices(self) -> Counter[str]:
        """How many MIG devices of each name are wanted: one per compute instance."""
        return Counter(
            compute_name(desired.profile, slices) for desired in self.instances for slices in desired.compute
        )

    def as_dict(self) -> dict[str, Any]:
        return {"enabled": self.enabled, "devices": dict(sorted(self.devices.items()))}

    def __str__(self) -> str:
        if not self.enabled:
            return "MIG off"
        return describe(self.devices) if self.instances else "MIG on, no instances"


def describe(counts: Mapping[str, int]) -> str:
    """Return a request as people write it: C(3g.40gb x2 + 1g.10gb)."""
    parts = [
        name if count == 1 else f"{name} x{count}" for name, count in sorted(counts.items(), reverse=True) if count
    ]
    return " + ".join(parts) if parts else "no instances"


@dataclass(frozen=True)
class ComputeChange:
    """What changes inside a GPU instance. C(create): slices of compute instances that are made, widest first."""

    destroy: tuple[ComputeInstance, ...] = ()
    create: tuple[int, ...] = ()

    @property
    def busy(self) -> int:
        """How many of those that go are in use."""
        return sum(1 for compute in self.destroy if compute.busy)

    @property
    def cost(self) -> tuple[int, int, int]:
        return self.busy, len(self.destroy), len(self.create)


_NOTHING = ComputeChange()


def compute_change(existing: Sequence[ComputeInstance], wanted: Sequence[int]) -> ComputeChange:
    """Return the change from the compute instances that exist to the slices that are wanted. Busy ones are kept first. A compute instance wider than
    one slice may need the place of an idle one that could stay, and where compute instances sit is not known here; so idle ones are made anew beside
    a wider new one.
    """
    if len(existing) == len(wanted) == 1 and existing[0].slices == wanted[0]:
        return _NOTHING
    missing = Counter(wanted)
    kept: list[ComputeInstance] = []
    destroy: list[ComputeInstance] = []
    for compute in sorted(existing, key=lambda compute: (not compute.busy, compute.id)):
        if missing[compute.slices] > 0:
            missing[compute.slices] -= 1
            kept.append(compute)
        else:
            destroy.append(compute)
    create = list(missing.elements())
    if any(slices > 1 for slices in create):
        idle = [compute for compute in kept if not compute.busy]
        destroy.extend(idle)
        create.extend(compute.slices for compute in idle)
    return ComputeChange(tuple(sorted(destroy, key=lambda compute: compute.id)), tuple(sorted(create, reverse=True)))


def assign(
    kept: Sequence[GpuInstance], desired_slices: Sequence[tuple[int, ...]]
) -> list[tuple[ComputeChange, tuple[int, ...]]]:
    """Give every GPU instance that stays one of the desired states for its profile, changing the fewest compute instances.

    :param kept: GPU instances of one profile that stay.
    :param desired_slices: the compute slices of each GPU instance of this profile that is wanted; at least as many as kept.
    :returns: the change and the desired state of each kept instance, in the same order. The desired states that are left over are
        for the GPU instances that are created; see C(left_over).
    """
    distinct = sorted(set(desired_slices), reverse=True)
    if len(distinct) == 1:
        return [(compute_change(instance.compute, distinct[0]), distinct[0]) for instance in kept]
    supply = Counter(desired_slices)
    memo: dict[tuple[int, ...], tuple[tuple[int, int, int], list[int]]] = {}

    # At most seven instances and few distinct desired states: an exact search over how many of each desired state are left.
    def best(number: int, left: tuple[int, ...]) -> tuple[tuple[int, int, int], list[int]]:
        if number == len(kept):
            return (0, 0, 0), []
        if left in memo:
            return memo[left]
        options = []
        for which, desired in enumerate(distinct):
            if left[which]:
                cost = compute_change(kept[number].compute, desired).cost
                rest, choice = best(number + 1, left[:which] + (left[which] - 1,) + left[which + 1 :])
                options.append(((cost[0] + rest[0], cost[1] + rest[1], cost[2] + rest[2]), [which] + choice))
        memo[left] = min(options)
        return memo[left]

    _cost, choice = best(0, tuple(supply[desired] for desired in distinct))
    return [
        (compute_change(instance.compute, distinct[which]), distinct[which]) for instance, which in zip(kept, choice)
    ]


def left_over(kept: Sequence[GpuInstance], desired_slices: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the desired states that C(assign) gives to no instance that exists."""
    rest = Counter(desired_slices)
    rest.subtract(desired for _step, desired in assign(kept, desired_slices))
    return sorted(rest.elements(), reverse=True)
