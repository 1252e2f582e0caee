# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show what the GPUs of all hosts of a play are divided into, what is taken, and what the cluster will see of them."""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.capacity import Capacity, capacity
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.inspection import host_table, resource_table
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import modes
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import pool_of, pools
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.wishes import collect


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset({"format", "note"})

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result = super().run(tmp, task_vars)
        result["changed"] = False
        arguments = plain(self._task.args)
        known = pools(plain(task_vars.get("groups", {})))
        hosts: dict[str, Any] = {}
        resources: dict[str, Any] = {}
        sharing: dict[str, Any] = {}
        for host in plain(task_vars.get("ansible_play_hosts", [])):
            variables = task_vars["hostvars"][host]
            facts = plain((variables.get("gpu_facts_host") or {}).get("gpu") or {})
            if not facts:
                continue
            hosts[host] = facts
            try:
                pool = pool_of(host, known, variables.get("gpu_facts_pool"))
                wish = collect(variables, lambda value: value)
                found = _capacity(facts, wish)
            except Refused as refusal:
                self._display.warning(f"{host}: {refusal.message}")
                continue
            resources[host] = {"pool": pool, **found.as_dict()}
            sharing[host] = _slice(wish, found)
        result["hosts"] = hosts
        result["capacity"] = resources
        if arguments.get("format", "table") == "json":
            self._display.display(json.dumps({"hosts": hosts, "capacity": resources}, indent=2, sort_keys=True))
            return result
        self._display.display("")
        self._display.display(host_table(hosts, sharing))
        self._display.display(resource_table(resources))
        if arguments.get("note"):
            self._display.display(str(arguments["note"]))
        return result


def _capacity(facts: dict[str, Any], wish: dict[str, Any]) -> Capacity:
    return capacity(facts.get("gpus") or [], wish["nvidia_mig_strategy"], wish["nvidia_mig_layout"], modes.read(wish))


def _slice(wish: dict[str, Any], found: Capacity) -> dict[str, Any]:
    """What one GPU is shared into: the first resource's slice, since a pool shares its GPUs evenly."""
    for unit in found.slices.values():
        return {"mode": wish["nvidia_sharing_mode"], "replicas": unit.replicas, "memory_mib": unit.limit_mib}
    return {}
