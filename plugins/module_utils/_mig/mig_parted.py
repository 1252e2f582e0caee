# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configuration files of nvidia-mig-parted, version v1: read as layouts, and written from what GPUs are to be.

The files are plain containers here; YAML is the caller's business.

    version: v1
    mig-configs:
      <label>:
        - device-filter: "0x233010DE"     # or a list; may be absent
          devices: all                     # or a list of indices
          mig-enabled: true
          mig-devices: {1g.10gb: 7}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._plan import Refused
from .model import DesiredGpu, parse

VERSION = "v1"
_TOP = ("version", "mig-configs")
_KEYS = ("device-filter", "devices", "mig-enabled", "mig-devices")


def read(document: Any, source: str = "mig-parted's file") -> dict[str, list[dict[str, Any]]]:
    """Return the layouts of a file, by label, in the form of C(nvidia_mig_layout). In mig-parted's list a later entry overrides an earlier one, in a
    layout the first match wins; the entries are therefore turned round. What mig-parted lets through is refused here: profile names that it cannot
    parse, which it treats as no instances at all. Raises Refused: when it is not a valid file.
    """
    if not isinstance(document, Mapping):
        raise Refused(source, "it is not a mapping", "It needs version: v1 and mig-configs.")
    for key in document:
        if key not in _TOP:
            raise Refused(f"{source}: {key}", "mig-parted has no such key", f"The keys are {', '.join(_TOP)}.")
    if document.get("version") != VERSION:
        raise Refused(f"{source}: version", f"{document.get('version')!r} is not v1", "Only v1 is supported.")
    configs = document.get("mig-configs")
    if not isinstance(configs, Mapping) or not configs:
        raise Refused(f"{source}: mig-configs", "it holds no configuration", "")
    found = {}
    for label, entries in configs.items():
        path = f"{source}: mig-configs.{label}"
        if not isinstance(entries, (list, tuple)) or not entries:
            raise Refused(path, "a configuration must be a list with at least one entry", "")
        layout = [_entry(entry, f"{path}[{number}]") for number, entry in enumerate(entries)]
        found[str(label)] = layout[::-1]
    return found


def _entry(entry: Any, path: str) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise Refused(path, "an entry has keys", f"The keys are {', '.join(_KEYS)}.")
    for key in entry:
        if key not in _KEYS:
            raise Refused(f"{path}.{key}", "mig-parted has no such key", f"The keys are {', '.join(_KEYS)}.")
    devices = entry.get("devices")
    indices = isinstance(devices, (list, tuple)) and bool(devices) and all(_is_count(index) for index in devices)
    if devices != "all" and not indices:
        raise Refused(f"{path}.devices", f"{devices!r} must be all or a list of indices", "")
    enabled = entry.get("mig-enabled")
    if not isinstance(enabled, bool):
        raise Refused(f"{path}.mig-enabled", f"{enabled!r} must be true or false", "")
    found: dict[str, Any] = {"devices": "all" if devices == "all" else list(devices or ())}
    if entry.get("device-filter"):
        found["device_filter"] = entry["device-filter"]
    instances = entry.get("mig-devices")
    if not enabled:
        if instances:
            raise Refused(f"{path}.mig-devices", "MIG devices need mig-enabled: true", "")
        return {**found, "enabled": False}
    if not isinstance(instances, Mapping):
        raise Refused(f"{path}.mig-devices", "mig-enabled: true needs mig-devices, which may be {}", "")
    if not instances:
        return {**found, "layout": "all-enabled"}
    for name, count in instances.items():
        parse(name, f"{path}.mig-devices['{name}']")
        if not _is_count(count):
            raise Refused(f"{path}.mig-devices['{name}']", f"{count!r} is not a number of devices", "")
    if not any(instances.values()):
        raise Refused(f"{path}.mig-devices", "all counts are 0", "mig-parted rejects that; write {}.")
    return {**found, "instances": dict(instances)}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def write(label: str, gpus: Mapping[int, DesiredGpu], total: int) -> dict[str, Any]:
    """Return a file with one configuration that makes the GPUs what they are to be.

    GPUs that are to be alike share an entry. Since every GPU is in one entry only, their order does not matter.

    :param gpus: by index; GPUs that are not in it stay out of the file, and mig-parted leaves them alone.
    :param total: how many GPUs the host has: C(all) is written only when every one of them is meant.
    """
    entries = []
    for desired, indices in _alike(gpus):
        entry: dict[str, Any] = {"devices": "all" if len(indices) == total else indices, "mig-enabled": desired.enabled}
        if desired.enabled:
            entry["mig-devices"] = dict(sorted(desired.devices.items()))
        entries.append(entry)
    return {"version": VERSION, "mig-configs": {label: entries}}


def layout_of(gpus: Mapping[int, DesiredGpu], total: int) -> list[dict[str, Any]]:
    """Return the entries of C(nvidia_mig_layout) that make the GPUs what they are to be; parameters as for C(write)."""
    return [
        {"devices": "all" if len(indices) == total else indices, **entry_of(desired)}
        for desired, indices in _alike(gpus)
    ]


def entry_of(desired: DesiredGpu) -> dict[str, Any]:
    """Return what an entry of C(nvidia_mig_layout) says beside its devices."""
    if not desired.enabled:
        return {"enabled": False}
    return {"instances": dict(sorted(desired.devices.items()))} if desired.devices else {"layout": "all-enabled"}


def _alike(gpus: Mapping[int, DesiredGpu]) -> Sequence[tuple[DesiredGpu, list[int]]]:
    groups: dict[DesiredGpu, list[int]] = {}
    for index, desired in sorted(gpus.items()):
        groups.setdefault(desired, []).append(index)
    return list(groups.items())
