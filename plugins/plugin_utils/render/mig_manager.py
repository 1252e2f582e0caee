# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration of the GPU Operator's MIG manager, in mig-parted's v1 format: the predefined layouts and those of the pools.

A ConfigMap of one's own takes the place of the one that the manager makes from the hardware, with all its names. People set them by
hand on nodes (C(nvidia.com/mig.config=all-1g.10gb)), so they stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...module_utils._boards.lookup import BOARDS
from ...module_utils._mig import predefined
from ...module_utils._plan import Refused
from .emit import yaml_text
from .model import MANAGED_BY, Cluster, Configuration, content_hash, kube_object


def config_map(cluster: Cluster) -> dict[str, Any]:
    """Return the ConfigMap of the MIG manager.

    :raises Refused: a configuration has the name of a predefined layout.
    """
    configs: dict[str, Any] = {**predefined_layouts()}
    for item in cluster.configurations:
        if item.strategy == "none":
            continue
        if item.name in configs:
            raise Refused(
                f"pool {item.pool} of cluster {cluster.name}",
                f"{item.name} is the name of a predefined MIG layout, which the node label nvidia.com/mig.config would no longer choose",
                "Rename the group.",
            )
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
        predefined.ALL_DISABLED: [{"devices": "all", "mig-enabled": False}],
        predefined.ALL_ENABLED: [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    outcomes: dict[str, dict[tuple[tuple[str, int], ...], list[str]]] = {}
    for board in BOARDS:
        for name in predefined.names(board.profiles) if board.mig else ():
            if name in found:
                continue
            try:
                layout = predefined.layout(name, board.profiles, name, board.key)
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


def _layout(item: Configuration) -> list[dict[str, Any]]:
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
