# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who serves pods that request GPUs and MIG devices by name on which node: the device plugin, or the DRA driver by extended resources (KEP-5004). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...module_utils._sharing.mps_instances import GPU
from . import claims, clients
from .objects import labels_of, metadata, pod_spec
from .pods import GPU_PREFIXES
from .text import LABEL_PREFIX

#: Set by C(gpufleet.nvidia.migrate) alone, never by a rule: what serves the node since. Rendered releases keep away from the other side.
MIGRATED_LABEL = f"{LABEL_PREFIX}/migrated-to"
PLUGIN, DRA = "device-plugin", "dra"
#: Values of that label, by C(nvidia_sharing_backend).
SERVERS = {"mps": PLUGIN, "dra": DRA}
NAMES = {PLUGIN: "the device plugin", DRA: "the DRA driver"}
#: KEP-5004: a gate of all components in 1.34 and 1.35, on by default from 1.36, and from 1.37 on without a way to switch it off (kube_features.go).
FIRST_WITH_CLAIMS, ON_BY_DEFAULT, LOCKED = (1, 34), (1, 36), (1, 37)
#: The first release with the API of claims.
KUBERNETES = "Kubernetes " + ".".join(map(str, FIRST_WITH_CLAIMS))
GATE = "DRAExtendedResource"
_VERSION = re.compile(r"v?([0-9]{1,4})[.]([0-9]{1,4})")


@dataclass(frozen=True)
class Served:
    """One node on which such a pod can run.

    :param by: C(device-plugin) or C(dra); of a pool that is migrated, before the node is.
    :param to: while its pool is migrated, what serves the node afterwards; else empty.
    :param resources: what pods request, C(nvidia.com/gpu) or C(nvidia.com/mig-PROFILE).
    """

    node: str
    pool: str
    by: str
    to: str = ""
    resources: tuple[str, ...] = (GPU,)


def entries(served: Iterable[Served]) -> list[dict[str, Any]]:
    """Return what M(gpufleet.nvidia.render) says of the nodes of one cluster: an entry for nodes that differ in their names alone."""
    alike: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for one in served:
        alike.setdefault((one.pool, one.by, one.to, one.resources), []).append(one.node)
    return [
        {"pool": pool, "by": by, "to": to, "resources": list(resources), "nodes": nodes}
        for (pool, by, to, resources), nodes in alike.items()
    ]


def read(said: Iterable[Mapping[str, Any]]) -> tuple[Served, ...]:
    """Return the nodes of which L(entries) were said."""
    return tuple(
        Served(str(node), str(one["pool"]), str(one["by"]), str(one.get("to") or ""), tuple(one["resources"]))
        for one in said
        for node in one["nodes"]
    )


def now(served: Sequence[Served], nodes: Mapping[str, Mapping[str, Any]]) -> tuple[Served, ...]:
    """Return the same where the labels of nodes say which of them were migrated."""
    found = []
    for one in served:
        done = one.to and labels_of(nodes.get(one.node)).get(MIGRATED_LABEL) == one.to
        found.append(replace(one, by=one.to, to="") if done else one)
    return tuple(found)


def lines(cluster: str, served: Sequence[Served]) -> list[str]:
    """Return on which nodes a pod that requests a resource may land, for people; nothing where no DRA driver is among them."""
    found = []
    for resource in claimed(served):
        found.append(f"cluster {cluster}: pods that request {resource}: N may land on")
        by: dict[tuple[str, str], list[str]] = {}
        for one in served:
            if resource in one.resources:
                by.setdefault((one.by, one.to), []).append(one.node)
        for (server, to), nodes in sorted(by.items()):
            then = f", until gpufleet.nvidia.migrate moves them to {NAMES[to]}" if to else ""
            found.append(f"  {', '.join(sorted(nodes))}: served by {NAMES[server]}{then}")
    return found


def claimed(served: Sequence[Served]) -> list[str]:
    """Return the resources that a DRA driver serves on one of the nodes, or will."""
    return sorted({resource for one in served if DRA in (one.by, one.to) for resource in one.resources})


def too_old(version: str) -> str:
    """Return what keeps a Kubernetes of this version from serving extended resources by DRA at all; empty where nothing does."""
    if _older(version, FIRST_WITH_CLAIMS):
        return (
            f"Kubernetes {version} serves no extended resources by DRA: 1.36 does by default, 1.34 with the feature gate {GATE} in "
            "kube-apiserver, kube-scheduler, kube-controller-manager and kubelet"
        )
    return ""


def _older(version: str, than: tuple[int, int]) -> bool:
    found = _VERSION.match(version)
    return found is not None and (int(found.group(1)), int(found.group(2))) < than


def class_problem(classes: Iterable[Mapping[str, Any]], version: str, resource: str = GPU) -> str:
    """Return why no DeviceClass, or more than one, serves C(resource); empty where exactly one does."""
    keep, install = "of the chart dra-driver-nvidia-gpu", "Install the release dra-driver-nvidia-gpu"
    if resource != GPU:
        keep, install = "of the rendered tree", "Apply objects/device-classes.yaml of the rendered tree"
    names = sorted(
        str(metadata(one).get("name"))
        for one in classes
        if (one.get("spec") or {}).get("extendedResourceName") == resource
    )
    if len(names) == 1:
        return ""
    if names:
        return (
            f"the DeviceClasses {' and '.join(names)} both have extendedResourceName: {resource}, and which of them serves a pod is not "
            f"defined. Delete all but the one {keep}"
        )
    gate = (
        f"; the API server of Kubernetes {version} drops the field without the feature gate {GATE} (on by default from 1.36)"
        if _older(version, LOCKED)
        else ""
    )
    return f"no DeviceClass has extendedResourceName: {resource}, so pods that request it wait on the nodes that the DRA driver serves. {install}{gate}"


def unready(daemon_sets: Iterable[Mapping[str, Any]], labels: Mapping[str, str], server: str) -> str:
    """Return why nothing would serve a node after it was moved; empty where a DaemonSet would."""
    if any(_only_on(one, labels, server) for one in daemon_sets):
        return ""
    return (
        f"no DaemonSet would run on it with the label {MIGRATED_LABEL}={server} and not without. Render the clusters with "
        "nvidia_sharing_migrate_from, apply the tree, wait until its releases are installed, and run again"
    )


def not_left(
    daemon_sets: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    slices: Iterable[Mapping[str, Any]],
    node: Mapping[str, Mapping[str, Any]],
    labels: Mapping[str, str],
    server: str,
) -> list[str]:
    """Return what of the other side is still on a node.

    :param daemon_sets: the cluster's own, and C(pods) its own on the node.
    :param slices: the cluster's ResourceSlices, where the DRA driver is the other side.
    """
    other = DRA if server == PLUGIN else PLUGIN
    theirs = {str(metadata(one).get("uid")) for one in daemon_sets if _only_on(one, labels, other)}
    found = [f"pod {clients.title(pod)}" for pod in pods if clients.owner(pod) in theirs]
    published = [device for there in claims.published(slices, node).values() for device in there]
    return found + ([f"{len(published)} devices in ResourceSlices of the node"] if published else [])


def left_over(node: Mapping[str, Any]) -> list[str]:
    """Return the resources of NVIDIA's device plugin that the status of a node lists."""
    status = node.get("status") or {}
    there = {*(status.get("capacity") or {}), *(status.get("allocatable") or {})}
    return sorted(name for name in map(str, there) if name.startswith(GPU_PREFIXES))


def _only_on(daemon_set: Mapping[str, Any], labels: Mapping[str, str], server: str) -> bool:
    """Whether a DaemonSet runs on a node only while that side serves it."""
    spec = pod_spec(daemon_set)
    running = clients.resumed(labels)
    other = DRA if server == PLUGIN else PLUGIN
    there = clients.placed(spec, {**running, MIGRATED_LABEL: server})
    return there and not clients.placed(spec, {**running, MIGRATED_LABEL: other})
