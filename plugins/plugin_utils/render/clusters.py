# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the generator works on: clusters, and in each the configurations of its pools."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...module_utils._boards.board import GpuInstanceProfile
from ...module_utils._injection import Injection
from ...module_utils._sharing.host import RENAMED
from ...module_utils._sharing.modes import Sharing
from ...module_utils._sharing.mps_instances import mig_resource
from ..fleet import clients
from ..fleet.capacity import Capacity
from ..fleet.claims import GPU_CLASS, mig_devices
from ..fleet.node_match import BY_NAME, NodeMatch
from ..fleet.served import GPU, SERVERS, Served
from ..fleet.sharing_configurations import Choices
from ..fleet.text import CONFIGURATION_LABEL, LABEL_PREFIX
from .versions import CHARTS, GPU_OPERATOR, Chart

#: On nodes that something else than the device plugin serves: its name.
BACKEND_LABEL = f"{LABEL_PREFIX}/backend"
EXEMPT_LABEL = f"{LABEL_PREFIX}/exempt"

#: By this label the GPU Operator keeps its device plugin away from a node.
DEPLOY_PLUGIN_LABEL = "nvidia.com/gpu.deploy.device-plugin"
#: What the GPU Operator can bring in place of the hosts, by its name in the operator's values: the label that keeps it away from a node.
DEPLOY_LABELS = {"driver": "nvidia.com/gpu.deploy.driver", "toolkit": "nvidia.com/gpu.deploy.container-toolkit"}
MANAGED_BY = {"app.kubernetes.io/managed-by": "gpufleet"}


def kube_object(
    api_version: str, kind: str, name: str, labels: Mapping[str, str] | None = None, namespace: Any = None, **rest: Any
) -> dict[str, Any]:
    """Return a Kubernetes object; its keys, and those of its metadata, are in the usual order."""
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = str(namespace)
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


@dataclass(frozen=True)
class PluginConfiguration:
    """Hosts of one pool that the same files serve; most pools have one.

    :param name: of the configuration, a DNS label: the pool's name, for a second one with a suffix; it stays with its nodes.
    :param hosts: inventory names, in the order of C(nodes).
    :param sharing: of a node that chooses no named configuration.
    :param capacity: what all nodes together show: of every resource the highest count, of the labels those that all have.
    :param gpus: of the node that has most.
    :param mig_devices: MIG devices of each GPU by index, C({0: {1g.10gb: 2}}); a GPU without MIG is missing.
    :param plugin_text: the device plugin's configuration file, as C(nvidia_sharing_*) describe it.
    :param compute_domains: whether ComputeDomains of the DRA driver run IMEX on the hosts: C(nvidia_driver_imex) is C(masked).
    :param content: a hash of what serves the nodes, and so tells this configuration from others of the pool.
    :param capacities: what each node shows, in the order of C(nodes).
    :param plugin_texts: the device plugin's files of the named configurations, by name.
    :param choices_of: the choices of each node, in the order of C(nodes).
    :param of_host: which of L(DEPLOY_LABELS) its hosts bring themselves.
    """

    name: str
    pool: str
    nodes: tuple[str, ...]
    hosts: tuple[str, ...]
    strategy: str
    sharing: Sharing
    capacity: Capacity
    gpus: int
    mig_devices: Mapping[int, Mapping[str, int]]
    plugin_text: str
    choices: Choices
    injection: Injection
    compute_domains: bool = False
    content: str = ""
    capacities: tuple[Capacity, ...] = ()
    plugin_texts: Mapping[str, str] = field(default_factory=dict)
    choices_of: tuple[Choices, ...] = ()
    match: NodeMatch = BY_NAME
    pci_devices: tuple[str, ...] = ()
    profiles: tuple[GpuInstanceProfile, ...] = ()
    of_host: frozenset[str] = frozenset(DEPLOY_LABELS)

    @property
    def selector(self) -> dict[str, str]:
        """The labels by which releases and pods select its nodes."""
        return dict(self.match.labels) or {CONFIGURATION_LABEL: self.name}

    @property
    def unless_labelled(self) -> list[dict[str, Any]]:
        """What keeps a release that selects a group of nodes away from those that Node Feature Discovery gave another pool."""
        return [{"key": CONFIGURATION_LABEL, "operator": "DoesNotExist"}] if self.match.labels else []

    @property
    def served_by_device_plugin(self) -> bool:
        """Whether the device plugin serves its nodes, or, while it is migrated, some of them."""
        return "mps" in (self.sharing.backend, self.sharing.migrate_from)

    @property
    def served_by_dra(self) -> bool:
        """Whether the DRA driver serves its nodes, or, while it is migrated, some of them."""
        return "dra" in (self.sharing.backend, self.sharing.migrate_from)

    @property
    def labelled_backend(self) -> str:
        """What the node's labels say: while the pool is migrated what they said before, or all its nodes would move at once."""
        return self.sharing.migrate_from or self.sharing.backend

    @property
    def named_classes(self) -> dict[str, str]:
        """The devices of claims that pods can request as an extended resource, too, and its name, which is that of the device plugin.

        Shares of memory are no device that such a request could have. MIG devices of the strategy single have the name of whole GPUs.
        """
        if not self.served_by_dra or self.sharing.consumed:
            return {}
        found = {GPU_CLASS: GPU}
        if self.strategy == "mixed":
            profiles = {profile for devices in self.mig_devices.values() for profile in devices}
            found.update({mig_devices(profile): mig_resource(profile) for profile in sorted(profiles)})
        return found

    @property
    def requestable(self) -> set[str]:
        """The extended resources that a node can offer, whichever configuration it chooses, and before it was migrated, too."""
        others = [*self.choices.named.values(), *([self.choices.before] if self.choices.before else [])]
        shown = [self.capacity, *(one.capacity for one in others)]
        served = {name for kind, name in self.named_classes.items() if kind in self.capacity.devices}
        return served.union(*(one.resources for one in shown))

    @property
    def origin(self) -> str:
        # Not the number of nodes: a file that serves some nodes does not change with others.
        return f"pool {self.pool}"


@dataclass(frozen=True)
class DescribedCluster:
    """One cluster, one directory; C(options) are C(gpu_kubernetes_*) without that prefix, C(runtimes) those of its hosts."""

    name: str
    options: Mapping[str, Any]
    configurations: tuple[PluginConfiguration, ...]
    runtimes: frozenset[str] = frozenset()

    @property
    def plugin_configurations(self) -> tuple[PluginConfiguration, ...]:
        return tuple(item for item in self.configurations if item.served_by_device_plugin)

    @property
    def of_dra_driver(self) -> tuple[PluginConfiguration, ...]:
        """Return what the DRA driver serves: claims for GPUs, or ComputeDomains, or both."""
        return tuple(item for item in self.configurations if item.served_by_dra or item.compute_domains)

    @property
    def only_moved(self) -> list[dict[str, Any]]:
        """What keeps the releases of one stack to the nodes that were moved to it, as long as the tree has the GPU Operator, too."""
        moved = {"key": clients.STACK_LABEL, "operator": "In", "values": [clients.OWN_STACK]}
        return [moved] if self.options["migrate_from"] else []

    def pools_that_bring(self, what: str) -> tuple[list[str], list[str]]:
        """Return the pools whose hosts bring one of L(DEPLOY_LABELS) themselves, and those whose hosts do not."""
        pools = [
            {item.pool for item in self.configurations if (what in item.of_host) is of_host}
            for of_host in (True, False)
        ]
        return sorted(pools[0]), sorted(pools[1])

    def chart(self, name: str) -> Chart:
        """Return a chart at the version that is installed: the pinned one, or, of the GPU Operator, the one that the cluster has and keeps."""
        kept = str(self.options["operator_version"] or "") if name == GPU_OPERATOR else ""
        return replace(CHARTS[name], version=kept) if kept else CHARTS[name]

    def with_backend(self, backend: str) -> tuple[PluginConfiguration, ...]:
        return tuple(item for item in self.configurations if item.sharing.backend == backend)


def servers(cluster: DescribedCluster) -> tuple[Served, ...]:
    """Return the nodes on which a pod that requests GPUs or MIG devices by name may land, and who serves them."""
    found = []
    for item in cluster.configurations:
        before = item.labelled_backend
        if before not in SERVERS:
            continue
        to = SERVERS[item.sharing.backend] if item.sharing.migrate_from else ""
        # Nodes that are described alike have one capacity in common, and there are thousands of them.
        of_capacity: dict[int, tuple[str, ...]] = {}
        for node, shown in zip(item.nodes, item.capacities, strict=True):
            if id(shown) not in of_capacity:
                of_capacity[id(shown)] = _requested(shown, item.named_classes)
            if of_capacity[id(shown)]:
                found.append(Served(node, item.pool, SERVERS[before], to, of_capacity[id(shown)]))
    return tuple(found)


def _requested(shown: Capacity, classes: Mapping[str, str]) -> tuple[str, ...]:
    """Return what pods request by name of a node with this capacity."""
    names = [name for name in shown.resources if not name.endswith(RENAMED)]
    return tuple(sorted((*names, *(name for kind, name in classes.items() if kind in shown.devices))))


#: Helm takes names of releases up to 53 characters: nvidia-device-plugin-, this, and -1234 where a pool has several configurations.
_LONGEST_OF_POOL = 27


def dns_label(name: str, longest: int = 40) -> str:
    """Return C(name) as a DNS label of at most C(longest) characters."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if len(label) <= longest and label:
        return label
    return f"{label[: longest - 9].strip('-')}-{content_hash(name)}".strip("-")


def pool_label(pool: str) -> str:
    """Return what the configurations and releases of C(pool) are named after."""
    return dns_label(pool, _LONGEST_OF_POOL)


def plugin_key(configuration: PluginConfiguration) -> str:
    """Return the key of a configuration's file in the one ConfigMap of a GPU Operator, which nodes name in a label.

    It changes with the content: the plugin's config-manager looks at the label and nothing else. The ConfigMap keeps its name, because
    a new one would restart the plugin on the nodes of all pools.
    """
    return hashed_key(configuration.name, configuration.plugin_text)


def hashed_key(name: str, text: str) -> str:
    """Return a key that changes with the content of its file."""
    return f"{name}-{content_hash(text)}"


def content_hash(text: str) -> str:
    """Return eight characters that change when C(text) does."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


#: Pods that hold the driver leave a node while it changes, by the label of gpu_clients.
NOT_PAUSED = {"key": clients.LABEL, "operator": "NotIn", "values": [clients.PAUSED]}


def client_affinity(*expressions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the affinity of pods that hold the driver, with further conditions on the node's labels."""
    return any_of([*expressions, NOT_PAUSED])


def any_of(*terms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the affinity to nodes that meet all expressions of one of the terms."""
    found = [{"matchExpressions": list(term)} for term in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}}
