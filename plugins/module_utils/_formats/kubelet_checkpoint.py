# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kubelet's record of device plugins: which resources they registered, and which pod holds which device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._plan import Refused
from .._schema import Unfit, check, fields, items, mapping, text
from .documents import read_json

#: Where the kubelet writes it (C(pkg/kubelet/cm/devicemanager/checkpoint)).
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

_TEXT = text(256)
#: One list since the beginning, one list for each NUMA node since 1.20.
_LISTS = mapping(items(_TEXT), 1024)
_DATA = fields(
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
        ),
        "RegisteredDevices": mapping(lambda _value, _path: None, 1024),
    }
)


@dataclass(frozen=True)
class Entry:
    """What a container of a pod was given of one resource."""

    pod_uid: str
    container: str
    resource: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    """What the kubelet remembers.

    :param entries: who was given what. The kubelet forgets those of pods that ended only when it next gives a device.
    :param registered: the resources that device plugins registered.
    """

    entries: tuple[Entry, ...]
    registered: frozenset[str]


def read_checkpoint(written: str, remedy: str) -> Checkpoint:
    """Return what a checkpoint says.

    :param remedy: what to do where it is none.
    :raises Refused: it is not what a kubelet writes. Guessing who uses a device would end somebody's work.
    """
    try:
        data = read_json(written)["Data"]
        # Go writes an empty list as null; one that is not there is another file.
        found: dict[str, Any] = {
            "PodDeviceEntries": data["PodDeviceEntries"] or [],
            "RegisteredDevices": data.get("RegisteredDevices") or {},
        }
        check(_DATA, found)
        entries = tuple(
            Entry(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], _devices(entry["DeviceIDs"]))
            for entry in found["PodDeviceEntries"]
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Unfit) as error:
        raise Refused(
            CHECKPOINT, f"it is not what a kubelet writes ({type(error).__name__}: {error})", remedy
        ) from error
    return Checkpoint(entries, frozenset(found["RegisteredDevices"]))


def _devices(listed: Any) -> tuple[str, ...]:
    groups: Iterable[Any] = listed.values() if isinstance(listed, Mapping) else [listed]
    return tuple(str(device) for group in groups for device in group or ())
