# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects of the API as they are taken in, and which of them are the cluster's own. Pure.

Tenants make pods, DaemonSets and annotations as they like, and some make ResourceSlices. So what belongs to the cluster is known by where it is, in a
namespace that is named, and by owners that exist; never by a name, a label, an image or a mount.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...module_utils._formats.documents import table

#: The namespaces of the rendered releases, and those of other plugins: variables of the roles gpu_kubernetes and gpu_node, with their defaults.
NAMESPACE, MORE_NAMESPACES = "gpu_kubernetes_namespace", "gpu_node_plugin_namespaces"
DEFAULT_NAMESPACE, DEFAULT_MORE = "nvidia-gpu", ("gpu-operator",)
#: The option C(namespaces) of actions that ask which objects are the cluster's own.

#: The API of claims for devices, by which the DRA driver serves pods.
CLAIMS = "resource.k8s.io/v1"

_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "boolean": bool, "mapping": Mapping, "amount": (str, int)}


def _shape(written: Any) -> Any:
    if isinstance(written, Mapping):
        return {name: _shape(one) for name, one in written.items()}
    return [_shape(one) for one in written] if isinstance(written, list) else _TYPES[written]


#: What is read of objects, as object_shapes.yml explains it.
_SHAPES: Mapping[str, Mapping[str, Any]] = _shape(table(str(__package__), "object_shapes"))
POD, DAEMON_SET, NODE = (_SHAPES[name] for name in ("pod", "daemon_set", "node"))
CLUSTER_POLICY, NVIDIA_DRIVER = _SHAPES["cluster_policy"], _SHAPES["nvidia_driver"]
RESOURCE_SLICE, RESOURCE_CLAIM = _SHAPES["resource_slice"], _SHAPES["resource_claim"]
DEVICE_TAINT_RULE, RESOURCE_QUOTA = _SHAPES["device_taint_rule"], _SHAPES["resource_quota"]
CLUSTER_QUEUE = _SHAPES["cluster_queue"]


def taken(items: Any, shape: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a list of the API that have a shape: one that has another is nobody's pod, and hides no other."""
    return [one for one in items if isinstance(one, dict) and _fits(one, shape)] if isinstance(items, list) else []


def _fits(value: Any, shape: Any) -> bool:
    if value is None:
        return True
    if isinstance(shape, list):
        return isinstance(value, list) and all(item is not None and _fits(item, shape[0]) for item in value)
    if not isinstance(shape, Mapping):
        return isinstance(value, shape)
    if not isinstance(value, Mapping):
        return False
    if "*" in shape:
        return all(isinstance(name, str) and _fits(item, shape["*"]) for name, item in value.items())
    return all(_fits(value.get(name), of) for name, of in shape.items())


def own_namespaces(variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the namespaces in which the cluster's own plugins are, by the variables of a host, as plain data."""
    more = variables.get(MORE_NAMESPACES)
    return (
        str(variables.get(NAMESPACE) or DEFAULT_NAMESPACE),
        *map(str, more if isinstance(more, (list, tuple)) else DEFAULT_MORE),
    )


def own(documents: Iterable[Mapping[str, Any]], namespaces: Collection[str]) -> list[Mapping[str, Any]]:
    return [one for one in documents if metadata(one).get("namespace") in namespaces]


def metadata(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return (document or {}).get("metadata") or {}


def labels_of(document: Mapping[str, Any] | None) -> Mapping[str, str]:
    return metadata(document).get("labels") or {}


def annotations_of(document: Mapping[str, Any] | None) -> Mapping[str, str]:
    return metadata(document).get("annotations") or {}


def is_ready(document: Mapping[str, Any]) -> bool:
    """Whether a node or a pod has the condition Ready: of a node, whether its kubelet answers."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def is_cordoned(node: Mapping[str, Any] | None) -> bool:
    """Whether a node takes no new pods."""
    return bool(((node or {}).get("spec") or {}).get("unschedulable"))


def pod_spec(daemon_set: Mapping[str, Any]) -> Mapping[str, Any]:
    return ((daemon_set.get("spec") or {}).get("template") or {}).get("spec") or {}


def identities(documents: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """Return the namespaces and UIDs of objects: an owner is in the namespace of what it owns."""
    return frozenset((str(metadata(one).get("namespace")), str(metadata(one).get("uid"))) for one in documents)


def owned_by_node(document: Mapping[str, Any], name: str, uid: str) -> bool:
    """Whether a node says of an object that it is its own, as kubelets and their plugins do."""
    owners = metadata(document).get("ownerReferences") or ()
    return any((one.get("kind"), one.get("name"), one.get("uid")) == ("Node", name, uid) for one in owners)
