# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of mig-parted: what it refuses or ignores, and profiles that no board has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...module_utils._boards.lookup import BOARDS
from ...module_utils._mig.geometry import geometry, shortage
from ...module_utils._mig.mig_parted import VERSION, read
from ...module_utils._mig.profiles import nearest, parse
from ...module_utils._plan import Refused
from .finding import Report, below, is_placeholder, mapping

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
