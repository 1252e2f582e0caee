# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check an answer of the fleet planner: with integers alone, and with nothing that found it.

Whether a plan does what it says is counted. That none is better is shown by its prices. At any prices of 0 or more, a unit of the fleet cannot contribute
more than its best layout is worth at them; so, with all demand priced in the same way, the costs of a plan are at least what C(_bound) sums up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from .outcome import FleetOutcome, KindPrices
from .problem import EMPTY, GPU, SPARE, WHOLE, FleetGpu, Place, Problem

#: The most that there is of something, and how much of it an instance of each profile takes.
_Limit = tuple[int, Mapping[str, int]]


class NotProven(Exception):
    """The answer is not what it says that it is."""


def verify(problem: Problem, answer: FleetOutcome) -> tuple[Fraction, dict[int, Fraction]]:
    """Return by how much a better plan could be cheaper, in idle instances, and by how many requests more could be served of each priority.

    :raises NotProven: the plan is impossible, or does something else than it says.
    """
    weight, asked, boards = problem.weight(), problem.asked, _boards(problem)
    units, stay, done, served, total = (Counter[Any]() for _table in range(5))
    cost = 0
    for change in answer.changes:
        group, what = problem.groups[change.group], f"group {change.group}"
        layouts = [(GPU,) if after is None else after for after in change.after]
        done[change.group] += change.count
        _claim(change.count > 0 and len(layouts) == len(group.states), f"{what} changes {change.count} times")
        now = [state.there for state in group.states]
        if any(len(one) != len(two) or set(one) != set(two) for one, two in zip(layouts, now)):
            names = {name for layout in layouts for name, _start, _size in layout}
            _claim(len(layouts) == 1 or len(names) == 1, f"{what} is a node with {sorted(names)}")
            _claim(not any(state.fixed for state in group.states), f"{what} is fixed")
            for state, layout in zip(group.states, layouts):
                _claim(boards[state.board].legal(state, layout), f"{what} cannot become {layout}")
        for state, layout, there in zip(group.states, layouts, now):
            for name, _start, _size in layout:
                kind = state.pool, state.board, name
                units[kind] += change.count * problem.replicas.get(kind, 1)  # type: ignore[call-overload]
            for place, users in there.items():
                if place not in layout:
                    cost += change.count * (sum(weight[one] for one in users) * answer.scale or place != GPU)
                for priority in users if place in layout else ():
                    stay[(state.pool, state.board, place[0]), priority] += change.count
    everybody = all(done[number] == group.count for number, group in enumerate(problem.groups))
    _claim(everybody, "units are missing or planned twice")
    for user, count in answer.leaving.items():
        _claim(0 <= count <= stay[user], f"{count} users of {user[0]} leave, and {stay[user]} stay")
        stay[user] -= count
        cost += weight[user[1]] * answer.scale * count
    for (who, kind), count in answer.given.items():
        _claim(count >= 0 and kind in asked[who].kinds, f"{kind} does not serve {who}")
        served[asked[who].priority] += count
        total[who] += count
        units[kind] -= count
    _claim(min(units.values(), default=0) >= 0, "more units are given than there are")
    _claim(all(count <= asked[who].count for who, count in total.items()), "more is given than is asked for")
    at_home = all(answer.given.get((who, who[0]), 0) >= count for who, count in stay.items())
    _claim(at_home, "users stay who are served by nothing")
    _claim(all(served[one] == answer.served.get(one) for one in problem.priorities()), "it serves other requests")
    _claim(cost == answer.cost, f"it costs {cost}, and says {answer.cost}")
    gap = cost - proven_cost(problem, answer, boards)
    more = {}
    for priority, prices in answer.served_prices.items():
        # Of this priority nothing is required: what its requests are worth at most is what can be served of it.
        price = prices.served.get(priority, 0)
        _claim(price > 0, f"priority {priority} has no price")
        least = _bound(problem, answer, boards, prices, 0) - price * answer.served[priority]
        more[priority] = Fraction(-least, price) - answer.served[priority]
    for priority, count in answer.asked.items():
        wanted = sum(one.count for one in asked.values() if one.priority == priority)
        _claim(count == wanted, f"{wanted} requests of priority {priority} exist")
        _claim(count == served[priority] or priority in more, f"priority {priority}: nothing says why it is not served")
    return gap, more


def proven_cost(problem: Problem, answer: FleetOutcome, boards: Mapping[str, _Board] | None = None) -> Fraction:
    """Return what no plan costs less than that serves as much, as the prices show. C(boards): of the problem, where they are made already."""
    return Fraction(_bound(problem, answer, boards or _boards(problem), answer.prices, answer.parts), answer.parts)


def _boards(problem: Problem) -> dict[str, _Board]:
    return {name: _Board(problem, name) for name in problem.boards}


def least_hosts(problem: Problem, answer: FleetOutcome) -> int:
    """Return how many hosts every plan changes that serves as much and costs as little, as the prices show.

    A unit that stays as it is although its best layout is worth more costs that. Of what the plan costs beyond the bound, this is paid on the hosts where it
    is least; all others change.
    """
    bound, lost, _empty = _by_host(problem, answer)
    left, least = answer.cost * answer.parts - bound, len(+lost)
    for one in sorted((+lost).values()):
        left -= one
        least -= left >= 0
    return least


def least_emptied(
    problem: Problem, answer: FleetOutcome, hosts: Collection[str], count: int
) -> tuple[Fraction, dict[str, int]]:
    """Return what no plan costs less than that serves as much and leaves so many of these hosts empty, and what each costs more if it is.

    An empty host has nothing that its best layouts are worth. Whichever are chosen, they lose at least as much as those do that lose the least.
    """
    bound, _lost, empty = _by_host(problem, answer)
    costs = {host: empty[host] for host in hosts}
    return Fraction(bound + sum(sorted(costs.values())[:count]), answer.parts), costs


def _by_host(problem: Problem, answer: FleetOutcome) -> tuple[int, Counter[str], Counter[str]]:
    """Return the bound, and by host what its units cost more at these prices if they stay as they are, and if they are empty."""
    each: list[tuple[int, int]] = []
    bound = _bound(problem, answer, _boards(problem), answer.prices, answer.parts, each)
    stays, empty = Counter[str](), Counter[str]()
    for group, (staying, emptied) in zip(problem.groups, each):
        for host in group.hosts:
            stays[host] += staying
            empty[host] += emptied
    return bound, stays, empty


def _claim(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotProven(otherwise)


class _Board:
    """Where instances of a board may be: no two on one place, no more of a profile than there may be, no more engines than the whole GPU has."""

    def __init__(self, problem: Problem, name: str) -> None:
        profiles = problem.boards[name]
        self.places = {
            (one.name, start, one.placements.size)
            for one in profiles
            if one.placements
            for start in one.placements.starts
        }
        states = (state for group in problem.groups for state in group.states if state.board == name)
        self.held = {one.place for state in states for one in state.held}
        self.limits: list[_Limit] = [(one.max_instances, {one.name: 1}) for one in profiles]
        for engine in ("decoders", "encoders", "jpeg", "ofa") if profiles else ():
            most = getattr(max(profiles, key=lambda one: one.gpu_slices), engine)
            if most is not None:
                self.limits.append((most, {one.name: getattr(one, engine) or 0 for one in profiles}))
        self.known: set[Any] = set()

    def legal(self, state: FleetGpu, layout: Sequence[Place]) -> bool:
        """Return whether a GPU can have these instances: each where its profile may be, or where it is."""
        if layout not in self.known and tuple(layout) not in ((GPU,), (EMPTY,)):
            taken = [unit for _name, start, size in layout for unit in range(start, start + size)]
            fits = len(taken) == len(set(taken)) and set(layout) <= self.places | set(state.there)
            if not fits or any(sum(need.get(one[0], 0) for one in layout) > most for most, need in self.limits):
                return False
            if set(layout) <= self.places:
                self.known.add(layout)
        return True

    def worth(self, prices: Mapping[Any, int], pool: str, name: str) -> tuple[dict[Place, int], list[_Limit]]:
        """Return what instances that matter are worth, sorted by where they end, and the limits that they could exceed."""
        worth = {one: prices.get((pool, name, one[0]), 0) for one in sorted(self.places | self.held, key=_end)}
        worth = {one: value for one, value in worth.items() if value or one in self.held}
        scarce = [limit for limit in self.limits if _most({one: limit[1].get(one[0], 0) for one in worth}) > limit[0]]
        return worth, scarce


def _end(place: Place) -> int:
    return place[1] + place[2]


def _most(worth: Mapping[Place, int], limits: Sequence[_Limit] = ()) -> int:
    """Return the most that a legal set of these instances is worth: by where it ends, and by how much of what is scarce it takes. They are sorted by end."""
    if not limits:
        plain = [0]
        for (_name, start, size), value in worth.items():
            while len(plain) <= start + size:
                plain.append(plain[-1])
            plain[-1] = max(plain[-1], plain[start] + value)
        return plain[-1]
    best: list[dict[tuple[int, ...], int]] = [{(0,) * len(limits): 0}]
    for (name, start, size), value in worth.items():
        while len(best) <= start + size:
            best.append(dict(best[-1]))
        for used, others in best[start].items():
            now = tuple(one + need.get(name, 0) for one, (_limit, need) in zip(used, limits))
            if all(one <= limit for one, (limit, _need) in zip(now, limits)):
                best[-1][now] = max(best[-1].get(now, 0), others + value)
    return max(best[-1].values())


def _bound(
    problem: Problem,
    answer: FleetOutcome,
    boards: Mapping[str, _Board],
    prices: KindPrices,
    parts: int,
    each: list[tuple[int, int]] | None = None,
) -> int:
    """Return what no plan that serves as much is below at these prices.

    :param parts: of an idle instance in a price; 0: what is destroyed costs nothing.
    :param each: gets, by group, what a unit costs more if it stays as it is, and if it is empty.
    """
    weight = {priority: one * answer.scale * parts for priority, one in problem.weight().items()}
    tables = (prices.unit, prices.kept, prices.served)
    _claim(all(one >= 0 for table in tables for one in table.values()), "a price is below 0")
    kept: Mapping[Any, int] = prices.kept
    _claim(all(one <= weight[user[1]] for user, one in kept.items()), "a user is worth more than its eviction")
    total = sum(prices.served.get(priority, 0) * answer.served[priority] for priority in problem.priorities())
    for who, one in problem.asked.items():
        stays = (kept.get(who, 0) if who == (kind, one.priority) else 0 for kind in one.kinds)
        least = min(prices.unit.get(kind, 0) - stay for kind, stay in zip(one.kinds, stays))
        total -= one.count * max(0, prices.served.get(one.priority, 0) - least)
    unit: dict[Any, int] = {kind: price * problem.replicas.get(kind, 1) for kind, price in prices.unit.items()}
    tables_of: dict[tuple[str, str], tuple[dict[Place, int], list[_Limit]]] = {}
    for group in problem.groups:
        # Of a node whose strategy is single, all GPUs become the same.
        names = {""} if len(group.states) == 1 else {one[0] for two in group.states for one in boards[two.board].places}
        lost, becomes = 0, Counter({"as it is": 0})
        for state in group.states:
            pool, board = key = state.pool, state.board
            if key not in tables_of:
                tables_of[key] = boards[board].worth(unit, pool, board)
            worth, scarce = tables_of[key]
            stays_worth = {}
            for place, users in state.there.items():
                kind = pool, board, place[0]
                gone = sum([weight[one] for one in users]) or (parts if place != GPU and not users else 0)
                lost += gone
                stays_worth[place] = gone + unit.get(kind, 0) - sum([kept.get((kind, one), 0) for one in users])
            becomes["as it is"] += sum(stays_worth.values())
            if any(one.fixed for one in group.states):
                continue
            if all(not one.held and not one.users for one in group.states):
                # It would not change.
                becomes["as it is"] = max(becomes["as it is"], becomes[SPARE] + unit.get((pool, board, SPARE), 0))
            becomes[SPARE] += unit.get((pool, board, SPARE), 0)
            becomes[WHOLE] += stays_worth.pop(GPU, unit.get((pool, board, WHOLE), 0))
            for name in names:
                may = {**worth, **stays_worth}
                if name:
                    may = {one: value for one, value in may.items() if one[0] == name}
                becomes[name] += _most(may, scarce)
        total += (lost - max(becomes.values())) * group.count
        if each is not None:
            best = max(becomes.values())
            each.append((best - becomes["as it is"], best - becomes[SPARE]))
    return total
