# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a facts document is one: within the bounds that its view declares, and without contradictions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from .._facts_view import Facts, view_of
from .._gpu_facts import SLICES, GpuFacts, GpuInstanceFacts, ProfileFacts
from .._schema import Unfit, check, items, of

#: In how many ways the MIG profiles of the GPUs of a host may be placed; planners go through all of them. All boards have 5,536 or fewer,
#: and GPUs with the same profiles count once.
_ARRANGEMENTS = 30_000
_GPUS = items(of(GpuFacts), 64)


def check_facts(document: Any) -> Facts:
    """Return the view of a facts document as a host sent it. Raises Unfit: it does not fit, or contradicts itself."""
    found = view_of(document)
    _check_gpus(found.gpus or ())
    return found


def check_gpus(gpus: Any) -> Sequence[GpuFacts]:
    """Return the part C(gpus) of the facts. Raises Unfit: it does not fit, or contradicts itself."""
    found: Sequence[GpuFacts] = check(_GPUS, gpus, "gpus")
    _check_gpus(found)
    return found


def _check_gpus(gpus: Sequence[GpuFacts]) -> None:
    seen: set[int] = set()
    arrangements: dict[frozenset[tuple[int, int, int]], int] = {}
    for position, gpu in enumerate(gpus):
        if gpu.index in seen:
            raise Unfit(f"gpus[{position}].index", f"{gpu.index} is the index of two GPUs")
        seen.add(gpu.index)
        _check_apart(gpu.gpu_instances, f"gpus[{position}].gpu_instances")
        path = f"gpus[{position}].profiles"
        slots = frozenset(_slots(gpu.profiles, path))
        if slots and slots not in arrangements:
            arrangements[slots] = _arrangements(slots)
            if sum(arrangements.values()) > _ARRANGEMENTS:
                why = f"they can be placed in more than {_ARRANGEMENTS:,} ways, the most that a host may have"
                raise Unfit(path, why)


def _check_apart(instances: Sequence[GpuInstanceFacts], path: str) -> None:
    taken: set[int] = set()
    for position, instance in enumerate(instances):
        units = range(instance.start, instance.start + instance.size)
        if taken.intersection(units):
            raise Unfit(f"{path}[{position}]", f"memory slices from {units[0]} on belong to another instance")
        taken.update(units)


def _slots(profiles: Sequence[ProfileFacts], path: str) -> Iterator[tuple[int, int, int]]:
    """Return each place of each profile: the profile's number, the first memory slice, and how many it takes."""
    for number_of_profile, profile in enumerate(profiles):
        starts, size = profile.starts, profile.size or 0
        place = f"{path}[{number_of_profile}]"
        if starts and not size:
            raise Unfit(f"{place}.size", "it must be at least 1 if there are starts")
        if any(after <= before for before, after in zip(starts, starts[1:])):
            raise Unfit(f"{place}.starts", "they must be in ascending order without duplicates")
        if starts and starts[-1] + size > SLICES:
            raise Unfit(f"{place}.starts", f"{starts[-1]} and {size} memory slices from there exceed {SLICES}")
        for start in starts:
            yield number_of_profile, start, size


def _arrangements(slots: Collection[tuple[int, int, int]]) -> int:
    """Return in how many ways places can be chosen without overlap."""
    from_here = [1] * (SLICES + 1)
    for unit in range(SLICES - 1, -1, -1):
        from_here[unit] = from_here[unit + 1] + sum(from_here[unit + slot[2]] for slot in slots if slot[1] == unit)
    return from_here[0]
