# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a fleet is repaired now, in which order, and which GPUs are kept from new pods. Pure.

One broken GPU is repaired. Many at once are a bad driver, a power event or a switch: repairing them one by one takes the fleet out of
service and ends nothing. Then a breaker trips, nothing is repaired, and people are told what the hosts have in common.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...module_utils._formats.utc_time import lately, moment_of
from ...module_utils._health.repair_faults import HOST
from ...module_utils._health.repair_plan import RepairPlan, reason_of
from ...module_utils._health.repair_record import DONE, FAILED, HANDED_OVER, REFUSED, STEPS, Action, RepairRecord
from ...module_utils._plan import Step
from ...module_utils._steps import Kind
from .claims import GPU_CLASS, Published
from .expectations import gpu_allocatable
from .objects import annotations_of, is_cordoned, is_ready, metadata
from .text import LABEL_PREFIX, shortened
from .upgrade import HEAL, NodeRecord, annotation, from_annotations
from .waves import Budget

STATE, SINCE = (annotation(HEAL, name) for name in ("state", "since"))
#: The states of a node that is out of service for a repair.
_TAKEN = (*STEPS, FAILED, HANDED_OVER)
#: By state: status, reason and message of the condition. All others are steps.
_CONDITIONS = {
    "": ("True", "Healthy", "gpufleet.nvidia.heal found nothing to repair."),
    DONE: ("True", "Repaired", "gpufleet.nvidia.heal repaired and verified the host."),
    FAILED: ("False", "RepairFailed", "A repair did not help."),
    HANDED_OVER: ("False", "HandedOver", "People have to look at the host."),
    REFUSED: ("False", "NotRepaired", "Nothing was repaired."),
}


def tripped(
    plans: Mapping[str, RepairPlan], size: int, elsewhere: Sequence[str] = (), most: str = "10%", same_xid: int = 3
) -> str:
    """Return why nothing may be repaired, or an empty string. Hosts that were handed over do not count: nothing is done to them.

    :param plans: of the hosts of this run that could be read.
    :param size: hosts of the whole fleet, those outside of this run included.
    :param elsewhere: hosts outside of this run that are being repaired, or were within the window.
    :param most: how many hosts may need a repair at once: a number, or a percentage of the fleet, rounded down, and never less than one.
    :param same_xid: on how many hosts the same Xid error trips the breaker.
    """
    broken = [host for host, plan in plans.items() if plan.needed and plan.decided]
    allowed = Budget(max_unavailable=most).unavailable(size)
    count = len(broken) + len(elsewhere)
    if count > allowed:
        others = f", and {shortened(elsewhere)} recently" if elsewhere else ""
        return (
            f"{len(broken)} hosts need a repair at once ({shortened(broken)}{others}), and at most {allowed} of {size} may be repaired "
            f"({most})"
        )
    counts = Counter(number for host in broken for number in plans[host].errors)
    for number, hosts in counts.most_common(1):
        if hosts >= same_xid:
            named = [host for host in broken if number in plans[host].errors]
            return f"{hosts} hosts have the same error, Xid {number} ({shortened(named)})"
    return ""


def order(plans: Mapping[str, RepairPlan]) -> list[str]:
    """Return the hosts to work on: those first that a run before was cut off at, then what disturbs least."""
    needed = [host for host, plan in plans.items() if plan.needed]
    return sorted(needed, key=lambda host: (not plans[host].resumed, plans[host].action.rank, host))


def known(record: RepairRecord, node: Mapping[str, Any]) -> RepairRecord:
    """Return what is known of the repairs of a host: its own record, and what its node says where the host says less.

    The node is marked and cordoned before the host is written to, and a host that people have set up anew has forgotten everything. Raises Unfit: the
    node's annotations hold no record.
    """
    said = from_annotations(annotations_of(node), HEAL)
    taken = said.state in _TAKEN
    if taken and not record.ours:
        record = replace(record, state=said.state, since=said.since, reason=said.failed_reason)
    return replace(record, initial_unschedulable=said.initial_unschedulable) if taken else record


def repaired_lately(
    nodes: Mapping[str, Mapping[str, Any]], but: Iterable[str], now: datetime.datetime, window: int
) -> tuple[str, ...]:
    """Return the nodes that other runs repair, or have repaired within the window."""
    found = []
    for name, node in sorted(nodes.items()):
        annotations = annotations_of(node)
        state = str(annotations.get(STATE) or "")
        if name in but or state not in (*_TAKEN, DONE):
            continue
        if lately(moment_of(annotations.get(SINCE)), now, window):
            found.append(name)
    return tuple(found)


def no_room(nodes: Mapping[str, Mapping[str, Any]], members: Sequence[str], node: str, share: str) -> str:
    """Return why a node must not be taken out of service now, or an empty string.

    A node that is out of service already costs nothing.
    """

    def out(name: str) -> bool:
        found = nodes.get(name)
        return found is not None and (is_cordoned(found) or not is_ready(found))

    there = [name for name in members if name in nodes]
    away = [name for name in there if out(name)]
    allowed = Budget(max_unavailable=share).unavailable(len(there))
    if node in away or len(away) < allowed:
        return ""
    return f"{len(away)} of {len(there)} nodes are out of service ({shortened(away)}), and at most {share} may be"


def marked(record: RepairRecord) -> dict[str, str | None]:
    """Return the annotations of a node; C(None) removes one."""
    found = record.initial_unschedulable and record.state in _TAKEN
    return NodeRecord(
        record.state,
        initial_unschedulable=found,
        failed_reason=record.reason,
        operator=record.operator,
        since=record.since,
    ).annotations(HEAL)


def condition(kind: str, state: str, reason: str, node: Mapping[str, Any], now: str) -> dict[str, str]:
    """Return the condition of a node that says whether its GPUs are healthy, as the cluster's own conditions are.

    :param state: a step or an end of a repair; empty for a host with nothing to repair.
    """
    status, why, said = _CONDITIONS.get(state, ("False", "Repairing", "gpufleet.nvidia.heal repairs the host."))
    before = condition_of(node, kind)
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "reason": why,
        "message": reason or said,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since or now,
    }


def condition_of(node: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of a node; empty where it has none of this type."""
    found = (node.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one.get("type") == kind), {})


def steps(plan: RepairPlan, devices: Sequence[str]) -> list[Step]:
    """Return the plan of a host as a saved plan has it. C(devices): as of L(lines)."""
    if not plan.needed:
        return []
    if plan.action is Action.NOTHING:
        return [Step(Kind.FINISH_REPAIR, HOST, "")]
    named = {"gpus": plan.gpus, "services": plan.services, "emptied": plan.emptied, "devices": devices}
    data = {"action": plan.action.value, **{name: sorted(value) for name, value in named.items()}}
    return [Step(Kind.REPAIR_HOST, HOST, reason_of(plan), (), data)]


def lines(host: str, plan: RepairPlan, devices: Sequence[str] = ()) -> list[str]:
    """Return the plan of a host for people. C(devices): of its node that are tainted, in place of a cordon."""
    if plan.handed_over:
        return [f"{host}: handed over to people: {plan.handed_over}"]
    if not plan.needed:
        return [f"{host}: nothing to repair", *(f"    note: {note}" for note in plan.notes)]
    what = plan.action.value.replace("_", " ")
    if plan.action.value == "nothing":
        what = "prove it and return it to service: nothing is wrong with it now"
    found = [f"{host}: {what}{' (continued)' if plan.resumed else ''}"]
    found += [f"    {one}" for one in plan.decided]
    if plan.services:
        found.append(f"    restarts {', '.join(plan.services)}")
    if plan.together:
        found.append(f"    all together, because: {plan.together}")
    if plan.action.whole_host:
        found.append("    all programs that use a GPU of the host have to end first")
    elif plan.gpus:
        found.append(f"    concerns {', '.join(plan.gpus)}")
    if devices:
        found.append(f"    taints {', '.join(devices)}; the node stays in service")
    if plan.untouched:
        found.append(f"    keeps running: {', '.join(plan.untouched)}")
    return [*found, *(f"    note: {note}" for note in plan.notes)]


# GPUs that are kept from new pods one by one, by DeviceTaintRules (KEP-5055), where otherwise their whole node would be cordoned.
# A rule begins with C(NoSchedule): pods are evicted by C(evict_gpu_pods), which respects disruption budgets, as the cluster's controller for C(NoExecute)
# does not. Once they have left it is C(NoExecute), because a claim that several pods share stays allocated, and a new one of them would return to the device.

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
