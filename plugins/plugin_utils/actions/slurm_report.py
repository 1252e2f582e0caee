# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say whether Slurm offers of a host what its rendered files say. Nothing is decided here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...module_utils._health.report import FAILED
from ...module_utils._plan import Refused
from ..action_options import takes
from ..fleet import slurm_node
from ..host_facts import ControllerAction
from ..plain import facts_of
from ..render import writer


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", "slurmd scontrol jobs constrained stays", needs="output_directory cluster")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        host, cluster = str(task_vars["inventory_hostname"]), arguments["cluster"]
        try:
            nodes = writer.slurm_nodes(os.path.abspath(arguments["output_directory"]), cluster)
            mine = [(name, node) for name, node in nodes.items() if node.host == host]
            if not mine:
                reason = f"the rendered files of Slurm cluster {cluster or '(none: gpu_slurm_cluster is empty)'} have no node of this host"
                raise Refused(
                    host, reason, "Set gpu_slurm_cluster for its pool, and run gpufleet.nvidia.site or render."
                )
        except Refused as refusal:
            return {"failed": True, "msg": refusal.message, "refusals": [refusal.as_dict()]}
        name, expected = mine[0]
        if arguments["jobs"]:
            facts = facts_of(task_vars.get("gpu_facts_now"))[0]
            seen = {str(one["item"]): _last_line(one) for one in arguments["jobs"]}
            found = slurm_node.job_checks(expected, (facts and facts.gpus) or (), seen, bool(arguments["constrained"]))
        else:
            found = slurm_node.checks(name, expected, arguments["slurmd"] or "", arguments["scontrol"] or "")
        for one in found:
            self._display.display(f"  {host}: {one.name}: {one.status}: {one.evidence}")
        wrong = [f"{host}: {one.name}: {one.evidence}. {one.next_step}." for one in found if one.status == FAILED]
        wrong += [f"{host}: {arguments['stays']}"] if wrong and arguments["stays"] else []
        checks = [one.as_dict() for one in found]
        return {
            "checks": checks,
            "types": sorted(expected.gres),
            **({"failed": True, "msg": "\n".join(wrong)} if wrong else {}),
        }


def _last_line(job: Mapping[str, Any]) -> str:
    """Return what a job printed last, behind what the prolog says, or why it did not run."""
    text = job.get("stdout") if job.get("rc") == 0 else job.get("stderr") or job.get("msg")
    return (str(text or "").strip().splitlines() or [""])[-1]
