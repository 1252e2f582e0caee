# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter C(gpufleet.nvidia.driver_advisories)."""

from __future__ import annotations

from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.driver_advisories import read_folder
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain


def driver_advisories(path: Any) -> list[dict[str, Any]]:
    """Return the security floors in a folder of NVIDIA's advisories."""
    if not isinstance(path, str):
        raise AnsibleFilterError(f"driver_advisories takes the path of a folder, not {type(path).__name__}.")
    try:
        return read_folder(str(plain(path)))
    except Refused as refusal:
        raise AnsibleFilterError(refusal.message) from refusal


class FilterModule:
    """Filters of the collection that read security advisories."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"driver_advisories": driver_advisories}
