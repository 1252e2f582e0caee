# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show what the time of the hosts of a run was spent on, by stage."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.stage_times import REGISTERED, shown, stage_time
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import FleetAction, described, registered
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain


class ActionModule(FleetAction):
    _requires_connection = False
    _VALID_ARGS = frozenset({"hosts"})

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        task_vars = described(task_vars)
        result = super().run(tmp, task_vars)
        result["changed"] = False
        _checked, arguments = self.validate_argument_spec(
            argument_spec={"hosts": {"type": "list", "elements": "str", "required": True}}
        )
        hosts = {}
        for host in plain(arguments["hosts"]):
            variables = task_vars["hostvars"][host]
            times = {stage: stage_time(stage, registered(variables, name)) for stage, name in REGISTERED.items()}
            hosts[host] = {stage: time for stage, time in times.items() if time is not None}
        self._display.display("\n" + shown(hosts))
        result["seconds"] = {
            host: {stage: {"elapsed": time.elapsed, **time.waits, "ours": time.ours} for stage, time in times.items()}
            for host, times in hosts.items()
        }
        return result
