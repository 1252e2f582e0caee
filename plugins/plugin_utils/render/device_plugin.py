# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The device plugin's configuration file of a pool, its ConfigMap, and the values of its chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.modes import Sharing
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.capacity import Capacity
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import injection
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.emit import comment, yaml_text
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.helm_values import Part, render_values
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.model import (
    CONFIGURATION_LABEL,
    MANAGED_BY,
    PLUGIN_CONFIG_LABEL,
    Cluster,
    Configuration,
    client_affinity,
    content_hash,
    plugin_key,
)

CHART = "nvidia-device-plugin"
#: The configuration that shares nothing: what a node gets that is labelled so, or that no pool describes.
UNSHARED = "default"


def plugin_file(strategy: str, sharing: Sharing, capacity: Capacity, pool: str) -> str:
    """Return the device plugin's configuration file.

    :raises Refused: the linter finds something in it, which means that the desired state cannot be expressed.
    """
    config: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": strategy}}
    if sharing.replicated and capacity.replicas:
        # Slots are spread over distinct GPUs as far as possible; "packed" would put two slots of a pod on one GPU.
        config["flags"]["plugin"] = {"sharedDevicesAllocationPolicy": "distributed"}
        section: dict[str, Any] = {"renameByDefault": True} if sharing.rename else {}
        section["failRequestsGreaterThanOne"] = sharing.gpus_per_pod == 1
        section["resources"] = [{"name": name, "replicas": count} for name, count in capacity.replicas.items()]
        config["sharing"] = {"mps" if sharing.mode == "mps" else "timeSlicing": section}
    text = comment(f"Pool {pool}: nvidia_mig_strategy, nvidia_sharing_*.") + yaml_text(config)
    for finding in lint(text).findings:
        raise Refused(
            f"the device plugin's configuration of pool {pool}, {finding.path}", finding.message, finding.remedy
        )
    return text


def unshared_file(strategy: str) -> str:
    """Return the safe default: the same MIG strategy, nothing shared."""
    return yaml_text({"version": "v1", "flags": {"migStrategy": strategy}})


def config_map_name(configuration: Configuration) -> str:
    """Return a name that changes with the content: nothing watches a ConfigMap, a new name restarts the pods."""
    content = configuration.plugin_text + unshared_file(configuration.strategy)
    return f"{CHART}-{configuration.name}-{content_hash(content)}"


def config_map(configuration: Configuration, namespace: str) -> dict[str, Any]:
    """Return the ConfigMap of a release that serves one pool."""
    return _config_map(
        config_map_name(configuration),
        namespace,
        {UNSHARED: unshared_file(configuration.strategy), configuration.name: configuration.plugin_text},
    )


def shared_config_map(cluster: Cluster, strategy: str) -> dict[str, Any]:
    """Return the one ConfigMap of a cluster whose device plugin is the GPU Operator's."""
    data = {UNSHARED: unshared_file(strategy)}
    data.update({plugin_key(item): item.plugin_text for item in cluster.plugin_configurations})
    # Its name stays and its keys change with their content: what is added for some nodes restarts the plugin on no other.
    return _config_map(f"{CHART}-configurations", str(cluster.options["namespace"]), data, immutable=False)


def _config_map(name: str, namespace: str, data: Mapping[str, str], immutable: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(MANAGED_BY)},
        "immutable": immutable,
        "data": dict(data),
    }


def values(cluster: Cluster, configuration: Configuration) -> str:
    """Return the values of the release that serves one pool."""
    options = cluster.options
    host_daemon = configuration.sharing.mode == "mps" and configuration.sharing.mps_manager == "host"
    parts: list[Part] = [
        (
            f"The pool's file, and {UNSHARED!r}, which shares nothing: the label {PLUGIN_CONFIG_LABEL}={UNSHARED} on a node takes it out\n"
            "of sharing. The name ends in a hash of the content, because nothing else restarts the pods when it changes.",
            {"config": {"name": config_map_name(configuration), "default": configuration.name}},
        ),
        (
            "nvidia_mig_strategy. Set here too: where it is only in a file, the chart assumes MIG.",
            {"migStrategy": configuration.strategy},
        ),
        *injection.plugin_parts(configuration.injection),
        (
            "One release for each pool: it runs on this pool's nodes only.",
            {"nodeSelector": {CONFIGURATION_LABEL: configuration.name}},
        ),
        (
            "The pool's nodes are named above; an upgrade of the driver removes the pods for a while.",
            {"affinity": client_affinity()},
        ),
        ("gpu_kubernetes_runtime_class.", {"runtimeClassName": options["runtime_class"] or None}),
        (
            "The MPS daemon of the host keeps the directories that the plugin expects; gpu-feature-discovery stays off, because its label\n"
            "nvidia.com/mps.capable would start a second daemon (nvidia_sharing_mps_manager: host)."
            if host_daemon
            else "gpu-feature-discovery labels the nodes; the MPS daemon of this chart starts where it says nvidia.com/mps.capable.",
            {"gfd": {"enabled": not host_daemon}},
        ),
        *_update_strategy(configuration),
        (
            "Node Feature Discovery is a release of its own, once for the cluster (gpu_kubernetes_node_feature_discovery).",
            {"nfd": {"enabled": False}},
        ),
    ]
    header = f"Rendered by gpufleet.nvidia.render. Cluster {cluster.name}, {configuration.origin}."
    return render_values(CHART, header, parts, options["values"].get(CHART))


def _update_strategy(configuration: Configuration) -> list[Part]:
    if configuration.sharing.mode != "mps":
        return []
    return [
        (
            "Restarting the MPS daemon kills its clients: a change reaches a node when its pods are deleted, best while it is drained.",
            {"updateStrategy": {"type": "OnDelete"}},
        )
    ]
