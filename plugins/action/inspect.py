# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show what the GPUs of all hosts of a play are divided into, what is taken, and what the cluster will see of them."""

from __future__ import annotations

import base64
import datetime
import json
import os
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import write_whole
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet import ledger, ledger_html
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.capacity import Capacity, capacity
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.devices import holdings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.inspection import host_table, resource_table
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.pods import read as read_pod
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import modes
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError, Cluster
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import pool_of, pools
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.wishes import collect


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset({"format", "note", "kubeconfig", "context", "unit", "details", "html", "report"})

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        task_vars = task_vars or {}
        result = super().run(tmp, task_vars)
        result["changed"] = False
        arguments = plain(self._task.args)
        known = pools(plain(task_vars.get("groups", {})))
        hosts: dict[str, Any] = {}
        resources: dict[str, Any] = {}
        sharing: dict[str, Any] = {}
        replicas: dict[str, dict[str, int]] = {}
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
            replicas[host] = dict(found.replicas)
        result["hosts"] = hosts
        result["capacity"] = resources
        in_cluster = bool(arguments.get("kubeconfig"))
        try:
            nodes = self._ledger(arguments, task_vars, hosts, replicas)
        except (ApiError, Refused) as error:
            return {**result, "failed": True, "msg": str(error)}
        result["ledger"] = ledger.as_dict(nodes)
        if arguments.get("html"):
            path = os.path.abspath(str(arguments["html"]))
            when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
            result["changed"] = write_whole(path, ledger_html.page(nodes, "GPUs: what is taken, what is free", when))
        document = {"hosts": hosts, "capacity": resources, "ledger": result["ledger"]}
        if arguments.get("report"):
            text = json.dumps(document, indent=1, sort_keys=True) + "\n"
            result["changed"] |= write_whole(os.path.abspath(str(arguments["report"])), text)
        if arguments.get("format", "table") == "json":
            self._display.display(json.dumps(document, indent=2, sort_keys=True))
            return result
        self._display.display("")
        if in_cluster:
            unit = str(arguments.get("unit") or ledger.MEMORY)
            self._display.display(ledger.table(nodes, unit))
            if str(arguments.get("details", False)).lower() in ("true", "yes", "1"):
                self._display.display(ledger.details(nodes, unit))
        self._display.display(host_table(hosts, sharing))
        self._display.display(resource_table(resources))
        if arguments.get("note"):
            self._display.display(str(arguments["note"]))
        return result

    def _ledger(
        self,
        arguments: dict[str, Any],
        task_vars: dict[str, Any],
        hosts: dict[str, Any],
        replicas: dict[str, dict[str, int]],
    ) -> list[ledger.NodeLedger]:
        """Return the ledger of every host: with a cluster of its pods, without one of the processes."""
        pods: dict[str, list[Any]] = {}
        addresses: dict[str, str] = {}
        kubeconfig = str(arguments.get("kubeconfig") or "")
        if kubeconfig:
            cluster = Cluster(kubeconfig, str(arguments.get("context") or ""), 30, self._display.warning)
            for document in cluster.pods():
                pods.setdefault(str(document["spec"].get("nodeName")), []).append(read_pod(document))
            for known, node in cluster.nodes().items():
                listed = (node.get("status") or {}).get("addresses") or []
                addresses[known] = next((a["address"] for a in listed if a.get("type") == "InternalIP"), "")
        found = []
        for host, facts in hosts.items():
            variables = task_vars["hostvars"][host]
            name = str(plain(variables.get("gpu_upgrade_node")) or host)
            content = str(plain((variables.get("gpu_inspect_checkpoint") or {}).get("content")) or "")
            held = holdings(base64.b64decode(content).decode()) if content and kubeconfig else ()
            users = None if kubeconfig else ledger.process_users(facts)
            address = addresses.get(name) or str(plain(variables.get("ansible_host")) or "")
            found.append(
                ledger.node_ledger(name, address, facts, replicas.get(host, {}), held, pods.get(name, []), users)
            )
        return found


def _capacity(facts: dict[str, Any], wish: dict[str, Any]) -> Capacity:
    return capacity(facts.get("gpus") or [], wish["nvidia_mig_strategy"], wish["nvidia_mig_layout"], modes.read(wish))


def _slice(wish: dict[str, Any], found: Capacity) -> dict[str, Any]:
    """What one GPU is shared into: the first resource's slice, since a pool shares its GPUs evenly."""
    for unit in found.slices.values():
        return {"mode": wish["nvidia_sharing_mode"], "replicas": unit.replicas, "memory_mib": unit.limit_mib}
    return {}
