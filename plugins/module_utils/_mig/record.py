# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The MIG state of a host as plain data: what the journal restores and what the recorded layout brings back at boot.

::

    {"uuid": "GPU-...", "pci_address": "0000:18:00.0", "name": "NVIDIA H100 80GB HBM3", "mig": true,
     "instances": [{"profile": "3g.40gb", "start": 4, "size": 4, "compute": [3]}]}

Compute instances are their slices, widest first. Places are the GPU's own placement units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._boards.model import GpuInstanceProfile
from .._plan import Step
from .._steps import Kind
from .model import DesiredGpu, DesiredInstance, GpuInstance
from .profiles import canonical, parse

RECORD_PATH = "/etc/gpufleet/mig.json"
Profiles = Mapping[str, Sequence[GpuInstanceProfile]]


class Unreadable(Exception):
    """A recorded state that is no such state."""


@dataclass(frozen=True)
class PlacedInstance:
    """A GPU instance at a place, with the slices of its compute instances, widest first."""

    profile: str
    start: int
    size: int
    compute: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"profile": self.profile, "start": self.start, "size": self.size, "compute": list(self.compute)}


@dataclass(frozen=True)
class GpuRecord:
    """One GPU as it was.

    :param mig: MIG mode; None for a board without MIG, which is never changed.
    """

    uuid: str
    pci_address: str
    name: str
    mig: bool | None
    instances: tuple[PlacedInstance, ...] = ()

    @property
    def desired(self) -> DesiredGpu:
        """The desired state that makes it so, at any places; a GPU instance without compute instances gets one that fills it."""
        instances = (
            DesiredInstance(one.profile, one.compute or (parse(one.profile).compute,)) for one in self.instances
        )
        return DesiredGpu(bool(self.mig), tuple(sorted(instances)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "uuid": self.uuid,
            "pci_address": self.pci_address,
            "name": self.name,
            "mig": self.mig,
            "instances": [instance.as_dict() for instance in self.instances],
        }


def placed(instances: Iterable[GpuInstance]) -> tuple[PlacedInstance, ...]:
    """Return instances that exist as places, in their order on the grid."""
    return tuple(
        PlacedInstance(
            instance.profile,
            instance.start,
            instance.size,
            tuple(sorted((compute.slices for compute in instance.compute), reverse=True)),
        )
        for instance in sorted(instances, key=lambda instance: instance.start)
    )


def gpu_record(data: Any) -> GpuRecord:
    """Read one GPU from plain data, with its instances in their order on the grid.

    :raises Unreadable: it is no such thing.
    """
    try:
        return GpuRecord(
            uuid=str(data["uuid"]),
            pci_address=str(data["pci_address"]),
            name=str(data["name"]),
            mig=None if data["mig"] is None else bool(data["mig"]),
            instances=tuple(sorted(map(_placed_instance, data["instances"]), key=lambda instance: instance.start)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"it does not describe a GPU ({type(error).__name__}: {error})") from error


def _placed_instance(data: Any) -> PlacedInstance:
    compute = tuple(sorted(map(int, data["compute"]), reverse=True))
    return PlacedInstance(str(data["profile"]), int(data["start"]), int(data["size"]), compute)


def gpu_records(data: Any) -> tuple[GpuRecord, ...]:
    """Read a list of GPUs from plain data.

    :raises Unreadable: it is no such list.
    """
    if not isinstance(data, list):
        raise Unreadable("it does not hold a list of GPUs")
    return tuple(gpu_record(item) for item in data)


def match(records: Sequence[GpuRecord], gpu: Mapping[str, Any]) -> GpuRecord | None:
    """Return the record of an entry of C(gpus) of the facts: by UUID, or that of the same product in the same slot (a new board)."""
    same = [record for record in records if record.uuid == gpu.get("uuid")]
    slot = (gpu.get("pci_address"), gpu.get("name"))
    return next(iter([*same, *(record for record in records if (record.pci_address, record.name) == slot)]), None)


def with_others(facts: Mapping[str, Any], gpus: Iterable[GpuRecord]) -> tuple[GpuRecord, ...]:
    """Return what is to be recorded: some GPUs, and those of the host that another task recorded, by address.

    A GPU that is lost keeps its record: it may be back after the next boot. A board that was taken out loses it.

    :param facts: the facts document: C(recorded), C(gpus), and C(pci), without which nobody knows what was taken out.
    """
    reached = facts.get("gpus") or ()
    uuids = {gpu.get("uuid") for gpu in reached}
    slots = {str(card.get("address")): None for card in facts.get("pci") or () if card.get("kind") == "gpu"}
    slots.update({gpu.get("pci_address"): gpu.get("name") for gpu in reached})
    found = {record.pci_address: record for record in gpus}
    mine = {record.uuid for record in found.values()}
    for record in recorded_gpus(facts):
        here = (
            record.uuid in uuids or slots.get(record.pci_address, "") in (None, record.name) or facts.get("pci") is None
        )
        if here and record.uuid not in mine:
            found.setdefault(record.pci_address, record)
    return tuple(found[address] for address in sorted(found) if found[address].mig is not None)


def recorded_gpus(facts: Mapping[str, Any]) -> tuple[GpuRecord, ...]:
    """Return the GPUs that are restored at boot; none where nothing that can be read is recorded."""
    try:
        return read_recorded_layout((facts.get("recorded") or {}).get("mig"))
    except Unreadable:
        return ()


def record_step(facts: Mapping[str, Any], gpus: Iterable[GpuRecord], profiles: Profiles) -> Step | None:
    """Return the step that records GPUs, or None where a boot makes them so already. The one place where MIG is compared with its record.

    :param gpus: what is to be recorded.
    :param profiles: what the GPUs offer, by UUID: a profile has other names in other releases of the driver.
    """
    recorded = {_canonical(gpu, profiles) for gpu in recorded_gpus(facts)}
    if all(_canonical(gpu, profiles) in recorded for gpu in gpus if gpu.mig is not None):
        return None
    return Step(Kind.RECORD_LAYOUT, RECORD_PATH, "the present layout is not the one restored at boot")


def _canonical(gpu: GpuRecord, profiles: Profiles) -> GpuRecord:
    offered = profiles.get(gpu.uuid, ())
    return replace(gpu, instances=tuple(replace(one, profile=canonical(one.profile, offered)) for one in gpu.instances))


def recorded_layout(gpus: Iterable[GpuRecord], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document that is kept under C(/etc/gpufleet/mig.json).

    :param request: the layout and strategy that were asked for, for people who read the file.
    """
    return {"schema": 1, "request": dict(request), "gpus": [gpu.as_dict() for gpu in gpus if gpu.mig is not None]}


def read_recorded_layout(document: Any) -> tuple[GpuRecord, ...]:
    """Return the GPUs of a recorded layout.

    :raises Unreadable: the document is of another schema, or no such document.
    """
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise Unreadable("it is not a recorded MIG layout of schema 1")
    return gpu_records(document.get("gpus"))
