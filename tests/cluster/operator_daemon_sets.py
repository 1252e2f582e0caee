# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The DaemonSets that the GPU Operator makes of a ClusterPolicy, with containers of the lab (operator_containers/).

They are those of assets/*/0500_daemonset.yaml of the operator 26.7 with the changes of controllers/object_controls.go for CDI, reduced to what driver, toolkit,
plugin, gpu-feature-discovery and MIG need. There is no config-manager: a plugin has the MIG strategy of the policy, and shares nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodes import programs
from workloads import IMAGE

NAMESPACE = "gpu-operator"
#: Where the containers find on a node what their images would hold.
FOLDER = "/opt/gpu-operator"
PREFIX = "nvidia.com/gpu.deploy."
DRIVER, TOOLKIT = "nvidia-driver-daemonset", "nvidia-container-toolkit-daemonset"
PLUGIN, DISCOVERY = "nvidia-device-plugin-daemonset", "gpu-feature-discovery"
VALIDATOR, MANAGER = "nvidia-operator-validator", "nvidia-mig-manager"
OPERANDS = (DRIVER, TOOLKIT, VALIDATOR, PLUGIN, DISCOVERY, MANAGER)
#: What gpu-feature-discovery runs as.
ACCOUNT = "nvidia-gpu-feature-discovery"
HASH = "nvidia.com/last-applied-hash"
_VALIDATIONS = "/run/nvidia/validations"
#: Place in containers to place on the host, and how mounts go between them.
_VOLUMES = {
    "/host": ("/", "HostToContainer"),
    "/run/nvidia": ("/run/nvidia", "Bidirectional"),
    FOLDER: (FOLDER, "None"),
    "/driver-root": ("/run/nvidia/driver", "HostToContainer"),
    "/var/run/cdi": ("/var/run/cdi", "None"),
    "/usr/local/nvidia": ("/usr/local/nvidia", "None"),
    "/runtime/config-dir": ("/etc/containerd", "None"),
    "/runtime/config-dir.d": ("/etc/containerd/conf.d", "None"),
    "/runtime/sock-dir": ("/run/containerd", "None"),
    "/var/lib/kubelet/device-plugins": ("/var/lib/kubelet/device-plugins", "None"),
}
_ALWAYS = ("/host", "/run/nvidia", FOLDER)
_OF_DRIVER = ("/driver-root", "/var/run/cdi")
_OF_RUNTIME = ("/usr/local/nvidia", "/runtime/config-dir", "/runtime/config-dir.d", "/runtime/sock-dir")
_TOOLKIT = {
    "ROOT": "/usr/local/nvidia",
    "TOOLKIT_PID_FILE": "/run/nvidia/toolkit/toolkit.pid",
    "TOOLKIT_SOURCE_ROOT": f"{FOLDER}/toolkit/deb",
    "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND": "management.nvidia.com/gpu",
    "NVIDIA_CONTAINER_RUNTIME_MODE": "cdi",
    "NVIDIA_RUNTIME_SET_AS_DEFAULT": "false",
    "CDI_ENABLED": "true",
    "RUNTIME": "containerd",
    "CONTAINERD_RUNTIME_CLASS": "nvidia",
    "RUNTIME_CONFIG": "/runtime/config-dir/config.toml",
    "RUNTIME_DROP_IN_CONFIG": "/runtime/config-dir.d/99-nvidia.toml",
    "RUNTIME_DROP_IN_CONFIG_HOST_PATH": "/etc/containerd/conf.d/99-nvidia.toml",
    "RUNTIME_SOCKET": "/runtime/sock-dir/containerd.sock",
}
_ALL_GPUS = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
_PLUGIN = {
    **_ALL_GPUS,
    "PASS_DEVICE_SPECS": "true",
    "FAIL_ON_INIT_ERROR": "true",
    "DEVICE_ID_STRATEGY": "uuid",
    "DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri",
    "CDI_ENABLED": "true",
    "CDI_ANNOTATION_PREFIX": "cdi.k8s.io/",
}
_SLEEP = ("sh", "-c", "while true; do sleep 86400; done")


@dataclass(frozen=True)
class _Container:
    """A privileged container.

    :param environment: besides where it is.
    :param places: of _VOLUMES, besides those that all have.
    :param before_end: what it runs before it is ended.
    :param ready: what says that it is ready.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    image: str = IMAGE
    before_end: str = ""
    ready: str = ""

    @property
    def mounts(self) -> dict[str, str]:
        """Name of the volume to the place in the container."""
        named = {f"volume-{number}": place for number, place in enumerate(_VOLUMES)}
        return {name: place for name, place in named.items() if place in (*_ALWAYS, *self.places)}

    def body(self) -> dict[str, Any]:
        given = {"NVIDIA_VISIBLE_DEVICES": "void", **self.environment}
        places = (("NODE_NAME", "spec.nodeName"), ("POD_NAME", "metadata.name"))
        found: dict[str, Any] = {
            "name": self.name,
            "image": self.image,
            "command": list(self.command),
            "env": [
                *({"name": key, "value": value} for key, value in given.items()),
                *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in places),
            ],
            "securityContext": {"privileged": True},
            "volumeMounts": [
                {"name": name, "mountPath": place, "mountPropagation": _VOLUMES[place][1]}
                for name, place in self.mounts.items()
            ],
        }
        if self.before_end:
            found["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", self.before_end]}}}
        if self.ready:
            found["readinessProbe"] = {"exec": {"command": ["test", "-f", self.ready]}, "periodSeconds": 1}
        return found


_DRIVER_VALIDATION = _Container("driver-validation", (f"{FOLDER}/nvidia-validator", "driver"))


def daemon_sets(policy: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Name to object of those that a ClusterPolicy enables, which owns them; each with a hash of what it is."""
    spec, strategy = policy["spec"], {"MIG_STRATEGY": policy["spec"]["mig"]["strategy"]}
    keys = {DRIVER: "driver", TOOLKIT: "toolkit", PLUGIN: "devicePlugin", DISCOVERY: "gfd", MANAGER: "migManager"}
    image = f"nvcr.io/nvidia/k8s-device-plugin:{programs.version('nvidia-device-plugin')}"
    # In a cluster whose nodes get the toolkit from it, all plugins name this hook in what they ask the runtime for.
    hook = {"NVIDIA_CDI_HOOK_PATH": "/usr/local/nvidia/toolkit/nvidia-cdi-hook"} if _enabled(spec, "toolkit") else {}
    drop_mark, drop_all = f"rm -f {_VALIDATIONS}/.driver-ctr-ready", f"rm -f {_VALIDATIONS}/*-ready"
    toolkit_validation = _Container(
        "toolkit-validation", (f"{FOLDER}/nvidia-validator", "toolkit"), {"NVIDIA_VISIBLE_DEVICES": "all"}
    )
    pods = {
        DRIVER: _pod(
            _program(
                "nvidia-driver-ctr", "nvidia-driver", before_end=drop_mark, ready=f"{_VALIDATIONS}/.driver-ctr-ready"
            ),
            _program("k8s-driver-manager", "driver-manager"),
        ),
        TOOLKIT: _pod(
            _program("nvidia-container-toolkit-ctr", "nvidia-toolkit", _TOOLKIT, (*_OF_DRIVER, *_OF_RUNTIME)),
            _DRIVER_VALIDATION,
        ),
        VALIDATOR: _with_gpus(
            _pod(_Container(VALIDATOR, _SLEEP, before_end=drop_all), _DRIVER_VALIDATION, toolkit_validation)
        ),
        PLUGIN: _with_gpus(
            _pod(
                _program(
                    "nvidia-device-plugin",
                    "nvidia-device-plugin",
                    {**_PLUGIN, **strategy, **hook},
                    (*_OF_DRIVER, "/var/lib/kubelet/device-plugins"),
                    image,
                )
            )
        ),
        DISCOVERY: {
            **_with_gpus(
                _pod(
                    _program(
                        DISCOVERY,
                        "gpu-feature-discovery",
                        {**_ALL_GPUS, **strategy, "GFD_SLEEP_INTERVAL": "5s", "NAMESPACE": NAMESPACE},
                        image=image,
                    )
                )
            ),
            "serviceAccountName": ACCOUNT,
        },
        MANAGER: _with_layouts(_pod(_program(MANAGER, "mig-manager", ready="/tmp/driver-ready")), spec),
    }
    return {name: _daemon_set(name, pod, policy) for name, pod in pods.items() if _enabled(spec, keys.get(name, ""))}


def _enabled(spec: Mapping[str, Any], key: str) -> bool:
    return (spec.get(key) or {}).get("enabled") is not False


def _program(
    name: str,
    script: str,
    environment: Mapping[str, str] | None = None,
    places: tuple[str, ...] = (),
    image: str = IMAGE,
    before_end: str = "",
    ready: str = "",
) -> _Container:
    """The container that runs a script of operator_containers/."""
    return _Container(name, (f"{FOLDER}/{script}",), environment or {}, places, image, before_end, ready)


def _pod(container: _Container, *before: _Container) -> dict[str, Any]:
    places = {name: place for one in (container, *before) for name, place in one.mounts.items()}
    return {
        "containers": [container.body()],
        "initContainers": [one.body() for one in before],
        "volumes": [
            {"name": name, "hostPath": {"path": _VOLUMES[place][0], "type": "DirectoryOrCreate"}}
            for name, place in places.items()
        ],
        "hostPID": True,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }


def _with_gpus(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "runtimeClassName": "nvidia"}


def _with_layouts(pod: dict[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with the ConfigMap of layouts that the policy names."""
    pod["volumes"].append({"name": "layouts", "configMap": {"name": spec["migManager"]["config"]["name"]}})
    pod["containers"][0]["volumeMounts"].append({"name": "layouts", "mountPath": "/mig-parted-config"})
    return pod


#: The end of the label that a node has for an operand.
_LABELS = {
    DRIVER: "driver",
    TOOLKIT: "container-toolkit",
    VALIDATOR: "operator-validator",
    PLUGIN: "device-plugin",
    DISCOVERY: "gpu-feature-discovery",
    MANAGER: "mig-manager",
}


def _daemon_set(name: str, pod: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, Any]:
    labels = {"app": name} | ({"app.kubernetes.io/component": "nvidia-driver"} if name == DRIVER else {})
    owner = {key: policy["metadata"][key] for key in ("name", "uid")}
    owner |= {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "controller": True, "blockOwnerDeletion": True}
    template = {"metadata": {"labels": labels}, "spec": {**pod, "nodeSelector": {f"{PREFIX}{_LABELS[name]}": "true"}}}
    spec = {
        "selector": {"matchLabels": {"app": name}},
        "updateStrategy": {"type": "OnDelete" if name == DRIVER else "RollingUpdate"},
        "template": template,
    }
    annotations = {HASH: hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": spec,
    }
