# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters C(gpufleet.nvidia.driver_advisories) and C(gpufleet.nvidia.driver_releases)."""

from __future__ import annotations

from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.driver_advisories import read_folder, read_releases
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain


def driver_advisories(path: Any) -> list[dict[str, Any]]:
    """Return the security floors in a folder of NVIDIA's advisories."""
    return _read(path, read_folder, "driver_advisories takes the path of a folder")


def driver_releases(where: Any) -> list[dict[str, Any]]:
    """Return the driver branches in NVIDIA's list of releases."""
    return _read(where, read_releases, "driver_releases takes a path or an address")


def _read(where: Any, read: Callable[[str], list[dict[str, Any]]], takes: str) -> list[dict[str, Any]]:
    if not isinstance(where, str):
        raise AnsibleFilterError(f"{takes}, not {type(where).__name__}.")
    try:
        return read(str(plain(where)))
    except Refused as refusal:
        raise AnsibleFilterError(refusal.message) from refusal


class FilterModule:
    """Filters of the collection that read what NVIDIA publishes about drivers."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"driver_advisories": driver_advisories, "driver_releases": driver_releases}
