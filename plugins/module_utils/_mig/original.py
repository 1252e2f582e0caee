# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the GPUs of a host had before the collection changed their MIG for the first time, and the way back to it.

The journal holds what was there before the last run; this is kept from the first run on, GPU by GPU, and goes with the collection.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from .._adapters.files import read_text, write_whole
from .._formats.documents import read_record
from .._records import LAYOUT, GpuRecord
from .journal import Journal
from .mig_parted import entry_of
from .model import DesiredGpu, DesiredInstance, parse
from .record import recorded_gpus, recorded_layout

#: The file's name beside the journal.
NAME = "mig-original.json"


def path_of(journal: Journal) -> str:
    """Return where the original layout is kept."""
    return os.path.join(os.path.dirname(journal.path), NAME)


def read(journal: Journal) -> tuple[GpuRecord, ...]:
    """Return the GPUs that are kept; none where there is no such file, or none that can be read."""
    return recorded_gpus(read_record(LAYOUT, read_text(path_of(journal), links=False)))


def keep(journal: Journal, present: Iterable[GpuRecord], recorded: Iterable[GpuRecord]) -> None:
    """Keep what GPUs have that were not changed before. It is on the disk on return. C(recorded): the GPUs that the collection brings back at boot,
    and has changed therefore.
    """
    before = read(journal)
    wanted = merged(before, present, recorded)
    if wanted != before:
        write_whole(path_of(journal), recorded_layout(wanted).as_text(), 0o600)


def desired(gpu: GpuRecord) -> DesiredGpu:
    """Return the state of a GPU as it was, at any places; a GPU instance without compute instances gets one that fills it."""
    instances = (DesiredInstance(one.profile, one.compute or (parse(one.profile).compute,)) for one in gpu.instances)
    return DesiredGpu(bool(gpu.mig), tuple(sorted(instances)))


def merged(
    kept: Sequence[GpuRecord], present: Iterable[GpuRecord], recorded: Iterable[GpuRecord]
) -> tuple[GpuRecord, ...]:
    """Return C(kept) with the GPUs of C(present) that have MIG and were never changed."""
    known = {record.uuid for record in (*kept, *recorded)}
    return (*kept, *(record for record in present if record.mig is not None and record.uuid not in known))


def layout(kept: Sequence[GpuRecord], recorded: Iterable[GpuRecord], uuids: Iterable[str]) -> list[dict[str, Any]]:
    """Return the layout that brings back what was there, an entry for each GPU.

    :param recorded: GPUs that the collection changed. MIG is switched off on those of which nothing is kept.
    :param uuids: of the GPUs that the host has; a board that was taken out has nothing to bring back.
    """
    here = set(uuids)
    known = {record.uuid for record in kept}
    return [
        *({"devices": [record.uuid], **entry_of(desired(record))} for record in kept if record.uuid in here),
        *(
            {"devices": [record.uuid], "enabled": False}
            for record in recorded
            if record.uuid in here and record.uuid not in known
        ),
    ]
