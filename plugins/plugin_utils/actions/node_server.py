# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""See and say on a node who serves its GPUs, wait until the other one has left it, and remove what that left in the node's status."""

from __future__ import annotations

from typing import Any

from ...module_utils._plan import Failure
from ..action_options import choice_of, takes
from ..cluster import Cluster, if_there
from ..cluster_action import ClusterAction, wait_for_none
from ..fleet import pods, served
from ..fleet.objects import CLAIMS, labels_of, own

_PAUSE = 2.0


class ActionModule(ClusterAction):
    OPTIONS = {
        "state": choice_of("surveyed", "chosen", "cleared"),
        **takes("node", "node namespaces timeout settle", needs="server"),
    }

    def act(self, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        if arguments["state"] == "surveyed":
            return self._survey(arguments)
        cluster = self.cluster(arguments)
        if arguments["state"] == "chosen":
            return self._choose(cluster, arguments)
        return self._clear(cluster, arguments)

    def _survey(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return whether the node was moved already."""
        if not arguments["kubernetes"]:
            raise Failure(
                "gpu_node_kubernetes is false: a migration is between two servers of a cluster. Set it to true."
            )
        cluster = self.cluster(arguments)
        if arguments["server"] == served.DRA and not cluster.kinds(CLAIMS):
            why = f"the API server has no {CLAIMS}, by which the driver serves pods"
            remedy = f"Upgrade the cluster to {served.KUBERNETES} or newer."
            raise Failure(f"Failed to move node {arguments['node']} to the DRA driver: {why}. {remedy}")
        # The plan names all hosts that are no nodes.
        node = if_there(cluster.node, arguments["node"])
        return {"moved": labels_of(node).get(served.MIGRATED_LABEL) == arguments["server"]}

    def _choose(self, cluster: Cluster, arguments: dict[str, Any]) -> dict[str, Any]:
        node, server = arguments["node"], arguments["server"]
        found, namespaces = cluster.node(node), arguments["namespaces"]
        labels = found["metadata"].get("labels") or {}
        changed = labels.get(served.MIGRATED_LABEL) != server
        if self._task.check_mode:
            return {"changed": changed, "pods": []}
        unready = served.unready(own(cluster.daemon_sets(), namespaces), labels, server)
        if unready:
            raise Failure(f"Failed to move node {node}: {unready}")
        if changed:
            cluster.change_node(node, {}, labels={served.MIGRATED_LABEL: server})
        there: list[dict[str, Any]] = []

        def left() -> list[str]:
            there[:] = cluster.pods_on(node)
            slices = cluster.resource_slices() if server == served.PLUGIN else []
            sets = own(cluster.daemon_sets(), namespaces)
            return served.not_left(sets, own(there, namespaces), slices, {node: found}, labels, server)

        others = wait_for_none(left, arguments["timeout"], _PAUSE)
        if others:
            remedy = "See what keeps it: kubectl describe pod, and the kubelet's log."
            why = f"within {arguments['timeout']} s there still is {', '.join(others)}. {remedy}"
            raise Failure(f"Failed to move node {node} to {server}: {why}", changed=changed)
        return {"changed": changed, "pods": [pod.uid for pod in map(pods.read, there) if not pod.ended]}

    def _clear(self, cluster: Cluster, arguments: dict[str, Any]) -> dict[str, Any]:
        """Remove the resources of the device plugin; a kubelet that is just starting may write them once more."""
        node = arguments["node"]
        names = served.left_over(cluster.node(node))
        if self._task.check_mode or not names:
            return {"changed": bool(names), "resources": names}

        def left() -> list[str]:
            again = served.left_over(cluster.node(node))
            if again:
                cluster.remove_resources(node, again)
            return again

        names = wait_for_none(left, arguments["timeout"], _PAUSE, arguments["settle"])
        if names:
            why = f"the kubelet reports {', '.join(names)} again and again"
            remedy = "Remove the device plugin's pod from the node, and run again."
            raise Failure(f"Failed to clear node {node}: {why}. {remedy}", changed=True)
        return {"changed": True}
