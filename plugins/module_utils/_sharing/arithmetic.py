# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arithmetic of shared GPUs: slices, replicas, what one MPS client may use, N GiB over M GPUs.

All sizes are MiB (2**20 bytes). The numbers are those of the device plugin 0.20 (C(cmd/mps-control-daemon/mps)):
a resource with R replicas gives every MPS client C(floor(total / R)) MiB and C(floor(100 / R)) percent of the threads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._plan import Refused

_MEMORY = re.compile(r"\s*(?P<number>[0-9]{1,15}(?:\.[0-9]{1,15})?)\s*(?P<unit>[A-Za-z]*)\s*")
_MIB_PER_UNIT = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
_LIKELY_UNIT = {"m": "MiB", "mb": "MiB", "mi": "MiB", "mib": "MiB", "g": "GiB", "gb": "GiB", "gi": "GiB", "gib": "GiB"}


@dataclass(frozen=True)
class ClientLimits:
    """What one MPS client gets of a device.

    :param memory_mib: device memory that it can allocate; 0 is no limit.
    :param percentage: the share of the device's threads that it can use.
    """

    memory_mib: int
    percentage: float


@dataclass(frozen=True)
class Share:
    """A pod's request "N GiB over M GPUs", resolved."""

    memory_mib: int
    gpus: int
    per_gpu_mib: int


def memory_mib(text: str, thing: str) -> int:
    """Return the size that C(text) names, such as C(4GiB) or C(512MiB), in MiB. Raises Refused: no number with one of the units MiB, GiB, TiB, or no
    whole number of MiB. C(4GB) and C(4G) are refused, because one reads 4000 MB and the other 4096 MiB into them.
    """
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise Refused(thing, f"{text!r} is not a size", "Write a number and a binary unit, such as 4GiB or 512MiB.")
    number, unit = match.group("number"), match.group("unit")
    if unit not in _MIB_PER_UNIT:
        likely = _LIKELY_UNIT.get(unit.lower(), "GiB")
        reason = f"the unit {unit!r} of {text!r} is ambiguous" if unit else f"{text!r} has no unit"
        raise Refused(thing, reason, f"Units are binary and written out: {number}{likely}?")
    size = float(number) * _MIB_PER_UNIT[unit]
    if size < 1 or size != int(size):
        remedy = "Write a number such as 4GiB or 512MiB."
        raise Refused(thing, f"{text!r} is not a whole number of MiB above zero", remedy)
    return int(size)


def memory_text(mib: int) -> str:
    """Return C(mib) in the unit in which it is a whole number: C(4GiB), C(4188MiB)."""
    return f"{mib // 1024}GiB" if mib % 1024 == 0 else f"{mib}MiB"


def replicas_of(total_mib: int, slice_mib: int, thing: str) -> int:
    """Return into how many slices of C(slice_mib) a GPU with C(total_mib) is divided. Raises Refused: fewer than two slices fit; the remedy names the
    largest slice that makes two.
    """
    replicas = total_mib // slice_mib
    if replicas < 2:
        reason = f"a slice of {memory_text(slice_mib)} fits {replicas} times into a GPU of {total_mib} MiB, and sharing needs 2 or more"
        remedy = f"The largest slice of this GPU is {total_mib // 2}MiB; a whole GPU for each pod is nvidia_sharing_mode: none."
        raise Refused(thing, reason, remedy)
    return replicas


def mps_limits(total_mib: int, replicas: int) -> ClientLimits:
    """Return what the device plugin's MPS daemon gives each client of a GPU with C(total_mib)."""
    return ClientLimits(total_mib // replicas, 100 // replicas)


def refuse_too_many_clients(replicas: int, limit: int, of: str, thing: str) -> None:
    """Refuse more MPS clients than a device has.

    :param limit: L(architectures.mps_clients), or what the daemon of the device plugin starts with.
    :raises Refused: the clients beyond the limit would find no room; the daemon of the device plugin would not even start.
    """
    if replicas > limit:
        remedy = f"Ask for {limit} or fewer replicas, for a larger slice, or for nvidia_sharing_mode: time_slicing."
        raise Refused(thing, f"MPS on {of} allows at most {limit} clients, not {replicas}", remedy)


def share(memory: str, gpus: int, thing: str) -> Share:
    """Resolve "N GiB over M GPUs" into what the pod gets on each GPU.

    :param memory: N with its unit, such as C(8GiB).
    :raises Refused: N, in the unit in which it is written, cannot be divided by M.
    """
    total = memory_mib(memory, thing)
    if gpus < 1:
        raise Refused(thing, f"{memory} over {gpus} GPUs is not a valid request", "Ask for one GPU or more.")
    unit = next(name for name in _MIB_PER_UNIT if memory.strip().endswith(name))
    number = total / _MIB_PER_UNIT[unit]
    if number % gpus:
        lower = int(number // gpus) * gpus
        near = [f"{value}{unit}" for value in (lower, lower + gpus) if value]
        remedy = f"The nearest: {' or '.join(near)} over {gpus} GPUs."
        raise Refused(thing, f"{memory} over {gpus} GPUs is not a whole number of {unit} on each", remedy)
    return Share(memory_mib=total, gpus=gpus, per_gpu_mib=total // gpus)
