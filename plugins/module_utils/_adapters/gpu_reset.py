# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reset of GPUs by nvidia-smi, and which clocks were locked since the driver was loaded, which a reset ends.

NVML locks clocks and has no call that tells whether and how they are locked. What was last set is kept in C(/run), which a reboot empties
as it empties the locks, and is forgotten where the driver is unloaded or a GPU is reset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .._formats.documents import read_record
from .._schema import items, mapping, not_null, number
from .command import CommandError, Result, run
from .files import read_text, remove, write_whole

LOCKS_PATH = "/run/gpufleet/locked-clocks.json"
GRAPHICS, MEMORY = "graphics", "memory"

#: UUID of a GPU, and the lowest and the highest frequency in MHz of its L(GRAPHICS) and L(MEMORY) clock.
Locks = Mapping[str, Mapping[str, "tuple[int, int]"]]
_LOCKS = mapping(mapping(not_null(items(number(), 2, least=2))))


def parse_locks(text: str | None) -> Locks:
    """Return what was locked; empty where that cannot be read."""
    return read_record(_LOCKS, text) or {}


def read_locks() -> Locks:
    return parse_locks(read_text(LOCKS_PATH, links=False))


def keep_lock(uuid: str, clock: str, frequencies: tuple[int, int] | None) -> None:
    """Remember how a clock was locked; None where it was unlocked."""
    found = {one: dict(locks) for one, locks in read_locks().items()}
    locks = found.setdefault(uuid, {})
    locks.pop(clock, None)
    if frequencies is not None:
        locks[clock] = frequencies
    write_whole(LOCKS_PATH, json.dumps(found, sort_keys=True) + "\n")


def forget_locks() -> None:
    """Forget all of it: GPUs have lost their locks, and to lock again one that has not costs nothing."""
    remove(LOCKS_PATH)


_RESET_SECONDS = 180.0


def reset_gpu(pci_address: str) -> str:
    """Reset one GPU, and no other, and return what nvidia-smi said, or why it did not run. That is no proof: callers read the state back."""
    try:
        answer = reset_gpus([pci_address])
    except CommandError as error:
        return str(error)
    return " ".join((answer.stdout + " " + answer.stderr).split()) or f"exit status {answer.rc}"


def reset_gpus(names: Sequence[str]) -> Result:
    """Reset GPUs, named by UUID or PCI address, in one command, as those have to be that are reset together; the locks of their clocks end with it.
    The answer is not a proof. Raises CommandError: nvidia-smi is missing or does not come back.
    """
    forget_locks()
    return run(["nvidia-smi", "-r", "-i", ",".join(names)], timeout=_RESET_SECONDS * len(names))
