# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs of a host as all planners of MIG take them, made of the facts: those of the facts document, and those that NVML told just now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._boards.board import Board, GpuInstanceProfile, Placements
from .._boards.lookup import board_of
from .._gpu_facts import GpuFacts
from .._plan import Refused
from .._schema import encode, kept
from .._steps import gpu_title
from .._users import names, reset_obstacle, users_of
from .layouts import normalize_address
from .model import ComputeInstance, DesiredGpu, DesiredInstance, GpuInstance
from .profiles import ProfileName, parse, resolve
from .record import GpuRecord, placed

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
    :param facts: its entry of C(gpus) of the facts. C(problem) in it says why it cannot be changed now: it is lost, or NVML keeps back what a
        change needs.
    """

    index: int
    profiles: tuple[GpuInstanceProfile, ...]
    current: tuple[GpuInstance, ...] = ()
    enabled: bool | None = None
    busy: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def title(self) -> str:
        """How people call the GPU: C(GPU 0 (0000:18:00.0))."""
        return gpu_title(self.facts)

    @property
    def has_mig(self) -> bool:
        return has_mig(self.facts)

    @property
    def problem(self) -> str | None:
        return self.facts.get("problem")

    @property
    def record(self) -> GpuRecord:
        """What it is, to be restored."""
        return record_of(self.facts, self.enabled, placed(self.current))

    def pids(self, instance: GpuInstance | None = None, compute: int | None = None) -> tuple[int, ...]:
        """Return the ids of the processes on the GPU, or on one compute instance."""
        part: Any = self.facts
        if instance is not None:
            parts = (one for one in self.facts["gpu_instances"] if one["id"] == instance.id)
            part = next((inner for one in parts for inner in one["compute_instances"] if inner["id"] == compute), {})
        return tuple(process["pid"] for process in part.get("processes") or ())


def record_of(facts: Mapping[str, Any], mig: bool | None, instances: tuple[Any, ...]) -> GpuRecord:
    """Return the record of a GPU with these instances."""
    uuid, address, name = (str(facts.get(key) or "") for key in ("uuid", "pci_address", "name"))
    return GpuRecord(uuid, address, name, mig, instances)


def node_gpus(facts: Mapping[str, Any], in_use: Collection[str] = ()) -> list[NodeGpu]:
    """Return the GPUs of a host.

    :param facts: the facts document; C(gpus), C(pci) and C(unknown) of it are read.
    :param in_use: UUIDs of MIG devices that somebody knows to be in use: C(nvidia_mig_busy_instances).
    """
    unknown = facts.get("unknown") or {}
    found = []
    for entry in gpus_with_pci(facts):
        gpu = _named_in_use(entry, in_use) if in_use else entry
        problem = _problem(gpu, unknown)
        found.append(node_gpu(gpu if problem is None else _with(gpu, problem=problem)))
    return found


def node_gpu(gpu: Mapping[str, Any]) -> NodeGpu:
    """Return one entry of C(gpus) of the facts as the planners take it."""
    return NodeGpu(
        index=int(gpu["index"]),
        profiles=profiles_of(gpu),
        current=instances_of(gpu),
        enabled=(gpu.get("mig") or {}).get("current"),
        busy=names(users_of(gpu).everybody),
        facts=gpu,
    )


def gpus_with_pci(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return C(gpus) of the facts with C(device_id) and C(subsystem_id) of the same card in C(pci)."""
    by_address = {normalize_address(str(card.get("address"))): card for card in facts.get("pci") or ()}
    found = []
    for gpu in facts.get("gpus") or ():
        card = by_address.get(normalize_address(str(gpu.get("pci_address"))), {})
        known = {key: card[key] for key in ("device_id", "subsystem_id") if card.get(key) and key not in gpu}
        found.append(_with(gpu, **known) if known else gpu)
    return found


def _with(gpu: Mapping[str, Any], **values: Any) -> Mapping[str, Any]:
    """Return an entry of C(gpus) with values that say nothing of its users."""
    return gpu.but("users", **values) if isinstance(gpu, GpuFacts) else {**gpu, **values}


def offered_by(gpus: Sequence[NodeGpu]) -> dict[str, tuple[GpuInstanceProfile, ...]]:
    """Return what GPUs offer, by UUID."""
    return {str(gpu.facts.get("uuid")): gpu.profiles for gpu in gpus}


def _named_in_use(gpu: Mapping[str, Any], in_use: Collection[str]) -> dict[str, Any]:
    found: dict[str, Any] = encode(gpu)
    parts = (part for one in found.get("gpu_instances") or () for part in one.get("compute_instances") or ())
    for part in (found, *parts):
        if part.get("uuid") in in_use:
            part["allocations"] = [*(part.get("allocations") or ()), {"pod": "of nvidia_mig_busy_instances"}]
    return found


def _problem(gpu: Mapping[str, Any], unknown: Mapping[str, str]) -> str | None:
    path = f"gpus[{gpu['index']}]"
    if gpu.get("lost"):
        return next(
            (text for name, text in unknown.items() if name == path or name.startswith(f"{path}.")), "it is lost"
        )
    return next((unknown[f"{path}.{key}"] for key in _NEEDED if f"{path}.{key}" in unknown), None)


def why_no_reset(
    gpu: Mapping[str, Any], holders: Iterable[Mapping[str, Any]] | None, allowed: bool = True
) -> str | None:
    """Return why one entry of C(gpus) cannot be reset now, as a clause; None where nothing is known against it.

    :param holders: who has its device open, as C(holders) of the facts; None where they were not gathered.
    :param allowed: C(nvidia_mig_reset) is not C(never).
    """
    if not allowed:
        return f"{gpu_title(gpu)} is not reset, because nvidia_mig_reset is never"
    obstacle = reset_obstacle(gpu, holders)
    return f"{gpu_title(gpu)} {obstacle}" if obstacle else None


def instances_of(gpu: Mapping[str, Any]) -> tuple[GpuInstance, ...]:
    """Return the GPU instances of one entry of C(gpus)."""
    found: tuple[GpuInstance, ...] = kept(gpu, "instances", _instances_of)
    return found


def _instances_of(gpu: Mapping[str, Any]) -> tuple[GpuInstance, ...]:
    found, using = [], users_of(gpu)
    for instance in gpu.get("gpu_instances") or ():
        compute = tuple(
            ComputeInstance(
                id=int(inner["id"]),
                slices=parse(inner["profile"]).compute,
                busy=names(using.compute[int(instance["id"]), int(inner["id"])]),
                uuid=inner.get("uuid"),
            )
            for inner in instance.get("compute_instances") or ()
        )
        found.append(
            GpuInstance(
                id=int(instance["id"]),
                profile=parse(instance["profile"]).gpu_instance,
                start=int(instance["start"]),
                size=int(instance["size"]),
                compute=compute,
                busy=names(using.instances[int(instance["id"])]),
            )
        )
    return tuple(found)


def present(gpu: Mapping[str, Any]) -> DesiredGpu | None:
    """Return what a GPU is now, in the form of a desired state; None when its MIG mode is not known or it has no MIG."""
    mode = (gpu.get("mig") or {}).get("current")
    if mode is None:
        return None
    instances = (
        DesiredInstance(one.profile, tuple(sorted((inner.slices for inner in one.compute), reverse=True)))
        for one in instances_of(gpu)
    )
    return DesiredGpu(bool(mode), tuple(sorted(instances)) if mode else ())


def profiles_of(gpu: Mapping[str, Any]) -> tuple[GpuInstanceProfile, ...]:
    """Return the profiles of one entry of C(gpus): those that its driver offers, where they were read, else those of its board.

    :return: empty for a GPU without MIG, and for one that neither its driver nor the table knows. A profile whose name does not follow the
        grammar is left out: no layout can ask for it.
    """
    found: tuple[GpuInstanceProfile, ...] = kept(gpu, "offered", _profiles_of)
    return found


def _profiles_of(gpu: Mapping[str, Any]) -> tuple[GpuInstanceProfile, ...]:
    board = board_of(gpu)
    offered = gpu.get("profiles")
    if not offered:
        return board.profiles if board is not None else ()
    found: dict[str, GpuInstanceProfile] = {}
    for one in offered:
        try:
            name = parse(one["name"])
        except Refused:
            continue
        found.setdefault(name.gpu_instance, _completed(_profile(one, name), board))
    return tuple(found.values())


def _profile(offered: Mapping[str, Any], name: ProfileName) -> GpuInstanceProfile:
    starts, size = offered.get("starts"), offered.get("size")
    same: dict[str, Any] = {key: offered.get(key) for key in _SAME}
    return GpuInstanceProfile(
        name=name.gpu_instance,
        gpu_slices=name.gpu_slices,
        max_instances=int(offered.get("max_instances") or 0),
        placements=Placements(tuple(starts), int(size)) if starts and size else None,
        nvml_enum=offered.get("enum"),
        profile_id=offered.get("id"),
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


def has_mig(gpu: Mapping[str, Any]) -> bool:
    """Return whether a GPU has MIG: as the driver says, else as the table says."""
    supported = (gpu.get("mig") or {}).get("supported")
    return bool(profiles_of(gpu)) if supported is None else bool(supported)


def devices_of(gpu: Mapping[str, Any]) -> list[str]:
    """Return the UUIDs of one entry of C(gpus): its own, and those of its MIG devices."""
    parts = [part for instance in gpu.get("gpu_instances") or () for part in instance.get("compute_instances") or ()]
    return [str(device["uuid"]) for device in (gpu, *parts) if device.get("uuid")]


def instance_title(gpu: Mapping[str, Any], instance: Mapping[str, Any]) -> str:
    """Return how people call a GPU instance: C(GPU 0 (0000:18:00.0): 3g.40gb at 4:4)."""
    return f"{gpu_title(gpu)}: {instance['profile']} at {instance['start']}:{instance['size']}"
