# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod gets exactly what was described: real kubelets, the real plugin and real pods on the demo's three pools."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from demo import devices, wait_for
from hosts.progress import LabError
from releases import Releases

TRAINING, BATCH, SHARED = "gpu-training-1", "gpu-batch-1", "gpu-shared-1"
#: Rendered example to its node and its resource. The first pool's runtime injects CDI devices, the others' are given volume mounts.
EXAMPLES = {
    "training-mig-1g-10gb": (TRAINING, "nvidia.com/mig-1g.10gb"),
    "training-mig-2g-20gb": (TRAINING, "nvidia.com/mig-2g.20gb"),
    "training-mig-3g-40gb": (TRAINING, "nvidia.com/mig-3g.40gb"),
    "batch-gpu": (BATCH, "nvidia.com/gpu"),
    "shared-gpu": (SHARED, "nvidia.com/gpu"),
}


def test_every_node_offers_what_is_rendered_and_nothing_else(demo):
    expected = {name: node["resources"] for name, node in demo.capacity["nodes"].items()}
    assert demo.offered() == expected


@pytest.mark.parametrize("node", [TRAINING, BATCH, SHARED])
def test_every_label_is_the_predicted_one(demo, node):
    expected = demo.expected_labels(node)
    wait_for(lambda: expected.keys() <= demo.labels(node).keys(), 90)
    found = demo.labels(node)
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize("example", EXAMPLES)
def test_pods_run_until_the_node_is_full_and_each_sees_exactly_its_device(demo, example):
    node, resource = EXAMPLES[example]
    count = demo.capacity["nodes"][node]["resources"][resource]
    demo.fill(example, count + 1)
    try:
        wait_for(lambda: [pod["status"]["phase"] for pod in demo.pods(example)].count("Running") == count, 300)
        pods = demo.pods(example)
        running = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]
        (waiting,) = [pod for pod in pods if pod["status"]["phase"] != "Running"]
        (condition,) = [found for found in waiting["status"]["conditions"] if found["type"] == "PodScheduled"]
        assert f"Insufficient {resource}" in condition["message"]
        assert {pod["spec"].get("nodeName") for pod in pods if pod is not waiting} == {node}

        with ThreadPoolExecutor(max_workers=4) as pool:
            logs = list(pool.map(lambda name: demo.kubectl("logs", name), running))
            entered = list(pool.map(lambda name: demo.kubectl("exec", name, "--", "nvidia-smi", "-L"), running))
        seen = [devices(log) for log in logs]
        assert seen == [devices(shown) for shown in entered], "from the entry point and by kubectl exec"
        assert {len(found) for found in seen} == {1}, "one device each"
        there = devices(demo.lab("exec", node, "--", "nvidia-smi", "-L"))
        given = sorted(uuid for found in seen for uuid in found)
        if example == "shared-gpu":
            assert sorted(set(given)) == there, "every GPU"
            assert {given.count(uuid) for uuid in there} == {count // len(there)}, "as many on each"
        else:
            assert len(set(given)) == count, "nobody shares a device"
            assert set(given) <= set(there)
    finally:
        demo.kubectl("delete", "pods", "-l", f"example={example}", "--force", "--grace-period=0")
        wait_for(lambda: not demo.pods(example), 120)


def test_helm_test_asks_for_each_resource_and_fails_where_one_is_taken(demo):
    releases = Releases(demo)
    releases.own_chart("verification.deadlineSeconds=120")
    try:
        assert releases.helm_test() == [
            "batch-gpu",
            "shared-gpu",
            *(f"training-mig-{size}" for size in ("1g-10gb", "2g-20gb", "3g-40gb")),
        ]
        releases.own_chart("verification.deadlineSeconds=5")
        count = demo.capacity["nodes"][BATCH]["resources"]["nvidia.com/gpu"]
        demo.fill("batch-gpu", count)
        wait_for(lambda: [pod["status"]["phase"] for pod in demo.pods("batch-gpu")].count("Running") == count, 180)
        with pytest.raises(LabError, match="batch-gpu"):
            releases.helm_test("batch-gpu")
    finally:
        releases.remove_own_chart()
        demo.kubectl("delete", "pods", "-l", "example=batch-gpu", "--force", "--grace-period=0", "--ignore-not-found")
        wait_for(lambda: not demo.pods("batch-gpu"), 120)
