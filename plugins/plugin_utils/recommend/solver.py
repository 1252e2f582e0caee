# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find what each group of units becomes: the most demand served, priority by priority, then the least evictions, then the fewest idle instances destroyed.

First an integer program over kinds of units says how much can be served. Then prices of the rows are sought: at any prices the cheapest option of each
group by itself bounds every plan from below, so the best prices prove how good a plan is. Options near the cheapest go into a linear program, which leaves
few groups undecided; integers are sought for these and their neighbours, ever more of them until the plan is less than one eviction above the bound. Where
few options could be part of a better plan, or time is given, an integer program over all of these has the last word.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .highs import INFINITY, Program
from .matrices import Block, Layouts, Matrices

#: Prices are integers in these parts of an idle instance, so that they are checked without rounding.
PARTS = 1024
#: Into how many parts of the fleet the cuts that bound it are divided, and how many rounds they have to meet.
_CUTS, _ROUNDS = 8, 120
#: How near to the bound the linear program has to be, in evictions; how near to the cheapest an option has to be to go into it.
_NEAR, _TOLERANCE = 0.05, 0.1
#: The most columns of a program that has the last word, and the most nodes of any search: no clock decides unless the user gives a time, so the same
#: input has the same plan.
_COLUMNS, _NODES = 6000, 3000
#: The most columns of a program with all groups whose search looks for the best plan at once.
_FEW = 1000

#: A block, the place of a group in it, and an option.
_Choice = tuple[int, int, int]


class RowPrices(NamedTuple):
    """Integers in C(PARTS): of a unit of each row, of a user who is counted as kept, of a request served of each priority."""

    unit: Any
    kept: Any
    served: Any


@dataclass
class Solution:
    """What was found.

    :ivar served: by priority. C(served_prices): prices that bound it, for a priority that is not served as a whole.
        C(layouts): what serves it: block, what the option offers, how many units.
    :ivar chosen: units by (block, place of the group in it, option). C(given): requests served by (demand, row).
    :ivar cost: evictions by weight times the scale, and idle instances destroyed. C(bound): in C(PARTS), what the prices prove that
        no plan is below. C(least): the same in idle instances, where whole numbers of layouts show more than prices.
    :ivar searched: no plan is better, shown by a search of all options that could be part of one.
    :ivar tied: as C(chosen), with what is created and no more, where plans that are as good were compared; it changes C(hosts). No such plan changes
        fewer than C(least_hosts), and none that changes as few leaves more than C(most_room).
    """

    served: dict[int, int]
    served_prices: dict[int, RowPrices]
    layouts: list[tuple[int, Any, int]]
    chosen: dict[_Choice, int] = field(default_factory=dict)
    given: dict[tuple[int, int], int] = field(default_factory=dict)
    cost: int | None = None
    bound: int = 0
    least: float = 0.0
    prices: RowPrices = field(default_factory=lambda: RowPrices((), (), ()))
    searched: bool = False
    tied: dict[tuple[int, int, Layouts], int] = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()
    least_hosts: int = 0
    most_room: int = 0


def search_of(of: Matrices, seconds: float = INFINITY) -> Search:
    """Return the search that found the best plan. C(seconds): after how many it ends with what it has."""
    end = time.monotonic() + seconds
    of.build()
    found = _serve(of)
    kept = {
        (one.home, one.priority)
        for one in of.demands
        if one.home is not None and (len(one.rows) > 1 or one.priority in found.served_prices)
    }
    if kept:
        of.build(sorted(kept))
    search = Search(of, found, end)
    search.run()
    return search


def most_served(of: Matrices) -> dict[int, int]:
    """Return how many requests of each priority can be served."""
    of.build()
    return _serve(of).served


def most_emptied(
    of: Matrices, served: Mapping[int, int], hosts: Mapping[frozenset[tuple[int, int]], int]
) -> tuple[dict[frozenset[tuple[int, int]], int], int]:
    """Return how many hosts of which units can be empty while as much is served, and how many hosts at the most.

    :param hosts: how many there are that have so many units of which block.
    """
    service = _Service(of, served, ())
    empty = {}
    for units, count in hosts.items():
        entries = [(service.lines[block], each) for block, each in units]
        empty[units] = service.column(-1, 0, count, entries, True)
    if not service.solve():
        return {}, sum(hosts.values())
    values = service.values()
    return {units: round(values[at]) for units, at in empty.items()}, int(1e-6 - service.bound)


def _serve(of: Matrices) -> Solution:
    """Find how much demand can be served, priority by priority, whatever it costs."""
    asked = of.problem.requests()
    service = _Service(of, {}, of.priorities)
    if service.most() >= sum(asked.values()):
        return Solution(asked, {}, service.layouts())
    done: dict[int, int] = {}
    prices: dict[int, RowPrices] = {}
    for priority in of.priorities:
        service = _Service(of, done, [priority])
        most = service.most()
        if most < asked[priority]:
            relaxed = _Service(of, done, [priority], False)
            relaxed.most()
            unit, kept, served = relaxed.prices(of)
            served[of.place_of[priority]] = PARTS
            prices[priority] = RowPrices(unit, kept, served)
        done[priority] = most
    return Solution(done, prices, service.layouts())


class RowProgram(Program):
    """A program with rows of units, of users who are counted as kept and of requests served, in this order, and who is served by what.

    :param served: how many requests have to be served of each priority. C(worth): what each that is served costs.
    :param priced: who stays has a price instead of its row. C(budget): the most that may be lost; the last row adds it up, and it is not minimised.
    :ivar given: the column of requests that are served by demand and row. C(lines): the row of units of each block, of L(layouts_of).
    """

    def __init__(
        self,
        of: Matrices,
        served: Mapping[int, float],
        integer: bool,
        worth: Mapping[int, float] | None = None,
        priced: Any = None,
        budget: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**{"mip_max_nodes": _NODES, **options})
        unit = [self.row(0) for _row in range(of.rows)]
        kept = [self.row(0) for _key in of.kept]
        done = {priority: self.row(served.get(priority, -INFINITY)) for priority in of.priorities}
        self.given: dict[tuple[int, int], int] = {}
        self.lines: dict[int, int] = {}
        for number, one in enumerate(of.demands):
            line = self.row(upper=one.count)
            for row in one.rows:
                entries, cost = (
                    [(unit[row], -1.0), (done[one.priority], 1.0), (line, 1.0)],
                    (worth or {}).get(one.priority, 0.0),
                )
                if row == one.home and one.stay is not None:
                    entries.append((kept[one.stay], 1.0))
                    cost -= 0.0 if priced is None else float(priced[one.stay])
                self.given[number, row] = self.column(cost, 0, one.count, entries, integer)
        lost = [] if budget is None else [self.row(upper=budget)]
        for row, most in zip(kept, of.ceiling):
            entries = [(row, 1.0), *((one, float(most)) for one in lost)]
            self.column(0.0 if lost else float(most), 0, INFINITY, entries, integer)

    def layouts_of(
        self, of: Matrices, counts: Mapping[int, int], worth: Any = None, integer: bool = True
    ) -> list[tuple[int, Any, int]]:
        """Add what so many units of each block can become, and return block, offer and column.

        :param worth: what a unit of each row costs. An option that offers less than another is cheaper then, and counts, too.
        """
        found = []
        for number, count in counts.items():
            self.lines[number], block = self.row(count, count), of.blocks[number]
            for supply in block.offers if worth is None else of.np.unique(block.supply, axis=0):
                entries = [(self.lines[number], 1.0), *enumerate(supply.tolist())]
                cost = 0.0 if worth is None else float(supply @ worth)
                found.append((number, supply, self.column(cost, entries=entries, integer=integer)))
        return found


class _Service(RowProgram):
    """The program that serves the most requests of some priorities, with what was found for those above them."""

    def __init__(self, of: Matrices, done: Mapping[int, int], priorities: Sequence[int], integer: bool = True) -> None:
        worth = dict.fromkeys(priorities, -1.0)
        super().__init__(of, done, integer, worth, mip_abs_gap=0.99)
        self.options = self.layouts_of(of, of.counts, integer=integer)

    def most(self) -> int:
        self.solve()
        return round(-self.value)

    def layouts(self) -> list[tuple[int, Any, int]]:
        values = self.values()
        return [(block, supply, round(values[at])) for block, supply, at in self.options if values[at] > 0.5]

    def prices(self, of: Matrices) -> RowPrices:
        return RowPrices(
            *of.split(of.np.rint(of.np.maximum(self.duals()[: of.ends[-1]], 0) * PARTS).astype(of.np.int64))
        )


class Search:
    """The search for the cheapest plan that serves what can be served."""

    def __init__(self, of: Matrices, found: Solution, end: float) -> None:
        self.of, self.np, self.found, self.end = of, of.np, found, end
        np = of.np
        self.served = np.array([found.served[priority] for priority in of.priorities], dtype=np.int64)
        #: Rows of a program: of units, of users who are counted as kept, of requests served.
        self.rows = of.ends[-1]
        found.prices = self.whole(np.zeros(self.rows))
        found.bound = self.value(found.prices)

    def run(self) -> None:
        self.cuts()
        # What is near costs a part of an eviction; only where that is not near enough, whole evictions are tried.
        for tolerance in (_TOLERANCE, 8 * _TOLERANCE):
            if self.gap() < self.of.scale or self.left() <= 0:
                break
            linear = self.linear(tolerance)
            if self.found.served_prices:
                self.whole_layouts()
            undecided, everything = 64, sum(len(block.groups) for block in self.of.blocks)
            while self.gap() >= self.of.scale and self.left() > 0:
                self.integers(linear, undecided, tolerance)
                if undecided >= everything:
                    break
                undecided *= 8
        if self.found.cost is None:
            self.program([], self.first_plan())
        self.last_word()
        self.found.least = self.found.cost if self.found.searched and self.found.cost is not None else self.least()

    def first_plan(self) -> dict[_Choice, int]:
        """Return the plan by which it was found how much can be served: each of its layouts goes where it costs the least of what is left."""
        np = self.np
        plan: Counter[_Choice] = Counter()
        left = [block.counts.copy() for block in self.of.blocks]
        for number, supply, count in self.found.layouts:
            block = self.of.blocks[number]
            same = np.flatnonzero((block.supply == supply).all(axis=1))
            best = same[block.cost[:, same].argmin(axis=1)]
            lose = block.cost[np.arange(len(best)), best] - block.cost.min(axis=1)
            for place in np.argsort(lose, kind="stable").tolist():
                units = min(count, int(left[number][place]))
                if units:
                    plan[number, place, int(best[place])] += units
                    left[number][place] -= units
                    count -= units
        return dict(plan)

    def gap_of_prices(self) -> float:
        """Return what an option of a plan that is as good can cost more than the cheapest of its group, at the most."""
        return INFINITY if self.found.cost is None else self.found.cost - self.found.bound / PARTS

    def gap(self) -> float:
        """Return what a better plan could cost less."""
        return INFINITY if self.found.cost is None else self.found.cost - self.least()

    def least(self) -> float:
        return max(self.found.bound / PARTS, self.found.least)

    def left(self) -> float:
        return self.end - time.monotonic()

    # The bound.

    def whole(self, prices: Any) -> RowPrices:
        """Return prices of the rows in C(PARTS)."""
        np = self.np
        unit, kept, served = self.of.split(np.rint(np.maximum(prices, 0) * PARTS).astype(np.int64))
        return RowPrices(unit, np.minimum(kept, self.of.ceiling * PARTS), served)

    def reduced(self, block: Block, prices: RowPrices, parts: int = PARTS) -> Any:
        """Return what each option costs each group beyond what its units are worth."""
        return block.cost * parts - block.supply @ prices.unit + block.keep @ prices.kept

    def demand(self, prices: RowPrices) -> Any:
        """Return what all requests served are worth at the least beyond the units that serve them."""
        total = prices.served @ self.served
        for one in self.of.demands:
            kept = 0 if one.stay is None else prices.kept[one.stay]
            least = min(prices.unit[row] - (kept if row == one.home else 0) for row in one.rows)
            total -= one.count * max(0, prices.served[self.of.place_of[one.priority]] - least)
        return total

    def value(self, prices: RowPrices) -> int:
        """Return the bound at these prices, in C(PARTS), without rounding."""
        groups = (int(block.counts @ self.reduced(block, prices).min(axis=1)) for block in self.of.blocks)
        return int(self.demand(prices)) + sum(groups)

    def offer(self, prices: RowPrices) -> None:
        """Take these prices if they prove more."""
        value = self.value(prices)
        if value > self.found.bound:
            self.found.bound, self.found.prices = value, prices

    def cuts(self) -> None:
        """Find prices: each round bounds the worth of each part of the fleet by a plane, half-way between the best prices and those of the planes."""
        np, of = self.np, self.of
        dearest = float(max((int(block.cost.max()) for block in of.blocks), default=0) or of.scale)
        program = Program()
        unit = [program.column(0, 0, dearest) for _row in range(of.rows)]
        kept = [program.column(0, 0, float(most)) for most in of.ceiling]
        served = [program.column(-float(count), 0, 2 * dearest) for count in self.served]
        for one in of.demands:
            worth = program.column(float(one.count), 0)
            for row in one.rows:
                entries = [(worth, 1.0), (unit[row], 1.0), (served[self.of.place_of[one.priority]], -1.0)]
                if row == one.home and one.stay is not None:
                    entries.append((kept[one.stay], -1.0))
                program.row(0, entries=entries)
        parts = [program.column(-1, -INFINITY) for _part in range(_CUTS)]
        at = centre = np.zeros(self.rows)
        most = -INFINITY
        for _round in range(_ROUNDS):
            prices = RowPrices(*of.split(at))
            constant, offered = np.zeros(_CUTS), np.zeros((_CUTS, of.ends[1]))
            for block in of.blocks:
                chosen = self.reduced(block, prices, 1).argmin(axis=1)
                lines = np.arange(len(chosen))
                gives = np.hstack([block.supply[chosen], -block.keep[lines, chosen]]) * block.counts[:, None]
                costs = block.cost[lines, chosen] * block.counts
                constant += [costs[part::_CUTS].sum() for part in range(_CUTS)]
                offered += [gives[part::_CUTS].sum(axis=0) for part in range(_CUTS)]
            here = float(constant.sum() - offered.sum(axis=0) @ at[: of.ends[1]] + self.demand(prices))
            if here > most:
                most, centre = here, at
            for part, column in enumerate(parts):
                entries = [(column, 1.0), *((row, value) for row, value in enumerate(offered[part].tolist()) if value)]
                program.row(upper=float(constant[part]), entries=entries)
            if not program.solve() or -program.value - most < _NEAR * of.scale / 2:
                break
            at = (centre + program.values()[: self.rows]) / 2
        self.offer(self.whole(centre))

    def whole_layouts(self) -> None:
        """Bound the plans by whole numbers of layouts, at the prices that were found. Where not all demand is served, parts of layouts would serve a little
        more, so what is served would cost less of them than it can.
        """
        of, prices = self.of, self.found.prices
        gap = of.scale * 0.25
        program = RowProgram(of, self.found.served, True, priced=prices.kept / PARTS, mip_abs_gap=gap)
        program.layouts_of(of, of.counts, prices.unit / PARTS)
        groups = (float(block.counts @ self.reduced(block, prices).min(axis=1)) for block in of.blocks)
        constant = sum(groups) / PARTS
        if program.solve():
            self.found.least = max(self.found.least, constant + program.bound)

    # The plan.

    def entries(self, block: Block, place: int, option: int) -> list[tuple[int, float]]:
        gives = [*block.supply[option].tolist(), *(-block.keep[place, option]).tolist()]
        return [(row, float(value)) for row, value in enumerate(gives) if value]

    def column(self, program: Program, lines: dict[tuple[int, int], int], choice: _Choice, integer: bool) -> int:
        """Add an option to a program, and the row of its group where it is the first of it. C(lines): these rows."""
        number, place, option = choice
        block = self.of.blocks[number]
        count = float(block.counts[place])
        if (number, place) not in lines:
            lines[number, place] = program.row(count, count)
        entries = [(lines[number, place], 1.0), *self.entries(block, place, option)]
        cost = float(block.cost[place, option])
        # An upper bound of its own would have a price in a linear program.
        return program.column(cost, 0, count if integer else INFINITY, entries, integer)

    def near(self, limit: float, prices: RowPrices) -> Iterator[_Choice]:
        """Return the options that cost at most so much more than the cheapest of their group."""
        for number, block in enumerate(self.of.blocks):
            reduced = self.reduced(block, prices)
            places, options = self.np.nonzero(reduced <= reduced.min(axis=1)[:, None] + limit * PARTS)
            yield from zip([number] * len(places), places.tolist(), options.tolist())

    def linear(self, tolerance: float) -> dict[tuple[int, int], dict[int, float]]:
        """Solve the linear program over the options near the cheapest, with ever more options until it meets the bound. Return how much of each group
        becomes which option.
        """
        of, prices = self.of, self.found.prices
        program = RowProgram(of, self.found.served, False)
        dear = 4.0 * max(int(block.cost.max()) for block in of.blocks) + of.scale
        for row in range(of.ends[1], self.rows):
            program.column(dear, entries=[(row, 1.0)])
        lines: dict[tuple[int, int], int] = {}
        columns: dict[_Choice, int] = {}
        for _round in range(40):
            for one in self.near(tolerance * of.scale, prices):
                if one not in columns:
                    columns[one] = self.column(program, lines, one, False)
            if not program.solve():
                break
            prices = self.whole(program.duals()[: self.rows])
            self.offer(prices)
            if program.value - self.found.bound / PARTS < _NEAR * of.scale:
                break
        values = program.values()
        found: dict[tuple[int, int], dict[int, float]] = {}
        for (number, place, option), column in columns.items():
            if values[column] > 1e-7:
                found.setdefault((number, place), {})[option] = float(values[column])
        return found

    def integers(self, linear: dict[tuple[int, int], dict[int, float]], undecided: int, tolerance: float) -> None:
        """Find a plan: integers for the groups that the linear program splits and for as many others, those that lose the least by another option."""
        prices = self.found.prices
        free = {key for key, options in linear.items() if any(abs(one - round(one)) > 1e-6 for one in options.values())}
        next_best = []
        for number, block in enumerate(self.of.blocks):
            reduced = self.np.partition(self.reduced(block, prices), min(1, block.cost.shape[1] - 1), axis=1)
            lose = reduced[:, 1] - reduced[:, 0] if block.cost.shape[1] > 1 else ()
            next_best += [(int(one), place, number) for place, one in enumerate(lose)]
        free |= {(number, place) for _lose, place, number in sorted(next_best)[:undecided]}
        wide = {one for one in self.near(tolerance * self.of.scale, prices) if one[:2] in free}
        wide |= {(*key, option) for key in free for option in linear.get(key, ())}
        # What is near the cheapest need not serve as much: with these it does once every group is free.
        wide |= {one for one in self.first_plan() if one[:2] in free}
        fixed = {
            (*key, option): round(value)
            for key, options in linear.items()
            if key not in free
            for option, value in options.items()
        }
        if len(free) < sum(len(block.groups) for block in self.of.blocks) or len(wide) > _FEW:
            target = self.least() + self.of.scale * 0.5
            self.program(sorted(wide), fixed, mip_abs_gap=self.of.scale * 0.25, objective_target=target)
        elif self.program(sorted(wide), fixed, mip_abs_gap=0.99):
            # All that could be part of a better plan was there.
            self.found.searched = self.gap_of_prices() <= tolerance * self.of.scale

    def program(self, options: Iterable[_Choice], fixed: Mapping[_Choice, int], **limits: Any) -> bool:
        """Solve the integer program over these options, beside what is fixed, keep the plan if it is better, and return whether the search came to its end."""
        if options:
            limits["time_limit"] = max(0.0, self.left())
        program = RowProgram(self.of, self.found.served, True, **limits)
        sums: Counter[int] = Counter()
        cost = 0.0
        for (number, place, option), count in fixed.items():
            cost += float(self.of.blocks[number].cost[place, option]) * count
            for row, value in self.entries(self.of.blocks[number], place, option):
                sums[row] += value * count  # type: ignore[assignment]
        program.column(cost, 1, 1, sorted(sums.items()))
        lines: dict[tuple[int, int], int] = {}
        columns = {one: self.column(program, lines, one, True) for one in options}
        if not program.solve():
            return False
        total = round(program.value)
        if self.found.cost is None or total < self.found.cost:
            values = program.values().round().astype(int).tolist()
            self.found.cost = total
            self.found.chosen = {key: count for key, count in fixed.items() if count}
            self.found.chosen.update({key: values[column] for key, column in columns.items() if values[column]})
            self.found.given = {key: values[column] for key, column in program.given.items() if values[column]}
        return program.finished

    def last_word(self) -> None:
        """Search all options that could be part of a better plan, where they are few or time is given: no other that costs more than the gap beyond the
        cheapest can.
        """
        self.found.searched |= self.gap() < 1
        if not self.found.searched and self.found.cost is not None:
            options = list(self.near(self.gap_of_prices(), self.found.prices))
            if len(options) <= _COLUMNS or 0 < self.left() < INFINITY:
                self.found.searched = self.program(options, {}, mip_abs_gap=0.99)
