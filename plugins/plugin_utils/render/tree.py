# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of one cluster, as a mapping from path to text."""

from __future__ import annotations

from typing import Any

from ...module_utils._plan import Refused
from . import addons, claimed_devices, device_plugin, gpu_operator, injection, refused_pools
from .capacity_document import capacity_document
from .clusters import EXEMPT_LABEL, DescribedCluster
from .emit import documents, json_text, made, yaml_text
from .examples import examples
from .gitops import MONITORING, NODE_LABELS, OBJECTS, QUOTAS, Release, argocd, flux, kept
from .helm_values import merged, refuse_unknown_charts
from .overview import overview
from .quotas import quota_objects
from .versions import OWN_CHART, OWN_CHART_VERSION, Chart

_MADE_BY = "Rendered by gpufleet.nvidia.render."


def cluster_tree(cluster: DescribedCluster) -> dict[str, str]:
    """Return every file of C(cluster) by its path; refuse pools that cannot be served together, and values without effect."""
    refuse_unknown_charts(cluster)
    injection.refuse_contradictions(cluster)
    refused_pools.refuse_mixed_backends(cluster)
    refused_pools.refuse_migration(cluster)
    refused_pools.refuse_change_of_stack(cluster)
    refused_pools.refuse_matches(cluster)
    files: dict[str, str] = {}
    config_maps: list[dict[str, Any]] = []
    releases = _plugin_releases(cluster, files, config_maps) + _addon_releases(cluster, files)
    files.update(_objects(cluster, config_maps))
    own = files[f"values/{OWN_CHART}.yaml"] = _own_chart(cluster, config_maps)
    if cluster.options["chart_repository"]:
        chart = Chart(OWN_CHART, OWN_CHART_VERSION, str(cluster.options["chart_repository"]))
        first = cluster.options["objects"] == "chart"
        releases.append(Release(OWN_CHART, chart, f"values/{OWN_CHART}.yaml", own, first))
    files.update(_node_labels(cluster))
    files.update(_monitoring(cluster))
    files.update(_quotas(cluster))
    folders = {path.partition("/")[0] for path in files}
    files.update(_gitops(cluster, releases, [name for name in (NODE_LABELS, MONITORING, QUOTAS) if name in folders]))
    files["kustomization.yaml"] = _kustomization(cluster, files)
    if cluster.options["examples"]:
        files.update({f"examples/{name}": text for name, text in examples(cluster).items()})
    files["capacity.json"] = json_text(capacity_document(cluster))
    files["README.md"] = overview(cluster, {release.chart.name for release in releases})
    return dict(sorted(files.items()))


def _plugin_releases(
    cluster: DescribedCluster, files: dict[str, str], config_maps: list[dict[str, Any]]
) -> list[Release]:
    served = cluster.plugin_configurations
    if not served:
        refused_pools.refuse_nobody_partitions(cluster)
        return []
    releases = []
    for item in served if cluster.options["stack"] == "device_plugin" or cluster.options["migrate_from"] else ():
        config_maps.append(device_plugin.config_map(cluster, item))
        name = f"{device_plugin.CHART}-{item.name}"
        releases.append(_release(cluster, files, name, device_plugin.CHART, device_plugin.values(cluster, item)))
    if cluster.options["stack"] == "device_plugin":
        return releases
    shared = device_plugin.shared_config_map(cluster, gpu_operator.strategy_of(cluster))
    config_maps.append(shared)
    mig_name = None
    if cluster.options["mig_manager"] == "operator":
        mig = gpu_operator.mig_config_map(cluster)
        config_maps.append(mig)
        mig_name = str(mig["metadata"]["name"])
    text = gpu_operator.values(cluster, shared, mig_name)
    return [*releases, _release(cluster, files, gpu_operator.CHART, gpu_operator.CHART, text)]


def _addon_releases(cluster: DescribedCluster, files: dict[str, str]) -> list[Release]:
    values: dict[str, str] = {}
    operator = device_plugin.operator_serves(cluster)
    if cluster.options["node_feature_discovery"] and not operator:
        values[addons.NODE_FEATURE_DISCOVERY] = addons.node_feature_discovery(cluster)
    if cluster.options["dcgm_exporter"] and (not operator or cluster.options["migrate_from"]):
        values[addons.DCGM_EXPORTER] = addons.dcgm_exporter(cluster)
    hami, dra = cluster.with_backend("hami"), cluster.of_dra_driver
    if hami:
        values[addons.HAMI] = addons.hami(cluster, hami)
    if dra:
        values[addons.DRA_DRIVER] = addons.dra_driver(cluster, dra)
    return [_release(cluster, files, chart, chart, text) for chart, text in values.items()]


def _release(cluster: DescribedCluster, files: dict[str, str], name: str, chart: str, text: str) -> Release:
    path = f"values/{name}.yaml"
    files[path] = text
    return Release(name, cluster.chart(chart), path, text)


def _objects(cluster: DescribedCluster, config_maps: list[dict[str, Any]]) -> dict[str, str]:
    files = {
        "objects/namespace.yaml": documents(f"{_MADE_BY} gpu_kubernetes_namespace.", [device_plugin.namespace(cluster)])
    }
    named = claimed_devices.named_classes(cluster)
    if named:
        header = f"{_MADE_BY} nvidia_mig_*: pods of DRA pools can request MIG devices by these extended resources, too."
        files["objects/device-classes.yaml"] = documents(header, named)
    if cluster.options["objects"] != "manifests":
        return files
    if device_plugin.has_runtime_class(cluster):
        text = documents(f"{_MADE_BY} gpu_kubernetes_runtime_class.", [device_plugin.runtime_class(cluster)])
        files["objects/runtime-class.yaml"] = text
    for config_map in config_maps:
        name = str(config_map["metadata"]["name"])
        header = f"{_MADE_BY} nvidia_mig_*, nvidia_sharing_*."
        header += " The name ends in a hash of the content." if config_map["immutable"] else ""
        item = device_plugin.annotated(config_map, kept(cluster))
        files[f"objects/{name.rpartition('-')[0]}.yaml"] = documents(header, [item])
    return files


def _node_labels(cluster: DescribedCluster) -> dict[str, str]:
    """With NFD the labels are a rule that is synced like any object; without it they are applied by hand."""
    if cluster.options["node_feature_discovery"]:
        items = [item for item in cluster.configurations if not item.match.labels]
        if not items:
            return {}
        by = " or by a GPU on their PCI bus" if any(item.match.devices for item in items) else ""
        header = f"{_MADE_BY} The nodes of each pool, by name{by}."
        rule = device_plugin.node_feature_rule(cluster, items)
        return {f"{NODE_LABELS}/pools.yaml": documents(header, [rule])}
    header = (
        f"{_MADE_BY} Apply with: kubectl apply --server-side --field-manager=gpufleet -f node-labels.yaml\n"
        "Keep it away from controllers that prune: pruning a Node object removes the node."
    )
    nodes = device_plugin.node_labels(cluster, [item for item in cluster.configurations if not item.match.labels])
    return {"node-labels.yaml": documents(header, nodes)}


def _monitoring(cluster: DescribedCluster) -> dict[str, str]:
    files = {}
    if cluster.options["prometheus_rule"]:
        header = f"{_MADE_BY} gpu_kubernetes_prometheus_rule: needs the Prometheus operator's CRDs."
        files[f"{MONITORING}/prometheus-rule.yaml"] = documents(header, [addons.prometheus_rule(cluster)])
    if cluster.options["grafana_dashboard"]:
        header = f"{_MADE_BY} gpu_kubernetes_grafana_dashboard: the sidecar of Grafana's chart takes it by its label."
        files[f"{MONITORING}/dashboard.yaml"] = documents(header, [addons.dashboard_config_map(cluster)])
    return files


def _quotas(cluster: DescribedCluster) -> dict[str, str]:
    if not cluster.options["quotas"]:
        return {}
    needs = " They need Kueue's CRDs." if cluster.options["quota_kind"] == "kueue" else ""
    return {f"{QUOTAS}/quotas.yaml": documents(f"{_MADE_BY} gpu_kubernetes_quotas.{needs}", quota_objects(cluster))}


def _own_chart(cluster: DescribedCluster, config_maps: list[dict[str, Any]]) -> str:
    chart = cluster.options["objects"] == "chart"
    items = cluster.configurations
    values = made(
        "own_chart",
        options=cluster.options,
        creates_class=chart and device_plugin.has_runtime_class(cluster),
        exempt_label=EXEMPT_LABEL,
        policies=injection.policy_values(cluster),
        resources=[(item, resource) for item in items for resource in sorted(item.capacity.resources)],
        claims=[
            (item, kind, claimed_devices.devices(item, kind)) for item in items for kind in claimed_devices.kinds(item)
        ],
    )
    if chart:
        values["configMaps"] = {item["metadata"]["name"]: item["data"] for item in config_maps}
    header = (
        f"# {_MADE_BY} Values for the chart {OWN_CHART} (charts/{OWN_CHART} of the collection's repository).\n---\n"
    )
    return header + yaml_text(merged(values, cluster.options["values"].get(OWN_CHART) or {}))


def _gitops(cluster: DescribedCluster, releases: list[Release], folders: list[str]) -> dict[str, str]:
    kind = cluster.options["gitops"]
    if kind == "none":
        return {}
    needed = {"argocd": "gitops_repository", "flux": "gitops_source"}[kind]
    if not cluster.options[needed]:
        raise Refused(
            f"gpu_kubernetes_{needed}",
            f"gpu_kubernetes_gitops: {kind} needs to know where the tree will be",
            "Set it to the URL of the Git repository."
            if kind == "argocd"
            else "Set it to the name of the GitRepository object.",
        )
    if cluster.options["objects"] == "chart" and not cluster.options["chart_repository"]:
        reason = f"gpu_kubernetes_objects: chart leaves the ConfigMaps to the chart {OWN_CHART}, and without its repository {kind} cannot install it"
        remedy = f"Publish charts/{OWN_CHART} and set the URL, or set gpu_kubernetes_objects: manifests."
        raise Refused("gpu_kubernetes_chart_repository", reason, remedy)
    rendered = (argocd if kind == "argocd" else flux)(cluster, releases, folders)
    return {f"{kind}/{name}.yaml": documents(_MADE_BY, items) for name, items in rendered.items()}


def _kustomization(cluster: DescribedCluster, files: dict[str, str]) -> str:
    """Return what a controller applies that is pointed at the cluster's directory: objects alone, no values and no examples.

    With a GitOps controller these are its own objects, which sync everything else.
    """
    kind = cluster.options["gitops"]
    folders = (OBJECTS, NODE_LABELS, MONITORING, QUOTAS) if kind == "none" else (kind,)
    item = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(path for path in files if path.partition("/")[0] in folders),
    }
    return documents(f"{_MADE_BY} Point kubectl apply -k or a GitOps controller at this directory.", [item])
