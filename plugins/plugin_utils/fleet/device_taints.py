# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs that are kept from new pods one by one, by DeviceTaintRules (KEP-5055), where otherwise their whole node would be cordoned. Pure.

A rule begins with C(NoSchedule): pods are evicted by C(evict_gpu_pods), which respects disruption budgets, as the cluster's controller for C(NoExecute)
does not. Once they have left it is C(NoExecute), because a claim that several pods share stays allocated, and a new one of them would return to the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._health.repair_actions import Action
from ...module_utils._health.repair_faults import HOST
from ...module_utils._health.repair_plan import RepairPlan
from .claims import GPU_CLASS, Published
from .expectations import gpu_allocatable
from .names import LABEL_PREFIX
from .objects import annotations_of, is_cordoned, metadata

KEY, NODE = f"{LABEL_PREFIX}/heal", f"{LABEL_PREFIX}/node"
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
_LONGEST_NAME = 253


def rule(node: str, pool: str, device: str, effect: str) -> dict[str, Any]:
    """Return the rule by which C(heal) taints a device of a node; there is one for each."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": f"gpufleet-{device}-{node}"[:_LONGEST_NAME].rstrip("-."), "annotations": {NODE: node}},
        "spec": {
            "deviceSelector": {"driver": GPU_CLASS, "pool": pool, "device": device},
            "taint": {"key": KEY, "effect": effect},
        },
    }


def names_of(rules: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({str(metadata(one).get("name")) for one in rules})


def of_node(rules: Iterable[Mapping[str, Any]], node: str) -> list[Mapping[str, Any]]:
    """Return those of some rules by which C(heal) has tainted a node's devices."""
    return [
        one
        for one in rules
        if (one.get("spec") or {}).get("taint", {}).get("key") == KEY and annotations_of(one).get(NODE) == node
    ]


def wanted(
    plan: RepairPlan, node: Mapping[str, Any], published: Sequence[Published], there: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rules of the devices that a repair keeps from new pods while their node stays in service; none where the node is cordoned."""
    name = str(metadata(node).get("name"))
    if plan.action is Action.NOTHING:
        # It proves what an earlier run has tainted.
        selected = [one["spec"]["deviceSelector"] for one in there] if not is_cordoned(node) else []
        return [rule(name, str(one["pool"]), str(one["device"]), NO_SCHEDULE) for one in selected]
    of_host = any(one.fault.subject == HOST for one in plan.decided if one.action is plan.action)
    alone = plan.action in (Action.RESET_GPU, Action.HAND_OVER) and not of_host and plan.untouched
    if not alone or not plan.emptied or not set(plan.gpus) <= set(plan.emptied):
        return []
    # A device plugin that serves GPUs of the node as well would give a tainted one to a pod.
    if gpu_allocatable(node):
        return []
    uuids = set(plan.disturbed)
    devices = [one for one in published if one.uuid in uuids or one.gpu in uuids]
    seen = {one.gpu or one.uuid for one in devices} | {one.uuid for one in devices}
    if not all(uuid in seen for uuid in uuids if uuid.startswith("GPU-")):
        return []
    return [rule(name, one.pool, one.name, NO_SCHEDULE) for one in devices]
