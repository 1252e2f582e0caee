# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an entry of C(nvidia_mig_layout) is about: the GPUs that it selects, and the predefined layouts, with the names and meanings that the GPU Operator's
mig-manager gave them; and what NVIDIA's device plugin (0.20, C(internal/rm)) makes of MIG under its strategies. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._boards.board import GpuInstanceProfile
from .._boards.cards import board_of
from .._boards.lookup import normalize_device_id
from .._formats.documents import whole_number
from .._gpu_facts import GpuFacts
from .._plan import Refused
from .geometry import geometry
from .model import DesiredGpu, DesiredInstance, parse, resolve

_PCI = re.compile(r"^(?:([0-9a-f]{4}|[0-9a-f]{8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$", re.IGNORECASE)
_PCI_FILTER = re.compile(r"^0x[0-9a-f]{4}(?:10de)?(?::0x[0-9a-f]{4}(?:[0-9a-f]{4})?)?$", re.IGNORECASE)


def normalize_address(address: str) -> str | None:
    """Return a PCI address as sysfs writes it, C(0000:18:00.0), or None when the text is not one."""
    match = _PCI.match(address.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def select(devices: Any, gpus: Sequence[GpuFacts], path: str) -> list[GpuFacts]:
    """Return the GPUs that C(devices) means.

    :param devices: C(all), or one or a list of indices, UUIDs (C(GPU-...)) and PCI addresses.
    :raises Refused: for something that names no GPU of the host.
    """
    if devices == "all":
        return list(gpus)
    items = devices if isinstance(devices, (list, tuple)) else [devices]
    paths = [f"{path}[{number}]" for number in range(len(items))] if items is devices else [path]
    if not items:
        raise Refused(path, "no devices are named", "Write all, or a list of indices, UUIDs or PCI addresses.")
    chosen: list[GpuFacts] = []
    for item, where in zip(items, paths):
        found = gpus if item == "all" else [gpu for gpu in gpus if _is(item, gpu, where)]
        if not found:
            there = ", ".join(str(gpu.index) for gpu in gpus) or "none"
            raise Refused(where, f"the host has no GPU {item}", f"Its GPUs have the indices {there}.")
        chosen.extend(gpu for gpu in found if gpu not in chosen)
    return chosen


def _is(item: Any, gpu: GpuFacts, path: str) -> bool:
    if isinstance(item, int) and not isinstance(item, bool):
        return gpu.index == item
    if isinstance(item, str):
        if whole_number(item) is not None:
            return gpu.index == whole_number(item)
        if item.upper().startswith("GPU-"):
            return (gpu.uuid or "").lower() == item.lower()
        address = normalize_address(item)
        if address is not None:
            return normalize_address(gpu.pci_address or "") == address
    reason = f"{item!r} names no device"
    raise Refused(path, reason, "Write all, an index, a UUID (GPU-...) or a PCI address (0000:18:00.0).")


def matches(device_filter: Any, gpu: GpuFacts, path: str) -> bool:
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


def _passes(item: str, gpu: GpuFacts, path: str) -> bool:
    if not item.lower().startswith("0x"):
        return item.lower() == (gpu.name or "").lower()
    if not _PCI_FILTER.match(item):
        raise Refused(path, f"{item!r} is not a PCI device id", "Write 0x2330, 0x233010DE or 0x233010DE:0x16C110DE.")
    device, _separator, subsystem = item.partition(":")
    wanted = normalize_device_id(device)
    if gpu.device_id:
        same = normalize_device_id(gpu.device_id) == wanted
    else:
        board = board_of(gpu)
        same = board is not None and wanted in board.pci_device_ids
    if not same or not subsystem:
        return same
    # Facts hold the subsystem's device id alone; mig-parted's form appends its vendor.
    return (gpu.subsystem_id or "").lower()[:6] == subsystem.lower()[:6]


ALL_DISABLED = "all-disabled"
ALL_ENABLED = "all-enabled"
ALL_BALANCED = "all-balanced"

# How many instances of how many slices all-balanced has, by the slices of the whole GPU. Source: [code] mig-parted
# deployments/systemd/config-default.yaml and generate-config; a GPU with other slices has no balanced layout there.
BALANCED: dict[int, tuple[tuple[int, int], ...]] = {7: ((3, 1), (2, 1), (1, 2)), 4: ((2, 1), (1, 2))}


def label_of(profile: str) -> str:
    """Return the name of the predefined layout of a profile: C(all-1g.10gb.me) for C(1g.10gb+me)."""
    return "all-" + profile.replace("+", ".")


def names_of_layouts(profiles: Sequence[GpuInstanceProfile]) -> list[str]:
    """Return the predefined layouts of a GPU."""
    return [ALL_DISABLED, ALL_ENABLED, ALL_BALANCED, *(label_of(profile.name) for profile in profiles)]


def predefined_layout(name: str, profiles: Sequence[GpuInstanceProfile], thing: str, of: str) -> DesiredGpu:
    """Return what a predefined layout makes of a GPU.

    :param name: C(all-disabled), C(all-enabled) (MIG on, no instances), C(all-balanced), or C(all-) and a profile
        (C(+) may be written as a dot): as many instances of it as the GPU holds.
    :raises Refused: for a name that this GPU has no layout for.
    """
    if name == ALL_DISABLED:
        return DesiredGpu(False)
    if name == ALL_ENABLED:
        return DesiredGpu(True)
    if name == ALL_BALANCED:
        return _balanced(profiles, thing, of)
    if not name.startswith("all-"):
        reason = f"{name!r} is not a predefined layout"
        raise Refused(thing, reason, f"{of} has: {', '.join(names_of_layouts(profiles))}.")
    by_label = {label_of(profile.name): profile for profile in profiles}
    profile = by_label.get(name) or resolve(_profile_of(name), profiles, thing, of)
    count = profile.max_instances
    shape = geometry(tuple(profiles))
    if profile.placements is not None:
        # Not every driver counts right (A30); no more are asked for than there are places.
        while count > 1 and not shape.layouts_of(shape.request({profile.name: count})):
            count -= 1
    return DesiredGpu(True, (DesiredInstance(profile.name, (profile.gpu_slices,)),) * count)


def _profile_of(name: str) -> str:
    """Return the profile that a name means: the first dot after C(gb) stands for a plus."""
    base, separator, attributes = name[len("all-") :].partition("gb.")
    return f"{base}gb+{attributes}" if separator else name[len("all-") :]


def plain_profile(slices: int, profiles: Sequence[GpuInstanceProfile]) -> GpuInstanceProfile | None:
    """Return the ordinary profile with this many slices: no attributes, and the least memory of those."""
    found = []
    for profile in profiles:
        parsed = parse(profile.name)
        if parsed.gpu_slices == slices and not parsed.added and not parsed.removed:
            found.append((parsed.memory_gb, profile))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _balanced(profiles: Sequence[GpuInstanceProfile], thing: str, of: str) -> DesiredGpu:
    whole = max((profile.gpu_slices for profile in profiles), default=0)
    chosen = []
    for slices, count in BALANCED.get(whole, ()):
        profile = plain_profile(slices, profiles)
        if profile is not None:
            chosen += [DesiredInstance(profile.name, (slices,))] * count
    if not chosen:
        remedy = "Write the instances that you want."
        raise Refused(thing, f"all-balanced is defined for GPUs with 4 or 7 slices, and {of} has {whole}", remedy)
    return DesiredGpu(True, tuple(sorted(chosen)))


STRATEGIES = ("none", "single", "mixed")


def check_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise Refused("nvidia_mig_strategy", f"{strategy!r} is not a MIG strategy", f"Use {', '.join(STRATEGIES)}.")


def check_against_strategy(strategy: str, found: Mapping[int, DesiredGpu], others: Sequence[GpuFacts]) -> None:
    """Refuse what the plugin would refuse, or hide."""
    enabled = [index for index, desired in found.items() if desired.enabled]
    if not enabled:
        return
    if strategy == "none":
        reason = f"with none, the MIG devices of GPU {enabled[0]} would not be offered to any pod"
        raise Refused("nvidia_mig_strategy", reason, "Use single or mixed, or set enabled: false in nvidia_mig_layout.")
    if strategy != "single":
        return
    off = [index for index, desired in found.items() if not desired.enabled]
    off += [gpu.index for gpu in others if not gpu.mig.current]
    if off:
        raise Refused(
            "nvidia_mig_strategy",
            f"single needs MIG on all GPUs of a host or on none; it is on for GPU {enabled[0]} and off for GPU {off[0]}",
            "Use mixed, or select all GPUs.",
        )
    names = {name for desired in found.values() for name in desired.devices}
    if len(names) > 1:
        reason = f"single needs one kind of MIG device on a host, and the layout makes {', '.join(sorted(names))}"
        raise Refused("nvidia_mig_strategy", reason, "Use mixed.")
    empty = [index for index in enabled if not found[index].instances]
    if empty and names:
        remedy = "Use mixed."
        raise Refused("nvidia_mig_strategy", f"single needs instances on all GPUs, and GPU {empty[0]} has none", remedy)


def refuse_parts(desired: DesiredGpu, strategy: str) -> None:
    """Under the strategy mixed the plugin exits on a compute instance that does not fill its GPU instance."""
    for name in desired.devices if strategy == "mixed" else ():
        if re.match(r"[0-9]+c\.", name):
            reason = f"the device plugin does not offer the compute instance {name} under nvidia_mig_strategy: mixed, and exits"
            remedy = "Use GPU instances without the Cc. part, or nvidia_mig_strategy: single with one kind of instance."
            raise Refused("nvidia_mig_layout", reason, remedy)
