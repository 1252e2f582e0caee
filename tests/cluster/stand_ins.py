# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand-ins for what cannot run in a test: kubelets, the device plugin, and the controller of nodes, which would need their kubelets' signs
of life. They talk to a real control plane: its API server evicts, its controllers make pods and keep budgets, its scheduler places pods.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.clients import LABEL, PAUSED
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

#: Of workloads, and of what the rendered releases bring.
NAMESPACE, PLUGIN_NAMESPACE = "default", "nvidia-gpu"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
PLUGIN = {"app.kubernetes.io/name": "nvidia-device-plugin"}
#: Leaves a node by the label of the collection, as the rendered values of its chart say.
PLUGIN_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": LABEL, "operator": "NotIn", "values": [PAUSED]}]},
            ]
        }
    }
}
#: Leaves a node by the label that the GPU Operator gives it, as the operator's operands do.
EXPORTER = {"app": "nvidia-dcgm-exporter"}
EXPORTER_LABEL = "nvidia.com/gpu.deploy.dcgm-exporter"
#: While a pod of one of them runs on a node, a process of that host has NVML open.
HOLDERS = {"nvidia-device-plugin", "nvidia-dcgm-exporter"}
#: A pod with this label has a process that holds the driver of its host, whatever the pod asked for.
HOLDS = "test.gpufleet.github.io/holds-driver"
#: A pod with this label never ends, whatever it is told.
STUBBORN = "test.gpufleet.github.io/never-leaves"

_GPU = re.compile(r"^GPU [0-9]+: .*\(UUID: (GPU-[^)]+)\)")
_MIG = re.compile(r"^\s+MIG (\S+)\s+Device.*\(UUID: (MIG-[^)]+)\)")


def devices_of(listing: str) -> dict[str, list[str]]:
    """Return the devices by resource, as the plugin offers them under the strategy mixed, from C(nvidia-smi -L)."""
    found: dict[str, list[str]] = {}
    gpu = None
    for line in [*listing.splitlines(), "GPU 999: end (UUID: GPU-end)"]:
        mig, whole = _MIG.match(line), _GPU.match(line)
        if mig:
            found.setdefault(f"nvidia.com/mig-{mig[1].replace('+', '.')}", []).append(mig[2])
            gpu = None
        elif whole:
            if gpu:
                found.setdefault("nvidia.com/gpu", []).append(gpu)
            gpu = whole[1]
    return found


class StandIns:
    """One thread that does once a second what the missing parts would do.

    :param hosts: node name to a function that runs a shell script in the lab host and returns its output.
    """

    def __init__(self, kubeconfig: str, hosts: dict[str, Callable[[str], str]]) -> None:
        configuration = client.Configuration()
        config.load_kube_config(kubeconfig, client_configuration=configuration)
        self.api = client.ApiClient(configuration)
        self.core = client.CoreV1Api(self.api)
        self.apps = client.AppsV1Api(self.api)
        self.policy = client.PolicyV1Api(self.api)
        self.hosts = hosts
        self._devices: dict[str, dict[str, list[str]]] = {name: {} for name in hosts}
        self._given: dict[str, dict[str, list[str]]] = {}
        self._checkpoints: dict[str, str] = {}
        self._holding: dict[str, str] = {}
        #: Nodes on which a plugin's pod that starts does not become ready.
        self.plugin_fails: set[str] = set()
        self._registers: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: What was seen of every workload: the fewest of its pods that were running at a time, since it was complete.
        self.fewest: dict[str, int] = {}

    # -- set up ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for name in self.hosts:
            labels = {"kubernetes.io/hostname": name, EXPORTER_LABEL: "true"}
            self.core.create_node({"metadata": {"name": name, "labels": labels}})
        plugin = _daemon_set("nvidia-device-plugin", PLUGIN, affinity=PLUGIN_AFFINITY)
        exporter = _daemon_set("nvidia-dcgm-exporter", EXPORTER, nodeSelector={EXPORTER_LABEL: "true"})
        self.core.create_namespace({"metadata": {"name": PLUGIN_NAMESPACE}})
        for body in (plugin, exporter):
            self.apps.create_namespaced_daemon_set(PLUGIN_NAMESPACE, body)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def workload(self, name: str, replicas: int, resource: str, max_unavailable: int | None = None, **pod: Any) -> None:
        """Make a ReplicaSet of GPU pods and, with C(max_unavailable), its PodDisruptionBudget."""
        labels = {"app": name, **pod.pop("labels", {})}
        container = {"name": "work", "image": "work", "resources": {"limits": {resource: "1"}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **pod}}
        self.apps.create_namespaced_replica_set(
            NAMESPACE,
            {
                "metadata": {"name": name},
                "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
            },
        )
        if max_unavailable is not None:
            budget = {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": name}}}
            self.policy.create_namespaced_pod_disruption_budget(NAMESPACE, {"metadata": {"name": name}, "spec": budget})

    def daemon_set(self, name: str, **pod: Any) -> None:
        """Make a DaemonSet with a pod on every node, which leaves none of them."""
        self.apps.create_namespaced_daemon_set(NAMESPACE, _daemon_set(name, {"app": name}, **pod))

    # -- what tests ask --------------------------------------------------------------------------------------------

    def node(self, name: str) -> dict[str, Any]:
        return self.api.sanitize_for_serialization(self.core.read_node(name))

    def labels(self, name: str) -> dict[str, str]:
        return dict(self.node(name)["metadata"].get("labels") or {})

    def annotations(self, name: str) -> dict[str, str]:
        found = self.node(name)["metadata"].get("annotations") or {}
        return {key: value for key, value in found.items() if key.startswith("gpufleet.github.io/")}

    def pods(self, **labels: str) -> list[dict[str, Any]]:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        answer = self.core.list_pod_for_all_namespaces(label_selector=selector)
        return list(self.api.sanitize_for_serialization(answer)["items"])

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        said = ""
        while not self._stop.wait(0.7):
            # The API server may be away, and hosts reboot: that is what is tested. A failing test shows what else went wrong.
            try:
                self._round()
                said = ""
            except Exception:
                found = traceback.format_exc(limit=-3)
                if found != said:
                    sys.stderr.write(f"{time.strftime('%H:%M:%S')} stand-ins: {found}\n")
                said = found

    def _round(self) -> None:
        pods = self.pods()
        nodes = {name: self.node(name) for name in self.hosts}
        self._count(pods)
        self._kubelets(pods, nodes)

    def _kubelets(self, pods: list[dict[str, Any]], nodes: dict[str, Any]) -> None:
        for name in self.hosts:
            self._ready(name, nodes[name])
        # After the plugin's pod is ready, as in a cluster: until then the node offers what the one before had said.
        for name in sorted(self._registers):
            self._register(name)
            self._registers.discard(name)
        for pod in pods:
            metadata, node = pod["metadata"], pod["spec"].get("nodeName")
            if metadata.get("deletionTimestamp"):
                if STUBBORN not in metadata.get("labels", {}):
                    self._gone(pod)
                continue
            plugin = metadata["namespace"] == PLUGIN_NAMESPACE and PLUGIN.items() <= metadata.get("labels", {}).items()
            if plugin and node in self.plugin_fails:
                continue
            if node and pod["status"].get("phase") == "Pending" and self._admit(pod):
                self._hold(pod)
                self._status(pod, "Running")
                if plugin:
                    self._registers.add(node)
        # Those of pods that were deleted without a word to their kubelet.
        for uid in set(self._holding) - {pod["metadata"]["uid"] for pod in pods}:
            self._release(uid)
        self._write_checkpoints(pods)

    def _ready(self, name: str, node: dict[str, Any]) -> None:
        """A node is ready from the first sign of life on, which takes the taint away that the API server gave it."""
        if any(condition["type"] == "Ready" for condition in node["status"].get("conditions") or []):
            return
        condition = {"type": "Ready", "status": "True", "reason": "StandIn", "lastHeartbeatTime": None}
        self.core.patch_node_status(name, {"status": {"conditions": [condition]}})
        self.core.patch_node(name, {"spec": {"taints": None}})
        self._offer(name, {})

    def _register(self, node: str) -> None:
        """The plugin reads the GPUs when it starts, and the kubelet offers what it was told."""
        found = devices_of(self.hosts[node]("nvidia-smi -L"))
        previous = self._devices[node]
        self._devices[node] = found
        self._offer(node, {**dict.fromkeys(previous, 0), **{name: len(ids) for name, ids in found.items()}})

    def _offer(self, node: str, devices: dict[str, int]) -> None:
        counts = {"cpu": "64", "memory": "512Gi", "pods": "110", **{name: str(n) for name, n in devices.items()}}
        self.core.patch_node_status(node, {"status": {"capacity": counts, "allocatable": counts}})

    def _admit(self, pod: dict[str, Any]) -> bool:
        """Give the pod its devices, as the kubelet's device manager does."""
        wanted = _resources(pod["spec"])
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        taken = {device for ids in self._given.values() for devices in ids.values() for device in devices}
        given: dict[str, list[str]] = {}
        for resource, count in wanted.items():
            free = [device for device in self._devices[node].get(resource, []) if device not in taken]
            if len(free) < count:
                return False
            given[resource] = free[:count]
        self._given[uid] = given
        return True

    def _write_checkpoints(self, pods: list[dict[str, Any]]) -> None:
        there = {pod["metadata"]["uid"] for pod in pods}
        self._given = {uid: given for uid, given in self._given.items() if uid in there}
        for node in self.hosts:
            entries = [
                {
                    "PodUID": pod["metadata"]["uid"],
                    "ContainerName": "work",
                    "ResourceName": resource,
                    "DeviceIDs": {"0": devices},
                    "AllocResp": "",
                }
                for pod in pods
                if pod["spec"].get("nodeName") == node
                for resource, devices in self._given.get(pod["metadata"]["uid"], {}).items()
            ]
            text = json.dumps(
                {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": self._devices[node]}, "Checksum": 1}
            )
            if self._checkpoints.get(node) != text:
                folder = CHECKPOINT.rpartition("/")[0]
                self.hosts[node](f"mkdir -p {folder} && cat > {CHECKPOINT} <<'EOF'\n{text}\nEOF")
                self._checkpoints[node] = text

    def _status(self, pod: dict[str, Any], phase: str) -> None:
        condition = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        self.core.patch_namespaced_pod_status(
            pod["metadata"]["name"],
            pod["metadata"]["namespace"],
            {"status": {"phase": phase, "conditions": [condition]}},
        )

    def _hold(self, pod: dict[str, Any]) -> None:
        """A client of the driver starts: until its pod ends, the driver cannot be unloaded."""
        owner, uid = _owner(pod), pod["metadata"]["uid"]
        if HOLDS in pod["metadata"].get("labels", {}):
            where = f"--slice=kubepods-pod{uid.replace('-', '_')}.slice --unit=hold-{uid}"
            self.hosts[pod["spec"]["nodeName"]](f"systemd-run --quiet {where} virtual-gpu hold")
            self._holding[uid] = pod["spec"]["nodeName"]
        if owner in HOLDERS:
            # A transient unit can outlive its end for a while, and cannot be made again before that is over.
            unit = f"/run/systemd/system/{owner}.service"
            write = f"printf '[Service]\\nExecStart=/usr/bin/virtual-gpu hold\\n' > {unit} && systemctl daemon-reload"
            self.hosts[pod["spec"]["nodeName"]](f"test -e {unit} || {{ {write}; }}; systemctl start {owner}")

    def _release(self, uid: str) -> None:
        """The process of a pod with HOLDS ends, if it runs."""
        node = self._holding.pop(uid, None)
        if node:
            self.hosts[node](f"systemctl stop hold-{uid} 2> /dev/null || true")

    def _gone(self, pod: dict[str, Any]) -> None:
        owner = _owner(pod)
        self._release(pod["metadata"]["uid"])
        if owner in HOLDERS:
            self.hosts[pod["spec"]["nodeName"]](f"systemctl stop {owner} 2> /dev/null || true")
        with contextlib.suppress(ApiException):
            self.core.delete_namespaced_pod(
                pod["metadata"]["name"], pod["metadata"]["namespace"], grace_period_seconds=0
            )

    def _count(self, pods: list[dict[str, Any]]) -> None:
        for found in self.apps.list_namespaced_replica_set(NAMESPACE).items:
            name = found.metadata.name
            living = [pod for pod in pods if _owner(pod) == name and not pod["metadata"].get("deletionTimestamp")]
            running = sum(1 for pod in living if pod["status"].get("phase") == "Running")
            if name in self.fewest or running == found.spec.replicas:
                self.fewest[name] = min(self.fewest.get(name, running), running)


def _daemon_set(name: str, labels: dict[str, str], **pod: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": name, "image": name}], **pod}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def _owner(pod: dict[str, Any]) -> str | None:
    return next(
        (owner["name"] for owner in pod["metadata"].get("ownerReferences") or [] if owner.get("controller")), None
    )


def _resources(spec: dict[str, Any]) -> dict[str, int]:
    wanted: Counter[str] = Counter()
    for container in spec["containers"]:
        for name, count in ((container.get("resources") or {}).get("limits") or {}).items():
            if name.startswith("nvidia.com/"):
                wanted[name] += int(count)
    return dict(wanted)
