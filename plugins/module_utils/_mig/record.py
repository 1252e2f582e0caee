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

from .._boards.board import GpuInstanceProfile
from .._boards.cards import all_cards
from .._facts_view import Facts
from .._formats.documents import record_text
from .._gpu_facts import GpuFacts
from .._plan import Step
from .._schema import Path, Schema, anything, boolean, encode, has, items, mapping, needs, number, of, taken, text
from .._steps import Kind
from .model import DesiredGpu, DesiredInstance, GpuInstance
from .profiles import canonical, parse

RECORD_PATH = "/etc/gpufleet/mig.json"
Profiles = Mapping[str, Sequence[GpuInstanceProfile]]
_PLACE = number(0, 64)


@dataclass(frozen=True)
class PlacedInstance:
    """A GPU instance at a place, with the slices of its compute instances, widest first."""

    profile: str = needs(text(64))
    start: int = needs(_PLACE)
    size: int = needs(_PLACE)
    compute: tuple[int, ...] = needs(items(_PLACE, 64), ())


def _in_order(places: Iterable[PlacedInstance]) -> tuple[PlacedInstance, ...]:
    found = (
        replace(one, compute=tuple(sorted(one.compute, reverse=True))) if len(one.compute) > 1 else one
        for one in places
    )
    return tuple(sorted(found, key=lambda one: one.start))


_PLACED = items(of(PlacedInstance), 64)


def _on_grid(value: Any, path: Path) -> tuple[PlacedInstance, ...]:
    """The instances of a GPU, in their order on the grid."""
    return _in_order(_PLACED(value, path) or ())


@dataclass(frozen=True)
class GpuRecord:
    """One GPU as it was. C(mig): MIG mode; None for a board without MIG, which is never changed."""

    uuid: str = needs(text(256))
    pci_address: str = needs(text(256))
    name: str = needs(text(256))
    mig: bool | None = has(boolean)
    instances: tuple[PlacedInstance, ...] = needs(_on_grid, ())

    @property
    def desired(self) -> DesiredGpu:
        """The desired state that makes it so, at any places; a GPU instance without compute instances gets one that fills it."""
        instances = (
            DesiredInstance(one.profile, one.compute or (parse(one.profile).compute,)) for one in self.instances
        )
        return DesiredGpu(bool(self.mig), tuple(sorted(instances)))

    def as_dict(self) -> dict[str, Any]:
        return dict(encode(self))


GPUS = items(of(GpuRecord), 1024)


def if_it_fits(schema: Schema, other: Any = None) -> Schema:
    """A value of a schema, or C(other) in its place: what is there beside the instances is no reason to lose them."""

    def read(value: Any, _path: Path) -> Any:
        found = taken(schema, value)
        return other if found is None else found

    return read


#: What somebody asked for, which is shown and not acted on.
REQUEST = if_it_fits(mapping(anything))


@dataclass(frozen=True)
class RecordedLayout:
    """What is kept under C(/etc/gpufleet/mig.json). C(request): the layout and strategy that were asked for, for people who read the file."""

    gpus: tuple[GpuRecord, ...] = needs(GPUS)
    request: Mapping[str, Any] | None = has(REQUEST)

    def as_text(self) -> str:
        return record_text(self, 1)


LAYOUT = of(RecordedLayout, 1)


def placed(instances: Iterable[GpuInstance]) -> tuple[PlacedInstance, ...]:
    """Return instances that exist as places, in their order on the grid."""
    return _in_order(
        PlacedInstance(one.profile, one.start, one.size, tuple(compute.slices for compute in one.compute))
        for one in instances
    )


def match(records: Sequence[GpuRecord], gpu: GpuFacts) -> GpuRecord | None:
    """Return the record of a GPU: by UUID, or that of the same product in the same slot (a new board)."""
    same = [record for record in records if record.uuid == gpu.uuid]
    slot = (gpu.pci_address, gpu.name)
    return next(iter([*same, *(record for record in records if (record.pci_address, record.name) == slot)]), None)


def with_others(facts: Facts, gpus: Iterable[GpuRecord], recorded: Iterable[GpuRecord]) -> tuple[GpuRecord, ...]:
    """Return what is to be recorded: some GPUs, and those of the host that another task recorded, by address. A GPU that is lost keeps its record: it
    may be back after the next boot. A board that was taken out loses it. C(facts): C(gpus), and C(pci), without which nobody knows what was taken out.
    """
    reached = facts.gpus or ()
    uuids = {gpu.uuid for gpu in reached}
    slots: dict[str | None, str | None] = dict.fromkeys(card.address for card in all_cards(facts))
    slots.update({gpu.pci_address: gpu.name for gpu in reached})
    found = {record.pci_address: record for record in gpus}
    mine = {record.uuid for record in found.values()}
    for record in recorded:
        here = record.uuid in uuids or slots.get(record.pci_address, "") in (None, record.name) or facts.pci is None
        if here and record.uuid not in mine:
            found.setdefault(record.pci_address, record)
    return tuple(found[address] for address in sorted(found) if found[address].mig is not None)


def recorded_gpus(document: Any) -> tuple[GpuRecord, ...]:
    """Return the GPUs of a recorded layout; none where nothing that can be read is recorded."""
    found: RecordedLayout | None = taken(LAYOUT, document)
    return found.gpus if found else ()


def record_step(document: Any, gpus: Iterable[GpuRecord], profiles: Profiles) -> Step | None:
    """Return the step that records GPUs, or None where a boot makes them so already. The one place where MIG is compared with its record.
    C(document): what is recorded. C(profiles): what the GPUs offer, by UUID: a profile has other names in other releases of the driver.
    """
    recorded = {_canonical(gpu, profiles) for gpu in recorded_gpus(document)}
    if all(_canonical(gpu, profiles) in recorded for gpu in gpus if gpu.mig is not None):
        return None
    return Step(Kind.RECORD_LAYOUT, RECORD_PATH, "the present layout is not the one restored at boot")


def _canonical(gpu: GpuRecord, profiles: Profiles) -> GpuRecord:
    offered = profiles.get(gpu.uuid, ())
    names = {one.profile: canonical(one.profile, offered) for one in gpu.instances}
    if all(name == given for given, name in names.items()):
        return gpu
    return replace(gpu, instances=tuple(replace(one, profile=names[one.profile]) for one in gpu.instances))


def recorded_layout(gpus: Iterable[GpuRecord], request: Mapping[str, Any] | None = None) -> RecordedLayout:
    """Return what is to be kept of GPUs."""
    return RecordedLayout(tuple(gpu for gpu in gpus if gpu.mig is not None), request)
