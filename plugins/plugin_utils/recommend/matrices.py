# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The problem as matrices: what each group of units can become, what that offers, whom it evicts and what it destroys.

A unit becomes one of the maximal layouts of its board, those with no room for another instance, or has MIG off. Any other layout offers less and keeps
no more. Kinds that the same requests accept are one row: which of them serves whom is decided at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ...module_utils._boards.board import GpuInstanceProfile
from ...module_utils._mig.geometry import Geometry
from ...module_utils._mig.model import GpuInstance
from ...module_utils._mig.plan import geometry_with
from .highs import numpy
from .problem import EMPTY, GPU, SPARE, WHOLE, Asking, FleetGpu, Group, Place, Problem, UnitKind

#: What each GPU of a unit becomes.
Layouts = tuple[tuple[Place, ...], ...]


@dataclass(frozen=True)
class Demand:
    """Requests that are alike, by rows. C(home): the row where they run, None for those that wait. C(stay): its number in what is kept, where it is."""

    rows: tuple[int, ...]
    priority: int
    home: int | None
    count: int
    stay: int | None = None


class Block:
    """Groups that can become the same: offers by option, and by group how many units there are and what each option costs.

    :ivar groups: numbers of the groups in the problem; C(counts): units of each.
    :ivar supply: units of each row by option.
    :ivar cost: by group and option. C(keep): by group, option and kept row, how many users stay.
    """

    def __init__(self, of: Matrices, family: tuple[_Family, ...], numbers: list[int]) -> None:
        self.of, self.groups = of, numbers
        groups = [of.problem.groups[number] for number in numbers]
        self.counts = of.np.array([group.count for group in groups], dtype=of.np.int64)
        self.gpus = [_Gpu(of, one, len(family) > 1) for one in family]
        # All GPUs of a unit become the same; what that means differs only for boards that do.
        self._keys = [key for key in self.gpus[0].by_key if all(key in gpu.by_key for gpu in self.gpus)]
        first = [[gpu.supply[gpu.by_key[key][0]] for gpu in self.gpus] for key in self._keys]
        self.supply = of.np.array(first, dtype=of.np.int64).sum(axis=1)
        self.cost, self.keep, self._chosen = self._costs(groups)

    @cached_property
    def offers(self) -> list[Any]:
        """Return what options offer that no other of them offers at least of every row; to itself each is equal."""
        supply = self.of.np.unique(self.supply, axis=0)
        return list(supply[(supply >= supply[:, None]).all(axis=2).sum(axis=1) == 1])

    def _costs(self, groups: Sequence[Group]) -> tuple[Any, Any, list[list[Any]]]:
        """Return cost, keep, and by option and GPU which layout is the cheapest for each group."""
        np, lines = self.of.np, self.of.np.arange(len(groups))
        cost = np.zeros((len(groups), len(self._keys)), dtype=np.int64)
        keep = np.zeros((*cost.shape, len(self.of.kept)), dtype=np.int64)
        chosen: list[list[Any]] = [[] for _key in self._keys]
        for place, gpu in enumerate(self.gpus):
            costs, kept = gpu.costs([group.states[place] for group in groups])
            for option, key in enumerate(self._keys):
                columns = np.array(gpu.by_key[key])
                best = columns[costs[:, columns].argmin(axis=1)]
                chosen[option].append(best)
                cost[:, option] += costs[lines, best]
                keep[:, option] += kept[lines, best]
        return cost, keep, chosen

    def layouts(self, place: int, options: Sequence[int]) -> list[Layouts]:
        """Return what each GPU of a unit becomes with each of these options."""
        chosen = ([int(best[place]) for best in self._chosen[option]] for option in options)
        return [tuple(gpu.layouts[best] for gpu, best in zip(self.gpus, each)) for each in chosen]

    def supply_of(self, layouts: Layouts) -> list[int]:
        """Return the units of each row that a unit has then."""
        offers = [gpu.offers[one] for gpu, layout in zip(self.gpus, layouts) for one in layout]
        return [sum(units) for units in zip(*offers)] if offers else [0] * self.of.rows


class Matrices:
    """The problem in numbers.

    :ivar row_of: the row of every kind that somebody accepts. C(demand_of): the number of the demand that each request is part of.
    :ivar kept: rows and priorities whose users may have to leave although their instance stays, so that it is counted who does.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.np = numpy()
        self.priorities, self.weight, self.scale = problem.priorities(), problem.weight(), problem.scale()
        self.place_of = {priority: number for number, priority in enumerate(self.priorities)}
        self.kept: list[tuple[int, int]] = []
        self.blocks: list[Block] = []
        asked = {who: one for who, one in problem.asked.items() if one.count}
        acceptors: dict[UnitKind, list[Asking]] = {}
        for who, one in asked.items():
            for kind in set(one.kinds):
                acceptors.setdefault(kind, []).append(who)
        # Merged are kinds that the same requests accept, whoever runs there now.
        signatures: dict[tuple[Asking, ...], int] = {}
        self.row_of = {
            kind: signatures.setdefault(tuple(by), len(signatures)) for kind, by in sorted(acceptors.items())
        }
        self.rows = len(signatures)
        numbers: dict[tuple[tuple[int, ...], int, int | None], int] = {}
        counts: Counter[int] = Counter()
        self.demand_of: dict[Asking, int] = {}
        for who, one in asked.items():
            rows = tuple(sorted({self.row_of[kind] for kind in one.kinds}))
            key = rows, one.priority, None if isinstance(who, int) else self.row_of[who[0]]
            number = self.demand_of[who] = numbers.setdefault(key, len(numbers))
            counts[number] += one.count
        self.demands = [Demand(*key, counts[number]) for key, number in numbers.items()]
        self.offered = self._offered()

    def _offered(self) -> dict[str, tuple[GpuInstanceProfile, ...]]:
        """Return the profiles that layouts are made of: somebody accepts or has them, or they are the widest, which bounds the engines."""
        used = {(kind.board, kind.profile) for kind in self.row_of}
        for group in self.problem.groups:
            used |= {(state.board, one.profile) for state in group.states for one in state.held}
        return {
            board: tuple(
                one
                for one in profiles
                if (board, one.name) in used or one.gpu_slices == max(two.gpu_slices for two in profiles)
            )
            for board, profiles in self.problem.boards.items()
        }

    def build(self, kept: Sequence[tuple[int, int]] = ()) -> None:
        """Make the blocks. C(kept): the rows and priorities for which it is counted who stays."""
        self.kept = list(kept)
        self.kept_of: dict[tuple[int | None, int], int] = {key: number for number, key in enumerate(self.kept)}
        self.demands = [replace(one, stay=self.kept_of.get((one.home, one.priority))) for one in self.demands]
        self.ceiling = self.np.array([self.weight[rank] * self.scale for _row, rank in self.kept], dtype=self.np.int64)
        self.ends = [self.rows, self.rows + len(self.kept), self.rows + len(self.kept) + len(self.priorities)]
        families: dict[tuple[_Family, ...], list[int]] = {}
        for number, group in enumerate(self.problem.groups):
            if group.count:
                # A node that is not as its strategy wants it can stay as it is, too.
                names = {name for state in group.states for name, _start, _size in state.there}
                odd = len(group.states) > 1 and (len(names) > 1 or len({state.mig for state in group.states}) > 1)
                fixed = any(state.fixed for state in group.states)
                family = tuple(self._family(state, odd or fixed, fixed) for state in group.states)
                families.setdefault(family, []).append(number)
        self.blocks = [Block(self, family, numbers) for family, numbers in families.items()]
        self.counts = {number: int(block.counts.sum()) for number, block in enumerate(self.blocks)}

    def split(self, values: Any) -> list[Any]:
        """Return values of the rows of a program: of units, of users who are counted as kept, of requests served."""
        return list(self.np.split(values, self.ends[:2]))

    def hosts(self) -> dict[str, Counter[int]]:
        """Return how many units of each block every host has."""
        found: dict[str, Counter[int]] = {}
        for number, block in enumerate(self.blocks):
            for group in block.groups:
                for host in self.problem.groups[group].hosts:
                    found.setdefault(host, Counter())[number] += 1
        return found

    def _family(self, state: FleetGpu, stays: bool, fixed: bool) -> _Family:
        current = [GpuInstance(0, *one.place) for one in state.held]
        shape = geometry_with(self.offered[state.board], current)
        return _Family(state.pool, state.board, shape, tuple(state.there) if stays else None, fixed)

    def replicas(self, kind: UnitKind) -> int:
        return self.problem.replicas.get(kind, 1)


class _Family(NamedTuple):
    """GPUs that can become the same. C(now): what they have, where they may stay so although nothing is like it."""

    pool: str
    board: str
    shape: Geometry
    now: tuple[Place, ...] | None
    fixed: bool


@lru_cache(maxsize=64)
def maximal(shape: Geometry) -> tuple[int, ...]:
    """Return the layouts with no room for another instance."""
    return tuple(
        layout
        for layout in shape.layouts()
        if not any(shape.feasible(layout | 1 << bit) for bit in range(len(shape.slots)) if not layout >> bit & 1)
    )


class _Gpu:
    """The layouts that GPUs of a family can have. That MIG is off is told as a layout with the whole GPU.

    :ivar by_key: layouts between which only the costs decide: those that offer the same, or on a node what its strategy names.
    """

    def __init__(self, of: Matrices, family: _Family, node: bool) -> None:
        self.of, self.family, np = of, family, of.np
        shape = family.shape
        names = [profile.name for profile in shape.profiles]
        named: list[tuple[Any, tuple[Place, ...]]] = [] if family.now is None else [("as it is", family.now)]
        if not family.fixed:
            chosen = [("", layout) for layout in maximal(shape)] if shape.slots else []
            if node:
                chosen = [(name, layout) for name in names for layout in _only(shape, name)]
            for name, layout in chosen:
                slots = sorted(shape.slots_of(layout), key=lambda slot: slot.start)
                named.append((name, tuple((names[slot.profile], slot.start, slot.size) for slot in slots)))
            named.append((WHOLE, (GPU,)))
            if UnitKind(family.pool, family.board, SPARE) in of.row_of:
                named.append((SPARE, (EMPTY,)))
        self.layouts = [layout for _name, layout in named]
        places = [GPU, EMPTY, *((names[slot.profile], slot.start, slot.size) for slot in shape.slots)]
        self.bit = {place: number for number, place in enumerate(places)}
        self.kinds = [UnitKind(family.pool, family.board, name) for name, _start, _size in places]
        self.has = np.array([[place in layout for place in places] for layout in self.layouts], dtype=np.int64)
        offers = np.zeros((len(places), of.rows), dtype=np.int64)
        for bit, kind in enumerate(self.kinds):
            if kind in of.row_of:
                offers[bit, of.row_of[kind]] = of.replicas(kind)
        self.offers = {place: offers[bit].tolist() for place, bit in self.bit.items()}
        self.supply = self.has @ offers
        self.by_key: dict[Any, list[int]] = {}
        for number, (name, _layout) in enumerate(named):
            # Where it is counted who stays, layouts that offer the same are not alike.
            key = name if node else number if of.kept else self.supply[number].tobytes()
            self.by_key.setdefault(key, []).append(number)

    def costs(self, states: Sequence[FleetGpu]) -> tuple[Any, Any]:
        """Return by state and layout what is lost, and who stays of those that are counted."""
        np, of = self.of.np, self.of
        lost = np.zeros((len(states), len(self.bit)), dtype=np.int64)
        users = np.zeros((len(of.kept), *lost.shape), dtype=np.int64)
        counted = of.kept_of
        for number, state in enumerate(states):
            for place, there in state.there.items():
                bit = self.bit[place]
                lost[number, bit] = sum(of.weight[one] for one in there) * of.scale if there else place != GPU
                for priority in there if counted else ():
                    key = of.row_of[self.kinds[bit]], priority
                    if key in counted:
                        users[counted[key], number, bit] += 1
        return lost.sum(axis=1)[:, None] - lost @ self.has.T, np.moveaxis(users @ self.has.T, 0, -1)


def _only(shape: Geometry, name: str) -> tuple[int, ...]:
    """Return the layouts with as many instances of one profile as a GPU holds, and no others."""
    for count in range(shape.profiles[shape.index[name]].max_instances, 0, -1):
        found = shape.layouts_of(shape.request({name: count}))
        if found:
            return found
    return ()
