# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of mig-parted: what it refuses or ignores, and profiles that no board has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...module_utils._boards.lookup import BOARDS
from ...module_utils._mig.mig_parted import read
from ...module_utils._mig.profiles import nearest, parse
from ...module_utils._plan import Refused
from .finding import Report, mapping

_CONFIGS, _SOURCE = "mig-configs", "the file"
_DIFFER_BY = 0.05


def is_layouts(document: Mapping[str, Any]) -> bool:
    """Return whether a file is one of mig-parted."""
    return "kind" not in document and _CONFIGS in document


def check(document: Mapping[str, Any], report: Report) -> None:
    """Check one file."""
    try:
        read(document, _SOURCE)
    except Refused as refusal:
        report.error(refusal.thing.removeprefix(_SOURCE).lstrip(": "), refusal.reason, refusal.remedy)
        return
    for label, entries in mapping(document[_CONFIGS]).items():
        for number, entry in enumerate(entries):
            given = entry.get("device-filter") or []
            devices = {str(one).upper().replace("X", "x") for one in (given if isinstance(given, list) else [given])}
            _profiles(devices, mapping(entry.get("mig-devices")), f"{_CONFIGS}.{label}[{number}].mig-devices", report)


def _profiles(devices: set[str], wanted: Mapping[str, Any], path: str, report: Report) -> None:
    """Check profiles against the boards that the filter names, where the table has them all, else against all boards."""
    named = [board for board in BOARDS if devices & set(board.pci_device_ids)]
    all_known = bool(devices) and devices <= {one for board in named for one in board.pci_device_ids}
    known = {profile.name: profile for board in (named if all_known else BOARDS) for profile in board.profiles}
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
        # Boards that the table does not have may name their profiles a little differently.
        like = parse(candidates[0])
        larger = max(like.memory_gb, parsed.memory_gb)
        alike = like.gpu_slices == parsed.gpu_slices and abs(like.memory_gb - parsed.memory_gb) <= _DIFFER_BY * larger
        say = report.note if alike and not all_known else report.warning
        say(f"{path}['{name}']", reason, f"Did you mean {' or '.join(candidates)}?")
