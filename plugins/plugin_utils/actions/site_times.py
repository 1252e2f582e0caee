# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show what the time of the hosts of a run was spent on, by stage."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.stage_times import REGISTERED, shown, stage_time
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ControllerAction, registered


class ActionModule(ControllerAction):
    OPTIONS = {"hosts": {"type": "list", "elements": "str", "required": True}}

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        hosts = {}
        for host in arguments["hosts"]:
            variables = task_vars["hostvars"][host]
            times = {stage: stage_time(stage, registered(variables, name)) for stage, name in REGISTERED.items()}
            hosts[host] = {stage: time for stage, time in times.items() if time is not None}
        self._display.display("\n" + shown(hosts))
        return {
            "seconds": {
                host: {stage: {"elapsed": one.elapsed, **one.waits, "ours": one.ours} for stage, one in times.items()}
                for host, times in hosts.items()
            }
        }
