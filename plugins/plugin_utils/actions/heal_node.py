# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record how far the repair of a host is, together with the cordon that belongs to the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Callable

from ...module_utils._formats import utc_time
from ...module_utils._health.repair_record import (
    DONE,
    ENDS,
    HANDED_OVER,
    REFUSED,
    REPAIRING,
    STARTED,
    STEPS,
    Action,
    RepairRecord,
    advance,
    begin,
    ends_if_failed,
    from_values,
)
from ...module_utils._plan import Refused
from .. import cluster_lease
from ..action_options import choice_of, takes
from ..cluster import Cluster
from ..cluster_action import Node, NodeStep, NodeWrite, Values
from ..fleet import nvsentinel, repair
from ..fleet.objects import is_cordoned

_Calls = Sequence[Callable[[], None]]


class ActionModule(NodeStep):
    REPAIRS = True
    OPTIONS = {
        "state": choice_of(*STEPS, *ENDS),
        **takes("node", "record plan forget bundle members max_unavailable condition"),
    }

    def step(self, arguments: Values, task_vars: Values, cluster: Cluster | None, node: Node) -> NodeWrite:  # noqa: ARG002
        before, state = from_values(arguments["record"]), arguments["state"]
        if node is not None:
            before = repair.known(before, node)
        taints = arguments["plan"].get("taints") or []
        if state == STARTED and cluster and not taints:
            why = repair.no_room(cluster.nodes(), arguments["members"], arguments["node"], arguments["max_unavailable"])
            if why:
                remedy = "Repair those first, or raise gpu_heal_max_unavailable."
                raise Refused(f"node {arguments['node']}", f"it is not taken out of service: {why}", remedy)
        record = self._record(arguments, before, is_cordoned(node))
        ends = state in (DONE, REFUSED)
        # Who taints devices has not cordoned the node: a cordon is of people, whenever it came.
        cordon = None if taints else True if state == STARTED else record.initial_unschedulable if ends else None
        # A node that serves on without a GPU is watched by others again.
        ours = True if state == STARTED else False if ends or (taints and state == HANDED_OVER) else None
        result = {
            "changed": record != before,
            "record": record.as_dict(),
            "if_failed": ends_if_failed(record, str(arguments["plan"].get("state_before") or "")),
            "text": record.as_text(),
        }
        first, then = self._calls(arguments, record, cluster, node)
        return NodeWrite(before.state, repair.marked(record), cordon, result, ours, first, then)

    def _calls(
        self, arguments: Values, record: RepairRecord, cluster: Cluster | None, node: Node
    ) -> tuple[_Calls, _Calls]:
        """Return what is changed besides the node itself. The record is there as long as a taint is: whoever reads it finds what is to be removed."""
        first: list[Callable[[], None]] = []
        then: list[Callable[[], None]] = []
        plan, state = arguments["plan"], arguments["state"]
        if cluster is None or node is None:
            return (), ()
        if state in (DONE, REFUSED):
            first += [partial(cluster.delete_device_taint_rule, name) for name in plan.get("tainted") or ()]
        if state in (STARTED, REPAIRING):
            effect = repair.NO_EXECUTE if state == REPAIRING else repair.NO_SCHEDULE
            node_name, taints = arguments["node"], plan.get("taints") or ()
            rules = [repair.rule(node_name, pool, device, effect) for pool, device in taints]
            then += [partial(cluster.write_device_taint_rule, one) for one in rules]
        request = str(plan.get("remediation") or "")
        if request and state in (DONE, HANDED_OVER):
            said = record.reason or "gpufleet.nvidia.heal repaired and verified the host."
            result = partial(nvsentinel.reported, repaired=state == DONE, message=said, now=record.since)
            then.append(partial(cluster.report_remediation, request, result))
        if arguments["condition"]:
            condition = repair.condition(arguments["condition"], state, record.reason, node, record.since)
            then.append(partial(cluster.set_condition, arguments["node"], condition))
        return first, then

    def _record(self, arguments: dict[str, Any], before: RepairRecord, unschedulable: bool) -> RepairRecord:
        now = utc_time.now()
        here = str(cluster_lease.this_run())
        plan, state = arguments["plan"], arguments["state"]
        if state == STARTED:
            cordoned = before.interrupted and before.attempts and before.attempts[-1].action.whole_host
            if unschedulable and plan.get("tainted") and not plan.get("taints") and not cordoned:
                # The repair before this one tainted a device, and people have cordoned the node since.
                before = replace(before, initial_unschedulable=True)
            if arguments["forget"]:
                before = RepairRecord(state=before.state, initial_unschedulable=before.initial_unschedulable)
            faults = tuple((str(one["subject"]), str(one["kind"])) for one in plan.get("faults") or ())
            record = begin(before, Action(plan.get("action") or "nothing"), faults, unschedulable, here, now)
        else:
            record = advance(before, state, here, now, arguments["reason"], arguments["bundle"])
        if state in (DONE, HANDED_OVER):
            dealt_with = tuple(map(str, plan.get("dealt_with") or ()))
            record = replace(record, boot_id=str(plan.get("boot_id") or ""), dealt_with=dealt_with)
        return from_values(record.as_dict())
