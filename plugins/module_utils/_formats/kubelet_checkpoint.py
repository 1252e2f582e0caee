# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kubelet's records: which resources device plugins registered, and which pod holds which device, by a plugin or by a ResourceClaim.

They are read in place of its socket (C(pod-resources/kubelet.sock)), which would tell no more. What C(List) of it answers is the state of the device
manager and the cache of claims, and the kubelet writes both here before the container starts, or does not start it (C(allocateContainerResources),
C(PrepareResources)). The records are there while the kubelet does not run, and they have the init containers that C(List) leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._plan import Refused
from .._schema import Unfit, check, fields, items, mapping, text
from .documents import read_json

#: Where the kubelet writes it (C(pkg/kubelet/cm/devicemanager/checkpoint)).
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
#: Where it writes the claims that it prepared for pods (C(pkg/kubelet/cm/dra/state)).
CLAIMS = "/var/lib/kubelet/dra_manager_state"
#: The DRA driver for GPUs.
_DRIVER = "gpu.nvidia.com"
#: How that driver calls a GPU, by its minor number, and a MIG device of it, by its profile (with a letter), the number of that, and its first memory
#: slice (C(cmd/gpu-kubelet-plugin/mig.go)). Earlier releases have numbers alone, in another order: they tell no more than the GPU.
_DEVICE = re.compile(r"gpu-([0-9]{1,4})(?:-mig-(?:[0-9c-]*g[0-9a-z-]*-[0-9]{1,4}-([0-9]{1,4})|[0-9-]+))?")

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


_CLAIM_DATA = fields(
    {
        "ClaimInfoStateList": items(
            fields(
                {
                    "ClaimName": _TEXT,
                    "PodUIDs": mapping(lambda _value, _path: None, 1024),
                    "DriverState": mapping(
                        fields({"Devices": items(fields({"DeviceName": _TEXT}, required=("DeviceName",)))}), 64
                    ),
                },
                required=("ClaimName", "PodUIDs", "DriverState"),
            )
        )
    },
)


@dataclass(frozen=True)
class HeldDevices:
    """What a container of a pod was given of one resource, or a pod of one claim. C(container): empty for a claim, which several containers may use."""

    pod_uid: str
    container: str
    resource: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    """What the kubelet remembers. C(entries): who was given what. The kubelet forgets those of pods that ended only when it next gives a device."""

    entries: tuple[HeldDevices, ...]
    registered: frozenset[str]


def read_checkpoint(written: str, remedy: str) -> Checkpoint:
    """Return what a checkpoint says. Raises Refused: it is not what a kubelet writes. Guessing who uses a device would end somebody's work."""
    try:
        data = read_json(written)["Data"]
        # Go writes an empty list as null; one that is not there is another file.
        found: dict[str, Any] = {
            "PodDeviceEntries": data["PodDeviceEntries"] or [],
            "RegisteredDevices": data.get("RegisteredDevices") or {},
        }
        check(_DATA, found)
        entries = tuple(
            HeldDevices(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], _devices(entry["DeviceIDs"]))
            for entry in found["PodDeviceEntries"]
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Unfit) as error:
        reason = f"it is not what a kubelet writes ({type(error).__name__}: {error})"
        raise Refused(CHECKPOINT, reason, remedy) from error
    return Checkpoint(entries, frozenset(found["RegisteredDevices"]))


def read_claims(written: str) -> tuple[HeldDevices, ...]:
    """Return which GPUs and MIG devices pods were given by claims, as L(place_of) calls them; a device of another name comes with that name. Raises
    Refused: it is not what a kubelet writes.
    """
    try:
        # The data is a document of its own, as text. Go writes an empty list as null; one that is not there is another file.
        data = read_json(read_json(written)["Data"])
        found = {"ClaimInfoStateList": data["ClaimInfoStateList"] or []}
        check(_CLAIM_DATA, found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Unfit) as error:
        raise Refused(CLAIMS, f"it is not what a kubelet writes ({type(error).__name__}: {error})", "") from error
    return tuple(
        HeldDevices(str(uid), "", f"claim {claim['ClaimName']}", tuple(map(_place, state.get("Devices") or ())))
        for claim in found["ClaimInfoStateList"]
        for driver, state in claim["DriverState"].items()
        for uid in claim["PodUIDs"]
        if driver == _DRIVER and state
    )


def place_of(minor: int | None, start: int | None = None) -> str:
    """Return the key of a GPU, or of what is in its GPU instance that begins at a memory slice, for who tells no UUID: claims."""
    return f"/dev/nvidia{minor}" + ("" if start is None else f" from {start}")


def _place(device: Mapping[str, Any]) -> str:
    match = _DEVICE.fullmatch(device["DeviceName"])
    if match is None:
        return str(device["DeviceName"])
    return place_of(int(match[1]), None if match[2] is None else int(match[2]))


def _devices(listed: Any) -> tuple[str, ...]:
    groups: Iterable[Any] = listed.values() if isinstance(listed, Mapping) else [listed]
    return tuple(str(device) for group in groups for device in group or ())
