# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Record on the node how far a rollout is with it, together with the cordon that belongs to the step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible import constants

from ...module_utils._formats import utc_time
from ...module_utils._formats.host_names import UPGRADE_STEPS
from .. import cluster_lease
from ..action_options import choice_of, takes
from ..cluster import Cluster
from ..cluster_action import Node, NodeStep, NodeWrite, Values
from ..fleet.objects import annotations_of, is_cordoned
from ..fleet.upgrade import (
    LEAVES_DRIVER,
    REFUSED,
    ROLLING_BACK,
    UPGRADE,
    NodeRecord,
    advance,
    begin,
    from_annotations,
    from_values,
    if_failed,
    with_driver,
)
from ..fleet.waves import DONE, FAILED
from ..host_facts import registered
from ..plain import facts_of
from ..upgrade_run import UpgradeRun
from ..users_of_host import refuse_users

_STARTED = UPGRADE_STEPS[0]


class ActionModule(NodeStep):
    OPTIONS = {
        "state": choice_of(*UPGRADE_STEPS, DONE, FAILED, REFUSED),
        **takes("node", "record origin driver toolkit kernel target wave"),
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        result = super().act(arguments, task_vars)
        run = UpgradeRun(constants.DEFAULT_LOCAL_TMP)
        if run.exists:
            run.record(str(task_vars["inventory_hostname"]), result["record"])
        driver, former = result["record"]["driver"], result["record"]["former"]
        if result.pop("driver_changed") and not self._task.check_mode:
            line = f'nvidia_driver_version: "{driver}"'
            self._display.display(
                f"  {arguments['node']}: gpufleet.nvidia.site refuses to install driver {former} again until the inventory says {line}"
            )
        return result

    def step(self, arguments: Values, task_vars: Values, cluster: Cluster | None, node: Node) -> NodeWrite:
        state, run = arguments["state"], UpgradeRun(constants.DEFAULT_LOCAL_TMP)
        work = run.settings.get("work", UPGRADE) if run.exists else UPGRADE
        # What goes back because it failed is not asked, and what changes no driver ends nobody's work.
        if state in (_STARTED, ROLLING_BACK) and not arguments["reason"] and work not in LEAVES_DRIVER:
            # Since the run was planned, hours may have passed.
            facts, _unread = facts_of(registered(task_vars, "gpu_facts_host"))
            refuse_users({arguments["node"]: (facts, task_vars)}, nodes=cluster is not None)
        before = from_annotations(annotations_of(node)) if node else from_values(arguments["record"])
        record = with_driver(self._record(arguments, before, node, utc_time.now()), before, arguments["driver"])
        record = from_values(record.values())
        # With the first record the node is cordoned, and uncordoned with the last: never one that people had cordoned.
        cordon = True if state in (_STARTED, ROLLING_BACK) else None
        ours = cordon
        if state == DONE or (state == REFUSED and before.interrupted):
            ours, cordon = False, record.initial_unschedulable
        result = {
            "changed": replace(record, since="") != replace(before, since=""),
            "record": record.values(),
            "if_failed": if_failed(record, work),
            "text": record.as_text(),
            "driver_changed": state == REFUSED and record.driver != before.driver,
        }
        return NodeWrite(before.state, record.annotations(), cordon, result, ours)

    def _record(self, arguments: dict[str, Any], before: NodeRecord, node: Any, now: str) -> NodeRecord:
        state, reason = arguments["state"], arguments["reason"]
        origin, toolkit, target, kernel = (arguments[name] for name in ("origin", "toolkit", "target", "kernel"))
        found, who, wave = is_cordoned(node), str(cluster_lease.this_run()), arguments["wave"]
        if state == ROLLING_BACK and not before.interrupted:
            if not reason and origin not in ("", before.origin):
                # By hand, and the driver was changed since the rollout that the record is of: it goes back to another one.
                before = replace(before, origin=origin, toolkit=toolkit, target=target)
            origin, target = before.origin or origin, before.target or target
            # By hand the driver goes back, and the kernel stays.
            kernel = before.kernel if reason else ""
            begun = begin(before, origin, target, before.wave, found, who, now, before.toolkit, kernel)
            return replace(begun, state=state, failed_reason=reason)
        if state == _STARTED or not before.interrupted:
            started = begin(before, origin, target, wave, found, who, now, toolkit, kernel)
            return started if state == _STARTED else replace(started, state=state, failed_reason=reason)
        return replace(advance(before, state), failed_reason=reason, since=now, operator=who)
