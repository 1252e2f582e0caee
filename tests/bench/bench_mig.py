# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How fast MIG transitions are planned and how much they destroy, beside a tool that clears the GPU.

What is drawn (H100 80GB SXM, 2,319 layouts, 128 requests, fixed seed):

* random transition: the present layout uniformly from all layouts, the desired state uniformly from all requests;
* single edit: the present layout uniformly, then by a coin one instance more, of a profile drawn uniformly, or one
  instance less, drawn uniformly; an edit that no layout meets is drawn again, layout included.

Exact means over everything that can be drawn: 2.443 destroyed against 3.906 by clearing for random transitions (2.462
against 3.937 without those that change nothing), 0.826 against 3.820 for single edits.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import GpuFacts, MigModeFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.desired import desired_layout
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.geometry import Geometry, Request, geometry
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import (
    ComputeInstance,
    DesiredGpu,
    DesiredInstance,
    GpuInstance,
    describe,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.nodes import NodeGpu, distribute, plan_node
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.plan import plan_gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused

SEED = 20260821
TRANSITIONS = 20_000
NODES = 1_000
BOARD = board("h100-80gb-sxm")

Transition = tuple[tuple[GpuInstance, ...], DesiredGpu]


def run() -> dict[str, float]:
    """Return the measurements that C(make bench) writes to build/bench.json; times in milliseconds."""
    random_ones = measure(transitions(random_transition))
    edits = measure(transitions(single_edit))
    node_times, totals_times = measure_nodes()
    results = {
        "mig.plan_gpu_ms_median": statistics.median(random_ones["times"]),
        "mig.plan_gpu_ms_p99": statistics.quantiles(random_ones["times"], n=100)[98],
        "mig.plan_gpu_cold_ms": cold_start(),
        "mig.plan_node8_ms_median": statistics.median(node_times),
        "mig.plan_node8_totals_ms_median": statistics.median(totals_times),
        "mig.plan_node8_totals_ms_p99": statistics.quantiles(totals_times, n=100)[98],
        "mig.destroyed_per_random_transition": fmean(random_ones["destroyed"]),
        "mig.destroyed_per_random_transition_clear_all": fmean(random_ones["cleared"]),
        "mig.destroyed_per_single_edit": fmean(edits["destroyed"]),
        "mig.destroyed_per_single_edit_clear_all": fmean(edits["cleared"]),
    }
    for case in measured_cases():
        results[f"mig.case.{case['key']}.destroyed"] = case["destroyed"]
        results[f"mig.case.{case['key']}.created"] = case["created"]
        results[f"mig.case.{case['key']}.refused"] = case["refused"]
        results[f"mig.case.{case['key']}.ms"] = case["ms"]
    return {name: round(value, 4) for name, value in results.items()}


def transitions(draw: Callable[[random.Random, Geometry, list[int]], Transition]) -> Iterator[Transition]:
    rng, shape = random.Random(SEED), geometry(BOARD.profiles)
    layouts = list(shape.layouts())
    for _ in range(TRANSITIONS):
        yield draw(rng, shape, layouts)


def random_transition(rng: random.Random, shape: Geometry, layouts: list[int]) -> Transition:
    return instances(shape, rng.choice(layouts)), desired_of(shape, rng.choice(shape.requests()))


def single_edit(rng: random.Random, shape: Geometry, layouts: list[int]) -> Transition:
    while True:
        layout = rng.choice(layouts)
        present = list(request_of(shape, layout))
        if rng.random() < 0.5:
            present[rng.randrange(len(present))] += 1
        elif layout:
            present[rng.choice([slot.profile for slot in shape.slots_of(layout)])] -= 1
        else:
            continue
        if shape.layouts_of(tuple(present)):
            return instances(shape, layout), desired_of(shape, tuple(present))


def measure(cases: Iterator[Transition]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"times": [], "destroyed": [], "cleared": []}
    for current, desired in cases:
        start = time.perf_counter()
        plan = plan_gpu(current, desired, BOARD.profiles)
        found["times"].append((time.perf_counter() - start) * 1000)
        found["destroyed"].append(len(plan.destroy))
        found["cleared"].append(destroyed_if_cleared(current, desired))
    return found


def measure_nodes() -> tuple[list[float], list[float]]:
    """Return the times of hosts with eight GPUs: with a desired state for each GPU, and with totals placed by the planner.

    The totals are what eight random requests add up to, so that they can always be met; the plans of the eight GPUs
    that follow from them are part of the time.
    """
    rng, shape = random.Random(SEED), geometry(BOARD.profiles)
    layouts = list(shape.layouts())
    per_gpu, totals_times = [], []
    for _ in range(NODES):
        drawn = [random_transition(rng, shape, layouts) for _ in range(8)]
        gpus = [NodeGpu(index, BOARD.profiles, current, True) for index, (current, _desired) in enumerate(drawn)]
        start = time.perf_counter()
        plan_node(gpus, {index: desired for index, (_current, desired) in enumerate(drawn)})
        per_gpu.append((time.perf_counter() - start) * 1000)
        totals: dict[str, int] = {}
        for _current, desired in drawn:
            for name, count in desired.counts.items():
                totals[name] = totals.get(name, 0) + count
        start = time.perf_counter()
        plan_node(gpus, distribute(totals, gpus))
        totals_times.append((time.perf_counter() - start) * 1000)
    return per_gpu, totals_times


def cold_start() -> float:
    """Return the time of the first plan of a process, before any layout is remembered."""
    geometry.cache_clear()
    current, desired = example(), desired_by_name({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1})
    start = time.perf_counter()
    plan_gpu(current, desired, BOARD.profiles)
    return (time.perf_counter() - start) * 1000


# The six cases measured on nvidia-mig-parted v0.15.0 (simulated 8x H100 80GB, start 3g+2g+1g+1g), as recorded.
CASES = (
    ("remove_one", {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1}, "destroyed 4, created 3"),
    ("too_much_memory", {"3g.40gb": 2, "1g.10gb": 1}, "created 9, destroyed 9, GPU left empty"),
    ("too_many_units", {"1g.10gb": 4, "1g.20gb": 2, "2g.20gb": 1}, "600 creates, 495 destroys"),
    ("other_model", {"1g.5gb": 7}, "destroyed 4, created 0, reported success"),
    ("typo", {"3g.40gb": 1, "2g.21gb": 1}, "destroyed 4, created 0, reported success"),
    ("double_memory", {"1g.20gb": 1}, "16 of 26 SMs used"),
)


def measured_cases() -> list[dict[str, Any]]:
    """Return what ours does in the six measured cases, beside what mig-parted did."""
    found = []
    for key, counts, peer in CASES:
        start = time.perf_counter()
        destroyed = created = 0
        refused, text = 0, ""
        try:
            gpus = [facts_of_example()]
            plan = plan_node(
                [NodeGpu(0, BOARD.profiles, example(), True)],
                desired_layout([{"devices": "all", "instances": counts}], "mixed", gpus).gpus,
            )
            destroyed, created = len(plan.gpus[0].destroy), len(plan.gpus[0].create)
            text = f"destroyed {destroyed}, created {created}"
            if key == "double_memory":
                text += f", all {plan.gpus[0].create[0].profile.multiprocessors} SMs used"
        except Refused as refusal:
            refused, text = 1, f"refused before anything is changed: {refusal.reason}. {refusal.remedy}"
        took = (time.perf_counter() - start) * 1000
        found.append(
            {
                "key": key,
                "request": describe(counts),
                "mig_parted": peer,
                "ours": text,
                "destroyed": destroyed,
                "created": created,
                "refused": refused,
                "ms": took,
            }
        )
    return found


def table() -> str:
    """Return both comparisons as Markdown: the six cases, and the instances destroyed per change."""
    return f"{table_of_cases()}\n\n{table_of_destroyed()}"


def table_of_cases() -> str:
    """Return the comparison of the six cases as Markdown."""
    rows = ["| request | nvidia-mig-parted | gpufleet.nvidia |", "|---|---|---|"]
    rows += [f"| {case['request']} | {case['mig_parted']} | {case['ours']} |" for case in measured_cases()]
    return "\n".join(rows)


def table_of_destroyed() -> str:
    """Return what a change destroys, beside a tool that clears the GPU, as Markdown."""
    rows = ["| instances destroyed per change | by clearing the GPU | gpufleet.nvidia |", "|---|---|---|"]
    for title, draw in (("random transition", random_transition), ("single edit", single_edit)):
        found = measure(transitions(draw))
        rows.append(f"| {title} | {fmean(found['cleared']):.2f} | {fmean(found['destroyed']):.2f} |")
    return "\n".join(rows)


def example() -> tuple[GpuInstance, ...]:
    places = (("3g.40gb", 4, 4), ("2g.20gb", 0, 2), ("1g.10gb", 2, 1), ("1g.10gb", 3, 1))
    return tuple(
        GpuInstance(number, name, start, size, (ComputeInstance(0, int(name[0])),))
        for number, (name, start, size) in enumerate(places, start=1)
    )


def facts_of_example() -> GpuFacts:
    mig = MigModeFacts(supported=True, current=True)
    return GpuFacts(0, board=BOARD.key, name=BOARD.product_names[0], mig=mig)


def request_of(shape: Geometry, layout: int) -> Request:
    counts = [0] * len(shape.profiles)
    for slot in shape.slots_of(layout):
        counts[slot.profile] += 1
    return tuple(counts)


def instances(shape: Geometry, layout: int) -> tuple[GpuInstance, ...]:
    found = []
    for number, slot in enumerate(shape.slots_of(layout), start=1):
        profile = shape.profiles[slot.profile]
        compute = (ComputeInstance(0, profile.gpu_slices),)
        found.append(GpuInstance(number, profile.name, slot.start, slot.size, compute))
    return tuple(found)


def desired_of(shape: Geometry, request: Request) -> DesiredGpu:
    return desired_by_name(shape.counts(request))


def desired_by_name(counts: dict[str, int]) -> DesiredGpu:
    slices = {profile.name: profile.gpu_slices for profile in BOARD.profiles}
    found = [DesiredInstance(name, (slices[name],)) for name, count in counts.items() for _number in range(count)]
    return DesiredGpu(True, tuple(sorted(found)))


def destroyed_if_cleared(current: tuple[GpuInstance, ...], desired: DesiredGpu) -> int:
    """Return how many instances go where the GPU is cleared unless it already is as wanted, as mig-parted does."""
    return 0 if Counter(instance.profile for instance in current) == desired.counts else len(current)
