# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the inventory to clusters: each distinct description is computed once, however many hosts share it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...module_utils import _injection as injection
from ...module_utils._formats.imex import MASKED
from ...module_utils._formats.imex import VARIABLE as IMEX
from ...module_utils._formats.slurm_files import elsewhere
from ...module_utils._formats.slurm_files import refuse_name as refuse_slurm_name
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._mig.desired import desired_layout
from ...module_utils._mig.state import profiles_of
from ...module_utils._migration import DRIVER, TOOLKIT, VARIABLES
from ...module_utils._plan import Refused
from ...module_utils._sharing import modes
from ..fleet.capacity import gpus_of_inventory, merged
from ..fleet.node_match import VARIABLE as NODE_MATCH
from ..fleet.node_match import devices_of
from ..fleet.node_match import read as read_match
from ..fleet.sharing_configurations import CHOICE, CONFIGURATIONS, DEFAULT, UNSHARED, together
from ..fleet.sharing_configurations import read as read_choices
from ..fleet.slurm import NotApplied, SlurmResources
from ..fleet.slurm import resources as slurm_resources
from ..fleet.slurm_node import ShownSlurmNode
from ..fleet.text import refuse_namespace, refuse_node, refuse_operator_version, refuse_runtime_class
from ..plain import plain
from ..pools import node_of, pool_of, pools
from ..role_variables import VariablesRefused, collect
from . import refused_pools
from .capacity_document import Former, ResourceKind, names
from .clusters import DescribedCluster, PluginConfiguration, content_hash, dns_label, pool_label
from .device_plugin import plugin_file
from .slurm_tree import SlurmCluster, SlurmNode, other_gres, parameters

#: The roles whose variables say what a cluster shows of a host.
ROLES = (
    "gpu_facts",
    "nvidia_driver",
    "nvidia_toolkit",
    "nvidia_mig",
    "nvidia_sharing",
    "gpu_node",
    "gpu_kubernetes",
    "gpu_slurm",
)
_PREFIX, _SLURM = "gpu_kubernetes_", "gpu_slurm_"
#: Of the toolkit, what says how a pod gets its GPU. Versions, mirrors and credentials are no business of the cluster.
_OF_TOOLKIT = (
    "nvidia_toolkit_runtime",
    "nvidia_toolkit_default_runtime",
    "nvidia_toolkit_device_injection",
    VARIABLES[TOOLKIT],
)
#: Of the driver, whether the host brings it, and whether ComputeDomains run IMEX on the host.
_OF_DRIVER = (IMEX, "nvidia_driver_state", VARIABLES[DRIVER])
#: Of the node, its name. How it is emptied is the business of the playbooks for day two.
_OF_NODE = ("gpu_node_name",)
#: Options that may differ between the hosts of a cluster.
_MAY_DIFFER = frozenset({"cluster", *(name[len(_PREFIX) :] for name in (CHOICE, DEFAULT, NODE_MATCH))})
#: Those that may differ between the nodes of a Slurm cluster.
_OF_SLURM_NODE = frozenset(
    [
        "autodetect",
        "cluster",
        "configuration",
        "jobs",
        "jobs_timeout",
        "jobs_user",
        "node_name",
        "node_parameters",
        "other_gres",
        "restart_under_jobs",
        "types",
    ]
)
_PREFIXES = (
    *(f"{role}_" for role in ROLES if role not in ("nvidia_driver", "nvidia_toolkit", "gpu_node")),
    *_OF_DRIVER,
    *_OF_NODE,
    *_OF_TOOLKIT,
)
#: What the names of variables begin with that describe a host, and not its cluster.
OF_HOST = tuple(prefix for prefix in _PREFIXES if prefix != _PREFIX)
#: Names that tasks of the collection register; they are no part of a description.
REGISTERED = (
    "gpu_facts_host",
    "gpu_facts_now",
    "gpu_facts_plan",
    "nvidia_mig_result",
    "nvidia_sharing_result",
    "gpu_kubernetes_result",
    "gpu_slurm_result",
)

Variables = Mapping[str, Any]
#: What C(gpus) of the facts document a host had when it was read, or nothing.
Recorded = Callable[[str, Variables], "Sequence[GpuFacts] | None"]
#: The configurations of a cluster's tree that was rendered before, by name.
Before = Callable[[str], Mapping[str, Former]]


@dataclass(frozen=True)
class RenderedHost:
    """A host as the generator sees it: where it belongs, and by which key it shares its computation with others."""

    host: str
    node: str
    pool: str
    cluster: str
    key: str


@dataclass(frozen=True)
class _Description:
    """What all hosts with the same key have in common."""

    desired: Mapping[str, Any]
    gpus: Sequence[GpuFacts]
    read: bool


class Fleet:
    """Reads hosts one by one and groups them into clusters and configurations.

    :param recorded: returns the GPUs of a host from facts, where there are any.
    :param before: returns what was rendered before, whose names stay.
    """

    def __init__(
        self, groups: Mapping[str, Sequence[str]], recorded: Recorded, before: Before = lambda _cluster: {}
    ) -> None:
        self._groups = groups
        self._before = before
        self._pools = pools(groups)
        self._recorded = recorded
        self._of_host: dict[str, list[str]] = {}
        for name, hosts in self._pools.items():
            for host in hosts:
                self._of_host.setdefault(host, []).append(name)
        self._descriptions: dict[str, _Description] = {}
        self._members: list[RenderedHost] = []
        #: Hosts of a Slurm cluster that are in a Kubernetes cluster, too, without that being said.
        self.in_both: list[str] = []

    @property
    def hosts(self) -> list[str]:
        return [str(host) for host in self._groups.get("gpu_hosts", ())]

    def add(self, host: str, variables: Variables, template: Callable[[Any], Any]) -> None:
        """Take in one host.

        :param variables: its variables, raw.
        :param template: renders a raw value for this host; called only where there are templates.
        :raises Refused: a variable is wrong, with the host's name.
        """
        own = {name: variables[name] for name in variables if name.startswith(_PREFIXES) and name not in REGISTERED}
        recorded = self._recorded(host, variables)
        parts = [json.dumps(own, sort_keys=True, default=str), repr(recorded) if recorded else ""]
        # Only a text has these in JSON.
        templated = any(mark in parts[0] for mark in ("{{", "{%", "{#"))
        if templated:
            parts.append(host)
        # Not the text itself, of which each host would keep a copy.
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        if key not in self._descriptions:
            try:
                self._descriptions[key] = _describe(own, template if templated else plain, recorded)
            except Refused as refusal:
                if isinstance(refusal, GpusUnknown):
                    raise GpusUnknown(f"{host}: {refusal.thing}", refusal.reason, refusal.remedy) from refusal
                refusals = refusal.refusals if isinstance(refusal, VariablesRefused) else (refusal,)
                named = [Refused(f"{host}: {one.thing}", one.reason, one.remedy) for one in refusals]
                raise VariablesRefused(named) from refusal
        desired = self._descriptions[key].desired
        pool = self._pool(host, desired.get("gpu_facts_pool"))
        if desired[f"{_SLURM}cluster"] and desired[f"{_PREFIX}cluster"] and f"{_PREFIX}cluster" not in own:
            self.in_both.append(host)
        node = node_of(host, desired)
        self._members.append(RenderedHost(host, node, pool, str(desired[f"{_PREFIX}cluster"]), key))

    def clusters(self) -> list[DescribedCluster]:
        """Return the clusters, sorted by name.

        :raises Refused: the hosts of a cluster or of a pool contradict each other, or a desired state cannot be met.
        """
        by_cluster: dict[str, list[RenderedHost]] = {}
        for member in self._members:
            if member.cluster:
                by_cluster.setdefault(member.cluster, []).append(member)
        return [self._cluster(name, members) for name, members in sorted(by_cluster.items())]

    def slurm_clusters(
        self, before: Callable[[str], Mapping[str, ShownSlurmNode]], texts: Callable[[Sequence[str]], Mapping[str, str]]
    ) -> list[SlurmCluster]:
        """Return the Slurm clusters, sorted by name.

        :param before: the nodes that a cluster's files had before. They stay, as they are now until they are as described; others are left out until then.
        :param texts: reads files of the site, by their paths.
        :raises Refused: the hosts of a cluster contradict each other, or the site, or Slurm cannot be told what is described.
        """
        by_cluster: dict[str, list[RenderedHost]] = {}
        for member in self._members:
            if self._of_slurm(member, "cluster"):
                by_cluster.setdefault(str(self._of_slurm(member, "cluster")), []).append(member)
        return [self._slurm_cluster(name, members, before(name), texts) for name, members in sorted(by_cluster.items())]

    def _of_slurm(self, member: RenderedHost, name: str) -> Any:
        return self._descriptions[member.key].desired[f"{_SLURM}{name}"]

    def _slurm_cluster(
        self,
        name: str,
        members: Sequence[RenderedHost],
        before: Mapping[str, ShownSlurmNode],
        texts: Callable[[Sequence[str]], Mapping[str, str]],
    ) -> SlurmCluster:
        _refuse_cluster_name(f"{_SLURM}cluster", name)
        options = self._of_all(_SLURM, _OF_SLURM_NODE, f"Slurm cluster {name}", members)
        nodes: dict[str, SlurmNode] = {}
        pending: dict[str, str] = {}
        behind: dict[str, str] = {}
        known: dict[str, SlurmResources | NotApplied] = {}
        for member in members:
            node = str(self._of_slurm(member, "node_name") or member.host.partition(".")[0])
            refuse_slurm_name(member.host, node)
            if node in nodes or node in pending:
                reason = f"two hosts of Slurm cluster {name} would be the node {node}"
                raise Refused(f"{member.host}: {_SLURM}node_name", reason, "Give each host a name of its own.")
            found = known.get(member.key)
            if found is None:
                found = known[member.key] = _slurm_resources(member, self._descriptions[member.key])
            if isinstance(found, NotApplied) and node in before:
                why, description = f"{found.reason}. {found.remedy}", self._descriptions[member.key]
                if not description.read:
                    raise OfFacts(f"{member.host}: {found.thing}", found.reason, found.remedy)
                found = _slurm_resources(member, description, before[node].gres)
                if isinstance(found, SlurmResources):
                    behind[node] = why
            if isinstance(found, NotApplied):
                pending[node] = f"{found.reason}. {found.remedy}"
                continue
            more = parameters(member.host, self._of_slurm(member, "node_parameters"))
            others = other_gres(member.host, self._of_slurm(member, "other_gres"))
            nodes[node] = SlurmNode(node, member.host, member.pool, found, more, others)
        for refusal in elsewhere(texts([str(path) for path in options["site_files"]]), {*nodes, *pending}):
            raise refusal
        ordered = tuple(one for _name, one in sorted(nodes.items()))
        return SlurmCluster(name, options, ordered, dict(sorted(pending.items())), behind)

    def _cluster(self, name: str, members: Sequence[RenderedHost]) -> DescribedCluster:
        _refuse_cluster_name("gpu_kubernetes_cluster", name)
        configurations: list[PluginConfiguration] = []
        by_pool: dict[str, list[RenderedHost]] = {}
        for member in members:
            refuse_node(member.host, member.node)
            by_pool.setdefault(member.pool, []).append(member)
        options = self._options(name, members)
        refuse_namespace(str(options["namespace"]))
        refuse_runtime_class(str(options["runtime_class"] or ""))
        refuse_operator_version(str(options["operator_version"] or ""))
        before = self._before(name)
        for pool, hosts in sorted(by_pool.items()):
            configurations += self._configurations(pool, hosts, before)
        refused_pools.refuse_twice(name, [node for item in configurations for node in item.nodes])
        refused_pools.refuse_same_name(name, configurations)
        refused_pools.refuse_name_of_pool(configurations)
        runtimes = {str(self._descriptions[member.key].desired["nvidia_toolkit_runtime"]) for member in members}
        return DescribedCluster(name, options, tuple(configurations), frozenset(runtimes))

    def _options(self, cluster: str, members: Sequence[RenderedHost]) -> dict[str, Any]:
        options = self._of_all(_PREFIX, _MAY_DIFFER, f"cluster {cluster}", members)
        if options["migrate_from"]:
            refused_pools.refuse_same_stack(str(options["migrate_from"]), str(options["stack"]))
            # As long as the tree has both, in either direction, it is the operator's, with the releases of the other beside it.
            options["stack"] = "gpu_operator"
        return options

    def _of_all(
        self, prefix: str, may_differ: frozenset[str], cluster: str, members: Sequence[RenderedHost]
    ) -> dict[str, Any]:
        """Return the options that belong to the cluster: all its hosts must say the same."""
        options: dict[str, Any] = {}
        origin: dict[str, RenderedHost] = {}
        for key, member in {member.key: member for member in members}.items():
            for name, value in self._descriptions[key].desired.items():
                short = name[len(prefix) :]
                if not name.startswith(prefix) or short in may_differ:
                    continue
                if short in options and options[short] != value:
                    raise Refused(
                        name,
                        f"{origin[short].host} says {options[short]!r} and {member.host} says {value!r}, and both belong to {cluster}",
                        "It is an option of the cluster: set it for all its pools alike, best in the group gpu_hosts.",
                    )
                options.setdefault(short, value)
                origin.setdefault(short, member)
        return options

    def _configurations(
        self, pool: str, members: Sequence[RenderedHost], before: Mapping[str, Former]
    ) -> list[PluginConfiguration]:
        """Return one configuration for each kind of host in a pool: hosts that the same files serve are of one kind."""
        by_key: dict[str, list[RenderedHost]] = {}
        for member in members:
            by_key.setdefault(member.key, []).append(member)
        kinds: dict[str, list[tuple[PluginConfiguration, list[RenderedHost], bool]]] = {}
        for key, hosts in by_key.items():
            description = self._descriptions[key]
            example = _configuration(pool, hosts[0].host, description)
            kinds.setdefault(example.content, []).append((example, hosts, description.read))
        named = names(
            pool,
            [
                ResourceKind(
                    content,
                    frozenset(member.node for _example, hosts, _read in parts for member in hosts),
                    not any(read for _example, _hosts, read in parts),
                )
                for content, parts in kinds.items()
            ],
            before,
        )
        found = [_together(named[content], [part[:2] for part in parts]) for content, parts in kinds.items()]
        return sorted(found, key=lambda item: (item.name != pool_label(pool), item.name))

    def _pool(self, host: str, named: str | None) -> str:
        mine = self._of_host.get(host, [])
        if not named and len(mine) == 1:
            return mine[0]
        return pool_of(host, self._pools, named)


class OfFacts(Refused):
    """What is refused follows from the facts of a host, which reading it, or a change of its driver, may correct."""


class GpusUnknown(OfFacts):
    """A host was never read, and the inventory does not say which GPUs it has."""


def _describe(own: Variables, template: Callable[[Any], Any], recorded: Sequence[GpuFacts] | None) -> _Description:
    desired = collect(own, template, ROLES)
    gpus = recorded if recorded else gpus_of_inventory(desired.get("gpu_facts_gpus") or [])
    if not gpus:
        reason = "nothing says which GPUs the host has: no GPU of it was read in this run, no facts of it are recorded, and this is empty"
        remedy = "Set it for the pool, such as [{board: h100-80gb-sxm, count: 8}], or run site.yml, or set gpu_kubernetes_facts_directory."
        raise GpusUnknown("gpu_facts_gpus", reason, remedy)
    return _Description(desired, gpus, bool(recorded))


def _refuse_cluster_name(variable: str, name: str) -> None:
    if dns_label(name) != name:
        reason = f"{name!r} is not a valid name of a cluster: it becomes a directory and a part of object names"
        remedy = f"Use lower case letters, digits and '-', such as {dns_label(name) or 'production'}."
        raise Refused(variable, reason, remedy)


def _slurm_resources(
    member: RenderedHost, description: _Description, offered: Mapping[str, int] | None = None
) -> SlurmResources | NotApplied:
    try:
        return slurm_resources(description.desired, description.gpus, offered)
    except NotApplied as refusal:
        return refusal
    except Refused as refusal:
        raise OfFacts(
            f"pool {member.pool} ({member.host}): {refusal.thing}", refusal.reason, refusal.remedy
        ) from refusal


def _configuration(pool: str, host: str, description: _Description) -> PluginConfiguration:
    desired, gpus = description.desired, description.gpus
    strategy = str(desired.get("nvidia_mig_strategy") or "none")
    compute_domains = desired[IMEX] == MASKED
    refused_pools.refuse_hand_over(pool, desired)
    # While a pool is moved, the cluster has what it had, and migrate labels the nodes that it has moved.
    brings = {
        "driver": desired["nvidia_driver_state"] in ("present", "previous") and not desired[VARIABLES[DRIVER]],
        "toolkit": desired["nvidia_toolkit_runtime"] != "none" and not desired[VARIABLES[TOOLKIT]],
    }
    layout = desired.get("nvidia_mig_layout")
    try:
        choices = read_choices(desired, gpus)
        sharing = choices.base.sharing
        match = read_match(desired[NODE_MATCH], gpus)
        decided = injection.read(desired)
        for one in (choices.own, *choices.named.values()):
            refused_pools.refuse_spread(one.sharing, one.capacity, len(gpus))
        origin = f"Pool {pool}: nvidia_mig_strategy, nvidia_sharing_*."
        of_plugin = replace(choices.own, sharing=replace(choices.own.sharing, backend="mps"))
        served = "mps" in (choices.own.sharing.backend, choices.own.sharing.migrate_from)
        text = plugin_file(strategy, of_plugin, f"pool {pool}", origin) if served else ""
        texts = {
            name: plugin_file(strategy, one, f"{CONFIGURATIONS}.{name}", f"{CONFIGURATIONS}: {name}.")
            for name, one in choices.named.items()
            if name != UNSHARED
        }
        devices = desired_layout(layout, strategy, gpus).gpus if strategy != "none" else {}
    except Refused as refusal:
        raise OfFacts(f"pool {pool} ({host}): {refusal.thing}", refusal.reason, refusal.remedy) from refusal
    return PluginConfiguration(
        name=pool,
        pool=pool,
        nodes=(),
        hosts=(),
        strategy=strategy,
        sharing=sharing,
        capacity=choices.effective.capacity,
        gpus=len(gpus),
        mig_devices={index: dict(desired.devices) for index, desired in devices.items() if desired.enabled},
        plugin_text=text,
        plugin_texts=texts,
        choices=choices,
        injection=decided,
        compute_domains=compute_domains,
        match=match,
        pci_devices=devices_of(gpus),
        profiles=profiles_of(gpus[0]),
        of_host=frozenset(name for name, true in brings.items() if true),
        content=content_hash(
            json.dumps(
                [strategy, text, decided.rendered, _of_cluster(sharing), _of_operator(desired, gpus, devices)]
                + (["ComputeDomains"] if compute_domains else [])
                + [
                    f"no {name}"
                    for name, true in brings.items()
                    if not true and desired[f"{_PREFIX}stack"] == "gpu_operator"
                ]
                + ([choices.default, texts] if texts or choices.default else [])
                + ([f"migrated from {sharing.migrate_from}"] if sharing.migrate_from else [])
                + ([json.dumps(desired[NODE_MATCH], sort_keys=True)] if match.by_property else [])
            )
        ),
    )


def _of_cluster(sharing: modes.Sharing) -> str:
    """Return what the sharing says to the cluster beside the plugin's file: neither the driver's time slice nor how replicas are written."""
    if sharing.claims_shared:
        # They are in the claims.
        return repr(sharing)
    return repr(replace(sharing, time_slice="default", replicas=0, resource_replicas=()))


def _of_operator(desired: Mapping[str, Any], gpus: Sequence[Any], devices: Mapping[int, Any]) -> list[Any]:
    """Return the layout where the operator partitions the GPUs; where the host does it, the cluster is told nothing."""
    if (desired[f"{_PREFIX}stack"], desired[f"{_PREFIX}mig_manager"]) != ("gpu_operator", "operator"):
        return []
    return [len(gpus), {index: sorted(one.devices.items()) for index, one in sorted(devices.items()) if one.enabled}]


def _together(name: str, parts: Sequence[tuple[PluginConfiguration, Sequence[RenderedHost]]]) -> PluginConfiguration:
    """Return the configuration of all hosts that the same files serve; what their nodes show may differ."""
    rows = sorted(
        (
            (member.node, member.host, example.capacity, example.choices)
            for example, members in parts
            for member in members
        ),
        key=lambda row: row[:2],
    )
    examples = [example for example, _members in parts]
    return replace(
        examples[0],
        name=name,
        nodes=tuple(row[0] for row in rows),
        hosts=tuple(row[1] for row in rows),
        capacity=merged([example.capacity for example in examples]),
        capacities=tuple(row[2] for row in rows),
        choices=together([example.choices for example in examples]),
        choices_of=tuple(row[3] for row in rows),
        gpus=max(example.gpus for example in examples),
        match=replace(
            examples[0].match, devices=tuple(sorted({one for example in examples for one in example.match.devices}))
        ),
        pci_devices=tuple(sorted({one for example in examples for one in example.pci_devices})),
    )
