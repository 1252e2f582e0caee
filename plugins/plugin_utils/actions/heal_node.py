# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record how far the repair of a host is, together with the cordon that belongs to the step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats import utc_time
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_actions import Action
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import (
    DONE,
    ENDS,
    HANDED_OVER,
    REFUSED,
    STARTED,
    STEPS,
    RepairRecord,
    advance,
    begin,
    ends_if_failed,
    from_values,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import Cluster
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_action import Node, NodeStep, Step, Values
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import repair
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.objects import is_cordoned


class ActionModule(NodeStep):
    OPTIONS = {
        "state": {"type": "str", "choices": [*STEPS, *ENDS], "required": True},
        "record": {"type": "dict", "default": {}},
        "plan": {"type": "dict", "default": {}},
        "forget": {"type": "bool", "default": False},
        "bundle": {"type": "str", "default": ""},
        "members": {"type": "list", "elements": "str", "default": []},
        "max_unavailable": {"type": "str", "default": "25%"},
        "condition": {"type": "str", "default": ""},
    }

    def step(self, arguments: Values, task_vars: Values, cluster: Cluster | None, node: Node) -> Step:  # noqa: ARG002
        before, state = from_values(arguments["record"]), arguments["state"]
        if node is not None:
            before = repair.known(before, node)
        if state == STARTED and cluster:
            why = repair.no_room(cluster.nodes(), arguments["members"], arguments["node"], arguments["max_unavailable"])
            if why:
                remedy = "Repair those first, or raise gpu_heal_max_unavailable."
                raise Refused(f"node {arguments['node']}", f"it is not taken out of service: {why}", remedy)
        record = self._record(arguments, before, is_cordoned(node))
        returns = state in (DONE, REFUSED)
        cordon = True if state == STARTED else record.initial_unschedulable if returns else None
        kind, condition = arguments["condition"], None
        if kind and node is not None:
            condition = repair.condition(kind, state, record.reason, node, record.since)
        result = {
            "changed": record != before,
            "record": record.values(),
            "if_failed": ends_if_failed(record, str(arguments["plan"].get("state_before") or "")),
            "text": record.as_text(),
        }
        return Step(before.state, repair.marked(record), cordon, result, condition, returns)

    def _record(self, arguments: dict[str, Any], before: RepairRecord, unschedulable: bool) -> RepairRecord:
        now = utc_time.now()
        here = str(cluster_lease.this_run())
        plan, state = arguments["plan"], arguments["state"]
        if state == STARTED:
            if arguments["forget"]:
                before = RepairRecord(state=before.state, initial_unschedulable=before.initial_unschedulable)
            faults = tuple((str(one["subject"]), str(one["kind"])) for one in plan.get("faults") or ())
            record = begin(before, Action(plan.get("action") or "nothing"), faults, unschedulable, here, now)
        else:
            record = advance(before, state, here, now, arguments["reason"], arguments["bundle"])
        if state in (DONE, HANDED_OVER):
            dealt_with = tuple(map(str, plan.get("dealt_with") or ()))
            record = replace(record, boot_id=str(plan.get("boot_id") or ""), dealt_with=dealt_with)
        return from_values(record.values())
