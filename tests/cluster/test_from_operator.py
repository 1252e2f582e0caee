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
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from demo import REPOSITORY, Demo, devices, wait_for
from hosts.progress import Progress
from nodes import programs
from operator_daemon_sets import DRIVER, MANAGER, NAMESPACE, OPERANDS, PLUGIN, PREFIX, TOOLKIT
from stand_in_operator import MIG_CONFIG, MIG_STATE, StandInOperator
from transcript import shorten, stale

NODE = "operated-1"
SPEC = {
    "hosts": [
        {
            "name": NODE,
            "group": "operated",
            "boards": [{"board": "h100-80gb-sxm", "count": 2}],
            "driver": "none",
            "node": "containerd-2.4",
        }
    ]
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
#: The hosts have all, and the operator's plugin goes next; and the way back.
BY_HOST = {key: value for key, value in TO_HOST.items() if not key.endswith("_migrate_from")} | {
    "gpu_kubernetes_mig_manager": "host",
    "gpu_kubernetes_dcgm_exporter": False,
}
TO_RELEASES = {**BY_HOST, "gpu_kubernetes_stack": "device_plugin", "gpu_kubernetes_migrate_from": "gpu_operator"}
TO_OPERATOR = {**BY_HOST, "gpu_kubernetes_stack": "gpu_operator", "gpu_kubernetes_migrate_from": "device_plugin"}
STACK = "gpufleet.github.io/stack"
STATE, SINCE, OPERATOR = (f"gpufleet.github.io/upgrade-{name}" for name in ("state", "since", "operator"))
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


class AdoptedNode(Demo):
    """The node, what is described of it, and a Deployment that uses it all the time."""

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

    def migrate(self):
        return self.play("migrate", "-e", json.dumps(self.options))

    def move(self, variables):
        """Have driver and toolkit brought as these variables say, unless that is so: a test can be run by its name alone."""
        if not self.brought_by("false" if variables is TO_HOST else "true"):
            self.describe(variables)
            self.operator.upgrade(self.tree)
            self.migrate()

    def migrate_killed(self, state):
        """Begin a migration, and kill it with all its processes as soon as the node is in this state."""
        inventories = [word for path in self.inventories for word in ("-i", path)]
        program = str(REPOSITORY / ".venv" / "bin" / "ansible-playbook")
        command = [program, *inventories, "-e", json.dumps(self.options), "gpufleet.nvidia.migrate"]
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
            "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
        }
        log = self.folder / f"killed-{state}.log"
        with log.open("wb") as output:
            run = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
        try:
            wait_for(
                lambda: (
                    run.poll() is not None or (self.record(STATE) == state and f"/{run.pid}-" in self.record(OPERATOR))
                ),
                300,
            )
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
        assert run.returncode == -signal.SIGKILL, log.read_text()[-4000:]

    def node(self):
        return self.get("node", NODE)

    def record(self, key):
        return self.node()["metadata"].get("annotations", {}).get(key, "")

    def sh(self, script):
        return self.lab("exec", NODE, "--", "sh", "-c", script)

    def uid(self):
        """Of the Deployment's pod, once one runs."""

        def running():
            pods = self.get("pods", "-l", "app=sliced")["items"]
            return [
                pod
                for pod in pods
                if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
            ]

        ((pod,),) = [wait_for(running, 120)]
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

    def operands(self):
        """Those that have a pod on the node."""
        return {pod["metadata"]["labels"].get("app") for pod in self.get("pods", "-n", NAMESPACE)["items"]} & set(
            OPERANDS
        )

    def layout(self):
        """The GPU instances of the second GPU, by their size, as the hardware has them."""
        gpus = json.loads(self.sh("virtual-gpu show"))["gpus"]
        return sorted(one["profile"] for one in gpus[1]["gpu_instances"])

    @property
    def enabled(self):
        """Whether the rendered values leave driver and toolkit to the operator."""
        values = yaml.safe_load((self.tree / "values" / "gpu-operator.yaml").read_text())
        return values["driver"]["enabled"], values["toolkit"]["enabled"]

    def brought_by(self, value):
        """Whether this is what the node's labels say of driver and toolkit."""
        labels = self.labels(NODE)
        return {labels[f"{PREFIX}{name}"] for name in ("driver", "container-toolkit")} == {value}

    def has_moved(self):
        """The host brings driver and toolkit, and nothing of the operator's is left but the pods that are to stay."""
        self.in_service()
        assert self.sh("cat /sys/module/nvidia/version").strip() == OURS
        query = "dpkg-query -W -f '${Package} ${Version}\\n' nvidia-kernel-open-dkms nvidia-container-toolkit"
        versions = dict(line.split() for line in self.sh(query).splitlines())
        assert versions == {"nvidia-container-toolkit": f"{TOOLKIT_VERSION}-1", "nvidia-kernel-open-dkms": f"{OURS}-1"}
        assert not self.sh("mount | grep ' /run/nvidia/driver' || true")
        assert "BinaryName = '/usr/bin/nvidia-container-runtime'" in self.sh("containerd config dump").replace('"', "'")
        assert self.brought_by("false")
        assert self.operands() == set(OPERANDS) - {DRIVER, TOOLKIT}

    def in_service(self):
        assert self.record(STATE) == "done"
        assert not self.node()["spec"].get("unschedulable")
        wait_for(lambda: self.offered() == {NODE: OFFERED}, 60)
        labels = self.labels(NODE)
        assert labels[MIG_STATE] == "success"
        assert not [key for key, value in labels.items() if "paused" in value], "nothing of the operator is kept away"
        assert self.layout() == LAYOUT


class UnknownNode(AdoptedNode):
    """The same host, in an inventory that only says how to reach it."""

    @property
    def inventories(self):
        return [str(self.inventory)]


@pytest.fixture(scope="module")
def operated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("from-operator")
    spec = folder / "lab.json"
    spec.write_text(json.dumps(SPEC))
    found = AdoptedNode(
        f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-operator", folder, folder / "inventory.json", spec
    )
    operator = None
    try:
        found.boot()
        operator = StandInOperator(found, THEIRS, TOOLKIT_VERSION, LAYOUTS, CHART)
        operator.start()
        wait_for(lambda: found.offered() == {NODE: {"nvidia.com/gpu": 2}}, 180)
        found.kubectl("label", "node", NODE, f"{MIG_CONFIG}=training", "--overwrite")
        wait_for(lambda: found.offered() == {NODE: OFFERED}, 120)
        found.kubectl("create", "-f", "-", text=json.dumps(deployment()))
        found.uid()
        adopt(found)
        found.describe({})
        operator.upgrade(found.tree)
        wait_for(lambda: found.labels(NODE).get(MIG_CONFIG) == found.capacity["nodes"][NODE]["configuration"], 60)
        wait_for(lambda: all(operator.ready(name) for name in OPERANDS), 60)
        found.operator = operator
        yield found
    finally:
        if operator:
            operator.stop()
        found.lab("down")


def adopt(operated):
    """Read the host as one that nobody has described, and the cluster beside it."""
    reached = yaml.safe_load(Path(operated.hosts).read_text())["all"]
    inventory = operated.folder / "unknown.json"
    hosts = reached["children"]["gpu_hosts"]["children"]["operated"]["hosts"]
    inventory.write_text(json.dumps({"all": {"vars": reached["vars"], "hosts": hosts}}))
    there = {
        "gpu_adopt_directory": str(operated.folder / "adopted"),
        "gpu_cluster_kubeconfig": operated.lab("kubeconfig").strip(),
    }
    return UnknownNode(operated.name, operated.folder, inventory).play("adopt", "-e", json.dumps(there))


def deployment():
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


def test_a_host_of_the_operator_is_adopted_as_it_is_and_left_alone(operated):
    adopted = operated.adopted()
    assert adopted["gpu_kubernetes_stack"] == "gpu_operator"
    assert adopted["gpu_kubernetes_operator_version"] == CHART, "the cluster's, not the newest"
    assert (adopted["nvidia_driver_state"], adopted["nvidia_toolkit_runtime"]) == ("unmanaged", "none")
    assert (adopted["nvidia_mig_strategy"], adopted["gpu_kubernetes_mig_manager"]) == ("mixed", "operator")
    assert operated.enabled == (True, True)
    assert "1 as described, 0 to change" in operated.plan()


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
