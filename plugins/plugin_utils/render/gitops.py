# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects for GitOps controllers: an Argo CD Application or a Flux HelmRelease for each release of the tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.model import MANAGED_BY, Cluster
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.versions import CHARTS


@dataclass(frozen=True)
class Release:
    """One Helm release.

    :param name: of the release.
    :param chart: a key of C(CHARTS).
    :param values_path: of its values file, relative to the cluster's directory.
    :param values: the values themselves, as text.
    """

    name: str
    chart: str
    values_path: str
    values: str


def argocd(cluster: Cluster, releases: Sequence[Release]) -> dict[str, list[Mapping[str, Any]]]:
    """Return, by file name, Applications: one for the plain objects, one for each release, whose values come from the repository."""
    files: dict[str, list[Mapping[str, Any]]] = {"objects": [_objects_application(cluster)]}
    for release in releases:
        files[release.name] = [_application(cluster, release)]
    return files


def _application(cluster: Cluster, release: Release) -> dict[str, Any]:
    chart = CHARTS[release.chart]
    repository = chart.repository[len("oci://") :] if chart.repository.startswith("oci://") else chart.repository
    sources = [
        {
            "repoURL": repository,
            "chart": chart.name,
            "targetRevision": chart.version,
            "helm": {"releaseName": release.name, "valueFiles": [f"$tree/{_path(cluster)}/{release.values_path}"]},
        },
        {
            "repoURL": cluster.options["gitops_repository"],
            "targetRevision": cluster.options["gitops_revision"],
            "ref": "tree",
        },
    ]
    return _argocd_object(cluster, release.name, {"sources": sources}, wave="1")


def _objects_application(cluster: Cluster) -> dict[str, Any]:
    source = {
        "repoURL": cluster.options["gitops_repository"],
        "targetRevision": cluster.options["gitops_revision"],
        "path": f"{_path(cluster)}/objects",
    }
    return _argocd_object(cluster, "gpufleet-objects", {"source": source}, wave="0")


def _argocd_object(cluster: Cluster, name: str, source: Mapping[str, Any], wave: str) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": f"{cluster.name}-{name}",
            "namespace": "argocd",
            "labels": dict(MANAGED_BY),
            "annotations": {"argocd.argoproj.io/sync-wave": wave},
        },
        "spec": {
            "project": cluster.options["gitops_project"],
            **source,
            "destination": {"name": cluster.options["gitops_destination"], "namespace": cluster.options["namespace"]},
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True},
                "syncOptions": ["CreateNamespace=true", "ServerSideApply=true"],
            },
        },
    }


def flux(cluster: Cluster, releases: Sequence[Release]) -> dict[str, list[Mapping[str, Any]]]:
    """Return, by file name, a Kustomization for the plain objects, and a source and a HelmRelease for each release."""
    files: dict[str, list[Mapping[str, Any]]] = {"objects": [_kustomization(cluster)]}
    for name in sorted({release.chart for release in releases}):
        files[f"source-{name}"] = [_helm_repository(name)]
    for release in releases:
        files[release.name] = [_helm_release(cluster, release, yaml.safe_load(release.values) or {})]
    return files


def _helm_repository(chart_name: str) -> dict[str, Any]:
    chart = CHARTS[chart_name]
    spec: dict[str, Any] = {"interval": "1h", "url": chart.repository}
    if chart.repository.startswith("oci://"):
        spec["type"] = "oci"
    return {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "HelmRepository",
        "metadata": {"name": chart_name, "namespace": "flux-system", "labels": dict(MANAGED_BY)},
        "spec": spec,
    }


def _helm_release(cluster: Cluster, release: Release, values: Mapping[str, Any]) -> dict[str, Any]:
    chart = CHARTS[release.chart]
    return {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": release.name, "namespace": "flux-system", "labels": dict(MANAGED_BY)},
        "spec": {
            "interval": "10m",
            "releaseName": release.name,
            "targetNamespace": cluster.options["namespace"],
            "chart": {
                "spec": {
                    "chart": chart.name,
                    "version": chart.version,
                    "sourceRef": {"kind": "HelmRepository", "name": release.chart, "namespace": "flux-system"},
                }
            },
            "values": values,
        },
    }


def _kustomization(cluster: Cluster) -> dict[str, Any]:
    return {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": "gpufleet-objects", "namespace": "flux-system", "labels": dict(MANAGED_BY)},
        "spec": {
            "interval": "10m",
            "path": f"./{_path(cluster)}/objects",
            "prune": True,
            "sourceRef": {"kind": "GitRepository", "name": cluster.options["gitops_source"]},
        },
    }


def _path(cluster: Cluster) -> str:
    prefix = str(cluster.options["gitops_path"]).strip("/")
    return "/".join(part for part in (prefix, "clusters", cluster.name) if part)
