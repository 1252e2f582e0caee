# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare what the cluster shows of a node with what its pool's description predicts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import read_text
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet import agreement, clients, plugin_pod
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.capacity import capacity
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.upgrade import is_ready
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import modes
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_action import ClusterAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.wishes import HOST_ROLES, collect

_PAUSE = 3.0


class ActionModule(ClusterAction):
    _VALID_ARGS = None
    OPTIONS = {
        "node": {"type": "str", "required": True},
        "facts": {"type": "dict", "required": True},
        "labels": {"type": "bool", "default": True},
        "capacity": {"type": "path", "default": ""},
        "restarted": {"type": "list", "elements": "dict", "default": []},
        "timeout": {"type": "int", "default": 0},
        "settle": {"type": "int", "default": 0},
        "fail": {"type": "bool", "default": True},
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        check_facts(arguments["facts"])
        wanted = _expected(
            arguments, lambda: collect(task_vars, self._templar.template, (*HOST_ROLES, "gpu_kubernetes"))
        )
        cluster = self.cluster(arguments)
        if self._task.check_mode:
            # Nothing was restarted.
            arguments = {**arguments, "restarted": [], "settle": 0}
        until = time.monotonic() + arguments["timeout"]
        agrees_since = None
        while True:
            checks = self._checks(cluster, arguments["node"], wanted, arguments["restarted"], arguments["facts"])
            bad = [check for check in checks if check.status == agreement.FAILED]
            now = time.monotonic()
            if bad:
                agrees_since = None
                if now >= until:
                    break
            else:
                agrees_since = now if agrees_since is None else agrees_since
                # What the kubelet was told before the restart stays on the node until it writes its status again.
                if now - agrees_since >= arguments["settle"]:
                    break
            time.sleep(_PAUSE)
        result: dict[str, Any] = {"checks": [check.as_dict() for check in checks], "healthy": not bad}
        if bad and arguments["fail"]:
            first = bad[0]
            result["failed"] = True
            result["msg"] = f"Node {arguments['node']}: {first.name}: {first.evidence}. {first.next_step}"
        return result

    def _checks(
        self,
        cluster: Any,
        name: str,
        wanted: agreement.Expected,
        restarted: Sequence[Mapping[str, Any]],
        facts: Mapping[str, Any],
    ) -> tuple[agreement.Check, ...]:
        try:
            node = cluster.node(name)
        except ApiError as error:
            if error.status != 404:
                raise
            step = "Set gpu_upgrade_node to the node's name, or join the host to the cluster."
            return (agreement.Check("node", agreement.FAILED, f"the cluster has no node {name}", step),)
        if not is_ready(node):
            step = "Look at the kubelet on the host: journalctl -u kubelet."
            return (agreement.Check("node", agreement.FAILED, "it is not Ready", step),)
        ready = agreement.Check("node", agreement.PASSED, "Ready")
        pods = cluster.pods_on(name)
        waited = clients.not_replaced(restarted, pods) if restarted else {}
        if waited:
            why = "; ".join(f"{title}: {reason}" for title, reason in waited.items())
            step = "See what keeps the pod: kubectl describe pod, and its log."
            return (ready, agreement.Check("plugin pods", agreement.FAILED, why, step))
        # What keeps the plugin from its devices comes before what the node therefore does not offer.
        plugin = [plugin_pod.check(pods, facts)]
        if wanted.mps_of_host:
            plugin.append(plugin_pod.mps_check(pods, sorted(wanted.resources), facts.get("mps") or []))
        return (ready, *plugin, *agreement.compare(node, wanted))


def _expected(arguments: dict[str, Any], wish: Callable[[], dict[str, Any]]) -> agreement.Expected:
    """Return what the node must show: by a rendered file, or as it follows from the host's GPUs and its variables.

    :raises Refused: the file is not there, or does not know the node.
    """
    path = arguments["capacity"]
    if path:
        text = read_text(path)
        if text is None:
            raise Refused(path, "there is no such file", "Render the clusters first: gpufleet.nvidia.render.")
        return agreement.expected(text, path, arguments["node"])
    found = wish()
    sharing = modes.read(found)
    predicted = capacity(
        arguments["facts"].get("gpus") or [], found["nvidia_mig_strategy"], found["nvidia_mig_layout"], sharing
    )
    operator = (found["gpu_kubernetes_stack"], found["gpu_kubernetes_mig_manager"]) == ("gpu_operator", "operator")
    return agreement.Expected(
        predicted.resources,
        predicted.labels if arguments["labels"] else {},
        mig_manager=operator,
        mps_of_host=sharing.mps_of_host,
    )
