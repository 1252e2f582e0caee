# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVML read of a host, as the planner's input. Pure: nothing here asks the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._adapters import nvml_types as live
from .._adapters.nvml_facts import shape_gpu
from .._boards.model import Board, GpuInstanceProfile, Placements
from .._steps import gpu_title
from .._users import add_allocations, names, users_of
from .nodes import NodeGpu
from .profiles import parse
from .record import GpuRecord, placed
from .state import board_of, completed, instances_of


@dataclass(frozen=True)
class HostGpu:
    """One GPU of a host as MIG sees it.

    :param state: what NVML said.
    :param board: its row in the table of boards, or None.
    :param node: the planner's view of it.
    :param facts: it in the form of the facts document.
    """

    state: live.GpuState
    board: Board | None
    node: NodeGpu
    facts: Mapping[str, Any]

    @property
    def index(self) -> int:
        return self.state.index

    @property
    def title(self) -> str:
        """How people call the GPU: C(GPU 0 (0000:18:00.0))."""
        return gpu_title(self.facts)

    @property
    def has_mig(self) -> bool:
        return self.state.mig.supported is True

    @property
    def problem(self) -> str | None:
        """Why the GPU cannot be changed now, or None: it is lost, or NVML keeps back what a change needs."""
        if self.state.lost:
            return next(iter(self.state.unknown.values()), "it is lost")
        for key in ("mig", "gpu_instances", "uuid", "pci_address", "minor"):
            if key in self.state.unknown:
                return self.state.unknown[key]
        return None

    @property
    def record(self) -> GpuRecord:
        return GpuRecord(
            uuid=self.state.uuid or "",
            pci_address=self.state.pci_address or "",
            name=self.state.name or "",
            mig=self.state.mig.current,
            instances=placed(self.node.current),
        )

    @property
    def mig_uuids(self) -> tuple[str, ...]:
        """The UUIDs of the MIG devices, in the order of their places."""
        return tuple(
            compute.uuid
            for instance in self.state.gpu_instances
            for compute in instance.compute_instances
            if compute.uuid is not None
        )

    def pids(self, gpu_instance: int | None = None, compute_instance: int | None = None) -> tuple[int, ...]:
        """Return the ids of the processes on the GPU, on one GPU instance, or on one compute instance."""
        return tuple(
            process.pid
            for process in self.state.processes or ()
            if gpu_instance is None
            or (process.gpu_instance == gpu_instance and compute_instance in (None, process.compute_instance))
        )


def host_gpu(
    state: live.GpuState,
    offered: Sequence[live.GpuInstanceProfile],
    held: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> HostGpu:
    """Return one GPU as the planner sees it.

    :param state: what NVML said of the GPU.
    :param offered: the profiles that the driver offers on it.
    :param held: the allocations of devices to pods, as L(_users.add_allocations) takes them.
    """
    facts = facts_of(state, held or {})
    board = board_of(facts)
    node = NodeGpu(
        index=state.index,
        profiles=planner_profiles(offered, board),
        current=instances_of(facts),
        enabled=state.mig.current,
        busy=names(users_of(facts).everybody) if state.mig.current is False else (),
    )
    return HostGpu(state, board, node, facts)


def facts_of(state: live.GpuState, held: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the entry of C(gpus) of the facts, with the ids of its card."""
    facts = shape_gpu(state)
    facts.update(device_id=state.pci_device_id, subsystem_id=state.pci_subsystem_id)
    add_allocations([facts], held)
    return facts


def planner_profiles(offered: Sequence[live.GpuInstanceProfile], board: Board | None) -> tuple[GpuInstanceProfile, ...]:
    """Return the profiles of a GPU: the driver's, with what it does not tell (while MIG is off) from the table.

    :param offered: as the driver offers them; empty with an old driver while MIG is off.
    :param board: the GPU's row in the table, or None.
    """
    if not offered:
        return board.profiles if board is not None else ()
    return tuple(_profile(profile, board) for profile in offered)


def _profile(profile: live.GpuInstanceProfile, board: Board | None) -> GpuInstanceProfile:
    found = GpuInstanceProfile(
        name=profile.name,
        gpu_slices=profile.slices,
        max_instances=profile.max_instances,
        placements=_placements(profile.placements),
        memory_mib=profile.memory_mib,
        multiprocessors=profile.multiprocessors,
        copy_engines=profile.copy_engines,
        decoders=profile.decoders,
        encoders=profile.encoders,
        jpeg=profile.jpeg,
        ofa=profile.ofa,
        nvml_enum=profile.enum,
        profile_id=profile.id,
    )
    return completed(found, board)


def _placements(places: Sequence[live.Placement] | None) -> Placements | None:
    if not places:
        return None
    # All places of a profile have one size; a driver that breaks that is believed about its first size only.
    size = places[0].size
    return Placements(tuple(sorted(place.start for place in places if place.size == size)), size)


def state_of(gpus: Sequence[HostGpu]) -> dict[str, object]:
    """Return the MIG state of the GPUs for people: what C(--diff) compares."""
    return {gpu.title: describe_record(gpu.record) for gpu in gpus if gpu.has_mig}


def describe_record(record: GpuRecord) -> Mapping[str, object]:
    """Return one GPU's MIG state for people."""
    return {
        "mig": record.mig,
        "instances": [
            f"{instance.profile} at {instance.start}:{instance.size}"
            + ("" if instance.compute == (parse(instance.profile).gpu_slices,) else f" {list(instance.compute)}")
            for instance in record.instances
        ],
    }
