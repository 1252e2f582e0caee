# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameters of the kernel module nvidia (C(NVreg_*)) that the user wants, checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._plan import Refused

PREFIX = "nvidia_driver_"
COHERENT_MEMORY = "NVreg_CoherentGPUMemoryMode"
#: From this branch on the driver can manage the memory of GPUs that are coherent with the processor (CDMM; gpu-driver-container,
#: corrections.md 3), so that it is no NUMA node of the operating system.
FIRST_BRANCH_WITH_CDMM = 580
#: Boards whose GPU is coherent with a Grace processor over NVLink-C2C (NVIDIA's release notes of 580: GH200, GB200; GB300 is its successor).
COHERENT_BOARDS = frozenset(("h100-96gb-gh200", "gh200-144gb", "gb200-186gb", "gb300-278gb"))

_NAME = re.compile(r"NVreg_[A-Za-z0-9]{1,64}")
#: No blanks, quotes, comments and backslashes, which modprobe.d and the kernel each read in their own way.
_VALUE = re.compile(r"[A-Za-z0-9_.,:;=/+-]{0,512}")
#: A registry key that switches confidential computing, which is nobody's to change in passing.
_CONFIDENTIAL = re.compile(r"confidentialcompute", re.IGNORECASE)


def read(given: Mapping[str, Any], coherent_memory: str) -> tuple[tuple[str, str], ...]:
    """Return the parameters that are wanted, by name.

    :param given: C(nvidia_driver_module_parameters).
    :param coherent_memory: C(nvidia_driver_coherent_memory).
    :raises Refused: a name or a value cannot be one, or two say different things.
    """
    found = {}
    for name, value in given.items():
        thing = f"{PREFIX}module_parameters.{name}"
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if not _NAME.fullmatch(str(name)):
            raise Refused(
                thing, "the parameters of the module nvidia begin with NVreg_", "See modinfo --parameters nvidia."
            )
        if not _VALUE.fullmatch(text):
            raise Refused(
                thing,
                f"{text!r} has characters that are not allowed in a parameter",
                "Only letters, digits and _ . , : ; = / + - are allowed.",
            )
        if _CONFIDENTIAL.search(text):
            raise Refused(
                thing, "it switches confidential computing, which the collection leaves as it is", "Remove it."
            )
        found[str(name)] = text
    if coherent_memory != "default":
        if COHERENT_MEMORY in found:
            raise Refused(
                f"{PREFIX}coherent_memory",
                f"{PREFIX}module_parameters sets {COHERENT_MEMORY} too",
                "Set one of the two.",
            )
        found[COHERENT_MEMORY] = coherent_memory
    return tuple(sorted(found.items()))


def coherent_refusals(
    parameters: Sequence[tuple[str, str]], branch: int, boards: Mapping[str, str | None]
) -> list[Refused]:
    """Return why GPUs or a driver do not have coherent memory that the driver manages.

    :param boards: keys of the table of boards by what people call the GPU; None for a board that is not in it.
    """
    if dict(parameters).get(COHERENT_MEMORY) != "driver":
        return []
    thing = f"{PREFIX}coherent_memory"
    if branch < FIRST_BRANCH_WITH_CDMM:
        reason = (
            f"the driver manages coherent memory from branch {FIRST_BRANCH_WITH_CDMM} on, but {branch} is requested"
        )
        return [Refused(thing, reason, f'Set {PREFIX}branch: "{FIRST_BRANCH_WITH_CDMM}".')]
    others = [gpu for gpu, board in boards.items() if board not in COHERENT_BOARDS]
    if others:
        reason = (
            f"{', '.join(others)} has no memory that is coherent with the processor, as GH200, GB200 and GB300 have"
        )
        return [Refused(thing, reason, f"Set {PREFIX}coherent_memory: default for this host.")]
    return []
