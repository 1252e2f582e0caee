# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pod holds which device, from the kubelet's checkpoint of its device manager. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.kubelet_checkpoint import CHECKPOINT
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit, check, fields, items, mapping, text

_TEXT = text(256)
#: One list since the beginning, one list for each NUMA node since 1.20.
_LISTS = mapping(items(_TEXT), 1024)
_ENTRIES = fields(
    {
        "PodDeviceEntries": items(
            fields(
                {
                    **dict.fromkeys(("PodUID", "ContainerName", "ResourceName"), _TEXT),
                    "DeviceIDs": lambda value, path: (_LISTS if isinstance(value, Mapping) else items(_TEXT))(
                        value, path
                    ),
                },
                required=("PodUID", "ContainerName", "ResourceName"),
            )
        )
    },
    required=("PodDeviceEntries",),
)


@dataclass(frozen=True)
class Holding:
    """A device that a container of a pod was given.

    :param device: UUID of the GPU or MIG device, without the number of its replica.
    :param replica: that number, of a shared device; else empty.
    :param memory_mib: how much of its memory a claim consumes; None where the device is not divided so.
    """

    pod_uid: str
    container: str
    resource: str
    device: str
    replica: str = ""
    memory_mib: int | None = None


def holdings(text: str) -> tuple[Holding, ...]:
    """Return who was given which device.

    The kubelet writes device ids by NUMA node since 1.20, and as one list before that. Shared devices are called
    C(<uuid>::<replica>).

    :raises Refused: the text is not a checkpoint. Guessing who uses an instance would end somebody's work.
    """
    try:
        entries = json.loads(text)["Data"]["PodDeviceEntries"] or []
        check(_ENTRIES, {"PodDeviceEntries": entries})
        found = [
            Holding(str(entry["PodUID"]), str(entry["ContainerName"]), str(entry["ResourceName"]), device, replica)
            for entry in entries
            for device, replica in _devices(entry["DeviceIDs"])
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Unfit) as error:
        raise Refused(
            CHECKPOINT,
            f"it is not what a kubelet writes ({type(error).__name__}: {error})",
            "Drain the node with gpufleet.nvidia.upgrade, or wait for a release that supports this kubelet.",
        ) from error
    return tuple(dict.fromkeys(found))


def _devices(listed: Any) -> list[tuple[str, str]]:
    if listed is None:
        return []
    groups: Iterable[Sequence[str]] = listed.values() if isinstance(listed, Mapping) else [listed]
    parts = [str(device).partition("::") for group in groups for device in group or ()]
    return [(device, replica) for device, _colons, replica in parts]


def in_use(found: Iterable[Holding], live: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the UIDs of the pods that hold each device.

    :param live: UIDs of the pods that there are: the kubelet forgets a pod's entries only when it next gives a device.
    """
    there = set(live)
    users: dict[str, list[str]] = {}
    for holding in found:
        if holding.pod_uid in there:
            users.setdefault(holding.device, []).append(holding.pod_uid)
    return {device: tuple(dict.fromkeys(uids)) for device, uids in users.items()}
