# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Send a cluster's own GPU pods (device plugin, feature discovery, metrics) away from a node, and let them come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..cluster import titles
from ..cluster_action import ClusterAction, wait_for_none
from ..fleet import clients
from ..fleet.objects import OWN_NAMESPACES, own


class ActionModule(ClusterAction):
    OPTIONS = {
        "node": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["paused", "resumed"], "required": True},
        "namespaces": OWN_NAMESPACES,
        "timeout": {"type": "int", "default": 300},
        "poll": {"type": "float", "default": 2.0},
    }

    def act(self, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        cluster, node = self.cluster(arguments), arguments["node"]
        pausing = arguments["state"] == "paused"
        before = dict(cluster.node(node)["metadata"].get("labels") or {})
        after = clients.paused(before) if pausing else clients.resumed(before)
        changes = clients.patch(before, after)
        namespaces = arguments["namespaces"]
        sets = clients.moved(own(cluster.daemon_sets(), namespaces), before)
        result = {"changed": bool(changes), "labels": changes, "clients": sorted(sets.values())}
        if self._task.check_mode or (not changes and not pausing):
            return result
        if changes:
            cluster.change_node(node, {}, labels=changes)
        waited = wait(
            lambda: own(cluster.pods_on(node), namespaces), sets, pausing, arguments["timeout"], arguments["poll"]
        )
        if waited:
            verb = "did not leave" if pausing else "were not ready on"
            why = f"{titles(waited)} {verb} node {node} within {arguments['timeout']} s"
            remedy = "See what keeps the pod: kubectl describe pod." if pausing else "Look at the pod's log."
            return {
                **result,
                "failed": True,
                "msg": f"Failed to {'pause' if pausing else 'resume'} GPU clients: {why}. {remedy}",
            }
        return result


def wait(
    there: Callable[[], Sequence[Mapping[str, Any]]],
    sets: Mapping[str, str],
    pausing: bool,
    timeout: float,
    poll: float,
) -> list[str]:
    """Wait until no pod of the DaemonSets is there, or each has one that is ready; return what is missing to that."""

    def missing() -> list[str]:
        pods = [pod for pod in there() if clients.owner(pod) in sets]
        if pausing:
            return [clients.title(pod) for pod in pods]
        ready = {clients.owner(pod) for pod in pods if clients.is_ready(pod)}
        return [name for uid, name in sorted(sets.items()) if uid not in ready]

    return wait_for_none(missing, timeout, poll)
