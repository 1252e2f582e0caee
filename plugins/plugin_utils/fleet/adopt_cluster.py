# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a cluster's own objects say of its GPU nodes: ClusterPolicy and NVIDIADriver of the GPU Operator, DaemonSets of the standalone
device plugin with their ConfigMaps, and the labels of the nodes. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...module_utils._sharing.mps_instances import GPU
from ...module_utils._versions import numbers
from ..lint.finding import below
from ..lint.lint import decoded
from .clients import of_host, placed, title
from .objects import DEFAULT_MORE, DEFAULT_NAMESPACE, labels_of, own, pod_spec
from .sharing_configurations import CONFIGURATIONS, LABEL, UNSHARED, is_name
from .text import MIG_CONFIG_LABEL, MIG_STATE_LABEL

#: Where NVIDIA's documents put a device plugin and an operator, and the collection its releases.
NAMESPACES = (DEFAULT_NAMESPACE, *DEFAULT_MORE, "nvidia-device-plugin", "kube-system")
_MIG_RESOURCE = "nvidia.com/mig-"
_CHART = re.compile(r"(.+?)-(v?[0-9].*)")
#: What the plugin's config-manager takes where neither a label nor a default names a configuration.
_NAMED_FALLBACK = "default"
#: The names of variables that say what is shared.
_SHARING = {"timeSlicing": "time_slicing", "mps": "mps"}


@dataclass(frozen=True)
class ServedConfiguration:
    """How one host is served by its cluster.

    :param node: the name of its node; empty where the cluster has none, or was not read.
    :param strategy: the MIG strategy of its device plugin, or None where nothing says.
    :param sharing: the variables C(nvidia_sharing_*) that mean the same; empty where nothing is shared.
    :param driver: whether a container of the GPU Operator brings its driver: not where the label of the node excludes that.
    :param toolkit: whether one brings the container toolkit.
    :param mig_manager: whether the operator's MIG manager restores the layout.
    """

    node: str = ""
    strategy: str | None = None
    sharing: Mapping[str, Any] = field(default_factory=dict)
    driver: bool = False
    toolkit: bool = False
    mig_manager: bool = False
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Objects:
    """The objects of a cluster, as its API has them.

    :param config_maps: their C(data), by namespace and name.
    """

    nodes: Sequence[Mapping[str, Any]] = ()
    cluster_policies: Sequence[Mapping[str, Any]] = ()
    drivers: Sequence[Mapping[str, Any]] = ()
    daemon_sets: Sequence[Mapping[str, Any]] = ()
    config_maps: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    namespaces: Sequence[str] = NAMESPACES

    @cached_property
    def policy(self) -> Mapping[str, Any] | None:
        """The ClusterPolicy that the operator obeys: it ignores all but one."""
        return next((one for one in self.cluster_policies if (one.get("status") or {}).get("state") != "ignored"), None)

    @cached_property
    def plugins(self) -> list[Mapping[str, Any]]:
        """The DaemonSets of standalone device plugins: those of an operator are what its ClusterPolicy says."""
        return [one for one in own(self.daemon_sets, self.namespaces) if _is_plugin(one)]

    @cached_property
    def strangers(self) -> list[str]:
        """DaemonSets elsewhere that look like a device plugin. Anybody can make one: they are named, and decide nothing."""
        return sorted(title(one) for one in self.daemon_sets if _is_plugin(one) and one not in self.plugins)

    def wanted_config_maps(self) -> list[tuple[str, str]]:
        """Return namespace and name of the ConfigMaps that decide how nodes are served."""
        found = []
        if self.policy is not None:
            name = below(self.policy, "spec", "devicePlugin", "config", "name")
            found += [(self.namespace, str(name))] if name else []
        for plugin in self.plugins:
            namespace = str(below(plugin, "metadata", "namespace") or "")
            found += [(namespace, name) for name in _config_maps_of(plugin)]
        return list(dict.fromkeys(found))

    @cached_property
    def charts(self) -> dict[str, str]:
        """The versions of the charts that installed what serves this cluster, by the name of the chart, as Helm labels its objects."""
        given = [labels_of(one).get("helm.sh/chart", "") for one in (self.policy or {}, *self.plugins)]
        return {match[1]: match[2] for text in given if (match := _CHART.fullmatch(str(text)))}

    @cached_property
    def namespace(self) -> str:
        """The namespace of what serves GPUs, or an empty text."""
        if self.policy is not None:
            ours = [one for one in own(self.daemon_sets, self.namespaces) if _owned_by_operator(one)]
            named = [str(below(one, "metadata", "namespace") or "") for one in ours]
            return str(below(self.policy, "status", "namespace") or next(iter(named), "gpu-operator"))
        return next((str(below(one, "metadata", "namespace") or "") for one in self.plugins), "")

    @property
    def _has_mig_manager(self) -> bool:
        return below(self.policy, "spec", "migManager", "enabled") is not False

    def variables(self) -> dict[str, Any]:
        """Return the variables C(gpu_kubernetes_*) that mean what serves this cluster."""
        found: dict[str, Any] = {}
        if self.policy is not None:
            found["gpu_kubernetes_stack"] = "gpu_operator"
            labelled = any(MIG_CONFIG_LABEL in labels_of(node) for node in self.nodes)
            found["gpu_kubernetes_mig_manager"] = "operator" if self._has_mig_manager and labelled else "host"
            runtime_class = below(self.policy, "spec", "operator", "runtimeClass")
            if runtime_class:
                found["gpu_kubernetes_runtime_class"] = str(runtime_class)
        elif self.plugins:
            found["gpu_kubernetes_stack"] = "device_plugin"
        if self.namespace:
            found["gpu_kubernetes_namespace"] = self.namespace
        kubelets = {numbers(str(below(node, "status", "nodeInfo", "kubeletVersion") or ""))[:2] for node in self.nodes}
        versions = [".".join(map(str, version)) for version in kubelets if len(version) == 2]
        if len(versions) == 1:
            found["gpu_kubernetes_version"] = versions[0]
        named, _left = self.named_configurations
        return {**found, **({CONFIGURATIONS: named} if named else {})}

    @cached_property
    def named_configurations(self) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """Return the configurations between which nodes choose by their label, as C(gpu_kubernetes_sharing_configurations), and why some are left out.

        There is nothing to choose where the device plugin has one configuration.
        """
        texts: dict[str, set[str]] = {}
        for where in self.wanted_config_maps():
            for name, text in self.config_maps.get(where, {}).items():
                texts.setdefault(name, set()).add(text)
        found: dict[str, dict[str, Any]] = {}
        left: list[str] = []
        for name, several in sorted(texts.items()) if len(texts) > 1 else ():
            sharing, _strategy, wrong = read_plugin_file(min(several))
            if name == UNSHARED and not sharing and not wrong:
                # Every rendered ConfigMap has it.
                continue
            if len(several) > 1:
                wrong = ["several ConfigMaps have one of this name, and they differ"]
            elif name == UNSHARED:
                wrong = ["it shares GPUs, and this name is that of the configuration that shares nothing"]
            elif not is_name(name):
                wrong = [f"the name cannot be one of {CONFIGURATIONS}"]
            if wrong:
                left.append(f"configuration {name} of the device plugin is not described: {wrong[0]}")
            else:
                found[name] = _as_named(sharing)
        return found, left

    def node_named(self, *names: str) -> Mapping[str, Any] | None:
        """Return the node that the first of these is the name of, or else the only one that one is an address of: addresses are what a kubelet says."""
        named = {str(below(node, "metadata", "name")): node for node in self.nodes}
        given = [name for name in names if name]
        for name in given:
            if name in named:
                return named[name]
        found = [
            node
            for node in self.nodes
            if any(entry.get("address") in given for entry in below(node, "status", "addresses") or ())
        ]
        return found[0] if len(found) == 1 else None

    def served(self, node: Mapping[str, Any]) -> ServedConfiguration:
        name, labels = str(below(node, "metadata", "name")), labels_of(node)
        if self.policy is not None:
            return self._by_operator(name, labels, self.policy)
        plugins = [one for one in self.plugins if placed(pod_spec(one), labels)]
        if not plugins:
            return ServedConfiguration(name, labels.get("nvidia.com/mig.strategy"))
        found = _by_plugin(name, labels, plugins[0], self.config_maps)
        others = ", ".join(str(below(one, "metadata", "name")) for one in plugins[1:])
        if not others:
            return found
        note = f"several DaemonSets of the device plugin select node {name}; besides the one that was read: {others}"
        return replace(found, notes=(*found.notes, note))

    def _by_operator(self, name: str, labels: Mapping[str, str], policy: Mapping[str, Any]) -> ServedConfiguration:
        configuration = below(policy, "spec", "devicePlugin", "config") or {}
        given = below(policy, "spec", "mig", "strategy")
        notes: list[str] = []
        differences: list[str] = []
        text = ""
        if configuration.get("name"):
            data = self.config_maps.get((self.namespace, str(configuration["name"])), {})
            where = f"ConfigMap {self.namespace}/{configuration['name']}"
            text, wrong = _chosen(data, labels.get(LABEL), str(configuration.get("default") or ""), where, False)
            differences += wrong
        sharing, strategy, wrong = read_plugin_file(text, given) if text else ({}, None, [])
        differences += wrong
        # A cluster can be mixed: what the policy enables does not reach a node whose labels say that its host has it.
        brought = {
            operand: below(policy, "spec", key, "enabled") is not False and not of_host(labels, operand)
            for key, operand in (("driver", "driver"), ("toolkit", "container-toolkit"))
        }
        if brought["driver"] and below(policy, "spec", "driver", "useNvidiaDriverCRD"):
            mine = [one for one in self.drivers if (below(one, "spec", "nodeSelector") or {}).items() <= labels.items()]
            named = ", ".join(f"{below(one, 'metadata', 'name')} ({below(one, 'spec', 'version')})" for one in mine)
            notes.append(
                f"the driver of node {name} is decided by NVIDIADriver {named or 'objects, none of which selects this node'}"
            )
        label, state = labels.get(MIG_CONFIG_LABEL), labels.get(MIG_STATE_LABEL)
        if label and state not in (None, "success"):
            differences.append(f"mig: node {name} has {MIG_CONFIG_LABEL}={label}, and its state is {state}")
        return ServedConfiguration(
            name,
            # The operator's strategy is an environment variable, which beats the file. Without one, the plugin decides (applyMIGConfiguration).
            str(given or strategy or "none"),
            sharing,
            brought["driver"],
            brought["container-toolkit"],
            bool(label) and self._has_mig_manager,
            tuple(differences),
            tuple(notes),
        )


def _by_plugin(
    name: str,
    labels: Mapping[str, str],
    plugin: Mapping[str, Any],
    config_maps: Mapping[tuple[str, str], Mapping[str, str]],
) -> ServedConfiguration:
    container = _plugin_container(plugin) or {}
    namespace = str(below(plugin, "metadata", "namespace") or "")
    given = _environment(plugin)
    text, differences = "", []
    for config_map in _config_maps_of(plugin):
        where = f"ConfigMap {namespace}/{config_map}"
        data = config_maps.get((namespace, config_map), {})
        text, wrong = _chosen(data, labels.get(LABEL), given.get("DEFAULT_CONFIG", ""), where, True)
        differences += wrong
    arguments = [str(one) for one in (*(container.get("command") or ()), *(container.get("args") or ()))]
    flag = next((one.partition("=")[2] for one in arguments if one.startswith("--mig-strategy=")), "")
    outside = flag or given.get("MIG_STRATEGY")
    sharing, strategy, wrong = read_plugin_file(text, outside) if text else ({}, None, [])
    decided = outside or strategy or labels.get("nvidia.com/mig.strategy") or "none"
    return ServedConfiguration(name, decided, sharing, differences=(*differences, *wrong))


def _chosen(
    data: Mapping[str, str], label: str | None, default: str, where: str, fallbacks: bool
) -> tuple[str, list[str]]:
    """Return the text of the configuration that serves a node.

    :param fallbacks: whether one called C(default), or the only one, serves nodes for which none is named.
    """
    name = label or default
    if name:
        if name in data:
            return data[name], []
        what = f"the node label {LABEL}" if label else "its default"
        return "", [
            f"sharing: {what} names configuration {name}, which {where} does not have, so the device plugin does not start"
        ]
    if fallbacks and data:
        only = next(iter(data)) if len(data) == 1 else _NAMED_FALLBACK
        return data.get(only, ""), []
    return "", []


def read_plugin_file(text: str, given: str | None = None) -> tuple[dict[str, Any], str | None, list[str]]:
    """Return what a configuration file of the device plugin shares, as variables; its MIG strategy; and what has no variable.

    It is read as the plugin reads it, by the decoder of the linter.

    :param given: the MIG strategy that the plugin has from elsewhere, which beats the file's.
    """
    try:
        config = decoded(text, given)
    except ValueError as error:
        return {}, None, [f"sharing: the device plugin does not start with its configuration: {error}"]
    strategy = (config.get("flags") or {}).get("migStrategy")
    sharing = config.get("sharing") or {}
    # The plugin ignores timeSlicing beside mps.
    key = next((one for one in ("mps", "timeSlicing") if sharing.get(one)), "")
    if not key:
        return {}, strategy, []
    settings = sharing[key]
    replicas: dict[str, int] = {}
    for entry in settings["resources"]:
        # Of a resource that is listed twice the plugin takes the larger number.
        replicas[entry["name"]] = max(entry["replicas"], replicas.get(entry["name"], 0))
    found: dict[str, Any] = {
        "nvidia_sharing_mode": _SHARING[key],
        "nvidia_sharing_rename": bool(settings.get("renameByDefault")),
    }
    differences: list[str] = []
    several = settings.get("failRequestsGreaterThanOne")
    if key == "timeSlicing" and not several:
        # Unset it is false: a pod may request several slices.
        found["nvidia_sharing_gpus_per_pod"] = 2
    elif several is False:
        differences.append(
            "sharing: pods may request several MPS slices (failRequestsGreaterThanOne: false), which the plugin allows from 0.20 on; "
            "set nvidia_sharing_gpus_per_pod where the hosts have several GPUs"
        )
    alone = set(replicas) == {GPU}
    if not alone and key == "mps":
        differences.append(f"sharing: MPS shares {', '.join(sorted(replicas))}; a pool has one number of replicas")
    found["nvidia_sharing_replicas"] = (
        replicas[GPU]
        if alone
        else max(replicas.values())
        if key == "mps"
        else {_short(name): count for name, count in replicas.items()}
    )
    return found, strategy, differences


def _as_named(sharing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a pool as the options of a named configuration, without those that have their default."""
    mode = sharing.get("nvidia_sharing_mode", "none")
    if mode == "none":
        return {"mode": mode}
    renamed = {"rename": True} if sharing["nvidia_sharing_rename"] else {}
    shared = {"replicas": sharing["nvidia_sharing_replicas"], **renamed}
    if "nvidia_sharing_gpus_per_pod" in sharing:
        shared["gpus_per_pod"] = sharing["nvidia_sharing_gpus_per_pod"]
    return shared if mode == "time_slicing" else {"mode": mode, **shared}


def _short(resource: str) -> str:
    """Return a resource as C(nvidia_sharing_replicas) names it."""
    return "gpu" if resource == GPU else resource.removeprefix(_MIG_RESOURCE)


def _plugin_container(daemon_set: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the container of a DaemonSet that is the device plugin; gpu-feature-discovery and the MPS daemon have its image too."""
    for container in pod_spec(daemon_set).get("containers") or ():
        command = [str(one) for one in container.get("command") or ()]
        program = command[0].rpartition("/")[2] if command else ""
        if program == "nvidia-device-plugin" or (not program and container.get("name") == "nvidia-device-plugin-ctr"):
            return dict(container)
    return None


def _is_plugin(daemon_set: Mapping[str, Any]) -> bool:
    return _plugin_container(daemon_set) is not None and not _owned_by_operator(daemon_set)


def _owned_by_operator(daemon_set: Mapping[str, Any]) -> bool:
    owners = below(daemon_set, "metadata", "ownerReferences") or ()
    return any(owner.get("kind") in ("ClusterPolicy", "NVIDIADriver") for owner in owners)


def _config_maps_of(daemon_set: Mapping[str, Any]) -> list[str]:
    volumes = pod_spec(daemon_set).get("volumes") or ()
    return [str(below(volume, "configMap", "name")) for volume in volumes if below(volume, "configMap", "name")]


def _environment(daemon_set: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of all containers of a DaemonSet's pods; the config-manager runs beside the plugin."""
    spec = pod_spec(daemon_set)
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    pairs = (entry for container in containers for entry in container.get("env") or ())
    return {str(entry.get("name")): str(entry["value"]) for entry in pairs if entry.get("value") is not None}
