# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real nodes that are served by the GPU Operator, adopted as they are, and a Deployment that uses them.

The operator is a stand-in (C(stand_in_operator.py)); its device plugin, its toolkit with its installer, and mig-parted are real.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import yaml
from demo import Demo, devices, wait_for
from hosts.progress import Progress
from killed_run import killed_migration, watching
from nodes import programs
from operator_daemon_sets import DRIVER, NAMESPACE, OPERANDS, PLUGIN, PREFIX, TOOLKIT
from stand_in_operator import MIG_CONFIG, MIG_STATE, StandInOperator

#: The one that is asked where no other is named.
NODE = "operated-1"
_HOST = {
    "group": "operated",
    "boards": [{"board": "h100-80gb-sxm", "count": 2}],
    "driver": "none",
    "node": "containerd-2.4",
}
#: What the operator's containers bring, and what the host is to bring.
THEIRS, OURS = "580.126.09", "580.178.04"
TOOLKIT_VERSION, CHART = programs.version("nvidia-ctk-installer").removeprefix("v"), "v26.3.3"
LAYOUTS = {
    "all-disabled": [{"devices": "all", "mig-enabled": False}],
    "training": [
        {"devices": [0], "mig-enabled": False},
        {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "3g.40gb": 1}},
    ],
}
OFFERED = {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-3g.40gb": 1}
LAYOUT = ["1g.10gb", "1g.10gb", "3g.40gb"]
TO_HOST = {
    "nvidia_driver_state": "present",
    "nvidia_driver_branch": "580",
    "nvidia_driver_migrate_from": "gpu_operator",
    "nvidia_toolkit_runtime": "containerd",
    "nvidia_toolkit_version": TOOLKIT_VERSION,
    "nvidia_toolkit_migrate_from": "gpu_operator",
}
BACK = {
    "nvidia_driver_state": "unmanaged",
    "nvidia_driver_migrate_from": "host",
    "nvidia_toolkit_runtime": "none",
    "nvidia_toolkit_migrate_from": "host",
}
STATE, SINCE, OPERATOR = (f"gpufleet.github.io/upgrade-{name}" for name in ("state", "since", "operator"))
#: What of a node tells how far a run is with it: the step and the run in its record, and whether the operator brings its driver.
_WATCHED = r"""{.metadata.annotations.gpufleet\.github\.io/upgrade-state}|{.metadata.annotations.gpufleet\.github\.io/upgrade-operator}|"""
_WATCHED += r"""{.metadata.labels.nvidia\.com/gpu\.deploy\.driver}{"\n"}"""


class AdoptedNodes(Demo):
    """The nodes, what is described of it, and a Deployment that uses it all the time."""

    @property
    def options(self):
        return {"gpu_cluster_kubeconfig": self.lab("kubeconfig").strip(), "gpu_node_settle_time": 3}

    def describe(self, variables):
        """Set the variables of the pool beside what adopt wrote, and render them."""
        described = {**self.adopted(), "gpu_kubernetes_cluster": "demo", **variables}
        self.inventory.write_text(json.dumps({"gpu_hosts": {"vars": described, "children": {"operated": {}}}}))
        return self.play("render")

    def adopted(self):
        """The variables of the inventory that adopt wrote."""
        files = sorted((self.folder / "adopted" / "group_vars").glob("*.yml"))
        return {key: value for path in files for key, value in yaml.safe_load(path.read_text()).items()}

    def plan(self):
        """What it says of the hosts; the tree was rendered without their facts."""
        return self.play("plan", "-e", json.dumps({**self.options, "gpu_plan_fail": False}))

    def migrate(self, *arguments, **options):
        return self.play("migrate", *arguments, "-e", json.dumps({**self.options, **options}))

    def move(self, variables):
        """Have driver and toolkit brought as these variables say, unless that is so: a test can be run by its name alone."""
        if not self.brought_by("false" if variables is TO_HOST else "true"):
            self.describe(variables)
            self.operator.upgrade(self.tree)
            self.migrate()

    def migrate_killed(self, step, *arguments, node=NODE, at_work=None, **options):
        """Begin a migration, and kill it with all its processes as soon as the node is in this step.

        :param step: a state of its record, or one within C(installing): C(left), the operator is to take its driver away, or C(driver), the host's is loaded.
        :param at_work: what is done before that, while the run goes on.
        """
        log = self.folder / f"killed-{node}-{step}.log"
        with (
            killed_migration(self, log, {**self.options, **options}, *arguments) as run,
            watching(self, node, _WATCHED, run) as changes,
        ):
            for line in changes:
                state, operator, driver = line.split("|")
                if f"/{run.pid}-" in operator and (
                    step == state or (state == "installing" and step in ("left", "driver") and driver == "false")
                ):
                    break
            if step == "driver":
                wait_for(lambda: run.poll() is not None or self.driver(node) == OURS, 300)
            if at_work:
                at_work()

    def driver(self, node=NODE):
        """The version of the loaded one."""
        return self.sh("cat /sys/module/nvidia/version 2>/dev/null || true", node).strip()

    def node(self, node=NODE):
        return self.get("node", node)

    def record(self, key, node=NODE):
        return self.node(node)["metadata"].get("annotations", {}).get(key, "")

    def sh(self, script, node=NODE):
        return self.lab("exec", node, "--", "sh", "-c", script)

    def running(self):
        """The Deployment's pods that run and are not about to end."""
        pods = self.get("pods", "-l", "app=sliced")["items"]
        return [
            pod for pod in pods if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def uid(self):
        """Of the Deployment's pod, once one runs."""

        ((pod,),) = [wait_for(self.running, 120)]
        (device,) = devices(self.kubectl("exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L"))
        assert device.startswith("MIG-")
        return pod["metadata"]["uid"]

    def work(self):
        """Of the Deployment's one pod: its UID, its device, and how often its container was restarted."""
        (pod,) = self.get("pods", "-l", "app=sliced")["items"]
        seen = devices(self.kubectl("exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L"))
        return pod["metadata"]["uid"], seen, pod["status"]["containerStatuses"][0]["restartCount"]

    def restart_work(self):
        """Have the container of that pod end, and wait until it runs again."""
        (pod,) = self.get("pods", "-l", "app=sliced")["items"]
        before, name = pod["status"]["containerStatuses"][0]["restartCount"], pod["metadata"]["name"]
        self.kubectl("exec", name, "--", "touch", "/tmp/again")

        def again():
            found = self.get("pod", name)["status"]["containerStatuses"][0]
            return found["restartCount"] > before and "running" in found["state"]

        wait_for(again, 120)

    def helm(self, *arguments):
        command = [programs.helm(Progress()), "--kubeconfig", self.lab("kubeconfig").strip(), "--namespace", NAMESPACE]
        subprocess.run(list(map(str, [*command, *arguments])), check=True, capture_output=True)

    def install_releases(self):
        """Apply the tree's objects, and install its releases of the device plugin."""
        self.kubectl("apply", "--server-side", "-f", str(self.tree / "objects"))
        for values in sorted((self.tree / "values").glob("nvidia-device-plugin-*.yaml")):
            self.helm("upgrade", "--install", values.stem, programs.chart("nvidia-device-plugin"), "--values", values)

    def plugins(self):
        """Namespace's pods of a device plugin on the node, whosever: their names without the hash."""
        names = [pod["metadata"]["name"].rpartition("-")[0] for pod in self.get("pods", "-n", NAMESPACE)["items"]]
        return sorted(name for name in names if name == PLUGIN or name == "nvidia-device-plugin-operated")

    def operands(self, node=NODE):
        """Those that have a pod on the node."""
        pods = self.get("pods", "-n", NAMESPACE, f"--field-selector=spec.nodeName={node}")["items"]
        return {pod["metadata"]["labels"].get("app") for pod in pods} & set(OPERANDS)

    def layout(self, node=NODE):
        """The GPU instances of the second GPU, by their size, as the hardware has them."""
        gpus = json.loads(self.sh("virtual-gpu show", node))["gpus"]
        return sorted(one["profile"] for one in gpus[1]["gpu_instances"])

    @property
    def enabled(self):
        """Whether the rendered values leave driver and toolkit to the operator."""
        values = yaml.safe_load((self.tree / "values" / "gpu-operator.yaml").read_text())
        return values["driver"]["enabled"], values["toolkit"]["enabled"]

    def brought_by(self, value, node=NODE):
        """Whether this is what the node's labels say of driver and toolkit."""
        labels = self.labels(node)
        return {labels[f"{PREFIX}{name}"] for name in ("driver", "container-toolkit")} == {value}

    def has_moved(self, node=NODE):
        """The host brings driver and toolkit, and nothing of the operator's is left but the pods that are to stay."""
        self.in_service(node)
        assert self.driver(node) == OURS
        query = "dpkg-query -W -f '${Package} ${Version}\\n' nvidia-kernel-open-dkms nvidia-container-toolkit"
        versions = dict(line.split() for line in self.sh(query, node).splitlines())
        assert versions == {"nvidia-container-toolkit": f"{TOOLKIT_VERSION}-1", "nvidia-kernel-open-dkms": f"{OURS}-1"}
        assert not self.sh("mount | grep ' /run/nvidia/driver' || true", node)
        dump = self.sh("containerd config dump", node).replace('"', "'")
        assert "BinaryName = '/usr/bin/nvidia-container-runtime'" in dump
        assert self.brought_by("false", node)
        assert self.operands(node) == set(OPERANDS) - {DRIVER, TOOLKIT}

    def in_service(self, node=NODE):
        assert self.record(STATE, node) == "done"
        assert not self.node(node)["spec"].get("unschedulable")
        wait_for(lambda: self.offered()[node] == OFFERED, 60)
        labels = self.labels(node)
        assert labels[MIG_STATE] == "success"
        assert not [key for key, value in labels.items() if "paused" in value], "nothing of the operator is kept away"
        assert self.layout(node) == LAYOUT


class _UnknownNodes(AdoptedNodes):
    """The same hosts, in an inventory that only says how to reach them."""

    @property
    def inventories(self):
        return [str(self.inventory)]


@contextmanager
def operated_lab(folder, *names):
    """Hosts with two GPUs each that the operator has made nodes with MIG, adopted and rendered as they are, and a pod on a MIG device of one."""
    spec = folder / "lab.json"
    spec.write_text(json.dumps({"hosts": [{**_HOST, "name": name} for name in names]}))
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-operator"
    found = AdoptedNodes(name, folder, folder / "inventory.json", spec)
    operator = None
    try:
        found.boot()
        operator = StandInOperator(found, THEIRS, TOOLKIT_VERSION, LAYOUTS, CHART)
        operator.start()
        wait_for(lambda: found.offered() == {one: {"nvidia.com/gpu": 2} for one in names}, 300)
        found.kubectl("label", "node", *names, f"{MIG_CONFIG}=training", "--overwrite")
        wait_for(lambda: found.offered() == dict.fromkeys(names, OFFERED), 180)
        found.kubectl("create", "-f", "-", text=json.dumps(_deployment()))
        found.uid()
        _adopt(found)
        found.describe({})
        operator.upgrade(found.tree)
        for name in names:
            wanted = found.capacity["nodes"][name]["configuration"]
            wait_for(lambda name=name, wanted=wanted: found.labels(name).get(MIG_CONFIG) == wanted, 60)
        wait_for(lambda: all(operator.ready(name) for name in OPERANDS), 60)
        found.operator = operator
        yield found
    finally:
        if operator:
            operator.stop()
        found.lab("down")


def _adopt(operated):
    """Read the hosts as those that nobody has described, and the cluster beside it."""
    reached = yaml.safe_load(Path(operated.hosts).read_text())["all"]
    inventory = operated.folder / "unknown.json"
    hosts = reached["children"]["gpu_hosts"]["children"]["operated"]["hosts"]
    inventory.write_text(json.dumps({"all": {"vars": reached["vars"], "hosts": hosts}}))
    there = {
        "gpu_adopt_directory": str(operated.folder / "adopted"),
        "gpu_cluster_kubeconfig": operated.lab("kubeconfig").strip(),
    }
    return _UnknownNodes(operated.name, operated.folder, inventory).play("adopt", "-e", json.dumps(there))


def _deployment():
    """What people have: a pod that requests a MIG device by name, and nothing about who serves it."""
    labels = {"app": "sliced"}
    container = {
        "name": "work",
        "image": "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0",
        "command": ["sh", "-c", "until [ -e /tmp/again ]; do sleep 1; done"],
        "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}},
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    body = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "sliced"}, "spec": body}
