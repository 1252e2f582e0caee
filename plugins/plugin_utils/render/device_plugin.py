# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The device plugin's configuration file of a pool, its ConfigMap, and the values of its chart."""

from __future__ import annotations

from typing import Any

from ...module_utils._plan import Refused
from ..fleet.capacity import merged
from ..fleet.served import MIGRATED_LABEL, SERVERS
from ..fleet.sharing_configurations import CONFIGURATIONS, LABEL, UNSHARED, Named
from ..lint.finding import WARNING
from ..lint.lint import lint
from . import injection
from .clusters import (
    MANAGED_BY,
    DescribedCluster,
    PluginConfiguration,
    client_affinity,
    content_hash,
    hashed_key,
    kube_object,
    plugin_key,
)
from .emit import comment, yaml_text
from .gpu_operator import strategy_of
from .helm_values import Part, render_values

CHART = "nvidia-device-plugin"
_ON_DELETE = "Restarting the MPS daemon kills its clients: a change reaches a node when its pods are deleted, best while it is drained."


def plugin_file(strategy: str, described: Named, thing: str, origin: str) -> str:
    """Return the device plugin's configuration file; refuse what the linter finds in it, for which there is no file.

    :param thing: what it is the file of, for messages.
    :param origin: the variables that it follows from, which its first line says.
    """
    sharing, capacity = described.sharing, described.capacity
    config: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": strategy}}
    if sharing.replicated and capacity.replicas:
        # Slots are spread over distinct GPUs as far as possible; "packed" would put two slots of a pod on one GPU.
        config["flags"]["plugin"] = {"sharedDevicesAllocationPolicy": "distributed"}
        section: dict[str, Any] = {"renameByDefault": True} if sharing.rename else {}
        section["failRequestsGreaterThanOne"] = sharing.gpus_per_pod == 1
        section["resources"] = [{"name": name, "replicas": count} for name, count in capacity.replicas.items()]
        config["sharing"] = {"mps" if sharing.mode == "mps" else "timeSlicing": section}
    text = comment(origin) + yaml_text(config)
    for finding in lint(text).findings:
        if sharing.slice_mib and finding.level == WARNING and finding.path.endswith(".replicas"):
            # The number follows from a size that was asked for: it is high, and no slip.
            continue
        remedy = finding.remedy
        if finding.path.endswith(".replicas"):
            remedy += " nvidia_sharing_memory_slice allows as many as its size gives."
        raise Refused(f"the device plugin's configuration of {thing}, {finding.path}", finding.message, remedy)
    return text


def unshared_file(strategy: str) -> str:
    """Return the safe default: the same MIG strategy, nothing shared."""
    return yaml_text({"version": "v1", "flags": {"migStrategy": strategy}})


def config_map_name(cluster: DescribedCluster, configuration: PluginConfiguration) -> str:
    """Return a name that changes with the content: nothing watches a ConfigMap, a new name restarts the pods."""
    content = configuration.plugin_text + unshared_file(configuration.strategy)
    texts = sorted({**configuration.plugin_texts, **_of_operators_labels(cluster, configuration)}.items())
    content += "".join(f"{name}\n{text}" for name, text in texts)
    return f"{CHART}-{configuration.name}-{content_hash(content)}"


def config_map(cluster: DescribedCluster, configuration: PluginConfiguration) -> dict[str, Any]:
    """Return the ConfigMap of a release that serves one pool."""
    data = {
        UNSHARED: unshared_file(configuration.strategy),
        configuration.name: configuration.plugin_text,
        **dict(sorted(configuration.plugin_texts.items())),
        **_of_operators_labels(cluster, configuration),
    }
    name, namespace = config_map_name(cluster, configuration), cluster.options["namespace"]
    return kube_object("v1", "ConfigMap", name, MANAGED_BY, namespace, immutable=True, data=data)


def _of_operators_labels(cluster: DescribedCluster, configuration: PluginConfiguration) -> dict[str, str]:
    """Return, while nodes are moved from a GPU Operator, the files by the names that their labels have for its plugin."""
    if not cluster.options["migrate_from"]:
        return {}
    found, named = {plugin_key(configuration): configuration.plugin_text}, configuration.plugin_texts
    for name, text in operator_texts(cluster, strategy_of(cluster)).items():
        found.update({hashed_key(name, text): named[name]} if name in named else {})
    return found


def shared_config_map(cluster: DescribedCluster, strategy: str) -> dict[str, Any]:
    """Return the one ConfigMap of a cluster whose device plugin is the GPU Operator's."""
    data = {UNSHARED: unshared_file(strategy)}
    data.update({plugin_key(item): item.plugin_text for item in cluster.plugin_configurations})
    # By its name alone a node is labelled by hand; the inventory's choice is labelled by the key with the hash.
    for name, text in operator_texts(cluster, strategy).items():
        data.update({name: text, hashed_key(name, text): text})
    # Its name stays and its keys change with their content: what is added for some nodes restarts the plugin on no other.
    name, namespace = f"{CHART}-configurations", cluster.options["namespace"]
    return kube_object("v1", "ConfigMap", name, MANAGED_BY, namespace, immutable=False, data=data)


def operator_texts(cluster: DescribedCluster, strategy: str) -> dict[str, str]:
    """Return the one file of each named configuration that a GPU Operator gives the nodes of all pools.

    The plugin ignores a number for a resource that its node does not have, so the file has those of all pools.
    """
    found: dict[str, list[Named]] = {}
    for item in cluster.plugin_configurations:
        for name in item.plugin_texts:
            found.setdefault(name, []).append(item.choices.named[name])
    return {
        name: plugin_file(
            strategy,
            Named(items[0].sharing, merged([one.capacity for one in items])),
            f"{CONFIGURATIONS}.{name}",
            f"{CONFIGURATIONS}: {name}.",
        )
        for name, items in sorted(found.items())
    }


def values(cluster: DescribedCluster, configuration: PluginConfiguration) -> str:
    """Return the values of the release that serves one pool."""
    options = cluster.options
    host_daemon = configuration.sharing.mode == "mps" and configuration.sharing.mps_manager == "host"
    of_mps = configuration.choices.own.sharing.mode == "mps"
    named = ", ".join(sorted(configuration.plugin_texts))
    parts: list[Part] = [
        (
            f"The pool's file, and {UNSHARED!r}, which shares nothing: the label {LABEL}={UNSHARED} on a node takes it out\n"
            "of sharing. "
            + (f"So does the label choose one of {named} ({CONFIGURATIONS}).\n" if named else "")
            + "The name ends in a hash of the content, because nothing else restarts the pods when it changes.",
            {
                "config": {
                    "name": config_map_name(cluster, configuration),
                    "default": configuration.choices.default or configuration.name,
                }
            },
        ),
        (
            "nvidia_mig_strategy. Set here too: where it is only in a file, the chart assumes MIG.",
            {"migStrategy": configuration.strategy},
        ),
        *injection.plugin_parts(configuration.injection),
        ("One release for each pool: it runs on this pool's nodes only.", {"nodeSelector": configuration.selector}),
        (
            "The pool's nodes are named above; an upgrade of the driver removes the pods for a while.",
            {
                "affinity": client_affinity(
                    *configuration.unless_labelled, *_of_migration(configuration), *cluster.only_moved
                )
            },
        ),
        ("gpu_kubernetes_runtime_class.", {"runtimeClassName": options["runtime_class"] or None}),
        (
            "The MPS daemon of the host keeps the directories that the plugin expects; gpu-feature-discovery stays off, because its label\n"
            "nvidia.com/mps.capable would start a second daemon (nvidia_sharing_mps_manager: host)."
            if host_daemon
            else "gpu-feature-discovery labels the nodes; the MPS daemon of this chart starts where it says nvidia.com/mps.capable.",
            {"gfd": {"enabled": not host_daemon}},
        ),
        *([(_ON_DELETE, {"updateStrategy": {"type": "OnDelete"}})] if of_mps else []),
        (
            "Node Feature Discovery is a release of its own, once for the cluster (gpu_kubernetes_node_feature_discovery).",
            {"nfd": {"enabled": False}},
        ),
    ]
    return render_values(cluster, CHART, parts, configuration.origin)


def _of_migration(configuration: PluginConfiguration) -> list[dict[str, Any]]:
    """Return which nodes of a pool that is migrated the plugin serves: those that still are on its side, or already."""
    before = configuration.sharing.migrate_from
    if not before:
        return []
    if before == "mps":
        return [{"key": MIGRATED_LABEL, "operator": "NotIn", "values": [SERVERS["dra"]]}]
    return [{"key": MIGRATED_LABEL, "operator": "In", "values": [SERVERS["mps"]]}]
