# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleUndefinedVariable
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import descriptions
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import fleet_plan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError

GROUPS = {"gpu_hosts": ["a", "b"], "training": ["a"], "batch": ["b"]}


class Undefined(dict):
    """Variables of a host one of which has a template that cannot be rendered."""

    def __contains__(self, name):
        return name == "nvidia_mig_layout" or super().__contains__(name)

    def get(self, name, default=None):
        if name == "nvidia_mig_layout":
            raise AnsibleUndefinedVariable("'layout_of_the_night' is undefined")
        return super().get(name, default)


@pytest.fixture
def plan(call, bare_facts):
    read = {"gpu_facts_host": {"gpu": bare_facts}}

    def run(hosts=None, arguments=None, unread=()):
        hostvars = {host: dict(read) for host in ("a", "b")}
        for host, variables in (hosts or {}).items():
            hostvars[host] = variables if isinstance(variables, Undefined) else {**hostvars[host], **variables}
        for host in unread:
            hostvars[host].pop("gpu_facts_host")
        return call(fleet_plan, arguments or {}, {"groups": GROUPS, "hostvars": hostvars})

    return run


def test_drift_is_shown_and_said_in_one_line(plan):
    result, shown = plan()
    assert result["drift"] and not result["as_described"] and "failed" not in result
    assert "2 hosts: 0 as described, 2 to change" in result["msg"]
    assert "a: " not in result["msg"]
    assert "driver: install driver branch 580" in shown.text
    assert "Judged by NVIDIA's driver branches as of " in shown.text


def test_without_drift_it_succeeds(plan, monkeypatch):
    monkeypatch.setattr(descriptions, "plan_stages", lambda _facts, _desired: {})
    result, _shown = plan()
    assert result["as_described"] and result["msg"] == "The fleet is as described." and result["drift"] is False


@pytest.mark.parametrize(
    "arguments", [{"files": [{"action": "create", "path": "x"}]}, {"unrendered": "pool batch: something is wrong"}]
)
def test_the_clusters_files_are_part_of_it(plan, monkeypatch, arguments):
    monkeypatch.setattr(descriptions, "plan_stages", lambda _facts, _desired: {})
    result, shown = plan(arguments=arguments)
    assert result["drift"] and not result["as_described"]
    assert "create x" in shown.text or "something is wrong" in shown.text


def test_some_hosts_alone(plan):
    result, _shown = plan(arguments={"hosts": ["b"]})
    assert list(result["plan"]["hosts"]) == ["b"]


MIGRATED = {"nvidia_sharing_backend": "dra", "nvidia_sharing_migrate_from": "mps"}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"nvidia_mig_layot": "x"}, "nvidia_mig_layot: no role"),
        ({"gpu_facts_pool": "none"}, "no group below gpu_hosts is called none"),
        (Undefined(), "nvidia_mig_layout: 'layout_of_the_night' is undefined. Define what its template uses."),
        (
            {**MIGRATED, "nvidia_mig_strategy": "single", "nvidia_mig_layout": "all-1g.10gb"},
            "DeviceClass gpu.nvidia.com, which has whole GPUs only, and no second class may have it",
        ),
        (
            {**MIGRATED, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4},
            "nvidia_sharing_mode is set, and for a request by name the DRA driver gives each pod a device of its own",
        ),
        (
            {**MIGRATED, "nvidia_sharing_mode": "mps", "nvidia_sharing_replicas": 4},
            "nvidia_sharing_mode is set, and for a request by name the DRA driver gives each pod a device of its own",
        ),
    ],
)
def test_an_impossible_desired_state_is_reported_and_the_others_are_planned(plan, variables, said):
    result, shown = plan(hosts={"a": variables})
    hosts = result["plan"]["hosts"]
    assert said in hosts["a"]["impossible"][0]
    assert hosts["b"]["impossible"] == [] and hosts["b"]["changes"]
    assert "impossible: " in shown.text


def test_a_host_that_did_not_answer_is_unread_and_not_as_described(plan, monkeypatch):
    monkeypatch.setattr(descriptions, "plan_stages", lambda _facts, _desired: {})
    result, _shown = plan(unread=["b"])
    assert result["plan"]["hosts"]["b"]["unread"] == "it did not answer"
    assert not result["as_described"] and result["drift"] is False


def test_the_reason_why_it_could_not_be_read_is_told(plan):
    result, _shown = plan(hosts={"b": {"gpu_facts_host": {"failed": False, "msg": "no python\nand more"}}})
    assert result["plan"]["hosts"]["b"]["unread"] == "no python"


def test_facts_are_kept_and_used_without_hosts(plan, tmp_path):
    first, _shown = plan(arguments={"facts_directory": str(tmp_path), "report": str(tmp_path / "report" / "plan.json")})
    assert json.loads((tmp_path / "report" / "plan.json").read_text()) == first["plan"]
    assert {path.name for path in tmp_path.glob("*.json")} == {"a.json", "b.json"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*.json")} == {0o600}
    offline = {"facts_directory": str(tmp_path), "offline": True}
    later, _shown = plan(arguments=offline, unread=["a", "b"])
    assert later["plan"] == first["plan"]
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").write_text("{")
    broken, _shown = plan(arguments=offline)
    assert broken["plan"]["hosts"]["a"]["unread"] == fleet_plan._NOTHING_KEPT
    assert "cannot be read" in broken["plan"]["hosts"]["b"]["unread"]
    nowhere, _shown = plan(arguments={"offline": True})
    assert nowhere["plan"]["hosts"]["a"]["unread"] == fleet_plan._NOTHING_KEPT


def test_a_fleet_that_does_not_exist_yet_is_planned_from_its_boards(plan):
    boards = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 8}], "nvidia_mig_strategy": "mixed"}
    hosts = {name: {**boards, "nvidia_mig_layout": "all-balanced"} for name in ("a", "b")}
    hosts["b"]["nvidia_mig_layout"] = [{"devices": "all", "instances": {"3g.40gb": 3}}]
    result, shown = plan(hosts, {"offline": True}, unread=["a", "b"])
    first, second = (result["plan"]["hosts"][name] for name in "ab")
    assert (first["verdict"], first["unread"]) == ("to change", None)
    assert first["stages"]["mig"]["steps"][0]["data"]["index"] == 0 and len(first["stages"]["mig"]["steps"]) == 8
    assert second["verdict"] == "impossible" and "3 requested, the GPU can hold 2" in second["impossible"][0]
    assumed = (
        "a host with 8 x h100-80gb-sxm (gpu_facts_gpus), Ubuntu 24.04 on x86_64, containerd and no software of NVIDIA"
    )
    assert first["assumed"] == second["assumed"] == assumed
    assert f"  assumed: {assumed}" in shown.text
    assert "1 to change, 1 impossible, 0 unread, 2 of them assumed and not read" in shown.text
    hosts["b"] = hosts["a"]
    result, _shown = plan(hosts, {"offline": True}, unread=["a", "b"])
    assert result["msg"].endswith("Nothing was read: plan again, without gpu_plan_offline, once the hosts answer.")


def test_nothing_is_assumed_of_a_host_that_exists(plan, tmp_path):
    """It does not answer, or its facts were kept and are broken: what it is has to be seen, and is not made up."""
    boards = {"a": {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 8}]}}
    silent, _shown = plan(boards, unread=["a"])
    assert (
        silent["plan"]["hosts"]["a"]["unread"] == "it did not answer" and "assumed" not in silent["plan"]["hosts"]["a"]
    )
    (tmp_path / "a.json").write_text("{")
    broken, _shown = plan(boards, {"facts_directory": str(tmp_path), "offline": True})
    assert "cannot be read" in broken["plan"]["hosts"]["a"]["unread"]
    read, _shown = plan(boards)
    assert "its PCI bus shows 2" in read["plan"]["hosts"]["a"]["impossible"][0]


class FakeCluster:
    def __init__(self, *_arguments):
        pass

    def nodes(self):
        ready = [{"type": "Ready", "status": "True"}]
        return {
            "a": {
                "metadata": {"name": "a", "uid": "uid-of-a"},
                "spec": {},
                "status": {"conditions": ready, "allocatable": {}},
            }
        }

    def daemon_sets(self):
        return []

    def resource_slices(self):
        raise AssertionError("no pool is served by claims: they need not be allowed")

    def pods(self):
        metadata = {"namespace": "jobs", "name": "train", "ownerReferences": [{"kind": "Job", "controller": True}]}
        container = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        spec = {"nodeName": "a", "containers": [container]}
        return [{"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}]


def test_the_cluster_as_it_is_now_is_compared_too(plan, monkeypatch):
    monkeypatch.setattr(fleet_plan, "Cluster", FakeCluster)
    result, shown = plan(arguments={"kubeconfig": "x"})
    nodes = {host: entry["node"] for host, entry in result["plan"]["hosts"].items()}
    assert nodes["a"] == {"name": "a", "differs": [], "pods": ["jobs/train"], "unavailable": None}
    assert nodes["b"]["differs"] == ["the cluster has no node b"]
    assert "node b: the cluster has no node b" in shown.text
    # It belongs to no cluster: it may be one of Slurm alone.
    result, _shown = plan({"b": {"gpu_kubernetes_cluster": ""}}, {"kubeconfig": "x"})
    assert "node" not in result["plan"]["hosts"]["b"]


def test_a_node_name_that_cannot_be_rendered_is_the_mistake_of_its_host(plan, monkeypatch, bare_facts):
    class Nameless(Undefined):
        def get(self, name, default=None):
            if name == "gpu_node_name":
                raise AnsibleUndefinedVariable("'rack' is undefined")
            return dict.get(self, name, default)

    monkeypatch.setattr(fleet_plan, "Cluster", FakeCluster)
    hosts = {"a": Nameless(gpu_facts_host={"gpu": bare_facts})}
    result, _shown = plan(hosts=hosts, arguments={"kubeconfig": "x"})
    assert "'rack' is undefined" in result["plan"]["hosts"]["a"]["impossible"][0]
    assert result["plan"]["hosts"]["b"]["changes"]


def test_a_cluster_that_does_not_answer_ends_the_plan(plan, monkeypatch):
    def away(*_arguments):
        raise ApiError(0, "list the nodes", "refused")

    monkeypatch.setattr(FakeCluster, "nodes", away)
    monkeypatch.setattr(fleet_plan, "Cluster", FakeCluster)
    result, _shown = plan(arguments={"kubeconfig": "x"})
    assert result["failed"]
    assert result["msg"] == "Failed to list the nodes: refused"


def test_devices_of_claims_are_compared_where_the_pool_is_served_by_them(plan, monkeypatch):
    monkeypatch.setattr(fleet_plan, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "resource_slices", lambda _self: [])
    gpu = {"index": 0, "name": "NVIDIA L40S", "memory_mib": 46068, "mig": {"supported": False, "current": False}}
    host = {"gpu_facts_host": {"gpu": {"gpus": [gpu]}}, "nvidia_sharing_backend": "dra"}
    result, _shown = plan(hosts={"a": host}, arguments={"kubeconfig": "x"})
    assert result["plan"]["hosts"]["a"]["node"]["differs"] == [
        "devices of claims: in the node's ResourceSlices gpu.nvidia.com: 0 instead of 1"
    ]


RESOURCES = ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]
SERVED = {
    "demo": [{"pool": "training", "by": "device-plugin", "to": "dra", "resources": RESOURCES, "nodes": ["a"]}],
}


def test_who_serves_requests_for_gpus_is_said_with_and_without_a_cluster(plan, monkeypatch):
    result, shown = plan(arguments={"served": SERVED})
    assert "  a: served by the device plugin, until gpufleet.nvidia.migrate moves them to the DRA driver" in shown.text
    assert "wrong" not in result["plan"]
    labels = {"gpufleet.github.io/migrated-to": "dra"}
    node = {**FakeCluster().nodes()["a"], "metadata": {"labels": labels}}
    monkeypatch.setattr(FakeCluster, "nodes", lambda _self: {"a": node})
    monkeypatch.setattr(FakeCluster, "version", lambda _self: "v1.34.4", raising=False)
    found = [{"metadata": {"name": name}, "spec": {"extendedResourceName": name}} for name in RESOURCES]
    monkeypatch.setattr(FakeCluster, "device_classes", lambda _self: found, raising=False)
    monkeypatch.setattr(fleet_plan, "Cluster", FakeCluster)
    result, shown = plan(arguments={"served": SERVED, "kubeconfig": "x"})
    assert "  a: served by the DRA driver" in shown.text and "wrong" not in result["plan"]


@pytest.mark.parametrize(
    ("version", "classes", "text"),
    [
        ("v1.33.1", [], "Kubernetes v1.33.1 serves no extended resources by DRA: 1.36 does by default"),
        ("v1.34.4", [], "no DeviceClass has extendedResourceName: nvidia.com/gpu"),
        ("v1.36.0", ["gpu.nvidia.com", "own"], "the DeviceClasses gpu.nvidia.com and own both have"),
        ("v1.36.0", ["gpu.nvidia.com"], "no DeviceClass has extendedResourceName: nvidia.com/mig-1g.10gb"),
    ],
)
def test_a_cluster_that_cannot_serve_the_requests_is_drift(plan, monkeypatch, version, classes, text):
    monkeypatch.setattr(descriptions, "plan_stages", lambda _facts, _desired: {})
    monkeypatch.setattr(FakeCluster, "version", lambda _self: version, raising=False)
    found = [{"metadata": {"name": name}, "spec": {"extendedResourceName": "nvidia.com/gpu"}} for name in classes]
    monkeypatch.setattr(FakeCluster, "device_classes", lambda _self: found, raising=False)
    monkeypatch.setattr(fleet_plan, "Cluster", FakeCluster)
    result, shown = plan(hosts={}, arguments={"served": SERVED, "kubeconfig": "x"})
    assert result["drift"] and text in result["plan"]["wrong"][0] and f"impossible: cluster demo: {text}" in shown.text
