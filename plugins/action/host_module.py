# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a module on a host, and take nothing but its result: one of Ansible's own, or of the collection's, which meta/runtime.yml leads here."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.documents import read_json
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import NvmlAction

_MODULES = ("command", "copy", "file", "reboot", "slurp", "stat", "systemd_service", "wait_for_connection")


class ActionModule(NvmlAction):
    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        if self._task.action.rpartition(".")[2] != "host_module":
            return super().ask(task_vars)
        given = dict(self._task.args)
        if len(given) != 1:
            raise AnsibleActionFail(f"Exactly one of {', '.join(_MODULES)} is needed, and {len(given)} are given.")
        ((name, arguments),) = given.items()
        if name not in _MODULES or not isinstance(arguments, dict):
            raise AnsibleActionFail(f"{name}: only the options of {', '.join(_MODULES)} can be given.")
        loader = self._shared_loader_obj.action_loader
        if not loader.has_plugin(f"ansible.builtin.{name}"):
            result = dict(self._execute_module(f"ansible.builtin.{name}", dict(arguments), task_vars=task_vars))
            return {**result, **_document(arguments, result)}
        task = self._task.copy()
        # Its messages name it.
        task.action, task.args = f"ansible.builtin.{name}", dict(arguments)
        action = loader.get(
            f"ansible.builtin.{name}",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        return dict(action.run(task_vars=task_vars))


def _document(arguments: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file of JSON that was read holds, C(document), or why it is broken, C(unreadable), and what to do; nothing of an empty one."""
    path = str(arguments.get("src"))
    if "content" not in result or not path.endswith(".json"):
        return {}
    try:
        data = b64decode(result["content"])
        # One that lost its power while it wrote the file leaves an empty one: as if there were none.
        return {"document": read_json(data)} if data.strip() else {}
    except ValueError as error:
        why = f"invalid JSON ({error})"
        said = f"Failed to read {path} of the host: {why}. Correct or remove the file, and run again."
        return {"unreadable": why, "msg": said}
