# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that work on the nodes of a lab, and what the API server says of nodes and pods."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

#: Of workloads, and of what the rendered releases bring.
NAMESPACE, PLUGIN_NAMESPACE = "default", "nvidia-gpu"
IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
PLUGIN = "app.kubernetes.io/name=nvidia-device-plugin"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
#: Leaves a node by the label that the GPU Operator gives it, as the operator's operands do.
EXPORTER = "nvidia-dcgm-exporter"
EXPORTER_LABEL = "nvidia.com/gpu.deploy.dcgm-exporter"
#: A process of the host's driver, in the cgroup of its pod: the lab's kubelets make none, as their machine has no controllers.
_HOLD = (
    'exec busybox chroot /host systemd-run --quiet --scope --unit="hold-$POD"'
    ' --slice="kubepods-pod$(echo $POD | tr - _).slice" virtual-gpu hold'
)


def working(resource: str | None = None) -> dict[str, Any]:
    """The specification of a pod that works until it is told to end, on one of C(resource) or on no GPU."""
    container = {"name": "work", "image": IMAGE, "command": ["sleep", "86400"]}
    if resource:
        container["resources"] = {"limits": {resource: "1"}}
    # As process 1 it does not hear a polite word.
    return {"containers": [container], "terminationGracePeriodSeconds": 1}


def holding() -> dict[str, Any]:
    """The specification of a pod that has NVML of its host open without having asked for a GPU, as a monitor does."""
    container = {
        "name": "work",
        "image": IMAGE,
        "command": ["sh", "-c", _HOLD],
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
    }
    volumes = [{"name": "host", "hostPath": {"path": "/"}}]
    return {"containers": [container], "volumes": volumes, "hostPID": True, "terminationGracePeriodSeconds": 1}


def deployment(name: str, replicas: int, spec: dict[str, Any]) -> dict[str, Any]:
    """So many pods that are made again when they are evicted."""
    labels = {"example": name}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


class Workloads:
    """Those of one cluster; a thread counts how many of their pods run."""

    def __init__(self, kubeconfig: str) -> None:
        configuration = client.Configuration()
        config.load_kube_config(kubeconfig, client_configuration=configuration)
        self.api = client.ApiClient(configuration)
        self.core = client.CoreV1Api(self.api)
        self.apps = client.AppsV1Api(self.api)
        self.policy = client.PolicyV1Api(self.api)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: What was seen of every workload: the fewest of its pods that were running at a time, since it was complete.
        self.fewest: dict[str, int] = {}

    def start(self) -> None:
        """Make the exporter, and begin to count."""
        for node in self.core.list_node().items:
            self.core.patch_node(node.metadata.name, {"metadata": {"labels": {EXPORTER_LABEL: "true"}}})
        spec = {**holding(), "nodeSelector": {EXPORTER_LABEL: "true"}}
        self._daemon_set(PLUGIN_NAMESPACE, EXPORTER, spec)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def workload(
        self,
        name: str,
        replicas: int,
        resource: str | None = None,
        max_unavailable: int | None = None,
        pod: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Make a ReplicaSet of such pods and, with C(max_unavailable), its PodDisruptionBudget.

        :param more: of the pods' specification.
        """
        selector = {"matchLabels": {"app": name}}
        template = {"metadata": {"labels": {"app": name}}, "spec": {**(pod or working(resource)), **more}}
        spec = {"replicas": replicas, "selector": selector, "template": template}
        self.apps.create_namespaced_replica_set(NAMESPACE, {"metadata": {"name": name}, "spec": spec})
        if max_unavailable is not None:
            budget = {"maxUnavailable": max_unavailable, "selector": selector}
            self.policy.create_namespaced_pod_disruption_budget(NAMESPACE, {"metadata": {"name": name}, "spec": budget})

    def daemon_set(self, name: str, **more: Any) -> None:
        """Make a DaemonSet with a pod on every node, which leaves none of them."""
        self._daemon_set(NAMESPACE, name, {**working(), **more})

    def _daemon_set(self, namespace: str, name: str, spec: dict[str, Any]) -> None:
        template = {"metadata": {"labels": {"app": name}}, "spec": spec}
        body = {"selector": {"matchLabels": {"app": name}}, "template": template}
        self.apps.create_namespaced_daemon_set(namespace, {"metadata": {"name": name}, "spec": body})

    # -- what tests ask --------------------------------------------------------------------------------------------

    def node(self, name: str) -> dict[str, Any]:
        return self.api.sanitize_for_serialization(self.core.read_node(name))

    def offered(self, node: str) -> dict[str, int]:
        """Without the 0 that the kubelet keeps of a resource that is gone until it starts again."""
        found = self.node(node)["status"]["allocatable"].items()
        return {name: int(count) for name, count in found if name.startswith("nvidia.com/") and int(count)}

    def labels(self, name: str) -> dict[str, str]:
        return dict(self.node(name)["metadata"].get("labels") or {})

    def annotations(self, name: str) -> dict[str, str]:
        found = self.node(name)["metadata"].get("annotations") or {}
        return {key: value for key, value in found.items() if key.startswith("gpufleet.github.io/")}

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Those of a workload that are not over: the kubelet leaves behind what it did not admit again after a power cut."""
        answer = self.core.list_namespaced_pod(NAMESPACE, label_selector=f"app={name}")
        found = self.api.sanitize_for_serialization(answer)["items"]
        return [pod for pod in found if pod["status"].get("phase") not in ("Failed", "Succeeded")]

    def places(self, name: str) -> dict[str, str | None]:
        """UID of every pod of a workload to its node."""
        return {pod["metadata"]["uid"]: pod["spec"].get("nodeName") for pod in self.pods(name)}

    def running(self, name: str) -> dict[str, str]:
        """The same of those that run and are not on their way out."""
        return {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in self.pods(name)
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        }

    def complete(self, *names: str) -> bool:
        """Whether all pods of the workloads were seen running."""
        return all(self.fewest.get(name) for name in names)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(0.7):
            # The API server may be away: that is what is tested.
            with contextlib.suppress(ApiException, HTTPError):
                self._count()

    def _count(self) -> None:
        for found in self.apps.list_namespaced_replica_set(NAMESPACE).items:
            name = found.metadata.name
            running = len(self.running(name))
            if name in self.fewest or running == found.spec.replicas:
                self.fewest[name] = min(self.fewest.get(name, running), running)


def alone(node: str, resource: str) -> str:
    """A pod on C(node) that nothing would make again, for C(kubectl run --overrides)."""
    return json.dumps({"spec": {**working(resource), "nodeName": node}})
