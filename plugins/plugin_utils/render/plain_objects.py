# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain objects of a cluster: namespace, runtime class, and the labels that put nodes into their pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._runtimes import DISTRIBUTIONS
from ...module_utils._versions import numbers
from ..fleet.names import CONFIGURATION_LABEL, MIG_CONFIG_LABEL, POOL_LABEL, label_value
from ..fleet.node_match import NodeMatch
from ..fleet.sharing_configurations import LABEL, UNSHARED
from .clusters import (
    BACKEND_LABEL,
    DEPLOY_LABELS,
    DEPLOY_PLUGIN_LABEL,
    EXEMPT_LABEL,
    MANAGED_BY,
    DescribedCluster,
    PluginConfiguration,
    hashed_key,
    kube_object,
    plugin_key,
)
from .device_plugin import operator_texts
from .gitops import kept
from .gpu_operator import strategy_of

#: The runtime classes that k3s and RKE2 make themselves.
_OF_RANCHER = frozenset({"nvidia", "nvidia-experimental"})


def namespace(cluster: DescribedCluster) -> dict[str, Any]:
    """Return the namespace of all releases.

    Device plugins mount host paths, which only the level privileged admits, and see every GPU, which the policies forbid others.
    """
    labels = {**MANAGED_BY, EXEMPT_LABEL: "true", "pod-security.kubernetes.io/enforce": "privileged"}
    return annotated(kube_object("v1", "Namespace", cluster.options["namespace"], labels), kept(cluster))


def annotated(item: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return an object with annotations, and without the field where there are none."""
    return {**item, "metadata": {**item["metadata"], **({"annotations": annotations} if annotations else {})}}


def runtime_class(cluster: DescribedCluster) -> dict[str, Any]:
    """Return the runtime class under whose handler the hosts' container runtime starts GPU containers."""
    name = cluster.options["runtime_class"]
    return kube_object("node.k8s.io/v1", "RuntimeClass", name, MANAGED_BY, handler=name)


def has_runtime_class(cluster: DescribedCluster) -> bool:
    """Whether the tree brings the runtime class. What makes one itself would fight with the tree for it.

    k3s and RKE2 bring theirs with the server, for the whole cluster; so one such node is enough.
    """
    name = cluster.options["runtime_class"]
    if not name or operator_serves(cluster):
        return False
    if name not in _OF_RANCHER:
        return True
    version = numbers(str(cluster.options["version"]))[:2]
    first = [DISTRIBUTIONS[runtime].first_with_classes for runtime in cluster.runtimes & set(DISTRIBUTIONS)]
    return not any(release and version >= release for release in first)


def operator_serves(cluster: DescribedCluster) -> bool:
    """Whether a GPU Operator serves pools of the cluster; it makes its own runtime class."""
    return cluster.options["stack"] == "gpu_operator" and bool(cluster.plugin_configurations)


def labels_of(cluster: DescribedCluster, item: PluginConfiguration, chosen: str = "") -> dict[str, str]:
    """Return the labels that a node of C(item) must have for the rendered releases to find it.

    :param chosen: the named configuration that the inventory gives the node; without one the label that names it is left to whoever
        runs C(kubectl label), unless a GPU Operator has to be told the pool's.
    """
    if item.match.labels:
        return dict(item.match.labels)
    labels = {POOL_LABEL: label_value(item.pool), CONFIGURATION_LABEL: item.name}
    operator = cluster.options["stack"] == "gpu_operator"
    if item.labelled_backend != "mps":
        # HAMi's own label, gpu=on, has no prefix, and Node Feature Discovery would give it one.
        labels[BACKEND_LABEL] = item.labelled_backend
        if operator:
            # The operator's plugin would offer the same GPUs a second time. Without its pods nothing reads a configuration.
            labels[DEPLOY_PLUGIN_LABEL] = "false"
    elif operator and (chosen or not item.choices.default):
        labels[LABEL] = _operator_key(cluster, chosen) if chosen else plugin_key(item)
    elif chosen:
        labels[LABEL] = chosen
    for what in sorted(item.of_host) if operator else ():
        if cluster.pools_that_bring(what)[1]:
            labels[DEPLOY_LABELS[what]] = "false"
    # The operator runs no MIG manager on a node without a board that has MIG.
    if operator and cluster.options["mig_manager"] == "operator" and (item.strategy != "none" or item.profiles):
        labels[MIG_CONFIG_LABEL] = item.name if item.strategy != "none" else "all-disabled"
    return labels


def names_of_choices(cluster: DescribedCluster, item: PluginConfiguration) -> dict[str, str]:
    """Return, by each value of the label that the rendered ConfigMap has a file for, the configuration; the pool's own has no name."""
    operator = cluster.options["stack"] == "gpu_operator"
    return {(plugin_key(item) if operator else item.name): "", **{name: name for name in item.choices.named}}


def _operator_key(cluster: DescribedCluster, chosen: str) -> str:
    """Return the key of a named configuration that changes with its content: config-manager looks at the label and nothing else."""
    return chosen if chosen == UNSHARED else hashed_key(chosen, operator_texts(cluster, strategy_of(cluster))[chosen])


def _by_choice(item: PluginConfiguration) -> dict[str, list[str]]:
    """Return the nodes of a configuration by what the inventory chooses for them; most have one entry, without a name."""
    found: dict[str, list[str]] = {}
    for node, choices in zip(item.nodes, item.choices_of, strict=True):
        found.setdefault(choices.chosen, []).append(node)
    return dict(sorted(found.items()))


def node_feature_rule(cluster: DescribedCluster, items: Sequence[PluginConfiguration]) -> dict[str, Any]:
    """Return the rule by which Node Feature Discovery labels the nodes of the pools, by name or by a GPU on their PCI bus.

    A rule can be synced and pruned by a GitOps controller without harm. A Node object cannot: pruning one removes the node.
    """
    rules = [
        {
            "name": f"gpufleet {item.name} {chosen}".strip(),
            "labels": labels_of(cluster, item, chosen),
            "matchFeatures": [_feature(item.match, nodes)],
        }
        for item in items
        for chosen, nodes in _by_choice(item).items()
    ]
    return kube_object(
        "nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule", "gpufleet-pools", MANAGED_BY, spec={"rules": rules}
    )


def _feature(match: NodeMatch, nodes: Sequence[str]) -> dict[str, Any]:
    """Match nodes by name, or a node with one such GPU or more: NFD has no way to count devices.

    Its values are those of sysfs, without 0x (source/pci/utils.go).
    """
    feature, wanted = "system.name", {"nodename": nodes}
    if match.devices:
        feature, wanted = "pci.device", {"vendor": ["10de"], "class": ["0300", "0302"], "device": match.devices}
    expressions = {name: {"op": "In", "value": list(values)} for name, values in wanted.items()}
    return {"feature": feature, "matchExpressions": expressions}


def node_labels(cluster: DescribedCluster, items: Sequence[PluginConfiguration]) -> list[dict[str, Any]]:
    """Return Node objects that hold nothing but the labels, for C(kubectl apply --server-side)."""
    return [
        kube_object("v1", "Node", node, labels)
        for item in items
        for chosen, nodes in _by_choice(item).items()
        for labels in [labels_of(cluster, item, chosen)]
        for node in nodes
    ]
