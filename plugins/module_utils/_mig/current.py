# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs of a host as all planners of MIG take them, made of the facts: those of the facts document, and those that NVML told just now. Pure."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._boards.model import GpuInstanceProfile
from .._steps import gpu_title
from .._users import names, users_of
from .model import GpuInstance
from .record import GpuRecord, placed
from .selection import normalize_address
from .state import has_mig, instances_of, profiles_of

#: What a change of MIG cannot do without.
_NEEDED = ("mig", "gpu_instances", "uuid", "pci_address", "minor")


@dataclass(frozen=True)
class NodeGpu:
    """One GPU of a host.

    :param index: its index.
    :param profiles: what it offers, with placements.
    :param current: the instances that exist.
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
        if problem is not None:
            gpu["problem"] = problem
        found.append(node_gpu(gpu))
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


def gpus_with_pci(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return C(gpus) of the facts with C(device_id) and C(subsystem_id) of the same card in C(pci)."""
    by_address = {normalize_address(str(card.get("address"))): card for card in facts.get("pci") or ()}
    found = []
    for gpu in facts.get("gpus") or ():
        card = by_address.get(normalize_address(str(gpu.get("pci_address"))), {})
        known = {key: card[key] for key in ("device_id", "subsystem_id") if card.get(key)}
        found.append({**known, **gpu})
    return found


def offered_by(gpus: Sequence[NodeGpu]) -> dict[str, tuple[GpuInstanceProfile, ...]]:
    """Return what GPUs offer, by UUID."""
    return {str(gpu.facts.get("uuid")): gpu.profiles for gpu in gpus}


def _named_in_use(gpu: Mapping[str, Any], in_use: Collection[str]) -> dict[str, Any]:
    found = copy.deepcopy(dict(gpu))
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
