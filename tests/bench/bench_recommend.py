# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long the fleet planner takes, in CPU seconds of one thread, and how near to the optimum its plans are proven to be.

What is drawn (fixed seed): states of GPUs, each a maximal layout of a board drawn uniformly, with each instance there by 85 % and in use by 75 % of
these; and a demand of as many instances as other layouts of the fleet have, 70 % of them drawn among those with an instance of half a GPU, so that
instances in use have to go; 97 % of it is asked for, running users included. The mix is of four boards with equal shares.

C(RECOMMEND_TRACE) names a trace of requests, which is simulated beside other ways to place them (recommend_trace.py).
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import islice

from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.geometry import geometry
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.checker import least_hosts, verify
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.goals import empty_hosts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.highs import numpy
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.matrices import maximal
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.one_host import recommend_hosted
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.outcome import recommend
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import (
    FleetGpu,
    Group,
    HeldInstance,
    Problem,
    UnitKind,
    WantedUnits,
)
from recommend_trace import compare
from unavailable import Unavailable

SEED = 20261127
H100 = ("h100-80gb-sxm",)
MIX = ("h100-80gb-sxm", "a100-80gb", "a30-24gb", "h200-141gb")
#: Of the simulation: null where no trace is given. Active are so many GPUs for each that the accepted requests ask for.
TRACE = ("accepted_requests", "active_gpus", "migrated_instances")


def run() -> dict[str, float | None]:
    """Return the measurements that C(make bench) writes to build/bench.json."""
    try:
        numpy()
    except Refused as missing:
        raise Unavailable(missing.message) from None
    results: dict[str, float | None] = {f"recommend.trace.{name}": None for name in TRACE}
    if os.environ.get("RECOMMEND_TRACE"):
        for way, found in compare(os.environ["RECOMMEND_TRACE"]).items():
            figures = dict(zip(TRACE, (found.accepted, found.active, found.migrated)))
            results.update({f"recommend.trace.{name}{way}": figure for name, figure in figures.items()})
    recommend(fleet(8, 8, H100))
    for name, gpus, states, boards in (
        ("64_gpus", 64, 64, H100),
        ("10000_gpus", 10_000, 3_500, H100),
        ("10000_gpus_mix", 10_000, 3_500, MIX),
        ("100000_gpus", 100_000, 500, H100),
    ):
        problem = fleet(gpus, states, boards)
        start = time.process_time()
        answer = recommend(problem)
        planned = time.process_time()
        gap, _more = verify(problem, answer)
        checked = time.process_time()
        assert not answer.missing, answer.missing
        results[f"recommend.cpu_seconds_{name}"] = planned - start
        results[f"recommend.check_cpu_seconds_{name}"] = checked - planned
        results[f"recommend.gap_evictions_{name}"] = float(gap / answer.scale)
        results[f"recommend.least_hosts_{name}"] = max(answer.least_hosts, least_hosts(problem, answer))
        results[f"recommend.evictions_{name}"] = answer.cost // answer.scale
    # No more is wanted than runs, so that hosts can be empty.
    problem = replace(fleet(10_000, 3_500, H100), wanted=())
    start = time.process_time()
    emptied = empty_hosts(problem)
    outcome = emptied.judged(recommend_hosted(emptied.problem)).outcome
    results["recommend.cpu_seconds_empty_hosts_10000_gpus"] = time.process_time() - start
    results["recommend.empty_hosts_10000_gpus"] = len(emptied.hosts)
    results["recommend.gap_evictions_empty_hosts_10000_gpus"] = outcome.gap
    # Of a process that does nothing else.
    program = "import tests.conftest, bench_recommend; print(bench_recommend.memory())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    alone = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    results["recommend.memory_mib_10000_gpus"] = float(alone.stdout)
    return results


def fleet(gpus: int, states: int, boards: tuple[str, ...], share: float = 0.97) -> Problem:
    """Draw a fleet and what is wanted of it."""
    draw = random.Random(SEED)
    tables = {name: board(name).profiles for name in boards}
    shapes = {name: geometry(tuple(one for one in table if "+" not in one.name)) for name, table in tables.items()}
    layouts = {
        name: [
            [(shape.profiles[slot.profile].name, slot.start, slot.size) for slot in shape.slots_of(layout)]
            for layout in maximal(shape)
        ]
        for name, shape in shapes.items()
    }
    wide = {
        name: [one for one in all_of_it if max(size for _name, _start, size in one) >= shapes[name].grid // 2]
        for name, all_of_it in layouts.items()
    }
    found: dict[FleetGpu, None] = {}
    while len(found) < states:
        name = boards[len(found) % len(boards)]
        held = [
            HeldInstance(profile, start, size, (0,) if draw.random() < 0.75 else ())
            for profile, start, size in draw.choice(layouts[name])
            if draw.random() < 0.85
        ]
        found[FleetGpu("", name, True, tuple(sorted(held, key=lambda one: one.start)))] = None
        if len(boards) > 1 and len(found) > 60 * len(boards) and draw.random() < 0.02:
            # Small boards have few states: their turn passes.
            boards = tuple(draw.sample(boards, len(boards)))
    counts = [gpus // states + (place < gpus % states) for place in range(states)]
    # Eight GPUs a host.
    hosts = (f"host-{number // 8}" for number in range(gpus))
    groups = tuple(
        Group((state,), count, tuple(islice(hosts, count)), ((0,),) * count) for state, count in zip(found, counts)
    )
    wanted: Counter[UnitKind] = Counter()
    for group in groups:
        name = group.states[0].board
        for _unit in range(group.count):
            for profile, _start, _size in draw.choice(wide[name] if draw.random() < 0.7 else layouts[name]):
                wanted[UnitKind("", name, profile)] += 1
    for (kind, _priority), count in Problem(tables, groups).running.items():
        wanted[kind] = int(wanted[kind] * share) - count
    asked = tuple(WantedUnits((kind,), count) for kind, count in sorted(wanted.items()) if count > 0)
    return Problem(tables, groups, asked)


def memory() -> float:
    """Return the most MiB that this process has used once it has planned 10,000 GPUs."""
    recommend(fleet(10_000, 3_500, H100))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
