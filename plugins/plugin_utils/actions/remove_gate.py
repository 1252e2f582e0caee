# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide on the controller, for all hosts of a run at once, whether the collection can be removed from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import refusals, remove_gate
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ControllerAction, registered
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.imex_rack import Racks
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import facts_of, is_true, plain
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import pools

#: What the tasks of the removal need of the variables of the host roles, whose defaults are filled in here.
_PASSED = (
    "nvidia_driver_imex",
    "nvidia_driver_manage_repository",
    "nvidia_driver_reload",
    "nvidia_driver_reboot",
    "nvidia_driver_lock_timeout",
    "nvidia_toolkit_runtime",
    "nvidia_toolkit_manage_repository",
    "nvidia_toolkit_restart",
    "nvidia_toolkit_disruption",
    "nvidia_mig_disruption",
    "nvidia_mig_reset",
    "nvidia_mig_reboot",
    "nvidia_mig_reboot_timeout",
    "nvidia_mig_busy_instances",
    "nvidia_mig_restart_services",
    "nvidia_mig_lock_timeout",
    "nvidia_sharing_mps_disruption",
    "nvidia_dcgm_state",
    "nvidia_dcgm_lock_timeout",
)


class ActionModule(ControllerAction):
    OPTIONS = {"hosts": {"type": "list", "elements": "str", "required": True}}

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        known = pools(plain(task_vars.get("groups", {})))
        racks = Racks(task_vars)
        passed: dict[str, Any] = {}
        refused: list[tuple[str, Refused]] = []
        hosts = arguments["hosts"]
        kept: dict[str, list[str]] = {name: [] for name in remove_gate.STAYS}
        for host in hosts:
            variables = task_vars["hostvars"][host]
            description = describe(host, variables, known, racks=racks)
            asked = {name: is_true(variables.get(f"gpu_remove_{name}")) for name in kept}
            facts, unread = facts_of(registered(variables, "gpu_facts_host"))
            found = list(description.refusals)
            if not found and facts is None:
                found = [Refused("the host", f"it could not be read: {unread}", "")]
            elif not found and facts is not None:
                found = _refusals(description.variables, facts, asked["driver"])
            if found:
                refused += [(host, refusal) for refusal in found]
                continue
            for name, where in kept.items():
                if not asked[name] and ((facts or {}).get(name) or {}).get("packages"):
                    where.append(host)
            runtimes = (facts or {}).get("runtimes") or {}
            runtime = description.variables["nvidia_toolkit_runtime"]
            passed[host] = {
                **{name: description.variables[name] for name in _PASSED},
                # A runtime that is not installed has nothing to be taken out of.
                "nvidia_toolkit_runtime": runtime if runtime in runtimes else "none",
            }
        result: dict[str, Any] = {
            "hosts": passed,
            "refusals": refusals.of_hosts(refused),
            "left": remove_gate.left_in_clusters(hosts, kept),
            "msg": f"gpufleet.nvidia can be removed from {len(hosts)} {'host' if len(hosts) == 1 else 'hosts'}.",
        }
        if refused:
            result["failed"] = True
            end = "Nothing is removed from any host. Correct it, or leave these hosts out with --limit."
            result["msg"] = "\n".join([*refusals.sentences(result["refusals"]), end])
        return result


def _refusals(desired: Mapping[str, Any], facts: Mapping[str, Any], driver: bool) -> list[Refused]:
    removal = remove_gate.Removal(driver, desired["nvidia_mig_disruption"], desired["nvidia_sharing_mps_disruption"])
    return list(remove_gate.refusals(facts, removal))
