# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""See and say on a node whether the device plugin of its own release or that of the GPU Operator serves it, one after the other.

Both have the same names for the same devices, and the same sockets: a second one beside the first is refused by the kubelet, or loses its registration
when the first one ends. The kubelet keeps what it gave to pods, which run on without a plugin; it refuses a pod that starts in that moment, so that
the node is cordoned, and every pod that was bound to it has started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...module_utils._plan import Failure, Refused
from ..action_options import choice_of, takes
from ..cluster import Cluster, if_there, titles
from ..cluster_action import wait_for_none
from ..fleet import clients
from ..fleet.clients import OPERATOR_STACK, OWN_STACK, STACK_LABEL
from ..fleet.objects import labels_of, own
from ..fleet.pods import read
from .gpu_clients import ClientsAction

_VARIABLE = "gpu_kubernetes_migrate_from"
_PLUGIN = f"{clients.OPERATOR_PREFIX}device-plugin"
_OTHER = {OWN_STACK: OPERATOR_STACK, OPERATOR_STACK: OWN_STACK}
_NAMES = {OWN_STACK: "its own release", OPERATOR_STACK: "the GPU Operator"}


class ActionModule(ClientsAction):
    OPTIONS = {
        "stack": choice_of(OWN_STACK, OPERATOR_STACK),
        "state": choice_of("surveyed", "chosen"),
        **takes("node", "operands"),
    }

    def act(self, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        return self._choose(arguments) if arguments["state"] == "chosen" else self._survey(arguments)

    def _survey(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return whether the node was moved already, unless something of the run or the cluster is in its way."""
        if arguments["operands"]:
            reason = f"the pool moves its {' and '.join(arguments['operands'])} as well"
            raise Refused(_VARIABLE, reason, "Move driver and container toolkit first, then remove their variables.")
        if not arguments["kubernetes"]:
            raise Refused(
                _VARIABLE, "gpu_node_kubernetes is false, and no plain host has a stack", "Remove one of them."
            )
        cluster, name, stack = self.cluster(arguments), arguments["node"], arguments["stack"]
        # The plan names all hosts that are no nodes.
        node = if_there(cluster.node, name)
        labels = labels_of(node)
        moved = not any(_steps(labels, stack))
        if node and not moved:
            off = clients.left_off(labels)
            remedy = f"Render the clusters with {_VARIABLE}, apply the tree, wait until its releases are installed, and run again."
            if stack == OPERATOR_STACK and labels.get(clients.NOTHING) == "false":
                remedy = f"Remove the label {clients.NOTHING}=false, and run again."
            elif stack == OPERATOR_STACK and _PLUGIN in off:
                # Without the label the operator would bring its plugin at once, beside the other one.
                others = f", and those of {', '.join(off[1:])} that it is to bring as well" if off[1:] else ""
                remedy = f"Set the label {_PLUGIN} to {clients.OPERATOR_REPLACED} in place of {labels[_PLUGIN]}{others}, and run again."
            elif len(off) < len(clients.REPLACED) and not _sets(cluster, arguments, labels, _OTHER[stack]):
                # Its plugin would stay beside the one that comes.
                reason = f"no DaemonSet of {_NAMES[_OTHER[stack]]} would leave node {name}"
                raise Refused(_VARIABLE, reason, remedy)
            elif _sets(cluster, arguments, labels, stack):
                remedy = ""
            if remedy:
                reason = f"no DaemonSet of {_NAMES[stack]} would serve node {name} after it was moved"
                raise Refused(_VARIABLE, reason, remedy)
        return {"moved": moved}

    def _choose(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Have the plugin of one stack leave and that of the other come; a run that was cut off repeats what is left of it."""
        cluster, node, stack = self.cluster(arguments), arguments["node"], arguments["stack"]
        labels = dict(labels_of(cluster.node(node)))
        away, changes = _steps(labels, stack)
        leave, come = (_sets(cluster, arguments, labels, one) for one in (_OTHER[stack], stack))
        result = {"changed": bool(away or changes), "labels": {**away, **changes}, "clients": sorted(come.values())}
        if self._task.check_mode:
            return result
        seconds = arguments["timeout"], arguments["poll"]
        waited, why = [], "did not start on"
        if away:
            # Those that are bound now, since the node is cordoned: others would keep coming from whoever names it.
            bound = _not_admitted(cluster, node)
            waited = wait_for_none(lambda: _still(bound, _not_admitted(cluster, node)), *seconds) if bound else []
            if not waited:
                cluster.change_node(node, {}, labels=away)
        if not waited:
            waited, why = self.wait(cluster, arguments, leave, True), "did not leave"
        if not waited:
            if changes:
                cluster.change_node(node, {}, labels=changes)
            waited, why = self.wait(cluster, arguments, come, False), "were not ready on"
        if not waited:
            return result
        message = f"Failed to have the device plugin of {_NAMES[stack]} serve node {node}: {titles(waited)} {why} it within {arguments['timeout']} s."
        raise Failure(f"{message} See what keeps the pod: kubectl describe pod, and its log.", **result)


def _steps(labels: Mapping[str, str], stack: str) -> list[dict[str, str | None]]:
    """Return the labels that are to be written for the plugin of the other stack to leave, and then those for that of C(stack) to come."""
    return [clients.patch(labels, _with(labels, one, one == stack)) for one in (_OTHER[stack], stack)]


def _with(labels: Mapping[str, str], stack: str, serves: bool) -> dict[str, str]:
    """Return the labels with which a stack serves the node, or does not."""
    if stack == OPERATOR_STACK:
        return clients.served(labels, serves)
    return {**labels, STACK_LABEL: OWN_STACK if serves else OPERATOR_STACK}


def _sets(cluster: Cluster, arguments: Mapping[str, Any], labels: Mapping[str, str], stack: str) -> dict[str, str]:
    """Return the DaemonSets of a stack that are on a node only while it serves the node."""
    return clients.of_stack(own(cluster.daemon_sets(), arguments["namespaces"]), labels, stack)


def _not_admitted(cluster: Cluster, node: str) -> dict[str, str]:
    """Return the GPU pods that are bound to a node and that its kubelet has not seen yet, by UID: without a plugin it would refuse them."""
    waiting = (one for one in cluster.pods_on(node) if not (one.get("status") or {}).get("startTime"))
    return {pod.uid: pod.title for pod in map(read, waiting) if pod.uses_gpu and not pod.ended}


def _still(bound: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [title for uid, title in bound.items() if uid in now]
