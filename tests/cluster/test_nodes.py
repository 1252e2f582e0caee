# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod gets exactly what was described: real kubelets, the real plugin and real pods on the three pools of examples/fleet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from demo import devices, wait_for
from hosts.progress import LabError
from releases import Releases

TRAINING, BATCH, SHARED = "training", "batch", "shared"
#: Rendered example to its pool and its resource. The first pool's runtime injects CDI devices, the others' are given volume mounts.
EXAMPLES = {
    "training-mig-1g-10gb": (TRAINING, "nvidia.com/mig-1g.10gb"),
    "training-mig-2g-20gb": (TRAINING, "nvidia.com/mig-2g.20gb"),
    "training-mig-3g-40gb": (TRAINING, "nvidia.com/mig-3g.40gb"),
    "batch-gpu": (BATCH, "nvidia.com/gpu"),
    "shared-gpu": (SHARED, "nvidia.com/gpu"),
}


def test_every_node_offers_what_is_rendered_and_nothing_else(example_fleet):
    expected = {name: node["resources"] for name, node in example_fleet.capacity["nodes"].items()}
    assert example_fleet.offered() == expected


@pytest.mark.parametrize("pool", [TRAINING, BATCH, SHARED])
def test_every_label_is_the_predicted_one(example_fleet, pool):
    node = example_fleet.node_of(pool)
    expected = example_fleet.expected_labels(node)
    wait_for(lambda: expected.keys() <= example_fleet.labels(node).keys(), 90)
    found = example_fleet.labels(node)
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize("example", EXAMPLES)
def test_pods_run_until_the_node_is_full_and_each_sees_exactly_its_device(example_fleet, example):
    pool, resource = EXAMPLES[example]
    node = example_fleet.node_of(pool)
    count = example_fleet.capacity["nodes"][node]["resources"][resource]
    example_fleet.fill(example, count + 1)
    try:
        wait_for(lambda: [pod["status"]["phase"] for pod in example_fleet.pods(example)].count("Running") == count, 300)
        pods = example_fleet.pods(example)
        running = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]
        (waiting,) = [pod for pod in pods if pod["status"]["phase"] != "Running"]
        (condition,) = [found for found in waiting["status"]["conditions"] if found["type"] == "PodScheduled"]
        assert f"Insufficient {resource}" in condition["message"]
        assert {pod["spec"].get("nodeName") for pod in pods if pod is not waiting} == {node}

        with ThreadPoolExecutor(max_workers=4) as threads:
            logs = list(threads.map(lambda name: example_fleet.kubectl("logs", name), running))
            entered = list(
                threads.map(lambda name: example_fleet.kubectl("exec", name, "--", "nvidia-smi", "-L"), running)
            )
        seen = [devices(log) for log in logs]
        assert seen == [devices(shown) for shown in entered], "from the entry point and by kubectl exec"
        assert {len(found) for found in seen} == {1}, "one device each"
        there = devices(example_fleet.lab("exec", node, "--", "nvidia-smi", "-L"))
        given = sorted(uuid for found in seen for uuid in found)
        if example == "shared-gpu":
            assert sorted(set(given)) == there, "every GPU"
            assert {given.count(uuid) for uuid in there} == {count // len(there)}, "as many on each"
        else:
            assert len(set(given)) == count, "nobody shares a device"
            assert set(given) <= set(there)
    finally:
        example_fleet.kubectl("delete", "pods", "-l", f"example={example}", "--force", "--grace-period=0")
        wait_for(lambda: not example_fleet.pods(example), 120)


@pytest.mark.by_name
def test_helm_test_asks_for_each_resource_and_fails_where_one_is_taken(example_fleet):
    releases = Releases(example_fleet)
    releases.own_chart("verification.deadlineSeconds=120")
    try:
        assert releases.helm_test() == [
            "batch-gpu",
            "shared-gpu",
            *(f"training-mig-{size}" for size in ("1g-10gb", "2g-20gb", "3g-40gb")),
        ]
        releases.own_chart("verification.deadlineSeconds=5")
        count = example_fleet.capacity["nodes"][example_fleet.node_of(BATCH)]["resources"]["nvidia.com/gpu"]
        example_fleet.fill("batch-gpu", count)
        wait_for(
            lambda: [pod["status"]["phase"] for pod in example_fleet.pods("batch-gpu")].count("Running") == count, 180
        )
        with pytest.raises(LabError, match="batch-gpu"):
            releases.helm_test("batch-gpu")
    finally:
        releases.remove_own_chart()
        example_fleet.kubectl(
            "delete", "pods", "-l", "example=batch-gpu", "--force", "--grace-period=0", "--ignore-not-found"
        )
        wait_for(lambda: not example_fleet.pods("batch-gpu"), 120)
