# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of M(gpufleet.nvidia.gpu_info): sends pynvml where the host has none."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import own
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.nvml_action import NvmlAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import facts_of, truth


class ActionModule(NvmlAction):
    """Facts that do not fit their schema are not taken in; everything else is in L(NvmlAction)."""

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        answer = own(super().ask(task_vars))
        answer.pop("gpu_text", None)
        if "gpu" not in answer:
            return answer
        facts, unread = facts_of({"gpu": answer["gpu"]})
        if facts is not None and not truth(self._task.args.get("as_text")):
            return answer
        kept = {name: value for name, value in answer.items() if name != "gpu"}
        if facts is not None:
            return {**kept, "gpu_text": json.dumps(facts, separators=(",", ":"))}
        return {**kept, "failed": True, "msg": f"{task_vars.get('inventory_hostname', 'the host')}: {unread}"}
