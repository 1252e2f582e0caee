# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods and their devices when the node goes away, and when its layout changes under them."""

from __future__ import annotations

import json

import pytest
import yaml
from demo import devices, wait_for

NODE = "gpu-training-1"
#: Example to how many pods of it run: on several GPUs, so that instances of all kinds are in use and others are not.
EXAMPLES = {"training-mig-1g-10gb": 3, "training-mig-2g-20gb": 2, "training-mig-3g-40gb": 2}
#: Takes the 2g instance of every GPU in exchange for two more of 1g.
NIGHT = [{"devices": "all", "instances": {"3g.40gb": 1, "1g.10gb": 4}}]


@pytest.fixture
def deployments(demo):
    """A Deployment of each rendered example, whose pods stay."""
    items = []
    for example, replicas in EXAMPLES.items():
        pod = demo.staying(demo.example(example))
        labels = {"example": example}
        del pod["spec"]["restartPolicy"]
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        }
        items.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": example}, "spec": spec})
    demo.kubectl("create", "-f", "-", text=yaml.safe_dump_all(items))
    try:
        wait_for(lambda: all_run(demo), 120)
        yield demo
    finally:
        demo.kubectl("delete", "deployments", *EXAMPLES, "--cascade=foreground", "--grace-period=1")


def living(demo, example):
    """Those that are neither over nor on their way out: a power cut leaves pods behind that the kubelet did not admit again."""
    return [
        pod
        for pod in demo.pods(example)
        if pod["status"]["phase"] == "Running"
        and not pod["metadata"].get("deletionTimestamp")
        and all(one["ready"] for one in pod["status"].get("containerStatuses", [{"ready": False}]))
    ]


def all_run(demo):
    return all(len(living(demo, example)) == count for example, count in EXAMPLES.items())


def seen(demo, example):
    """Each pod's UID and what it sees, by kubectl exec."""
    return {
        pod["metadata"]["uid"]: devices(demo.kubectl("exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L"))
        for pod in living(demo, example)
    }


def offered(demo):
    """Without the 0 that the kubelet keeps of a resource that is gone until it starts again."""
    return {name: count for name, count in demo.offered()[NODE].items() if count}


def expected(demo):
    entry = demo.capacity["nodes"][NODE]
    configuration = demo.capacity["configurations"][entry["configuration"]]
    return entry["resources"], {**configuration["node_labels"], **configuration["labels"]}


@pytest.mark.parametrize("event", ["reboot", "power-cut"])
def test_the_node_offers_the_same_again_and_every_pod_has_one_device_of_its_own(deployments, event):
    demo = deployments
    there = demo.lab("exec", NODE, "--", "nvidia-smi", "-L")
    started = {pod["metadata"]["name"]: starts(pod) for example in EXAMPLES for pod in living(demo, example)}
    demo.lab(event, NODE)
    # What ran before the reboot is not what runs now, although the API server says so until the kubelet has looked.
    wait_for(
        lambda: (
            all_run(demo)
            and not any(
                started.get(pod["metadata"]["name"]) == starts(pod)
                for example in EXAMPLES
                for pod in living(demo, example)
            )
        ),
        400,
    )
    resources, labels = expected(demo)
    wait_for(lambda: offered(demo) == resources, 120)
    found = demo.labels(NODE)
    assert {name: found.get(name) for name in labels} == labels
    assert demo.lab("exec", NODE, "--", "nvidia-smi", "-L") == there, "the same instances with the same UUIDs"
    given = [given for example in EXAMPLES for given in seen(demo, example).values()]
    assert {len(devices) for devices in given} == {1}
    assert len({uuid for (uuid,) in given}) == sum(EXAMPLES.values()), "nobody shares a device"
    for example in EXAMPLES:
        demo.fill(example, 1)
        try:
            demo.kubectl("wait", "--for=condition=Ready", "--timeout=60s", f"pod/{example}-0")
            (mine,) = devices(demo.kubectl("exec", f"{example}-0", "--", "nvidia-smi", "-L"))
            assert [mine] not in given
        finally:
            demo.kubectl("delete", "pod", f"{example}-0", "--force", "--grace-period=0")


def starts(pod):
    return [one["state"].get("running", {}).get("startedAt") for one in pod["status"]["containerStatuses"]]


def test_site_destroys_no_instance_that_the_kubelet_gave_to_a_pod(deployments):
    """The pods run no CUDA process, so that only the kubelet knows what they have. C(repartition) evicts them, C(site) refuses."""
    demo = deployments
    day = {example: seen(demo, example) for example in EXAMPLES}
    instances = demo.lab("exec", NODE, "--", "nvidia-smi", "-L")
    night = ("--limit", NODE, "--skip-tags", "cluster", "-e", json.dumps({"nvidia_mig_layout": NIGHT}))
    for playbook in (("site",), ("site", "--check"), ("plan",)):
        done = demo.run(*playbook, *night)
        said = " ".join(done.stdout.split())
        assert done.returncode != 0 and "cannot be reached without destroying an instance that is in use" in said, said[
            -3000:
        ]
        pods = [pod["metadata"]["name"] for pod in living(demo, "training-mig-2g-20gb")]
        assert all(f"pod default/{name} (nvidia.com/mig-2g.20gb)" in said for name in pods), said[-3000:]
        assert "gpufleet.nvidia.repartition" in said
    assert demo.lab("exec", NODE, "--", "nvidia-smi", "-L") == instances
    assert {example: seen(demo, example) for example in EXAMPLES} == day


def test_a_new_layout_evicts_only_pods_on_instances_that_go_and_the_way_back_too(deployments):
    """With the kubelet's own record of who holds what."""
    demo = deployments
    day = {example: seen(demo, example) for example in EXAMPLES}
    values = {"gpu_cluster_kubeconfig": demo.lab("kubeconfig").strip()}
    demo.play("repartition", "--limit", NODE, "-e", json.dumps({**values, "nvidia_mig_layout": NIGHT}))
    assert offered(demo) == {"nvidia.com/mig-1g.10gb": 32, "nvidia.com/mig-3g.40gb": 8}
    assert offered(demo) == expected(demo)[0], "the tree follows"
    night = {example: seen(demo, example) for example in EXAMPLES}
    kept = ("training-mig-1g-10gb", "training-mig-3g-40gb")
    assert {example: night[example] for example in kept} == {example: day[example] for example in kept}
    assert night["training-mig-2g-20gb"] == {}
    evicted = demo.pods("training-mig-2g-20gb")
    assert [pod["status"]["phase"] for pod in evicted] == ["Pending", "Pending"]
    assert not {pod["metadata"]["uid"] for pod in evicted} & day["training-mig-2g-20gb"].keys()

    demo.play("repartition", "--limit", NODE, "-e", json.dumps(values))
    wait_for(lambda: all_run(demo), 120)
    again = {example: seen(demo, example) for example in EXAMPLES}
    assert offered(demo) == {
        "nvidia.com/mig-1g.10gb": 16,
        "nvidia.com/mig-2g.20gb": 8,
        "nvidia.com/mig-3g.40gb": 8,
    }
    assert again["training-mig-3g-40gb"] == day["training-mig-3g-40gb"]
    assert sorted(len(found) for found in again["training-mig-2g-20gb"].values()) == [1, 1]
    assert len(again["training-mig-1g-10gb"]) == EXAMPLES["training-mig-1g-10gb"]
