# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""N GiB over M GPUs for any N and M by the consumable capacity of NVIDIA's own DRA driver 0.5.0 (alpha there, and in Kubernetes before 1.36).

The scheduler counts memory exactly. Nothing enforces it, and no CUDA client exists here that could take more. The nodes are of the newest Kubernetes without
a feature gate, because the scheduler of 1.34 gives shares of the first GPU of a node only.
"""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import yaml
from demo import devices, wait_for
from nodes.programs import KUBERNETES
from pool_nodes import SMALL

NODE, GPU = SMALL, "gpu.nvidia.com"
SEVEN, TWENTY = "memory-7gib-over-1", "memory-20gib-over-2"
DESCRIBED = {
    "nvidia_sharing_backend": "dra",
    "nvidia_sharing_memory_slice": "4GiB",
    "gpu_kubernetes_version": KUBERNETES,
    "gpu_kubernetes_requests": [{"memory": "7GiB"}, {"memory": "20GiB", "gpus": 2}],
}


@pytest.fixture(scope="module")
def nodes(make_pools):
    found = make_pools({"memory": [NODE]})
    found.describe(DESCRIBED)
    found.site()
    return found


def start(nodes, example, count):
    """Pods of a rendered example that stay, each with a claim of its own."""
    template, pod = yaml.safe_load_all((nodes.tree / "examples" / f"{example}.yaml").read_text())
    pods = [nodes.staying(copy.deepcopy(pod), number) for number in range(count)]
    nodes.kubectl("create", "-f", "-", text=yaml.safe_dump_all([template, *pods]))


def running(nodes, example, count):
    """Wait until exactly so many pods run, and return by the name of each which GPUs it sees."""

    def phases():
        return [pod["status"]["phase"] for pod in nodes.pods(example)]

    wait_for(lambda: phases().count("Running") == count, 240)
    names = [pod["metadata"]["name"] for pod in nodes.pods(example) if pod["status"]["phase"] == "Running"]
    # Its container is there, but may not have written yet.
    return {name: wait_for(lambda name=name: devices(nodes.kubectl("logs", name)), 60) for name in names}


def refused(nodes, example):
    """What the scheduler says of the pods that wait."""
    pending = [pod for pod in nodes.pods(example) if pod["status"]["phase"] == "Pending"]
    return [
        condition["message"]
        for pod in pending
        for condition in pod["status"].get("conditions", [])
        if condition.get("reason") == "Unschedulable"
    ]


def stop(nodes, example):
    nodes.kubectl("delete", "pods", "-l", f"example={example}", "--force", "--grace-period=0")
    wait_for(lambda: not nodes.get("resourceclaims")["items"], 120)
    nodes.kubectl("delete", "resourceclaimtemplate", example)


def test_the_node_offers_what_is_described(nodes):
    assert nodes.capacity["nodes"][NODE]["devices"] == {GPU: 2}
    wait_for(lambda: nodes.get("resourceslices")["items"], 180)
    found = nodes.report("inspect")
    assert (found["offered"][NODE], found["mismatches"]) == ({GPU: 2}, {})


def test_pods_of_seven_gib_fit_as_often_as_the_memory_of_each_gpu_allows(nodes):
    each = nodes.capacity["configurations"]["memory"]["slices"][GPU]["memory_mib"] // (7 * 1024)
    assert each == 6
    start(nodes, SEVEN, 2 * each + 1)
    seen = running(nodes, SEVEN, 2 * each)
    assert Counter(gpu for gpus in seen.values() for gpu in gpus) == dict.fromkeys(
        {gpu for gpus in seen.values() for gpu in gpus}, each
    )
    assert len({gpu for gpus in seen.values() for gpu in gpus}) == 2
    (message,) = wait_for(lambda: refused(nodes, SEVEN), 60)
    assert "cannot allocate all claims" in message
    shares = [share for gpu in nodes.report("inspect")["ledger"][NODE]["gpus"] for share in gpu["shares"]]
    assert [len(share["pods"]) for share in shares] == [each, each]
    assert {pod for share in shares for pod in share["pods"]} == {f"default/{name}" for name in seen}
    stop(nodes, SEVEN)


def test_a_pod_of_twenty_gib_over_two_gpus_has_ten_on_each(nodes):
    start(nodes, TWENTY, 5)
    seen = running(nodes, TWENTY, 4)
    assert {len(set(gpus)) for gpus in seen.values()} == {2}
    wait_for(lambda: refused(nodes, TWENTY), 60)
    claims = nodes.get("resourceclaims")["items"]
    taken = Counter()
    for claim in claims:
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []):
            taken[result["device"]] += int(result["consumedCapacity"]["memory"].removesuffix("Gi"))
    assert taken == {"gpu-0": 40, "gpu-1": 40}
    stop(nodes, TWENTY)
