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
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import LONGEST_OUTPUT, printable
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_action import ClusterAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import repair


class ActionModule(ClusterAction):
    OPTIONS = {
        "node": {"type": "str", "required": True},
        "state": {"type": "str", "choices": [*STEPS, *ENDS], "required": True},
        "record": {"type": "dict", "default": {}},
        "plan": {"type": "dict", "default": {}},
        "forget": {"type": "bool", "default": False},
        "reason": {"type": "str", "default": ""},
        "bundle": {"type": "str", "default": ""},
        "members": {"type": "list", "elements": "str", "default": []},
        "max_unavailable": {"type": "str", "default": "25%"},
        "condition": {"type": "str", "default": ""},
        "lease_namespace": {"type": "str", "default": ""},
        "lease_duration": {"type": "int", "default": 1800},
    }

    def act(self, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        cluster = self.cluster(arguments) if arguments["kubernetes"] else None
        if cluster and arguments["lease_namespace"] and not self._task.check_mode:
            self.hold_lease(cluster, arguments, arguments["lease_namespace"], arguments["lease_duration"])
        before = from_values(arguments["record"])
        state, unschedulable = arguments["state"], False
        node = cluster.node(arguments["node"]) if cluster else None
        if node is not None:
            unschedulable = bool((node.get("spec") or {}).get("unschedulable"))
            before = repair.known(before, repair.marks(node))
        if state == STARTED and cluster:
            why = repair.no_room(cluster.nodes(), arguments["members"], arguments["node"], arguments["max_unavailable"])
            if why:
                remedy = "Repair those first, or raise gpu_heal_max_unavailable."
                raise Refused(f"node {arguments['node']}", f"it is not taken out of service: {why}", remedy)
        record = self._record(arguments, before, unschedulable)
        changed = record != before
        if cluster and not self._task.check_mode:
            cordon: bool | None = None
            if state == STARTED:
                cordon = True
            elif state in (DONE, REFUSED):
                cordon = record.initial_unschedulable
            marked = repair.marked(state, record.since, record.reason, record.initial_unschedulable)
            cluster.change_node(arguments["node"], marked, cordon)
            if arguments["condition"] and node is not None:
                condition = repair.condition(arguments["condition"], state, record.reason, node, record.since)
                cluster.set_condition(arguments["node"], condition)
        self._display.v(f"{arguments['node']}: {before.state or 'untouched'} -> {state} {arguments['reason']}")
        found = str(arguments["plan"].get("state_before") or "")
        return {
            "changed": changed,
            "record": record.values(),
            "if_failed": ends_if_failed(record, found),
            "text": record.as_text(),
        }

    def _record(self, arguments: dict[str, Any], before: RepairRecord, unschedulable: bool) -> RepairRecord:
        now = utc_time.now()
        here = str(cluster_lease.this_run())
        plan, state = arguments["plan"], arguments["state"]
        reason = str(printable(arguments["reason"], lines=True, longest=LONGEST_OUTPUT))
        if state == STARTED:
            if arguments["forget"]:
                before = RepairRecord(state=before.state, initial_unschedulable=before.initial_unschedulable)
            faults = tuple((str(one["subject"]), str(one["kind"])) for one in plan.get("faults") or ())
            record = begin(before, Action(plan.get("action") or "nothing"), faults, unschedulable, here, now)
        else:
            record = advance(before, state, here, now, reason, arguments["bundle"])
        if state in (DONE, HANDED_OVER):
            dealt_with = tuple(map(str, plan.get("dealt_with") or ()))
            record = replace(record, boot_id=str(plan.get("boot_id") or ""), dealt_with=dealt_with)
        return from_values(record.values())
