# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of plans that are as good, the fewest hosts and the most room, against every plan of small fleets; and what is stated where they are not compared."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend import ties
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.checker import least_hosts, verify
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.outcome import (
    KindPrices,
    as_it_is,
    placed,
    recommend,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import (
    FleetGpu,
    Group,
    HeldInstance,
    Problem,
    UnitKind,
    WantedUnits,
)

from .test_outcome import H100, LAYOUTS, PROFILES, h100

pytest.importorskip("highspy")

A30 = "a30-24gb"
NAMES = ("1g.6gb", "2g.12gb", "4g.24gb")
HOSTS = ("a", "a", "b", "c")


def drawn(seed):
    """Draw four GPUs of three hosts and a demand that they serve."""
    draw = random.Random(seed)
    groups = []
    for host in HOSTS:
        layout = draw.choice([*LAYOUTS[A30], None])
        held = [HeldInstance(*one, (0,) * (draw.random() < 0.4)) for one in layout or ()]
        users = (0,) * (layout is None and draw.random() < 0.3)
        state = FleetGpu("", A30, layout is not None, tuple(sorted(held, key=lambda one: one.start)), users)
        groups.append(Group((state,), 1, (host,)))
    counts = {draw.choice(NAMES): draw.randrange(1, 3) for _try in range(2)}
    wanted = tuple(WantedUnits((UnitKind("", A30, name),), count) for name, count in counts.items())
    return Problem({A30: PROFILES[A30]}, tuple(groups), wanted)


def room(state, layout, names):
    if layout is None:
        return 0 if state.users else room(state, (), names)
    found = 0
    for name in names:
        more = (set(one) - set(layout) for one in LAYOUTS[A30] if set(one) >= set(layout))
        found += max(len(new) for new in more if all(one[0] == name for one in new))
    return found


def best(problem):
    """Return costs, hosts and room of the best of all plans."""
    need, names = Counter(), {"4g.24gb"}
    for one in problem.asked.values():
        need[one.kinds[0].profile] += one.count
    names |= set(need) - {"gpu"} | {one.profile for group in problem.groups for one in group.states[0].held}
    options = []
    for group in problem.groups:
        (state,), found = group.states, {}
        for layout in [*LAYOUTS[A30], None]:
            then = [("gpu", 0, 0)] if layout is None else layout
            gone = [users for place, users in state.there.items() if place not in then]
            evicted = sum(map(len, gone))
            idle = sum(not users for users in gone) if state.mig else 0
            same = layout is None if not state.mig else layout is not None and set(layout) == set(state.there)
            supply = tuple(sum(one[0] == name for one in then) for name in need)
            key = supply, evicted, idle, same
            found[key] = max(room(state, layout, names), found.get(key, 0))
        options.append([(group.hosts[0], *key, most) for key, most in found.items()])
    answers = []
    for plan in product(*options):
        if all(sum(one[1][at] for one in plan) >= count for at, count in enumerate(need.values())):
            hosts = len({one[0] for one in plan if not one[4]})
            answers.append(
                (sum(one[2] for one in plan), sum(one[3] for one in plan), hosts, -sum(one[5] for one in plan))
            )
    return min(answers, default=None)


def chosen(problem, answer):
    """Return what each GPU becomes where GPUs that are alike are chosen: those of a host are numbered by group."""
    groups = (replace(group, indices=((number,),) * group.count) for number, group in enumerate(problem.groups))
    return placed(replace(problem, groups=tuple(groups)), answer)


def changed(problem, answer):
    """Return the hosts that change. Each group has one GPU of a host."""
    found = set()
    for host, after in chosen(problem, answer).items():
        for number, then in after.items():
            now = as_it_is(problem.groups[number].states[0])
            found |= set() if (then and sorted(then)) == (now and sorted(now)) else {host}
    return found


@pytest.mark.parametrize("seed", range(30))
def test_no_plan_that_is_as_good_changes_fewer_hosts_or_leaves_more_room(seed):
    problem = drawn(seed)
    optimum = best(problem)
    answer = recommend(problem)
    assert bool(answer.missing) == (optimum is None)
    verify(problem, answer)
    hosts = changed(problem, answer)
    assert len(hosts) <= len(answer.hosts)
    if optimum:
        assert (*divmod(answer.cost, answer.scale), len(hosts), -answer.room) == optimum
        assert (answer.least_hosts, answer.most_room) == (len(hosts), answer.room), "proven"
        assert least_hosts(problem, answer) <= len(hosts)


def spread(gpus=12, hosts=4):
    """A fleet of idle GPUs in states that are alike but for what is there, of which three have to change."""
    states = [h100(("1g.10gb", place % 7, 1)) for place in range(gpus)]
    groups = tuple(Group((state,), 1, (f"h{place % hosts}",)) for place, state in enumerate(states))
    wanted = WantedUnits((UnitKind("", H100, "3g.40gb"),), 5)
    return Problem({H100: PROFILES[H100]}, groups, (wanted,))


def test_requests_go_to_one_host_where_it_has_room_for_them():
    problem = spread()
    answer = recommend(problem)
    assert len(answer.hosts) == answer.least_hosts == 2 and answer.cost == 0
    assert changed(problem, answer) == answer.hosts


def test_where_plans_are_too_many_the_bounds_are_stated_and_hold(monkeypatch):
    best_of_all = recommend(spread())
    monkeypatch.setattr(ties, "_COLUMNS", 0)
    problem = spread()
    answer = recommend(problem)
    assert answer.hosts == frozenset() and answer.cost == best_of_all.cost
    assert (
        max(answer.least_hosts, least_hosts(problem, answer)) <= len(best_of_all.hosts) <= len(changed(problem, answer))
    )
    assert answer.room <= best_of_all.room <= answer.most_room


def test_prices_show_which_hosts_have_to_change():
    """At a price at which a host that stays loses more than the plan could be cheaper by, it changes."""
    kind = UnitKind("", H100, "3g.40gb")
    groups = (Group((h100(("7g.80gb", 0, 8)),), 3, ("a", "a", "b")),)
    problem = Problem({H100: PROFILES[H100]}, groups, (WantedUnits((kind,), 6),))
    answer = recommend(problem)
    assert answer.cost == 3 and answer.hosts == {"a", "b"}
    for price, least in ((0, 0), (answer.parts // 2, 0), (4 * answer.parts, 2)):
        assert least_hosts(problem, replace(answer, prices=KindPrices({kind: price}, {}, {0: price}))) == least
