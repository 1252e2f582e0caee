# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare what the cluster shows of a node with what its pool's description predicts."""

from __future__ import annotations

from typing import Any

from ...module_utils._facts.schema import check_facts
from ...module_utils._health.report import FAILED, Check
from .. import node_expectations
from ..action_options import takes
from ..cluster import Cluster, if_there
from ..cluster_action import ClusterAction, wait_for_none
from ..role_variables import collect

_PAUSE = 3.0


class ActionModule(ClusterAction):
    OPTIONS = takes("node", "node labels capacity restart namespaces fail", needs="facts", timeout=0, settle=0)

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        facts = check_facts(arguments["facts"])
        name = arguments["node"]
        cluster = self.cluster(arguments)
        wanted = node_expectations.expected(
            name,
            facts,
            lambda: collect(task_vars, self._templar.template, node_expectations.ROLES),
            arguments["capacity"],
            arguments["labels"],
            there=if_there(cluster.node, name) if arguments["capacity"] else None,
        )
        restarted: list[dict[str, Any]] = []
        if self._task.check_mode:
            # Nothing is restarted.
            arguments = {**arguments, "settle": 0}
        else:
            restarted = _restart(cluster, name, arguments["restart"], arguments["namespaces"])
        checks: list[Check] = []

        def failed() -> list[Check]:
            checks[:] = node_expectations.checks(
                name,
                if_there(cluster.node, name),
                lambda: cluster.pods_on(name),
                wanted,
                facts,
                arguments["namespaces"],
                restarted,
                cluster.resource_slices,
                waiting=True,
            )
            return [check for check in checks if check.status == FAILED]

        # What the kubelet was told before the restart stays on the node until it writes its status again.
        bad = wait_for_none(failed, arguments["timeout"], _PAUSE, arguments["settle"])
        result: dict[str, Any] = {
            "checks": [check.as_dict() for check in checks],
            "healthy": not bad,
            "changed": bool(restarted),
        }
        if bad and arguments["fail"]:
            first = bad[0]
            result["failed"] = True
            result["msg"] = f"Node {arguments['node']}: {first.name}: {first.evidence}. {first.next_step}"
        return result


def _restart(cluster: Cluster, node: str, selectors: list[str], namespaces: list[str]) -> list[dict[str, Any]]:
    """Delete the pods of a node that have these labels, and return them. Labels are anybody's to choose: namespaces say whose count."""
    found = {str(pod["metadata"]["uid"]): pod for selector in selectors for pod in cluster.pods_on(node, selector)}
    pods = [pod for pod in found.values() if pod["metadata"]["namespace"] in namespaces]
    for pod in pods:
        cluster.delete_pod(pod["metadata"]["namespace"], pod["metadata"]["name"], pod["metadata"]["uid"])
    return pods
