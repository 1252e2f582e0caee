# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the MIG planners speak: the instances that exist, those that are wanted, what changes inside a GPU instance that stays, and
profile names: C([Cc.]Gg.Mgb[+attribute[,attribute]|-attribute]).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .._boards.board import GpuInstanceProfile
from .._plan import Refused

_NAME = re.compile(
    r"^(?:(?P<c>[1-9][0-9]{0,3})c\.)?(?P<g>[1-9][0-9]{0,3})g\.(?P<gb>[1-9][0-9]{0,5})gb"
    r"(?:\+(?P<plus>[a-z0-9.]+(?:,[a-z0-9.]+)*)|-(?P<minus>[a-z0-9.]+(?:,[a-z0-9.]+)*))?$"
)

# The names that drivers print for one profile of one chip differ by up to 4.3 % in what the sources show (GB200: 1g.24gb
# and 1g.23gb; 7g.79gb and 7g.80gb 1.3 %): a name finds its profile by slices, attributes and the fraction of memory, and
# only when exactly one profile is close. Further away a name is of another board, or mistyped, and is refused.
_SAME_MEMORY = 0.045


@dataclass(frozen=True)
class ProfileName:
    """A profile name, taken apart.

    :param gpu_slices: the G of the name.
    :param memory_gb: the number before C(gb), a label of the vendor and not a measure.
    :param compute_slices: the C of the name, or None when the name means the whole GPU instance.
    :param added: attributes after C(+), sorted: C(me), C(me.all), C(gfx).
    :param removed: attributes after C(-), sorted: C(me).
    """

    gpu_slices: int
    memory_gb: int
    compute_slices: int | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def gpu_instance(self) -> str:
        """The name of the GPU instance profile, without the compute slices."""
        suffix = ""
        if self.added:
            suffix = "+" + ",".join(self.added)
        elif self.removed:
            suffix = "-" + ",".join(self.removed)
        return f"{self.gpu_slices}g.{self.memory_gb}gb{suffix}"

    @property
    def compute(self) -> int:
        """How many compute slices an instance of this name has."""
        return self.gpu_slices if self.compute_slices is None else self.compute_slices

    def __str__(self) -> str:
        return compute_name(self.gpu_instance, self.compute)


@lru_cache(maxsize=1024)
def parse(name: str, thing: str = "MIG profile") -> ProfileName:
    """Take a profile name apart.

    A compute instance that fills its GPU instance is the same as no compute part: C(3c.3g.20gb) equals C(3g.20gb).

    :param name: such as C(1g.10gb), C(1c.3g.20gb), C(1g.24gb+me.all), C(2g.48gb-me); case does not matter.
    :raises Refused: when the name does not follow the grammar.
    """
    match = _NAME.match(name.strip().lower()) if isinstance(name, str) else None
    if match is None:
        remedy = "Names are written [Cc.]Gg.Mgb[+attribute|-attribute], such as 1g.10gb, 1c.3g.20gb or 1g.24gb+me."
        raise Refused(thing, f"{name!r} is not a MIG profile name", remedy)
    gpu_slices = int(match["g"])
    compute_slices = int(match["c"]) if match["c"] else None
    if compute_slices is not None and compute_slices > gpu_slices:
        reason = f"{name!r} has more compute slices than its GPU instance ({compute_slices} of {gpu_slices})"
        raise Refused(thing, reason, f"Ask for at most {gpu_slices}c.")
    return ProfileName(
        gpu_slices=gpu_slices,
        memory_gb=int(match["gb"]),
        compute_slices=None if compute_slices == gpu_slices else compute_slices,
        added=tuple(sorted(match["plus"].split(","))) if match["plus"] else (),
        removed=tuple(sorted(match["minus"].split(","))) if match["minus"] else (),
    )


def compute_name(gpu_instance: str, compute_slices: int) -> str:
    """Return the name of a MIG device: C(1c.3g.20gb), or C(3g.20gb) when the compute instance fills the GPU instance."""
    if parse(gpu_instance).gpu_slices == compute_slices:
        return gpu_instance
    return f"{compute_slices}c.{gpu_instance}"


def resolve(
    name: str | ProfileName, profiles: Sequence[GpuInstanceProfile], thing: str = "MIG profile", of: str = "this GPU"
) -> GpuInstanceProfile:
    """Return the GPU instance profile that a name means on a GPU.

    :param profiles: what the GPU offers: read from the driver where there is one, else the board's.
    :param of: which GPU or board the profiles belong to, for the refusal.
    :raises Refused: when no profile, or more than one, is meant; names the nearest profiles.
    """
    wanted = parse(name, thing) if isinstance(name, str) else name
    for profile in profiles:
        if profile.name == wanted.gpu_instance:
            return profile
    close = [profile for profile in profiles if _means(wanted, parse(profile.name))]
    if close:
        # Two profiles of one width and one set of attributes differ by a factor of two in memory, never this little.
        return min(close, key=lambda profile: abs(parse(profile.name).memory_gb - wanted.memory_gb))
    raise Refused(thing, f"{of} has no MIG profile {wanted.gpu_instance}", _nearest_remedy(wanted, profiles))


def canonical(name: str, profiles: Sequence[GpuInstanceProfile]) -> str:
    """Return the name that a table of profiles has for a profile, or the name itself when it has none for it. A driver of another release may call an
    instance that exists otherwise than the table does.
    """
    if any(profile.name == name for profile in profiles):
        return name
    try:
        return resolve(name, profiles).name
    except Refused:
        return name


def _means(wanted: ProfileName, offered: ProfileName) -> bool:
    return (
        wanted.gpu_slices == offered.gpu_slices
        and wanted.added == offered.added
        and wanted.removed == offered.removed
        and abs(wanted.memory_gb - offered.memory_gb) <= _SAME_MEMORY * offered.memory_gb
    )


def nearest(wanted: ProfileName, profiles: Iterable[GpuInstanceProfile], count: int = 3) -> list[str]:
    """Return the names of the profiles most like a name: by slices, then attributes, then memory."""

    def distance(profile: GpuInstanceProfile) -> tuple[int, int, float]:
        offered = parse(profile.name)
        attributes = set(wanted.added) ^ set(offered.added) | set(wanted.removed) ^ set(offered.removed)
        return (
            abs(wanted.gpu_slices - offered.gpu_slices),
            len(attributes),
            abs(wanted.memory_gb - offered.memory_gb) / offered.memory_gb,
        )

    return [profile.name for profile in sorted(profiles, key=distance)[:count]]


def _nearest_remedy(wanted: ProfileName, profiles: Sequence[GpuInstanceProfile]) -> str:
    names = nearest(wanted, profiles)
    return f"The nearest are {', '.join(names)}." if names else "It has no MIG profiles at all."


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
