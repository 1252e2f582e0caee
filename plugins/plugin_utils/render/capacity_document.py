# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rendered tree says of the nodes it is for, capacity.json, and the names of a pool's configurations, which are read from it again. Pure.

A release, a ConfigMap and the label of the nodes carry the name of a configuration. A node whose configuration gets another name
loses the plugin's pod, and with it the clients of the plugin's MPS daemon. So a name is given once and kept: the C(capacity.json) of
the tree that was rendered before says which configuration had which name. A tree in a new directory has no names to keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...module_utils._plan import Refused
from ...module_utils._schema import encode, kept
from ..fleet.capacity import Capacity
from ..fleet.expectations import read_capacity
from ..fleet.recording import digest_of
from ..fleet.served import SERVERS
from ..fleet.sharing_configurations import Choices, shown
from . import device_plugin
from .clusters import DescribedCluster, PluginConfiguration, content_hash, pool_label
from .slurm_tree import SlurmCluster


def capacity_document(cluster: DescribedCluster) -> dict[str, Any]:
    """Return what must appear in the cluster: by configuration once, and by node a reference to it and what differs. It is made once."""
    found: dict[str, Any] = kept(cluster, "capacity_document", _document)
    return found


def _document(cluster: DescribedCluster) -> dict[str, Any]:
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
            "node_labels": device_plugin.labels_of(cluster, item),
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


def digests_of_hosts(clusters: Iterable[DescribedCluster], slurm: Iterable[SlurmCluster]) -> dict[str, str]:
    """Return by host the digest of what the files say of its nodes, which other hosts do not change: names of configurations, which they may, are no part."""
    said: dict[str, list[Any]] = {}
    named = ("node_labels", "each_node", "choices")
    for document in map(capacity_document, clusters):
        content = {
            name: digest_of({key: value for key, value in one.items() if key not in named})
            for name, one in document["configurations"].items()
        }
        for one in document["nodes"].values():
            said.setdefault(one["host"], []).append({**one, "configuration": content[one["configuration"]]})
    for node in (node for cluster in slurm for node in cluster.nodes):
        said.setdefault(node.host, []).append(asdict(node))
    return {host: digest_of(parts) for host, parts in said.items()}


def _shows(shown: Capacity) -> dict[str, Any]:
    return {"resources": shown.resources, **({"devices": shown.devices} if shown.devices else {})}


def _migration(item: PluginConfiguration, number: int) -> dict[str, Any]:
    """Return what a node shows until it is moved, while its pool is migrated."""
    before = item.choices_of[number].before
    if before is None:
        return {}
    shown = before.capacity
    return {"migration": {"to": SERVERS[item.sharing.backend], "labels": shown.labels, **_shows(shown)}}


def _each_node(cluster: DescribedCluster, item: PluginConfiguration) -> dict[str, Any]:
    """Return what each node shows that is found by a property, whether the inventory knows it or not."""
    if not item.match.by_property:
        return {}
    each = {
        "match": item.match.as_dict(),
        "selector": item.selector,
        **_shows(item.capacities[0]),
        "labels": item.capacity.labels,
        "node_labels": device_plugin.labels_of(cluster, item, item.choices_of[0].chosen),
        **_choices(cluster, item),
    }
    return {"each_node": each}


def _choices(cluster: DescribedCluster, item: PluginConfiguration) -> dict[str, Any]:
    """Return, by the value of the label, what a node shows that chooses by it; nothing where there are no named configurations."""
    if not item.choices.named:
        return {}
    return {"choices": _shown(device_plugin.names_of_choices(cluster, item), item.choices)}


def _choices_of(cluster: DescribedCluster, item: PluginConfiguration) -> Iterator[dict[str, Any]]:
    """Give what of that is another for each node: what the inventory chose, and counts of its own. The same is computed once."""
    common = _choices(cluster, item)
    names = device_plugin.names_of_choices(cluster, item)
    labels: dict[str, Mapping[str, str]] = {}
    of_choices: dict[int, dict[str, Any]] = {}
    for choices in item.choices_of:
        found: dict[str, Any] = {}
        if choices.chosen:
            if choices.chosen not in labels:
                labels[choices.chosen] = device_plugin.labels_of(cluster, item, choices.chosen)
            found["node_labels"] = labels[choices.chosen]
        if common:
            # Hosts of a kind have one object, which lives as long as the configuration.
            if id(choices) not in of_choices:
                mine = {"choices": _shown(names, choices)}
                of_choices[id(choices)] = mine if mine != common else {}
            found.update(of_choices[id(choices)])
        yield found


def _shown(names: Mapping[str, str], choices: Choices) -> dict[str, Any]:
    by_name = {**choices.named, "": choices.own}
    return {label: encode(shown(by_name[name])) for label, name in names.items()}


@dataclass(frozen=True)
class Former:
    """A configuration of the tree that was rendered before; its content, a hash of what served its nodes, is empty in trees that do not tell."""

    pool: str
    content: str
    nodes: frozenset[str]


@dataclass(frozen=True)
class ResourceKind:
    """Nodes of a pool that get the same files, by the hash of what serves them; assumed by the table of boards where none of the hosts was read."""

    content: str
    nodes: frozenset[str]
    assumed: bool


def former(text: str | None, source: str) -> dict[str, Former]:
    """Return the configurations of a rendered C(capacity.json) by name; none when there is no such file.

    :raises Refused: C(source), its path, cannot be read. Rendering on would name the configurations anew.
    """
    if text is None:
        return {}
    document = read_capacity(text)
    if document is None or not all(one.pool for one in document.configurations.values()):
        raise Refused(
            source,
            "it is not a capacity.json that gpufleet.nvidia.render wrote, and the names of the configurations are read from it",
            "Restore the file from version control. If you remove it instead, the configurations get new names, which can restart the "
            "device plugin of pools with more than one configuration.",
        )
    nodes: dict[str, set[str]] = {}
    for node, entry in document.nodes.items():
        nodes.setdefault(entry.configuration, set()).add(node)
    return {
        name: Former(item.pool, item.content, frozenset(nodes.get(name, ())))
        for name, item in document.configurations.items()
    }


def names(pool: str, kinds: Iterable[ResourceKind], before: Mapping[str, Former]) -> dict[str, str]:
    """Return, by content, the name of each configuration of C(pool).

    A name stays with its content; no other host can take it. The name of a content that is gone follows its nodes, so that a change
    of a pool's variables updates its release in place. Of the rest the first gets the pool's name: what was read comes before what
    is assumed, more nodes before fewer.

    :param before: the configurations of the earlier tree, those of other pools as well.
    """
    ordered = sorted(kinds, key=lambda kind: (kind.assumed, -len(kind.nodes), kind.content))
    mine = {name: one for name, one in before.items() if one.pool == pool}
    found: dict[str, str] = {}
    for kind in ordered:
        same = sorted(name for name, one in mine.items() if one.content == kind.content)
        if same:
            found[kind.content] = same[0]
    left = {name: one for name, one in mine.items() if name not in found.values()}
    pairs = sorted(
        (-len(kind.nodes & one.nodes), position, name, kind.content)
        for position, kind in enumerate(ordered)
        for name, one in left.items()
        if kind.content not in found and kind.nodes & one.nodes
    )
    for _shared, _position, name, content in pairs:
        if content not in found and name not in found.values():
            found[content] = name
    label = pool_label(pool)
    for kind in ordered:
        if kind.content in found:
            continue
        taken = {*found.values(), *mine}
        own = [label] if label not in found.values() else []
        found[kind.content] = next(
            name
            for name in (*own, *(f"{label}-{content_hash(kind.content)[:length]}" for length in (4, 8)))
            if name in own or name not in taken
        )
    return found
