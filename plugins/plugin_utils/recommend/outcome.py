# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the fleet becomes: the plan of the solver with no more instances created than are used, and the certificate that says why none is better. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...module_utils._plan import Refused
from .matrices import Layouts, Matrices
from .problem import GPU, Asking, FleetGpu, Place, Problem, UnitKind
from .solver import INFINITY, PARTS, RowPrices, Solution, most_served
from .ties import room_of, solve

Instances = tuple[Place, ...]


@dataclass(frozen=True)
class UnitChange:
    """What units of a group become. C(after): by GPU, None where MIG is off; a unit that does not change has its instances as they are."""

    group: int
    count: int
    after: tuple[Instances | None, ...]


@dataclass(frozen=True)
class KindPrices:
    """Prices in idle instances times C(parts), as integers: of a unit of a kind, of a user who is counted as kept, of a request served.

    A kind, a user or a priority without a price has the price 0.
    """

    unit: Mapping[UnitKind, int] = field(default_factory=dict)
    kept: Mapping[tuple[UnitKind, int], int] = field(default_factory=dict)
    served: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FleetOutcome:
    """The answer.

    :param changes: of every unit, those that stay as they are included.
    :param given: requests served by what: (number in C(Problem.wanted), or kind and priority of running users; kind) and how many.
    :param leaving: users who have to go although their instance stays, by kind and priority: others of more priority get it.
    :param served: requests served by priority, running users included. C(asked): how many there are.
    :param cost: evictions by weight times the scale, and idle instances destroyed.
    :param prices: they bound C(cost) from below. C(served_prices): they bound what is served of a priority that is not served as a whole.
    :param least: what no plan costs less than, as the search of whole numbers has shown, also where prices leave a gap.
    :param searched: it has shown that no plan is better.
    :param hosts: those that change, where plans that are as good were compared, none of which changes fewer than C(least_hosts).
    :param room: how many instances of each profile can still be created, summed; no plan that is as good and changes as few hosts leaves more than
        C(most_room); None where that is not known.
    """

    changes: tuple[UnitChange, ...]
    given: Mapping[tuple[Asking, UnitKind], int]
    leaving: Mapping[tuple[UnitKind, int], int]
    served: Mapping[int, int]
    asked: Mapping[int, int]
    cost: int
    scale: int
    prices: KindPrices
    served_prices: Mapping[int, KindPrices]
    least: int
    searched: bool
    parts: int = PARTS
    hosts: frozenset[str] = frozenset()
    least_hosts: int = 0
    room: int = 0
    most_room: int | None = 0

    @property
    def gap(self) -> float:
        """Return how many evictions of the least weight a better plan could save at the most."""
        return max(0, self.cost - self.least) / self.scale

    @property
    def missing(self) -> dict[int, int]:
        """Return how many requests of each priority nothing serves, the highest first."""
        return {
            priority: self.asked[priority] - count
            for priority, count in self.served.items()
            if self.asked[priority] > count
        }


def recommend(problem: Problem, seconds: float = INFINITY) -> FleetOutcome:
    """Return the best the fleet can become. The problem has passed C(check)."""
    of = Matrices(problem)
    return _Outcome(of, solve(of, seconds)).outcome()


def refuse_missing(problem: Problem, outcome: FleetOutcome) -> None:
    """Refuse a demand that no layout serves, by priority, and not one that has to make room for pods of more priority that wait."""
    missing: Counter[int] = Counter()
    for who, one in problem.asked.items():
        if not one.optional:
            missing[one.priority] += one.count - sum(outcome.given.get((who, kind), 0) for kind in set(one.kinds))
    asked = outcome.asked
    if any(missing.values()) and any(one.optional for one in problem.wanted):
        needed = replace(problem, wanted=tuple(one for one in problem.wanted if not one.optional))
        asked = needed.requests()
        missing = Counter(asked)
        missing.subtract(most_served(Matrices(needed)))
    if any(missing.values()):
        text = ", ".join(f"{count} of {asked[one]} requests of priority {one}" for one, count in (+missing).items())
        remedy = "Ask for less, add GPUs (gpu_recommend_mode: grow says which), or accept it with gpu_recommend_partial: true."
        raise Refused("gpu_recommend_demand", f"no layout of the fleet serves {text}", remedy)


def as_it_is(state: FleetGpu) -> Instances | None:
    return tuple(one.place for one in state.held) if state.mig else None


def placed(problem: Problem, outcome: FleetOutcome) -> dict[str, dict[int, Instances | None]]:
    """Return what each GPU becomes, by host and index. Of units that are alike, those of hosts that are to change, or change anyway, come first."""
    after: dict[str, dict[int, Instances | None]] = {}
    touched = set(outcome.hosts)
    changes: dict[int, list[tuple[bool, int, tuple[Instances | None, ...]]]] = {}
    for one in outcome.changes:
        now = map(as_it_is, problem.groups[one.group].states)
        # In any order; None is MIG off, and not a GPU without instances.
        stays = [was and sorted(was) for was in now] == [then and sorted(then) for then in one.after]
        changes.setdefault(one.group, []).append((stays, one.count, one.after))
    for number, several in sorted(changes.items(), key=lambda entry: len(entry[1])):
        group = problem.groups[number]
        several.sort(key=lambda entry: entry[0])
        left = sorted(zip(group.hosts, group.indices), key=lambda unit: (unit[0] not in touched, unit))
        for stays, count, layouts in several:
            for host, indices in left[:count]:
                after.setdefault(host, {}).update(zip(indices, layouts))
                touched |= set() if stays else {host}
            left = left[count:]
    return after


class _Outcome:
    """The plan with only what is used. What stays serves first; then what is made on GPUs that change anyway, so that others are left alone."""

    def __init__(self, of: Matrices, found: Solution) -> None:
        self.of, self.found, self.problem = of, found, of.problem
        #: Units of each row that are still needed, units of each kind that there are, and users who stay where they are.
        self.needed: Counter[int] = Counter()
        for (_demand, row), count in found.given.items():
            self.needed[row] += count
        self.units: Counter[UnitKind] = Counter()
        self.staying: Counter[tuple[UnitKind, int]] = Counter()

    def outcome(self) -> FleetOutcome:
        plans, room = [], 0
        blocks = {group: block for block in self.of.blocks for group in block.groups}
        for group, layouts, cost, count in self._plan():
            plans.append((-cost, group, count, layouts))
            for state, layout in zip(self.problem.groups[group].states, layouts):
                for instance, users in state.there.items():
                    if instance in layout:
                        self._use(state.kind(instance[0]), count)
                        self.staying.update({(state.kind(instance[0]), one): users.count(one) * count for one in users})
        changes: Counter[tuple[int, tuple[Instances | None, ...]]] = Counter()
        for _cost, group, left, layouts in sorted(plans, key=lambda plan: plan[:2]):
            while left:
                after, made, times = self._trimmed(group, layouts, left)
                changes[group, after] += times
                room += times * room_of(blocks[group], self.problem.groups[group], tuple(map(_instances, after)))
                for kind, count in made.items():
                    self._use(kind, times * count)
                left -= times
        given, leaving = self._given()
        return FleetOutcome(
            changes=tuple(UnitChange(group, count, after) for (group, after), count in changes.items()),
            given=given,
            leaving=leaving,
            served=self.found.served,
            asked=self.problem.requests(),
            cost=self._cost(changes, leaving),
            scale=self.of.scale,
            prices=self._prices(self.found.prices),
            served_prices={priority: self._prices(prices) for priority, prices in self.found.served_prices.items()},
            least=int(self.found.least),
            searched=self.found.searched,
            hosts=self.found.hosts,
            least_hosts=self.found.least_hosts,
            room=room,
            most_room=max(room, self.found.most_room),
        )

    def _plan(self) -> Iterator[tuple[int, Layouts, int, int]]:
        """Return what units of each group become, what that costs, and how many units."""
        blocks = self.of.blocks
        if self.found.tied:
            for (block, place, layouts), count in self.found.tied.items():
                yield blocks[block].groups[place], layouts, 0, count
            return
        for (block, place, option), count in sorted(self.found.chosen.items()):
            (layouts,) = blocks[block].layouts(place, [option])
            yield blocks[block].groups[place], layouts, int(blocks[block].cost[place, option]), count

    def _cost(
        self,
        changes: Mapping[tuple[int, tuple[Instances | None, ...]], int],
        leaving: Mapping[tuple[UnitKind, int], int],
    ) -> int:
        """Return what the plan costs: less than the solver's, where a layout was not needed after all and the unit stays as it is."""
        weight = {priority: one * self.of.scale for priority, one in self.of.weight.items()}
        total = sum(weight[priority] * count for (_kind, priority), count in leaving.items())
        for (group, after), times in changes.items():
            for state, layout in zip(self.problem.groups[group].states, after):
                gone = {one: users for one, users in state.there.items() if one not in _instances(layout)}
                total += times * sum(sum(weight[user] for user in users) or one != GPU for one, users in gone.items())
        return total

    def _use(self, kind: UnitKind, count: int) -> None:
        if kind in self.of.row_of:
            self.units[kind] += count * self.of.replicas(kind)
            self.needed[self.of.row_of[kind]] -= count * self.of.replicas(kind)

    def _trimmed(
        self, group: int, layouts: Layouts, count: int
    ) -> tuple[tuple[Instances | None, ...], Counter[UnitKind], int]:
        """Return what some units of a group become with only what is needed, how many of which kinds are made on each, and for how many units that holds."""
        states = self.problem.groups[group].states
        left, made, after = Counter(self.needed), Counter[UnitKind](), []
        for state, layout in zip(states, layouts):
            part = []
            for instance in layout:
                kind = state.kind(instance[0])
                if instance not in state.there:
                    # On a node whose strategy is single, all is made or nothing.
                    if kind not in self.of.row_of or (left[self.of.row_of[kind]] <= 0 and len(states) == 1):
                        continue
                    left[self.of.row_of[kind]] -= self.of.replicas(kind)
                    made[kind] += 1
                part.append(instance)
            after.append(None if layout == (GPU,) else tuple(part))
        if not any(self.needed[self.of.row_of[kind]] > 0 for kind in made):
            # Whoever is served elsewhere does not stay, though nothing is made here.
            there = [(layout, state.there.items()) for state, layout in zip(states, layouts)]
            leave = any(users and place not in layout for layout, places in there for place, users in places)
            return (tuple(after) if leave else tuple(map(as_it_is, states))), made if leave else Counter(), count
        each: Counter[int] = Counter()
        for kind, units in made.items():
            each[self.of.row_of[kind]] += units * self.of.replicas(kind)
        times = min(self.needed[row] // units for row, units in each.items())
        return tuple(after), made, max(1, min(count, times))

    def _given(self) -> tuple[dict[tuple[Asking, UnitKind], int], dict[tuple[UnitKind, int], int]]:
        """Return which kind serves which requests, and which users leave an instance that stays."""
        given: Counter[tuple[Asking, UnitKind]] = Counter()
        leaving: dict[tuple[UnitKind, int], int] = {}
        free, budget = Counter(self.units), Counter(self.found.given)
        left = {who: self.problem.asked[who].count for who in self.of.demand_of}

        def give(who: Asking, kind: UnitKind, most: int) -> int:
            line = self.of.demand_of[who], self.of.row_of[kind]
            count = max(0, min(most, left[who], budget[line], free[kind]))
            if count:
                given[who, kind] += count
                left[who] -= count
                budget[line] -= count
                free[kind] -= count
            return count

        # Users who stay are served where they are.
        for (kind, priority), count in sorted(self.staying.items()):
            gone = count - give((kind, priority), kind, count)
            if gone:
                leaving[kind, priority] = gone
        for who in sorted(left, key=self.of.demand_of.__getitem__):
            for row in self.of.demands[self.of.demand_of[who]].rows:
                for kind in (kind for kind, at in self.of.row_of.items() if at == row):
                    give(who, kind, left[who])
        return dict(given), leaving

    def _prices(self, prices: RowPrices) -> KindPrices:
        unit, kept, served = (part.tolist() for part in (prices.unit, prices.kept, prices.served))
        row_of = self.of.row_of
        users = {
            (kind, rank): price
            for (row, rank), price in zip(self.of.kept, kept)
            for kind in row_of
            if row_of[kind] == row
        }
        return KindPrices(
            {kind: unit[row] for kind, row in row_of.items() if unit[row]},
            {user: price for user, price in users.items() if price},
            {priority: price for priority, price in zip(self.of.priorities, served) if price},
        )


def _instances(layout: Instances | None) -> Instances:
    return (GPU,) if layout is None else layout
