# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a node, and wait until pods of one kind have left it."""

from __future__ import annotations

import time
from typing import Any

from ..cluster import if_there, titles
from ..cluster_action import ClusterAction
from ..fleet.objects import annotations_of, labels_of
from ..fleet.pods import read

_PAUSE = 10.0


class ActionModule(ClusterAction):
    OPTIONS = {
        "node": {"type": "str", "required": True},
        "without_pods": {"type": "str", "default": ""},
        "timeout": {"type": "int", "default": 3600},
    }

    def act(self, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        cluster, name, selector = self.cluster(arguments), arguments["node"], arguments["without_pods"]
        until, shown = time.monotonic() + arguments["timeout"], None
        while selector:
            left = [pod.title for pod in map(read, cluster.pods_on(name, selector)) if not pod.ended]
            if not left:
                break
            if time.monotonic() >= until:
                return {
                    "failed": True,
                    "msg": f"Failed to wait for the pods {selector} of node {name}: after {arguments['timeout']} s there still is "
                    f"{titles(left)}. Wait for them or delete them, and run again.",
                }
            if left != shown:
                self._display.display(f"{name}: waiting for {titles(left)}")
            shown = left
            time.sleep(_PAUSE)
        node = if_there(cluster.node, name)
        return {"annotations": dict(annotations_of(node)), "labels": dict(labels_of(node))}
