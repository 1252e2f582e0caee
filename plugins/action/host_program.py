# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of M(gpufleet.nvidia.host_program): builds the program and sends it where it differs."""

from __future__ import annotations

from typing import Any

from ansible import constants as C
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import HostAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import PynvmlNotOnController, host_program
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain


class ActionModule(HostAction):
    """One call of the module where all is in place, two and a transfer where not."""

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        arguments = plain(self._task.args)
        if arguments.get("state") == "absent":
            return self._execute_module(module_args=arguments, task_vars=task_vars)
        try:
            program = host_program(cache=C.DEFAULT_LOCAL_TMP)
        except PynvmlNotOnController as error:
            return {"failed": True, "msg": str(error)}
        arguments = {**arguments, "sha256": program.sha256, "version": program.version}
        answer: dict[str, Any] = self._execute_module(module_args=dict(arguments), task_vars=task_vars)
        if answer.pop("program_missing", False):
            path = self.send("gpufleet-host.pyz", program.content)
            answer = self.ask_again(answer, {**arguments, "src": path}, task_vars)
            answer.pop("program_missing", None)
        return answer
