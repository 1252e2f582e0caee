# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs an entry of C(nvidia_mig_layout) is about: C(devices) and C(device_filter)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._boards.lookup import board_of, normalize_device_id
from .._formats.numbers import whole_number
from .._plan import Refused

_PCI = re.compile(r"^(?:([0-9a-f]{4}|[0-9a-f]{8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$", re.IGNORECASE)
_PCI_FILTER = re.compile(r"^0x[0-9a-f]{4}(?:10de)?(?::0x[0-9a-f]{4}(?:[0-9a-f]{4})?)?$", re.IGNORECASE)


def normalize_address(address: str) -> str | None:
    """Return a PCI address as sysfs writes it, C(0000:18:00.0), or None when the text is not one."""
    match = _PCI.match(address.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def select(devices: Any, gpus: Sequence[Mapping[str, Any]], path: str) -> list[Mapping[str, Any]]:
    """Return the GPUs that C(devices) means.

    :param devices: C(all), or one or a list of indices, UUIDs (C(GPU-...)) and PCI addresses.
    :param gpus: entries of C(gpus) of the facts.
    :param path: where C(devices) stands in the user's variables.
    :raises Refused: for something that names no GPU of the host.
    """
    if devices == "all":
        return list(gpus)
    items = devices if isinstance(devices, (list, tuple)) else [devices]
    paths = [f"{path}[{number}]" for number in range(len(items))] if items is devices else [path]
    if not items:
        raise Refused(path, "no devices are named", "Write all, or a list of indices, UUIDs or PCI addresses.")
    chosen: list[Mapping[str, Any]] = []
    for item, where in zip(items, paths):
        found = gpus if item == "all" else [gpu for gpu in gpus if _is(item, gpu, where)]
        if not found:
            there = ", ".join(str(gpu.get("index")) for gpu in gpus) or "none"
            raise Refused(where, f"the host has no GPU {item}", f"Its GPUs have the indices {there}.")
        chosen.extend(gpu for gpu in found if gpu not in chosen)
    return chosen


def _is(item: Any, gpu: Mapping[str, Any], path: str) -> bool:
    if isinstance(item, int) and not isinstance(item, bool):
        return bool(gpu.get("index") == item)
    if isinstance(item, str):
        if whole_number(item) is not None:
            return bool(gpu.get("index") == whole_number(item))
        if item.upper().startswith("GPU-"):
            return str(gpu.get("uuid") or "").lower() == item.lower()
        address = normalize_address(item)
        if address is not None:
            own = gpu.get("pci_address") or gpu.get("address") or ""
            return normalize_address(str(own)) == address
    raise Refused(
        path, f"{item!r} names no device", "Write all, an index, a UUID (GPU-...) or a PCI address (0000:18:00.0)."
    )


def matches(device_filter: Any, gpu: Mapping[str, Any], path: str) -> bool:
    """Return whether a GPU passes C(device_filter).

    :param device_filter: None, or one or a list of product names (C(NVIDIA A30)) and PCI ids, also in mig-parted's
        forms: C(0x2330), C(0x233010DE), C(0x233010DE:0x16C110DE) with the subsystem.
    :raises Refused: for something that is neither.
    """
    if device_filter is None:
        return True
    items = device_filter if isinstance(device_filter, (list, tuple)) else [device_filter]
    if not items or not all(isinstance(item, str) and item.strip() for item in items):
        raise Refused(path, "a filter is a product name or a PCI device id, or a list of them", "")
    return any(_passes(item.strip(), gpu, path) for item in items)


def _passes(item: str, gpu: Mapping[str, Any], path: str) -> bool:
    if not item.lower().startswith("0x"):
        return item.lower() == str(gpu.get("name") or "").lower()
    if not _PCI_FILTER.match(item):
        raise Refused(path, f"{item!r} is not a PCI device id", "Write 0x2330, 0x233010DE or 0x233010DE:0x16C110DE.")
    device, _separator, subsystem = item.partition(":")
    wanted = normalize_device_id(device)
    own = gpu.get("device_id")
    if own:
        same = normalize_device_id(str(own)) == wanted
    else:
        board = board_of(gpu)
        same = board is not None and wanted in board.pci_device_ids
    if not same or not subsystem:
        return same
    # Facts hold the subsystem's device id alone; mig-parted's form appends its vendor.
    return str(gpu.get("subsystem_id") or "").lower()[:6] == subsystem.lower()[:6]
