# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node, and wait until pods of one kind have left it."""

from __future__ import annotations

import time
from typing import Any

from ...module_utils._plan import Failure
from ..action_options import choice_of, takes
from ..cluster import if_there, titles
from ..cluster_action import ClusterAction
from ..fleet.objects import annotations_of, labels_of
from ..fleet.pods import read
from ..fleet.upgrade import REPARTITION, ROLLBACK, NodeRecord, from_annotations, unfinished
from ..host_facts import registered
from ..plain import facts_of

_PAUSE = 10.0


class ActionModule(ClusterAction):
    OPTIONS = {
        **takes("node", "node without_pods", timeout=3600),
        "work": choice_of("", ROLLBACK, REPARTITION, default=""),
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        if arguments["work"]:
            return self._refuse(arguments, task_vars)
        cluster, name, selector = self.cluster(arguments), arguments["node"], arguments["without_pods"]
        until, shown = time.monotonic() + arguments["timeout"], None
        while selector:
            left = [pod.title for pod in map(read, cluster.pods_on(name, selector)) if not pod.ended]
            if not left:
                break
            if time.monotonic() >= until:
                raise Failure(
                    f"Failed to wait for the pods {selector} of node {name}: after {arguments['timeout']} s there still is "
                    f"{titles(left)}. Wait for them or delete them, and run again."
                )
            if left != shown:
                self._display.display(f"{name}: waiting for {titles(left)}")
            shown = left
            time.sleep(_PAUSE)
        node = if_there(cluster.node, name)
        return {"annotations": dict(annotations_of(node)), "labels": dict(labels_of(node))}

    def _refuse(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Refuse a host on which a run was cut off that this one does not continue."""
        facts, unread = facts_of(registered(task_vars, "gpu_facts_host"))
        if facts is None:
            raise Failure(f"Failed to read the host: {unread}")
        node = if_there(self.cluster(arguments).node, arguments["node"]) if arguments["kubernetes"] else None
        on_host = NodeRecord(facts.recorded.upgrade_state or "", target=facts.recorded.upgrade_to or "")
        on_node = from_annotations(annotations_of(node)) if node else NodeRecord()
        refused = unfinished(on_host, on_node, arguments["work"] if arguments["work"] == ROLLBACK else "")
        if refused:
            raise refused
        return {"taken": bool(node) and from_annotations(annotations_of(node), REPARTITION).ours}
