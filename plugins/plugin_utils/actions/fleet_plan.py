# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a whole fleet on the controller: what would change, what that disturbs, what is impossible."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Callable

from ...module_utils._adapters.files import read_text
from ...module_utils._facts.schema import check_facts
from ...module_utils._facts_view import Facts
from ...module_utils._formats.documents import read_json
from ...module_utils._plan import Refused
from ...module_utils._schema import Unfit
from .. import plan_file
from ..action_options import takes
from ..cluster import Cluster, at_once, by_node
from ..descriptions import RunHost, hosts_of
from ..driver_advisories import ages
from ..fleet import served, sharing_configurations
from ..fleet.claims import Published, counts, published
from ..fleet.expectations import Expected
from ..fleet.objects import identities
from ..fleet.plan import FleetPlan, HostPlan, NodeView, node_view
from ..host_facts import ControllerAction, registered
from ..plain import plain, terminal_width, write_report
from ..planning import Planning, made_of, options_of
from ..pools import GPU_HOSTS, in_a_cluster, node_of
from ..recommend.seen import SEEN, seen_of
from ..role_variables import refusals_of, value_of

#: Why a host is not planned that no run has read and no description has the boards of.
_NOTHING_KEPT = "gpu_plan_facts_directory has no facts of it, and gpu_facts_gpus is empty"
#: The hosts of a plan that is saved, each with what is said of it beside its stages.
Saved = dict[str, tuple[Planning, dict[str, Any]]]


class ActionModule(ControllerAction):
    OPTIONS = takes(
        "fleet",
        "hosts facts_directory offline files served unrendered report summary kubeconfig context out ask author playbook sign verify saved",
        tree="",
    )

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        if arguments["saved"]:
            return self._show(arguments["saved"], arguments["verify"])
        hosts = arguments["hosts"]
        hosts = plain(task_vars.get("groups", {})).get(GPU_HOSTS, []) if hosts is None else hosts
        directory = arguments["facts_directory"]
        planned, described = [], []
        saved: Saved = {}
        self.UNTOUCHED = " No plan was written." if arguments["out"] else ""
        trees = plan_file.trees_of_hosts(task_vars)
        cluster = _ClusterNow.read(arguments["kubeconfig"], arguments["context"], at_once(self._display))
        for host in hosts_of(hosts, task_vars):
            facts, unread = facts_of_host(host, directory, arguments["offline"])
            plan, planning = _plan(host, facts, unread, cluster, arguments, task_vars.get(SEEN))
            if planning:
                planning.ask(partial(registered, host.variables), arguments["playbook"])
                node = plan.node
                if node and arguments["playbook"] != "site":
                    # Who uses the node and is not evicted notices nothing of it.
                    node = replace(node, pods=tuple(planning.pods))
                plan = replace(plan, stages=planning.stages, node=node)
                saved[host.name] = (
                    planning,
                    {"tree": trees.get(host.name), **_said(plan, planning.pods, arguments["playbook"])},
                )
            planned.append(plan)
            described.append(host.description.variables)
        requests, wrong = _requests(arguments["served"], cluster)
        fleet = FleetPlan(planned, arguments["files"], arguments["unrendered"], requests, wrong)
        does = plan_file.APPLYING[arguments["playbook"]]
        # Where no stage has to be needed, something is done to a host whose description asks for nothing, too.
        always = does.changes and not does.begins
        wanted = [one for one in planned if one.changes or (always and not one.unread)]
        todo = [one.host for one in wanted if not (one.impossible or one.assumed)]
        if arguments["ask"] and saved and todo:
            return {"todo": todo}
        self._display.display("\n" + fleet.text(terminal_width()))
        judged_by, stale = ages(described)
        self._display.display(judged_by)
        for warning in stale:
            self._display.display(warning, color="yellow")
        result: dict[str, Any] = {"drift": fleet.drift}
        if arguments["out"]:
            result["digest"] = self._write(arguments, saved, task_vars)
        if not arguments["summary"]:
            result["plan"] = fleet.as_dict()
        if arguments["report"]:
            write_report(arguments["report"], fleet.as_dict())
        result["as_described"] = not (fleet.drift or fleet.unread)
        result["msg"] = (
            "The fleet is as described."
            if result["as_described"]
            else f"The fleet is not as described: {fleet.summary()}. {fleet.remedy()}"
        )
        return result

    def _write(self, arguments: Mapping[str, Any], hosts: Saved, task_vars: Mapping[str, Any]) -> str:
        """Write the plan into a file, and return its digest."""
        files = {change["path"]: change["action"] for change in arguments["files"]} or None
        options, tree = options_of(task_vars), arguments["tree"] or None
        plan = made_of(hosts, options, arguments["author"], arguments["playbook"], tree=tree, files=files)
        digest = plan_file.write(arguments["out"], plan, arguments["sign"])
        self._display.display(f"The plan {digest} is in {os.path.abspath(arguments['out'])}.")
        return digest

    def _show(self, path: str, verify: Sequence[str]) -> dict[str, Any]:
        """Show a plan that was saved. Nothing is compared with it."""
        plan, digest = plan_file.opened(path, verify)
        by = f" by {plan.author}" if plan.author else ""
        self._display.display("\n" + plan.shown().text(terminal_width()))
        if plan.tree:
            self._display.display(f"The files of the clusters have the digest {plan.tree}.")
        title = f"The plan {digest} for {plan.playbook}, made {plan.made} with release {plan.release}{by}."
        self._display.display(title)
        return {"drift": False, "as_described": True, "digest": digest, "msg": title}


def _said(plan: HostPlan, evicted: Collection[str], playbook: str) -> dict[str, Any]:
    """Return what a file has of a host beside what its stages are. C(evicted): the pods that a playbook evicts that empties hosts."""
    pods = evicted if playbook != "site" else plan.node.pods if plan.node and plan.changes else ()
    return {"pool": plan.pool, "unread": plan.unread or plan.assumed or None, "pods": pods or None}


def facts_of_host(host: RunHost, directory: str, offline: bool) -> tuple[Facts | None, str | None]:
    """Return the facts of this run, kept for later ones, or those that an earlier run kept, or why there are none."""
    path = os.path.join(os.path.abspath(directory), f"{host.name}.json") if directory else ""
    if offline:
        text = read_text(path, links=False) if path else None
        if not text:
            return None, _NOTHING_KEPT
        try:
            host.document = read_json(text)
            return check_facts(host.document), None
        except (ValueError, RecursionError, Unfit) as error:
            return None, f"the recorded facts in {path} cannot be read: {error}"
    if host.document is not None and path:
        # They name processes with their command lines, which are nobody else's business.
        write_report(path, host.document, 0o600)
    return host.facts, host.unread or None


@dataclass(frozen=True)
class _ClusterNow:
    """The cluster as it is now: its nodes, and the pods on each."""

    nodes: Mapping[str, Mapping[str, Any]]
    pods: Mapping[str, list[Mapping[str, Any]]]
    api: Cluster

    @cached_property
    def published(self) -> Mapping[str, tuple[Published, ...]]:
        """Devices in ResourceSlices, by node; asked for where a pool is served by the DRA driver, and once."""
        return published(self.api.resource_slices(), self.nodes)

    @cached_property
    def daemon_sets(self) -> Collection[tuple[str, str]]:
        """Namespace and UID of each: what a pod says of its owner is whatever somebody wrote into it."""
        return identities(self.api.daemon_sets())

    @classmethod
    def read(cls, kubeconfig: str, context: str, notify: Callable[[str], None]) -> _ClusterNow | None:
        """Read it; None where none is to be asked. Raises ApiError: the API server does not answer, or refuses."""
        if not kubeconfig:
            return None
        api = Cluster(kubeconfig, context, 30, notify)
        pods = by_node(api.pods())
        return cls(api.nodes(), pods, api)

    def view(self, host: str, variables: Any, facts: Facts, desired: Mapping[str, Any]) -> NodeView:
        name = node_of(host, variables)
        wanted, reverted = None, ""
        if facts.gpus:
            chosen = {one: value_of(one, variables) for one in sharing_configurations.VARIABLES}
            choices = sharing_configurations.read({**desired, **chosen}, facts.gpus)
            found = choices.labelled(self.nodes.get(name)).capacity
            reverted = choices.reverted(self.nodes.get(name))
            wanted = Expected(found.resources, found.labels, devices=found.devices)
        published = counts(self.published.get(name, ())) if wanted and wanted.devices else None
        view = node_view(name, self.nodes.get(name), self.pods.get(name, []), self.daemon_sets, wanted, published)
        return replace(view, differs=(*view.differs, reverted)) if reverted else view


def _requests(given: Mapping[str, Any], cluster: _ClusterNow | None) -> tuple[list[str], list[str]]:
    """Return on which nodes pods that request GPUs by name may land, and what of the cluster keeps the DRA driver from serving them."""
    found: list[str] = []
    wrong: list[str] = []
    for name, entries in sorted(given.items()):
        there = served.read(entries)
        by_claims = [one.node for one in there if served.DRA in (one.by, one.to)]
        if cluster and by_claims and not cluster.nodes.keys().isdisjoint(by_claims):
            there = served.now(there, cluster.nodes)
            version = cluster.api.version()
            old = served.too_old(version)
            classes = cluster.api.device_classes()
            problems = [old] if old else [served.class_problem(classes, version, one) for one in served.claimed(there)]
            wrong += [f"cluster {name}: {problem}" for problem in problems if problem]
        found += served.lines(name, there)
    return found, wrong


def _plan(
    host: RunHost,
    facts: Facts | None,
    unread: str | None,
    cluster: _ClusterNow | None,
    arguments: Mapping[str, Any],
    recommended: Any,
) -> tuple[HostPlan, Planning | None]:
    """Return the plan of a host, and where it is to be saved what it was made from."""
    description, node, seen = host.description, None, {}
    if arguments["playbook"] != "site":
        description = description.emptied()
    if not description.refusals:
        try:
            seen = seen_of(recommended, host.name)
            if cluster and in_a_cluster(host.variables):
                node = cluster.view(host.name, host.variables, facts or Facts(), description.variables)
        except Refused as refusal:
            description = replace(description, refusals=refusals_of(refusal))
    document = host.document if facts else None
    planning = Planning(description, facts, document, seen, host.name) if arguments["out"] else None
    if unread == _NOTHING_KEPT and description.variables.get("gpu_facts_gpus"):
        assumed, stages = description.without_host()
        if planning:
            planning.stages = stages
        return HostPlan(host.name, description.pool, stages, None, node, assumed), planning
    stages = dict(planning.stages) if planning else description.stages_recommended(seen, host.name, facts)
    return HostPlan(host.name, description.pool, stages, unread, node), planning
