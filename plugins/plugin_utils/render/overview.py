# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The README of a cluster's tree: what is shown, what holds, how to ask for it. Its words are in overview.md.j2."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from ...module_utils._sharing import modes
from ...module_utils._sharing.modes import guarantee
from ..fleet import served
from ..fleet.sharing_configurations import LABEL
from . import device_plugin, gpu_operator, requests
from .clusters import DescribedCluster, PluginConfiguration, servers
from .emit import filled
from .gitops import definition_policy, definitions
from .quotas import quotas
from .versions import DEFINITIONS, GPU_OPERATOR, tag

_MOST_GPUS = 8


def overview(cluster: DescribedCluster, charts: Collection[str]) -> str:
    """Return the text of README.md. C(charts): the names of those that its releases install."""
    items, options = cluster.configurations, cluster.options
    chosen = [item for item in cluster.plugin_configurations if item.plugin_texts or item.choices.refused]
    holds = [(_title(item), guarantee(item.sharing)) for item in items]
    flux = options["gitops"] == "flux"
    text = filled(
        "overview.md.j2",
        cluster=cluster,
        options=options,
        pools=[[_title(item), _number(item), _resources(item), _units(item)] for item in items],
        nodes=[[_title(item), ", ".join(item.nodes)] for item in items],
        joining=[
            [_title(item), _found_by(item), "; ".join(_of_host(cluster, item))]
            for item in items
            if item.match.by_property
        ],
        guarantees=[
            [title, one.counted_by, one.enforced_by, one.visible_in_nvidia_smi, one.limit or "-"]
            for title, one in holds
        ],
        sliced=[
            (item, modes.memory_text(item.sharing.slice_mib), _cheat_sheet(item, item.sharing.slice_mib))
            for item in items
            if item.sharing.slice_mib
        ],
        any_size=requests.any_size,
        distinct=requests.distinct,
        label=LABEL,
        choices=[row for item in chosen for row in _rows(cluster, item)],
        has_default=any(item.choices.default for item in chosen),
        patch=_patch(cluster) if chosen and device_plugin.operator_serves(cluster) else "",
        requests=_requests(cluster),
        quotas=_quotas(cluster) if options["quotas"] else None,
        served=served.lines(cluster.name, servers(cluster)),
        gate=served.GATE,
        of_releases=definition_policy(GPU_OPERATOR, charts) if flux and DEFINITIONS.keys() & set(charts) else "",
        operator_installed=GPU_OPERATOR in charts,
        definitions=[_definition(cluster, name) for name in definitions(cluster, charts)],
        assumed=sorted({note for item in items for note in item.capacity.assumed}),
    )
    return text.rstrip("\n") + "\n"


def _number(item: PluginConfiguration) -> str:
    return f"{len(item.nodes)} and those that join" if item.match.by_property else str(len(item.nodes))


def _found_by(item: PluginConfiguration) -> str:
    if item.match.labels:
        return ", ".join(f"`{key}={value}`" for key, value in item.match.labels.items())
    return "a GPU " + " or ".join(f"`10de:{device}`" for device in item.match.devices)


def _of_host(cluster: DescribedCluster, item: PluginConfiguration) -> list[str]:
    """Return what the hosts of nodes that join must bring: nothing in the cluster prepares a host."""
    needs = [
        f"NVIDIA's driver, and the container toolkit for `nvidia_toolkit_device_injection: {item.injection.method}`"
    ]
    by_operator = (cluster.options["stack"], cluster.options["mig_manager"]) == ("gpu_operator", "operator")
    if item.strategy != "none" and not by_operator:
        needs.append("GPUs partitioned as `nvidia_mig_layout` says")
    if item.sharing.mps_of_host:
        needs.append("the MPS daemon of `nvidia_sharing_mps_manager: host`")
    if item.compute_domains:
        needs.append("IMEX masked")
    return needs


def _rows(cluster: DescribedCluster, item: PluginConfiguration) -> list[list[str]]:
    """Return what the nodes of a pool can choose by their label."""
    rows = []
    labelled = device_plugin.operator_serves(cluster) and not item.choices.default
    for label, name in sorted(device_plugin.names_of_choices(cluster, item).items()):
        one = item.choices.named[name] if name else item.choices.own
        shown = ", ".join(f"`{resource}: {count}`" for resource, count in sorted(one.capacity.resources.items()))
        nodes = [node for node, mine in zip(item.nodes, item.choices_of, strict=True) if name and mine.chosen == name]
        if name == item.choices.default:
            nodes.append("the other nodes" if labelled else "nodes without the label")
        rows.append([_title(item), f"`{label}`", shown or "none", ", ".join(nodes) or "-"])
    rows += [
        [_title(item), f"`{name}`", f"not in this pool: {why.reason}", "-"]
        for name, why in sorted(item.choices.refused.items())
    ]
    return rows


def _patch(cluster: DescribedCluster) -> str:
    """Return what the rendered values say of the device plugin's configuration, for a ClusterPolicy."""
    name = device_plugin.shared_config_map(cluster, gpu_operator.strategy_of(cluster))["metadata"]["name"]
    config = {"name": name, "default": gpu_operator.default_of(cluster)}
    return json.dumps({"spec": {"devicePlugin": {"config": config}}})


def _requests(cluster: DescribedCluster) -> list[list[str]]:
    """Return which pool serves each request of C(gpu_kubernetes_requests), and why another does not."""
    rows = []
    for one in requests.answers(cluster):
        distinct = "-"
        if one.refusal:
            said = one.refusal.reason
        elif one.share:
            said = requests.written(one.item, one.share.gpus, one.share.per_gpu_mib)
            said += f": `examples/{requests.file_of(one.item, one.share)}`"
            distinct = requests.distinct(one.item) if one.share.gpus > 1 else "-"
        else:
            said = f"{requests.written_devices(one)}: `examples/{requests.file_of_devices(one)}`"
        rows.append([one.text, _title(one.item), said, distinct])
    return rows


def _quotas(cluster: DescribedCluster) -> dict[str, Any]:
    """Return what each team may use of each pool, and what is left over."""
    found = quotas(cluster)
    rows = []
    for (pool, resource), offered in found.offered.items():
        given = [found.of_pool(cluster, team, pool, resource) for team in found.teams]
        rows.append([pool, f"`{resource}`", *map(str, (offered, *given, offered - sum(given)))])
    queues = cluster.options["quota_kind"] == "kueue"
    places = ", ".join(f"{team.name}: `{team.queue if queues else team.namespaces[0]}`" for team in found.teams)
    head = ["pool", "resource", "offered", *(team.name for team in found.teams), "left over"]
    return {"head": head, "rows": rows, "places": places}


def _definition(cluster: DescribedCluster, name: str) -> list[str]:
    found = DEFINITIONS[name]
    without = f", without `{found.exclude}`" if found.exclude else ""
    return [name, f"{found.repository}, `{found.path}`{without}", f"`{tag(cluster.chart(name))}`"]


def _title(item: PluginConfiguration) -> str:
    return item.pool if item.name == item.pool else f"{item.pool} ({item.name})"


def _resources(item: PluginConfiguration) -> str:
    return ", ".join(f"`{name}: {count}`" for name, count in sorted(item.capacity.offers.items())) or "none"


def _units(item: PluginConfiguration) -> str:
    parts = []
    for name, unit in sorted(item.capacity.slices.items()):
        size = f"{unit.limit_mib or unit.memory_mib} MiB" if unit.memory_mib else "memory not known"
        if unit.active_thread_percentage and unit.active_thread_percentage < 100:
            size += f" and {unit.active_thread_percentage}% of the threads"
        of = f", {unit.replicas} on a device" if unit.replicas > 1 else ""
        parts.append(f"`{name}`: {size}{of}")
    return "; ".join(parts) or "-"


def _cheat_sheet(item: PluginConfiguration, size: int) -> list[list[str]]:
    rows = []
    for gpus in range(1, min(item.gpus, _MOST_GPUS) + 1):
        limits = requests.written(item, gpus, size)
        rows.append([modes.memory_text(size * gpus), str(gpus), modes.memory_text(size), limits])
        if gpus > 1 and item.sharing.gpus_per_pod == 1 and item.sharing.backend == "mps":
            rows[-1][3] = "refused: nvidia_sharing_gpus_per_pod is 1"
            break
    return rows
