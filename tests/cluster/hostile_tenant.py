# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tenant who makes what Kubernetes lets them make, so that it is taken for what the cluster has of its own; without a GPU, and without a privilege.

Beside it a ResourceSlice, which only few may make, and records in the kernel's log of the machine, which anybody can have printed.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.nvidia.tests.forged_records import SXID, XID
from workloads import IMAGE

NAMESPACE = "tenant"
_UNTIL_KILLED = ["sleep", "86400"]
_TOLERATIONS = [{"operator": "Exists"}]
#: The kernel prints the name of an option that a file system does not know.
_FORGE = """for text in "$@"; do
  busybox unshare -U -r -m sh -c 'busybox mount -t tmpfs -o "$1" none /proc' sh "$text" 2>&1
done
exec sleep 86400"""


def _daemon_set(name: str, labels: dict[str, str], *terms: dict[str, Any], **container: Any) -> dict[str, Any]:
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [*terms]}]}
    }
    spec = {
        "containers": [{"name": "work", "image": IMAGE, "command": _UNTIL_KILLED, **container}],
        "tolerations": _TOLERATIONS,
        "terminationGracePeriodSeconds": 1,
        **({"affinity": {"nodeAffinity": required}} if terms else {}),
    }
    template = {"metadata": {"labels": {"tenant": name, **labels}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"selector": {"matchLabels": {"tenant": name}}, "template": template},
    }


def objects(node: str, plugin_uid: str, mark: str) -> list[dict[str, Any]]:
    """Return everything that the tenant makes.

    :param node: whose slice is forged.
    :param plugin_uid: of the DaemonSet of the real device plugin.
    :param mark: in the forged records of the kernel's log.
    """
    looks = {"app.kubernetes.io/name": "nvidia-device-plugin", "app": "nvidia-device-plugin-daemonset"}
    never = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    paused = {"key": "gpufleet.github.io/gpu-clients", "operator": "NotIn", "values": ["paused"]}
    moved = {"key": "gpufleet.github.io/migrated-to", "operator": "In", "values": ["dra"]}
    plugin = {
        "name": "nvidia-device-plugin-ctr",
        "command": _UNTIL_KILLED,
        "env": [{"name": "DEVICE_LIST_STRATEGY", "value": "envvar"}, {"name": "MPS_ROOT", "value": "/tmp"}],
        "volumeMounts": [{"name": "x", "mountPath": "/var/lib/kubelet/device-plugins"}],
    }
    annotations = {
        "hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,²,1:;" * 1000,
        "gpufleet.github.io/upgrade-state": "installing",
        "gpufleet.github.io/upgrade-since": "2999-01-01T00:00:00Z",
        "nvidia.com/gpu": "\x1b[2J",
    }
    pods = [
        _pod(
            "looks-like-the-plugin",
            {**plugin, "image": IMAGE},
            looks,
            annotations,
            volumes=[{"name": "x", "emptyDir": {}}],
        ),
        _pod("owned-by-the-plugin", {"name": "work", "image": IMAGE, "command": _UNTIL_KILLED}, looks, annotations),
        _pod(
            "writes-to-the-kernels-log",
            {"name": "work", "image": IMAGE, "command": ["sh", "-c", _FORGE, "sh", f"{XID} {mark}", f"{SXID} {mark}"]},
            {},
            {},
        ),
    ]
    pods[1]["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": "nvidia-device-plugin",
            "uid": plugin_uid,
            "controller": True,
        }
    ]
    for pod in pods:
        pod["spec"]["nodeName"] = node
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        _daemon_set("never-ready", looks, paused, readinessProbe=never),
        *_plugin_of_no_node(),
        _daemon_set("says-it-serves", {"app.kubernetes.io/name": "dra-driver-nvidia-gpu"}, moved, readinessProbe=never),
        *pods,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "forged"},
            "spec": {
                "driver": "gpu.nvidia.com",
                "nodeName": node,
                "pool": {"name": node, "generation": 10**9, "resourceSliceCount": 1},
                "devices": [
                    {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-forged"}}}
                ],
            },
        },
    ]


def _plugin_of_no_node() -> list[dict[str, Any]]:
    """A DaemonSet that is a device plugin to whoever goes by names, and needs not run for it."""
    found = _daemon_set("is-a-plugin", {})
    spec = found["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"tenant": "nobody"}
    spec["containers"] = [{"name": "nvidia-device-plugin-ctr", "image": IMAGE, "args": ["--mig-strategy=single"]}]
    return [found]


def _pod(
    name: str, container: dict[str, Any], labels: dict[str, str], annotations: dict[str, str], **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"tenant": name, **labels},
            "annotations": annotations,
        },
        "spec": {"containers": [container], "tolerations": _TOLERATIONS, "terminationGracePeriodSeconds": 1, **spec},
    }
