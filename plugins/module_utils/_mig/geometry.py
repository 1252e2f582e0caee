# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where instances fit on a GPU: an exact search over placements, for any grid and any sizes.

A layout chooses a profile and a start from that profile's placements for every instance. It is feasible when the
instances do not overlap, no profile is used more often than it may be, and the engines (decoders, encoders, JPEG,
OFA) add up to no more than the whole GPU has. The last rule is what makes C(+me) exclusive. It is known for the single
OFA and assumed for C(+me.all); an engine that no source counts restricts nothing.

A layout is held as an integer with one bit per slot (a profile at a start), a request as a tuple with one count per
profile. Results are remembered per table of profiles: boards are few and planners ask the same questions again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .._boards.board import GpuInstanceProfile
from .._plan import Refused

ENGINES = ("decoders", "encoders", "jpeg", "ofa")

Request = tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """A profile at a place."""

    profile: int
    start: int
    size: int
    units: int


def bits(mask: int) -> int:
    """Return how many bits are set (C(int.bit_count) needs Python 3.10)."""
    return bin(mask).count("1")


class Geometry:
    """The layouts of one table of profiles.

    :param profiles: the profiles; one without placements can be part of a request but never be placed.
    :ivar slots: every profile at every place, in the order of their bits.
    :ivar grid: units of the placement grid that the profiles reach.
    """

    def __init__(self, profiles: tuple[GpuInstanceProfile, ...]) -> None:
        self.profiles = profiles
        self.index = {profile.name: number for number, profile in enumerate(profiles)}
        self.slots = tuple(
            Slot(number, start, profile.placements.size, ((1 << profile.placements.size) - 1) << start)
            for number, profile in enumerate(profiles)
            if profile.placements is not None
            for start in profile.placements.starts
        )
        self.slot_bit = {(slot.profile, slot.start, slot.size): 1 << bit for bit, slot in enumerate(self.slots)}
        self.grid = max((slot.start + slot.size for slot in self.slots), default=0)
        self.whole = max(profiles, key=lambda profile: profile.gpu_slices) if profiles else None
        self.needs = {
            engine: tuple(getattr(profile, engine) or 0 for profile in profiles)
            for engine in ENGINES
            if self.whole is not None and getattr(self.whole, engine) is not None
        }
        self.limits = {engine: getattr(self.whole, engine) for engine in self.needs}
        self._by_profile = tuple(
            tuple((1 << bit, slot.units) for bit, slot in enumerate(self.slots) if slot.profile == number)
            for number in range(len(profiles))
        )
        # Wide profiles first: they have the fewest places, so that dead ends show early.
        self._order = sorted(
            range(len(profiles)),
            key=lambda number: -(self._by_profile[number][0][1] if self._by_profile[number] else 0),
        )
        self._layouts: dict[Request, tuple[int, ...]] = {}
        self._room: dict[int, int] = {}
        self._requests: tuple[Request, ...] | None = None
        self._number_of: dict[int, int] = {}
        self._reachable: dict[int, int] = {}

    def request(self, counts: Mapping[str, int]) -> Request:
        """Return counts by profile name as a request. Raises KeyError: for a name that is not in the table."""
        request = [0] * len(self.profiles)
        for name, count in counts.items():
            request[self.index[name]] += count
        return tuple(request)

    def counts(self, request: Request) -> dict[str, int]:
        """Return a request as counts by profile name, without zeros."""
        return {profile.name: count for profile, count in zip(self.profiles, request) if count}

    def slots_of(self, layout: int) -> Iterator[Slot]:
        while layout:
            low = layout & -layout
            yield self.slots[low.bit_length() - 1]
            layout ^= low

    def layouts_of(self, request: Request) -> tuple[int, ...]:
        """Return every layout of a request; empty when it is not feasible."""
        known = self._layouts.get(request)
        if known is None:
            known = tuple(self._search(request)) if self._counts_allowed(request) else ()
            self._layouts[request] = known
        return known

    def requests(self) -> tuple[Request, ...]:
        """Return every feasible request, the empty one included."""
        if self._requests is None:
            found: list[Request] = [(0,) * len(self.profiles)]
            # A part of a feasible request is feasible, so every request is reached by adding one profile at a time.
            for number, profile in enumerate(self.profiles):
                for base in tuple(found):
                    for count in range(1, profile.max_instances + 1):
                        request = base[:number] + (count,) + base[number + 1 :]
                        if not self.layouts_of(request):
                            break
                        found.append(request)
            self._requests = tuple(found)
        return self._requests

    def layouts(self) -> Iterator[int]:
        for request in self.requests():
            yield from self.layouts_of(request)

    def feasible(self, layout: int) -> bool:
        self._number_layouts()
        return layout in self._number_of

    def _number_layouts(self) -> None:
        if not self._number_of:
            for number, request in enumerate(self.requests()):
                self._number_of.update((one, number) for one in self.layouts_of(request))

    def reachable(self, layout: int) -> int:
        """Return the requests that can be met with everything of a layout where it is, as bits over C(requests())."""
        self._number_layouts()
        known = self._reachable.get(layout)
        if known is None:
            known = 1 << self._number_of[layout]
            for bit in range(len(self.slots)):
                bigger = layout | 1 << bit
                if bigger != layout and bigger in self._number_of:
                    known |= self.reachable(bigger)
            self._reachable[layout] = known
        return known

    def kept_by_request(self, existing: int, pinned: int) -> dict[int, int]:
        """Return how many of the instances that exist can stay, for every request that keeps the pinned ones.

        :param existing: slots of the instances that exist; a feasible layout.
        :param pinned: slots among them that must stay.
        :returns: by the number of the request in C(requests()).
        """
        free = existing & ~pinned
        parts = []
        part = free
        while True:
            parts.append(part)
            if not part:
                break
            part = (part - 1) & free
        found: dict[int, int] = {}
        seen = 0
        for part in sorted(parts, key=bits, reverse=True):
            fresh = self.reachable(part | pinned) & ~seen
            seen |= fresh
            kept = bits(part | pinned)
            while fresh:
                low = fresh & -fresh
                found[low.bit_length() - 1] = kept
                fresh ^= low
        return found

    def room(self, layout: int) -> int:
        """Return the remaining capacity: how many instances of each profile could still be created, summed.

        It is what C(nvmlDeviceGetGpuInstanceRemainingCapacity) answers, added up over the profiles.
        """
        known = self._room.get(layout)
        if known is None:
            known = self._room[layout] = self._count_room(layout)
        return known

    def _counts_allowed(self, request: Request) -> bool:
        if any(count > profile.max_instances for count, profile in zip(request, self.profiles)):
            return False
        return all(
            sum(count * need for count, need in zip(request, needs)) <= self.limits[engine]
            for engine, needs in self.needs.items()
        )

    def _search(self, request: Request) -> Iterator[int]:
        wanted = [(self._by_profile[number], request[number]) for number in self._order if request[number]]

        def place(group: int, left: int, first: int, used: int, layout: int) -> Iterator[int]:
            if left == 0:
                if group + 1 == len(wanted):
                    yield layout
                else:
                    yield from place(group + 1, wanted[group + 1][1], 0, used, layout)
                return
            places = wanted[group][0]
            # Instances of one profile are alike: they are placed in rising order, so that no layout comes twice.
            for number in range(first, len(places) - left + 1):
                bit, units = places[number]
                if not used & units:
                    yield from place(group, left - 1, number + 1, used | units, layout | bit)

        if not wanted:
            return iter((0,))
        return place(0, wanted[0][1], 0, 0, 0)

    def _count_room(self, layout: int) -> int:
        used = 0
        counts = [0] * len(self.profiles)
        for slot in self.slots_of(layout):
            used |= slot.units
            counts[slot.profile] += 1
        left = {
            engine: self.limits[engine] - sum(count * need for count, need in zip(counts, needs))
            for engine, needs in self.needs.items()
        }
        room = 0
        for number, profile in enumerate(self.profiles):
            most = profile.max_instances - counts[number]
            for engine, needs in self.needs.items():
                if needs[number]:
                    most = min(most, left[engine] // needs[number])
            taken = used
            # Places of one profile have one size, so taking them from the left packs the most.
            for _bit, units in self._by_profile[number]:
                if most > 0 and not taken & units:
                    taken |= units
                    most -= 1
                    room += 1
        return room


@lru_cache(maxsize=64)
def geometry(profiles: tuple[GpuInstanceProfile, ...]) -> Geometry:
    """Return the geometry of a table of profiles; the same table gives the same object."""
    return Geometry(profiles)


def shortage(shape: Geometry, request: Request) -> str | None:
    """Return what runs out when a request is not feasible, or None when it is feasible.

    The resources are tried from the plainest to the subtlest: instances of a profile, memory units, compute slices,
    engines, and last the alignment of the places.
    """
    profiles = shape.profiles
    for count, profile in zip(request, profiles):
        if count > profile.max_instances:
            return f"instances of {profile.name}: {count} requested, the GPU can hold {profile.max_instances}"
    units = sum(count * profile.placements.size for count, profile in zip(request, profiles) if profile.placements)
    if units > shape.grid:
        return f"memory units: {units} requested, the GPU has {shape.grid}"
    slices = sum(count * profile.gpu_slices for count, profile in zip(request, profiles))
    if shape.whole is not None and slices > shape.whole.gpu_slices:
        return f"compute slices: {slices} requested, the GPU has {shape.whole.gpu_slices}"
    for engine, needs in shape.needs.items():
        asked = sum(count * need for count, need in zip(request, needs))
        if asked > shape.limits[engine]:
            title = {"ofa": "OFA engines", "jpeg": "JPEG engines"}.get(engine, engine)
            return f"{title}: {asked} requested, the GPU has {shape.limits[engine]}"
    if not shape.layouts_of(request):
        return (
            f"alignment: the {units} memory units requested are there ({shape.grid}), but no arrangement of the instances "
            "leaves them contiguous"
        )
    return None


def nearest(shape: Geometry, request: Request, keeping: int = 0, count: int = 3) -> list[dict[str, int]]:
    """Return the feasible requests nearest to one that is not, as counts by profile.

    Nearest is the fewest instances exchanged, then the fewest removed and added, then the most compute kept.

    :param keeping: slots that must stay where they are (busy instances).
    """

    def distance(other: Request) -> tuple[int, int, int, Request]:
        removed = sum(max(0, mine - theirs) for mine, theirs in zip(request, other))
        added = sum(max(0, theirs - mine) for mine, theirs in zip(request, other))
        slices = sum(number * profile.gpu_slices for number, profile in zip(other, shape.profiles))
        return max(removed, added), removed + added, -slices, tuple(-number for number in other)

    candidates: Sequence[Request] = [
        other
        for other in shape.requests()
        if any(other) and (not keeping or any(layout & keeping == keeping for layout in shape.layouts_of(other)))
    ]
    return [shape.counts(other) for other in sorted(candidates, key=distance)[:count]]


def refuse_infeasible(shape: Geometry, request: Request, thing: str, text: str) -> Refused:
    """Return the refusal of a request that no layout meets: the resource that runs out, and the nearest requests."""
    from .model import describe

    near = "; ".join(describe(counts) for counts in nearest(shape, request))
    reason = f"{text} does not fit on the GPU: {shortage(shape, request)}"
    return Refused(thing, reason, f"The nearest that fit: {near}." if near else "")
