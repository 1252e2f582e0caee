# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""See and say on a node whether its host brings driver and container toolkit or the GPU Operator, and wait for the operator's pods."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...module_utils._facts_view import Facts
from ...module_utils._migration import HOST, OPERATOR, TOOLKIT, VARIABLES, is_of, refuse_stack
from ...module_utils._plan import Failure, Refused
from ..action_options import choice_of, takes
from ..cluster import Cluster, if_there, titles
from ..fleet import clients
from ..fleet.objects import identities, labels_of, own
from ..fleet.pods import read
from ..host_facts import registered
from ..plain import facts_of
from .gpu_clients import ClientsAction


class ActionModule(ClientsAction):
    OPTIONS = {
        "state": choice_of("surveyed", "chosen"),
        **takes("node", "stack pauses disruption", needs="operands brought_by"),
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        return self._choose(arguments) if arguments["state"] == "chosen" else self._survey(arguments, task_vars)

    def _survey(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return whether the node was moved already, unless something of the run or the cluster is in its way."""
        operands, to = arguments["operands"], arguments["brought_by"]
        thing = VARIABLES[operands[0]]
        refuse_stack(thing, arguments["stack"])
        if not arguments["kubernetes"]:
            raise Refused(
                thing, "gpu_node_kubernetes is false, and no plain host has a GPU Operator", "Remove one of them."
            )
        if not arguments["pauses"]:
            reason = "gpu_node_pause_clients is false, and a driver that the device plugin has open is not unloaded"
            raise Refused(thing, reason, "Set gpu_node_pause_clients: true.")
        cluster = self.cluster(arguments)
        # The plan names all hosts that are no nodes.
        node = if_there(cluster.node, arguments["node"])
        facts, unread = facts_of(registered(task_vars, "gpu_facts_host"))
        if facts is None:
            raise Failure(f"Failed to read the host: {unread}")
        labels = labels_of(node)
        moved = clients.is_moved(facts, operands, lambda one: clients.of_host(labels, one), to)
        if TOOLKIT in operands and not moved and arguments["disruption"] != "force":
            self._refuse_kept(cluster, facts, labels, arguments)
        if to == OPERATOR and not moved:
            if labels.get(clients.NOTHING) == "false":
                reason = f"node {arguments['node']} has the label {clients.NOTHING}=false, so the GPU Operator would bring nothing"
                raise Refused(thing, reason, "Remove the label, and run again.")
            sets = own(cluster.daemon_sets(), arguments["namespaces"])
            lacking = [one for one in operands if not clients.moved(sets, labels, [one])]
            if lacking:
                reason = (
                    f"no DaemonSet of the GPU Operator would bring {' and '.join(lacking)} to node {arguments['node']}"
                )
                remedy = (
                    "Render the clusters, apply the tree, wait until the operator has taken it over, and run again."
                )
                raise Refused(thing, reason, remedy)
        return {"moved": moved}

    def _refuse_kept(
        self, cluster: Cluster, facts: Facts, labels: Mapping[str, str], arguments: Mapping[str, Any]
    ) -> None:
        """Refuse to take the toolkit from pods that stay on the node, as a drain leaves them: those of DaemonSets, and static ones. The others are evicted."""
        side = HOST if arguments["brought_by"] == OPERATOR else OPERATOR
        used = [
            one for found in (facts.runtimes or {}).values() for one in found.containers if is_of(one.program, side)
        ]
        if not used:
            return
        sets, namespaces = cluster.daemon_sets(), arguments["namespaces"]
        known = identities(sets)
        leaving = {
            uid
            for operands in ((), arguments["operands"])
            for uid in clients.moved(own(sets, namespaces), labels, operands)
        }
        there = {pod.uid: pod for pod in map(read, cluster.pods_on(arguments["node"]))}
        evicted = {pod.uid for pod in there.values() if not (pod.mirror or pod.of_daemon_set(known))}
        evicted |= {pod.uid for pod in there.values() if pod.controller_uid in leaving}
        kept = [one.name for one in used if one.pod_uid not in evicted]
        if kept:
            program = "nvidia-container-runtime of the " + ("GPU Operator" if side == OPERATOR else "host")
            raise Refused(
                VARIABLES[TOOLKIT],
                f"{titles(kept)} were started by {program} and stay on node {arguments['node']}, where nothing could enter or end them without it",
                "Have them use another runtime (runtimeClassName, the default runtime) and start them again, or set nvidia_toolkit_disruption: force and "
                "reboot the node afterwards.",
            )

    def _choose(self, arguments: dict[str, Any]) -> dict[str, Any]:
        operands, by_operator = arguments["operands"], arguments["brought_by"] == OPERATOR
        what = f"have the {'GPU Operator' if by_operator else 'host'} bring {' and '.join(operands)}"
        change = partial(clients.brought, operands=operands, by_operator=by_operator)
        return self.relabel(arguments, change, what, not by_operator, operands)
