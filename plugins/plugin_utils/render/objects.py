# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain objects of a cluster: name space, runtime class, and the labels that put nodes into their pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.gitops import kept
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.model import (
    BACKEND_LABEL,
    CONFIGURATION_LABEL,
    EXEMPT_LABEL,
    MANAGED_BY,
    MIG_CONFIG_LABEL,
    PLUGIN_CONFIG_LABEL,
    POOL_LABEL,
    Cluster,
    Configuration,
)


def namespace(cluster: Cluster) -> dict[str, Any]:
    """Return the name space of all releases.

    Device plugins mount host paths, which only the level privileged admits, and see every GPU, which the policies forbid others.
    """
    metadata: dict[str, Any] = {
        "name": cluster.options["namespace"],
        "labels": {**MANAGED_BY, EXEMPT_LABEL: "true", "pod-security.kubernetes.io/enforce": "privileged"},
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": annotated(metadata, kept(cluster))}


def annotated(metadata: dict[str, Any], annotations: dict[str, str]) -> dict[str, Any]:
    """Return C(metadata) with C(annotations), where there are any."""
    return {**metadata, "annotations": annotations} if annotations else metadata


def runtime_class(cluster: Cluster) -> dict[str, Any]:
    """Return the runtime class under whose handler the hosts' container runtime starts GPU containers."""
    name = cluster.options["runtime_class"]
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": dict(MANAGED_BY)},
        "handler": name,
    }


def labels_of(cluster: Cluster, item: Configuration) -> dict[str, str]:
    """Return the labels that a node of C(item) must have for the rendered releases to find it."""
    labels = {POOL_LABEL: _label_value(item.pool), CONFIGURATION_LABEL: item.name}
    if item.sharing.backend == "hami":
        # HAMi's own label, gpu=on, has no prefix, and Node Feature Discovery would give it one.
        labels[BACKEND_LABEL] = item.sharing.backend
        if cluster.options["stack"] == "gpu_operator":
            labels["nvidia.com/gpu.deploy.device-plugin"] = "false"
    elif cluster.options["stack"] == "gpu_operator":
        labels[PLUGIN_CONFIG_LABEL] = item.name
        if cluster.options["mig_manager"] == "operator":
            labels[MIG_CONFIG_LABEL] = item.name if item.strategy != "none" else "all-disabled"
    return labels


def node_feature_rule(cluster: Cluster, items: Sequence[Configuration]) -> dict[str, Any]:
    """Return the rule by which Node Feature Discovery labels the nodes of the pools, by name.

    A rule can be synced and pruned by a GitOps controller without harm. A Node object cannot: pruning one removes the node.
    """
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": {"name": "gpufleet-pools", "labels": dict(MANAGED_BY)},
        "spec": {
            "rules": [
                {
                    "name": f"gpufleet {item.name}",
                    "labels": labels_of(cluster, item),
                    "matchFeatures": [
                        {
                            "feature": "system.name",
                            "matchExpressions": {"nodename": {"op": "In", "value": list(item.nodes)}},
                        }
                    ],
                }
                for item in items
            ]
        },
    }


def node_labels(cluster: Cluster, items: Sequence[Configuration]) -> list[dict[str, Any]]:
    """Return Node objects that hold nothing but the labels, for C(kubectl apply --server-side)."""
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels_of(cluster, item)}}
        for item in items
        for node in item.nodes
    ]


def _label_value(text: str) -> str:
    return text[:63].strip("-_.")
