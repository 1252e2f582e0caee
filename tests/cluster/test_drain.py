# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draining is what is left when GPU pods cannot be evicted. With the rights of docs/upgrade.md, against a real API server."""

from __future__ import annotations

import json

import pytest
from fleet import NODES, OLD, documented_role
from stand_ins import HOLDS

FIRST, SECOND, THIRD = NODES
MIG = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def operator(fleet):
    """The variables of a run that may do what the documentation asks for, and no more."""
    fleet.plane.allow_operator(documented_role())
    yield {"gpu_upgrade_kubeconfig": str(fleet.plane.operator), "gpu_upgrade_evict_timeout": 60}
    fleet.forget()


def uids(fleet, name):
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName") for pod in fleet.stand_ins.pods(app=name)}


def static_pod(fleet, name, node):
    """What the API shows of a pod that the kubelet started from a file: nothing of the API ends it."""
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {"app": name},
        "annotations": {"kubernetes.io/config.mirror": "0" * 32},
    }
    container = {"name": "work", "image": "work", "resources": {"limits": {MIG: "1"}}}
    spec = {"nodeName": node, "containers": [container]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    fleet.plane.kubectl("create", "-f", "-", text=json.dumps(document))


def only_on(fleet, node, names):
    """Workloads that were made while the other nodes took no pods run on this one."""
    fleet.wait_for(lambda: all(fleet.stand_ins.fewest.get(name) for name in names))
    for other in set(NODES) - {node}:
        fleet.plane.kubectl("uncordon", other)
    for name in names:
        assert set(uids(fleet, name).values()) == {node}


def test_a_node_is_drained_where_its_gpu_pods_cannot_be_evicted(fleet, operator):
    """A static GPU pod cannot leave, so no GPU pod is touched. With a drain all that can leave does, as far as budgets have room."""
    static_pod(fleet, "static", FIRST)
    fleet.stand_ins.daemon_set("network", volumes=[{"name": "run", "emptyDir": {}}])
    for other in (SECOND, THIRD):
        fleet.plane.kubectl("cordon", other)
    fleet.stand_ins.workload("train", 1, MIG)
    fleet.stand_ins.workload("web", 3, "cpu", max_unavailable=1)
    only_on(fleet, FIRST, ("train", "web"))
    fleet.wait_for(lambda: len(uids(fleet, "network")) == 3)
    before = {name: uids(fleet, name) for name in ("train", "web", "network", "static")}

    refused = fleet.run("upgrade", "--limit", FIRST, **operator)
    assert refused.status != 0
    assert fleet.state(FIRST) == "refused", refused.output[-3000:]
    assert "default/static: it is a static pod of the kubelet" in fleet.reason(FIRST)
    assert {name: uids(fleet, name) for name in before} == before
    assert not fleet.cordoned(FIRST)
    assert fleet.versions()[FIRST] == OLD

    drained = fleet.run("upgrade", "--limit", FIRST, gpu_upgrade_drain=True, gpu_upgrade_retry=True, **operator)
    assert drained.status == 0, drained.output[-3000:]
    assert fleet.state(FIRST) == "done"
    assert not fleet.cordoned(FIRST)
    fleet.wait_for(lambda: len(uids(fleet, "web")) == 3 and None not in uids(fleet, "web").values())
    for name in ("train", "web"):
        assert not set(uids(fleet, name)) & set(before[name]), f"{name} left"
    assert fleet.stand_ins.fewest["web"] >= 2, "the budget allows one pod to be away at a time"
    assert uids(fleet, "network") == before["network"], "pods of DaemonSets stay, whatever volumes they have"
    assert uids(fleet, "static") == before["static"]

    back = fleet.run("rollback", "--limit", FIRST, gpu_upgrade_drain=True, **operator)
    assert back.status == 0, back.output[-3000:]
    assert fleet.versions()[FIRST] == OLD


def test_a_pod_that_never_ends_is_not_taken_for_drained(fleet, operator):
    labels = {"test.gpufleet.github.io/never-leaves": "true"}
    fleet.stand_ins.workload("stubborn", 1, MIG, labels=labels, nodeSelector={"kubernetes.io/hostname": FIRST})
    fleet.wait_for(lambda: fleet.stand_ins.fewest.get("stubborn") == 1)
    options = {**operator, "gpu_upgrade_evict_timeout": 8}
    run = fleet.run("upgrade", "--limit", FIRST, gpu_upgrade_drain=True, **options)
    assert run.status != 0
    assert fleet.state(FIRST) == "refused", run.output[-3000:]
    assert "Drain the node" in fleet.reason(FIRST)
    assert "its eviction was accepted, and it does not end" in fleet.reason(FIRST)
    assert fleet.versions()[FIRST] == OLD


def test_where_eviction_is_enough_nothing_else_leaves(fleet, operator):
    """A pod that holds the driver without having asked for a GPU is evicted like one that did, so that no reboot is needed."""
    for other in (FIRST, THIRD):
        fleet.plane.kubectl("cordon", other)
    fleet.stand_ins.workload("train", 1, MIG)
    fleet.stand_ins.workload("web", 2, "cpu")
    fleet.stand_ins.workload("monitor", 1, "cpu", labels={HOLDS: "true"})
    only_on(fleet, SECOND, ("train", "web", "monitor"))
    before = {name: uids(fleet, name) for name in ("train", "web", "monitor")}
    (monitor,) = before["monitor"]
    fleet.sh(SECOND, f"systemctl is-active hold-{monitor} && touch /run/not-rebooted")

    run = fleet.run("upgrade", "--limit", SECOND, gpu_upgrade_drain=True, **operator)
    assert run.status == 0, run.output[-3000:]
    assert fleet.state(SECOND) == "done"
    assert uids(fleet, "web") == before["web"], "they use no GPU"
    for name in ("train", "monitor"):
        assert not set(uids(fleet, name)) & set(before[name]), f"{name} left"
    fleet.sh(SECOND, "test -e /run/not-rebooted")

    back = fleet.run("rollback", "--limit", SECOND, **operator)
    assert back.status == 0, back.output[-3000:]
    assert uids(fleet, "web") == before["web"]
    assert fleet.versions()[SECOND] == OLD
