# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The records of MIG: which GPU one is of, what has to be recorded, and whether it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._boards.board import GpuInstanceProfile
from .._boards.cards import all_cards
from .._facts_view import Facts
from .._gpu_facts import GpuFacts
from .._plan import Step
from .._records import GpuRecord, PlacedInstance, RecordedLayout, Unusable, in_order
from .._steps import Kind
from .model import GpuInstance, canonical

RECORD_PATH = "/etc/gpufleet/mig.json"
Profiles = Mapping[str, Sequence[GpuInstanceProfile]]


def placed(instances: Iterable[GpuInstance]) -> tuple[PlacedInstance, ...]:
    """Return instances that exist as places, in their order on the grid."""
    return in_order(
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


def recorded_gpus(found: RecordedLayout | Unusable | None) -> tuple[GpuRecord, ...]:
    """Return the GPUs of a recorded layout; none where nothing that can be read is recorded."""
    return found.gpus if isinstance(found, RecordedLayout) else ()


def record_step(recorded: Iterable[GpuRecord], gpus: Iterable[GpuRecord], profiles: Profiles) -> Step | None:
    """Return the step that records GPUs, or None where a boot makes them so already. The one place where MIG is compared with its record.
    C(profiles): what the GPUs offer, by UUID: a profile has other names in other releases of the driver.
    """
    known = {_canonical(gpu, profiles) for gpu in recorded}
    if all(_canonical(gpu, profiles) in known for gpu in gpus if gpu.mig is not None):
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
