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

from .clusters import MANAGED_BY, DescribedCluster
from .emit import made
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
    found = {"objects": _application(cluster, OBJECTS, _OBJECTS_WAVE, cascades=False)}
    for chart in definitions(cluster, {release.chart.name for release in releases}):
        name, source = f"{_DEFINITIONS}-{chart}", DEFINITIONS[chart]
        # Nothing prunes a definition, and no finalizer removes one.
        found[name] = _application(
            cluster,
            name,
            _OBJECTS_WAVE,
            prunes=False,
            cascades=False,
            definitions=source,
            tag=tag(cluster.chart(chart)),
        )
    for folder in folders:
        found[folder] = _application(cluster, folder, _REST_WAVE, of_custom_kinds=True)
    for release in releases:
        chart = release.chart.name
        wave = _OBJECTS_WAVE if release.first else _DISCOVERY_WAVE if chart in _DISCOVERY else _REST_WAVE
        # Until another Application has taken its definitions over, those of an earlier tree count as objects that are no longer in it.
        defines = chart in DEFINITIONS
        found[release.name] = _application(
            cluster, "", wave, release=release, without_definitions=defines, prunes=not defines
        )
    return {name: [item] for name, item in found.items()}


def _application(
    cluster: DescribedCluster, folder: str, wave: str, release: Release | None = None, **given: Any
) -> dict[str, Any]:
    """Return an Application; C(given) replaces what is filled in of most."""
    filled_in: dict[str, Any] = {
        "definitions": None,
        "prunes": True,
        "cascades": True,
        "of_custom_kinds": False,
        **given,
    }
    return made(
        "argocd",
        options=cluster.options,
        name=f"{cluster.name}-{release.name if release else f'gpufleet-{folder}'}",
        folder=folder,
        path=_path(cluster),
        wave=wave,
        release=release,
        repository=release.chart.repository.removeprefix("oci://") if release else "",
        managed_by=MANAGED_BY,
        **filled_in,
    )


def application_of_definitions(cluster: DescribedCluster, chart: str) -> str:
    return f"{cluster.name}-gpufleet-{_DEFINITIONS}-{chart}"


def flux(
    cluster: DescribedCluster, releases: Sequence[Release], folders: Sequence[str]
) -> dict[str, list[Mapping[str, Any]]]:
    """Return, by file name, Kustomizations for the plain objects and folders, and a source and a HelmRelease for each release."""
    found = {folder: _of_flux(cluster, folder=folder) for folder in (OBJECTS, *folders)}
    charts = {release.chart.name: release.chart for release in releases}
    found |= {f"source-{name}": _of_flux(cluster, chart=chart) for name, chart in sorted(charts.items())}
    names = {release.name for release in releases}
    for release in releases:
        # gpu-feature-discovery writes its labels as custom resources of Node Feature Discovery.
        waits = release.chart.name == "nvidia-device-plugin" and NODE_FEATURE_DISCOVERY in names
        needs, policy = NODE_FEATURE_DISCOVERY if waits else "", definition_policy(release.chart.name, names)
        item = found[release.name] = _of_flux(cluster, release=release, needs=needs, policy=policy)
        item["spec"]["values"] = yaml.safe_load(release.values) or {}
    return {name: [item] for name, item in found.items()}


def _of_flux(cluster: DescribedCluster, **given: Any) -> dict[str, Any]:
    filled_in = {"folder": "", "release": None, **given}
    return made("flux", options=cluster.options, path=_path(cluster), managed_by=MANAGED_BY, **filled_in)


def _path(cluster: DescribedCluster) -> str:
    prefix = str(cluster.options["gitops_path"]).strip("/")
    return "/".join(part for part in (prefix, "clusters", cluster.name) if part)
