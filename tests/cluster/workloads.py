# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests make in a cluster of real nodes, and what they ask of it."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from typing import Any

from kubernetes import client, config

NAMESPACE = "default"
IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
#: Leaves a node by the label that the GPU Operator gives it, as the operator's operands do.
EXPORTER = {"app": "nvidia-dcgm-exporter"}
EXPORTER_LABEL = "nvidia.com/gpu.deploy.dcgm-exporter"
#: A container with it has the driver open for as long as it lives, whatever it asked for.
HOLDS_DRIVER = {"privileged": True}


class Workloads:
    """Pods by their controllers, and a thread that counts how many of them run."""

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
        for node in self.core.list_node().items:
            self.core.patch_node(node.metadata.name, {"metadata": {"labels": {EXPORTER_LABEL: "true"}}})
        exporter = {"nodeSelector": {EXPORTER_LABEL: "true"}}
        self.daemon_set("nvidia-dcgm-exporter", EXPORTER, holds_driver=True, **exporter)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def workload(
        self,
        name: str,
        replicas: int,
        resource: str,
        max_unavailable: int | None = None,
        labels: dict[str, str] | None = None,
        holds_driver: bool = False,
        ends: bool = True,
        **pod: Any,
    ) -> None:
        """Make a ReplicaSet and, with C(max_unavailable), its PodDisruptionBudget.

        :param ends: whether its containers end when they are told to.
        """
        template = {
            "metadata": {"labels": {"app": name, **(labels or {})}},
            "spec": pod_spec(resource, holds_driver, ends, **pod),
        }
        selector = {"matchLabels": {"app": name}}
        self.apps.create_namespaced_replica_set(
            NAMESPACE,
            {"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": selector, "template": template}},
        )
        if max_unavailable is not None:
            budget = {"metadata": {"name": name}, "spec": {"maxUnavailable": max_unavailable, "selector": selector}}
            self.policy.create_namespaced_pod_disruption_budget(NAMESPACE, budget)

    def daemon_set(
        self, name: str, labels: dict[str, str] | None = None, holds_driver: bool = False, **pod: Any
    ) -> None:
        """Make a DaemonSet with a pod on every node that it selects."""
        labels = labels or {"app": name}
        template = {"metadata": {"labels": labels}, "spec": pod_spec("cpu", holds_driver, **pod)}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        self.apps.create_namespaced_daemon_set(NAMESPACE, {"metadata": {"name": name}, "spec": spec})

    def node(self, name: str) -> dict[str, Any]:
        return self.api.sanitize_for_serialization(self.core.read_node(name))

    def labels(self, name: str) -> dict[str, str]:
        return dict(self.node(name)["metadata"].get("labels") or {})

    def annotations(self, name: str) -> dict[str, str]:
        found = self.node(name)["metadata"].get("annotations") or {}
        return {key: value for key, value in found.items() if key.startswith("gpufleet.github.io/")}

    def pods(self, **labels: str) -> list[dict[str, Any]]:
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        answer = self.core.list_namespaced_pod(NAMESPACE, label_selector=selector)
        return list(self.api.sanitize_for_serialization(answer)["items"])

    def _run(self) -> None:
        said = ""
        while not self._stop.wait(0.5):
            # The API server may be away: that is what is tested. A failing test shows what else went wrong.
            try:
                self._count()
                said = ""
            except Exception:
                found = traceback.format_exc(limit=-3)
                if found != said:
                    sys.stderr.write(f"{time.strftime('%H:%M:%S')} workloads: {found}\n")
                said = found

    def _count(self) -> None:
        for found in self.apps.list_namespaced_replica_set(NAMESPACE).items:
            name = found.metadata.name
            living = [pod for pod in self.pods(app=name) if not pod["metadata"].get("deletionTimestamp")]
            running = sum(1 for pod in living if pod["status"].get("phase") == "Running")
            if name in self.fewest or running == found.spec.replicas:
                self.fewest[name] = min(self.fewest.get(name, running), running)


def pod_spec(resource: str, holds_driver: bool = False, ends: bool = True, **pod: Any) -> dict[str, Any]:
    """A pod that asks for one of C(resource) and stays."""
    script = "exec sleep 86400" if ends else "trap '' TERM; while :; do sleep 1; done"
    container: dict[str, Any] = {
        "name": "work",
        "image": IMAGE,
        "command": ["sh", "-c", script],
        "resources": {"limits": {resource: "10m" if resource == "cpu" else "1"}},
    }
    gpu = resource.startswith("nvidia.com/")
    if holds_driver:
        # Privileged, as NVIDIA's exporter is: the toolkit gives it every GPU because the image asks for all.
        container.update(command=["virtual-gpu", "hold"], securityContext=HOLDS_DRIVER)
        container["volumeMounts"] = [{"name": "hand", "mountPath": "/usr/bin/virtual-gpu"}]
        pod.setdefault("volumes", []).append({"name": "hand", "hostPath": {"path": "/usr/bin/virtual-gpu"}})
    return {
        "terminationGracePeriodSeconds": 1 if ends else 3600,
        **({"runtimeClassName": "nvidia"} if gpu or holds_driver else {}),
        "containers": [container],
        **pod,
    }
