# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a cluster is told that is behind the pinned charts, or ahead of them."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.object_fields import known_kinds
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.node_expectations import ROLES
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.cluster_definitions import check, needed
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.versions import CHARTS
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect

from .operator_definitions import DRIVERS, LACKING, POLICIES, VERSIONS, definition, spec_of
from .stacks import COMMON, FLEETS, GITOPS

OPERATOR = {"gpu_kubernetes_cluster": "one", "gpu_kubernetes_stack": "gpu_operator"}
#: What a cluster has that is exactly as the pinned charts and Kueue make it.
SERVED = {
    "nvidia.com/v1": {"clusterpolicies", "clusterpolicies/status"},
    "nvidia.com/v1alpha1": {"nvidiadrivers", "gpuclusters"},
    "resource.nvidia.com/v1beta1": {"computedomains", "computedomaincliques"},
    "nfd.k8s-sigs.io/v1alpha1": {"nodefeatures", "nodefeaturerules", "nodefeaturegroups"},
    "resource.k8s.io/v1": {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"},
    "kueue.x-k8s.io/v1beta1": {"clusterqueues", "localqueues", "resourceflavors", "workloads"},
    "monitoring.coreos.com/v1": {"prometheusrules"},
}


@pytest.fixture
def definitions():
    return {name: definition(kind) for kind, (name, _version) in VERSIONS.items()}


def kinds_of(**variables):
    return needed(collect(variables, lambda value: value, ROLES))


def told(definitions, served=None, **variables):
    """The checks of a cluster as their status, evidence and next step."""
    there = SERVED if served is None else served
    checks = check(kinds_of(**variables), lambda api: there.get(api, ()), definitions.get)
    assert {one.name for one in checks} <= {"definitions"}
    return [(one.status, one.evidence, one.next_step) for one in checks]


def test_a_cluster_as_the_pins_make_it_passes(definitions):
    ((status, evidence, step),) = told(definitions, **OPERATOR, nvidia_sharing_backend="dra")
    assert (status, step) == ("passed", "")
    for name in (POLICIES, DRIVERS, "computedomains.resource.nvidia.com", "resourceslices.resource.k8s.io"):
        assert name in evidence


@pytest.mark.parametrize("release", LACKING)
def test_a_cluster_with_an_earlier_release_is_told_what_that_lacks(definitions, release):
    definitions[POLICIES] = definition("ClusterPolicy", release)
    ((status, evidence, step),) = told(definitions, **OPERATOR)
    assert status == "warning" and f"lacks {', '.join(LACKING[release])}, which" in evidence and step


def test_a_cluster_behind_is_told_every_field_and_who_brings_it(definitions):
    """What GPU Operator 25.10.1 does not have, a field in a list, and one of the other kind."""
    definitions[POLICIES] = definition("ClusterPolicy", "25.10.1")
    policy = spec_of(definitions[POLICIES])
    del policy["ccManager"]["properties"]["env"]["items"]["properties"]["value"]
    del spec_of(definitions[DRIVERS])["driverType"]
    policies, drivers = told(definitions, **OPERATOR)
    assert policies[:2] == (
        "warning",
        f"{POLICIES} is older than gpu-operator v26.7.0: it lacks spec.ccManager.env[].value, spec.dcgmExporter.serviceMonitor.scrapeTimeout, "
        "spec.kataSandboxDevicePlugin, which the API server drops from objects or refuses",
    )
    assert f"{DRIVERS} is older" in drivers[1] and "lacks spec.driverType," in drivers[1]


@pytest.mark.parametrize(
    ("variables", "step"),
    [
        (
            {"gpu_kubernetes_gitops": "none"},
            "kubectl apply --server-side --force-conflicts -f FILE with those of deployments/gpu-operator/crds of "
            "https://github.com/NVIDIA/gpu-operator at v26.7.0.",
        ),
        (GITOPS["argocd"], "Sync the Application one-gpufleet-crds-gpu-operator."),
        (GITOPS["flux"], "Reconcile the HelmRelease that has them; if they stay, kubectl apply --server-side"),
    ],
)
def test_the_remedy_is_who_applies_the_definitions(definitions, variables, step):
    del spec_of(definitions[POLICIES])["kataSandboxDevicePlugin"]
    ((_status, _evidence, found),) = told(definitions, **OPERATOR, **variables)
    assert found.startswith(step)


def test_the_application_of_the_remedy_is_in_the_tree(clusters_of):
    pools = {"training": {**COMMON, **GITOPS["argocd"], **FLEETS["operator"]["training"]}}
    (cluster,) = clusters_of(pools)
    names = {
        yaml.safe_load(text)["metadata"]["name"] for path, text in cluster_tree(cluster).items() if "argocd/" in path
    }
    variables = {**pools["training"], "gpu_kubernetes_cluster": cluster.name}
    named = {one.remedy.rpartition(" ")[2].rstrip(".") for one in kinds_of(**variables) if "Application" in one.remedy}
    assert len(named) == 3 and named <= names


def test_a_cluster_ahead_is_told_what_the_pin_does_not_know(definitions):
    policy = spec_of(definitions[POLICIES])
    policy["confidentialVM"] = {"type": "object"}
    policy["driver"]["properties"]["odd\x1b[31m"] = {"type": "string"}
    ((status, evidence, step),) = told(definitions, **OPERATOR)
    assert status == "warning"
    assert evidence == (
        f"{POLICIES} is newer than gpu-operator v26.7.0, which does not know spec.confidentialVM, spec.driver.odd?[31m"
    )
    assert "Set gpu_kubernetes_operator_version" in step


@pytest.mark.parametrize(
    ("kind", "lost", "brought_by"),
    [
        ("GPUCluster", ("draDriver", "gpus"), "gpu-operator v26.7.0"),
        ("ComputeDomain", ("numNodes",), "dra-driver-nvidia-gpu 0.5.0"),
        ("NodeFeature", ("labels",), "node-feature-discovery 0.19.0"),
        ("NodeFeatureRule", ("rules", "taints"), "node-feature-discovery 0.19.0"),
    ],
)
def test_the_fields_of_every_kind_with_a_pinned_chart_are_compared(definitions, kind, lost, brought_by):
    (name, _version), path = VERSIONS[kind], ".".join(lost).replace("rules", "rules[]")
    *parents, last = lost
    fields_of = spec_of(definitions[name])
    for parent in parents:
        fields_of = fields_of[parent].get("items", fields_of[parent])["properties"]
    del fields_of[last]
    fields_of["later"] = {"type": "string"}
    later = ".".join([*path.split(".")[:-1], "later"])
    (_status, behind, _remedy), (_status, ahead, remedy) = told(definitions, **OPERATOR)
    assert behind.startswith(f"{name} is older than {brought_by}: it lacks spec.{path},")
    assert ahead == f"{name} is newer than {brought_by}, which does not know spec.{later}"
    assert remedy.startswith("Set gpu_kubernetes_operator_version" if kind == "GPUCluster" else "Leave it.")


def test_the_kind_without_a_spec_is_compared_by_what_it_has(definitions):
    name, _version = VERSIONS["ComputeDomainClique"]
    there = definitions[name]["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]
    del there["daemons"]["items"]["properties"]["index"]
    ((_status, evidence, _step),) = told(definitions, nvidia_sharing_backend="dra")
    assert "it lacks daemons[].index," in evidence


def test_many_fields_are_counted(definitions):
    spec_of(definitions[POLICIES]).clear()
    ((_status, evidence, _step),) = told(definitions, **OPERATOR)
    assert f"and {len(known_kinds()['ClusterPolicy'].fields) - 8} more" in evidence


@pytest.mark.parametrize("odd", [{}, {"spec": {"versions": [None, {"name": "v1", "schema": []}]}}])
def test_a_definition_without_a_schema_lacks_every_field_and_one_that_accepts_all_lacks_none(definitions, odd):
    definitions[POLICIES] = odd
    assert "it lacks spec.ccManager, " in told(definitions, **OPERATOR)[0][1]
    accepts = {"properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    definitions[POLICIES] = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": accepts}}]}}
    assert [one[0] for one in told(definitions, **OPERATOR)] == ["passed"]


def test_of_an_operator_that_is_kept_at_its_version_no_field_is_compared(definitions):
    """The tables are of the pinned one."""
    nothing = {name: {} for name in definitions}
    served = {**SERVED, "nvidia.com/v1alpha1": {"nvidiadrivers"}}
    found = told(nothing, served, **OPERATOR, gpu_kubernetes_operator_version="v25.10.1")
    assert [one[0] for one in found] == ["passed"], "nor of Node Feature Discovery, which is a part of it"
    found = told(nothing, served, **OPERATOR, **GITOPS["argocd"], gpu_kubernetes_operator_version="v25.10.1")
    names = [evidence.partition(" ")[0] for _status, evidence, _step in found]
    brought = ("NodeFeature", "NodeFeatureRule", "ComputeDomain", "ComputeDomainClique")
    assert sorted(names) == sorted(VERSIONS[kind][0] for kind in brought), "an Application brings the pinned ones"
    definitions[POLICIES] = {}
    pinned = CHARTS["gpu-operator"].version
    found = told(definitions, **OPERATOR, gpu_kubernetes_operator_version=pinned.lstrip("v"))
    assert [one[0] for one in found] == ["warning"], "the version of the pin, said otherwise"


def test_the_pinned_operator_needs_a_kind_that_earlier_ones_do_not_know(definitions):
    served = {**SERVED, "nvidia.com/v1alpha1": {"nvidiadrivers"}}
    ((status, evidence, _step),) = told(definitions, served, **OPERATOR)
    assert status == "warning" and "the API server has no gpuclusters of nvidia.com/v1alpha1" in evidence


@pytest.mark.parametrize(("variables", "needs"), [(GITOPS["flux"], False), (GITOPS["argocd"], True), ({}, False)])
def test_an_operator_before_the_pinned_one_needs_no_definitions_of_the_dra_driver(variables, needs):
    """Its chart has none: only a tree for Argo CD brings them beside it."""
    kept = {**OPERATOR, **variables, "gpu_kubernetes_operator_version": "v25.10.1"}
    assert any(one.plural == "computedomains" for one in kinds_of(**kept)) is needs
    assert any(one.plural == "computedomains" for one in kinds_of(**kept, nvidia_sharing_backend="dra"))


@pytest.mark.parametrize(
    ("variables", "api", "plurals", "brought_by", "status"),
    [
        (OPERATOR, "nvidia.com/v1", ["clusterpolicies"], "gpu-operator v26.7.0", "warning"),
        (
            {},
            "nfd.k8s-sigs.io/v1alpha1",
            ["nodefeatures", "nodefeaturerules"],
            "node-feature-discovery 0.19.0",
            "warning",
        ),
        (
            {"nvidia_driver_imex": "masked"},
            "resource.nvidia.com/v1beta1",
            ["computedomains", "computedomaincliques"],
            "dra-driver-nvidia-gpu 0.5.0",
            "warning",
        ),
        # Nothing serves the pods of such a pool.
        (
            {"nvidia_sharing_backend": "dra"},
            "resource.k8s.io/v1",
            ["deviceclasses", "resourceclaims", "resourceslices"],
            "Kubernetes 1.34",
            "failed",
        ),
        (
            {"nvidia_sharing_migrate_from": "dra"},
            "resource.k8s.io/v1",
            ["deviceclasses", "resourceclaims", "resourceslices"],
            "Kubernetes 1.34",
            "failed",
        ),
        (
            {"gpu_kubernetes_quotas": [{"team": "a", "namespaces": ["a"], "shares": [{"pool": "a", "percent": 5}]}]},
            "kueue.x-k8s.io/v1beta1",
            ["clusterqueues", "localqueues", "resourceflavors"],
            "Kueue",
            "warning",
        ),
        (
            {"gpu_kubernetes_prometheus_rule": True},
            "monitoring.coreos.com/v1",
            ["prometheusrules"],
            "the Prometheus operator",
            "warning",
        ),
    ],
)
def test_a_kind_that_the_cluster_does_not_serve_is_named_with_what_brings_it(
    definitions, variables, api, plurals, brought_by, status
):
    served = {name: plural for name, plural in SERVED.items() if name != api}
    found = told(definitions, served, **variables)
    assert [one[:2] for one in found] == [
        (status, f"the API server has no {plural} of {api}, which come with {brought_by}") for plural in plurals
    ]
    assert all(one[2] for one in found)
    assert [one[0] for one in told(definitions, **variables)] == ["passed"]


def test_what_a_tree_does_not_need_is_not_asked_for(definitions):
    assert told(definitions, {}, gpu_kubernetes_node_feature_discovery=False) == []
    assert told(definitions, {}, **{**OPERATOR, "gpu_kubernetes_cluster": ""}) == [], "nothing is rendered for the host"


def test_definitions_that_may_not_be_read_are_named_and_are_no_failure(definitions):
    ((status, evidence, step),) = told({}, **OPERATOR)
    assert status == "skipped" and "Allow get" in step
    assert evidence.startswith("fields not checked") and all(name in evidence for name in definitions)
    del definitions[POLICIES], spec_of(definitions[DRIVERS])["driverType"]
    behind, unread = told(definitions, **OPERATOR)
    assert "it lacks spec.driverType," in behind[1] and unread[1].endswith(f"cannot be read: {POLICIES}")


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("kind", GITOPS)
def test_every_custom_resource_of_a_tree_is_of_a_kind_that_is_asked_for(clusters_of, fleet, kind):
    """But those of the GitOps controllers themselves, which are there before any tree."""
    pools = {name: {**COMMON, **GITOPS[kind], **variables} for name, variables in FLEETS[fleet].items()}
    (cluster,) = clusters_of(pools)
    asked = set()
    for variables in pools.values():
        asked |= {(one.api, one.plural) for one in kinds_of(**variables, gpu_kubernetes_cluster="one")}
    for path, text in cluster_tree(cluster).items():
        if path.partition("/")[0] not in ("objects", "node-labels", "monitoring", "quotas"):
            continue
        for item in yaml.safe_load_all(text):
            group = item["apiVersion"].partition("/")[0]
            if "." in group and group != "node.k8s.io":
                kind_of = item["kind"].lower()
                plural = f"{kind_of}es" if kind_of.endswith("class") else f"{kind_of}s"
                assert (item["apiVersion"], plural) in asked
