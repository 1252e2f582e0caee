# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster under the GPU Operator 26.7, whose controller and images are not available: its objects, its labels, and containers that leave what its own leave.

The labels of nodes follow controllers/state_manager.go (addGPUStateLabels, removeAllGPUStateLabels) and nodelabeling_controller.go (sources of 2026-08-21).
Kubernetes itself starts and ends the pods of its DaemonSets, by the labels of nodes. Real are the device plugin, gpu-feature-discovery, Node Feature Discovery,
mig-parted, and the toolkit's installer with all that it installs; the rest is in operator_containers/, with its sources. What the containers change in the
cluster is done here, because they have no client: the label of a host with a driver of its own, and the pauses and states of the MIG manager.
"""

from __future__ import annotations

import contextlib
import io
import json
import platform
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.object_fields import known_kinds
from demo import Demo, wait_for
from hosts.lab import Lab
from hosts.paths import LabPaths
from hosts.progress import Progress
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from nodes import programs
from operator_daemon_sets import (
    ACCOUNT,
    DISCOVERY,
    DRIVER,
    FOLDER,
    HASH,
    MANAGER,
    NAMESPACE,
    PLUGIN,
    PREFIX,
    VALIDATOR,
    daemon_sets,
)
from real_tools import install
from urllib3.exceptions import HTTPError

MIG_CONFIG, MIG_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
#: Of Node Feature Discovery, in the values of the operator's chart; and that it looks more often than once a minute.
_PCI = {"deviceClassWhitelist": ["02", "0200", "0207", "0300", "0302"], "deviceLabelFields": ["vendor"]}
_DISCOVERED = {
    "master": {"config": {"extraLabelNs": ["nvidia.com"]}},
    "worker": {"config": {"core": {"sleepInterval": "3s"}, "sources": {"pci": _PCI}}},
}
#: What gpu-feature-discovery may do (assets/gpu-feature-discovery/0200_role.yaml and 0210_clusterrole.yaml).
_RULES = [
    {
        "apiGroups": ["nfd.k8s-sigs.io"],
        "resources": ["nodefeatures"],
        "verbs": ["get", "list", "watch", "create", "update"],
    },
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
]
_LAYOUTS = "default-mig-parted-config"
#: gpuStateLabels of a node for containers.
_STATE_LABELS = (
    "driver",
    "gpu-feature-discovery",
    "container-toolkit",
    "device-plugin",
    "dcgm",
    "dcgm-exporter",
    "node-status-exporter",
    "operator-validator",
    "client",
)
#: What the MIG manager sends away while it changes a layout (mig-parted, cmd/nvidia-mig-manager, and its scripts of reconfiguration).
_PAUSED_FOR_MIG = ("device-plugin", "gpu-feature-discovery", "dcgm", "dcgm-exporter", "operator-validator")
_PAUSED = "paused-for-mig-change"
_DRIVER_PACKAGES = (
    "libnvidia-ml1",
    "libnvidia-cfg1",
    "libcuda1",
    "nvidia-driver-cuda",
    "nvidia-modprobe",
    "nvidia-persistenced",
    "nvidia-kernel-open-dkms",
)
_MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem")
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def policy(chart: str, driver: str) -> dict[str, Any]:
    """A ClusterPolicy as the chart C(chart) makes it where nothing but the MIG strategy and the version of the driver is set."""
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy", "labels": {"app.kubernetes.io/component": "gpu-operator", "helm.sh/chart": f"gpu-operator-{chart}"}},
        "spec": {
            "operator": {"defaultRuntime": "containerd", "runtimeClass": "nvidia"},
            "daemonsets": {"updateStrategy": "RollingUpdate"},
            "driver": {"enabled": True, "repository": "nvcr.io/nvidia", "image": "driver", "version": driver},
            "toolkit": {"enabled": True, "installDir": "/usr/local/nvidia"},
            "cdi": {"enabled": True},
            "devicePlugin": {"enabled": True},
            "dcgm": {"enabled": False},
            "dcgmExporter": {"enabled": False},
            "gfd": {"enabled": True},
            "mig": {"strategy": "mixed"},
            "migManager": {"enabled": True, "config": {"name": "default-mig-parted-config", "default": "all-disabled"}},
            "nodeStatusExporter": {"enabled": False},
        },
    }  # fmt: skip


def definition() -> dict[str, Any]:
    """The definition of ClusterPolicy, with the fields, types and values of the chart that the collection is pinned to."""
    spec = _schema(known_kinds()["ClusterPolicy"].fields)
    kept = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": kept}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {
        "kind": "ClusterPolicy",
        "listKind": "ClusterPolicyList",
        "plural": "clusterpolicies",
        "singular": "clusterpolicy",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterpolicies.nvidia.com"},
        "spec": {"group": "nvidia.com", "scope": "Cluster", "names": names, "versions": [version]},
    }


def _schema(wanted: Any) -> dict[str, Any]:
    if isinstance(wanted, Mapping):
        found: dict[str, Any] = {
            "type": "object",
            "properties": {name.rstrip("*"): _schema(one) for name, one in wanted.items()},
        }
        required = [name.rstrip("*") for name in wanted if name.endswith("*")]
        return {**found, "required": required} if required else found
    if isinstance(wanted, list):
        return {"type": "array", "items": _schema(wanted[0])}
    if wanted == "any":
        return {"x-kubernetes-preserve-unknown-fields": True}
    kind, *values = wanted.split(" ")
    return {"type": kind, "enum": [value.strip('"') for value in values]} if values else {"type": kind}


class StandInOperator:
    """The operator of a lab's cluster; a thread does what its controllers do.

    :param driver: the version that its containers bring.
    :param layouts: the configurations of its MIG manager, as mig-parted has them.
    """

    def __init__(
        self, demo: Demo, driver: str, toolkit: str, layouts: Mapping[str, Any], chart: str = "v26.7.0"
    ) -> None:
        self._demo, self._driver, self._toolkit, self._layouts, self._chart = demo, driver, toolkit, layouts, chart
        configuration = client.Configuration()
        config.load_kube_config(demo.lab("kubeconfig").strip(), client_configuration=configuration)
        api = client.ApiClient(configuration)
        self._core, self._apps, self._custom = (
            client.CoreV1Api(api),
            client.AppsV1Api(api),
            client.CustomObjectsApi(api),
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: Container of the MIG manager to the configuration that it last applied or found applied.
        self._applied: dict[str, str] = {}

    def start(self) -> None:
        """Put the images on the nodes, install the chart's objects, and begin."""
        lab = Lab(self._demo.name, Progress())
        archive = self._images()
        for host in lab.hosts():
            done = host.execute(
                ["sh", "-c", f"mkdir -p {FOLDER} && tar -xf - -C {FOLDER}"], stdin=archive, capture=True
            )
            assert done.returncode == 0, done.stderr
        create = ("create", "-f", "-")
        self._demo.kubectl(*create, text=json.dumps(definition()))
        self._demo.kubectl("wait", "--for=condition=Established", "crd/clusterpolicies.nvidia.com", "--timeout=60s")
        self._demo.kubectl("create", "namespace", NAMESPACE)
        self._demo.kubectl(
            "create", "configmap", _LAYOUTS, "-n", NAMESPACE, f"--from-literal=config.yaml={self._mig_file}"
        )
        self._demo.kubectl(*create, text=yaml.safe_dump_all(_objects()))
        self._demo.kubectl("create", "--validate=strict", "-f", "-", text=json.dumps(policy(self._chart, self._driver)))
        self._install_discovery()
        self._thread.start()

    def _install_discovery(self) -> None:
        """The chart of Node Feature Discovery, which is a part of the operator's."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as values:
            json.dump(_DISCOVERED, values)
            values.flush()
            command = [
                programs.helm(Progress()),
                "--kubeconfig",
                self._demo.lab("kubeconfig").strip(),
                "--namespace",
                NAMESPACE,
            ]
            command += [
                "install",
                "gpu-operator-node-feature-discovery",
                programs.chart("nfd-master"),
                "--values",
                values.name,
            ]
            subprocess.run(list(map(str, command)), check=True, capture_output=True)

    def upgrade(self, tree: Path) -> None:
        """Apply a rendered tree, as a release of the operator's chart with its values: what is not said stays."""
        values = yaml.safe_load((tree / "values" / "gpu-operator.yaml").read_text(encoding="utf-8"))
        self._demo.kubectl("apply", "--server-side", "-f", str(tree / "objects"))
        labels = tree / "node-labels"
        if labels.is_dir():
            self._demo.kubectl("apply", "--server-side", "-f", str(labels))
        spec = {
            key: values[key]
            for key in ("driver", "toolkit", "mig", "migManager", "devicePlugin", "cdi")
            if key in values
        }
        self._demo.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", json.dumps({"spec": spec}))

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    @property
    def _mig_file(self) -> str:
        return yaml.safe_dump({"version": "v1", "mig-configs": dict(self._layouts)})

    def pods(self, app: str) -> list[Any]:
        """The pods of one operand that are not about to end."""
        found = self._core.list_namespaced_pod(NAMESPACE, label_selector=f"app={app}").items
        return [pod for pod in found if pod.metadata.deletion_timestamp is None]

    def ready(self, app: str) -> bool:
        """Whether each node whose labels ask for the operand has a ready pod of it."""
        wanted = self._apps.read_namespaced_daemon_set(app, NAMESPACE).status
        return (
            wanted.number_ready
            == wanted.updated_number_scheduled
            == wanted.desired_number_scheduled
            == len(self.pods(app))
            > 0
        )

    def _run(self) -> None:
        while not self._over.wait(0.5):
            # Objects change while they are looked at, and what was waited for in vain is tried again.
            with contextlib.suppress(ApiException, HTTPError, AssertionError):
                self._reconcile()

    def _reconcile(self) -> None:
        found = self._custom.list_cluster_custom_object("nvidia.com", "v1", "clusterpolicies")["items"]
        if not found:
            return
        nodes = {node.metadata.name: dict(node.metadata.labels or {}) for node in self._core.list_node().items}
        for name, labels in nodes.items():
            self._label(name, {key: value for key, value in state_labels(labels).items() if labels.get(key) != value})
        self._apply_daemon_sets(found[0])
        for pod in self.pods(DRIVER):
            self._report_host_driver(pod)
        for pod in self.pods(MANAGER):
            if is_ready(pod) and pod.spec.node_name in nodes:
                self._manage_mig(pod, nodes[pod.spec.node_name])
        if not found[0].get("status"):
            status = {"status": {"state": "ready", "namespace": NAMESPACE}}
            self._custom.patch_cluster_custom_object_status(
                "nvidia.com", "v1", "clusterpolicies", found[0]["metadata"]["name"], status
            )

    def _label(self, node: str, labels: Mapping[str, str | None]) -> None:
        if labels:
            self._core.patch_node(node, {"metadata": {"labels": dict(labels)}})

    def _apply_daemon_sets(self, cluster_policy: Mapping[str, Any]) -> None:
        """Have those that the policy enables, as it has them, and no others."""
        there = {item.metadata.name: item.metadata for item in self._apps.list_namespaced_daemon_set(NAMESPACE).items}
        wanted = daemon_sets(cluster_policy)
        for name, body in wanted.items():
            if name not in there:
                self._apps.create_namespaced_daemon_set(NAMESPACE, body)
            elif there[name].annotations.get(HASH) != body["metadata"]["annotations"][HASH]:
                self._apps.replace_namespaced_daemon_set(name, NAMESPACE, body)
        ours = [name for name, one in there.items() if HASH in (one.annotations or {})]
        for name in set(ours) - set(wanted):
            self._apps.delete_namespaced_daemon_set(name, NAMESPACE)

    def _report_host_driver(self, pod: Any) -> None:
        """Set the label as the driver manager does (disableContainerizedDriver)."""
        for status in pod.status.init_container_statuses or ():
            ended = [state.terminated for state in (status.state, status.last_state) if state and state.terminated]
            if any((state.message or "").strip() == "pre-installed" for state in ended):
                self._label(pod.spec.node_name, {f"{PREFIX}driver": "pre-installed"})

    def _manage_mig(self, pod: Any, labels: Mapping[str, str]) -> None:
        """As nvidia-mig-manager: look at the layout when it starts and when the label changes, and change it with the operands paused."""
        node, wanted = pod.spec.node_name, labels.get(MIG_CONFIG)
        (container,) = (one.container_id for one in pod.status.container_statuses)
        if not wanted or self._applied.get(container) == wanted:
            return
        if not self._mig(pod, "assert", wanted):
            self._label(node, {MIG_STATE: "pending"})
            paused = {f"{PREFIX}{name}" for name in _PAUSED_FOR_MIG if labels.get(f"{PREFIX}{name}") == "true"}
            self._label(node, dict.fromkeys(paused, _PAUSED))
            wait_for(lambda: not [one for app in (PLUGIN, VALIDATOR, DISCOVERY) for one in self._on(app, node)], 120)
            done = self._mig(pod, "apply", wanted)
            self._label(node, {**dict.fromkeys(paused, "true"), MIG_STATE: "success" if done else "failed"})
        elif labels.get(MIG_STATE) != "success":
            self._label(node, {MIG_STATE: "success"})
        self._applied[container] = wanted

    def _on(self, app: str, node: str) -> list[Any]:
        """The pods of an operand on a node, those that are about to end among them."""
        return [
            one
            for one in self._core.list_namespaced_pod(NAMESPACE, label_selector=f"app={app}").items
            if one.spec.node_name == node
        ]

    def _mig(self, pod: Any, action: str, wanted: str) -> bool:
        try:
            self._demo.kubectl("exec", "-n", NAMESPACE, pod.metadata.name, "--", f"{FOLDER}/mig-parted", action, wanted)
        except AssertionError:
            return False
        return True

    def _images(self) -> bytes:
        """What the images hold, as an archive: the driver and toolkit of the lab's package repository, NVIDIA's installer and mig-parted, and the scripts."""
        state = json.loads(LabPaths(self._demo.name).state.read_text(encoding="utf-8"))
        repository = Path(state["repository"])
        (driver,) = (repository / "compute/cuda/repos").glob("*/x86_64")
        toolkit = repository / "libnvidia-container/stable/deb/amd64"
        with tempfile.TemporaryDirectory() as folder:
            work, root = Path(folder), Path(folder) / "root"
            for package in _DRIVER_PACKAGES:
                _unpack(driver, f"{package}_{self._driver}-1_*.deb", work / "driver")
            for archive in toolkit.glob(f"*_{self._toolkit}-1_*.deb"):
                _unpack(toolkit, archive.name, root / "toolkit" / "deb")
            for part in ("usr/bin", _LIBRARIES):
                _move(work / "driver" / part, root / "driver" / part)
            _build_modules(next((work / "driver/usr/src").iterdir()), self._driver, root / "driver" / "modules")
            # The lab's package of it has one library, NVIDIA's two.
            libraries = root / "toolkit/deb" / _LIBRARIES
            (libraries / "libnvidia-container-go.so.1").write_bytes(
                (libraries / "libnvidia-container.so.1").read_bytes()
            )
            installer, parted = programs.tools(("nvidia-ctk-installer", "nvidia-mig-parted"), Progress())
            with io.BytesIO() as data:
                with tarfile.open(fileobj=data, mode="w") as archive:
                    archive.add(root, ".")
                    archive.add(installer, "toolkit/nvidia-ctk-installer")
                    archive.add(parted, "nvidia-mig-parted")
                    archive.add(install.MODULES.parent / "with-machine", "with-machine")
                    for script in sorted((Path(__file__).parent / "operator_containers").iterdir()):
                        archive.add(script, script.name)
                return data.getvalue()


def state_labels(labels: Mapping[str, str]) -> dict[str, str | None]:
    """The labels that the operator gives a node which has these: it keeps every value that is there; None removes one."""
    ours = [f"{PREFIX}{name}" for name in (*_STATE_LABELS, "mig-manager")]
    if (
        labels.get("feature.node.kubernetes.io/pci-10de.present") != "true"
        or labels.get(f"{PREFIX}operands") == "false"
    ):
        return {key: None for key in ours if key in labels}
    found: dict[str, str | None] = {"nvidia.com/gpu.present": "true"}
    found |= {f"{PREFIX}{name}": labels.get(f"{PREFIX}{name}") or "true" for name in _STATE_LABELS}
    if labels.get("nvidia.com/mig.capable") == "true":
        # migManager.config.default.
        found[f"{PREFIX}mig-manager"] = labels.get(f"{PREFIX}mig-manager", "true")
        found[MIG_CONFIG] = labels.get(MIG_CONFIG) or "all-disabled"
    return found


def _objects() -> list[dict[str, Any]]:
    """What the operator makes besides: the runtime class, and what gpu-feature-discovery runs as."""
    group, subject = "rbac.authorization.k8s.io", {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": ACCOUNT}
    return [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": ACCOUNT}, "rules": _RULES},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def is_ready(pod: Any) -> bool:
    return any((one.type, one.status) == ("Ready", "True") for one in pod.status.conditions or ())


def _unpack(folder: Path, pattern: str, target: Path) -> None:
    (archive,) = folder.glob(pattern)
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["dpkg-deb", "--extract", archive, target], check=True)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _build_modules(source: Path, version: str, target: Path) -> None:
    """Build the modules for the running kernel from the sources of the package, as DKMS does with its Makefile."""
    target.mkdir(parents=True)
    for module in _MODULES:
        name = module.replace("-", "_")
        told = {"UTS_RELEASE": platform.release(), "NAME": name, "VERSION": version, "LICENSE": "Dual MIT/GPL"}
        defined = [f'-D{key}="{value}"' for key, value in told.items()]
        command = [
            "gcc",
            "-c",
            "-O1",
            "-ffreestanding",
            "-fno-pic",
            *defined,
            f"-DMODULE_{name}",
            "-o",
            str(target / f"{module}.ko"),
        ]
        subprocess.run([*command, str(source / "module.c")], check=True)
