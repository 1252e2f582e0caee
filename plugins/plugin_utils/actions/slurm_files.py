# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Return what the rendered tree has for the task's host, for the module C(slurm)."""

from __future__ import annotations

from typing import Any

from ...module_utils._plan import Refused
from ..host_facts import ControllerAction
from ..slurm_desired import slurm_desired


class ActionModule(ControllerAction):
    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        host = str(task_vars["inventory_hostname"])
        try:
            found = slurm_desired(host, task_vars, self._templar.template)
            if found is None or isinstance(found, str):
                remedy = "Set gpu_slurm_cluster and gpu_slurm_controllers for its pool, and run gpufleet.nvidia.site or render."
                raise Refused(host, found or "gpu_slurm_controllers names no host that runs slurmctld", remedy)
        except Refused as refusal:
            return {"failed": True, "msg": refusal.message, "refusals": [refusal.as_dict()]}
        return found
