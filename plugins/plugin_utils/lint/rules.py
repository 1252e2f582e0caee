# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the device plugin, its MPS daemon and mig-parted check after a file is decoded, and what they should check and do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...module_utils._boards.board import mps_clients_of_device_plugin
from ...module_utils._boards.lookup import BOARDS
from ...module_utils._mig.geometry import geometry, shortage
from ...module_utils._mig.mig_parted import VERSION, read
from ...module_utils._mig.model import nearest, parse
from ...module_utils._plan import Refused
from ...module_utils._sharing.mps_instances import GPU, mig_resource
from . import plugin_fields
from .decode import REFUSED
from .finding import Report, below, is_placeholder, mapping, near
from .plugin_fields import DEVICE_LIST_STRATEGIES

#: A GPU that is divided more often than this by time slicing is probably a mistake; the plugin itself knows no bound.
MANY_TIME_SLICES = 100

# Boards of tomorrow have more memory, and the file does not say which one it is for.
_NAMES_DIFFER_BY = 0.2


def flags(given: Mapping[str, Any], report: Report) -> None:
    """Check values of C(flags) that the plugin refuses when it starts."""
    plugin = given.get("plugin") or {}
    for section, path, fields in (
        (given, "flags", plugin_fields.FLAGS),
        (plugin, "flags.plugin", plugin_fields.PLUGIN),
    ):
        for name, field in fields.items():
            value = section.get(name)
            if field.choices and isinstance(value, str) and value not in field.choices:
                remedy = near(value, field.choices) if value else f"One of: {', '.join(field.choices)}."
                report.error(f"{path}.{name}", f"{value!r} is not a valid value", remedy)
    _device_list(plugin.get("deviceListStrategy"), report)


def values(given: Mapping[str, Any], report: Report) -> None:
    """Check values of the plugin's chart that become its environment; those that are empty do not."""
    for name, field in {**plugin_fields.FLAGS, **plugin_fields.PLUGIN}.items():
        value = given.get(name)
        # What has commas is a list, of which the plugin trims each part.
        parts = map(str.strip, value.split(",")) if isinstance(value, str) and "," in value else [value]
        for one in value if isinstance(value, list) else parts:
            if field.choices and isinstance(one, str) and one not in ("", *field.choices):
                report.error(name, f"{one!r} is not a valid value: the plugin exits", near(one, field.choices))


def imex(given: Mapping[str, Any], report: Report) -> None:
    """Check C(imex)."""
    channels = given.get("channelIDs")
    if isinstance(channels, list) and channels not in ([], [0]) and REFUSED not in channels:
        report.error("imex.channelIDs", f"channelIDs must be [] or [0], not {channels}", "Write [0], or remove it.")
    if given.get("required") is True and not channels:
        report.warning("imex.required", "it has no effect without channelIDs", "Add channelIDs: [0], or remove it.")


def sharing(config: Mapping[str, Any], report: Report) -> None:
    """Check C(sharing) together with the MIG strategy."""
    section = config.get("sharing") or {}
    strategy = (config.get("flags") or {}).get("migStrategy")
    time_slicing, mps = section.get("timeSlicing"), section.get("mps")
    if mps is not None and mps is not REFUSED:
        if time_slicing is not None:
            message = "both timeSlicing and mps are given: MPS wins and timeSlicing is ignored"
            report.warning("sharing.timeSlicing", message, "Keep one: they are mutually exclusive.")
        _mps(strategy, report)
    for name, kind in (("timeSlicing", time_slicing), ("mps", mps)):
        if kind is not None:
            _replicated(kind, f"sharing.{name}", name == "mps", strategy, report)


def mps_daemon(config: Mapping[str, Any], report: Report) -> None:
    """Check what the plugin accepts and the MPS daemon beside it does not; the plugin then waits for it for ever."""
    mps = (config.get("sharing") or {}).get("mps") or {}
    limit = mps_clients_of_device_plugin(None)
    for index, item in enumerate(_entries(mps)):
        replicas = item.get("replicas")
        if isinstance(replicas, int) and replicas > limit:
            report.error(
                f"sharing.mps.resources[{index}].replicas",
                f"the MPS daemon dies: maximum allowed replicas exceeded: {replicas} > {limit}",
                f"Write {limit} or less ({mps_clients_of_device_plugin('volta')} before Turing).",
            )


def _mps(strategy: Any, report: Report) -> None:
    if strategy == "mixed":
        message = "migStrategy mixed is not supported with MPS: the plugin exits"
        report.error("flags.migStrategy", message, "Use timeSlicing on the MIG devices, or migStrategy: none.")
    elif strategy == "single":
        report.warning(
            "flags.migStrategy",
            "with MPS the strategy single can only do harm: the plugin exits where a GPU has MIG devices, and it has no effect elsewhere",
            "Write migStrategy: none.",
        )


def _replicated(kind: Mapping[str, Any], path: str, mps: bool, strategy: Any, report: Report) -> None:
    rename = kind.get("renameByDefault") is True
    seen: dict[str, int] = {}
    for index, item in enumerate(_entries(kind)):
        where = f"{path}.resources[{index}]"
        name, replicas = item.get("name"), item.get("replicas")
        if isinstance(name, str):
            _name(name, where, mps, strategy, report)
            if name in seen:
                message = f"{name} is listed twice: the plugin uses the larger number of replicas, the node's labels show the first"
                report.warning(f"{where}.name", message, f"Keep one of resources[{seen[name]}] and resources[{index}].")
            seen.setdefault(name, index)
            _rename(item, name, where, rename, report)
        if isinstance(replicas, int) and not mps and replicas > MANY_TIME_SLICES:
            report.warning(
                f"{where}.replicas",
                f"{replicas} pods on one GPU, with nothing that divides its memory; the plugin advertises every one of them",
                f"More than {MANY_TIME_SLICES} is probably a mistake: check the number.",
            )


def _entries(kind: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    resources = kind.get("resources")
    return [item for item in resources if isinstance(item, dict)] if isinstance(resources, list) else []


def _name(name: str, where: str, mps: bool, strategy: Any, report: Report) -> None:
    if name == GPU:
        return
    path = f"{where}.name"
    if not _is_mig_resource(name):
        report.warning(
            path, f"no node has a resource {name}: it is ignored", near(name, (GPU, "nvidia.com/mig-1g.10gb"))
        )
    elif mps:
        message = "MPS does not share MIG devices: the plugin exits where the node has them"
        report.warning(path, message, "Use timeSlicing for them.")
    elif strategy in ("none", "single"):
        offered = "MIG devices are offered as nvidia.com/gpu" if strategy == "single" else "no MIG devices are offered"
        report.warning(
            path, f"with migStrategy {strategy} {offered}: {name} is ignored", "Write flags.migStrategy: mixed."
        )
    elif strategy is None:
        message = f"{name} exists under migStrategy mixed only, which this file does not set: it is ignored unless MIG_STRATEGY sets it"
        report.warning(path, message, "Write flags.migStrategy: mixed.")


def _is_mig_resource(name: str) -> bool:
    """Whether some board has a MIG profile of this name, or nearly of this name."""
    profile = re.sub("gb[.]", "gb+", name.removeprefix(mig_resource("")))
    try:
        return any(alike(profile, known.name, _NAMES_DIFFER_BY) for board in BOARDS for known in board.profiles)
    except Refused:
        return False


def _rename(item: Mapping[str, Any], name: str, where: str, rename: bool, report: Report) -> None:
    given = item.get("rename")
    if not isinstance(given, str):
        return
    if not rename:
        report.warning(
            f"{where}.rename", "renaming is not supported by the plugin: it is ignored", "Use renameByDefault: true."
        )
    elif given != f"{name}.shared":
        report.warning(f"{where}.rename", f"it is ignored: renameByDefault makes it {name}.shared", "Remove it.")


def _device_list(value: Any, report: Report) -> None:
    path = "flags.plugin.deviceListStrategy"
    if not isinstance(value, list):
        return
    for item in value:
        if item in DEVICE_LIST_STRATEGIES:
            continue
        parts = [part.strip() for part in item.split(",")]
        if len(parts) > 1 and all(part in DEVICE_LIST_STRATEGIES for part in parts):
            remedy = f"Only the command line splits at commas: write [{', '.join(parts)}]."
        else:
            remedy = near(item, DEVICE_LIST_STRATEGIES)
        report.error(path, f"invalid strategy: {item!r}", remedy)
    if not value:
        report.warning(path, "an empty list: containers are given no device at all", "Write [envvar].")


_CONFIGS, _DEVICES, _SOURCE = "mig-configs", "mig-devices", "the file"
_ENTRY = {"devices": "all", "mig-enabled": False}
_DIFFER_BY = 0.05


def is_layouts(document: Mapping[str, Any]) -> bool:
    """Return whether a file is one of mig-parted."""
    return "kind" not in document and _CONFIGS in document


def check(document: Mapping[str, Any], report: Report) -> None:
    """Check one file."""
    configs = mapping(document[_CONFIGS])
    _is_accepted({**document, **({_CONFIGS: {"x": [_ENTRY]}} if configs else {})}, "", "", report)
    # Each entry by itself, so that one does not hide the faults of another.
    for label, entries in configs.items():
        path = f"{_CONFIGS}.{label}"
        if not isinstance(entries, list) or not entries:
            _is_accepted({"version": VERSION, _CONFIGS: {label: entries}}, path, path, report)
            continue
        for number, entry in enumerate(entries):
            where, wanted = f"{path}[{number}]", below(entry, _DEVICES)
            if isinstance(wanted, str) and is_placeholder(wanted):
                entry = {**entry, _DEVICES: {}}
            if not _is_accepted({"version": VERSION, _CONFIGS: {label: [entry]}}, f"{path}[0]", where, report):
                continue
            given = entry.get("device-filter") or []
            devices = {str(one).upper().replace("X", "x") for one in (given if isinstance(given, list) else [given])}
            _profiles(devices, mapping(entry.get(_DEVICES)), f"{where}.{_DEVICES}", report)


def _is_accepted(document: Mapping[str, Any], path: str, where: str, report: Report) -> bool:
    """Return whether mig-parted accepts a file; of what stands below C(path) in it, the original is C(where)."""
    try:
        read(document, _SOURCE)
    except Refused as refusal:
        thing = refusal.thing.removeprefix(_SOURCE).lstrip(": ")
        report.error(f"{where}{thing.removeprefix(path)}", refusal.reason, refusal.remedy)
        return False
    return True


def alike(name: str, other: str, by: float) -> bool:
    """Return whether two profiles have as many slices, and as many GB but for C(by) of the larger. Raises Refused: one is no profile's name."""
    one, two = parse(name), parse(other)
    larger = max(one.memory_gb, two.memory_gb)
    return one.gpu_slices == two.gpu_slices and abs(one.memory_gb - two.memory_gb) <= by * larger


def _profiles(devices: set[str], wanted: Mapping[str, Any], path: str, report: Report) -> None:
    """Check profiles against the boards that the filter names, where the table has them all, else against all boards."""
    named = [board for board in BOARDS if devices & set(board.pci_device_ids)]
    all_known = bool(devices) and devices <= {one for board in named for one in board.pci_device_ids}
    boards = named if all_known else BOARDS
    known = {profile.name: profile for board in boards for profile in board.profiles}
    whose = " and ".join(board.key for board in named) if all_known else "no board of the table"
    if wanted and not known:
        reason = f"{whose} {'have' if len(named) > 1 else 'has'} no MIG"
        report.error(path, reason, "Name boards with MIG in device-filter, or remove the entry.")
        return
    for name in wanted:
        parsed = parse(name)
        if parsed.gpu_instance in known:
            continue
        reason = f"{whose} {'have' if len(named) > 1 else 'has'} {'no' if all_known else 'a'} profile of this name"
        candidates = nearest(parsed, tuple(known.values()))
        # The GB of a name are computed from the memory that a driver reports: other boards, and other drivers, name them a little differently.
        say = report.note if alike(name, candidates[0], _DIFFER_BY) else report.warning
        say(f"{path}['{name}']", reason, f"Did you mean {' or '.join(candidates)}?")
    # Of a board that does not have all of them, or whose places are not known, nothing is known; a compute instance is no profile.
    having = [
        board.profiles for board in boards if set(wanted) <= {one.name for one in board.profiles if one.placements}
    ]
    lacks = [shortage(geometry(one), tuple(wanted.get(each.name, 0) for each in one)) for one in having if wanted]
    if lacks and all(lacks):
        reason = f"these do not fit on {'a board of the filter' if all_known else 'any board'} ({lacks[0]})"
        report.warning(path, reason, "Ask for fewer or smaller ones.")
