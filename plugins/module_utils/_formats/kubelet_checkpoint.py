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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._plan import Refused
from .._schema import Path, Schema, Unfit, check, has, items, mapping, needs, of, text
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
_KEYS = mapping(lambda _value, _path: None, 1024)
#: One list since the beginning, one list for each NUMA node since 1.20.
_LIST = items(_TEXT)
_LISTS = mapping(_LIST, 1024)


def _devices(value: Any, path: Path) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(device for group in _LISTS(value, path).values() for device in group or ())
    return _LIST(value, path) or ()


def _names(value: Any, path: Path) -> frozenset[str]:
    return frozenset(_KEYS(value, path) or ())


@dataclass(frozen=True)
class HeldDevices:
    """What a container of a pod was given of one resource, or a pod of one claim. C(container): empty for a claim, which several containers may use."""

    pod_uid: str = needs(_TEXT, called="PodUID")
    container: str = needs(_TEXT, called="ContainerName")
    resource: str = needs(_TEXT, called="ResourceName")
    devices: tuple[str, ...] = needs(_devices, called="DeviceIDs")


@dataclass(frozen=True)
class Checkpoint:
    """What the kubelet remembers. C(entries): who was given what. The kubelet forgets those of pods that ended only when it next gives a device."""

    entries: tuple[HeldDevices, ...] = needs(items(of(HeldDevices)), called="PodDeviceEntries")
    registered: frozenset[str] = has(_names, frozenset(), called="RegisteredDevices")


@dataclass(frozen=True)
class _ClaimedDevice:
    name: str = needs(_TEXT, called="DeviceName")


@dataclass(frozen=True)
class _ClaimState:
    devices: tuple[_ClaimedDevice, ...] = has(items(of(_ClaimedDevice)), (), called="Devices")


@dataclass(frozen=True)
class _Claim:
    name: str = needs(_TEXT, called="ClaimName")
    pods: frozenset[str] = needs(_names, called="PodUIDs")
    drivers: Mapping[str, _ClaimState | None] = needs(mapping(of(_ClaimState), 64), called="DriverState")


@dataclass(frozen=True)
class _Claims:
    claims: tuple[_Claim, ...] = needs(items(of(_Claim)), called="ClaimInfoStateList")


def read_checkpoint(written: str, remedy: str) -> Checkpoint:
    """Return what a checkpoint says. Raises Refused: it is not what a kubelet writes. Guessing who uses a device would end somebody's work."""
    try:
        data = read_json(written)["Data"]
        listed = [{**entry, "DeviceIDs": entry["DeviceIDs"] or []} for entry in data["PodDeviceEntries"] or ()]
        found: Checkpoint = _read(_CHECKPOINT, {**data, "PodDeviceEntries": listed}, "PodDeviceEntries")
    except _OTHERS as error:
        reason = f"it is not what a kubelet writes ({type(error).__name__}: {error})"
        raise Refused(CHECKPOINT, reason, remedy) from error
    return found


def read_claims(written: str) -> tuple[HeldDevices, ...]:
    """Return which GPUs and MIG devices pods were given by claims, as L(place_of) calls them; a device of another name comes with that name. Raises
    Refused: it is not what a kubelet writes.
    """
    try:
        # The data is a document of its own, as text.
        found: _Claims = _read(_CLAIMS, read_json(read_json(written)["Data"]), "ClaimInfoStateList")
    except _OTHERS as error:
        raise Refused(CLAIMS, f"it is not what a kubelet writes ({type(error).__name__}: {error})", "") from error
    return tuple(
        HeldDevices(uid, "", f"claim {claim.name}", tuple(_place(one.name) for one in state.devices))
        for claim in found.claims
        for driver, state in claim.drivers.items()
        for uid in claim.pods
        if driver == _DRIVER and state
    )


_CHECKPOINT, _CLAIMS = of(Checkpoint), of(_Claims)
_OTHERS = (ValueError, KeyError, TypeError, AttributeError, RecursionError, Unfit)


def _read(schema: Schema, data: Any, listed: str) -> Any:
    # Go writes an empty list as null; one that is not there is another file.
    return check(schema, {**data, listed: data[listed] or []})


def place_of(minor: int | None, start: int | None = None) -> str:
    """Return the key of a GPU, or of what is in its GPU instance that begins at a memory slice, for who tells no UUID: claims."""
    return f"/dev/nvidia{minor}" + ("" if start is None else f" from {start}")


def _place(name: str) -> str:
    match = _DEVICE.fullmatch(name)
    if match is None:
        return name
    return place_of(int(match[1]), None if match[2] is None else int(match[2]))
