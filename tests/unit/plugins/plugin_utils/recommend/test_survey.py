# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet as it is, from facts documents."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.demand import described, wanted
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.problem import (
    FleetGpu,
    Group,
    HeldInstance,
    Problem,
    check,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.survey import SurveyedHost, survey
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

NAME, H100 = "NVIDIA H100 80GB HBM3", "h100-80gb-sxm"


def gpu(index, *instances, enabled=True, **more):
    """Return a GPU; an instance is (profile, start, size, names of its compute instances)."""
    parts = [
        {
            "id": number,
            "profile": profile,
            "start": start,
            "size": size,
            "compute_instances": [
                {"id": place, "uuid": f"MIG-{index}-{start}-{place}", "profile": name, "processes": []}
                for place, name in enumerate(inside)
            ],
        }
        for number, (profile, start, size, *inside) in enumerate(instances)
    ]
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": NAME,
        "board": H100,
        "memory_mib": 81559,
        "mig": {"current": enabled, "pending": enabled},
        "processes": [],
        "gpu_instances": parts,
        **more,
    }


def host(name, *gpus, **more):
    return SurveyedHost(name, "train", seen({"gpus": list(gpus)}), **more)


THREE, ONE = ("3g.40gb", 4, 4, "3g.40gb"), ("1g.10gb", 0, 1, "1g.10gb")


def test_gpus_in_the_same_state_are_one_group():
    users = {"MIG-0-4-0": ["jobs/a"]}
    found = survey(
        [
            host("b", gpu(0, ONE, THREE), gpu(1, enabled=False), users=users, priorities={"jobs/a": 5}),
            host("a", gpu(0, THREE, ONE), gpu(1, ONE, THREE), users=users, priorities={"jobs/a": 5}),
        ]
    )
    held = (HeldInstance("1g.10gb", 0, 1), HeldInstance("3g.40gb", 4, 4, (5,)))
    idle = (HeldInstance("1g.10gb", 0, 1), HeldInstance("3g.40gb", 4, 4))
    assert {group: tuple(zip(group.hosts, group.indices)) for group in found.groups} == {
        Group((FleetGpu("train", H100, True, held),), 2): (("a", (0,)), ("b", (0,))),
        Group((FleetGpu("train", H100, True, idle),), 1): (("a", (1,)),),
        Group((FleetGpu("train", H100),), 1): (("b", (1,)),),
    }
    assert found.pools == {"train": [H100]} and not found.left_out
    demand, _pods = wanted(described([{"profile": "2g.20gb", "count": 2}]), found.pools, found.boards)
    check(Problem(found.boards, found.groups, tuple(demand)))


def test_a_node_whose_strategy_is_single_is_one_unit_whatever_the_order_of_its_gpus():
    full, empty = gpu(0, ONE), gpu(1)
    turned = host("b", gpu(0), gpu(1, ONE), single=True)
    found = survey([host("a", full, empty, single=True), turned])
    assert [(group.count, len(group.states)) for group in found.groups] == [(2, 2)]
    units = sorted(zip(found.groups[0].hosts, found.groups[0].indices))
    assert units in ([("a", (0, 1)), ("b", (1, 0))], [("a", (1, 0)), ("b", (0, 1))])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (gpu(0, THREE, mig={}), "its MIG mode is not known"),
        (gpu(0, ("3g.40gb", 4, 4, "1c.3g.40gb", "1c.3g.40gb")), "compute instances divide its instance 3g.40gb at 4:4"),
        (gpu(0, ("9g.90gb", 0, 1, "9g.90gb")), "no table has its instance 9g.90gb at 0:1"),
        (gpu(0, enabled=False, processes=None), "NVML reports no processes, so the GPU may be in use"),
    ],
)
def test_what_cannot_be_planned_is_left_out_with_the_reason(changed, reason):
    found = survey([host("a", changed, gpu(1))])
    assert list(found.left_out.values()) == [reason]
    assert [(group.hosts, group.indices) for group in found.groups] == [(("a",), ((1,),))]
    assert survey([host("b"), host("a", gpu(0))]).left_out == {"b": "no driver reports a GPU of it"}
    alone = survey([host("a", changed, gpu(1), single=True)])
    assert len(alone.left_out) == 2 and not alone.groups
