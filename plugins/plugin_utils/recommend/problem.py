# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the fleet planner is asked: GPUs by their state, what runs on them, and what is wanted. Pure.

A kind is what a pod can be given: a profile of a board in a pool, or a whole GPU (C(WHOLE)). Running users are demand, too: whoever is evicted waits for
another unit with the priority that it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Union

from ...module_utils._boards.board import GpuInstanceProfile
from ...module_utils._plan import Refused

WHOLE = "gpu"

#: Profile, start and size of an instance.
Place = tuple[str, int, int]
#: A whole GPU without MIG, where it is told like an instance.
GPU: Place = (WHOLE, 0, 0)
#: A GPU that nobody uses and that has no instances, where somebody asks for such.
SPARE = "spare"
EMPTY: Place = (SPARE, 0, 0)


class UnitKind(NamedTuple):
    """What a pod can be given. C(profile): of a GPU instance, or C(WHOLE)."""

    pool: str
    board: str
    profile: str

    def __str__(self) -> str:
        return f"{self.profile} on {self.board}" + (f" in {self.pool}" if self.pool else "")


@dataclass(frozen=True)
class HeldInstance:
    """A GPU instance that exists. C(users): the priority of each user, sorted; empty when it is idle."""

    profile: str
    start: int
    size: int
    users: tuple[int, ...] = ()

    @property
    def place(self) -> Place:
        return self.profile, self.start, self.size


@dataclass(frozen=True)
class FleetGpu:
    """What one GPU is. GPUs in the same state are alike to the planner.

    :param users: of the whole GPU, while MIG is off.
    :param fixed: nothing may change on it.
    """

    pool: str
    board: str
    mig: bool = False
    held: tuple[HeldInstance, ...] = ()
    users: tuple[int, ...] = ()
    fixed: bool = False

    @cached_property
    def there(self) -> dict[Place, tuple[int, ...]]:
        """Return what of it can be used, with its users."""
        return {one.place: one.users for one in self.held} if self.mig else {GPU: self.users}

    def kind(self, profile: str) -> UnitKind:
        return UnitKind(self.pool, self.board, profile)


@dataclass(frozen=True)
class Group:
    """Units in the same state. A unit is one GPU, or all GPUs of a node whose strategy is single: they get MIG devices of one profile, or none has MIG.

    :param count: how many such units there are. C(hosts): the host of each, and C(indices): its GPUs in the order of the states, where that is known.
    """

    states: tuple[FleetGpu, ...]
    count: int = 1
    hosts: tuple[str, ...] = field(default=(), compare=False)
    indices: tuple[tuple[int, ...], ...] = field(default=(), compare=False)

    @property
    def gpus(self) -> Iterator[tuple[str, int, FleetGpu]]:
        """Return each GPU: its host, its index and its state."""
        for host, indices in zip(self.hosts, self.indices):
            yield from ((host, index, state) for index, state in zip(indices, self.states))


@dataclass(frozen=True)
class WantedUnits:
    """Requests that are alike. C(kinds): what serves each of them. C(optional): nothing is refused because they are not served.

    :param pod: what the pods are called that wait for it; what has the same name are devices of the same pods, each of which needs one host for all of its.
        C(together): how many of these requests are one pod's.
    """

    kinds: tuple[UnitKind, ...]
    count: int
    priority: int = 0
    optional: bool = False
    together: int = 1
    pod: str = ""


@dataclass(frozen=True)
class AlikePods:
    """Pods with several devices that are alike. C(parts): how many devices each has of what is wanted, by its number in C(Problem.wanted)."""

    name: str
    count: int
    priority: int
    parts: Mapping[int, int]

    @property
    def devices(self) -> int:
        return sum(self.parts.values())


#: Who asks: a number in C(Problem.wanted), or the kind and the priority of users who run now.
Asking = Union[int, tuple[UnitKind, int]]


@dataclass(frozen=True)
class Problem:
    """A fleet and what is wanted of it.

    :param boards: profiles of each board, none for one without MIG.
    :param moves: what serves a user of a kind once it is evicted; its kind alone where nothing is said.
    :param replicas: how many users share one unit of a kind; 1 where nothing is said.
    :param weights: what evicting a user of a priority weighs beside others; by rank where nothing is said: 1 for the lowest.
    """

    boards: Mapping[str, tuple[GpuInstanceProfile, ...]]
    groups: tuple[Group, ...]
    wanted: tuple[WantedUnits, ...] = ()
    moves: Mapping[UnitKind, tuple[UnitKind, ...]] = field(default_factory=dict)
    replicas: Mapping[UnitKind, int] = field(default_factory=dict)
    weights: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def running(self) -> Counter[tuple[UnitKind, int]]:
        """Return how many users each kind has, by priority."""
        found: Counter[tuple[UnitKind, int]] = Counter()
        for group in self.groups:
            for state in group.states:
                for (profile, _start, _size), users in state.there.items():
                    for priority in users:
                        found[state.kind(profile), priority] += group.count
        return found

    @cached_property
    def asked(self) -> dict[Asking, WantedUnits]:
        """Return everything that is wanted, by who asks for it."""
        found: dict[Asking, WantedUnits] = dict(enumerate(self.wanted))
        for (kind, priority), count in sorted(self.running.items()):
            found[kind, priority] = WantedUnits(self.moved(kind), count, priority)
        return found

    @cached_property
    def pods(self) -> dict[str, AlikePods]:
        """Return the pods with several devices, the highest priority and the most devices first."""
        parts: dict[str, dict[int, int]] = {}
        for number, one in enumerate(self.wanted):
            if one.pod:
                parts.setdefault(one.pod, {})[number] = one.together
        found = []
        for name, devices in parts.items():
            first = self.wanted[min(devices)]
            found.append(AlikePods(name, first.count // first.together, first.priority, devices))
        found.sort(key=lambda one: (-one.priority, -one.devices, min(one.parts)))
        return {one.name: one for one in found if one.devices > 1}

    def with_pods(self, counts: Mapping[str, int]) -> Problem:
        """Return the problem with so many pods of each name."""
        wanted = (
            replace(one, count=counts[one.pod] * one.together) if one.pod in counts else one for one in self.wanted
        )
        return replace(self, wanted=tuple(wanted)) if counts else self

    def moved(self, kind: UnitKind) -> tuple[UnitKind, ...]:
        return tuple(sorted({kind, *self.moves.get(kind, ())}))

    def priorities(self) -> list[int]:
        """Return every priority that occurs, the highest first."""
        return sorted({one.priority for one in self.asked.values()}, reverse=True)

    def requests(self) -> dict[int, int]:
        """Return how many requests each priority has, the highest first."""
        found = dict.fromkeys(self.priorities(), 0)
        for one in self.asked.values():
            found[one.priority] += one.count
        return found

    def weight(self) -> dict[int, int]:
        """Return what evicting a user of each priority weighs."""
        order = self.priorities()
        return {one: self.weights.get(one, len(order) - place) for place, one in enumerate(order)}

    def scale(self) -> int:
        """Return how many idle instances weigh as much as one eviction: more than there are."""
        held = ((group.count, one) for group in self.groups for state in group.states for one in state.held)
        return max(1000, sum(count for count, one in held if not one.users) + 1)


def check(problem: Problem) -> None:
    """Refuse what cannot be planned: boards without placements, weights that contradict the priorities."""
    for name, profiles in sorted(problem.boards.items()):
        missing = [profile.name for profile in profiles if profile.placements is None]
        if missing:
            reason = f"no source says where instances of {', '.join(missing)} are placed; only the driver of such a GPU knows"
            remedy = "Read the facts of its hosts with their driver running, or leave them out with --limit."
            raise Refused(f"board {name}", reason, remedy)
    weight, order = problem.weight(), problem.priorities()
    for higher, lower in zip(order, order[1:]):
        if not weight[higher] >= weight[lower] >= 1:
            reason = f"evicting priority {lower} weighs {weight[lower]}, and priority {higher} weighs {weight[higher]}"
            remedy = "Weights are at least 1, and do not fall with rising priority."
            raise Refused("gpu_recommend_weights", reason, remedy)
