# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a module that speaks NVML; where the host has no pynvml, send the controller's for this one call."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.stage_times import of_both
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import HostAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pynvml_archive import (
    PynvmlNotOnController,
    pynvml_archive,
)

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
                archive = self._send(pynvml_archive())
            except PynvmlNotOnController as error:
                return {"failed": True, "msg": str(error)}
            first = answer.get("seconds")
            # _execute_module adds what it needs to the arguments that it gets: the second run starts from a fresh copy.
            answer = self._execute_module(
                module_args={**self.arguments(), ARCHIVE_OPTION: archive}, task_vars=task_vars
            )
            if "seconds" in answer:
                answer["seconds"] = of_both(first, answer["seconds"])
        answer.pop("pynvml_missing", None)
        return answer

    def arguments(self) -> dict[str, Any]:
        """Return what the module is called with."""
        return {name: value for name, value in self._task.args.items() if name != ARCHIVE_OPTION}

    def _send(self, archive: bytes) -> str:
        """Put C(archive) into the task's temporary folder on the host, which Ansible removes, and return its path."""
        shell = self._connection._shell
        if shell.tmpdir is None:
            self._make_tmp_path()
        path = shell.join_path(shell.tmpdir, "pynvml.zip")
        self._transfer_data(path, archive)
        self._fixup_perms2([shell.tmpdir, path])
        return path
