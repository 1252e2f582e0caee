# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check on the controller the variables of a playbook, for all of its hosts, before anything is touched."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import playbook_variables, refusals
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.text import shortened
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ControllerAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain


class ActionModule(ControllerAction):
    OPTIONS = {
        "playbook": {"type": "str", "choices": sorted(playbook_variables.OWN), "required": True},
        "hosts": {"type": "list", "elements": "str"},
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        playbook = arguments["playbook"]
        if playbook not in playbook_variables.ANY_HOST and not task_vars.get("groups", {}).get("gpu_hosts"):
            raise AnsibleActionFail(
                "The inventory has no hosts in the group gpu_hosts. Pass an inventory with -i, and run ansible-inventory --graph to see how "
                "Ansible reads it. Nothing was changed."
            )
        hosts = arguments["hosts"]
        if hosts is None:
            hosts = plain(task_vars.get("ansible_play_hosts_all") or [])
        wrong: list[tuple[str, Refused]] = []
        unknown: dict[str, list[str]] = {}
        for host in hosts:
            found = playbook_variables.check(playbook, task_vars["hostvars"][host])
            wrong += [(host, refusal) for refusal in found.refusals]
            for name in found.unknown:
                unknown.setdefault(name, []).append(str(host))
        for name, where in unknown.items():
            self._display.warning(f"{shortened(where)}: gpufleet.nvidia has no variable {name}.")
        result: dict[str, Any] = {"refusals": refusals.of_hosts(wrong)}
        if wrong:
            result["failed"] = True
            result["msg"] = "\n".join([*refusals.sentences(result["refusals"]), "Nothing was changed."])
        return result
