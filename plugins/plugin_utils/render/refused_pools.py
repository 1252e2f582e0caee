# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Refuse pools that one cluster, one configuration or one node cannot serve as they are described, and what cannot be said of nodes that are found by
a property. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from ...module_utils._formats.imex import MASKED
from ...module_utils._formats.imex import VARIABLE as IMEX
from ...module_utils._migration import VARIABLES, leaves, refuse_stack
from ...module_utils._plan import Refused
from ...module_utils._sharing import modes
from ..fleet.capacity import Capacity
from ..fleet.node_match import VARIABLE
from ..fleet.sharing_configurations import CHOICE, CONFIGURATIONS, DEFAULT
from ..fleet.text import counted
from .clusters import DEPLOY_LABELS, DescribedCluster, PluginConfiguration, plugin_key

STACK = "gpu_kubernetes_migrate_from"
_BY_NAME = f"{VARIABLE}: {{}} finds the nodes by name."


def refuse_nobody_partitions(cluster: DescribedCluster) -> None:
    """Refuse the operator's MIG manager without a pool of the device plugin: there is no operator then."""
    if (cluster.options["stack"], cluster.options["mig_manager"]) != ("gpu_operator", "operator"):
        return
    for item in cluster.configurations:
        if item.strategy != "none":
            reason = f"operator, and no GPU Operator is rendered for cluster {cluster.name}: no pool of it is served by the device plugin"
            remedy = "Set gpu_kubernetes_mig_manager: host."
            raise Refused(f"gpu_kubernetes_mig_manager of pool {item.pool}", reason, remedy)


def refuse_mixed_backends(cluster: DescribedCluster) -> None:
    """Refuse HAMi beside others that serve nvidia.com/gpu.

    HAMi's scheduler and webhook take over pods that ask for nvidia.com/gpu anywhere in the cluster.
    """
    hami = cluster.with_backend("hami")
    if not hami:
        return
    thing = f"nvidia_sharing_backend of pool {hami[0].pool}"
    for item in cluster.plugin_configurations:
        for name in item.plugin_texts:
            if "nvidia.com/gpu" in item.choices.named[name].capacity.resources:
                raise Refused(
                    f"{CONFIGURATIONS}.{name}",
                    f"a node of pool {item.pool} that chooses it would offer nvidia.com/gpu, as HAMi does in cluster {cluster.name} for pool {hami[0].pool}",
                    "Set rename: true in it, or give the pool a cluster of its own.",
                )
        if "nvidia.com/gpu" in item.capacity.resources or item.sharing.migrate_from:
            reason = f"HAMi and the device plugin of pool {item.pool} would both offer nvidia.com/gpu in cluster {cluster.name}"
            remedy = f"Give the pool a cluster of its own, or set nvidia_sharing_rename: true (or nvidia_mig_strategy: mixed) on pool {item.pool}."
            raise Refused(thing, reason, remedy)
    for item in cluster.with_backend("dra"):
        raise Refused(
            thing,
            f"HAMi and the DRA driver of pool {item.pool} would both serve nvidia.com/gpu in cluster {cluster.name}: the driver's chart gives "
            "its DeviceClass gpu.nvidia.com this extendedResourceName",
            "Give one of the pools a cluster of its own (gpu_kubernetes_cluster).",
        )


def refuse_migration(cluster: DescribedCluster) -> None:
    """Refuse what decides otherwise than by the label of a node which of two servers runs there."""
    for item in cluster.configurations:
        if not item.sharing.migrate_from:
            continue
        thing = f"nvidia_sharing_migrate_from of pool {item.pool}"
        if cluster.options["stack"] == "gpu_operator":
            reason = "the GPU Operator has no migration in place between its device plugin and the DRA driver"
            remedy = "Set gpu_kubernetes_stack: device_plugin first, whose release serves the pool node by node."
            raise Refused(thing, reason, remedy)
        if item.compute_domains:
            reason = f"ComputeDomains of the DRA driver run IMEX on its nodes ({IMEX}: {MASKED}), and they would end with the pool's claims"
            remedy = "Change such a pool as a whole: drain its nodes, then set nvidia_sharing_backend alone."
            raise Refused(thing, reason, remedy)


def refuse_hand_over(pool: str, desired: Mapping[str, Any]) -> None:
    """Refuse a pool that is moved from the GPU Operator's containers to its hosts, or back, and is described otherwise."""
    moved = [name for operand, name in VARIABLES.items() if leaves(desired, operand)]
    if moved:
        refuse_stack(f"{moved[0]} of pool {pool}", str(desired["gpu_kubernetes_stack"]))


def refuse_same_stack(before: str, stack: str) -> None:
    if before == stack:
        reason = f"it is {before}, and so is gpu_kubernetes_stack"
        other = "gpu_operator" if before == "device_plugin" else "device_plugin"
        raise Refused(
            STACK, reason, f"Set gpu_kubernetes_stack: {other}, to which the nodes are moved, or remove {STACK}."
        )


def refuse_change_of_stack(cluster: DescribedCluster) -> None:
    """Refuse to move nodes between the device plugins of two stacks where pods, their driver or their layout would not last."""
    if not cluster.options["migrate_from"]:
        return
    thing = f"{STACK} of cluster {cluster.name}"
    for what in DEPLOY_LABELS:
        _hosts, others = cluster.pools_that_bring(what)
        # Where an image of the hosts brings it, the values say so.
        given = (cluster.options["values"].get("gpu-operator") or {}).get(what)
        if others and (given or {}).get("enabled") is not False:
            reason = f"the GPU Operator brings the {what} to nodes of pool {others[0]}, and leaves the cluster in the end, or is only to come"
            remedy = f"Change the stack when all hosts bring driver and container toolkit, and no pool has {' or '.join(VARIABLES.values())}."
            raise Refused(thing, reason, remedy)
    if cluster.options["mig_manager"] == "operator":
        reason = "gpu_kubernetes_mig_manager is operator, and the MIG manager leaves with the GPU Operator"
        raise Refused(thing, reason, "Set gpu_kubernetes_mig_manager: host first, and run gpufleet.nvidia.site.")
    for item in cluster.plugin_configurations:
        if item.match.by_property:
            reason = f"{VARIABLE} of pool {item.pool} finds nodes that gpufleet.nvidia.migrate does not know, and nothing would serve them at the end"
            raise Refused(thing, reason, f"{_BY_NAME} Set it as it is after the migration.")
        if "mps" in {one.sharing.mode for one in (item.choices.own, *item.choices.named.values())}:
            reason = f"pool {item.pool} is shared by MPS, and the clients of an MPS daemon end with the device plugin that started it"
            remedy = "Give the pool a cluster of its own, or change the stack with nodes that are drained and nvidia_sharing_mode: none."
            raise Refused(thing, reason, remedy)


def refuse_spread(sharing: modes.Sharing, shown: Capacity, gpus: int) -> None:
    """Refuse more slices for a pod than a node can give it.

    Two time slices of one GPU are legal. Two MPS slices, or two of HAMi or DRA, on one GPU are no larger slice.
    """
    if sharing.mode == "time_slicing" and sharing.backend == "mps":
        most, of = max(shown.resources.values(), default=0), "time slices"
    else:
        most, of = gpus, "GPUs"
    if sharing.gpus_per_pod > most:
        reason = f"a pod spreads over {sharing.gpus_per_pod} {of}, and a node of the pool has {most}"
        raise Refused("nvidia_sharing_gpus_per_pod", reason, f"Use {most} or fewer.")


def refuse_twice(cluster: str, nodes: Sequence[str]) -> None:
    """Refuse a node that two hosts of C(cluster) are."""
    seen: set[str] = set()
    for node in nodes:
        if node in seen:
            raise Refused("gpu_node_name", f"two hosts of cluster {cluster} are node {node}", "A node is one host.")
        seen.add(node)


def refuse_same_name(cluster: str, configurations: Sequence[PluginConfiguration]) -> None:
    """Refuse pools whose names become the same one in Kubernetes."""
    pools_of: dict[str, set[str]] = {}
    for item in configurations:
        pools_of.setdefault(item.name, set()).add(item.pool)
    for name, count in Counter(item.name for item in configurations).items():
        if count > 1:
            reason = f"the objects of both would be named {name}"
            remedy = "Rename one of the groups."
            raise Refused(f"pools {' and '.join(sorted(pools_of[name]))} of cluster {cluster}", reason, remedy)


def refuse_name_of_pool(configurations: Sequence[PluginConfiguration]) -> None:
    """Refuse a named configuration that is called as the pool's own is in the plugin's ConfigMap."""
    for item in configurations:
        if {item.name, plugin_key(item)} & {*item.plugin_texts, *item.choices.refused}:
            reason = (
                f"this is the name of the pool's own configuration, which nvidia_sharing_* of pool {item.pool} describe"
            )
            raise Refused(f"{CONFIGURATIONS}.{item.name}", reason, "Choose another name.")


def refuse_matches(cluster: DescribedCluster) -> None:
    """Refuse what a node that the inventory does not know would get twice, or would not get."""
    for item in cluster.configurations:
        if item.match.by_property:
            _refuse_alone(item)
            _refuse_unlabelled(cluster, item)
    for one, other in combinations(cluster.configurations, 2):
        _refuse_overlap(one, other)


def _refuse_alone(item: PluginConfiguration) -> None:
    thing = f"{VARIABLE} of pool {item.pool}"
    if item.sharing.migrate_from:
        reason = "gpufleet.nvidia.migrate moves the nodes of the inventory, and others would change their server all at once when it is done"
        raise Refused(thing, reason, f"{_BY_NAME} Set it as it is after the migration.")
    offers = {node: shown.offers for node, shown in zip(item.nodes, item.capacities, strict=True)}
    first = item.nodes[0]
    for node, found in offers.items():
        if found != offers[first]:
            raise Refused(
                thing,
                f"its hosts show different resources ({first}: {counted(offers[first]) or 'none'}; {node}: {counted(found) or 'none'}), and nothing says "
                "which of them a further node shows",
                f"Make a pool of hosts that are alike. {_BY_NAME}",
            )
    chosen = {choices.chosen for choices in item.choices_of}
    if len(chosen) > 1:
        reason = f"{CHOICE} differs between its hosts ({', '.join(sorted(one or 'none' for one in chosen))}), and the rule knows no names"
        raise Refused(thing, reason, f"Set {CHOICE} for the whole pool. {_BY_NAME}")


def _refuse_unlabelled(cluster: DescribedCluster, item: PluginConfiguration) -> None:
    """Refuse what needs labels that nothing sets: NFD sees devices but no labels of nodes, and without NFD nothing sees devices."""
    thing = f"{VARIABLE} of pool {item.pool}"
    if item.match.devices and not cluster.options["node_feature_discovery"]:
        reason = "nothing reads PCI device IDs, because gpu_kubernetes_node_feature_discovery is false"
        remedy = "Install Node Feature Discovery, or use {labels: {KEY: VALUE}} of a group of nodes."
        raise Refused(thing, reason, remedy)
    if not item.match.labels:
        return
    needed = {
        "gpu_kubernetes_stack: gpu_operator": cluster.options["stack"] == "gpu_operator",
        f"nvidia_sharing_backend: {item.sharing.backend}": item.sharing.backend != "mps",
        "nvidia_driver_imex: masked": item.compute_domains,
        f"{CHOICE}: {item.choices_of[0].chosen}": bool(item.choices_of[0].chosen),
    }
    for setting, is_set in needed.items():
        if is_set:
            reason = f"{setting} needs labels on the nodes that Node Feature Discovery sets, and it cannot see the labels of a group"
            remedy = f"Use {{boards: true}}{f', or {DEFAULT} for the pool' if setting.startswith(CHOICE) else ''}."
            raise Refused(f"{thing}, labels", reason, remedy)


def _refuse_overlap(one: PluginConfiguration, other: PluginConfiguration) -> None:
    if not (one.match.by_property or other.match.by_property):
        return
    first, second = sorted((one, other), key=lambda item: not item.match.by_property)
    both = f"{VARIABLE} of pools {first.pool} and {second.pool}"
    if first.pool == second.pool:
        both = f"{VARIABLE} of pool {first.pool}, whose hosts need different files ({first.name}, {second.name})"
    if one.match.labels and other.match.labels:
        if any(other.match.labels.get(key, value) != value for key, value in one.match.labels.items()):
            return
        reason = "a node can have the labels of both, and both device plugins would serve it"
        raise Refused(f"{both}, labels", reason, "Give both the same key with different values.")
    if {bool(one.match.labels), bool(other.match.labels)} == {True, False} and not (
        one.match.devices or other.match.devices
    ):
        # A node with a name in a pool is labelled with it, and releases of groups keep away from such nodes.
        return
    shared = sorted(set(first.match.devices or first.pci_devices) & set(second.match.devices or second.pci_devices))
    if shared:
        raise Refused(
            both,
            f"a node with a GPU {', '.join(f'10de:{device}' for device in shared)} would belong to both",
            f"Find the nodes of both by labels of their groups ({VARIABLE}: {{labels: {{KEY: VALUE}}}}, one key with two values), or both by "
            f"name ({VARIABLE}: {{}}).",
        )
