# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real node that is served by the GPU Operator is adopted, its driver and container toolkit move to the host, the cluster to the device plugin alone, and
both back.

The operator is a stand-in (C(stand_in_operator.py)); its device plugin, its toolkit with its installer, and mig-parted are real.
"""

from __future__ import annotations

import json
import os

import pytest
from adopted_nodes import BACK, CHART, LAYOUT, NODE, OFFERED, SINCE, STATE, THEIRS, TO_HOST, operated_lab
from demo import REPOSITORY, devices, wait_for
from operator_daemon_sets import MANAGER, OPERANDS, PLUGIN
from transcript import shorten, stale

#: The hosts have all, and the operator's plugin goes next; and the way back.
BY_HOST = {key: value for key, value in TO_HOST.items() if not key.endswith("_migrate_from")} | {
    "gpu_kubernetes_mig_manager": "host",
    "gpu_kubernetes_dcgm_exporter": False,
}
TO_RELEASES = {**BY_HOST, "gpu_kubernetes_stack": "device_plugin", "gpu_kubernetes_migrate_from": "gpu_operator"}
TO_OPERATOR = {**BY_HOST, "gpu_kubernetes_stack": "gpu_operator", "gpu_kubernetes_migrate_from": "device_plugin"}
STACK = "gpufleet.github.io/stack"
#: What docs/migration.md shows.
TRANSCRIPT = REPOSITORY / "docs" / "transcripts" / "migrate-from-operator.txt"
STACK_TRANSCRIPT = TRANSCRIPT.with_name("migrate-stack.txt")
STACK_TITLE = """\
The same lab host, whose host brings driver and container toolkit by now. The operator's device plugin serves it; a pod works on a MIG device, and on.
Left out here: tasks that were skipped on every host, includes and argument checks.

$ ansible-playbook gpufleet.nvidia.migrate -e gpu_cluster_kubeconfig=...
"""
TITLE = """\
A lab host with two virtual H100, a node of a real cluster (tests/cluster/test_from_operator.py). A stand-in of the GPU Operator has brought driver 580.126.09
and the container toolkit; a pod works on a MIG device.
Left out here: tasks that were skipped on every host, includes and argument checks.

$ ansible-playbook gpufleet.nvidia.migrate -e gpu_cluster_kubeconfig=...
"""


@pytest.fixture(scope="module")
def operated(tmp_path_factory):
    with operated_lab(tmp_path_factory.mktemp("from-operator"), NODE) as found:
        yield found


@pytest.mark.by_name
def test_a_host_of_the_operator_is_adopted_as_it_is_and_left_alone(operated):
    adopted = operated.adopted()
    assert adopted["gpu_kubernetes_stack"] == "gpu_operator"
    assert adopted["gpu_kubernetes_operator_version"] == CHART, "the cluster's, not the newest"
    assert (adopted["nvidia_driver_state"], adopted["nvidia_toolkit_runtime"]) == ("unmanaged", "none")
    assert (adopted["nvidia_mig_strategy"], adopted["gpu_kubernetes_mig_manager"]) == ("mixed", "operator")
    assert operated.enabled == (True, True)
    assert "1 as described, 0 to change" in operated.plan()


@pytest.mark.by_name
def test_driver_and_toolkit_move_to_the_host_of_a_node_in_service(operated):
    before, boot = operated.uid(), operated.sh("stat -c %Y /proc/1")
    operated.describe(TO_HOST)
    operated.operator.upgrade(operated.tree)
    assert operated.enabled == (True, True), "a cluster is mixed until its last pool is moved"
    assert operated.brought_by("true"), "the tree alone moves nothing"
    printed = operated.migrate()
    operated.has_moved()
    assert operated.uid() != before, "the pod was evicted, and one like it runs with the host's driver"
    assert operated.sh("stat -c %Y /proc/1") == boot, "nothing was rebooted"
    if os.environ.get("RECORD_TRANSCRIPTS"):
        TRANSCRIPT.write_text(TITLE + shorten(printed))
    assert stale(printed, TRANSCRIPT) == [], "write it anew: RECORD_TRANSCRIPTS=1 pytest FILE"

    since = operated.record(SINCE)
    again = operated.migrate()
    assert operated.record(SINCE) == since, "a node that has been moved is not drained again"
    assert "changed=0" in again.rpartition("PLAY RECAP")[2]


@pytest.mark.by_name
def test_the_device_plugin_alone_takes_a_node_over_under_a_running_pod_and_gives_it_back(operated):
    operated.move(TO_HOST)
    operated.describe(BY_HOST)
    operated.operator.upgrade(operated.tree)
    wait_for(lambda: MANAGER not in operated.operands() and operated.operator.ready(PLUGIN), 120)
    wait_for(lambda: operated.offered() == {NODE: OFFERED}, 60)
    work = operated.work()

    operated.describe(TO_RELEASES)
    operated.operator.upgrade(operated.tree)
    operated.install_releases()
    assert STACK not in operated.labels(NODE) and operated.plugins() == [PLUGIN], "the tree alone moves nothing"
    printed = operated.migrate()
    assert operated.record(STATE) == "done" and not operated.node()["spec"].get("unschedulable")
    assert operated.plugins() == ["nvidia-device-plugin-operated"]
    assert operated.offered() == {NODE: OFFERED} and operated.layout() == LAYOUT
    assert operated.work() == work, "nothing was evicted, and nothing restarted"
    if os.environ.get("RECORD_TRANSCRIPTS"):
        STACK_TRANSCRIPT.write_text(STACK_TITLE + shorten(printed))
    assert stale(printed, STACK_TRANSCRIPT) == [], "write it anew: RECORD_TRANSCRIPTS=1 pytest FILE"

    # The kubelet remembers what the operator's plugin gave, and the runtime finds it in the specification of the other one.
    operated.restart_work()
    uid, seen, restarts = work
    assert operated.work() == (uid, seen, restarts + 1)
    operated.kubectl("scale", "deployment", "sliced", "--replicas=2")
    wait_for(lambda: operated.get("deployment", "sliced")["status"].get("readyReplicas") == 2, 60)
    given = [
        devices(operated.kubectl("exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L"))
        for pod in operated.get("pods", "-l", "app=sliced")["items"]
    ]
    assert len({one for (one,) in given}) == 2 and seen in given
    operated.kubectl("scale", "deployment", "sliced", "--replicas=1")
    since = operated.record(SINCE)
    again = operated.migrate()
    assert operated.record(SINCE) == since and "changed=0" in again.rpartition("PLAY RECAP")[2]

    operated.describe(TO_OPERATOR)
    wait_for(lambda: len(operated.get("pods", "-l", "app=sliced")["items"]) == 1, 60)
    work = operated.work()
    operated.migrate()
    assert operated.plugins() == [PLUGIN] and operated.work() == work
    wait_for(lambda: operated.offered() == {NODE: OFFERED}, 60)
    operated.restart_work()
    assert operated.work()[:2] == work[:2]


@pytest.mark.by_name
def test_what_runs_without_a_gpu_by_the_operators_toolkit_is_evicted_or_refused_by_name(operated):
    """Nothing could enter or end these containers without the program that started them."""
    operated.move(BACK)
    plain, agent = beside("Deployment", "plain", replicas=1), beside("DaemonSet", "agent")
    for one in (plain, agent):
        operated.kubectl("create", "-f", "-", text=json.dumps(one))
    before = {name: wait_for(lambda name=name: running(operated, name), 120) for name in ("plain", "agent")}
    bundles = (
        "grep -l ^/usr/local/nvidia/toolkit/ /run/containerd/io.containerd.runtime.v2.task/k8s.io/*/runtime || true"
    )
    assert operated.sh(bundles), "that is how they were started"
    operated.describe(TO_HOST)
    operated.operator.upgrade(operated.tree)
    refused = operated.run("migrate", "-e", json.dumps(operated.options))
    assert refused.returncode != 0
    assert "default/agent-" in refused.stdout and "default/plain-" not in refused.stdout
    assert not operated.node()["spec"].get("unschedulable") and operated.brought_by("true"), "nothing was touched"
    assert running(operated, "plain") == before["plain"]
    operated.kubectl("delete", "daemonset", "agent", "--wait")
    wait_for(lambda: not operated.get("pods", "-l", "app=agent")["items"], 120)
    operated.migrate()
    operated.has_moved()
    assert wait_for(lambda: running(operated, "plain"), 120) != before["plain"], (
        "one like it runs by the host's toolkit"
    )
    assert not operated.sh(bundles)
    operated.kubectl("delete", "deployment", "plain")


def beside(kind, name, **spec):
    """What people have that runs with the runtime nvidia and requests no GPU."""
    labels = {"app": name}
    image = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
    container = {"name": "work", "image": image, "command": ["sleep", "86400"]}
    of_pod = {"runtimeClassName": "nvidia", "containers": [container], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": of_pod}
    body = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def running(operated, name):
    """The UID of the pod with this label that runs; empty where none does."""
    pods = [
        pod
        for pod in operated.get("pods", "-l", f"app={name}")["items"]
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    return pods[0]["metadata"]["uid"] if pods else ""


@pytest.mark.by_name
def test_the_operators_manager_alone_restores_the_layout_after_a_reboot(operated):
    operated.move(TO_HOST)
    operated.lab("reboot", NODE)
    wait_for(lambda: operated.operator.ready(MANAGER) and operated.offered() == {NODE: OFFERED}, 240)
    wait_for(lambda: operated.layout() == LAYOUT, 60)
    operated.has_moved()
    operated.uid()


@pytest.mark.by_name
def test_the_way_back_that_was_killed_is_continued(operated):
    operated.move(TO_HOST)
    before = operated.uid()
    operated.describe(BACK)
    operated.operator.upgrade(operated.tree)
    operated.migrate_killed("installing")
    assert operated.node()["spec"]["unschedulable"]
    operated.migrate()
    operated.in_service()
    assert operated.uid() != before
    assert operated.sh("cat /sys/module/nvidia/version").strip() == THEIRS
    assert operated.operands() == set(OPERANDS)
    assert operated.brought_by("true")
    assert not operated.sh("dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' 'nvidia-*' | grep ^ii || true")
    operated.describe({})
    assert "1 as described, 0 to change" in operated.plan()
