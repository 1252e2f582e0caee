# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet planner against an independent dynamic program on random pools of four GPUs, and the checker against forged answers."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend import highs, solver
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.checker import NotProven, verify
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.outcome import recommend, refuse_missing
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import (
    WHOLE,
    FleetGpu,
    Group,
    HeldInstance,
    Problem,
    UnitKind,
    WantedUnits,
    check,
)

pytest.importorskip("highspy")

BOARDS = ("h100-80gb-sxm", "a100-80gb", "a30-24gb", "h200-141gb")
#: Without media extensions, which the pools do not ask for.
PROFILES = {name: tuple(one for one in board(name).profiles if "+" not in one.name) for name in BOARDS}
SCALE = 1000


def layouts(name):
    """Return every set of instances that fits on a board, as (profile, start, size)."""
    found = {()}
    for profile in PROFILES[name]:
        for start in profile.placements.starts:
            size = profile.placements.size
            for layout in list(found):
                free = all(start + size <= other or other + width <= start for _name, other, width in layout)
                if free and sum(one[0] == profile.name for one in layout) < profile.max_instances:
                    found.add((*layout, (profile.name, start, size)))
    return sorted(found)


LAYOUTS = {name: layouts(name) for name in BOARDS}


def pool(seed):
    """Draw a pool: up to three boards, instances of several priorities, and a demand that may be too much."""
    draw = random.Random(seed)
    boards = draw.sample(BOARDS, draw.choice((1, 1, 2, 3)))
    # What has one name on several boards serves the same. Few profiles are used, so that the dynamic program has few states.
    names = draw.sample(sorted({one.name for name in boards for one in PROFILES[name]}), 3)
    groups = []
    for number in range(4):
        name = boards[number % len(boards)]
        if draw.random() < 0.2:
            users = (draw.randrange(2),) if draw.random() < 0.5 else ()
            groups.append(Group((FleetGpu("", name, False, (), users),)))
            continue
        held = tuple(
            HeldInstance(profile, start, size, (draw.randrange(2),) if profile in names and draw.random() < 0.8 else ())
            for profile, start, size in sorted(draw.choice(LAYOUTS[name]), key=lambda one: one[1])
        )
        groups.append(Group((FleetGpu("", name, True, held),)))
    wanted = [
        WantedUnits(kinds_of(boards, draw.choice([*names, WHOLE])), draw.randrange(1, 7), draw.randrange(2))
        for _ in range(draw.randrange(1, 4))
    ]
    moves = {kind: kinds_of(boards, kind.profile) for name in names + [WHOLE] for kind in kinds_of(boards, name)}
    return Problem({name: PROFILES[name] for name in boards}, tuple(groups), tuple(wanted), moves)


def kinds_of(boards, profile):
    return tuple(
        UnitKind("", name, profile)
        for name in boards
        if profile == WHOLE or any(one.name == profile for one in PROFILES[name])
    )


def optimum(problem):
    """Return served by priority, the highest first, and the weighted evictions and destroyed idle instances, by a dynamic program over the GPUs."""
    weight = {priority: rank + 1 for rank, priority in enumerate(sorted(problem.priorities()))}
    asked, runs = Counter(), Counter()
    for one in problem.wanted:
        asked[one.kinds[0].profile, one.priority] += one.count
    for (kind, priority), count in problem.running.items():
        asked[kind.profile, priority] += count
        runs[kind.profile, priority] += count
    profiles = sorted({profile for profile, _priority in asked})
    states = {((0,) * len(profiles), ()): (0, 0)}
    for group in problem.groups:
        options = {}
        for after in [*LAYOUTS[group.states[0].board], None]:
            supply, kept, cost = becomes(group.states[0], after, profiles, weight)
            options[supply, kept] = min(cost, options.get((supply, kept), cost))
        # An option that offers no more, keeps no one else and costs no less is no use.
        items = [one for one in options.items() if not any(worse(one, two) for two in options.items())]
        step = {}
        for ((units, stay), cost), ((supply, kept), more) in product(states.items(), items):
            key = tuple(map(sum, zip(units, supply))), tuple(sorted(stay + kept))
            value = cost[0] + more[0], cost[1] + more[1]
            step[key] = min(value, step.get(key, value))
        states = step
    best = None
    for (units, kept), (evicted, idle) in states.items():
        served = Counter()
        stay = Counter(kept)
        for profile, left in zip(profiles, units):
            for priority in sorted(weight, reverse=True):
                count = min(left, asked[profile, priority])
                served[priority] += count
                left -= count
                evicted += weight[priority] * max(0, stay[profile, priority] - count)
        value = tuple(-served[priority] for priority in sorted(weight, reverse=True)), evicted, idle
        best = value if best is None else min(best, value)
    return best


def worse(one, two):
    """Return whether an option offers no more than another, keeps nobody else and costs no less: whoever else the other keeps could leave as well."""
    (supply, kept), cost = one
    (other_supply, other_kept), other_cost = two
    if one == two or Counter(kept) - Counter(other_kept) or any(a > b for a, b in zip(supply, other_supply)):
        return False
    return cost >= other_cost and (kept == other_kept or cost[1] >= other_cost[1])


def becomes(state, after, profiles, weight):
    supply = tuple(
        sum(one[0] == profile for one in after) if after is not None else int(profile == WHOLE) for profile in profiles
    )
    kept, evicted, idle = [], 0, 0
    holders = [(WHOLE, not state.mig and after is None, state.users, False)] if not state.mig else []
    holders += [
        (one.profile, (one.profile, one.start, one.size) in (after or ()), one.users, True) for one in state.held
    ]
    for profile, stays, users, is_instance in holders:
        if stays:
            kept += [(profile, priority) for priority in users]
        else:
            evicted += sum(weight[priority] for priority in users)
            idle += is_instance and not users
    return supply, tuple(sorted(kept)), (evicted, idle)


def agree(seed):
    problem = pool(seed)
    check(problem)
    answer = recommend(problem)
    served = tuple(-answer.served[priority] for priority in problem.priorities())
    assert (served, *divmod(answer.cost, answer.scale)) == optimum(problem), seed
    gap, more = verify(problem, answer)
    assert gap >= 0 and answer.searched
    assert all(0 <= count < 4 for count in more.values())


@pytest.mark.parametrize("seed", range(12))
def test_the_plan_is_the_optimum_of_a_dynamic_program(seed):
    agree(seed)


H100 = "h100-80gb-sxm"


def h100(*held, **more):
    return FleetGpu("", H100, True, tuple(HeldInstance(*one) for one in held), **more)


def small(**more):
    """Return a pool of two GPUs in which one of the instances in use has to go, and an idle one."""
    busy = h100(("1g.10gb", 0, 1, (1,)), ("1g.10gb", 4, 1, (2,)), ("2g.20gb", 2, 2))
    groups = (Group((busy,)), Group((h100(("7g.80gb", 0, 8, (2,))),)))
    return Problem({H100: PROFILES[H100]}, groups, (WantedUnits((UnitKind("", H100, "4g.40gb"),), 1, 3),), **more)


def test_who_has_the_lowest_priority_is_evicted_and_moves():
    """The instance of four slices takes the left half of the first GPU: its user of priority 1 gets another instance, the idle one goes."""
    problem = small()
    answer = recommend(problem)
    assert divmod(answer.cost, answer.scale) == (1, 1)
    assert not answer.missing
    changed = {change.group: change.after for change in answer.changes}
    assert changed == {0: ((("4g.40gb", 0, 4), ("1g.10gb", 4, 1), ("1g.10gb", 5, 1)),), 1: ((("7g.80gb", 0, 8),),)}
    assert verify(problem, answer)[0] < answer.scale


def test_what_a_gpu_has_is_listed_once_however_often_it_is_asked_for():
    state = h100(("7g.80gb", 0, 8, (1,)))
    assert state.there is state.there and state == replace(state)


def test_no_more_is_created_than_is_used():
    problem = Problem(
        {H100: PROFILES[H100]}, (Group((h100(),), 3),), (WantedUnits((UnitKind("", H100, "1g.10gb"),), 9),)
    )
    after = [(change.count, len(change.after[0])) for change in recommend(problem).changes]
    assert [count for count, _instances in after] == [1, 1, 1]
    made = sorted(instances for _count, instances in after)
    assert sum(made) == 9 and made[0] == 0, "one GPU is left whole for later"


def test_a_demand_that_nothing_serves_is_refused_by_priority():
    wanted = WantedUnits((UnitKind("", H100, "7g.80gb"),), 3, 5), WantedUnits((UnitKind("", H100, "1g.10gb"),), 2, 1)
    problem = Problem({H100: PROFILES[H100]}, (Group((h100(),), 2),), wanted)
    answer = recommend(problem)
    assert answer.missing == {5: 1, 1: 2}
    verify(problem, answer)
    with pytest.raises(Refused, match=r"1 of 3 requests of priority 5, 2 of 2 requests of priority 1"):
        refuse_missing(problem, answer)
    refuse_missing(replace(problem, wanted=tuple(replace(one, optional=True) for one in wanted)), answer)


def test_a_user_leaves_an_instance_that_somebody_of_more_priority_gets():
    state = h100(("7g.80gb", 0, 8, (1,)))
    kind = UnitKind("", H100, "7g.80gb")
    problem = Problem({H100: PROFILES[H100]}, (Group((state,)),), (WantedUnits((kind,), 1, 2),))
    answer = recommend(problem)
    assert answer.leaving == {(kind, 1): 1}
    assert (answer.served, answer.missing, answer.cost) == ({2: 1, 1: 0}, {1: 1}, answer.scale)
    verify(problem, answer)


def test_a_larger_profile_serves_a_smaller_request_where_it_may():
    kinds = [UnitKind("", H100, name) for name in ("1g.10gb", "2g.20gb")]
    state = h100(("2g.20gb", 0, 2), ("4g.40gb", 4, 4, (1,)), ("1g.10gb", 2, 1, (1,)), fixed=True)
    for accepted, served in ((kinds[:1], 2), (kinds, 3)):
        problem = Problem({H100: PROFILES[H100]}, (Group((state,)),), (WantedUnits(tuple(accepted), 1, 1),))
        answer = recommend(problem)
        assert answer.served == {1: served}
        verify(problem, answer)


def test_a_shared_unit_serves_as_many_as_share_it():
    kind = UnitKind("", H100, WHOLE)
    problem = Problem(
        {H100: PROFILES[H100]}, (Group((FleetGpu("", H100),), 2),), (WantedUnits((kind,), 7),), replicas={kind: 4}
    )
    answer = recommend(problem)
    assert not answer.missing
    verify(problem, answer)


def test_a_node_whose_strategy_is_single_is_one_unit():
    """Seven requests of the smallest profile fit beside the three-slice instances of one GPU, but not on a node that has these."""
    node = (h100(("3g.40gb", 0, 4, (1,))), h100())
    wanted = (WantedUnits((UnitKind("", H100, "1g.10gb"),), 3, 1),)
    two = Problem({H100: PROFILES[H100]}, (Group((node[0],)), Group((node[1],))), wanted)
    one = Problem({H100: PROFILES[H100]}, (Group(node),), wanted)
    for problem, missing in ((two, {}), (one, {1: 1})):
        answer = recommend(problem)
        assert answer.missing == missing
        verify(problem, answer)
        for change in answer.changes:
            assert len(problem.groups) == 2 or len({one[0] for after in change.after for one in after}) < 2


def forged(answer):
    """Return answers that claim more than is true, with what is wrong."""
    first = answer.changes[0]
    over = replace(first, after=(((("4g.40gb", 0, 4)), ("1g.10gb", 1, 1)),))
    who, kind = next(iter(answer.given))
    return {
        "cannot become": replace(answer, changes=(over, *answer.changes[1:])),
        "missing or planned twice": replace(answer, changes=answer.changes[1:]),
        "and says": replace(answer, cost=answer.cost - 1),
        "a price is below 0": replace(answer, prices=replace(answer.prices, unit={kind: -1})),
        "more than its eviction": replace(answer, prices=replace(answer.prices, kept={(kind, 1): 10**9})),
        "more is given than": replace(answer, given={**answer.given, (who, kind): 9}),
        "other demand is served": replace(answer, served={**answer.served, 1: 0}),
        "says nothing|nothing says why": replace(
            answer,
            served={**answer.served, 1: 0},
            given={key: n for key, n in answer.given.items() if key[0] != (kind, 1)},
        ),
    }


def test_a_forged_answer_is_not_proven():
    problem = small()
    answer = recommend(problem)
    for wrong, forgery in forged(answer).items():
        with pytest.raises(NotProven):
            verify(problem, forgery)
            pytest.fail(wrong)


def test_prices_that_are_not_the_best_prove_less_and_never_more():
    """Whatever the prices are, what they prove is true: the gap to the optimum is not negative."""
    draw = random.Random(7)
    for seed in range(6):
        problem = pool(seed)
        answer = recommend(problem)
        gap, _more = verify(problem, answer)
        for _ in range(5):
            unit = {kind: int(price * draw.uniform(0, 2)) for kind, price in answer.prices.unit.items()}
            served = {priority: int(price * draw.uniform(0, 2)) for priority, price in answer.prices.served.items()}
            other, _more = verify(problem, replace(answer, prices=replace(answer.prices, unit=unit, served=served)))
            assert other >= 0
        assert gap >= 0


def crowded(gpus):
    """Return a fleet of four boards and three priorities that is asked for more than it has."""
    draw = random.Random(6)
    groups, wanted = [], []
    for number in range(gpus):
        name = BOARDS[number % len(BOARDS)]
        held = [HeldInstance(*one, (draw.randrange(3),) * (draw.random() < 0.8)) for one in draw.choice(LAYOUTS[name])]
        groups.append(Group((FleetGpu("", name, True, tuple(sorted(held, key=lambda one: one.start))),)))
        for profile, _start, _size in draw.choice(LAYOUTS[name]):
            wanted.append(WantedUnits((UnitKind("", name, profile),), 1, draw.randrange(3)))
    return Problem(PROFILES, tuple(groups), tuple(wanted))


def test_where_not_all_is_served_whole_layouts_prove_what_prices_do_not():
    problem = crowded(120)
    answer = recommend(problem)
    assert answer.missing and answer.gap < 1
    gap, _more = verify(problem, answer)
    assert gap > answer.scale, "prices alone prove it: the example is too easy"


def test_when_the_time_is_over_the_plan_that_there_is_is_taken_and_its_gap_is_stated():
    problem = crowded(120)
    best = recommend(problem)
    answer = recommend(problem, seconds=0)
    assert (answer.served, answer.searched) == (best.served, False)
    assert answer.gap >= 1 and answer.least <= best.cost < answer.cost
    verify(problem, answer)


def test_the_solver_writes_nothing_to_the_standard_output():
    """Not even its banner, which it writes before its first option: what Ansible's workers write is read by others."""
    program = f"from {highs.__name__} import Program; Program().solve(); print('solved')"
    collections = Path(highs.__file__).parents[6]
    found = subprocess.run([sys.executable, "-c", program], cwd=collections, capture_output=True, text=True, check=True)
    assert found.stdout == "solved\n"


def test_the_solver_that_a_refusal_asks_for_is_the_one_that_is_tested():
    """Tests import the collection by a link, so the repository is the folder of this file."""
    root = Path(__file__).resolve().parents[5]
    assert f"\nhighspy=={highs.VERSION}\n" in (root / "requirements" / "development.in").read_text(encoding="utf-8")
    for page in ("docs/recommend.md", "roles/playbooks/meta/argument_specs.yml"):
        text = (root / page).read_text(encoding="utf-8") if (root / page).exists() else ""
        assert set(re.findall(r"highspy==([0-9.]+[0-9])", text)) <= {highs.VERSION}


@pytest.mark.parametrize("seed", range(12))
def test_where_the_search_finds_nothing_the_plan_by_which_demand_was_counted_is_taken(monkeypatch, seed):
    """It serves as much, for more evictions at most, and the gap that is stated is true."""
    problem = pool(seed)
    best = recommend(problem)
    monkeypatch.setattr(solver.Search, "integers", lambda *_arguments: None)
    monkeypatch.setattr(solver.Search, "last_word", lambda _self: None)
    answer = recommend(problem)
    assert answer.served == best.served
    gap, _more = verify(problem, answer)
    assert answer.cost - gap <= best.cost <= answer.cost


def test_what_cannot_be_planned_is_refused():
    groups = (Group((h100(),)),)
    with pytest.raises(Refused, match=r"no source says where instances of .* are placed"):
        check(Problem({H100: board("h100-80gb-pcie").profiles}, groups))
    with pytest.raises(Refused, match="evicting priority 1 weighs 5, and priority 2 weighs 1"):
        check(small(weights={3: 9, 2: 1, 1: 5}))


def test_without_the_solver_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(Refused, match=r"pip install highspy==1\.16\.0"):
        recommend(small())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 200))
def test_the_plan_is_the_optimum_of_a_dynamic_program_on_200_pools(seed):
    agree(seed)
