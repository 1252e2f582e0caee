# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rights that docs/upgrade.md asks for are enough, and what they leave out is refused: asked of a real API server with RBAC."""

from __future__ import annotations

import datetime
import json
import time

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError, Cluster, if_there
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import repair
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.node_expectations import ROLES
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import cluster_definitions
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.operator_definitions import (
    LACKING,
    POLICIES,
    VERSIONS,
    definition,
    spec_of,
)
from fleet import documented_condition_role, documented_role


@pytest.fixture(scope="module")
def plane():
    from nodes.control_plane import control_plane

    with control_plane() as found:
        yield found


@pytest.fixture(scope="module")
def operator(plane):
    plane.allow_operator(documented_role())
    plane.kubectl(
        "create", "-f", "-", text=yaml.safe_dump({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "work", "namespace": "default"},
        "spec": {"nodeName": "a", "containers": [{"name": "work", "image": "work"}]},
    }
    plane.kubectl("create", "-f", "-", text=yaml.safe_dump(pod))
    return Cluster(str(plane.operator), "", 5)


def test_they_are_enough_for_every_call_that_is_made(plane, operator):
    assert list(operator.nodes()) == ["a"]
    operator.change_node("a", {"gpufleet.github.io/upgrade-state": "started"}, True, {"gpufleet.github.io/x": "y"})
    found = operator.node("a")
    assert found["spec"]["unschedulable"]
    assert found["metadata"]["labels"]["gpufleet.github.io/x"] == "y"
    assert operator.daemon_sets() == []
    (pod,) = operator.pods_on("a")
    assert operator.pods()
    assert operator.evict("default", "work", pod["metadata"]["uid"]) is None
    assert operator.lease("default", "gpufleet-upgrade") is None
    here = datetime.datetime.now(datetime.timezone.utc)
    assert abs(operator.clock("default") - here) < datetime.timedelta(seconds=30), "one machine, one time"
    assert json.loads(plane.kubectl("get", "leases", "-o", "json").stdout)["items"] == [], "it was only asked"
    assert operator.write_lease("default", "gpufleet-upgrade", {"holderIdentity": "me"}, None)
    version = operator.lease("default", "gpufleet-upgrade")["metadata"]["resourceVersion"]
    assert operator.write_lease("default", "gpufleet-upgrade", {"holderIdentity": None}, version)


def test_a_quota_of_a_team_is_listed_and_changed_and_kinds_that_the_server_lacks_have_none(plane, operator):
    """Those without the labels are not listed, and what was changed since it was read is left."""
    selector = "app.kubernetes.io/managed-by=gpufleet,gpufleet.github.io/team"
    labels = {"app.kubernetes.io/managed-by": "gpufleet", "gpufleet.github.io/team": "blue"}
    hard = {"requests.nvidia.com/gpu": "1000", "requests.nvidia.com/mig-1g.10gb": "2"}
    for name, of in (("gpufleet-blue", labels), ("gpufleet-red", {"app.kubernetes.io/managed-by": "gpufleet"})):
        item = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name, "labels": of}}
        plane.kubectl("create", "-f", "-", text=yaml.safe_dump({**item, "spec": {"hard": hard}}))
    (found,) = operator.quotas("ResourceQuota", selector)
    assert found["metadata"]["name"] == "gpufleet-blue"
    for number in ("3", "4"):
        operator.change_quota("ResourceQuota", found, {"hard": {"requests.nvidia.com/gpu": number}})
    (found,) = operator.quotas("ResourceQuota", selector)
    assert found["spec"]["hard"] == {"requests.nvidia.com/gpu": "3", "requests.nvidia.com/mig-1g.10gb": "2"}
    for kind in ("ClusterQueue", "ResourceFlavor"):
        assert operator.quotas(kind, selector) == []


def test_a_device_is_tainted_the_taint_changes_and_goes(operator):
    """On the newest Kubernetes; nobody else's rule is named as ours are."""
    assert operator.device_taint_rules() == []
    for effect in (repair.NO_SCHEDULE, repair.NO_EXECUTE):
        operator.write_device_taint_rule(repair.rule("a", "a", "gpu-0", effect))
        (found,) = repair.of_node(operator.device_taint_rules(), "a")
        assert found["spec"]["taint"].items() >= {"key": repair.KEY, "effect": effect}.items()
    for _again in range(2):
        operator.delete_device_taint_rule(found["metadata"]["name"])
    assert operator.device_taint_rules() == []


def checked(cluster):
    variables = collect({"gpu_kubernetes_stack": "gpu_operator"}, lambda value: value, ROLES)
    kinds = [one for one in cluster_definitions.needed(variables) if one.table]

    def definition(name):
        return if_there(cluster.definition, name, but=(403, 404))

    return [(one.status, one.evidence) for one in cluster_definitions.check(kinds, cluster.kinds, definition)]


def test_a_cluster_is_told_what_of_the_operators_definitions_it_lacks_and_what_it_has_beyond(plane, operator):
    """From nothing over earlier releases to the pinned one, and a newer one; each is the server's own answer."""

    def apply(*definitions):
        plane.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(definitions))
        names = [f"crd/{one['metadata']['name']}" for one in definitions]
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)

    def wait_for(*expected):
        until = time.monotonic() + 30
        found = checked(operator)
        while [status for status, _evidence in found] != list(expected):
            assert time.monotonic() < until, found
            time.sleep(0.2)
            found = checked(operator)
        return [evidence for _status, evidence in found]

    apply(*(definition(kind) for kind in VERSIONS if kind not in ("ClusterPolicy", "NVIDIADriver")))
    for evidence, kind in zip(wait_for("warning", "warning"), ("clusterpolicies", "nvidiadrivers")):
        assert f"the API server has no {kind} of nvidia.com/v1" in evidence
    for release, paths in LACKING.items():
        apply(definition("ClusterPolicy", release), definition("NVIDIADriver"))
        (evidence,) = wait_for("warning")
        assert f"{POLICIES} is older" in evidence and f"it lacks {', '.join(paths)}, which" in evidence
    apply(definition("ClusterPolicy"))
    wait_for("passed")
    newer = definition("ClusterPolicy")
    spec_of(newer)["confidentialVM"] = {"type": "object"}
    apply(newer)
    (evidence,) = wait_for("warning")
    assert f"{POLICIES} is newer" in evidence and evidence.endswith("does not know spec.confidentialVM")
    with pytest.raises(ApiError, match="cannot get resource"):
        operator.definition("nodefeaturegroups.nfd.k8s-sigs.io")
    plane.kubectl("delete", "clusterrole", "gpufleet-upgrade")
    try:
        (evidence,) = wait_for("skipped")
        assert all(name in evidence for name, _version in VERSIONS.values())
    finally:
        plane.allow_operator(documented_role())
    wait_for("warning")


@pytest.mark.parametrize(
    ("verb", "resource", "namespace", "allowed"),
    [
        # To restart the plugin's pods, and to cordon for a new layout.
        ("delete", "pods", "nvidia-gpu", "yes"),
        ("delete", "pods", "default", "no"),
        ("delete", "pods", "kube-system", "no"),
        ("get", "pods", "default", "yes"),
        ("patch", "nodes", "", "yes"),
        ("create", "pods", "default", "no"),
        ("delete", "nodes", "", "no"),
        ("get", "secrets", "default", "no"),
        ("patch", "daemonsets.apps", "nvidia-gpu", "no"),
        ("list", "customresourcedefinitions.apiextensions.k8s.io", "", "no"),
        ("patch", f"customresourcedefinitions.apiextensions.k8s.io/{POLICIES}", "", "no"),
        ("patch", "resourcequotas", "default", "yes"),
        ("delete", "resourcequotas", "default", "no"),
        ("update", "leases.coordination.k8s.io/gpufleet-upgrade", "default", "yes"),
        ("update", "leases.coordination.k8s.io/another", "default", "no"),
        # The leader of the scheduler is known by such a lease.
        ("update", "leases.coordination.k8s.io/kube-scheduler", "kube-system", "no"),
        ("create", "leases.coordination.k8s.io", "kube-system", "no"),
        ("delete", "leases.coordination.k8s.io", "default", "no"),
    ],
)
@pytest.mark.usefixtures("operator")
def test_and_no_more_than_enough(plane, verb, resource, namespace, allowed):
    where = ["--namespace", namespace] if namespace else []
    answer = plane.kubectl("auth", "can-i", verb, resource, *where, "--as", "operator", check=False)
    assert answer.stdout.strip() == allowed


def test_a_condition_of_a_node_needs_a_right_of_its_own_and_leaves_those_of_the_kubelet(plane, operator):
    kubelets = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    plane.kubectl(
        "patch", "node", "a", "--subresource=status", "-p", json.dumps({"status": {"conditions": [kubelets]}})
    )
    now = "2026-11-23T12:00:00Z"
    with pytest.raises(ApiError, match=r'Failed to set a condition of node a: .*cannot patch resource "nodes/status"'):
        operator.set_condition("a", repair.condition("GpusHealthy", "started", "", operator.node("a"), now))
    plane.allow_operator(documented_condition_role())
    # A moment until the authorizer has seen it.
    asked = ["auth", "can-i", "patch", "nodes", "--subresource=status", "--as", "operator"]
    until = time.monotonic() + 20
    while plane.kubectl(*asked, check=False).stdout.strip() != "yes":
        assert time.monotonic() < until
    operator.set_condition(
        "a", repair.condition("GpusHealthy", "handed-over", "no spare rows", operator.node("a"), now)
    )
    later = "2026-11-23T13:00:00Z"
    operator.set_condition("a", repair.condition("GpusHealthy", "failed", "", operator.node("a"), later))
    node = operator.node("a")
    found = repair.condition_of(node, "GpusHealthy")
    assert (found["status"], found["reason"], found["lastTransitionTime"]) == ("False", "RepairFailed", now)
    assert repair.condition_of(node, "Ready")["reason"] == "KubeletReady"
    operator.set_condition("a", repair.condition("GpusHealthy", "done", "", node, later))
    found = repair.condition_of(operator.node("a"), "GpusHealthy")
    assert (found["status"], found["lastTransitionTime"]) == ("True", later)


def test_without_a_right_the_message_names_it(operator):
    with pytest.raises(ApiError, match=r'Failed to list secrets: .*User "operator" cannot list resource "secrets"'):
        operator.call("GET", "/api/v1/secrets", "list secrets")
