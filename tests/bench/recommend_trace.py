# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests of a trace on H100s, one after the other: placed by first fit, best fit, a heuristic after arXiv 2502.01909, and the fleet planner.

The trace is C(openb_pod_list_default.csv) of Alibaba's cluster-trace-gpu-v2023. A request for a part of a GPU becomes the smallest profile whose share of
seven slices is at least that part, others are whole GPUs, on any hosts. A request that cannot be placed when it comes is lost. All place an instance
within a GPU where it leaves the most room, as NVIDIA's driver does.
"""

from __future__ import annotations

import csv
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.geometry import geometry
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.outcome import recommend
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import (
    GPU,
    WHOLE,
    FleetGpu,
    Group,
    HeldInstance,
    Place,
    Problem,
    UnitKind,
    WantedUnits,
)

BOARD = "h100-80gb-sxm"
PLAIN = tuple(
    one for one in board(BOARD).profiles if one.name in ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
)
SLICES = {WHOLE: 7, **{one.name: one.gpu_slices for one in PLAIN}}
SHAPE = geometry(PLAIN)
#: A little more than the trace asks for at its peak (65.6).
GPUS = 72
#: Which part of the GPUs the heuristic keeps for requests of a whole one: the paper's, and those with which it does better on this trace.
SHARES = (0.3, 0.5, 0.7, 0.75, 0.8, 0.85)
_HOUR = 3600

Layout = tuple[Place, ...]


@dataclass(frozen=True)
class Asked:
    """A request. C(count): whole GPUs, or one instance."""

    start: int
    end: int
    profile: str
    count: int


@dataclass
class Result:
    """What became of the requests. C(asked_hours): of GPUs that the accepted requests asked for; C(active_hours): of GPUs that were in use."""

    accepted: int = 0
    asked_hours: float = 0.0
    active_hours: float = 0.0
    migrated: int = 0

    @property
    def active(self) -> float:
        """How many GPUs were in use for each that was asked for."""
        return self.active_hours / self.asked_hours if self.asked_hours else 0.0


def read(path: str) -> list[Asked]:
    found = []
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            count, part = int(row["num_gpu"]), int(row["gpu_milli"])
            if count:
                fits = [one for one in PLAIN if one.gpu_slices * 1000 >= part * 7]
                small = count == 1 and part < 1000
                profile = min(fits, key=lambda one: one.gpu_slices).name if small else WHOLE
                found.append(Asked(int(row["creation_time"]), int(row["deletion_time"]), profile, count))
    return sorted(found, key=lambda one: (one.start, one.end, one.profile))


@cache
def with_one(layout: Layout, profile: str) -> Layout | None:
    """Return a layout with one more instance where it leaves the most room, or None."""
    if profile == WHOLE or layout == (GPU,):
        return (GPU,) if not layout else None
    now = as_bits(layout)
    number = SHAPE.index[profile]
    more = [
        now | bit
        for (one, _start, _size), bit in SHAPE.slot_bit.items()
        if one == number and not now & bit and SHAPE.feasible(now | bit)
    ]
    return as_places(max(more, key=SHAPE.room)) if more else None


def as_bits(layout: Layout) -> int:
    return sum(SHAPE.slot_bit[SHAPE.index[name], start, size] for name, start, size in layout)


def as_places(bits: int) -> Layout:
    return tuple(sorted((PLAIN[one.profile].name, one.start, one.size) for one in SHAPE.slots_of(bits)))


def room(layout: Layout) -> int:
    return 0 if layout == (GPU,) else SHAPE.room(as_bits(layout))


@dataclass
class Fleet:
    """GPUs, and where each request is. First fit."""

    gpus: list[Layout]
    where: dict[int, list[tuple[int, Place]]] = field(default_factory=dict)
    migrated: int = 0

    def fitting(self, profile: str) -> Iterator[tuple[int, Layout]]:
        for number, layout in enumerate(self.gpus):
            after = with_one(layout, profile)
            if after is not None:
                yield number, after

    def choose(self, profile: str) -> tuple[int, Layout] | None:
        return next(self.fitting(profile), None)

    def place(self, number: int, one: Asked) -> bool:
        given: list[tuple[int, Place]] = []
        for _unit in range(one.count):
            found = self.choose(one.profile)
            if found is None:
                self.free(given)
                return False
            gpu, after = found
            (new,) = set(after) - set(self.gpus[gpu])
            self.gpus[gpu] = after
            given.append((gpu, new))
        self.where[number] = given
        return True

    def free(self, given: list[tuple[int, Place]]) -> None:
        for gpu, place in given:
            self.gpus[gpu] = tuple(one for one in self.gpus[gpu] if one != place)

    def move(self, old: tuple[int, Place], new: tuple[int, Place]) -> None:
        """Note that somebody is elsewhere."""
        given = next(given for given in self.where.values() if old in given)
        given[given.index(old)] = new
        self.migrated += 1

    def hour(self) -> None:
        """Do what is done once an hour."""


class BestFit(Fleet):
    """Where the fewest slices are left."""

    def choose(self, profile: str) -> tuple[int, Layout] | None:
        fits = self.fitting(profile)
        return min(fits, key=lambda one: (-sum(size for _name, _start, size in one[1]), one[0]), default=None)


@dataclass
class Baskets(Fleet):
    """After arXiv 2502.01909: requests of a whole GPU and others have GPUs of their own, each up to a part of all; where a small one does not fit, the most
    fragmented GPU is rearranged; every hour, GPUs of which half is used are merged.
    """

    share: float = 0.3
    heavy: set[int] = field(default_factory=set)
    light: set[int] = field(default_factory=set)

    def choose(self, profile: str) -> tuple[int, Layout] | None:
        whole = SLICES[profile] == 7
        basket = self.heavy if whole else self.light
        most = int(len(self.gpus) * self.share)
        found = next((one for one in self.fitting(profile) if one[0] in basket), None)
        if found is None and len(basket) < (most if whole else len(self.gpus) - most):
            free = (one for one in self.fitting(profile) if one[0] not in self.heavy | self.light)
            found = next(free, None)
            basket.update({found[0]} if found else ())
        return found

    def place(self, number: int, one: Asked) -> bool:
        if super().place(number, one):
            return True
        return SLICES[one.profile] < 7 and self.rearrange() and super().place(number, one)

    def rearrange(self) -> bool:
        better = []
        for gpu in sorted(self.light):
            ideal: Layout | None = ()
            for name, _start, _size in sorted(self.gpus[gpu], key=lambda one: -one[2]):
                ideal = None if ideal is None else with_one(ideal, name)
            if ideal is not None and room(ideal) > room(self.gpus[gpu]):
                better.append((room(ideal) - room(self.gpus[gpu]), gpu, ideal))
        if not better:
            return False
        _more, gpu, layout = max(better)
        left = [one for one in layout if one not in self.gpus[gpu]]
        for old in (one for one in self.gpus[gpu] if one not in layout):
            new = next(one for one in left if one[0] == old[0])
            left.remove(new)
            self.move((gpu, old), (gpu, new))
        self.gpus[gpu] = layout
        return True

    def free(self, given: list[tuple[int, Place]]) -> None:
        super().free(given)
        for basket in (self.heavy, self.light):
            basket.difference_update([gpu for gpu, _place in given if not self.gpus[gpu]])

    def hour(self) -> None:
        half = [gpu for gpu in sorted(self.light) if [SLICES[one[0]] for one in self.gpus[gpu]] in ([3], [4])]
        while half:
            gpu = half.pop()
            ((name, *_place),) = self.gpus[gpu]
            into = next((other for other in half if with_one(self.gpus[other], name)), None)
            if into is not None:
                half.remove(into)
                after = with_one(self.gpus[into], name) or ()
                (new,) = set(after) - set(self.gpus[into])
                self.move((gpu, self.gpus[gpu][0]), (into, new))
                self.gpus[gpu], self.gpus[into] = (), after
                self.light.discard(gpu)


class Planned(Fleet):
    """As the planner orders plans: nobody moves where it is not needed, then the most room is left. Where somebody has to, C(recommend) says who."""

    def choose(self, profile: str) -> tuple[int, Layout] | None:
        fits = self.fitting(profile)

        def order(one: tuple[int, Layout]) -> tuple[bool, int, int]:
            before = self.gpus[one[0]]
            return not before, room(before) - room(one[1]), one[0]

        return min(fits, key=order, default=None)

    def place(self, number: int, one: Asked) -> bool:
        if super().place(number, one):
            return True
        taken = sum(SLICES[name] for layout in self.gpus for name, _start, _size in layout)
        # Fewer slices are left than it takes.
        if taken + one.count * SLICES[one.profile] > 7 * len(self.gpus):
            return False
        alike: dict[Layout, list[int]] = {}
        for gpu, layout in enumerate(self.gpus):
            alike.setdefault(layout, []).append(gpu)
        groups = tuple(Group((as_state(layout),), len(gpus)) for layout, gpus in alike.items())
        wanted = WantedUnits((UnitKind("", BOARD, one.profile),), one.count)
        outcome = recommend(Problem({BOARD: PLAIN}, groups, (wanted,)))
        if outcome.missing:
            return False
        units = list(alike.items())
        gone, made = [], []
        for change in outcome.changes:
            layout, gpus = units[change.group]
            (became,) = change.after
            after = (GPU,) if became is None else became
            for _unit in range(change.count):
                gpu = gpus.pop()
                gone += [(gpu, place) for place in layout if place not in after]
                made += [(gpu, place) for place in after if place not in layout]
                self.gpus[gpu] = after
        for old in gone:
            new = next(place for place in made if place[1][0] == old[1][0])
            made.remove(new)
            self.move(old, new)
        given = [place for place in made if place[1][0] == one.profile][: one.count]
        self.free([place for place in made if place not in given])
        self.where[number] = given
        return True


def as_state(layout: Layout) -> FleetGpu:
    if layout == (GPU,):
        return FleetGpu("", BOARD, users=(0,))
    held = (HeldInstance(*place, (0,)) for place in sorted(layout, key=lambda one: one[1]))
    return FleetGpu("", BOARD, True, tuple(held))


def simulate(fleet: Fleet, requests: list[Asked]) -> Result:
    result, now, hour = Result(), requests[0].start, requests[0].start
    ends: list[tuple[int, int]] = []

    def until(moment: int) -> None:
        nonlocal now, hour
        while hour <= moment:
            fleet.hour()
            hour += _HOUR
        result.active_hours += sum(1 for layout in fleet.gpus if layout) * (moment - now) / _HOUR
        now = moment

    def leave(moment: float) -> None:
        while ends and ends[0][0] <= moment:
            end, number = heapq.heappop(ends)
            until(end)
            fleet.free(fleet.where.pop(number))

    for number, one in enumerate(requests):
        leave(one.start)
        until(one.start)
        if fleet.place(number, one):
            result.accepted += 1
            result.asked_hours += one.count * SLICES[one.profile] / 7 * (one.end - one.start) / _HOUR
            heapq.heappush(ends, (one.end, number))
    leave(float("inf"))
    result.migrated = fleet.migrated
    return result


def compare(path: str) -> dict[str, Result]:
    """Return what becomes of the trace by each; of the heuristic, with the part with which it accepts the most."""
    requests = read(path)
    found = {
        "": simulate(Planned([()] * GPUS), requests),
        "_first_fit": simulate(Fleet([()] * GPUS), requests),
        "_best_fit": simulate(BestFit([()] * GPUS), requests),
    }
    heuristic = [simulate(Baskets([()] * GPUS, share=share), requests) for share in SHARES]
    return {**found, "_baskets": max(heuristic, key=lambda one: one.accepted)}
