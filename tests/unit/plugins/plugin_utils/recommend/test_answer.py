# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom the answer announces, which the planner of each GPU says, is whom the search counted."""

from __future__ import annotations

import random

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.desired import desired_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.plan import FORCE, plan_gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.state import node_gpus
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.answer import (
    FleetAnswer,
    HostAnswer,
    host_answer,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.demand import described, wanted
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.outcome import placed, recommend
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import WHOLE, Problem
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.survey import survey

from .....whole import sampled
from .test_survey import H100, gpu, host

pytest.importorskip("highspy")

PROFILES = {one.name: one for one in board(H100).profiles if "+" not in one.name}


def instances(draw, names):
    """Draw instances that fit on a GPU, as L(gpu) takes them."""
    found: list[tuple] = []
    for _try in range(draw.randrange(6)):
        name = draw.choice(names)
        start, size = draw.choice(PROFILES[name].placements.starts), PROFILES[name].placements.size
        free = all(start + size <= other or other + width <= start for _name, other, width, _inside in found)
        slices = sum(PROFILES[one[0]].gpu_slices for one in found) + PROFILES[name].gpu_slices
        if free and slices <= 7 and sum(one[0] == name for one in found) < PROFILES[name].max_instances:
            found.append((name, start, size, name))
    return found


def fleet(draw):
    """Draw hosts with three GPUs each, whose devices are given to pods of three priorities."""
    hosts = []
    for name in "abc":
        single = draw.random() < 0.3
        names = [draw.choice(list(PROFILES))] if single else list(PROFILES)
        gpus = [gpu(index, enabled=False) for index in range(3)]
        for index in range(3):
            if draw.random() < 0.8:
                gpus[index] = gpu(index, *instances(draw, names))
        devices = [one["compute_instances"][0]["uuid"] for each in gpus for one in each["gpu_instances"]]
        devices += [each["uuid"] for each in gpus if not each["mig"]["current"]]
        users = {device: [f"{name}/{device}"] for device in devices if draw.random() < 0.6}
        priorities = {f"{name}/{device}": draw.randrange(3) for device in users}
        hosts.append(host(name, *gpus, users=users, priorities=priorities, single=single))
    return hosts


def asking(found, demand):
    return Problem(found.boards, found.groups, tuple(wanted(described(demand), found.pools, found.boards)[0]))


@sampled("seed", [pytest.param(seed, id=str(seed)) for seed in range(60)], default=4)
def test_the_planner_of_each_gpu_evicts_whom_the_search_counted(seed):
    draw = random.Random(seed)
    hosts = {one.name: one for one in fleet(draw)}
    found = survey(list(hosts.values()))
    names = [draw.choice([*PROFILES, WHOLE]) for _ in range(3)]
    demand = [{"profile": name, "count": draw.randrange(1, 4), "priority": draw.randrange(4)} for name in names]
    problem = asking(found, demand)
    outcome = recommend(problem)
    cost = sum(
        problem.weight()[priority] * outcome.scale * count for (_kind, priority), count in outcome.leaving.items()
    )
    for name, after in placed(problem, outcome).items():
        answer = host_answer(name, "train", hosts[name].facts, after, hosts[name].users)
        cost += sum(problem.weight()[hosts[name].priorities[who]] * outcome.scale for who in answer.evicted)
        cost += sum(one.idle for one in answer.changes)
    assert cost == outcome.cost


@pytest.mark.parametrize("seed", range(200))
def test_the_file_has_each_layout_with_the_fewest_entries(seed):
    """As few as any choice of one layout for each pool leaves, and what Ansible makes of it is the layout of each host."""
    draw = random.Random(seed)
    layouts = [[], [{"devices": "all", "layout": "all-enabled"}], [{"devices": [0], "enabled": False}]]
    hosts = [
        HostAnswer(f"h{number}", draw.choice(["", "a", "b"]), draw.choice(layouts))
        for number in range(draw.randrange(9))
    ]
    answer = FleetAnswer(hosts, None, {}, 0, {})
    variables = answer.variables()
    known = {pool: [host.layout for host in hosts if host.pool == pool] for pool in {host.pool for host in hosts}}
    fewest = sum(
        min([len(has), *(1 + sum(one != shared for one in has) for shared in (layouts if pool else ()))])
        for pool, has in known.items()
    )
    assert len(variables["gpu_recommend_layouts"]) == fewest
    for one in hosts:
        given = {"inventory_hostname": one.name, "group_names": ["gpu_hosts", *filter(None, [one.pool])]}
        given |= {"gpu_recommend_layouts": variables["gpu_recommend_layouts"]}
        template = trust_as_template(variables["nvidia_mig_layout"])
        assert plain(Templar(loader=DataLoader(), variables=given).template(template)) == one.layout


def test_of_two_priorities_on_one_gpu_the_lower_is_evicted_by_whoever_changes_it():
    """One pod of a high priority is in the way of one place of the instance, and two of a low one of the other: the planner of a GPU counts instances."""
    places = [("1g.10gb", start, 1, "1g.10gb") for start in (0, 4, 5)]
    users = {f"MIG-0-{start}-0": [f"jobs/at-{start}"] for start in (0, 4, 5)}
    node = host("a", gpu(0, *places), users=users, priorities={"jobs/at-0": 1000, "jobs/at-4": 0, "jobs/at-5": 0})
    found = survey([node])
    demand = [{"profile": "3g.40gb", "priority": 50}]
    problem = asking(found, demand)
    outcome = recommend(problem)
    (after,) = placed(problem, outcome).values()
    answer = host_answer("a", "train", node.facts, after, users)
    assert answer.evicted == ["jobs/at-4", "jobs/at-5"]
    (change,) = answer.changes
    assert change.keeps == ("MIG-0-0-0",)
    # The same of the planner on the host, where processes are on every instance.
    busy = gpu(0, *places)
    for instance in busy["gpu_instances"]:
        instance["compute_instances"][0]["processes"] = [{"pid": 1, "name": "python3"}]
    (there,) = node_gpus(host("a", busy).facts, change.keeps)
    (asked,) = desired_of(
        {"nvidia_mig_layout": answer.layout, "nvidia_mig_strategy": "mixed"}, [there.facts]
    ).gpus.values()
    gone = plan_gpu(there.current, asked, there.profiles, FORCE).destroy
    assert [one.instance.start for one in gone] == [4, 5]
