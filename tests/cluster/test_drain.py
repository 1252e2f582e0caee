# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draining is what is left when GPU pods cannot be evicted. With the rights of docs/upgrade.md, on real nodes."""

from __future__ import annotations

import json

import pytest
from fleet import NODES, OLD, documented_role
from workloads import holding, working

FIRST, SECOND, THIRD = NODES
MIG = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def operator(fleet):
    """The variables of a run that may do what the documentation asks for, and no more."""
    fleet.plane.allow_operator(documented_role())
    yield {"gpu_cluster_kubeconfig": str(fleet.plane.operator), "gpu_node_evict_timeout": 60}
    fleet.forget()


@pytest.fixture
def static_pod(fleet):
    """A pod that the kubelet of the first node starts from a file: nothing of the API ends it."""
    metadata = {"name": "static", "namespace": "default", "labels": {"app": "static"}}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": working(MIG)}
    path = "/etc/kubernetes/manifests/static.json"
    fleet.sh(FIRST, f"cat > {path} <<'END'\n{json.dumps(document)}\nEND")
    fleet.wait_for(lambda: fleet.workloads.running("static"))
    yield
    fleet.sh(FIRST, f"rm {path}")
    fleet.wait_for(lambda: not fleet.workloads.pods("static"))


def only_on(fleet, node, *names):
    """Workloads that were made while the other nodes took no pods run on this one."""
    fleet.wait_for(lambda: fleet.workloads.complete(*names))
    for other in set(NODES) - {node}:
        fleet.plane.kubectl("uncordon", other)
    for name in names:
        assert set(fleet.workloads.places(name).values()) == {node}


@pytest.mark.usefixtures("static_pod")
def test_a_node_is_drained_where_its_gpu_pods_cannot_be_evicted(fleet, operator):
    """A static GPU pod cannot leave, so no GPU pod is touched. With a drain all that can leave does, as far as budgets have room."""
    fleet.workloads.daemon_set("network", volumes=[{"name": "run", "emptyDir": {}}])
    for other in (SECOND, THIRD):
        fleet.plane.kubectl("cordon", other)
    fleet.workloads.workload("train", 1, MIG)
    fleet.workloads.workload("web", 3, max_unavailable=1)
    only_on(fleet, FIRST, "train", "web")
    fleet.wait_for(lambda: len(fleet.workloads.places("network")) == 3)
    before = {name: fleet.workloads.places(name) for name in ("train", "web", "network", "static")}

    refused = fleet.run("upgrade", "--limit", FIRST, **operator)
    assert refused.status != 0
    assert fleet.state(FIRST) == "refused", refused.output[-3000:]
    assert f"default/static-{FIRST}: it is a static pod of the kubelet" in fleet.reason(FIRST)
    assert {name: fleet.workloads.places(name) for name in before} == before
    assert not fleet.cordoned(FIRST)
    assert fleet.versions()[FIRST] == OLD

    drained = fleet.run("upgrade", "--limit", FIRST, gpu_node_drain=True, gpu_upgrade_retry=True, **operator)
    assert drained.status == 0, drained.output[-3000:]
    assert fleet.state(FIRST) == "done"
    assert not fleet.cordoned(FIRST)
    fleet.wait_for(lambda: len(fleet.workloads.running("web")) == 3)
    for name in ("train", "web"):
        assert not set(fleet.workloads.places(name)) & set(before[name]), f"{name} left"
    assert fleet.workloads.fewest["web"] >= 2, "the budget allows one pod to be away at a time"
    assert fleet.workloads.places("network") == before["network"], "pods of DaemonSets stay, whatever volumes they have"
    assert fleet.workloads.places("static") == before["static"]

    back = fleet.run("rollback", "--limit", FIRST, gpu_node_drain=True, **operator)
    assert back.status == 0, back.output[-3000:]
    assert fleet.versions()[FIRST] == OLD


def test_a_pod_that_never_ends_is_not_taken_for_drained(fleet, operator):
    fleet.workloads.workload(
        "stubborn", 1, MIG, nodeSelector={"kubernetes.io/hostname": FIRST}, terminationGracePeriodSeconds=60
    )
    fleet.wait_for(lambda: fleet.workloads.complete("stubborn"))
    options = {**operator, "gpu_node_evict_timeout": 8}
    run = fleet.run("upgrade", "--limit", FIRST, gpu_node_drain=True, **options)
    assert run.status != 0
    assert fleet.state(FIRST) == "refused", run.output[-3000:]
    assert "Drain the node" in fleet.reason(FIRST)
    assert "its eviction was accepted, but it does not terminate" in fleet.reason(FIRST)
    assert fleet.versions()[FIRST] == OLD


def test_where_eviction_is_enough_nothing_else_leaves(fleet, operator):
    """A pod that holds the driver without having asked for a GPU is evicted like one that did, so that no reboot is needed."""
    for other in (FIRST, THIRD):
        fleet.plane.kubectl("cordon", other)
    fleet.workloads.workload("train", 1, MIG)
    fleet.workloads.workload("web", 2)
    fleet.workloads.workload("monitor", 1, pod=holding())
    only_on(fleet, SECOND, "train", "web", "monitor")
    before = {name: fleet.workloads.places(name) for name in ("train", "web", "monitor")}
    (monitor,) = before["monitor"]
    fleet.sh(SECOND, f"systemctl is-active hold-{monitor}.scope && touch /run/not-rebooted")

    run = fleet.run("upgrade", "--limit", SECOND, gpu_node_drain=True, **operator)
    assert run.status == 0, run.output[-3000:]
    assert fleet.state(SECOND) == "done"
    assert fleet.workloads.places("web") == before["web"], "they use no GPU"
    for name in ("train", "monitor"):
        assert not set(fleet.workloads.places(name)) & set(before[name]), f"{name} left"
    fleet.sh(SECOND, "test -e /run/not-rebooted")

    back = fleet.run("rollback", "--limit", SECOND, **operator)
    assert back.status == 0, back.output[-3000:]
    assert fleet.workloads.places("web") == before["web"]
    assert fleet.versions()[SECOND] == OLD
