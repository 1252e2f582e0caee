# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide, from facts and variables alone, what each stage of C(site) would do on a host."""

from __future__ import annotations

from typing import Any

from ...module_utils._formats.imex import NODES
from ...module_utils._host.stage import metrics_directory
from ...module_utils._plan import Refused
from ...module_utils._toolkit.desired import HOOKS
from ..descriptions import describe
from ..host_facts import FleetAction, described
from ..plain import is_true, plain, read_facts
from ..plan_file import APPLY, GATE
from ..planning import Planning, held_on
from ..pools import Racks, pools
from ..recommend.seen import SEEN, seen_of
from ..role_variables import deprecations


class ActionModule(FleetAction):
    _requires_connection = False
    _VALID_ARGS = frozenset({"facts", "show"})

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result = super().run(tmp, task_vars)
        result["changed"] = False
        host = str(task_vars.get("inventory_hostname", "localhost"))
        arguments = dict(self._task.args)
        document, facts, unread = read_facts({"gpu": arguments.get("facts")})
        if facts is None or not facts.says("schema"):
            message = f"{host}: facts must be what gpufleet.nvidia.gpu_info returned under gpu"
            said = f"{message}: {unread}" if arguments.get("facts") else f"{message}."
            return {**result, "failed": True, "msg": said}

        for sentence in deprecations(task_vars):
            self._display.warning(sentence)
        description = describe(
            host,
            task_vars,
            pools(plain(task_vars.get("groups", {}))),
            self._templar.template,
            Racks(described(task_vars)),
        )
        result["pool"] = description.pool
        seen: dict[str, Any] = {}
        refusals = []
        try:
            seen = seen_of(task_vars.get(SEEN), host)
        except Refused as refused:
            refusals.append(refused)
        emptied = is_true(self._templar.template(task_vars.get("__gpu_facts_emptied")))
        description = description.emptied() if emptied else description
        # Before the first change all hosts are compared by plan_gate.
        held = task_vars.get(APPLY) and task_vars.get(GATE)
        planning = Planning(description, facts, document, seen, host) if held else None
        stages = dict(planning.stages) if planning else description.stages_recommended(seen, host, facts)
        refusals += [refusal for stage in stages.values() for refusal in stage.refusals]
        if planning:
            try:
                if emptied:
                    # What goes depends on who uses it: the steps of the modules are compared, and the pods that are evicted.
                    planning.stages = {}
                saved = held_on(task_vars, str(self._templar.template(task_vars[APPLY])), host)
                if not saved.is_begun(facts):
                    refusals += saved.objections(host, planning, facts)
                    begins = saved.plan.host(host).work and not saved.is_applied(facts)
                    result["plan_begins"] = saved.digest if begins else ""
            except Refused as refusal:
                refusals.append(refusal)
        if refusals:
            result["failed"] = True
            result["refusals"] = [refusal.as_dict() for refusal in refusals]
            result["msg"] = "\n".join([*(f"{host}: {refusal.message}" for refusal in refusals), "Nothing was changed."])
            return result
        result["metrics_directory"] = metrics_directory(description.variables)
        result["imex_nodes"] = description.variables[NODES]
        result["hooks"] = description.variables[HOOKS]
        result["recommended"] = seen
        result["stages"] = {name: stage.as_dict() for name, stage in stages.items()}
        result["needed"] = [name for name, stage in stages.items() if stage.needed]
        for stage in stages.values():
            for warning in stage.warnings:
                self._display.warning(f"{host}: {stage.stage}: {warning}")
        if arguments.get("show", self._task.check_mode):
            self._show(host, stages)
        return result

    def _show(self, host: str, stages: dict[str, Any]) -> None:
        for stage in stages.values():
            if not stage.needed:
                self._display.display(f"  {host}: {stage.stage}: nothing to do")
                continue
            for step in stage.steps:
                self._display.display(f"  {host}: {stage.stage}: {step}", color="yellow")
            if stage.unknown:
                self._display.display(f"  {host}: {stage.stage}: {stage.unknown}", color="cyan")
