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

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .model import GpuInstance


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


def match(
    records: Sequence[GpuRecord], uuid: str | None, pci_address: str | None, name: str | None
) -> GpuRecord | None:
    """Return the record of a GPU: by UUID, or that of the same product in the same slot (a new board)."""
    for record in records:
        if record.uuid == uuid:
            return record
    for record in records:
        if record.pci_address == pci_address and record.name == name:
            return record
    return None


def with_others(
    gpus: Iterable[GpuRecord], before: Iterable[GpuRecord], uuids: Collection[str], slots: Mapping[str, str | None]
) -> tuple[GpuRecord, ...]:
    """Return records together with those from before of other GPUs of the host, which another task wrote, by address.

    A GPU that is lost keeps its record: it may be back after the next boot. A board that was taken out loses it.

    :param uuids: of the GPUs that NVML reaches.
    :param slots: the product name of what is at each PCI address of the host; None where NVML does not reach it.
    """
    found = {record.pci_address: record for record in gpus}
    mine = {record.uuid for record in found.values()}
    for record in before:
        here = record.uuid in uuids or slots.get(record.pci_address, "") in (None, record.name)
        if here and record.uuid not in mine:
            found.setdefault(record.pci_address, record)
    return tuple(found[address] for address in sorted(found))


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
