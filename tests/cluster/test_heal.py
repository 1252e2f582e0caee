# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repair on a node in service: only the pods on the GPU that is reset leave. A real API server, with the rights of docs/upgrade.md.

The kubelets are stand-ins that give out devices and write the checkpoint as a kubelet does; the GPUs are virtual.
"""

from __future__ import annotations

import json

import pytest
from fleet import NODES, OLD, documented_condition_role, documented_role
from stand_ins import CHECKPOINT

FIRST, SECOND, THIRD = NODES
MIG = "nvidia.com/mig-1g.10gb"
#: Two instances of 1g on each of the two GPUs.
PODS = 4
CONDITION = "GpusHealthy"


@pytest.fixture
def operator(fleet):
    fleet.plane.allow_operator(documented_role())
    fleet.plane.allow_operator(documented_condition_role())
    yield {
        "gpu_upgrade_kubeconfig": str(fleet.plane.operator),
        "gpu_upgrade_evict_timeout": 60,
        "gpu_heal_node_condition": CONDITION,
        "driver": OLD,
    }
    for node in NODES:
        fleet.sh(node, "rm -f /var/lib/gpufleet/heal.json; virtual-gpu recovery --gpu 1 --action 0")
        keys = ("state", "since", "failed-reason", "initial-unschedulable")
        fleet.plane.kubectl("annotate", "node", node, *(f"gpufleet.github.io/heal-{key}-" for key in keys))
    fleet.forget()


def running(fleet, name):
    """UID of every pod that runs, with its node."""
    found = {pod["metadata"]["uid"]: pod for pod in fleet.stand_ins.pods(app=name)}
    return {
        uid: pod["spec"].get("nodeName")
        for uid, pod in found.items()
        if (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    }


def on_gpu(fleet, node, index):
    """UIDs of the pods to which a device of this GPU was given."""
    shown = json.loads(fleet.sh(node, "virtual-gpu show"))["gpus"][index]
    devices = {part["uuid"] for one in shown["gpu_instances"] for part in one["compute_instances"]}
    entries = json.loads(fleet.sh(node, f"cat {CHECKPOINT}"))["Data"]["PodDeviceEntries"]
    return {
        entry["PodUID"]
        for entry in entries
        for listed in (entry["DeviceIDs"].values() if isinstance(entry["DeviceIDs"], dict) else [entry["DeviceIDs"]])
        if devices.intersection(listed)
    }


@pytest.fixture
def train(fleet, operator):
    """Pods on every 1g instance of the first node, and one that uses no GPU."""
    for other in (SECOND, THIRD):
        fleet.plane.kubectl("cordon", other)
    fleet.stand_ins.workload("train", PODS, MIG)
    fleet.stand_ins.workload("web", 1, "cpu")
    fleet.wait_for(lambda: len(running(fleet, "train")) == PODS and len(running(fleet, "web")) == 1)
    for other in (SECOND, THIRD):
        fleet.plane.kubectl("uncordon", other)
    return operator


def healthy(fleet, node):
    """The condition of the node: status and reason."""
    found = [one for one in fleet.stand_ins.node(node)["status"]["conditions"] if one["type"] == CONDITION]
    return [(one["status"], one["reason"]) for one in found]


def allocatable(fleet, node):
    return {key: value for key, value in fleet.stand_ins.node(node)["status"]["allocatable"].items() if "nvidia" in key}


def test_only_the_pods_on_the_gpu_that_is_reset_leave(fleet, train):
    before, web, offered = running(fleet, "train"), running(fleet, "web"), allocatable(fleet, FIRST)
    fleet.sh(FIRST, "virtual-gpu recovery --gpu 1 --action 1")
    broken, others = on_gpu(fleet, FIRST, 1), on_gpu(fleet, FIRST, 0)
    assert len(broken) == len(others) == 2 and broken | others == set(before)

    shown = fleet.run("heal", "--limit", FIRST, "--check", **train)
    assert shown.status == 0, shown.output[-3000:]
    assert f"{FIRST}: reset gpu" in shown.output and "Pods that leave: default/train-" in shown.output
    assert running(fleet, "train") == before and not fleet.cordoned(FIRST)

    done = fleet.run("heal", "--limit", FIRST, **train)
    assert done.status == 0, done.output[-4000:]
    fleet.wait_for(lambda: len(running(fleet, "train")) == PODS)
    after = running(fleet, "train")
    assert others <= set(after), "they kept running, with their UIDs"
    assert not broken & set(after)
    assert running(fleet, "web") == web
    assert not fleet.cordoned(FIRST) and fleet.resumed(FIRST)
    assert allocatable(fleet, FIRST) == offered
    assert fleet.stand_ins.annotations(FIRST)["gpufleet.github.io/heal-state"] == "done"
    assert healthy(fleet, FIRST) == [("True", "Repaired")]


def test_a_pod_that_must_not_leave_keeps_the_gpu_and_the_node_in_service(fleet, train):
    fleet.sh(FIRST, "virtual-gpu recovery --gpu 1 --action 1")
    before = running(fleet, "train")
    fleet.plane.kubectl("create", "-f", "-", text=json.dumps({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "train"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "train"}}},
    }))  # fmt: skip
    refused = fleet.run("heal", "--limit", FIRST, **{**train, "gpu_upgrade_evict_timeout": 8})
    assert refused.status != 0 and "Failed to evict pods" in refused.output, refused.output[-3000:]
    assert running(fleet, "train") == before
    assert not fleet.cordoned(FIRST) and fleet.resumed(FIRST)
    marked = fleet.stand_ins.annotations(FIRST)
    assert marked["gpufleet.github.io/heal-state"] == "refused"
    assert healthy(fleet, FIRST) == [("False", "NotRepaired")]


def test_what_is_for_people_stays_cordoned_and_pods_on_the_other_gpu_go_on(fleet, train):
    others = on_gpu(fleet, FIRST, 0)
    # A recovery action that this release does not know.
    fleet.sh(FIRST, "virtual-gpu recovery --gpu 1 --action 9")
    run = fleet.run("heal", "--limit", FIRST, **train)
    assert run.status != 0 and "Handed over to people" in run.output, run.output[-3000:]
    assert fleet.cordoned(FIRST)
    assert others <= set(running(fleet, "train"))
    assert healthy(fleet, FIRST) == [("False", "HandedOver")]
    reason = fleet.stand_ins.annotations(FIRST)["gpufleet.github.io/heal-failed-reason"]
    assert "asks for something that this release does not know (value_9)" in reason
    fleet.sh(FIRST, "test -s $(ls -d /var/lib/gpufleet/bundles/*)/facts.json")

    fleet.sh(FIRST, "virtual-gpu recovery --gpu 1 --action 0")
    back = fleet.run("heal", "--limit", FIRST, gpu_heal_retry=True, **train)
    assert back.status == 0, back.output[-3000:]
    assert not fleet.cordoned(FIRST)
