# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rendered tree, pushed and synced by a real Argo CD onto real nodes.

Synced as rendered, but for the charts: the Applications are sent to the lab's Helm repository, with the versions that it has
(C(nodes.publication)), because the projects' repositories and the device plugin 0.20 is not available here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

TRAINING, BATCH, SHARED = "gpu-training-1", "gpu-batch-1", "gpu-shared-1"
PLUGIN = "nvidia-device-plugin"
PLUGINS = ("-l", f"app.kubernetes.io/name={PLUGIN}")


@pytest.fixture(scope="module")
def gitops(tmp_path_factory):
    """Nodes, Argo CD and a first commit of the demo's tree, synced; all of it from a checkout below /tmp, which Argo CD has a place of its own at."""
    from demo import REPOSITORY, wait_for
    from gitops import GitOps

    checkout = Path(tempfile.mkdtemp(prefix="gpufleet-checkout-", dir="/tmp"))
    for part in ("tests/lab", "tests/cluster", "tests/charts"):
        shutil.copytree(REPOSITORY / part, checkout / part)
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-gitops"
    found = GitOps(name, tmp_path_factory.mktemp("gitops"), program=checkout / "tests" / "lab" / "lab")
    found.lab("down")
    try:
        found.lab("up", "--nodes")
        found.play("site", *found.variables())
        commit = found.publish("Render the demo")
        wait_for(lambda: not found.unfinished(commit), 600)
        yield found
    finally:
        found.lab("down")
        shutil.rmtree(checkout)


def expected(gitops):
    return {name: node["resources"] for name, node in gitops.capacity["nodes"].items()}


def plugin_pods(gitops):
    """Node to the UID of the device plugin's pod on it."""
    pods = gitops.get("pods", "-n", "nvidia-gpu", *PLUGINS)["items"]
    return {
        pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in pods if not pod["metadata"].get("deletionTimestamp")
    }


def daemon_sets(gitops):
    """DaemonSet to its generation: raised by every change of what it asks for."""
    items = gitops.get("daemonsets", "-n", "nvidia-gpu")["items"]
    return {item["metadata"]["name"]: item["metadata"]["generation"] for item in items}


def test_the_root_application_brings_the_nodes_to_what_is_rendered(gitops):
    from demo import wait_for

    names = set(gitops.applications())
    assert names == gitops.expected()
    pools = ("training", "batch", "shared")
    assert {f"demo-{PLUGIN}-{pool}" for pool in pools} | {"demo-gpufleet-objects", "demo-gpufleet-node-labels"} <= names
    wait_for(lambda: gitops.offered() == expected(gitops), 300)


def test_what_is_removed_by_hand_comes_back(gitops):
    from demo import wait_for

    name = f"daemonset/{PLUGIN}-shared"
    before = gitops.get(name, "-n", "nvidia-gpu")["metadata"]["uid"]
    gitops.kubectl("delete", name, "-n", "nvidia-gpu")
    wait_for(
        lambda: [
            item["metadata"]["uid"]
            for item in gitops.get("daemonsets", "-n", "nvidia-gpu")["items"]
            if item["metadata"]["name"] == f"{PLUGIN}-shared" and item["metadata"]["uid"] != before
        ],
        120,
    )
    wait_for(lambda: gitops.offered() == expected(gitops), 180)


def test_a_changed_memory_slice_changes_that_pool_and_nothing_else(gitops):
    from demo import wait_for

    before, sets, pods = expected(gitops), daemon_sets(gitops), plugin_pods(gitops)
    change = gitops.folder / "change"
    (change / "group_vars").mkdir(parents=True)
    (change / "inventory.yml").write_text("gpu_hosts: {children: {shared: {}}}\n")
    (change / "group_vars" / "shared.yml").write_text("nvidia_sharing_memory_slice: 8GiB\n")
    gitops.play("site", *gitops.variables(), "-i", str(change))
    now = expected(gitops)
    assert {node for node in now if now[node] != before[node]} == {SHARED}
    # 4 x L40S, five slices of 8 GiB on each.
    assert now[SHARED] == {"nvidia.com/gpu": 20}

    commit = gitops.publish("8 GiB a slice in the pool shared")
    wait_for(lambda: not gitops.unfinished(commit), 300)
    changed = daemon_sets(gitops)
    assert changed.keys() == sets.keys()
    of_pool = {f"{PLUGIN}-shared", f"{PLUGIN}-shared-mps-control-daemon"}
    assert {name for name in changed if changed[name] != sets[name]} == of_pool, "both read the pool's file"

    # A plugin that starts again would find other slices than running clients have: MPS pools wait for somebody to delete its pod.
    assert plugin_pods(gitops) == pods, "no plugin is started again by itself"
    assert gitops.offered() == before
    gitops.kubectl("delete", "pods", "-n", "nvidia-gpu", *PLUGINS, f"--field-selector=spec.nodeName={SHARED}")
    wait_for(lambda: gitops.offered() == now, 300)
    pods_now = plugin_pods(gitops)
    assert {node for node in pods_now if pods_now[node] != pods[node]} == {SHARED}, "no other plugin is started again"
