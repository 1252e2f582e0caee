# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects for GitOps controllers: an Argo CD Application or a Flux HelmRelease for each release of the tree.

Nothing here waits for what comes later. The order is a help, not a condition: every sync is tried again until it succeeds, because
what it needs (the namespace, the custom resources of Node Feature Discovery) is another application's. The labels of the nodes are
an application of their own: as a part of the plain objects they would keep the namespace away until Node Feature Discovery runs,
which needs the namespace. So are the alerts, whose custom resource is that of a Prometheus operator, and the dashboard.

Custom resource definitions are applications of Argo CD of their own, too, one for each project, and no release carries them. Argo CD compares what
it is to apply by server-side apply with the definitions that the cluster I(has): a release that brings an object with a new field, and the definition
of that field, is never synced. Two charts have some definitions in common. And a definition that goes takes its objects with it, users'
ones included: nothing here prunes one, and no finalizer of an Application removes one.

With Flux releases carry them. helm-controller applies those of a chart before its release, and no HelmRelease can wait for a Kustomization: an object
that came before its definition would lose its new fields, silently and for as long as it does not change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from .clusters import MANAGED_BY, DescribedCluster, kube_object
from .versions import DEFINITIONS, DRA_DRIVER, GPU_OPERATOR, NODE_FEATURE_DISCOVERY, Chart, tag

#: The folders of the tree whose objects are synced as they are.
OBJECTS = "objects"
NODE_LABELS = "node-labels"
MONITORING = "monitoring"
QUOTAS = "quotas"

#: Values of gpu_kubernetes_automated_sync.
NONE, PRUNE = "none", "prune"
_OBJECTS_WAVE, _DISCOVERY_WAVE, _REST_WAVE = "0", "1", "2"
#: Charts that bring what labels the nodes.
_DISCOVERY = frozenset({NODE_FEATURE_DISCOVERY, GPU_OPERATOR})
#: In the names of what brings definitions.
_DEFINITIONS = "crds"


@dataclass(frozen=True)
class Release:
    """One Helm release: its values as text and the path of their file in the cluster's directory; C(first) where others cannot start without it."""

    name: str
    chart: Chart
    values_path: str
    values: str
    first: bool = False


def kept(cluster: DescribedCluster) -> dict[str, str]:
    """Return annotations of an object that the controller makes and never removes.

    The namespace is one, because everything else is in it. A ConfigMap with a hash in its name is another: pods that were started with
    it, and are not replaced yet, need it at the next start of their node.
    """
    if cluster.options["gitops"] == "argocd":
        return {
            "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
            "argocd.argoproj.io/compare-options": "IgnoreExtraneous",
        }
    if cluster.options["gitops"] == "flux":
        return {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
    return {}


def definitions(cluster: DescribedCluster, charts: Collection[str]) -> list[str]:
    """Return the charts of L(versions.DEFINITIONS) whose definitions a cluster with releases of C(charts) needs beside them."""
    return [] if cluster.options["gitops"] == "flux" else needed_definitions(cluster, charts)


def needed_definitions(cluster: DescribedCluster, charts: Collection[str]) -> list[str]:
    """Return the charts whose definitions a cluster with releases of C(charts) needs, whoever applies them."""
    needed = {*charts}
    if GPU_OPERATOR in needed:
        needed.add(DRA_DRIVER)
    if not cluster.options["node_feature_discovery"]:
        needed.discard(NODE_FEATURE_DISCOVERY)
    elif GPU_OPERATOR in needed:
        needed.add(NODE_FEATURE_DISCOVERY)
    return sorted(needed & DEFINITIONS.keys())


def definition_policy(chart: str, charts: Collection[str]) -> str:
    """Return what a HelmRelease of Flux does with the definitions of its chart, where C(charts) are released.

    Those of ComputeDomains belong to the DRA driver, and its chart's differ from the operator's, of which a hook upgrades the others.
    """
    return "Create" if chart == GPU_OPERATOR and DRA_DRIVER in charts else "CreateReplace"


def argocd(
    cluster: DescribedCluster, releases: Sequence[Release], folders: Sequence[str]
) -> dict[str, list[Mapping[str, Any]]]:
    """Return, by file name, Applications: for the plain objects, and for each release, whose values come from the repository.

    :param folders: the folders of the tree, beside the plain objects, whose objects are synced as they are.
    """
    files: dict[str, list[Mapping[str, Any]]] = {"objects": [_directory(cluster, OBJECTS, _OBJECTS_WAVE)]}
    for chart in definitions(cluster, {release.chart.name for release in releases}):
        files[f"{_DEFINITIONS}-{chart}"] = [_definitions_application(cluster, chart)]
    for folder in folders:
        files[folder] = [_directory(cluster, folder, _REST_WAVE)]
    for release in releases:
        files[release.name] = [_application(cluster, release)]
    return files


def _application(cluster: DescribedCluster, release: Release) -> dict[str, Any]:
    chart = release.chart
    repository = chart.repository[len("oci://") :] if chart.repository.startswith("oci://") else chart.repository
    sources = [
        {
            "repoURL": repository,
            "chart": chart.name,
            "targetRevision": chart.version,
            "helm": {
                "releaseName": release.name,
                "valueFiles": [f"$tree/{_path(cluster)}/{release.values_path}"],
                **({"skipCrds": True} if chart.name in DEFINITIONS else {}),
            },
        },
        {
            "repoURL": cluster.options["gitops_repository"],
            "targetRevision": cluster.options["gitops_revision"],
            "ref": "tree",
        },
    ]
    wave = _OBJECTS_WAVE if release.first else _DISCOVERY_WAVE if chart.name in _DISCOVERY else _REST_WAVE
    # Until another Application has taken its definitions over, those of an earlier tree count as objects that are no longer in it.
    return _argocd_object(cluster, release.name, {"sources": sources}, wave, prunes=chart.name not in DEFINITIONS)


def application_of_definitions(cluster: DescribedCluster, chart: str) -> str:
    return f"{cluster.name}-gpufleet-{_DEFINITIONS}-{chart}"


def _directory(cluster: DescribedCluster, folder: str, wave: str) -> dict[str, Any]:
    source = {
        "repoURL": cluster.options["gitops_repository"],
        "targetRevision": cluster.options["gitops_revision"],
        "path": f"{_path(cluster)}/{folder}",
    }
    return _argocd_object(cluster, f"gpufleet-{folder}", {"source": source}, wave)


def _definitions_application(cluster: DescribedCluster, chart: str) -> dict[str, Any]:
    found = DEFINITIONS[chart]
    source: dict[str, Any] = {
        "repoURL": found.repository,
        "targetRevision": tag(cluster.chart(chart)),
        "path": found.path,
    }
    if found.exclude:
        source["directory"] = {"exclude": found.exclude}
    item = _argocd_object(cluster, f"gpufleet-{_DEFINITIONS}-{chart}", {"source": source}, _OBJECTS_WAVE, prunes=False)
    del item["metadata"]["finalizers"]
    return item


def _argocd_object(
    cluster: DescribedCluster, name: str, source: Mapping[str, Any], wave: str, prunes: bool = True
) -> dict[str, Any]:
    found = kube_object("argoproj.io/v1alpha1", "Application", f"{cluster.name}-{name}", MANAGED_BY, "argocd")
    found["metadata"]["annotations"] = {"argocd.argoproj.io/sync-wave": wave}
    if name != f"gpufleet-{OBJECTS}":
        # A pool that is no longer needed takes its release with it; the namespace and what others keep in it stay.
        found["metadata"]["finalizers"] = ["resources-finalizer.argocd.argoproj.io"]
    automated = cluster.options["automated_sync"]
    options = ["ServerSideApply=true"]
    if name in (f"gpufleet-{NODE_LABELS}", f"gpufleet-{MONITORING}", f"gpufleet-{QUOTAS}"):
        options.append("SkipDryRunOnMissingResource=true")
    found["spec"] = {
        "project": cluster.options["gitops_project"],
        **source,
        "destination": {"name": cluster.options["gitops_destination"], "namespace": cluster.options["namespace"]},
        "syncPolicy": {
            **({"automated": {"prune": prunes and automated == PRUNE, "selfHeal": True}} if automated != NONE else {}),
            "syncOptions": options,
            # A failed sync of a revision is not tried again otherwise, even when what it needs has come.
            "retry": {"limit": -1, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "3m"}},
        },
    }
    return found


def flux(
    cluster: DescribedCluster, releases: Sequence[Release], folders: Sequence[str]
) -> dict[str, list[Mapping[str, Any]]]:
    """Return, by file name, Kustomizations for the plain objects and folders, and a source and a HelmRelease for each release."""
    files: dict[str, list[Mapping[str, Any]]] = {"objects": [_kustomization(cluster, OBJECTS)]}
    for folder in folders:
        files[folder] = [_kustomization(cluster, folder)]
    charts = {release.chart.name: release.chart for release in releases}
    for name, chart in sorted(charts.items()):
        files[f"source-{name}"] = [_helm_repository(chart)]
    names = {release.name for release in releases}
    for release in releases:
        files[release.name] = [_helm_release(cluster, release, yaml.safe_load(release.values) or {}, names)]
    return files


def _helm_repository(chart: Chart) -> dict[str, Any]:
    spec: dict[str, Any] = {"interval": "1h", "url": chart.repository}
    if chart.repository.startswith("oci://"):
        spec["type"] = "oci"
    return _flux_object("source.toolkit.fluxcd.io/v1", "HelmRepository", chart.name, spec)


def _flux_object(api_version: str, kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return kube_object(api_version, kind, name, MANAGED_BY, "flux-system", spec=spec)


def _helm_release(
    cluster: DescribedCluster, release: Release, values: Mapping[str, Any], names: Collection[str]
) -> dict[str, Any]:
    chart = release.chart
    # Waiting for pods would let one node that is down fail the release of its pool and roll it back, on all nodes.
    action = {"crds": definition_policy(chart.name, names), "disableWait": True, "remediation": {"retries": -1}}
    spec: dict[str, Any] = {
        "interval": "10m",
        "releaseName": release.name,
        "targetNamespace": cluster.options["namespace"],
        "chart": {
            "spec": {
                "chart": chart.name,
                "version": chart.version,
                "sourceRef": {"kind": "HelmRepository", "name": chart.name, "namespace": "flux-system"},
            }
        },
        "install": action,
        "upgrade": dict(action),
    }
    if chart.name == "nvidia-device-plugin" and NODE_FEATURE_DISCOVERY in names:
        # gpu-feature-discovery writes its labels as custom resources of Node Feature Discovery.
        spec["dependsOn"] = [{"name": NODE_FEATURE_DISCOVERY}]
    spec = {**spec, **_suspended(cluster), "values": values}
    return _flux_object("helm.toolkit.fluxcd.io/v2", "HelmRelease", release.name, spec)


def _kustomization(cluster: DescribedCluster, folder: str) -> dict[str, Any]:
    spec = {
        "interval": "10m",
        "retryInterval": "1m",
        "path": f"./{_path(cluster)}/{folder}",
        "prune": cluster.options["automated_sync"] == PRUNE,
        **_suspended(cluster),
        "sourceRef": {"kind": "GitRepository", "name": cluster.options["gitops_source"]},
    }
    return _flux_object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", f"gpufleet-{folder}", spec)


def _suspended(cluster: DescribedCluster) -> dict[str, bool]:
    """Return what keeps Flux from applying an object by itself: it has no other way to wait for a person."""
    return {"suspend": True} if cluster.options["automated_sync"] == NONE else {}


def _path(cluster: DescribedCluster) -> str:
    prefix = str(cluster.options["gitops_path"]).strip("/")
    return "/".join(part for part in (prefix, "clusters", cluster.name) if part)
