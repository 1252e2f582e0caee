# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the MIG planners speak: the instances that exist, and the instances that are wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .profiles import compute_name


@dataclass(frozen=True)
class ComputeInstance:
    """A compute instance that exists.

    :param id: the driver's id inside its GPU instance.
    :param slices: its compute slices.
    :param busy: who uses it, for people: C(python3 (pid 812)) or a pod; empty when idle.
    :param uuid: of the MIG device that it is, where that is known.
    """

    id: int
    slices: int
    busy: tuple[str, ...] = ()
    uuid: str | None = None


@dataclass(frozen=True)
class GpuInstance:
    """A GPU instance that exists.

    :param id: the driver's id; says nothing about the place.
    :param profile: the name of its profile.
    :param start: the first unit of the placement grid that it occupies.
    :param size: how many units it occupies.
    :param compute: its compute instances.
    :param busy: who uses the instance beside the users of its compute instances.
    """

    id: int
    profile: str
    start: int
    size: int
    compute: tuple[ComputeInstance, ...] = ()
    busy: tuple[str, ...] = ()

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
    """One GPU instance that is wanted.

    :param profile: the name of a GPU instance profile of the GPU.
    :param compute: slices of each compute instance inside, widest first.
    """

    profile: str
    compute: tuple[int, ...]


@dataclass(frozen=True)
class DesiredGpu:
    """What one GPU is to be.

    :param enabled: whether MIG mode is on.
    :param instances: the GPU instances, in a stable order; empty when MIG is off, or on without instances.
    """

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
