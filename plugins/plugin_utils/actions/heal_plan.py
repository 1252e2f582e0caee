# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide on the controller, for all hosts of a run at once, what is repaired, in which order, or that nothing is."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ...module_utils._facts_view import Facts
from ...module_utils._formats.utc_time import in_future, text_of
from ...module_utils._health.repair_faults import Described, find_faults, logged
from ...module_utils._health.repair_plan import Policy, RepairPlan, plan_repair
from ...module_utils._health.repair_record import FAILED, RepairRecord, ends_if_failed, from_values
from ...module_utils._health.report import evidence_of
from ...module_utils._plan import Failure, Refused
from ...module_utils._schema import Unfit
from ..action_options import takes
from ..cluster import ApiError, Cluster
from ..cluster_action import ClusterAction
from ..descriptions import hosts_of, refusals_of_hosts
from ..fleet import claims, nvsentinel, objects, repair
from ..fleet.upgrade import HEAL, NodeRecord, from_annotations, unfinished
from ..plain import is_true, plain
from ..pools import GPU_HOSTS, node_of
from ..role_variables import value_of
from ..stages import PASSTHROUGH, given_to_machines
from ..users_of_host import refuse_users


class ActionModule(ClusterAction):
    OPTIONS = takes(
        "rollout",
        "retry recurrence reboot breaker_hosts breaker_same_xid breaker_window ignore_breaker condition max_parallel nvsentinel proves",
        needs="hosts",
    )

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        if arguments["proves"]:
            _faults_left(arguments["hosts"], task_vars)
            return {}
        now = datetime.datetime.now(datetime.timezone.utc)
        policy = Policy(now, arguments["retry"], arguments["recurrence"], arguments["reboot"])
        cluster = self.cluster(arguments) if arguments["kubernetes"] else None
        nodes = cluster.nodes() if cluster else None
        taints = _Taints(cluster)
        # For the breaker those count, too, that are refused because somebody uses them.
        faulty: dict[str, RepairPlan] = {}
        refused: dict[str, Refused] = {}
        boots: dict[str, str] = {}
        records: dict[str, RepairRecord] = {}
        names: dict[str, str] = {}
        requests: dict[str, str] = {}
        chosen: dict[str, tuple[list[tuple[str, str]], list[str]]] = {}
        for one in hosts_of(arguments["hosts"], task_vars):
            host, variables, facts = one.name, one.variables, one.facts
            names[host] = node_of(host, variables)
            try:
                if facts is None or facts.health is None:
                    raise Refused(
                        "the host", f"it could not be read: {one.unread or 'its facts lack the subset health'}"
                    )
                _refuse(names[host], facts, nodes)
                record = from_values(facts.recorded.heal)
                there: list[Mapping[str, Any]] = []
                if nodes is not None:
                    node = nodes[names[host]]
                    there = taints.of(node, variables)
                    record = repair.known(record, node)
                    awaited = False
                    if cluster and arguments["nvsentinel"] == nvsentinel.REMEDIATE:
                        requests[host] = nvsentinel.released_by(node)
                        awaited = bool(requests[host]) and nvsentinel.is_awaited(
                            cluster.remediation_request(requests[host])
                        )
                    if not record.ours and (awaited or there):
                        # Whatever NVSentinel has seen, or a record said that is lost: it goes back only when it is proven.
                        record = replace(record, state=FAILED)
                plan = plan_repair(evidence_of(facts), _described(variables), record, policy)
                if nodes is not None:
                    chosen[host] = taints.chosen(plan, nodes[names[host]], there, variables)
                    if plan.needed and not plan.action.whole_host and taints.are_missed(variables):
                        plan = replace(plan, notes=(*plan.notes, _NO_TAINTS))
                    kept = nvsentinel.held(nodes[names[host]], arguments["nvsentinel"], repairs=True)
                    if kept and plan.needed and not record.ours:
                        raise kept
                faulty[host] = plan
                records[host] = record
                boots[host] = facts.host.boot_id or ""
                if plan.needed and plan.action.whole_host:
                    refuse_users({host: (facts, variables)}, nodes=cluster is not None)
            except Refused as wrong:
                refused[host] = wrong
        plans = {host: plan for host, plan in faulty.items() if host not in refused}
        tainted = {host: [device for _pool, device in chosen.get(host, ((), ()))[0]] for host in plans}
        for host, plan in plans.items():
            if plan.needed or plan.handed_over or plan.notes:
                for line in repair.lines(host, plan, tainted[host]):
                    self._display.display(line)
        for host, refusal in refused.items():
            self._display.warning(f"{host}: {refusal.message}")
        if cluster and nodes and arguments["condition"] and not self._task.check_mode:
            well = [names[host] for host, plan in plans.items() if not plan.needed and not plan.handed_over]
            _tell_healthy(cluster, [nodes[name] for name in well], arguments["condition"], now)
        members = [str(host) for host in plain(task_vars.get("groups", {})).get(GPU_HOSTS) or arguments["hosts"]]
        stamps = (
            {name: objects.metadata(node).get("annotations") or {} for name, node in nodes.items()} if nodes else {}
        )
        for name in in_future({name: one.get(repair.SINCE) for name, one in stamps.items()}, now):
            self._display.warning(
                f"node {name}: its annotation {repair.SINCE} is of a time in the future, and does not count for the breaker."
            )
        elsewhere = (
            repair.repaired_lately(nodes, set(names.values()), now, arguments["breaker_window"]) if nodes else ()
        )
        most, same_xid = arguments["breaker_hosts"], arguments["breaker_same_xid"]
        why = repair.tripped(faulty, len(members), elsewhere, most, same_xid)
        result = {
            "plans": {
                host: {
                    **plan.as_dict(),
                    **dict(zip(("taints", "tainted"), chosen.get(host, ([], [])))),
                    "steps": [step.as_dict() for step in repair.steps(plan, tainted[host])],
                    "remediation": requests.get(host, ""),
                    "boot_id": boots[host],
                    "dealt_with": list(plan.dealt_with),
                    "state_before": records[host].state,
                    "if_failed": ends_if_failed(records[host], records[host].state),
                }
                for host, plan in plans.items()
            },
            "refusals": refusals_of_hosts(refused.items()),
            "nodes": names,
            "members": [node_of(host, task_vars["hostvars"][host]) for host in members],
            "order": repair.order(plans),
            "handed_over": {host: plan.handed_over for host, plan in plans.items() if plan.handed_over},
            "serial": arguments["max_parallel"] or max(1, len(plans)),
            "breaker": why,
        }
        if why and not arguments["ignore_breaker"]:
            message = (
                f"Nothing is repaired: {why}. So many at once point to a driver, a power supply or a switch: look for what these hosts have in common. "
                "To repair them anyway, set gpu_heal_ignore_breaker=true."
            )
            raise Failure(message, **{**result, "order": []})
        if why:
            self._display.warning(f"The breaker is ignored: {why}.")
        return result


_NO_TAINTS = "the cluster serves no DeviceTaintRule of resource.k8s.io/v1, as Kubernetes does from 1.37 on, so the whole node is cordoned"


class _Taints:
    """The devices of nodes that are tainted, also from when the DRA driver served them, or to be."""

    def __init__(self, cluster: Cluster | None) -> None:
        self._cluster = cluster

    @cached_property
    def _rules(self) -> list[dict[str, Any]] | ApiError | None:
        try:
            return self._cluster.device_taint_rules() if self._cluster else None
        except ApiError as error:
            return error

    def of(self, node: Mapping[str, Any], variables: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the rules by which a repair has tainted devices of a node."""
        rules = self._rules
        if isinstance(rules, ApiError):
            # The right to read them is not needed where no pool is served by the DRA driver.
            if rules.status != 403 or _serves_claims(variables):
                raise rules
            return []
        return repair.of_node(rules or (), objects.metadata(node)["name"])

    def are_missed(self, variables: Mapping[str, Any]) -> bool:
        """Return whether taints would spare the other GPUs of a node, and the cluster has none."""
        return self._cluster is not None and _serves_claims(variables) and self._rules is None

    def chosen(
        self,
        plan: RepairPlan,
        node: Mapping[str, Any],
        there: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
    ) -> tuple[list[tuple[str, str]], list[str]]:
        """Return the pools and devices that a repair taints in place of a cordon, and the names of all rules that go when it is proven."""
        rules: list[dict[str, Any]] = []
        if plan.needed and self._cluster and _serves_claims(variables) and self._rules is not None:
            name = objects.metadata(node)["name"]
            published = claims.published(self._cluster.resource_slices(), {name: node}).get(name, ())
            rules = repair.wanted(plan, node, published, there)
        selected = [one["spec"]["deviceSelector"] for one in rules]
        return [(one["pool"], one["device"]) for one in selected], repair.names_of([*there, *rules])


def _serves_claims(variables: Mapping[str, Any]) -> bool:
    return bool(value_of("nvidia_sharing_backend", variables) == "dra")


def _faults_left(hosts: Sequence[str], task_vars: Mapping[str, Any]) -> None:
    """Fail with what a repair has not ended. Errors in the kernel's log are of before: they stay there until the next boot."""
    left = []
    for one in hosts_of(hosts, task_vars, "gpu_heal_now"):
        host, variables, facts = one.name, one.variables, one.facts
        if facts is None or facts.health is None:
            left.append(f"{host}: it could not be read: {one.unread or 'its facts lack the subset health'}")
            continue
        evidence = evidence_of(facts)
        faults = find_faults(evidence, _described(variables), logged(evidence)).faults
        # Persistence mode that is off is a warning of health, and no reason to keep a host that works out of service.
        left += [f"{host}: {fault.title}: {fault.reason}" for fault in faults if fault.kind != "persistence"]
    if left:
        raise Failure(f"The repair did not end every fault. {'. '.join(left)}.")


def _tell_healthy(cluster: Cluster, nodes: Sequence[Mapping[str, Any]], kind: str, now: datetime.datetime) -> None:
    """Have nodes with nothing to repair say so, where they do not yet."""
    for node in nodes:
        if repair.condition_of(node, kind).get("status") != "True":
            condition = repair.condition(kind, "", "", node, text_of(now))
            cluster.set_condition(node["metadata"]["name"], condition)


def _described(variables: Mapping[str, Any]) -> Described:
    gpus = value_of("gpu_facts_gpus", variables) or ()
    injected = str(value_of("nvidia_toolkit_runtime", variables) or "none") != "none"
    count = sum(int(entry.get("count") or 0) for entry in gpus if isinstance(entry, dict))
    # Those of virtual machines are on the bus, too.
    given = given_to_machines(value_of(PASSTHROUGH, variables))[1]
    return Described(
        count + (given or 0) if count else None, injected and is_true(value_of("nvidia_toolkit_cdi", variables))
    )


def _refuse(node: str, facts: Facts, nodes: Mapping[str, Any] | None) -> None:
    """Refuse a host that another run is in the middle of, or that cannot be taken out of service."""
    recorded = facts.recorded
    upgrade = NodeRecord()
    if nodes is not None:
        if node not in nodes:
            raise Refused(f"node {node}", "the cluster has no such node", "Set gpu_node_name, or leave the host out.")
        try:
            upgrade = from_annotations(nodes[node]["metadata"].get("annotations"))
            from_annotations(nodes[node]["metadata"].get("annotations"), HEAL)
        except Unfit as unfit:
            raise Refused(f"node {node}", f"its annotations cannot be read: {unfit.message}") from unfit
    refused = unfinished(NodeRecord(recorded.upgrade_state or "", target=recorded.upgrade_to or ""), upgrade, HEAL)
    if refused:
        raise refused
    unread = (facts.unknown or {}).get("recorded.heal")
    if unread:
        # What was tried before is not known: it might be tried for ever.
        raise Refused("the record of repairs", unread, "Check the file, and remove it to start over.")
    if recorded.repartition_unfinished:
        reason = "a repartition of it was cut off, or is still running"
        raise Refused("the host", reason, "Finish it first: gpufleet.nvidia.repartition continues it.")
