# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fewest active GPUs and the cheapest purchase, against every choice on small pools, each served by the dynamic program."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.checker import verify
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.goals import consolidate, empty_hosts, grow
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.one_host import recommend_hosted
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.outcome import recommend
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import (
    EMPTY,
    WHOLE,
    FleetGpu,
    Group,
    Problem,
    UnitKind,
    WantedUnits,
    check,
)
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.recommend.test_outcome import (
    BOARDS,
    H100,
    PROFILES,
    crowded,
    h100,
    kinds_of,
    optimum,
    pool,
)

pytest.importorskip("highspy")


def without(problem, spare):
    """Return the problem in which these GPUs do not exist, whom it evicts by weight, and what idle instances go."""
    weight = {priority: rank + 1 for rank, priority in enumerate(sorted(problem.priorities()))}
    rest = tuple(group for number, group in enumerate(problem.groups) if number not in spare)
    gone = [problem.groups[number] for number in spare]
    left = Problem(problem.boards, tuple(gone)).running
    moved = tuple(WantedUnits(problem.moved(kind), count, rank) for (kind, rank), count in left.items())
    idle = sum(not one.users for group in gone for one in group.states[0].held)
    evicted = sum(weight[rank] * count for (_kind, rank), count in left.items())
    return replace(problem, groups=rest, wanted=(*problem.wanted, *moved)), evicted, idle


def fewest(problem, hosts=range(4)):
    """Return by every choice of hosts that are left empty: served, how many are active, evictions and idle instances destroyed of the best.

    C(hosts): of each GPU, which is a host of its own where nothing is said.
    """
    best, names = None, sorted(set(hosts))
    for count in range(len(names) + 1):
        for empty in combinations(names, count):
            rest, evicted, idle = without(problem, [at for at, host in enumerate(hosts) if host in empty])
            served, more, others = optimum(rest)
            value = served, -count, evicted + more, idle + others
            best = value if best is None else min(best, value)
    return best


@pytest.mark.parametrize("hosts", ["abbc", "aabb"])
@pytest.mark.parametrize("seed", range(40, 46))
def test_as_many_hosts_are_left_empty_as_can_be_with_the_fewest_evictions(seed, hosts):
    drawn = pool(seed)
    # Who uses a whole GPU stays there.
    states = [replace(group.states[0], users=()) for group in drawn.groups]
    units = enumerate(zip(states, hosts))
    asked = replace(drawn, groups=tuple(Group((state,), 1, (host,), ((at,),)) for at, (state, host) in units))
    emptied = empty_hosts(asked)
    hosted = emptied.judged(recommend_hosted(emptied.problem))
    answer = hosted.outcome
    served = tuple(-answer.served[priority] for priority in asked.priorities())
    exact = fewest(asked, hosts)
    assert (served, -len(emptied.hosts), *divmod(answer.cost, answer.scale)) == exact
    assert emptied.most == len(emptied.hosts)
    # What is proven is never more than any plan costs; where it is that, the plan is said to be the best.
    assert hosted.gap >= 0 and answer.least <= answer.cost and answer.searched == (answer.least == answer.cost)
    layouts = {host: set(some.values()) for host, some in hosted.plan.after.items()}
    assert {host for host, some in layouts.items() if some == {(EMPTY,)}} == emptied.hosts


def test_hosts_are_not_left_empty_of_which_a_gpu_is_not_planned_or_fixed():
    state, fixed = h100(), h100(fixed=True)
    groups = Group((state,), 2, ("a", "b"), ((0,), (0,))), Group((fixed,), 1, ("c",), ((0,),))
    emptied = empty_hosts(Problem({H100: PROFILES[H100]}, groups), {"b"})
    assert (emptied.hosts, emptied.most, emptied.could) == ({"a"}, 1, {"a"})


@pytest.mark.parametrize("seed", range(40, 48))
def test_as_many_gpus_are_left_empty_as_can_be(seed):
    drawn = pool(seed)
    # Who uses a whole GPU stays there.
    idle = (replace(group, states=(replace(group.states[0], users=()),)) for group in drawn.groups)
    asked = replace(drawn, groups=tuple(idle))
    problem, spare = consolidate(asked)
    check(problem)
    answer = recommend(problem)
    served = tuple(-answer.served[priority] for priority in asked.priorities())
    assert (served, -answer.served[spare], *divmod(answer.cost, answer.scale)) == fewest(asked)
    gap, _more = verify(problem, answer)
    assert gap >= 0 and answer.searched
    empty = sum(change.count for change in answer.changes if change.after == ((EMPTY,),))
    assert empty == answer.served[spare]


def test_gpus_that_are_fixed_are_not_emptied():
    used = h100(("1g.10gb", 0, 1, (1,)))
    groups = Group((used,)), Group((h100(("1g.10gb", 1, 1), fixed=True),))
    problem, spare = consolidate(Problem({H100: PROFILES[H100]}, groups))
    answer = recommend(problem)
    assert (answer.asked[spare], answer.served[spare]) == (1, 1)
    changed = {change.group: change.after for change in answer.changes}
    assert changed[0] == ((EMPTY,),) and divmod(answer.cost, answer.scale) == (1, 0)


def test_whoever_uses_a_whole_gpu_stays_there_for_nothing_would_evict_them():
    kind = UnitKind("", "t4-16gb", WHOLE)
    groups = Group((FleetGpu("", "t4-16gb", users=(0,)),), 2), Group((FleetGpu("", "t4-16gb"),))
    problem, spare = consolidate(Problem({"t4-16gb": ()}, groups, replicas={kind: 4}))
    answer = recommend(problem)
    assert (answer.asked[spare], answer.served[spare], answer.cost) == (1, 1, 0)
    assert {change.group: change.after for change in answer.changes} == {0: (None,), 1: ((EMPTY,),)}
    verify(problem, answer)


PRICES = {"h100-80gb-sxm": 30000, "a100-80gb": 18000, "a30-24gb": 5000, "h200-141gb": 40000}


def cheapest(problem, offers):
    """Return the price of the cheapest purchase after which the dynamic program serves everything."""
    total = sum(one.count for one in problem.asked.values())
    most = 8 if len(offers) == 1 else 4
    counts = sorted(
        product(range(most), repeat=len(offers)), key=lambda some: sum(n * offers[key] for n, key in zip(some, offers))
    )
    for some in counts:
        bought = [key[:2] for key, count in zip(offers, some) for _one in range(count * key[2])]
        if len(bought) > 8:
            continue
        more = [Group((FleetGpu(*key),)) for key in bought]
        served, _evicted, _idle = optimum(replace(problem, groups=(*problem.groups, *more)))
        if -sum(served) == total:
            return sum(count * offers[key] for key, count in zip(offers, some))
    return None


#: How many GPUs hosts have, and which part of the price of so many GPUs such a host costs.
HOSTS = {"a GPU": {1: 1.0}, "two": {2: 1.0}, "one or three": {1: 1.0, 3: 0.8}}


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("seed", range(6))
def test_the_cheapest_purchase_serves_everything(seed, hosts):
    drawn = pool(seed)
    boards = sorted(drawn.boards)[:2] if hosts == "a GPU" else sorted(drawn.boards)[:1]
    # Everything that is asked for has to be served by what is offered.
    serves = [
        replace(one, count=min(one.count, 3))
        for one in drawn.wanted
        if all(kinds_of([name], one.kinds[0].profile) for name in boards)
    ]
    problem = replace(drawn, groups=drawn.groups[:2], wanted=tuple(serves))
    offers = {
        ("", name, gpus): int(PRICES[name] * gpus * part) for name in boards for gpus, part in HOSTS[hosts].items()
    }
    purchase = grow(problem, offers)
    assert purchase.cost == cheapest(problem, offers)
    gap, _more = verify(purchase.problem, purchase.outcome)
    assert gap >= 0 and purchase.outcome.searched


def test_a_host_is_bought_as_a_whole_and_a_larger_one_where_that_is_cheaper():
    """Nine GPUs are missing: two hosts of eight, or one and a single GPU."""
    kind = UnitKind("", H100, "7g.80gb")
    problem = Problem({H100: PROFILES[H100]}, (Group((h100(),)),), (WantedUnits((kind,), 10),))
    assert grow(problem, {("", H100, 8): 200}).hosts == {("", H100, 8): 2}
    both = grow(problem, {("", H100, 8): 200, ("", H100, 1): 30})
    assert (both.hosts, both.cost) == ({("", H100, 8): 1, ("", H100, 1): 1}, 230)
    assert grow(problem, {("", H100, 8): 200, ("", H100, 1): 201}).hosts == {("", H100, 8): 2}


def test_a_purchase_for_a_large_fleet_is_what_it_says():
    """Sellers of GPUs who have a seat for nothing take it, whether their GPU is needed or not."""
    problem = crowded(48)
    sizes = [(name, gpus) for name in PRICES for gpus in (4, 8)]
    offers = {("", name, gpus): int(PRICES[name] * gpus * (1 if gpus < 8 else 0.9)) for name, gpus in sizes}
    purchase = grow(problem, offers)
    assert purchase.outcome.searched and purchase.hosts
    verify(purchase.problem, purchase.outcome)


def test_a_board_that_serves_more_for_its_price_is_bought():
    kinds = kinds_of(BOARDS[:2], "1g.10gb")
    problem = Problem(PROFILES, (Group((FleetGpu("", "a30-24gb"),)),), (WantedUnits(kinds, 9),))
    purchase = grow(problem, {("", "h100-80gb-sxm", 1): 30000, ("", "a100-80gb", 1): 18000})
    assert (purchase.hosts, purchase.cost) == ({("", "a100-80gb", 1): 2}, 36000)


@pytest.mark.parametrize(("count", "bought"), [(4, 0), (6, 2), (50, 46)])
def test_a_gpu_that_is_bought_is_not_shared_whatever_the_pool_does(count, bought):
    kind = UnitKind("", "t4-16gb", WHOLE)
    groups = Group((FleetGpu("", "t4-16gb"),)), Group((FleetGpu("", "t4-16gb"),), 0)
    problem = Problem({"t4-16gb": ()}, groups, (WantedUnits((kind,), count),), replicas={kind: 4})
    purchase = grow(problem, {("", "t4-16gb", 1): 3000})
    assert (sum(purchase.hosts.values()), purchase.cost) == (bought, 3000 * bought)
    gap, _more = verify(purchase.problem, purchase.outcome)
    assert gap >= 0 and purchase.outcome.searched


def test_no_board_is_bought_for_its_mig_in_a_pool_that_has_none():
    there = FleetGpu("whole", "t4-16gb", fixed=True), FleetGpu("parted", H100, True)
    pools = [state.pool for state in there]
    wanted = WantedUnits(tuple(UnitKind(name, H100, "3g.40gb") for name in pools), 6)
    offered = [Group((FleetGpu(name, H100),), 0) for name in pools]
    boards = {"t4-16gb": (), H100: PROFILES[H100]}
    problem = Problem(boards, (*(Group((state,)) for state in there), *offered), (wanted,))
    offers = {(name, H100, 1): 30000 for name in pools}
    assert grow(problem, offers).hosts == {("parted", H100, 1): 2}
    with pytest.raises(Refused, match="no board that is offered serves all requests: 4 of priority 0 are left"):
        grow(problem, {("whole", H100, 1): 1})


def test_nothing_is_bought_where_layouts_serve_everything():
    problem = Problem({H100: PROFILES[H100]}, (Group((h100(),)),), (WantedUnits((UnitKind("", H100, "1g.10gb"),), 7),))
    assert grow(problem, {("", H100, 1): 1}).hosts == {}


def test_what_no_board_on_offer_serves_is_refused():
    kind = UnitKind("", H100, "7g.80gb")
    problem = Problem(PROFILES, (Group((h100(),)),), (WantedUnits((kind,), 3, 4),))
    with pytest.raises(Refused, match="no board that is offered serves all requests: 2 of priority 4 are left"):
        grow(problem, {("", "a30-24gb", 1): 5000})
    with pytest.raises(Refused, match="2 of priority 4 are left"):
        grow(problem, {})
