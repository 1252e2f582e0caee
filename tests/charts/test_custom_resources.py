# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rendered objects of Argo CD, Flux, Node Feature Discovery, the Prometheus operator, Kueue and the DRA driver
against a real API server with their real definitions.

What their controllers do with them is not tested here: there are none.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.object_fields import known_kinds
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.lint.claim_cases import REQUESTS, claim
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.stacks import COMMON, FLEETS, GITOPS

DEFINITIONS = Path(__file__).parent / "custom-resources.sh"
FIELDS = Path(__file__).parents[2] / "tools" / "crd-fields.py"
#: Kinds that the objects of a fleet have beside those that all have.
OF_FLEET = {
    "device plugin": {"RuntimeClass"},
    "claims": {"RuntimeClass", "ResourceClaimTemplate"},
    "shared claims": {"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "Job"},
    "operator": set(),
    "racks by claims": {"ResourceClaimTemplate", "ComputeDomain", "Job"},
    "racks by the device plugin": {"RuntimeClass", "ComputeDomain", "Job"},
    "nodes by property": {"RuntimeClass"},
    "quotas by Kueue": {"ClusterQueue", "LocalQueue", "ResourceFlavor"},
    "quotas by ResourceQuotas": {"ResourceQuota"},
}
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


@pytest.fixture(scope="module")
def definitions():
    """Return the files with the projects' own definitions."""
    printed = subprocess.run([DEFINITIONS], stdout=subprocess.PIPE, text=True, check=True, timeout=900).stdout
    return [Path(path) for path in printed.split()]


@pytest.fixture(scope="module")
def server(cluster, definitions):
    """Return the API server once it serves the custom resources."""
    names = set()
    for path in definitions:
        text = path.read_text()
        cluster.kubectl("apply", "--server-side", "-f", "-", text=text)
        names |= {item["metadata"]["name"] for item in yaml.safe_load_all(text) if item}
    until = time.monotonic() + 300
    while missing := names - served(cluster):
        assert time.monotonic() < until, f"the API server does not serve {missing}"
        time.sleep(1)
    for name in ("argocd", "flux-system", "nvidia-gpu", "vision", "vision-dev", "speech"):
        cluster.kubectl("create", "namespace", name, check=False)
    # Pods name it. The chart brings one of its own in other tests, so this one goes again.
    made = cluster.kubectl("create", "-f", "-", text=json.dumps(RUNTIME_CLASS), check=False).returncode == 0
    yield cluster
    if made:
        cluster.kubectl("delete", "runtimeclass", "nvidia")


def served(cluster):
    """The resources that the server answers for, as <plural>.<group>."""
    return set(cluster.kubectl("api-resources", "--cached=false", "-o", "name", check=False).stdout.split())


def dry_run(server, item):
    """Let the server check an object strictly; return what it would store."""
    arguments = [
        "create",
        "--dry-run=server",
        "--validate=strict",
        "--namespace",
        _namespace(item),
        "-o",
        "json",
        "-f",
        "-",
    ]
    return server.kubectl(*arguments, text=json.dumps(item), check=False)


def taken(server, items):
    """Let the server check objects strictly, those of a namespace in one call; return what it says of those that it does not take."""
    wrong = []
    of_namespace = itertools.groupby(sorted(items, key=_namespace), key=_namespace)
    for namespace, some in ((name, list(group)) for name, group in of_namespace):
        arguments = ["create", "--dry-run=server", "--validate=strict", "--namespace", namespace, "-f", "-"]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": some})
        answer = server.kubectl(*arguments, text=text, check=False)
        there = [line for line in answer.stderr.splitlines() if "(AlreadyExists)" in line]
        if answer.stdout.count("created (server dry run)") + len(there) != len(some):
            wrong.append(answer.stderr)
    return wrong


def _namespace(item):
    return item["metadata"].get("namespace", "nvidia-gpu")


def tree(fleet, gitops):
    return tree_of(FLEETS[fleet], **COMMON, **GITOPS[gitops])


def tree_of(pools, **common):
    """The files of a cluster with these pools, of one host each."""
    groups = {pool: [f"{pool}-1"] for pool in pools}
    groups["gpu_hosts"] = [host for hosts in groups.values() for host in hosts]
    made = Fleet(groups, lambda _host, _variables: None)
    for pool, variables in pools.items():
        made.add(f"{pool}-1", {**common, **variables}, lambda value: value)
    return cluster_tree(made.clusters()[0])


@pytest.mark.parametrize("gitops", GITOPS)
@pytest.mark.parametrize("fleet", FLEETS)
def test_every_object_is_what_its_definition_says(server, fleet, gitops):
    items = [
        item
        for path, text in tree(fleet, gitops).items()
        if path.endswith(".yaml") and not path.startswith("values/")
        for item in yaml.safe_load_all(text)
        # For kubectl and GitOps tools, and no object of the API.
        if not item["apiVersion"].startswith("kustomize.config.k8s.io/")
    ]
    assert taken(server, items) == []
    kinds = {item["kind"] for item in items}
    expected = {"argocd": {"Application"}, "flux": {"Kustomization", "HelmRepository", "HelmRelease"}}[gitops]
    assert expected | {"NodeFeatureRule", "PrometheusRule", "Namespace", "ConfigMap", "Pod"} <= kinds
    assert OF_FLEET[fleet] <= kinds


def test_the_fields_that_clusters_are_compared_with_are_those_of_the_definitions(definitions):
    """The GPU Operator's cannot be had as a Go module at the pinned version; of some kinds nothing is rendered."""
    for source in {one.source for one in known_kinds().values()} - {"the GPU Operator 26.7"}:
        ours = {name: one.fields for name, one in known_kinds().items() if " " in name and one.source == source}
        groups = {title.partition(" ")[2].partition("/")[0] for title in ours}
        files = [path for path in definitions if any(f"\n  group: {one}\n" in path.read_text() for one in groups)]
        command = [sys.executable, FIELDS, source, *files]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        ((title, found),) = yaml.safe_load(printed).items()
        assert title == source and found and found.items() <= ours.items()
        assert {name.partition(" ")[0] for name in set(ours) - set(found)} <= {"Cohort", "PodMonitor", "ServiceMonitor"}


#: The containers of the DRA driver on the nodes, by fleet.
CONTAINERS = {
    "claims": {"gpus"},
    "shared claims": {"gpus"},
    "racks by claims": {"gpus", "compute-domains"},
    "racks by the device plugin": {"compute-domains"},
}


@pytest.mark.parametrize("fleet", CONTAINERS)
def test_the_dra_driver_does_on_its_nodes_what_the_pools_say(helm, definitions, tmp_path, fleet):
    """By its own chart."""
    (chart,) = {path.parents[1] for path in definitions if path.parents[1].name == "dra-driver-nvidia-gpu"}
    values = tmp_path / "values.yaml"
    values.write_text(tree(fleet, "argocd")["values/dra-driver-nvidia-gpu.yaml"])
    version = ("--kube-version", COMMON["gpu_kubernetes_version"], "--api-versions", "resource.k8s.io/v1")
    text = helm("template", "driver", chart, "--namespace", "nvidia-gpu", "--values", values, *version).stdout
    items = [item for item in yaml.safe_load_all(text) if item]
    (plugin,) = (item["spec"]["template"]["spec"] for item in items if item["kind"] == "DaemonSet")
    assert {container["name"] for container in plugin["containers"]} == CONTAINERS[fleet]
    controllers = [item for item in items if item["kind"] == "Deployment"]
    assert bool(controllers) == ("compute-domains" in CONTAINERS[fleet])
    (term,) = plugin["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    gates = {entry["value"] for one in plugin["containers"] for entry in one["env"] if entry["name"] == "FEATURE_GATES"}
    shared = fleet == "shared claims"
    assert gates == ({"MPSSupport=true,TimeSlicingSettings=true,"} if shared else gates)
    # For the daemon of each claim that is shared by MPS.
    made = [
        rule for item in items if item["kind"] == "Role" for rule in item["rules"] if "deployments" in rule["resources"]
    ]
    assert any("create" in rule["verbs"] for rule in made) == shared
    by_name = {"key": "gpufleet.github.io/configuration", "operator": "In", "values": ["rack"]}
    assert (by_name in term["matchExpressions"]) == (fleet == "racks by the device plugin")


@pytest.mark.parametrize("case", REQUESTS)
def test_the_api_server_takes_claims_in_which_the_linter_finds_mistakes(server, case):
    """It compiles the expressions, and does not know which attributes a driver's devices have."""
    answer = dry_run(server, claim(REQUESTS[case][0]))
    assert answer.returncode == 0, answer.stderr


def test_the_api_server_compiles_the_expressions(server):
    answer = dry_run(server, claim({"deviceClassName": "gpu.nvidia.com", "expression": "device.attribute.x =="}))
    assert answer.returncode
    assert "compilation failed" in answer.stderr


def test_a_field_that_the_definition_does_not_have_is_refused(server):
    """The proof that the check above can fail."""
    for path, field in (
        ("flux/objects.yaml", "dependOn"),
        ("flux/hami.yaml", "valuez"),
        ("node-labels/pools.yaml", "x"),
        ("monitoring/prometheus-rule.yaml", "group"),
    ):
        item = yaml.safe_load(tree("device plugin", "flux")[path])
        item["spec"][field] = []
        answer = dry_run(server, item)
        assert answer.returncode != 0
        assert re.search(rf'unknown field "(spec\.)?{field}"', answer.stderr)
        (said,) = taken(server, [item])
        assert re.search(rf'unknown field "(spec\.)?{field}"', said)


def test_a_null_in_values_reaches_helm(server):
    """HAMi's own node selector is taken out with it."""
    answer = dry_run(server, yaml.safe_load(tree("device plugin", "flux")["flux/hami.yaml"]))
    selector = json.loads(answer.stdout)["spec"]["values"]["devicePlugin"]["nvidiaNodeSelector"]
    assert selector == {"gpu": None, "gpufleet.github.io/backend": "hami"}
