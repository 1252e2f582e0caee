# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pool that moves from NVIDIA's own device plugin to its own DRA driver and back, under Deployments that request GPUs and MIG devices by name.

Two real nodes with real kubelets and the charts' own releases, of the newest Kubernetes, which serves extended resources by DRA by default; and, for the way
there and back, of 1.34 with the gate DRAExtendedResource.
"""

from __future__ import annotations

import json
import os
import time

import pytest
import yaml
from demo import Demo, devices, wait_for
from hosts.paths import LabPaths
from killed_run import counting, killed_migration, watching
from nodes.cluster import control_plane_of
from nodes.programs import KUBERNETES, OLDEST_KUBERNETES

NODES = ("node-a", "node-b")
MIGRATED = "gpufleet.github.io/migrated-to"
STATE = "gpufleet.github.io/upgrade-state"
#: What of a node tells how far a run is with it: the step and the run in its record, and who serves it.
WATCHED = r"""{.metadata.annotations.gpufleet\.github\.io/upgrade-state}|{.metadata.annotations.gpufleet\.github\.io/upgrade-operator}|"""
WATCHED += r"""{.metadata.labels.gpufleet\.github\.io/migrated-to}{"\n"}"""
SPEC = {
    "hosts": [
        {
            "name": name,
            "group": "moved",
            "boards": [{"board": "h100-80gb-sxm", "count": 3}],
            "driver": "installed",
            "node": "containerd-2.4",
        }
        for name in NODES
    ]
}
DESCRIBED = {
    "nvidia_driver_branch": "580",
    "nvidia_driver_state": "unmanaged",
    "nvidia_toolkit_version": "1.20.2",
    "nvidia_toolkit_device_injection": "cdi",
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": [2], "instances": {"1g.10gb": 2}}],
    "gpu_kubernetes_cluster": "demo",
}
PLUGIN = {"nvidia_sharing_backend": "mps"}
#: What each node has, and by which Deployment it is used.
OFFERED = {"nvidia.com/gpu": 2, "nvidia.com/mig-1g.10gb": 2}
APPS = {"whole": "nvidia.com/gpu", "sliced": "nvidia.com/mig-1g.10gb"}
TO_CLAIMS = {"nvidia_sharing_backend": "dra", "nvidia_sharing_migrate_from": "mps"}
BACK = {"nvidia_sharing_backend": "mps", "nvidia_sharing_migrate_from": "dra"}


class Pool(Demo):
    """Both nodes, and the Deployments that are on them all the time."""

    def write_variables(self, variables):
        described = {**DESCRIBED, "gpu_kubernetes_version": self.kubernetes, **variables}
        self.inventory.write_text(json.dumps({"gpu_hosts": {"vars": described, "children": {"moved": {}}}}))

    def describe(self, variables):
        """Set the variables of the pool, render, and install what is rendered, as a push does."""
        self.write_variables(variables)
        self.play("render")
        self.lab("charts", str(self.tree))

    def migrate(self):
        return self.play("migrate", "-e", f"gpu_cluster_kubeconfig={self.lab('kubeconfig').strip()}")

    def migrate_killed(self, node, step, **options):
        """Begin a migration, and kill it with all its processes in the moment in which a node comes to a step.

        :param step: a state of its record, or C(chosen): within C(installing), when the node changes sides.
        """
        options = {"gpu_cluster_kubeconfig": self.lab("kubeconfig").strip(), **options}
        before = self.served()[node] or ""
        log = self.folder / f"killed-{node}-{step}.log"
        with killed_migration(self, log, options) as run, watching(self, node, WATCHED, run) as changes:
            for line in changes:
                state, operator, server = line.split("|")
                if f"/{run.pid}-" in operator and (step == state or (step == "chosen" and server != before)):
                    break

    def offers_again(self):
        """The plugin's pods are restarted once, because their affinity changed."""
        time.sleep(20)
        wait_for(lambda: self.offered() == dict.fromkeys(NODES, OFFERED), 120)

    def nodes(self):
        return {node["metadata"]["name"]: node for node in self.get("nodes")["items"]}

    def states(self):
        return {name: node["metadata"].get("annotations", {}).get(STATE) for name, node in self.nodes().items()}

    def served(self):
        """Node to who serves it, by its label."""
        return {name: node["metadata"]["labels"].get(MIGRATED) for name, node in self.nodes().items()}

    def apps(self, name):
        """The running pods of a Deployment: node to the devices that they see."""
        found: dict[str, list[str]] = {}
        for pod in self.get("pods", "-l", f"app={name}")["items"]:
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]:
                seen = devices(self.kubectl("exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L"))
                found.setdefault(pod["spec"]["nodeName"], []).extend(seen)
        return found

    def wait_ready(self, count):
        for name in APPS:
            wait_for(lambda name=name: self.get("deployment", name)["status"].get("readyReplicas") == count, 300)

    def replicas(self, count):
        """Have so many pods of each Deployment, and return where they run once all do; each has a device for itself."""
        self.kubectl("scale", "deployment", *APPS, f"--replicas={count}")
        self.wait_ready(count)
        found = {}
        for name in APPS:
            apps = wait_for(
                lambda name=name: (now := self.apps(name)) and sum(map(len, now.values())) == count and now, 120
            )
            given = [uuid for seen in apps.values() for uuid in seen]
            assert len(set(given)) == count, "one device for each, and none for two"
            assert all(uuid.startswith("MIG-" if name == "sliced" else "GPU-") for uuid in given)
            found[name] = apps
        return found

    def templates(self):
        return {name: self.get("deployment", name)["spec"]["template"] for name in APPS}

    def check(self, server):
        """Both nodes are in service on one side, and show that side alone."""
        assert self.served() == dict.fromkeys(NODES, server)
        assert not [name for name, node in self.nodes().items() if node["spec"].get("unschedulable")]
        assert set(self.states().values()) == {"done"}
        expected = OFFERED if server == "device-plugin" else {}
        # Not even 0 of it: that keeps the scheduler from looking for a claim.
        wait_for(lambda: self.offered() == dict.fromkeys(NODES, expected), 60)
        published = [one["spec"]["nodeName"] for one in self.get("resourceslices")["items"]]
        assert sorted(published) == ([] if server == "device-plugin" else list(NODES))


@pytest.fixture(scope="module", params=[KUBERNETES, OLDEST_KUBERNETES])
def pool(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("migrate")
    spec, inventory = folder / "lab.json", folder / "inventory.json"
    spec.write_text(json.dumps(SPEC))
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-migrate"
    found = Pool(name, folder, inventory, spec, request.param)
    found.write_variables(PLUGIN)
    try:
        found.up()
        found.kubectl("create", "-f", "-", text=yaml.safe_dump_all(each for name in APPS for each in app(found, name)))
        yield found
    finally:
        found.lab("down")


def app(pool, name):
    """What people have: a Deployment that requests devices by name, and nothing about who serves them; and its budget."""
    pod = pool.example("moved-gpu")
    spec = Demo.staying(pod)["spec"]
    for key in ("restartPolicy", "nodeSelector"):
        spec.pop(key, None)
    for part in ("requests", "limits"):
        spec["containers"][0]["resources"][part] = {APPS[name]: 1}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": budget},
    ]


@pytest.mark.parametrize("pool", [KUBERNETES], indirect=True)
def test_the_newest_kubernetes_serves_extended_resources_by_dra_without_a_gate(pool):
    plane = control_plane_of(LabPaths(pool.name))
    assert (plane.enabled("DRAExtendedResource"), plane.gates) == (True, {})
    versions = {node["status"]["nodeInfo"]["kubeletVersion"] for node in pool.nodes().values()}
    assert versions == {f"v{KUBERNETES}"}


def test_the_same_deployments_run_before_during_and_after_and_back_again(pool):
    pool.replicas(4)
    made = pool.templates()
    pool.replicas(2)

    pool.describe(TO_CLAIMS)
    pool.offers_again()
    assert pool.served() == dict.fromkeys(NODES), "the tree alone moves nothing"
    plan = pool.play(
        "plan", "-e", f"gpu_cluster_kubeconfig={pool.lab('kubeconfig').strip()}", "-e", "gpu_plan_fail=false"
    )
    assert "node-a, node-b: served by the device plugin, until gpufleet.nvidia.migrate moves them" in plan
    assert "pods that request nvidia.com/mig-1g.10gb: N may land on" in plan
    assert "DeviceClass" not in plan

    pool.migrate()
    pool.check("dra")
    pool.replicas(4)
    assert len(pool.get("resourceclaims")["items"]) == 8, "the scheduler made a claim for each"
    pool.replicas(2)

    # Back, and half of it first: one node is left out by its label.
    pool.describe(BACK)
    pool.kubectl("label", "node", "node-b", "gpufleet.github.io/upgrade.skip=true")
    pool.migrate()
    assert pool.served() == {"node-a": "device-plugin", "node-b": "dra"}
    apps = pool.replicas(4)
    for one in apps.values():
        assert {name: len(seen) for name, seen in one.items()} == dict.fromkeys(NODES, 2), "a mixed cluster serves both"
    pool.replicas(2)
    pool.kubectl("label", "node", "node-b", "gpufleet.github.io/upgrade.skip-")
    moved = pool.nodes()["node-a"]["metadata"]["annotations"]["gpufleet.github.io/upgrade-since"]
    pool.migrate()
    again = pool.nodes()["node-a"]["metadata"]["annotations"]["gpufleet.github.io/upgrade-since"]
    assert again == moved, "a node that has been moved is not drained again"
    pool.check("device-plugin")
    pool.describe(PLUGIN)
    pool.replicas(4)
    assert pool.templates() == made, "nobody changed the pods' specification"


#: In the order of a run. After the last one the first node is in service again, and the second one was not begun.
STEPS = ("started", "waiting-for-jobs", "evicting", "installing", "chosen", "verifying", "done")
#: On the way back: where the node changes otherwise than on the way there, and its end.
BACK_STEPS = ("installing", "chosen", "done")


@pytest.mark.parametrize("pool", [KUBERNETES], indirect=True)
def test_a_run_that_is_killed_at_every_step_and_between_two_nodes_is_continued_there_and_back(pool):
    """Each run starts from what the one before left on the nodes; a pod of each Deployment runs at every moment."""
    first, second = NODES
    pool.replicas(2)
    made = pool.templates()
    with counting(pool) as fewest:
        for variables, server, steps in ((TO_CLAIMS, "dra", STEPS), (BACK, "device-plugin", BACK_STEPS)):
            old = pool.served()
            pool.describe(variables)
            if server == "dra":
                pool.offers_again()
            for step in steps:
                if step == "waiting-for-jobs":
                    start_job(pool, first)
                pool.migrate_killed(first, step, gpu_node_wait_for_jobs="app=job")
                node = pool.nodes()[first]
                done = step == "done"
                assert bool(node["spec"].get("unschedulable")) is not done, step
                assert (pool.served()[first] == server) is (step in ("chosen", "verifying", "done")), step
                assert pool.served()[second] == old[second]
                assert pool.nodes()[second]["spec"].get("unschedulable") is None, "one node after the other"
                if step == "waiting-for-jobs":
                    assert pool.get("pods", "-l", "app=job")["items"], "nothing of it was touched"
                    pool.kubectl("delete", "pod", "job", "--grace-period=0", "--force")
                pool.wait_ready(2)
            # A mixed cluster, in which the same pods run on both.
            apps = pool.replicas(4)
            for name, one in apps.items():
                assert {node: len(seen) for node, seen in one.items()} == dict.fromkeys(NODES, 2), name
            pool.replicas(2)
            pool.migrate_killed(second, "installing")
            pool.wait_ready(2)
            pool.migrate()
            pool.check(server)
            pool.replicas(4)
            pool.replicas(2)
    assert fewest.keys() == APPS.keys() and min(fewest.values()) >= 1, (
        "the budget is kept, and what is evicted runs on the other node"
    )
    assert pool.templates() == made, "nobody changed the pods' specification"
    pool.describe(PLUGIN)


def start_job(pool, node):
    """A pod without a GPU, for which a run is to wait."""
    spec = {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
    image = pool.templates()["whole"]["spec"]["containers"][0]["image"]
    pool.kubectl(
        *("run", "job", f"--image={image}", "--labels=app=job", f"--overrides={json.dumps({'spec': spec})}"),
        *("--restart=Never", "--command", "--", "sleep", "86400"),
    )
    wait_for(lambda: [pod["status"]["phase"] for pod in pool.get("pods", "-l", "app=job")["items"]] == ["Running"], 60)
