# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show what the GPUs of all hosts of a play are divided into, what is taken, and what the cluster offers of them, or is expected to."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable

from ...module_utils._adapters.files import write_whole
from ...module_utils._facts_view import Facts, view_of
from ...module_utils._health.records import sharing_differences
from ...module_utils._health.report import FAILED
from ...module_utils._plan import Refused
from ...module_utils._sharing import modes
from ...module_utils._sharing.mps_instances import GPU
from ..action_options import takes
from ..cluster import Cluster, at_once, by_node, titles
from ..descriptions import RunHost, hosts_of
from ..fleet import claims, inspection, usage
from ..fleet.capacity import HAMI_SPLIT, Capacity
from ..fleet.devices import Holding, holdings
from ..fleet.expectations import gpu_allocatable
from ..fleet.inspection import Resources, host_table, imex_table, resource_table, settings_table
from ..fleet.node_match import BY_NAME, NodeMatch
from ..fleet.node_match import VARIABLE as NODE_MATCH
from ..fleet.node_match import read as read_match
from ..fleet.objects import is_cordoned, is_ready, labels_of
from ..fleet.plugin_pod import mps_limits_check
from ..fleet.pods import Pod
from ..fleet.pods import read as read_pod
from ..fleet.sharing_configurations import VARIABLES, Choices, Named
from ..fleet.sharing_configurations import read as read_choices
from ..host_facts import ControllerAction, registered
from ..plain import json_lines, plain, said, terminal_width, write_report
from ..pools import GPU_HOSTS, in_a_cluster, node_of
from ..render import usage_page
from ..role_variables import refusals_of, value_of

#: What of the report is in the result, too.
_SMALL = ("unread", "mismatches", "total", "pending", "not_in_inventory")
_TITLE = "GPUs: what is taken, what is free"


@dataclass
class _Host:
    """What is known of one host.

    :param text: its facts document as JSON, because the objects of 10,000 of them would take gigabytes; empty when it could not be read,
        and C(unread) says why.
    """

    text: str
    unread: str = ""
    pool: str = ""
    found: Capacity | None = None
    sharing: dict[str, Any] = field(default_factory=dict)
    replicas: dict[str, int] = field(default_factory=dict)
    slice_mib: int | None = None
    hami: bool = False
    notes: list[str] = field(default_factory=list)
    choices: Choices | None = None
    match: NodeMatch = BY_NAME
    #: Whether the tables of settings and of IMEX have it: most hosts are in neither, and are not read again for them.
    keeps_settings: bool = False
    has_imex: bool = False

    def take(self, named: Named) -> None:
        """Expect of the host what this configuration of the device plugin makes of it."""
        sharing, found = named.sharing, named.capacity
        self.found, self.sharing, self.hami = found, _slice(sharing, found), sharing.backend == "hami"
        self.replicas = {GPU: HAMI_SPLIT} if self.hami else dict(found.replicas)
        self.slice_mib = sharing.slice_mib if sharing.mps_of_host else None

    @property
    def expected(self) -> dict[str, Any]:
        return {"pool": self.pool, **(self.found.as_dict() if self.found else {})}

    @property
    def document(self) -> dict[str, Any]:
        """Return a facts document of its own; an empty one when the host could not be read."""
        return dict(json.loads(self.text)) if self.text else {}

    @property
    def facts(self) -> Facts:
        return view_of(self.document)


class _LazyHosts(Mapping[str, Any]):
    """Something of each host by name, there only while somebody looks at it."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Any]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass
class _Cluster:
    """The cluster as it is now: its nodes, and the pods on each; those on none are under the empty name."""

    nodes: Mapping[str, Mapping[str, Any]]
    pods: Mapping[str, list[Pod]]
    published: Mapping[str, Sequence[claims.Published]]
    claimed: Mapping[str, Sequence[Holding]]

    @classmethod
    def read(cls, api: Cluster, with_claims: bool) -> _Cluster:
        """Read it; devices of claims only where the DRA driver serves a pool, since that needs rights of its own."""
        pods = {name: [read_pod(pod) for pod in there] for name, there in by_node(api.pods()).items()}
        nodes = api.nodes()
        published = claims.published(api.resource_slices(), nodes) if with_claims else {}
        claimed = claims.holdings(api.resource_claims(), published) if with_claims else {}
        return cls(nodes, pods, published, claimed)


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", "hosts format kubeconfig context unit details report summary html note wide")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        names = arguments["hosts"]
        names = plain(task_vars.get("ansible_play_hosts", [])) if names is None else names
        variables = {host: task_vars["hostvars"][host] for host in names}
        hosts = {one.name: _read(one) for one in hosts_of(names, task_vars)}
        for host, about in hosts.items():
            for note in about.notes:
                self._display.warning(f"{host}: {note}")
        cluster = None
        if arguments["kubeconfig"]:
            api = Cluster(arguments["kubeconfig"], arguments["context"], 30, at_once(self._display))
            by_claims = any(about.found and about.found.devices for about in hosts.values())
            cluster = _Cluster.read(api, by_claims)
        for host, about in hosts.items():
            if cluster and about.choices and about.choices.named:
                about.take(about.choices.labelled(cluster.nodes.get(node_of(host, variables[host]))))
        of = {host: cluster if in_a_cluster(variables[host]) else None for host in hosts}
        nodes = [_node(host, about, variables[host], of[host]) for host, about in hosts.items()]
        resources = {host: _resources(about, node_of(host, variables[host]), of[host]) for host, about in hosts.items()}
        unplaced = usage.unplaced(cluster.pods.get("", [])) if cluster else ()
        strangers = {}
        if cluster:
            others = _not_in_inventory(cluster, task_vars)
            offered = {name: gpu_allocatable(node) for name, node in others.items()}
            strangers = {name: found for name, found in offered.items() if found}
            joined = _joined(hosts.values(), cluster, others)
            resources.update({f"node {name}" if name in hosts else name: one for name, one in joined.items()})
        read = [host for host, about in hosts.items() if about.text]
        documents = _LazyHosts(read, lambda host: hosts[host].document)

        def facts_of(names: Iterable[str]) -> _LazyHosts:
            return _LazyHosts(names, lambda host: hosts[host].facts)

        result: dict[str, Any] = {
            "changed": False,
            "unread": {host: about.unread for host, about in hosts.items() if about.unread},
            "mismatches": {host: entry.mismatches for host, entry in resources.items() if entry.mismatches},
            "total": inspection.totals(nodes, unplaced),
            "pending": inspection.waiting_dict(unplaced),
            "not_in_inventory": strangers,
        }
        # What grows with every host is made only for whom it is for.
        as_json = arguments["format"] == "json"
        if as_json or arguments["report"] or not arguments["summary"]:
            named = {node.name: node for node in nodes}
            large = {
                "hosts": documents,
                "expected": _LazyHosts(
                    (host for host, about in hosts.items() if about.found), lambda host: hosts[host].expected
                ),
                "offered": {host: entry.offered for host, entry in resources.items()} if cluster else None,
                "ledger": _LazyHosts(named, lambda name: inspection.as_dict(named[name])),
            }
            document = {**{name: result[name] for name in _SMALL}, **large}
            if not arguments["summary"]:
                result.update(
                    {name: dict(part) if isinstance(part, _LazyHosts) else part for name, part in large.items()}
                )
        if arguments["html"]:
            users = "pods" if cluster else "processes"
            by_name = {node.name: entry for node, entry in zip(nodes, resources.values())}
            page = usage_page.page(nodes, _TITLE, "", unplaced, sorted(strangers), users, by_name)
            result["changed"] = write_whole(os.path.abspath(arguments["html"]), page)
        if arguments["report"]:
            result["changed"] |= write_report(arguments["report"], document)
        if as_json:
            for text in json_lines(document, 2):
                self._display.display(text)
            return result
        width = 0 if arguments["wide"] else terminal_width()
        shown = {host: {**about.sharing, "confirmed": resources[host].confirmed} for host, about in hosts.items()}
        self._display.display("")
        for text in (
            inspection.usage_table(nodes, arguments["unit"], width),
            inspection.remarks(nodes, unplaced, strangers),
            inspection.details(nodes, arguments["unit"], width) if arguments["details"] else "",
            host_table(facts_of(read), shown, dict(zip(hosts, nodes)), width),
            settings_table(facts_of(host for host in read if hosts[host].keeps_settings), width),
            imex_table(facts_of(host for host in read if hosts[host].has_imex), width),
            resource_table(resources, width),
            arguments["note"],
        ):
            if text:
                self._display.display(text)
        return result


def _read(host: RunHost) -> _Host:
    """Return what the play knows of a host: a mistake of one host is no reason to leave the others out."""
    facts, variables = host.facts, host.variables
    if facts is None:
        return _Host("", unread=f"it could not be read: {host.unread}".rstrip("."))
    # The text that Ansible keeps anyway, and no copy of it.
    about = _Host(
        (registered(variables, "gpu_facts_host") or {}).get("gpu_text")
        or json.dumps(host.document, separators=(",", ":")),
        keeps_settings=facts.recorded.settings is not None,
        has_imex=facts.fabric.imex is not None,
    )
    description = host.description
    if description.refusals:
        about.notes += [refusal.message for refusal in description.refusals]
        return about
    desired = description.variables
    try:
        chosen = {name: value_of(name, variables) for name in VARIABLES}
        choices = read_choices({**desired, **chosen}, facts.gpus or ())
        about.match = read_match(value_of(NODE_MATCH, variables), facts.gpus) if facts.gpus else BY_NAME
    except Refused as refusal:
        about.notes += [one.message for one in refusals_of(refusal)]
        return about
    about.pool, about.choices = description.pool or "", choices
    about.take(choices.effective)
    limits = _other_limits(choices.effective.sharing, choices.effective.capacity, facts)
    about.notes += [f"{text}; gpufleet.nvidia.verify shows what to do" for text in limits]
    return about


def _other_limits(sharing: modes.Sharing, found: Capacity, facts: Facts) -> list[str]:
    """Return where an MPS daemon that runs gives its clients something else than the table says."""
    if not sharing.mps_of_plugin or not any(daemon.in_container for daemon in facts.mps or ()):
        recorded = facts.recorded.sharing is not None
        different = sharing_differences(facts, facts.gpus or (), answering=False)["sharing"] if recorded else ""
        return [different] if different else []
    limits = mps_limits_check({name: unit.replicas for name, unit in found.slices.items()}, facts)
    return [limits.evidence] if limits.status == FAILED else []


def _node(host: str, about: _Host, variables: Any, cluster: _Cluster | None) -> usage.NodeUsage:
    """Return the use of GPUs of one host: with a cluster of its pods, without one of its processes."""
    address = str(plain(variables.get("ansible_host")) or "")
    facts, notes = about.facts, [*about.notes, *([about.unread] if about.unread else [])]
    if about.text and not facts.gpus:
        notes.append(f"no GPU could be read: {facts.nvml.reason or 'there is none'}".rstrip("."))
    users = usage.users_on_host(facts)
    if cluster is None:
        return usage.node_usage(host, address, facts, about.replicas, (), (), users, about.slice_mib, notes)
    name = node_of(host, variables)
    node = cluster.nodes.get(name)
    if node is None:
        notes.append(f"the cluster has no node {name}: set gpu_node_name, or join the host to the cluster")
    else:
        listed = (node.get("status") or {}).get("addresses") or []
        address = next((str(one.get("address")) for one in listed if one.get("type") == "InternalIP"), address)
        if not is_ready(node):
            notes.append("the node is not ready")
        if is_cordoned(node):
            notes.append("the node is cordoned")
    pods = cluster.pods.get(name, [])
    claimed = cluster.claimed.get(name, ())
    shown = {holding.pod_uid for holding in claimed}
    others = [pod.title for pod in pods if pod.claims and not pod.ended and pod.uid not in shown]
    if others:
        notes.append(f"the devices that {titles(others)} got by resource claims are not shown here")
    held: Sequence[Holding] = ()
    if about.text:
        try:
            held = _holdings(registered(variables, "gpu_inspect_checkpoint") or {})
        except Refused as refusal:
            if any(pod.resources and not pod.ended for pod in pods):
                notes.append(f"which pod holds which device is not known: {refusal.message}")
    given = (*held, *claimed)
    return usage.node_usage(
        name, address, facts, about.replicas, given, pods, users, about.slice_mib, notes, about.hami
    )


def _resources(about: _Host, node: str, cluster: _Cluster | None) -> Resources:
    expected = about.found.offers if about.found else None
    if cluster is None:
        return Resources(node, about.pool, expected)
    there = cluster.nodes.get(node)
    if there is None:
        return Resources(node, about.pool, expected, True, None)
    offered = {**gpu_allocatable(there), **claims.counts(cluster.published.get(node, ()))}
    return Resources(node, about.pool, expected, True, offered)


def _holdings(answer: Mapping[str, Any]) -> Sequence[Holding]:
    """Return what the kubelet's checkpoint says. Raises Refused: it could not be read, or it is none."""
    content = plain(answer.get("content"))
    if not content:
        # Of a task that failed there is more than data in the answer.
        reason = (said(answer) or "there is none").rstrip(".")
        raise Refused("the kubelet's checkpoint of devices", reason, "See whether the kubelet runs on the host.")
    try:
        text = base64.b64decode(str(content)).decode(errors="replace")
    except ValueError as error:
        raise Refused("the kubelet's checkpoint of devices", f"it is not base64: {error}") from error
    return holdings(text)


def _not_in_inventory(cluster: _Cluster, task_vars: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the nodes that no host of the inventory stands for, whatever the play is limited to."""
    members = plain((task_vars.get("groups") or {}).get(GPU_HOSTS) or [])
    mine = {node_of(host, task_vars["hostvars"][host]) for host in members}
    return {name: node for name, node in sorted(cluster.nodes.items()) if name not in mine}


def _joined(hosts: Iterable[_Host], cluster: _Cluster, others: Mapping[str, Mapping[str, Any]]) -> dict[str, Resources]:
    """Return the nodes that joined a pool by a property and that the inventory does not know, beside what the pool's hosts show.

    These show the same, unless their boards make them several configurations: then the node shows what one of them does.
    """
    alike = {
        (about.pool, repr(about.match), repr(about.found)): (about, about.choices)
        for about in hosts
        if about.match.by_property and about.choices
    }
    found: dict[str, Resources] = {}
    for name, node in others.items() if alike else ():
        shown = [
            _resources(replace(about, found=choices.labelled(node).capacity), name, cluster)
            for about, choices in alike.values()
            if about.match.finds(about.pool, labels_of(node))
        ]
        if shown:
            found[name] = min(shown, key=lambda entry: bool(entry.mismatches))
    return found


def _slice(sharing: modes.Sharing, found: Capacity) -> dict[str, Any]:
    """What one GPU is shared into: the first resource's slice, since a pool shares its GPUs evenly."""
    for unit in found.slices.values():
        return {
            "mode": sharing.mode,
            "replicas": unit.replicas,
            "memory_mib": unit.limit_mib,
            "thread_percentage": unit.active_thread_percentage,
        }
    return {}
