# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person is shown of a host's GPUs, from the facts document."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.inspection import (
    Resources,
    gpu_row,
    host_table,
    imex_table,
    resource_table,
    settings_table,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.usage import node_usage, users_on_host
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen, seen_gpu


def gpu(index=0, **changes):
    uuid = f"GPU-{index}"
    return {"index": index, "uuid": uuid, "name": "NVIDIA L40S", "memory_mib": 46068, "processes": [], **changes}


def instance(number, profile, size, start, **inner):
    return {
        "id": number,
        "profile": profile,
        "size": size,
        "start": start,
        "processes": [],
        "compute_instances": [{"id": 0, "uuid": f"MIG-{number}", "profile": profile, "processes": [], **inner}],
    }


def usage_of(*gpus, replicas=1):
    """Who holds what of GPUs, by their facts."""
    facts = {"gpus": list(gpus)}
    return node_usage("n", "", seen(facts), {"nvidia.com/gpu": replicas}, (), (), users_on_host(seen(facts)))


ON = {"supported": True, "current": True, "pending": True}
MPS = {"mode": "mps", "replicas": 11, "memory_mib": 4096, "confirmed": True}
PROCESS = {"pid": 1, "memory_mib": 1536}
POD = {"pod": "jobs/notebook", "resource": "nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("entry", "sharing", "divided_into", "taken", "memory"),
    [
        (gpu(), {}, "whole", "0/1", "0 GiB of 45 GiB"),
        (gpu(processes=[PROCESS]), {}, "whole", "1/1", "1.5 GiB of 45 GiB"),
        # A pod that was given it, and has no CUDA process yet.
        (gpu(allocations=[POD]), {}, "whole", "1/1", "0 GiB of 45 GiB"),
        (gpu(memory_mib=None, processes=None), {}, "whole", "0/1", "0 GiB"),
        (gpu(processes=[PROCESS]), MPS, "11 MPS clients of 4 GiB", "1/11", "1.5 GiB of 45 GiB"),
        (gpu(processes=[PROCESS], allocations=[POD, POD]), MPS, "11 MPS clients of 4 GiB", "2/11", "1.5 GiB of 45 GiB"),
        (
            gpu(),
            {**MPS, "thread_percentage": 9},
            "11 MPS clients of 4 GiB, 9% of the threads each",
            "0/11",
            "0 GiB of 45 GiB",
        ),
        (gpu(), {**MPS, "thread_percentage": 100}, "11 MPS clients of 4 GiB", "0/11", "0 GiB of 45 GiB"),
        (gpu(), {"mode": "time_slicing", "replicas": 4}, "4 time slices (expected)", "0/4", "0 GiB of 45 GiB"),
        (gpu(), {"mode": "mps", "replicas": 1}, "whole", "0/1", "0 GiB of 45 GiB"),
        (gpu(mig={"current": False, "pending": True}), {}, "whole, MIG mode pending", "0/1", "0 GiB of 45 GiB"),
        (gpu(mig=ON), {}, "MIG, no instances", "0/0 instances", "0 GiB of 45 GiB"),
        (
            gpu(mig={"current": True, "pending": False}),
            {},
            "MIG, no instances, MIG mode pending",
            "0/0 instances",
            "0 GiB of 45 GiB",
        ),
        (
            gpu(
                mig=ON,
                gpu_instances=[
                    instance(7, "1g.10gb", 1, 4, allocations=[POD]),
                    instance(1, "3g.40gb", 4, 0),
                    instance(8, "1g.10gb", 1, 5, processes=[PROCESS]),
                ],
            ),
            MPS,
            "1 x 3g.40gb + 2 x 1g.10gb",
            "2/3 instances",
            "0 GiB of 45 GiB",
        ),
    ],
)
def test_one_gpu(entry, sharing, divided_into, taken, memory):
    node = usage_of(entry, replicas=sharing.get("replicas", 1))
    assert gpu_row(seen_gpu(entry), sharing, node.gpus[0]) == ("NVIDIA L40S", divided_into, taken, memory)


def test_a_gpu_without_name_goes_by_its_board():
    for entry, name in ((gpu(name=None, board="l40s-48gb"), "l40s-48gb"), (gpu(name=None), "unknown")):
        assert gpu_row(seen_gpu(entry), {}, usage_of(entry).gpus[0])[0] == name


def test_equal_neighbours_are_one_line_and_others_are_not():
    facts = {
        "driver": {"loaded_version": "580.178.04"},
        "gpus": [gpu(0), gpu(1), gpu(2, processes=[PROCESS]), gpu(3)],
    }
    lines = host_table({"gpu-1": seen(facts)}, {}, {"gpu-1": usage_of(*facts["gpus"])}).splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["gpu-1", "580.178.04", "0-1"],
        ["gpu-1", "580.178.04", "2"],
        ["gpu-1", "580.178.04", "3"],
    ]


def test_a_host_whose_gpus_are_not_known_is_shown_with_the_reason():
    bare = {
        "driver": {"loaded_version": None},
        "nvml": {"reason": "libnvidia-ml.so.1 is not installed"},
        "gpus": None,
        "pci": [{"kind": "gpu"}, {"kind": "nvswitch"}],
    }
    shown = host_table({"bare": seen(bare), "none": seen({})}, {}, {"bare": usage_of(), "none": usage_of()})
    assert "bare  not loaded  1 on PCI  -      unknown: libnvidia-ml.so.1 is not installed" in shown
    assert "unknown: no NVIDIA GPU" in shown


def test_without_a_cluster_resources_are_expected_and_sorted():
    shown = resource_table(
        {
            "a": Resources("a", "training", {"nvidia.com/mig-3g.40gb": 8, "nvidia.com/mig-1g.10gb": 16}),
            "b": Resources("b", "spare", {}),
            "c": Resources("c", "", None),
        }
    ).splitlines()
    assert shown[0] == "HOST  POOL      EXPECTED IN THE CLUSTER"
    assert shown[1] == "a     training  nvidia.com/mig-1g.10gb: 16, nvidia.com/mig-3g.40gb: 8"
    assert shown[2] == "b     spare     none"
    assert shown[3] == "c     unknown   unknown"
    assert shown[4].startswith("The cluster was not read")


GPUS = {"nvidia.com/gpu": 22}


@pytest.mark.parametrize(
    ("expected", "offered", "mismatches", "shown"),
    [
        (GPUS, GPUS, [], ["nvidia.com/gpu: 22", "nvidia.com/gpu: 22", "yes"]),
        (GPUS, {"nvidia.com/gpu": 24}, ["nvidia.com/gpu: 24 instead of 22"], ["nvidia.com/gpu: 24", "nvidia.com/gpu: 22", "MISMATCH"]),
        (GPUS, {}, ["nvidia.com/gpu: 0 instead of 22"], ["none", "nvidia.com/gpu: 22", "MISMATCH"]),
        ({}, GPUS, ["nvidia.com/gpu: 22 instead of 0"], ["nvidia.com/gpu: 22", "none", "MISMATCH"]),
        (GPUS, None, ["the cluster has no node n"], ["no node n", "nvidia.com/gpu: 22", "MISMATCH"]),
        (None, GPUS, [], ["nvidia.com/gpu: 22", "unknown", "unknown"]),
        ({}, {}, [], ["none", "none", "yes"]),
    ],
)  # fmt: skip
def test_what_the_cluster_offers_is_shown_beside_what_is_expected(expected, offered, mismatches, shown):
    entry = Resources("n", "shared", expected, True, offered)
    assert entry.mismatches == mismatches
    assert entry.confirmed is (shown[-1] == "yes")
    header, row, *rest = resource_table({"h": entry}).splitlines()
    assert [cell.strip() for cell in header.split("  ") if cell] == [
        "HOST", "POOL", "OFFERED BY THE CLUSTER", "EXPECTED", "AS EXPECTED",
    ]  # fmt: skip
    assert [cell.strip() for cell in row.split("  ") if cell] == ["h", "shared", *shown]
    assert bool(rest) is bool(mismatches)


SETTINGS = {
    "power_w": {"limit": 500, "default": 700},
    "ecc": {"current": True, "pending": False},
    "clocks_mhz": {"application": [2619, 1980], "default": [2619, 1980], "locked_graphics": [1200, 1500]},
}


def test_settings_are_shown_of_hosts_that_keep_some():
    facts = {
        "recorded": {"settings": {"power_limit": 500}},
        "gpus": [gpu(0, settings=SETTINGS), gpu(1, settings=SETTINGS)],
    }
    shown = settings_table(
        {"gpu01": seen(facts), "gpu02": seen({**facts, "recorded": {"settings": None}})}
    ).splitlines()
    assert len(shown) == 2
    assert shown[1].split("  ")[:2] == ["gpu01", "0-1"]
    for text in ("500 W", "1200 to 1500 MHz", "not locked", "the board's", "on, off after the next reset or reboot"):
        assert text in shown[1]
    assert settings_table({"gpu02": seen({"gpus": [gpu()]})}) == ""


@pytest.mark.parametrize(
    ("imex", "shown"),
    [
        (
            {"active": True, "enabled": True, "nodes": ["10.0.0.1"], "version": "580.178.04"},
            ["runs", "580.178.04", "580.126.09", "1"],
        ),
        ({"active": False, "masked": True}, ["masked", "not", "installed", "580.126.09", "none"]),
        ({"active": True, "masked": True, "nodes": []}, ["masked,", "runs", "not", "installed", "580.126.09", "0"]),
        ({"active": False}, ["does", "not", "run,", "not", "at", "boot", "not", "installed", "580.126.09", "none"]),
        ({"active": None}, ["unknown", "not", "installed", "580.126.09", "none"]),
    ],
)
def test_imex_is_shown_of_the_hosts_of_racks(imex, shown):
    facts = {"driver": {"loaded_version": "580.126.09"}, "fabric": {"imex": imex}}
    lines = imex_table({"gpu01": seen(facts), "gpu02": seen({"fabric": {}})}).splitlines()
    assert [line.split() for line in lines[1:]] == [["gpu01", *shown]]
    assert imex_table({"gpu02": seen({})}) == ""
