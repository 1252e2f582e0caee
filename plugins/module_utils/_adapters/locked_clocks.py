# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which clocks were locked on this host since its driver was loaded.

NVML locks clocks and has no call that tells whether and how they are locked. What was last set is kept in C(/run), which a reboot empties
as it empties the locks, and is forgotten where the driver is unloaded or a GPU is reset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from .._formats.documents import read_json
from .files import read_text, remove, write_whole

PATH = "/run/gpufleet/locked-clocks.json"
GRAPHICS, MEMORY = "graphics", "memory"

#: UUID of a GPU, and the lowest and the highest frequency in MHz of its L(GRAPHICS) and L(MEMORY) clock.
Locks = Mapping[str, Mapping[str, "tuple[int, int]"]]


def parse(text: str | None) -> Locks:
    """Return what was locked; empty where that cannot be read."""
    try:
        found = read_json(text or "{}")
        return {
            str(uuid): {
                name: (int(locks[name][0]), int(locks[name][1])) for name in (GRAPHICS, MEMORY) if locks.get(name)
            }
            for uuid, locks in found.items()
        }
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return {}


def read() -> Locks:
    """Return what was locked on this host."""
    return parse(read_text(PATH, links=False))


def keep(uuid: str, clock: str, frequencies: tuple[int, int] | None) -> None:
    """Remember how a clock was locked; None where it was unlocked."""
    found = {one: dict(locks) for one, locks in read().items()}
    locks = found.setdefault(uuid, {})
    locks.pop(clock, None)
    if frequencies is not None:
        locks[clock] = frequencies
    write_whole(PATH, json.dumps(found, sort_keys=True) + "\n")


def forget() -> None:
    """Forget all of it: GPUs have lost their locks, and to lock again one that has not costs nothing."""
    remove(PATH)
