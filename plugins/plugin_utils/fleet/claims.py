# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices that NVIDIA's DRA driver publishes in ResourceSlices, and who was allocated which by a ResourceClaim. Pure, over objects of the API.

Names of attributes and kinds are the driver's (dra-driver-nvidia-gpu, C(cmd/gpu-kubelet-plugin/deviceinfo.go)), those of the classes its chart's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._formats.documents import whole_number
from .devices import Holding
from .objects import metadata, owned_by_node
from .pods import quantity

#: The driver that a ResourceSlice names, and the DeviceClass of whole GPUs.
GPU_CLASS = "gpu.nvidia.com"
MIG_CLASS = "mig.nvidia.com"
_MIB = 1024**2
#: How a MIG device is chosen by its profile, as the rendered examples do.
_BY_PROFILE = re.compile(r"""device\.attributes\[['"]gpu\.nvidia\.com['"]\]\.profile\s*==\s*['"]([^'"]+)['"]""")


def mig_devices(profile: str) -> str:
    """Return how MIG devices of a profile are called where devices are counted: their DeviceClass and the profile."""
    return f"{MIG_CLASS}/{profile}"


@dataclass(frozen=True)
class Published:
    """One device of a node in a ResourceSlice.

    :param kind: C(gpu.nvidia.com), or C(mig.nvidia.com/PROFILE).
    :param gpu: UUID of the GPU that a MIG device is on.
    """

    pool: str
    name: str
    kind: str
    uuid: str
    gpu: str = ""


def published(
    slices: Iterable[Mapping[str, Any]], nodes: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[Published, ...]]:
    """Return the GPUs and MIG devices that each node offers to claims.

    :param slices: ResourceSlices, of any driver. Those of a node count that the node owns, as the driver on it makes them, and of its pools only
        those of the newest generation: the scheduler, too, looks at a pool node by node.
    """
    specs = [
        spec for one in slices if (spec := one.get("spec") or {}).get("driver") == GPU_CLASS and _of(one, spec, nodes)
    ]
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        name, generation = _pool(spec)
        newest[spec["nodeName"], name] = max(generation, newest.get((spec["nodeName"], name), generation))
    found: dict[str, list[Published]] = {}
    for spec in specs:
        name, generation = _pool(spec)
        for device in (spec.get("devices") or ()) if generation == newest[spec["nodeName"], name] else ():
            attributes = device.get("attributes") or {}
            kind = _kind(attributes)
            if kind:
                uuid, gpu = _text(attributes, "uuid"), _text(attributes, "parentUUID")
                one = Published(name, str(device.get("name")), kind, uuid, gpu)
                found.setdefault(spec["nodeName"], []).append(one)
    return {node: tuple(devices) for node, devices in found.items()}


def _of(one: Mapping[str, Any], spec: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a slice is of a node that there is."""
    name = spec.get("nodeName")
    uid = metadata(nodes.get(name)).get("uid") if name else None
    return bool(uid) and owned_by_node(one, str(name), str(uid))


def counts(devices: Iterable[Published]) -> dict[str, int]:
    """Return how many devices of each kind there are."""
    return dict(sorted(Counter(device.kind for device in devices).items()))


def holdings(
    claims: Iterable[Mapping[str, Any]], devices: Mapping[str, Iterable[Published]]
) -> dict[str, tuple[Holding, ...]]:
    """Return, by node, which pod was allocated which of C(devices), and how much memory of it where the claim consumes some.

    :param claims: ResourceClaims. A claim that is allocated and reserved for no pod is held by nobody yet.
    """
    known: dict[tuple[str, str], dict[str, Published]] = {}
    for node, there in devices.items():
        for device in there:
            known.setdefault((device.pool, device.name), {})[node] = device
    found: dict[str, list[Holding]] = {}
    for claim in claims:
        status = claim.get("status") or {}
        users = [str(user.get("uid")) for user in status.get("reservedFor") or () if user.get("resource") == "pods"]
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        for result in results:
            nodes = known.get((str(result.get("pool")), str(result.get("device"))), {})
            # A pool that another node calls its own, too, is told apart by the node that the scheduler wrote into the claim.
            node = next(iter(nodes), "") if len(nodes) == 1 else _node_of(status["allocation"])
            # Who watches a device by admin access holds nothing of it.
            if result.get("driver") != GPU_CLASS or node not in nodes or result.get("adminAccess"):
                continue
            device = nodes[node]
            consumed = quantity((result.get("consumedCapacity") or {}).get("memory", 0)) // _MIB
            given = [Holding(uid, "", device.kind, device.uuid, memory_mib=consumed or None) for uid in users]
            if given:
                found.setdefault(node, []).extend(given)
    return {node: tuple(given) for node, given in found.items()}


def waiting(
    pod: Mapping[str, Any], claims: Mapping[tuple[str, str], Mapping[str, Any]], counted: set[tuple[str, str]]
) -> dict[str, int]:
    """Return how many devices a pod waits for by claims, by what devices are called where they are counted; a request that says more than that by its class.

    :param claims: ResourceClaims by namespace and name. C(counted): those that other pods wait for, too; those of this pod are added.
    """
    namespace = str(metadata(pod).get("namespace") or "default")
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    names = {str(one.get("name")): one.get("resourceClaimName") for one in made}
    found: Counter[str] = Counter()
    for one in (pod.get("spec") or {}).get("resourceClaims") or ():
        key = namespace, str(one.get("resourceClaimName") or names.get(str(one.get("name"))) or "")
        claim = claims.get(key)
        if claim is None:
            found[f"the ResourceClaim {key[1] or one.get('name')}, which there is not yet"] += 1
        elif key not in counted and not (claim.get("status") or {}).get("allocation"):
            for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
                found[_requested(request)] += (request.get("exactly") or {}).get("count") or 1
        counted.add(key)
    return dict(sorted(found.items()))


def _requested(request: Mapping[str, Any]) -> str:
    exact = request.get("exactly") or {}
    name = str(exact.get("deviceClassName") or "one of several classes")
    rules = [str((one.get("cel") or {}).get("expression")).strip() for one in exact.get("selectors") or ()]
    profile = _BY_PROFILE.fullmatch(rules[0]) if len(rules) == 1 else None
    alone = exact.get("allocationMode") in (None, "ExactCount") and not exact.get("adminAccess")
    if alone and not exact.get("capacity") and ((name == GPU_CLASS and not rules) or (name == MIG_CLASS and profile)):
        return mig_devices(profile.group(1)) if profile else name
    return f"{name} by rules of its own"


def _node_of(allocation: Mapping[str, Any]) -> str:
    """Return the node of devices that are local to one, or an empty text."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    fields = [field for term in terms for field in term.get("matchFields") or () if field.get("key") == "metadata.name"]
    values = [value for field in fields for value in field.get("values") or ()]
    return str(values[0]) if len(values) == 1 else ""


def _pool(spec: Mapping[str, Any]) -> tuple[str, int]:
    pool = spec.get("pool") or {}
    return str(pool.get("name")), whole_number(str(pool.get("generation"))) or 0


def _kind(attributes: Mapping[str, Any]) -> str:
    kind = _text(attributes, "type")
    if kind == "gpu":
        return GPU_CLASS
    return mig_devices(_text(attributes, "profile")) if kind == "mig" else ""


def _text(attributes: Mapping[str, Any], name: str) -> str:
    return str((attributes.get(name) or {}).get("string") or "")
