# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every object of a tree has one owner, custom resource definitions first of all, and no owner of a definition removes it."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.versions import DEFINITIONS

from .stacks import COMMON, FLEETS, GITOPS

OF_DRA = ("resource.nvidia.com_computedomaincliques.yaml", "resource.nvidia.com_computedomains.yaml")
OF_DISCOVERY = ("nfd-api-crds.yaml",)
#: The files of each folder of definitions at its tag, as git ls-tree lists them.
FOLDERS = {
    "node-feature-discovery": OF_DISCOVERY,
    "dra-driver-nvidia-gpu": OF_DRA,
    "gpu-operator": (
        "nvidia.com_clusterpolicies.yaml",
        "nvidia.com_gpuclusters.yaml",
        "nvidia.com_nvidiadrivers.yaml",
        *OF_DRA,
    ),
}
#: What each chart brings, that of its dependencies included, unless it is told not to.
CHARTS = {**FOLDERS, "gpu-operator": (*FOLDERS["gpu-operator"], *OF_DISCOVERY)}


@pytest.fixture(params=[(fleet, kind) for fleet in FLEETS for kind in GITOPS], ids="-".join)
def tree(request, clusters_of):
    fleet, kind = request.param
    pools = {name: {**COMMON, **GITOPS[kind], **variables} for name, variables in FLEETS[fleet].items()}
    (cluster,) = clusters_of(pools)
    return cluster_tree(cluster)


def documents(tree, *folders):
    for path, text in tree.items():
        if path.partition("/")[0] in folders:
            yield from ((path, item) for item in yaml.safe_load_all(text) if item)


def owners(tree):
    """Which releases and applications of definitions there are, and the files of definitions that each applies."""
    found = {}
    for _path, item in documents(tree, "argocd", "flux"):
        name, spec = item["metadata"]["name"], item["spec"]
        sources = spec.get("sources", [spec.get("source", {})])
        if item["kind"] == "Application":
            chart = sources[0].get("chart")
            brings = () if sources[0].get("helm", {}).get("skipCrds") else CHARTS.get(chart, ())
            if chart is None and sources[0]["repoURL"].startswith("https://github.com/"):
                (chart,) = (one for one, known in DEFINITIONS.items() if known.repository == sources[0]["repoURL"])
                assert sources[0]["path"] == DEFINITIONS[chart].path
                without = sources[0].get("directory", {}).get("exclude", "")
                brings = [file for file in FOLDERS[chart] if not fnmatch(file, without)]
        elif item["kind"] == "HelmRelease":
            chart = spec["chart"]["spec"]["chart"]
            policies = {spec[action]["crds"] for action in ("install", "upgrade")}
            # By its chart's hook the operator owns the others.
            brings = CHARTS.get(chart, ()) if policies == {"CreateReplace"} else sorted({*CHARTS[chart]} - {*OF_DRA})
        else:
            continue
        found[name] = brings
    return found


def test_every_definition_that_a_chart_brings_has_one_owner(tree):
    found = owners(tree)
    counted = Counter(file for files in found.values() for file in files)
    charts = {path.partition("/")[2].removesuffix(".yaml") for path in tree if path.startswith("values/")}
    needed = {file for chart in charts & CHARTS.keys() for file in CHARTS[chart]}
    assert needed <= counted.keys(), "what a chart no longer brings is nowhere"
    assert set(counted.values()) == {1}, counted


def test_no_object_is_in_the_tree_twice(tree):
    names = Counter(
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for _path, item in documents(tree, "objects", "node-labels", "monitoring", "argocd", "flux")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_what_owns_definitions_removes_none(clusters_of):
    pools = {"training": {**COMMON, **GITOPS["argocd"], **FLEETS["operator"]["training"]}}
    pools["training"]["gpu_kubernetes_automated_sync"] = "prune"
    (cluster,) = clusters_of(pools)
    tree = cluster_tree(cluster)
    found = {path: item for path, item in documents(tree, "argocd") if "/crds-" in path}
    assert {path.partition("/crds-")[2] for path in found} == {f"{name}.yaml" for name in DEFINITIONS}
    for item in found.values():
        assert "finalizers" not in item["metadata"]
        assert not item["spec"]["syncPolicy"]["automated"]["prune"]
    (release,) = (item for path, item in documents(tree, "argocd") if path == "argocd/gpu-operator.yaml")
    # Before its definitions are taken over, those of an earlier tree are objects that it does not have any more.
    assert not release["spec"]["syncPolicy"]["automated"]["prune"]
    values = yaml.safe_load(tree["values/gpu-operator.yaml"])
    assert values["operator"]["upgradeCRD"] is False, "a hook of the chart would own them, too"
    assert "## Custom resource definitions" in tree["README.md"]


RACKS = FLEETS["racks by the device plugin"]


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        (FLEETS["operator"], {"gpu-operator": "CreateReplace"}),
        (
            FLEETS["racks by claims"],
            {"node-feature-discovery": "CreateReplace", "dra-driver-nvidia-gpu": "CreateReplace"},
        ),
        (
            {pool: {**variables, "gpu_kubernetes_stack": "gpu_operator"} for pool, variables in RACKS.items()},
            {"gpu-operator": "Create", "dra-driver-nvidia-gpu": "CreateReplace"},
        ),
    ],
)
def test_with_flux_definitions_come_before_what_needs_them(clusters_of, pools, expected):
    """Helm-controller applies those of a chart first; a HelmRelease cannot wait for a Kustomization."""
    rack = {"nvidia_mig_strategy": "mixed"} if "training" in pools else {}
    (cluster,) = clusters_of({pool: {**COMMON, **GITOPS["flux"], **rack, **one} for pool, one in pools.items()})
    tree = cluster_tree(cluster)
    found = {
        item["spec"]["chart"]["spec"]["chart"]: item
        for _path, item in documents(tree, "flux")
        if item["kind"] == "HelmRelease"
    }
    said = {name: found[name]["spec"] for name in DEFINITIONS.keys() & found.keys()}
    assert {name: spec["install"]["crds"] for name, spec in said.items()} == expected
    assert {name: spec["upgrade"]["crds"] for name, spec in said.items()} == expected
    assert not [path for path in tree if "crds" in path]
    assert Counter(file for files in owners(tree).values() for file in files).most_common(1)[0][1] == 1
    readme = tree["README.md"].partition("## Custom resource definitions")[2]
    if "gpu-operator" in expected:
        # By its hook the operator upgrades what its release only creates.
        assert "upgradeCRD" not in yaml.safe_load(tree["values/gpu-operator.yaml"])["operator"]
    assert ("`operator.upgradeCRD`" in readme) == ("Create" in expected.values())


def test_a_change_of_stack_leaves_the_owner_of_the_common_definitions(clusters_of):
    """What NFD's release leaves the operator's needs; its removal takes neither definitions nor the labels of the nodes away."""
    trees = {}
    for stack in ("device_plugin", "gpu_operator"):
        pools = {"training": {**COMMON, **GITOPS["argocd"], **FLEETS["operator"]["training"]}}
        pools["training"]["gpu_kubernetes_stack"] = stack
        (cluster,) = clusters_of(pools)
        trees[stack] = cluster_tree(cluster)
    path = "argocd/crds-node-feature-discovery.yaml"
    assert trees["device_plugin"][path] == trees["gpu_operator"][path]
    assert "argocd/node-feature-discovery.yaml" not in trees["gpu_operator"]
    values = yaml.safe_load(trees["device_plugin"]["values/node-feature-discovery.yaml"])
    assert values["postDeleteCleanup"] is False


def test_without_node_feature_discovery_its_definitions_are_somebody_elses(clusters_of):
    for stack in ("device_plugin", "gpu_operator"):
        pools = {"training": {**COMMON, **GITOPS["argocd"], **FLEETS["operator"]["training"]}}
        pools["training"].update(gpu_kubernetes_stack=stack, gpu_kubernetes_node_feature_discovery=False)
        (cluster,) = clusters_of(pools)
        assert "argocd/crds-node-feature-discovery.yaml" not in cluster_tree(cluster)


def test_without_a_controller_the_readme_says_what_to_apply(clusters_of):
    (cluster,) = clusters_of({"training": {**COMMON, **FLEETS["operator"]["training"]}})
    tree = cluster_tree(cluster)
    assert "kubectl apply --server-side --force-conflicts" in tree["README.md"]
    assert "upgradeCRD" not in tree["values/gpu-operator.yaml"], "the chart's hook upgrades what helm does not"
    said = tree["README.md"].partition("## Custom resource definitions")[2]
    assert "in a job before each upgrade" in said and "`operator.upgradeCRD`" in said
    (cluster,) = clusters_of({"whole": {**COMMON, **FLEETS["claims"]["training"]}})
    assert "upgradeCRD" not in cluster_tree(cluster)["README.md"]
