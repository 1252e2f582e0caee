# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Return what the rendered tree has for the task's host, or say whether Slurm offers it. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...module_utils._health.report import FAILED, Check
from ..action_options import takes
from ..fleet.slurm_node import checks, job_checks
from ..host_facts import ControllerAction
from ..plain import facts_of
from ..slurm_desired import rendered_for


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", "slurmd scontrol jobs constrained stays")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        host = str(task_vars["inventory_hostname"])
        node, expected, files = rendered_for(host, task_vars, self._templar.template)
        found: tuple[Check, ...] = ()
        if arguments["jobs"]:
            facts = facts_of(task_vars.get("gpu_facts_now"))[0]
            seen = {str(one["item"]): _last_line(one) for one in arguments["jobs"]}
            found = job_checks(expected, (facts and facts.gpus) or (), seen, bool(arguments["constrained"]))
        elif arguments["slurmd"] is None:
            return {"node": node, "files": files}
        else:
            found = checks(node, expected, arguments["slurmd"], arguments["scontrol"] or "")
        for one in found:
            self._display.display(f"  {host}: {one.name}: {one.status}: {one.evidence}")
        wrong = [f"{host}: {one.name}: {one.evidence}. {one.next_step}." for one in found if one.status == FAILED]
        wrong += [f"{host}: {arguments['stays']}"] if wrong and arguments["stays"] else []
        result = {"checks": [one.as_dict() for one in found], "types": sorted(expected.gres)}
        return {**result, "failed": True, "msg": "\n".join(wrong)} if wrong else result


def _last_line(job: Mapping[str, Any]) -> str:
    """Return what a job printed last, behind what the prolog says, or why it did not run."""
    text = job.get("stdout") if job.get("rc") == 0 else job.get("stderr") or job.get("msg")
    return (str(text or "").strip().splitlines() or [""])[-1]
