# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say which NVL72 racks have two driver versions after a rollback. Nothing is decided here."""

from __future__ import annotations

import base64
from typing import Any

from ...module_utils._formats.driver_versions import is_driver_version
from ..action_options import takes
from ..fleet.waves import split_racks
from ..host_facts import ControllerAction
from ..plain import plain


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", needs="racks read rolled_back")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        groups = plain(task_vars.get("groups") or {})
        drivers = {str(read["item"]): _version(read.get("content")) for read in arguments["read"]}
        racks = {rack: groups.get(rack) or [] for rack in arguments["racks"]}
        split = split_racks(racks, drivers, arguments["rolled_back"])
        for text in split.values():
            self._display.warning(text)
        return {"changed": False, "mixed_racks": split}


def _version(content: Any) -> str:
    """Return the version in what was read; empty where it is none."""
    try:
        text = base64.b64decode(str(content or "")).decode("ascii").strip()
    except ValueError:
        return ""
    return text if is_driver_version(text) else ""
