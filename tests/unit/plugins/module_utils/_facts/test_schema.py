# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.geometry import Geometry
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.state import profiles_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit, encode
from ansible_collections.gpufleet.nvidia.tests.unit.golden import corpus


def profile(name, starts, size):
    return {"name": name, "id": 0, "memory_mib": 1024, "max_instances": 64, "starts": starts, "size": size}


def gpus(*tables):
    return [{"index": index, "profiles": table} for index, table in enumerate(tables)]


def test_profiles_of_every_board_are_within_bounds():
    tables = [
        [
            profile(one.name, list(one.placements.starts), one.placements.size)
            for one in board.profiles
            if one.placements
        ]
        for board in BOARDS
    ]
    assert any(tables)
    for table in tables:
        # Sixteen GPUs with the same profiles count once.
        check_gpus(gpus(*[table] * 16))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([profile("1g.10gb", [0, 1], 0)], r"gpus\[0\].profiles\[0\].size: it must be at least 1"),
        ([profile("1g.10gb", [1, 0], 1)], r"gpus\[0\].profiles\[0\].starts: they must be in ascending order"),
        ([profile("1g.10gb", [0, 0], 1)], r"gpus\[0\].profiles\[0\].starts: they must be in ascending order"),
        ([profile("1g.10gb", [0, 60], 8)], r"60 and 8 memory slices from there exceed 64"),
        ([profile(f"1g.{n}gb", list(range(16)), 1) for n in range(1, 17)], r"more than 30,000 ways"),
        ([profile("1g.10gb", list(range(64)), 1)], r"gpus\[0\].profiles: they can be placed in more than"),
    ],
)
def test_profiles_that_no_gpu_has_are_not_taken_in(table, message):
    with pytest.raises(Unfit, match=message):
        check_gpus(gpus(table))


def test_two_instances_at_one_place_are_not_taken_in():
    instances = [
        {"id": number, "profile": "3g.40gb", "start": start, "size": 4} for number, start in enumerate((4, 0, 2))
    ]
    check_gpus([{"index": 0, "gpu_instances": instances[:2]}])
    with pytest.raises(Unfit, match=r"gpus\[0\].gpu_instances\[2\]: memory slices from 2 on belong to another"):
        check_gpus([{"index": 0, "gpu_instances": instances}])


def test_the_bound_is_of_all_gpus_of_a_host_together():
    tables = [[profile("1g.9gb", list(range(size)), 1)] for size in (12, 13, 14)]
    for table in tables:
        check_gpus(gpus(table))
    check_gpus(gpus(*tables))
    with pytest.raises(Unfit, match=r"gpus\[3\].profiles"):
        check_gpus(gpus(*tables, [profile("1g.9gb", list(range(11)), 1)]))


def test_a_profile_with_a_name_that_no_layout_can_ask_for_is_left_out():
    gpu = {"index": 0, "profiles": [profile("", [0], 1), profile("1g.5gb", [0, 1], 1), profile("1G.5GB", [0], 1)]}
    (found,) = profiles_of(gpu_view(gpu))
    assert found.name == "1g.5gb" and found.placements.starts == (0, 1)


def test_the_largest_table_that_is_taken_in_can_be_gone_through():
    table = [profile(f"1g.{number}gb", [number], 1) for number in range(1, 15)]
    check_gpus(gpus(table))
    shape = Geometry(profiles_of(gpu_view(gpus(table)[0])))
    assert len(shape.requests()) == 2**14


def fields_of(document, path=""):
    """Return the path of every field that a document has, whatever the names of its mappings and the places in its lists are."""
    if isinstance(document, dict):
        free = path.endswith(("packages", "runtimes", "units", "unknown", "monitors", "cgroup_drivers", "parameters"))
        for name, value in document.items():
            below = f"{path}.{'*' if free else name}"
            yield below
            if not path.endswith(".recorded") or name == "rolled_out":
                yield from fields_of(value, below)
    elif isinstance(document, list):
        for one in document:
            yield from fields_of(one, f"{path}[]")


@pytest.mark.parametrize("name", sorted(corpus.hosts()))
def test_the_view_has_every_field_that_a_host_sends(name):
    document = corpus.hosts()[name].facts
    view = json.loads(json.dumps(encode(view_of(document))))
    assert set(fields_of(document)) - set(fields_of(view)) <= {".pci[].class"}
