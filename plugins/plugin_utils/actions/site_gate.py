# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide on the controller, for all hosts of a run at once, which of them have something to do, and whether any may begin."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.stage import STAGE as BOOT
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import refusals, site_gate
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe, warnings_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.plan import HostPlan, equal_plans
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ControllerAction, registered
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.imex_rack import Racks
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import facts_of, is_true, plain
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import pools


class ActionModule(ControllerAction):
    OPTIONS = {"hosts": {"type": "list", "elements": "str", "required": True}}

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        known = pools(plain(task_vars.get("groups", {})))
        racks = Racks(task_vars)
        found, stopping = [], []
        for host in arguments["hosts"]:
            variables = task_vars["hostvars"][host]
            facts, unread = facts_of(registered(variables, "gpu_facts_host"))
            work = site_gate.work_of(host, describe(host, variables, known, racks=racks), facts, unread)
            found.append(work)
            if work.refusals and not is_true(variables.get("gpu_facts_skip_refused_hosts")):
                stopping.append(work)
        # In check mode each stage shows its own steps, and the warnings of a plan stand with its steps.
        shown = () if self._task.check_mode else (site_gate.TO_CHANGE,)
        for warning in warnings_of((work.host, work.stages) for work in found if work.state not in shown):
            self._display.warning(warning)
        plans = equal_plans(HostPlan(work.host, work.pool, work.stages) for work in found if work.state in shown)
        for line in [*plans, *site_gate.by_pool(found)]:
            self._display.display(line)
        todo = [work.host for work in found if work.state != site_gate.AS_DESCRIBED]
        as_described = len(found) - len(todo)
        result: dict[str, Any] = {
            "todo": todo,
            "to_change": [work.host for work in found if work.state == site_gate.TO_CHANGE],
            "to_accept": [work.host for work in found if _is_accepted_again(work)],
            "refusals": refusals.of_hosts((work.host, refusal) for work in found for refusal in work.refusals),
            "as_described": as_described,
            "msg": f"{as_described} of {len(found)} hosts are as described.",
        }
        if stopping:
            result["failed"] = True
            result["msg"] = "\n".join(
                [
                    *(f"{work.host}: {refusal.message}" for work in stopping for refusal in work.refusals),
                    f"No host is changed, because the description of {', '.join(work.host for work in stopping)} is refused, for the "
                    "reasons above. Correct it, leave these hosts out with --limit, or set gpu_facts_skip_refused_hosts: true to go on with "
                    "the other hosts.",
                ]
            )
        return result


def _is_accepted_again(work: site_gate.HostWork) -> bool:
    """Whether the GPUs, or what serves them, change: a host that only gets a new host program stays in service."""
    needed = {name for name, stage in work.stages.items() if stage.needed}
    return work.state == site_gate.TO_CHANGE and needed != {BOOT}
