# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Empty a node of pods that hold GPUs, through the eviction API, so that disruption budgets are respected."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...module_utils._facts.schema import check_gpus
from ...module_utils._facts_view import HolderFacts, open_by
from ...module_utils._formats.kubelet_checkpoint import CHECKPOINT
from ...module_utils._plan import Failure, Refused
from .. import plan_file
from ..action_options import takes
from ..cluster import Cluster, titles
from ..cluster_action import ClusterAction, wait_for_none
from ..fleet.devices import Holding, claimed, gone_devices, holdings, in_use, repartition
from ..fleet.objects import identities
from ..fleet.pods import Evictions, Pod, evictions, read


class ActionModule(ClusterAction):
    OPTIONS = takes(
        "node",
        "node mig_plan devices checkpoint gpus holders device_holders device_nodes every_pod force delete_empty_dir timeout",
        poll=3.0,
    )

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        cluster = self.cluster(arguments)
        node = arguments["node"]
        pods = [read(document) for document in cluster.pods_on(node)]
        named = any(pod.controller == "DaemonSet" for pod in pods)
        daemon_sets = identities(cluster.daemon_sets()) if named else frozenset()
        arguments["holders"] += _holding(open_by(arguments["device_holders"]), arguments["device_nodes"])
        result: dict[str, Any] = {}
        uids = None
        gone = arguments["devices"]
        if arguments["mig_plan"] is not None:
            gone = gone_devices(arguments["mig_plan"])
        if gone is not None:
            there = [pod for pod in pods if not pod.ended]
            found = claimed(check_gpus(arguments["gpus"]))
            known = {holding.pod_uid for holding in found}
            others = [pod for pod in there if pod.uid not in known]
            found += _holdings(arguments["checkpoint"], node, others, daemon_sets)
            wanted = repartition(gone, found, there, arguments["holders"])
            users = in_use(found, [pod.uid for pod in there])
            uids = [pod.uid for pod in wanted.leave]
            result = {
                "gone_devices": list(wanted.gone),
                "leave": [pod.title for pod in wanted.leave],
                "stay": [pod.title for pod in wanted.stay],
                "in_use": {device: list(holders) for device, holders in users.items()},
            }
            if wanted.gone:
                self._display.display(f"{node}: {wanted.text()}")
        plan = evictions(
            pods,
            daemon_sets=daemon_sets,
            uids=uids,
            holders=arguments["holders"],
            every=arguments["every_pod"],
            force=arguments["force"],
            delete_empty_dir=arguments["delete_empty_dir"],
        )
        names = [pod.title for pod in plan.evict]
        if plan.blockers:
            why = "; ".join(f"{title}: {reason}" for title, reason in plan.blockers.items())
            kind = "pods" if arguments["every_pod"] else "GPU pods"
            message = _REFUSED.format(kind=kind, node=node, why=why)
            raise Failure(message, **result, evicted=[], not_evicted=dict(plan.blockers))
        if names and plan_file.is_judged(task_vars, self._task.check_mode):
            plan_file.unannounced(task_vars, str(self._templar.template(task_vars[plan_file.APPLY])), names)
        if self._task.check_mode or not names:
            # Of devices that go, the text above, or the repair, says so.
            if names and gone is None:
                self._display.display(f"{node}: would evict {titles(names)}")
            return {**result, "changed": bool(names), "evicted": names}
        remaining = _evict(cluster, node, plan, arguments["timeout"], arguments["poll"])
        gone = [title for title in names if title not in remaining]
        if remaining:
            why = "; ".join(f"{title}: {reason}" for title, reason in remaining.items())
            message = f"Failed to evict pods from {node} within {arguments['timeout']} s: {why}. {_REMEDY}"
            raise Failure(message, **result, changed=bool(gone), evicted=gone, not_evicted=remaining)
        self._display.display(f"{node}: evicted {titles(names)}")
        return {**result, "changed": True, "evicted": names}


_REFUSED = (
    "Failed to evict the {kind} of {node}; none was touched: {why}. Remove those pods, or allow it with "
    "gpu_node_evict_force (pods without a controller) or gpu_node_evict_delete_empty_dir."
)
_REMEDY = "Relax the PodDisruptionBudget, or delete the pod, and run again."


def _holding(holders: Sequence[HolderFacts], nodes: Collection[str]) -> list[str]:
    """Return the UIDs of the pods of which a process has one of these device files open."""
    return [one.pod_uid for one in holders if one.pod_uid and not set(nodes).isdisjoint(one.devices)]


def _holdings(
    text: str, node: str, pods: Sequence[Pod], daemon_sets: Collection[tuple[str, str]]
) -> tuple[Holding, ...]:
    """Return who holds which device. Raises Refused: there are GPU pods, and nothing says which devices they hold."""
    if text:
        return holdings(text)
    unknown = [pod.title for pod in pods if pod.uses_gpu and not pod.of_daemon_set(daemon_sets)]
    if unknown:
        raise Refused(
            f"node {node}",
            f"{CHECKPOINT} is missing, so it is not known which devices {titles(unknown)} hold",
            "Set the kubelet's root directory back to its default, or drain the node first.",
        )
    return ()


def _evict(cluster: Cluster, node: str, plan: Evictions, timeout: float, poll: float) -> dict[str, str]:
    """Ask for every eviction until all pods have left; return why the others are still there."""
    asked: set[str] = {pod.uid for pod in plan.evict if pod.terminating}
    waiting: dict[str, Pod] = {pod.uid: pod for pod in plan.evict}
    refused: dict[str, str] = {}

    def left() -> dict[str, Pod]:
        for pod in waiting.values():
            if pod.uid in asked:
                continue
            reason = cluster.evict(pod.namespace, pod.name, pod.uid)
            if reason is None:
                asked.add(pod.uid)
            else:
                refused[pod.uid] = reason
        there = {pod.uid for pod in map(read, cluster.pods_on(node)) if not pod.ended}
        for uid in waiting.keys() - there:
            del waiting[uid]
        return waiting

    return {
        pod.title: "its eviction was accepted, but it does not terminate" if uid in asked else refused[uid]
        for uid, pod in wait_for_none(left, timeout, poll).items()
    }
