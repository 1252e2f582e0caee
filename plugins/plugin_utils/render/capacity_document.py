# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rendered tree says of the nodes it is for: capacity.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..fleet.capacity import Capacity
from ..fleet.served import SERVERS
from ..fleet.sharing_configurations import Choices
from ..fleet.sharing_configurations import as_dict as choice_as_dict
from . import plain_objects
from .clusters import Cluster, Configuration


def capacity_document(cluster: Cluster) -> dict[str, Any]:
    """Return what must appear in the cluster: by configuration once, and by node a reference to it and what differs."""
    configurations = {}
    for item in cluster.configurations:
        unit = next(iter(item.capacity.slices.values()), None)
        configurations[item.name] = {
            **item.capacity.as_dict(),
            "content": item.content,
            "pool": item.pool,
            "gpus": item.gpus,
            "mig_strategy": item.strategy,
            "device_list_strategy": item.injection.strategy,
            "node_labels": plain_objects.labels_of(cluster, item),
            **_choices(cluster, item),
            **_each_node(cluster, item),
            "sharing": {
                "mode": item.sharing.mode,
                # It says who enforces a memory slice: beside time slicing and whole GPUs the default means nothing.
                **(
                    {"backend": item.sharing.backend}
                    if item.sharing.mode == "mps" or item.sharing.backend != "mps"
                    else {}
                ),
                "mps_of_host": item.sharing.mps_of_host,
                "replicas": dict(item.sharing.resource_replicas) or (unit.replicas if unit else 1),
                "memory_mib": (unit.limit_mib or unit.memory_mib) if unit else None,
            },
        }
    nodes = {
        node: {
            **choices,
            "host": host,
            "pool": item.pool,
            "configuration": item.name,
            **_shows(shown),
            **({"labels": shown.labels} if shown.labels != item.capacity.labels else {}),
            **_migration(item, number),
        }
        for item in cluster.configurations
        for number, (node, host, shown, choices) in enumerate(
            zip(item.nodes, item.hosts, item.capacities, _choices_of(cluster, item), strict=True)
        )
    }
    return {"schema": 1, "cluster": cluster.name, "configurations": configurations, "nodes": nodes}


def _shows(shown: Capacity) -> dict[str, Any]:
    return {"resources": shown.resources, **({"devices": shown.devices} if shown.devices else {})}


def _migration(item: Configuration, number: int) -> dict[str, Any]:
    """Return what a node shows until it is moved, while its pool is migrated."""
    before = item.choices_of[number].before
    if before is None:
        return {}
    shown = before.capacity
    return {"migration": {"to": SERVERS[item.sharing.backend], "labels": shown.labels, **_shows(shown)}}


def _each_node(cluster: Cluster, item: Configuration) -> dict[str, Any]:
    """Return what each node shows that is found by a property, whether the inventory knows it or not."""
    if not item.match.by_property:
        return {}
    each = {
        "match": item.match.as_dict(),
        "selector": item.selector,
        **_shows(item.capacities[0]),
        "labels": item.capacity.labels,
        "node_labels": plain_objects.labels_of(cluster, item, item.choices_of[0].chosen),
        **_choices(cluster, item),
    }
    return {"each_node": each}


def _choices(cluster: Cluster, item: Configuration) -> dict[str, Any]:
    """Return, by the value of the label, what a node shows that chooses by it; nothing where there are no named configurations."""
    if not item.choices.named:
        return {}
    return {"choices": _shown(plain_objects.names_of_choices(cluster, item), item.choices)}


def _choices_of(cluster: Cluster, item: Configuration) -> Iterator[dict[str, Any]]:
    """Give what of that is another for each node: what the inventory chose, and counts of its own. The same is computed once."""
    common = _choices(cluster, item)
    names = plain_objects.names_of_choices(cluster, item)
    labels: dict[str, Mapping[str, str]] = {}
    shown: dict[int, dict[str, Any]] = {}
    for choices in item.choices_of:
        found: dict[str, Any] = {}
        if choices.chosen:
            if choices.chosen not in labels:
                labels[choices.chosen] = plain_objects.labels_of(cluster, item, choices.chosen)
            found["node_labels"] = labels[choices.chosen]
        if common:
            # Hosts of a kind have one object, which lives as long as the configuration.
            if id(choices) not in shown:
                mine = {"choices": _shown(names, choices)}
                shown[id(choices)] = mine if mine != common else {}
            found.update(shown[id(choices)])
        yield found


def _shown(names: Mapping[str, str], choices: Choices) -> dict[str, Any]:
    by_name = {**choices.named, "": choices.own}
    return {label: choice_as_dict(by_name[name]) for label, name in names.items()}
