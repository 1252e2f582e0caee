# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Send a cluster's own GPU pods (device plugin, feature discovery, metrics) away from a node, and let them come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...module_utils._plan import Failure
from ..action_options import choice_of, takes
from ..cluster import Cluster, titles
from ..cluster_action import ClusterAction, wait_for_none
from ..fleet import clients
from ..fleet.objects import labels_of, own


class ClientsAction(ClusterAction):
    """An action that says by the labels of a node which pods of the cluster's own run there, and waits for them."""

    COMMON = {**ClusterAction.COMMON, **takes("node", "node namespaces timeout poll")}

    def relabel(
        self,
        arguments: dict[str, Any],
        change: Callable[[Mapping[str, str]], dict[str, str]],
        what: str,
        leave: bool,
        operands: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Change the labels of a node, and wait until its clients, or what brings these operands, have left, or are ready."""
        cluster, node = self.cluster(arguments), arguments["node"]
        before = labels_of(cluster.node(node))
        changes = clients.patch(before, change(before))
        sets = clients.moved(own(cluster.daemon_sets(), arguments["namespaces"]), before, operands)
        result = {"changed": bool(changes), "labels": changes, "clients": sorted(sets.values())}
        if self._task.check_mode or not (changes or leave or operands):
            return result
        if changes:
            cluster.change_node(node, {}, labels=changes)
        waited = self.wait(cluster, arguments, sets, leave)
        if not waited:
            return result
        verb = "did not leave" if leave else "were not ready on"
        why = f"{titles(waited)} {verb} node {node} within {arguments['timeout']} s"
        remedy = "See what keeps the pod: kubectl describe pod." if leave else "Look at the pod's log."
        raise Failure(f"Failed to {what}: {why}. {remedy}", **result)

    @staticmethod
    def wait(cluster: Cluster, arguments: Mapping[str, Any], sets: Mapping[str, str], leave: bool) -> list[str]:
        """Wait until no pod of the DaemonSets is there, or each has one that is ready; return what is missing to that."""

        def missing() -> list[str]:
            there = own(cluster.pods_on(arguments["node"]), arguments["namespaces"])
            pods = [pod for pod in there if clients.owner(pod) in sets]
            if leave:
                return [clients.title(pod) for pod in pods]
            ready = {clients.owner(pod) for pod in pods if clients.is_ready(pod)}
            return [name for uid, name in sorted(sets.items()) if uid not in ready]

        return wait_for_none(missing, arguments["timeout"], arguments["poll"])


class ActionModule(ClientsAction):
    OPTIONS = {"state": choice_of("paused", "resumed")}

    def act(self, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        pausing = arguments["state"] == "paused"
        verb = "pause" if pausing else "resume"
        return self.relabel(arguments, clients.paused if pausing else clients.resumed, f"{verb} GPU clients", pausing)
