# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repair on a real node in service: only the pods on the GPU that is reset leave. With the rights of docs/upgrade.md; the GPUs are virtual."""

from __future__ import annotations

import json

import pytest
from fleet import NEW, NODES, OLD, documented_condition_role, documented_role

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
        "gpu_cluster_kubeconfig": str(fleet.plane.operator),
        "gpu_node_evict_timeout": 60,
        "gpu_heal_node_condition": CONDITION,
        "driver": OLD,
    }
    for node in NODES:
        fleet.sh(node, "rm -f /var/lib/gpufleet/heal.json; virtual-gpu recovery --gpu 1 --action 0")
        keys = ("state", "since", "failed-reason", "initial-unschedulable")
        fleet.plane.kubectl("annotate", "node", node, *(f"gpufleet.github.io/heal-{key}-" for key in keys))
    fleet.forget()


def on_gpu(fleet, node, index):
    """UIDs of the pods to which a device of this GPU was given."""
    shown = json.loads(fleet.sh(node, "virtual-gpu show"))["gpus"][index]
    devices = {part["uuid"] for one in shown["gpu_instances"] for part in one["compute_instances"]}
    return {uid for uid, held in fleet.held(node).items() if held & devices}


@pytest.fixture
def train(fleet, operator):
    """Pods on every 1g instance of the first node, and one that uses no GPU."""
    for other in (SECOND, THIRD):
        fleet.plane.kubectl("cordon", other)
    fleet.workloads.workload("train", PODS, MIG)
    fleet.workloads.workload("web", 1)
    fleet.wait_for(lambda: len(fleet.workloads.running("train")) == PODS and len(fleet.workloads.running("web")) == 1)
    for other in (SECOND, THIRD):
        fleet.plane.kubectl("uncordon", other)
    return operator


def healthy(fleet, node):
    """The condition of the node: status and reason."""
    found = [one for one in fleet.workloads.node(node)["status"]["conditions"] if one["type"] == CONDITION]
    return [(one["status"], one["reason"]) for one in found]


def test_only_the_pods_on_the_gpu_that_is_reset_leave(fleet, train):
    workloads = fleet.workloads
    before, web, offered = workloads.running("train"), workloads.running("web"), workloads.offered(FIRST)
    fleet.sh(FIRST, "virtual-gpu recovery --gpu 1 --action 1")
    broken, others = on_gpu(fleet, FIRST, 1), on_gpu(fleet, FIRST, 0)
    assert len(broken) == len(others) == 2 and broken | others == set(before)

    shown = fleet.run("heal", "--limit", FIRST, "--check", **train)
    assert shown.status == 0, shown.output[-3000:]
    assert f"{FIRST}: reset gpu" in shown.output and "Pods that leave: default/train-" in shown.output
    assert fleet.workloads.running("train") == before and not fleet.cordoned(FIRST)

    done = fleet.run("heal", "--limit", FIRST, **train)
    assert done.status == 0, done.output[-4000:]
    fleet.wait_for(lambda: len(fleet.workloads.running("train")) == PODS)
    after = fleet.workloads.running("train")
    assert others <= set(after), "they kept running, with their UIDs"
    assert not broken & set(after)
    assert fleet.workloads.running("web") == web
    assert not fleet.cordoned(FIRST) and fleet.resumed(FIRST)
    assert fleet.workloads.offered(FIRST) == offered
    assert fleet.workloads.annotations(FIRST)["gpufleet.github.io/heal-state"] == "done"
    assert healthy(fleet, FIRST) == [("True", "Repaired")]


def test_a_pod_that_must_not_leave_keeps_the_gpu_and_the_node_in_service(fleet, train):
    fleet.sh(FIRST, "virtual-gpu recovery --gpu 1 --action 1")
    before = fleet.workloads.running("train")
    fleet.plane.kubectl("create", "-f", "-", text=json.dumps({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "train"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "train"}}},
    }))  # fmt: skip
    refused = fleet.run("heal", "--limit", FIRST, **{**train, "gpu_node_evict_timeout": 8})
    assert refused.status != 0 and "Failed to evict pods" in refused.output, refused.output[-3000:]
    assert fleet.workloads.running("train") == before
    assert not fleet.cordoned(FIRST) and fleet.resumed(FIRST)
    marked = fleet.workloads.annotations(FIRST)
    assert marked["gpufleet.github.io/heal-state"] == "refused"
    assert healthy(fleet, FIRST) == [("False", "NotRepaired")]


def test_what_is_for_people_stays_cordoned_and_pods_on_the_other_gpu_go_on(fleet, train):
    others = on_gpu(fleet, FIRST, 0)
    # A recovery action that this release does not know.
    fleet.sh(FIRST, "virtual-gpu recovery --gpu 1 --action 9")
    run = fleet.run("heal", "--limit", FIRST, **train)
    assert run.status != 0 and "Handed over to people" in run.output, run.output[-3000:]
    assert fleet.cordoned(FIRST)
    assert others <= set(fleet.workloads.running("train"))
    assert healthy(fleet, FIRST) == [("False", "HandedOver")]
    reason = fleet.workloads.annotations(FIRST)["gpufleet.github.io/heal-failed-reason"]
    assert "asks for something that this release does not know (value_9)" in reason
    fleet.sh(FIRST, "test -s $(ls -d /var/lib/gpufleet/bundles/*)/facts.json")

    fleet.sh(FIRST, "virtual-gpu recovery --gpu 1 --action 0")
    back = fleet.run("heal", "--limit", FIRST, gpu_heal_retry=True, **train)
    assert back.status == 0, back.output[-3000:]
    assert not fleet.cordoned(FIRST)


def test_what_the_device_plugin_took_away_after_an_error_is_offered_again(fleet, operator):
    """The plugin 0.19 marks one device per resource of a GPU with a critical Xid unhealthy, and never takes it back (k8s-device-plugin issue 1014)."""
    offered = fleet.workloads.offered(FIRST)
    left = {resource: count - 1 for resource, count in offered.items()}
    fleet.sh(FIRST, "virtual-gpu xid --gpu 1 --number 48 && virtual-gpu recovery --gpu 1 --action 1 --until reset")
    fleet.wait_for(lambda: fleet.workloads.offered(FIRST) == left)
    done = fleet.run("heal", "--limit", FIRST, **operator)
    assert done.status == 0, done.output[-3000:]
    assert fleet.workloads.offered(FIRST) == offered, "before the node is in service again"
    assert not fleet.cordoned(FIRST)
    assert healthy(fleet, FIRST) == [("True", "Repaired")]


def test_a_gpu_that_fails_during_an_upgrade_keeps_the_node_out_of_service_until_it_is_repaired(fleet, operator):
    run = fleet.start("upgrade", "--limit", SECOND, **{**operator, "driver": NEW})
    fleet.wait_for(lambda: fleet.reached(run, "installing", SECOND))
    # What a reset ends is over when the driver is loaded anew.
    fleet.sh(SECOND, "virtual-gpu recovery --gpu 1 --action 2 --until boot")
    run.wait()
    assert run.status != 0
    assert fleet.state(SECOND) == "failed", run.output[-3000:]
    assert fleet.cordoned(SECOND)
    assert "GPU 1" in fleet.reason(SECOND) and "reboot" in fleet.reason(SECOND)
    assert fleet.versions()[SECOND] == OLD, "the new driver was not proven"

    repaired = fleet.run("heal", "--limit", SECOND, **operator)
    assert repaired.status == 0, repaired.output[-3000:]
    assert fleet.cordoned(SECOND), "that is the rollout's"
    again = fleet.run("upgrade", "--limit", SECOND, gpu_upgrade_retry=True, **{**operator, "driver": NEW})
    assert again.status == 0, again.output[-3000:]
    assert fleet.state(SECOND) == "done"
    assert not fleet.cordoned(SECOND)
    back = fleet.run("rollback", "--limit", SECOND, **operator)
    assert back.status == 0, back.output[-3000:]
