# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the GPU Operator, which brings driver and container toolkit only where the hosts do not, and the configuration of its MIG manager."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...module_utils._boards.lookup import BOARDS
from ...module_utils._mig.layouts import ALL_DISABLED, ALL_ENABLED, names_of_layouts, predefined_layout
from ...module_utils._plan import Refused
from ..fleet.sharing_configurations import DEFAULT, UNSHARED
from . import injection
from .clusters import DEPLOY_LABELS, MANAGED_BY, DescribedCluster, PluginConfiguration, content_hash, kube_object
from .emit import yaml_text
from .helm_values import render_values
from .versions import GPU_OPERATOR

CHART = GPU_OPERATOR
_ALTERNATIVE = (
    "Set gpu_kubernetes_stack: device_plugin, which gives each pool a release and a strategy of its own, "
    "or give the pools different clusters (gpu_kubernetes_cluster)."
)


def strategy_of(cluster: DescribedCluster) -> str:
    """Return the one MIG strategy that an operator puts on every node as a variable; refuse pools that cannot live under one operator."""
    by_strategy: dict[str, str] = {}
    for item in cluster.plugin_configurations:
        by_strategy.setdefault(item.strategy, item.pool)
        if item.sharing.mode == "mps" and item.sharing.mps_manager == "host":
            reason = "the GPU Operator starts its own MPS daemon on every node that it shares by MPS"
            remedy = "Set nvidia_sharing_mps_manager: device_plugin, or gpu_kubernetes_stack: device_plugin."
            raise Refused(f"nvidia_sharing_mps_manager of pool {item.pool}", reason, remedy)
    divided = {strategy: pool for strategy, pool in by_strategy.items() if strategy != "none"}
    if len(divided) > 1:
        pools = " and ".join(f"{strategy} (pool {pool})" for strategy, pool in sorted(divided.items()))
        reason = f"one GPU Operator has one MIG strategy, not {pools}"
        raise Refused(f"nvidia_mig_strategy in cluster {cluster.name}", reason, _ALTERNATIVE)
    strategy = next(iter(divided), "none")
    mps = [item.pool for item in cluster.plugin_configurations if item.sharing.mode == "mps"]
    if strategy == "mixed" and mps:
        reason = f"under one GPU Operator the strategy mixed of pool {divided['mixed']} reaches every node, and the device plugin refuses MPS with it"
        raise Refused(f"nvidia_sharing_mode of pool {mps[0]}", reason, _ALTERNATIVE)
    return strategy


def default_of(cluster: DescribedCluster) -> str:
    """Return the configuration of a node without the label: an operator has one for all pools, and pools that differ are refused."""
    named = {item.choices.default: item.pool for item in cluster.plugin_configurations}
    if len(named) > 1:
        pools = " and ".join(f"{name or 'none'} (pool {pool})" for name, pool in sorted(named.items()))
        reason = f"one GPU Operator has one default configuration, not {pools}"
        remedy = f"Set it for all pools alike, and gpu_kubernetes_sharing_configuration for those that differ; or: {_ALTERNATIVE}"
        raise Refused(f"{DEFAULT} in cluster {cluster.name}", reason, remedy)
    return next(iter(named), "") or UNSHARED


def values(cluster: DescribedCluster, config_map: Mapping[str, Any], mig_config_map_name: str | None) -> str:
    """Return the values of the operator, whose configurations are in C(config_map) (L(device_plugin.shared_config_map))."""
    decided = injection.common(cluster, cluster.plugin_configurations, "GPU Operator")
    return render_values(
        cluster,
        CHART,
        pools_that_bring=cluster.pools_that_bring,
        deploy_labels=DEPLOY_LABELS,
        synced=cluster.options["gitops"] == "argocd",
        strategy=strategy_of(cluster),
        mig_config_map=mig_config_map_name,
        config_map=config_map["metadata"]["name"],
        default=default_of(cluster),
        unshared=UNSHARED,
        method=decided.method,
        environment=injection.operator_plugin_environment(decided),
    )


def mig_config_map(cluster: DescribedCluster) -> dict[str, Any]:
    """Return the ConfigMap of the MIG manager, in mig-parted's v1 format: the predefined layouts and those of the pools.

    It takes the place of the one that the manager makes from the hardware, with all its names. People set them by hand on nodes
    (C(nvidia.com/mig.config=all-1g.10gb)), so they stay.

    :raises Refused: a configuration has the name of a predefined layout.
    """
    configs: dict[str, Any] = {**predefined_layouts()}
    for item in cluster.configurations:
        if item.strategy == "none":
            continue
        if item.name in configs:
            reason = f"{item.name} is the name of a predefined MIG layout, which the node label nvidia.com/mig.config would no longer choose"
            raise Refused(f"pool {item.pool} of cluster {cluster.name}", reason, "Rename the group.")
        configs[item.name] = _layout(item)
    text = yaml_text({"version": "v1", "mig-configs": configs})
    # The manager reads it when it starts or when the label of its node changes, so that a new layout needs a new name. Its restart
    # leaves the GPUs alone: it asserts the layout first.
    name, namespace = f"gpufleet-mig-{content_hash(text)}", cluster.options["namespace"]
    return kube_object("v1", "ConfigMap", name, MANAGED_BY, namespace, immutable=True, data={"config.yaml": text})


@lru_cache(maxsize=1)
def predefined_layouts() -> Mapping[str, list[dict[str, Any]]]:
    """Return the predefined layouts of every board of the table, by the names that the manager gives them.

    As in mig-parted's own default, a layout names devices only where boards differ in it: without, boards that the table does not
    know have it as well.
    """
    found: dict[str, list[dict[str, Any]]] = {
        ALL_DISABLED: [{"devices": "all", "mig-enabled": False}],
        ALL_ENABLED: [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    outcomes: dict[str, dict[tuple[tuple[str, int], ...], list[str]]] = {}
    for board in BOARDS:
        for name in names_of_layouts(board.profiles) if board.mig else ():
            if name in found:
                continue
            try:
                layout = predefined_layout(name, board.profiles, name, board.key)
            except Refused:
                # No all-balanced for this board, as in mig-parted.
                continue
            devices = tuple(sorted(layout.devices.items()))
            outcomes.setdefault(name, {}).setdefault(devices, []).extend(board.pci_device_ids)
    for name, by_devices in sorted(outcomes.items()):
        found[name] = [
            {
                **({"device-filter": sorted(ids)} if len(by_devices) > 1 else {}),
                "devices": "all",
                "mig-enabled": True,
                "mig-devices": dict(devices),
            }
            for devices, ids in sorted(by_devices.items())
        ]
    return found


def _layout(item: PluginConfiguration) -> list[dict[str, Any]]:
    groups: dict[str, tuple[Mapping[str, int], list[int]]] = {}
    for index, devices in sorted(item.mig_devices.items()):
        groups.setdefault(repr(sorted(devices.items())), (devices, []))[1].append(index)
    entries: list[dict[str, Any]] = []
    for devices, indices in groups.values():
        everything = len(indices) == item.gpus
        entries.append(
            {
                "devices": "all" if everything else indices,
                "mig-enabled": True,
                "mig-devices": dict(sorted(devices.items())),
            }
        )
    rest = [index for index in range(item.gpus) if index not in item.mig_devices]
    if rest:
        entries.append({"devices": rest if entries else "all", "mig-enabled": False})
    return entries
