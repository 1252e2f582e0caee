# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing in a GitOps tree waits for itself, and nothing is removed under what still uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.versions import OWN_CHART, OWN_CHART_VERSION

REPOSITORY = Path(__file__).resolve().parents[5]
KINDS = {
    "argocd": {"gitops": "argocd", "gitops_repository": "https://git.example.com/x.git"},
    "flux": {"gitops": "flux", "gitops_source": "fleet"},
}
#: Kinds that the API server has by itself.
PLAIN = {"Namespace", "ConfigMap", "RuntimeClass"}


def documents(text):
    return [item for item in yaml.safe_load_all(text) if item]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def tree(clusters_of, pools, kind):
    return cluster_tree(clusters_of(pools, **KINDS[kind])[0])


def applications(tree):
    """The objects of the controller, by file name."""
    found = {}
    for path, text in tree.items():
        folder, _slash, name = path.partition("/")
        if folder in KINDS:
            (found[name.removesuffix(".yaml")],) = documents(text)
    return found


def wave(application):
    return int(application["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"])


def test_what_is_synced_first_needs_no_custom_resource(tree):
    assert {item["kind"] for path in tree if path.startswith("objects/") for item in documents(tree[path])} == PLAIN
    assert [item["kind"] for item in documents(tree["node-labels/pools.yaml"])] == ["NodeFeatureRule"]


@pytest.mark.parametrize("kind", [*KINDS, "none"])
def test_a_controller_that_is_pointed_at_the_directory_applies_objects_alone(clusters_of, pools, kind):
    options = {"prometheus_rule": True, **KINDS.get(kind, {})}
    tree = cluster_tree(clusters_of(pools, **options)[0])
    listed = yaml.safe_load(tree["kustomization.yaml"])["resources"]
    assert listed and set(listed) <= set(tree)
    folders = {"objects", "node-labels", "monitoring"} if kind == "none" else {kind}
    assert {path.partition("/")[0] for path in listed} == folders
    assert listed == [path for path in sorted(tree) if path.partition("/")[0] in folders]
    for path in listed:
        assert all({"apiVersion", "kind", "metadata"} <= set(item) for item in documents(tree[path])), path


def test_argocd_waves_go_from_the_name_space_to_what_needs_it(clusters_of, pools):
    found = applications(cluster_tree(clusters_of(pools, **KINDS["argocd"])[0]))
    assert wave(found["objects"]) < wave(found["node-feature-discovery"]) < wave(found["node-labels"])
    assert wave(found["crds-node-feature-discovery"]) < wave(found["node-feature-discovery"])
    assert all(wave(found[f"nvidia-device-plugin-{pool}"]) > wave(found["objects"]) for pool in pools)
    for application in found.values():
        assert application["spec"]["syncPolicy"]["retry"]["limit"] == -1, "a failed sync would never be tried again"
        assert "CreateNamespace=true" not in application["spec"]["syncPolicy"]["syncOptions"], "without its labels"
    assert "SkipDryRunOnMissingResource=true" in found["node-labels"]["spec"]["syncPolicy"]["syncOptions"]


@pytest.mark.parametrize(
    ("automated", "argocd", "flux"),
    [
        ("none", None, {"suspend": True, "prune": False}),
        ("sync", {"prune": False, "selfHeal": True}, {"prune": False}),
        ("prune", {"prune": True, "selfHeal": True}, {"prune": True}),
    ],
)
def test_what_a_controller_does_by_itself(clusters_of, pools, automated, argocd, flux):
    trees = {kind: cluster_tree(clusters_of(pools, automated_sync=automated, **KINDS[kind])[0]) for kind in KINDS}
    for name, application in applications(trees["argocd"]).items():
        # What has, or once had, definitions of custom resources prunes nothing.
        kept = argocd and {**argocd, "prune": argocd["prune"] and "node-feature-discovery" not in name}
        assert application["spec"]["syncPolicy"].get("automated") == kept
    for item in applications(trees["flux"]).values():
        said = {name: item["spec"][name] for name in ("suspend", "prune") if name in item["spec"]}
        wanted = {"Kustomization": flux, "HelmRelease": {k: v for k, v in flux.items() if k == "suspend"}}
        assert said == wanted.get(item["kind"], {})
    for tree in trees.values():
        assert f"`gpu_kubernetes_automated_sync: {automated}`: " in tree["README.md"]
    assert trees["argocd"]["README.md"] != trees["flux"]["README.md"] or automated == "prune"


def test_unless_it_is_asked_for_nothing_is_pruned(tree, clusters_of, pools):
    found = [item["spec"] for item in applications(tree).values()]
    assert not any(spec.get("prune") or spec.get("syncPolicy", {}).get("automated", {}).get("prune") for spec in found)
    assert "leaves" in tree["README.md"].partition("## Automated sync")[2]
    assert "Automated sync" not in cluster_tree(clusters_of(pools)[0])["README.md"]


def test_a_pool_that_is_gone_takes_its_release_with_it_and_nothing_else(clusters_of, pools):
    found = applications(cluster_tree(clusters_of(pools, **KINDS["argocd"])[0]))
    assert [name for name, item in found.items() if "finalizers" not in item["metadata"]] == [
        "crds-node-feature-discovery",
        "objects",
    ]


def test_what_running_pods_need_is_never_pruned(tree, kind):
    annotation = {
        "argocd": ("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
        "flux": ("kustomize.toolkit.fluxcd.io/prune", "disabled"),
    }[kind]
    kept = [
        item["metadata"]["annotations"]
        for path in tree
        if path.startswith("objects/")
        for item in documents(tree[path])
        if item["kind"] in ("Namespace", "ConfigMap")
    ]
    assert len(kept) == 4
    assert all(annotation in annotations.items() for annotations in kept)


def test_without_a_controller_there_are_no_annotations(clusters_of, pools):
    tree = cluster_tree(clusters_of(pools)[0])
    (namespace,) = documents(tree["objects/namespace.yaml"])
    assert "annotations" not in namespace["metadata"]


@pytest.mark.parametrize("options", [{}, {"node_feature_discovery": False}, {"stack": "gpu_operator"}])
def test_flux_depends_on_what_there_is(clusters_of, pools, options):
    if "stack" in options:
        del pools["training"]
    found = applications(cluster_tree(clusters_of(pools, **KINDS["flux"], **options)[0]))
    names = {(item["kind"], item["metadata"]["name"]) for item in found.values()}
    waiting = 0
    for item in found.values():
        for other in item["spec"].get("dependsOn", ()):
            assert (item["kind"], other["name"]) in names
            waiting += 1
        if item["kind"] == "HelmRelease":
            source = item["spec"]["chart"]["spec"]["sourceRef"]
            assert (source["kind"], source["name"]) in names
    assert waiting == (0 if options else len(pools))


def test_flux_tries_again_and_does_not_wait_for_every_node(clusters_of, pools):
    found = applications(cluster_tree(clusters_of(pools, **KINDS["flux"])[0]))
    for item in found.values():
        if item["kind"] == "HelmRelease":
            for action in ("install", "upgrade"):
                assert item["spec"][action]["remediation"] == {"retries": -1}
                assert item["spec"][action]["disableWait"] is True
                assert item["spec"][action]["crds"] == "CreateReplace"


def test_the_collections_chart_is_released_from_where_the_site_published_it(clusters_of, pools, kind):
    tree = cluster_tree(clusters_of(pools, chart_repository="oci://registry.example.com/charts", **KINDS[kind])[0])
    release = applications(tree)[OWN_CHART]
    if kind == "argocd":
        source = release["spec"]["sources"][0]
        assert source["repoURL"] == "registry.example.com/charts"
        assert (source["chart"], source["targetRevision"]) == (OWN_CHART, OWN_CHART_VERSION)
    else:
        assert release["spec"]["chart"]["spec"]["version"] == OWN_CHART_VERSION
        assert release["spec"]["values"] == yaml.safe_load(tree[f"values/{OWN_CHART}.yaml"])
        assert applications(tree)[f"source-{OWN_CHART}"]["spec"]["type"] == "oci"


def test_config_maps_in_a_chart_that_nobody_installs_are_refused(clusters_of, pools, kind):
    with pytest.raises(Refused, match="gpu_kubernetes_chart_repository"):
        cluster_tree(clusters_of(pools, objects="chart", **KINDS[kind])[0])
    options = {"objects": "chart", "chart_repository": "https://charts.example.com", **KINDS[kind]}
    tree = cluster_tree(clusters_of(pools, **options)[0])
    assert [path for path in tree if path.startswith("objects/")] == ["objects/namespace.yaml"]
    if kind == "argocd":
        found = applications(tree)
        assert wave(found[OWN_CHART]) == wave(found["objects"]), "the pods of later waves need the ConfigMaps"


def test_the_version_of_the_collections_chart_is_the_charts():
    chart = yaml.safe_load((REPOSITORY / "charts" / OWN_CHART / "Chart.yaml").read_text())
    assert (chart["name"], chart["version"]) == (OWN_CHART, OWN_CHART_VERSION)


def test_the_operator_makes_its_own_runtime_class(clusters_of, pools):
    del pools["training"]
    tree = cluster_tree(clusters_of(pools, stack="gpu_operator")[0])
    assert "objects/runtime-class.yaml" not in tree
    assert yaml.safe_load(tree["values/gpu-operator.yaml"])["operator"]["runtimeClass"] == "nvidia"
