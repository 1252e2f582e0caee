# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of M(gpufleet.nvidia.health): judges facts that were read, or sends pynvml where the host has none."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import ARGUMENTS, answer
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import SUBSETS, evidence_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.software import AUTO, is_auto, reason_unproven
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import NvmlAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import facts_of, plain


class ActionModule(NvmlAction):
    """With O(facts) the host is not asked; everything else is in L(NvmlAction)."""

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        facts, unread = facts_of({"gpu": self._task.args.get("facts")})
        if (
            not self._task.args.get("facts")
            or not is_auto(self._task.args.get("cuda_check") or [AUTO])
            or str(self._task.args.get("dcgm_level") or 0) != "0"
        ):
            # What is not used is not sent.
            self._task.args.pop("facts", None)
            return super().ask(task_vars)
        # Validation fills the defaults in, also within those of the specification itself.
        _checked, parameters = self.validate_argument_spec(argument_spec=copy.deepcopy(ARGUMENTS))
        if facts is None or not facts.says("schema") or facts.health is None:
            message = f"{task_vars.get('inventory_hostname', 'localhost')}: facts must be what gpufleet.nvidia.gpu_info returned"
            return {
                "failed": True,
                "msg": f"{message} under gpu with gather: [{', '.join(SUBSETS)}]. {unread}".rstrip(),
            }
        unproven = reason_unproven(facts) if is_auto(parameters["cuda_check"]) else ""
        evidence = replace(evidence_of(facts), cuda_unproven=unproven)
        return answer(evidence, plain(parameters), self._task.check_mode)
