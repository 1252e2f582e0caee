# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What cannot be said of nodes that are found by a property, and matches of pools that the same node could meet."""

from __future__ import annotations

from itertools import combinations

from ...module_utils._plan import Refused
from ..fleet.node_match import VARIABLE
from ..fleet.sharing_configurations import CHOICE, DEFAULT
from .model import Cluster, Configuration

_BY_NAME = f"{VARIABLE}: {{}} finds the nodes by name."


def refuse_matches(cluster: Cluster) -> None:
    """Refuse what a node that the inventory does not know would get twice, or would not get.

    :raises Refused: with both pools where two are concerned.
    """
    for item in cluster.configurations:
        if item.match.by_property:
            _refuse_alone(item)
            _refuse_unlabelled(cluster, item)
    for one, other in combinations(cluster.configurations, 2):
        _refuse_overlap(one, other)


def _refuse_alone(item: Configuration) -> None:
    thing = f"{VARIABLE} of pool {item.pool}"
    if item.sharing.migrate_from:
        raise Refused(
            thing,
            "gpufleet.nvidia.migrate moves the nodes of the inventory, and others would change their server all at once when it is done",
            f"{_BY_NAME} Set it as it is after the migration.",
        )
    offers = {node: shown.offers for node, shown in zip(item.nodes, item.capacities, strict=True)}
    first = item.nodes[0]
    for node, found in offers.items():
        if found != offers[first]:
            raise Refused(
                thing,
                f"its hosts show different resources ({first}: {_counts(offers[first])}; {node}: {_counts(found)}), and nothing says "
                "which of them a further node shows",
                f"Make a pool of hosts that are alike. {_BY_NAME}",
            )
    chosen = {choices.chosen for choices in item.choices_of}
    if len(chosen) > 1:
        raise Refused(
            thing,
            f"{CHOICE} differs between its hosts ({', '.join(sorted(one or 'none' for one in chosen))}), and the rule knows no names",
            f"Set {CHOICE} for the whole pool. {_BY_NAME}",
        )


def _refuse_unlabelled(cluster: Cluster, item: Configuration) -> None:
    """Refuse what needs labels that nothing sets: NFD sees devices but no labels of nodes, and without NFD nothing sees devices."""
    thing = f"{VARIABLE} of pool {item.pool}"
    if item.match.devices and not cluster.options["node_feature_discovery"]:
        raise Refused(
            thing,
            "nothing reads PCI device IDs, because gpu_kubernetes_node_feature_discovery is false",
            "Install Node Feature Discovery, or use {labels: {KEY: VALUE}} of a group of nodes.",
        )
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
            raise Refused(
                f"{thing}, labels",
                f"{setting} needs labels on the nodes that Node Feature Discovery sets, and it cannot see the labels of a group",
                f"Use {{boards: true}}{f', or {DEFAULT} for the pool' if setting.startswith(CHOICE) else ''}.",
            )


def _refuse_overlap(one: Configuration, other: Configuration) -> None:
    if not (one.match.by_property or other.match.by_property):
        return
    first, second = sorted((one, other), key=lambda item: not item.match.by_property)
    both = f"{VARIABLE} of pools {first.pool} and {second.pool}"
    if first.pool == second.pool:
        both = f"{VARIABLE} of pool {first.pool}, whose hosts need different files ({first.name}, {second.name})"
    if one.match.labels and other.match.labels:
        if any(other.match.labels.get(key, value) != value for key, value in one.match.labels.items()):
            return
        raise Refused(
            f"{both}, labels",
            "a node can have the labels of both, and both device plugins would serve it",
            "Give both the same key with different values.",
        )
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


def _counts(resources: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(resources.items())) or "none"
