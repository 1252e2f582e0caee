# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs of a host as all planners of MIG take them, made of the facts: those of the facts document, and those that NVML told just now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from .._boards.board import Board, GpuInstanceProfile, Placements
from .._boards.cards import board_of
from .._facts_view import Facts, HolderFacts
from .._gpu_facts import AllocationFacts, ComputeInstanceFacts, GpuFacts, ProfileFacts
from .._plan import Refused
from .._records import GpuRecord
from .._schema import kept
from .._users import names, reset_obstacle, users_of
from .layouts import normalize_address
from .model import ComputeInstance, DesiredGpu, GpuInstance, ProfileName, parse, resolve, wanted_of
from .record import placed

# The driver reports wrong numbers of instances on this board (mig.md, section 6.2); the table's are right.
_WRONG_COUNTS = ("a30-24gb",)

#: What a profile is called alike in the facts and in the table.
_SAME = ("memory_mib", "multiprocessors", "copy_engines", "decoders", "encoders", "jpeg", "ofa")
#: What a change of MIG cannot do without.
_NEEDED = ("mig", "gpu_instances", "uuid", "pci_address", "minor")


@dataclass(frozen=True)
class NodeGpu:
    """One GPU of a host.

    :param enabled: whether MIG is on now, or None when unknown.
    :param busy: who uses the GPU or a part of it; while MIG is off such a GPU cannot be partitioned without force.
    :param facts: of it. C(problem) in it says why it cannot be changed now: it is lost, or NVML keeps back what a change needs.
    """

    index: int
    profiles: tuple[GpuInstanceProfile, ...]
    current: tuple[GpuInstance, ...] = ()
    enabled: bool | None = None
    busy: tuple[str, ...] = ()
    facts: GpuFacts = field(default=GpuFacts(0), compare=False)

    @property
    def title(self) -> str:
        """How people call the GPU: C(GPU 0 (0000:18:00.0))."""
        return self.facts.title

    @property
    def has_mig(self) -> bool:
        return has_mig(self.facts)

    @property
    def problem(self) -> str | None:
        return self.facts.problem

    @property
    def record(self) -> GpuRecord:
        """What it is, to be restored."""
        return record_of(self.facts, self.enabled, placed(self.current))

    def pids(self, instance: GpuInstance | None = None, compute: int | None = None) -> tuple[int, ...]:
        """Return the ids of the processes on the GPU, or on one compute instance."""
        part: GpuFacts | ComputeInstanceFacts | None = self.facts
        if instance is not None:
            parts = (one for one in self.facts.gpu_instances if one.id == instance.id)
            part = next((inner for one in parts for inner in one.compute_instances if inner.id == compute), None)
        return tuple(process.pid for process in part.processes or ()) if part else ()


def record_of(gpu: GpuFacts, mig: bool | None, instances: tuple[Any, ...]) -> GpuRecord:
    """Return the record of a GPU with these instances."""
    return GpuRecord(gpu.uuid or "", gpu.pci_address or "", gpu.name or "", mig, instances)


def node_gpus(facts: Facts, in_use: Collection[str] = ()) -> list[NodeGpu]:
    """Return the GPUs of a host, by C(gpus), C(pci) and C(unknown) of its facts.

    :param in_use: UUIDs of MIG devices that somebody knows to be in use: C(nvidia_mig_busy_instances).
    """
    found = []
    for entry in gpus_with_pci(facts):
        gpu = _named_in_use(entry, in_use) if in_use else entry
        problem = _problem(gpu, facts.unknown or {})
        # It says nothing of its users.
        found.append(node_gpu(gpu if problem is None else gpu.but("users", problem=problem)))
    return found


def node_gpu(gpu: GpuFacts) -> NodeGpu:
    """Return a GPU as the planners take it."""
    return NodeGpu(
        index=gpu.index,
        profiles=profiles_of(gpu),
        current=instances_of(gpu),
        enabled=gpu.mig.current,
        busy=names(users_of(gpu).everybody),
        facts=gpu,
    )


def gpus_with_pci(facts: Facts) -> list[GpuFacts]:
    """Return C(gpus) of the facts with C(device_id) and C(subsystem_id) of the same card in C(pci)."""
    by_address = {normalize_address(card.address): card for card in facts.pci or ()}
    found = []
    for gpu in facts.gpus or ():
        card = by_address.get(normalize_address(str(gpu.pci_address)))
        ids = {"device_id": card.device_id, "subsystem_id": card.subsystem_id} if card else {}
        known = {key: value for key, value in ids.items() if value and not gpu.says(key)}
        found.append(gpu.but("users", **known) if known else gpu)
    return found


def offered_by(gpus: Sequence[NodeGpu]) -> dict[str, tuple[GpuInstanceProfile, ...]]:
    """Return what GPUs offer, by UUID."""
    return {str(gpu.facts.uuid): gpu.profiles for gpu in gpus}


_NAMED = AllocationFacts(pod="that nvidia_mig_busy_instances names")
#: How it is shown. Which pod that is, who names its device knows.
NAMED = f"pod {_NAMED.pod}"
_Part = TypeVar("_Part", GpuFacts, ComputeInstanceFacts)


def _named_in_use(gpu: GpuFacts, in_use: Collection[str]) -> GpuFacts:
    def named(part: _Part) -> _Part:
        return part.but(allocations=(*part.allocations, _NAMED)) if part.uuid in in_use else part

    instances = (one.but(compute_instances=tuple(map(named, one.compute_instances))) for one in gpu.gpu_instances)
    return named(gpu).but(gpu_instances=tuple(instances))


def _problem(gpu: GpuFacts, unknown: Mapping[str, str | None]) -> str | None:
    path = f"gpus[{gpu.index}]"
    if gpu.lost:
        return next(
            (text for name, text in unknown.items() if name == path or name.startswith(f"{path}.")), "it is lost"
        )
    return next((unknown[f"{path}.{key}"] for key in _NEEDED if f"{path}.{key}" in unknown), None)


def why_no_reset(gpu: GpuFacts, holders: Iterable[HolderFacts] | None, allowed: bool = True) -> str | None:
    """Return why a GPU cannot be reset now, as a clause; None where nothing is known against it.

    :param holders: who has its device open; None where they were not gathered.
    :param allowed: C(nvidia_mig_reset) is not C(never).
    """
    if not allowed:
        return f"{gpu.title} is not reset, because nvidia_mig_reset is never"
    obstacle = reset_obstacle(gpu, holders)
    return f"{gpu.title} {obstacle}" if obstacle else None


def instances_of(gpu: GpuFacts) -> tuple[GpuInstance, ...]:
    """Return the GPU instances of a GPU."""
    found: tuple[GpuInstance, ...] = kept(gpu, "instances", _instances_of)
    return found


def _instances_of(gpu: GpuFacts) -> tuple[GpuInstance, ...]:
    found, using = [], users_of(gpu)
    for instance in gpu.gpu_instances:
        compute = tuple(
            ComputeInstance(
                id=inner.id,
                slices=parse(inner.profile).compute,
                busy=names(using.compute[instance.id, inner.id]),
                uuid=inner.uuid,
            )
            for inner in instance.compute_instances
        )
        found.append(
            GpuInstance(
                id=instance.id,
                profile=parse(instance.profile).gpu_instance,
                start=instance.start,
                size=instance.size,
                compute=compute,
                busy=names(using.instances[instance.id]),
                named=any(one is _NAMED for inner in instance.compute_instances for one in inner.allocations),
            )
        )
    return tuple(found)


def present(gpu: GpuFacts) -> DesiredGpu | None:
    """Return what a GPU is now, in the form of a desired state; None when its MIG mode is not known or it has no MIG."""
    mode = gpu.mig.current
    if mode is None:
        return None
    return DesiredGpu(mode, tuple(wanted_of(instances_of(gpu))) if mode else ())


def profiles_of(gpu: GpuFacts) -> tuple[GpuInstanceProfile, ...]:
    """Return the profiles of a GPU: those that its driver offers, where they were read, else those of its board.

    :return: empty for a GPU without MIG, and for one that neither its driver nor the table knows. A profile whose name does not follow the
        grammar is left out: no layout can ask for it.
    """
    found: tuple[GpuInstanceProfile, ...] = kept(gpu, "offered", _profiles_of)
    return found


def _profiles_of(gpu: GpuFacts) -> tuple[GpuInstanceProfile, ...]:
    board = board_of(gpu)
    if not gpu.profiles:
        return board.profiles if board is not None else ()
    found: dict[str, GpuInstanceProfile] = {}
    for one in gpu.profiles:
        try:
            name = parse(one.name)
        except Refused:
            continue
        found.setdefault(name.gpu_instance, _completed(_profile(one, name), board))
    return tuple(found.values())


def _profile(offered: ProfileFacts, name: ProfileName) -> GpuInstanceProfile:
    starts, size = offered.starts, offered.size
    same: dict[str, Any] = {key: getattr(offered, key) for key in _SAME}
    return GpuInstanceProfile(
        name=name.gpu_instance,
        gpu_slices=name.gpu_slices,
        max_instances=offered.max_instances or 0,
        placements=Placements(starts, size) if starts and size else None,
        nvml_enum=offered.enum,
        profile_id=offered.id,
        **same,
    )


def _completed(profile: GpuInstanceProfile, board: Board | None) -> GpuInstanceProfile:
    """Return a profile as the driver offers it, with what it does not tell (where it is placed, while MIG is off) from the table."""
    row = _row(profile, board)
    if row is None or board is None:
        return profile
    if profile.placements is None:
        profile = replace(profile, placements=row.placements, placements_source=row.placements_source)
    return replace(profile, max_instances=row.max_instances) if board.key in _WRONG_COUNTS else profile


def _row(profile: GpuInstanceProfile, board: Board | None) -> GpuInstanceProfile | None:
    if board is None:
        return None
    same = [row for row in board.profiles if profile.nvml_enum is not None and row.nvml_enum == profile.nvml_enum]
    if same:
        return same[0]
    try:
        return resolve(profile.name, board.profiles)
    except Refused:
        return None


def has_mig(gpu: GpuFacts) -> bool:
    """Return whether a GPU has MIG: as the driver says, else as the table says."""
    supported = gpu.mig.supported
    return bool(profiles_of(gpu)) if supported is None else supported


def devices_of(gpu: GpuFacts) -> list[str]:
    """Return the UUIDs of a GPU and of its MIG devices."""
    return [device.uuid for device in gpu.parts if device.uuid]


def instance_title(gpu: str, instance: Mapping[str, Any]) -> str:
    """Return how people call a GPU instance: C(GPU 0 (0000:18:00.0): 3g.40gb at 4:4). C(gpu): how they call its GPU."""
    return f"{gpu}: {instance['profile']} at {instance['start']}:{instance['size']}"
