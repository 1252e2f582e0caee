# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Repartitions against a model of C(slurmd -G), which prints what Debian's 22.05.8 printed with the recorded files."""

from __future__ import annotations

import random
import re

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.slurm_files import expanded, settings
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.slurm_node import (
    checks,
    found_by_slurmd,
    read_nodes,
)
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.test_slurm import (
    GOLDEN,
    MIG,
    RECORDED,
    h100,
    tree,
)

HOST = "gpu01"
ROUNDS = 1000
#: Profiles of an H100 of 80 GB with the memory slices that each takes, in the order in which they are placed.
SLICES = {"3g.40gb": 4, "2g.20gb": 2, "1g.10gb": 1}
#: What instances of a profile are numbered from, as an H100 does it.
FIRST_ID = {"3g.40gb": 1, "2g.20gb": 3, "1g.10gb": 7}


def slurmd(nodes, gres, name=HOST):
    """Return what C(slurmd -G) prints of a node: lines of gres.conf in the order of their types in slurm.conf, without those that slurm.conf does not count."""
    (line,) = [one for _number, one in settings(nodes) if name in expanded(one.get("nodename", ""))]
    wanted = [part.rpartition(":") for part in line["gres"].split(",")] if "gres" in line else []
    lines = [
        one for _number, one in settings(gres) if name in expanded(one.get("nodename", "")) and one.get("name") == "gpu"
    ]
    warnings, printed = [], []
    for kind, _colon, count in wanted:
        mine = [one for one in lines if f"gpu:{one['type']}" == kind]
        more = len(mine) - int(count)
        if more > 0:
            said = f"has {more} more configured than expected in slurm.conf. Ignoring extra GRES."
            warnings.append(f"slurmd-{name}: WARNING: A line in gres.conf for GRES {kind} {said}")
        for one in mine[: int(count)]:
            files = one.get("multiplefiles") or one["file"]
            index = re.findall(r"\d+", files)[-1]
            printed.append(
                f"slurmd-{name}: Gres Name=gpu Type={one['type']} Count=1 Index={index} ID=7696487 File={files} (null)"
            )
    return "".join(f"{line}\n" for line in [*warnings, *printed])


def without_the_last(text):
    return "".join(text.splitlines(keepends=True)[:-1])


def types(gres):
    return [one["type"] for _number, one in settings(gres)]


def offered(nodes):
    """Return C(Gres) of the node, which slurmctld shows as slurm.conf has it."""
    return next(one["gres"] for _number, one in settings(nodes) if "nodename" in one)


@pytest.mark.parametrize(
    ("recorded", "nodes", "gres"),
    [
        ("whole", str, str),
        ("fewer", str, without_the_last),
        ("more", lambda text: text.replace("1g.10gb:2", "1g.10gb:1"), str),
    ],
)
def test_the_model_prints_what_slurmd_printed(recorded, nodes, gres):
    said = slurmd(
        *(change((GOLDEN / name).read_text()) for name, change in (("nodes.conf", nodes), ("gres.conf", gres)))
    )
    assert said == (RECORDED / f"{recorded}.slurmd.txt").read_text()


def partitioned(chosen):
    """Return an H100 that was partitioned at random, and the layout that describes it."""
    instances, start = [], 0
    for profile, size in SLICES.items():
        for number in range(chosen.randint(0, (8 - start) // size)):
            if start + size <= (8 if profile == "3g.40gb" else 7):
                instances.append((FIRST_ID[profile] + number, profile, start, [profile]))
                start += size
    counts = {profile: sum(one[1] == profile for one in instances) for profile in SLICES}
    return instances, {profile: count for profile, count in counts.items() if count}


def rendered(chosen):
    parts = [partitioned(chosen) for _gpu in range(2)]
    layout = [{"devices": [index], "instances": counts} for index, (_parts, counts) in enumerate(parts) if counts]
    gpus = [h100(index, instances) for index, (instances, _counts) in enumerate(parts)]
    variables = {"nvidia_mig_layout": layout} if layout else {"nvidia_mig_strategy": "none", "nvidia_mig_layout": None}
    return tree({"mig": ([HOST], {**MIG, **variables})}, {HOST: gpus}), parts


@pytest.mark.slow
def test_every_one_of_many_repartitions_is_offered_whole_and_no_old_file_passes():
    chosen = random.Random(2205)
    before, _parts = rendered(chosen)
    stale = 0
    for _round in range(ROUNDS):
        files, parts = rendered(chosen)
        node = read_nodes(files["capacity.json"], "capacity.json")[HOST]
        printed = slurmd(files["nodes.conf"], files["gres.conf"])
        assert checks(HOST, node, printed, "")[0].status == "passed", (files, printed)
        # Nothing is lost: Slurm has as many devices as the GPUs do.
        devices = sum(len(instances) or 1 for instances, _counts in parts)
        assert len(found_by_slurmd(printed).devices) == devices
        if before["gres.conf"] != files["gres.conf"]:
            stale += 1
            for old in ("nodes.conf", "gres.conf"):
                mixed = {**files, old: before[old]}
                said = slurmd(mixed["nodes.conf"], mixed["gres.conf"])
                gres = offered(mixed["nodes.conf"])
                shown = f"Gres={gres}\nState=IDLE "
                failed = [one.name for one in checks(HOST, node, said, shown) if one.status == "failed"]
                # What slurmd says of a type that slurm.conf does not have was not recorded; no job can ask for it.
                unknown = set(types(mixed["gres.conf"])) - set(types(files["gres.conf"]))
                assert failed or unknown or before[old] == files[old], mixed
        before = files
    assert stale > ROUNDS / 2
