# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of one GPU: what stays, what goes and why, what is made and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._boards.board import GpuInstanceProfile
from .._plan import Step, gpu_step
from .._steps import Kind
from .certificate import Certificate
from .compute import ComputeChange
from .model import ComputeInstance, DesiredGpu, GpuInstance, compute_name


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
    :param start: the first unit of its place.
    :param size: the units of its place.
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
    :param keep: instances that stay.
    :param destroy: instances that go.
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
        return bool(self.destroy or self.create or any(keep.change.destroy or keep.change.create for keep in self.keep))

    def steps(self, gpu: Mapping[str, Any]) -> tuple[Step, ...]:
        """Return the plan as steps.

        :param gpu: the GPU in the form of the facts document.
        """
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
