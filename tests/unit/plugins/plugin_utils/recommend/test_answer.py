# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom the answer announces, which the planner of each GPU says, is whom the search counted."""

from __future__ import annotations

import random

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.answer import host_answer, placed
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.demand import described, wanted
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.outcome import recommend
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import WHOLE
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
        users = {device: {f"{name}/{device}": 1} for device in devices if draw.random() < 0.6}
        priorities = {f"{name}/{device}": draw.randrange(3) for device in users}
        hosts.append(host(name, *gpus, users=users, priorities=priorities, single=single))
    return hosts


@sampled("seed", [pytest.param(seed, id=str(seed)) for seed in range(60)], default=4)
def test_the_planner_of_each_gpu_evicts_whom_the_search_counted(seed):
    draw = random.Random(seed)
    hosts = {one.name: one for one in fleet(draw)}
    found = survey(list(hosts.values()))
    names = [draw.choice([*PROFILES, WHOLE]) for _ in range(3)]
    demand = [{"profile": name, "count": draw.randrange(1, 4), "priority": draw.randrange(4)} for name in names]
    problem = found.problem(wanted(described(demand), found.pools, found.boards))
    outcome = recommend(problem)
    cost = sum(
        problem.weight()[priority] * outcome.scale * count for (_kind, priority), count in outcome.leaving.items()
    )
    for name, after in placed(found, outcome).items():
        answer = host_answer(name, "train", hosts[name].facts, after, hosts[name].users)
        cost += sum(problem.weight()[hosts[name].priorities[who]] * outcome.scale for who in answer.evicted)
        cost += sum(one.idle for one in answer.changes)
    assert cost == outcome.cost
