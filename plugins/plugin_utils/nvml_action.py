# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a module that speaks NVML; where the host has no pynvml, send the controller's for this one call."""

from __future__ import annotations

from typing import Any

from .host_facts import HostAction
from .host_program import PynvmlNotOnController, pynvml_archive

#: The private option that names the archive. A user cannot set it.
ARCHIVE_OPTION = "_pynvml_archive"


class NvmlAction(HostAction):
    """Base of the action plugins of all modules that speak NVML.

    The module answers C(pynvml_missing: true) before it touched anything; then it is run again with pynvml.
    """

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(module_args=self.arguments(), task_vars=task_vars)
        if answer.get("pynvml_missing"):
            try:
                archive = self.send("pynvml.zip", pynvml_archive())
            except PynvmlNotOnController as error:
                return {"failed": True, "msg": str(error)}
            # _execute_module adds what it needs to the arguments that it gets: the second run starts from a fresh copy.
            answer = self.ask_again(answer, {**self.arguments(), ARCHIVE_OPTION: archive}, task_vars)
        answer.pop("pynvml_missing", None)
        return answer

    def arguments(self) -> dict[str, Any]:
        """Return what the module is called with."""
        return {name: value for name, value in self._task.args.items() if name != ARCHIVE_OPTION}
