# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node offers is believed when the restarted plugin works, and when it stays so."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_action
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import verify_node

GPUS = [
    {
        "index": index,
        "name": "NVIDIA L40S",
        "board": "l40s-48gb",
        "architecture": "ada",
        "memory_mib": 46068,
        "mig": {"supported": False, "current": False, "pending": False},
        "gpu_instances": [],
    }
    for index in range(2)
]
ENDS = 1000
RESTART = {"restart": ["plugin", "discovery"]}


def plugin(uid, ready=True):
    metadata = {
        "namespace": "nvidia-gpu",
        "name": uid,
        "uid": uid,
        "ownerReferences": [{"uid": "set", "controller": True}],
    }
    return {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}


class Scenario:
    """A cluster and a clock: what the node offers, and its pods, from which second on."""

    def __init__(self, offers, pods=(), labels=None):
        self.offers, self.changes, self.now, self.labels = offers, [(0, []), *pods], 0.0, labels or {}
        self.deleted = []

    def at(self, entries):
        return [value for since, value in entries if since <= self.now][-1]

    def node(self, name):
        ready = {"type": "Ready", "status": "True"}
        status = {"conditions": [ready], "allocatable": {"nvidia.com/gpu": str(self.at(self.offers))}}
        return {"metadata": {"name": name, "uid": "uid-of-n", "labels": self.labels}, "status": status}

    def pods_on(self, _name, selector=""):
        return [pod for pod in self.at(self.changes) if selector in ("", "plugin")]

    def delete_pod(self, namespace, name, uid):
        self.deleted.append((namespace, name, uid))

    def resource_slices(self):
        devices = [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}]
        pool = {"name": "n", "generation": 1}
        owner = {"ownerReferences": [{"kind": "Node", "name": "n", "uid": "uid-of-n"}]}
        spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": pool, "devices": devices}
        return [{"metadata": owner, "spec": spec}]

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        assert self.now < ENDS, "it never ends"


@pytest.fixture
def verify(call, monkeypatch):
    def do(scenario, check_mode=False, variables=None, **arguments):
        monkeypatch.setattr(verify_node.ActionModule, "cluster", lambda _self, _arguments: scenario)
        monkeypatch.setattr(cluster_action, "time", scenario)
        given = {"node": "n", "facts": {"gpus": GPUS}, "labels": False, "timeout": 300, **arguments}
        result, _shown = call(verify_node, given, variables or {}, check_mode)
        return result

    return do


def test_what_agrees_at_once_is_not_waited_for(verify):
    scenario = Scenario([(0, 2)])
    assert verify(scenario)["healthy"]
    assert scenario.now == 0


def test_a_plugin_that_is_not_back_is_waited_for_although_the_node_agrees(verify):
    scenario = Scenario(
        [(0, 2)], [(0, [plugin("old")]), (30, []), (60, [plugin("new", ready=False)]), (90, [plugin("new")])]
    )
    result = verify(scenario, **RESTART)
    assert result["healthy"] and result["changed"]
    assert scenario.now >= 90
    assert scenario.deleted == [("nvidia-gpu", "old", "old")]


def test_pods_of_other_namespaces_stay_whatever_their_labels(verify):
    scenario = Scenario([(0, 2)], [(0, [plugin("old")])])
    result = verify(scenario, restart=["plugin"], namespaces=["kube-system"])
    assert result["healthy"] and not result["changed"]
    assert scenario.deleted == [] and scenario.now == 0


def test_what_the_node_offered_before_is_not_taken_for_what_it_offers(verify):
    """The new plugin finds one GPU less. The node says so ten seconds after the pod is ready."""
    scenario = Scenario([(0, 2), (30, 1)], [(0, [plugin("old")]), (20, [plugin("new")])])
    found = verify(scenario, **RESTART, settle=15)
    assert found["failed"]
    assert "allocatable: nvidia.com/gpu: 1 instead of 2" in found["msg"]
    assert scenario.now >= 300


def test_an_agreement_that_is_broken_counts_from_its_new_beginning(verify):
    scenario = Scenario([(0, 2), (10, 0), (40, 2)])
    assert verify(scenario, settle=15)["healthy"]
    assert scenario.now >= 55


def test_one_that_begins_at_the_end_of_the_time_is_still_seen_through(verify):
    assert verify(Scenario([(0, 1), (299, 2)]), settle=15)["healthy"]
    assert verify(Scenario([(0, 1), (299, 2), (306, 1)]), settle=15)["failed"]


def test_a_plugin_that_never_comes_back_is_named(verify):
    found = verify(Scenario([(0, 2)], [(0, [plugin("old")]), (5, [])]), **RESTART)
    assert (
        "plugin pods: nvidia-gpu/old: it was restarted, and no new pod has taken its place. See what keeps"
        in found["msg"]
    )


def test_a_node_that_the_rendered_file_does_not_name_is_compared_with_each_node_of_its_pool(verify, tmp_path):
    each = {"selector": {"group": "elastic"}, "node_labels": {"group": "elastic"}, "labels": {}}
    item = {"each_node": {**each, "resources": {"nvidia.com/gpu": 2}}, "sharing": {"mode": "none"}}
    file = tmp_path / "capacity.json"
    file.write_text(json.dumps({"configurations": {"elastic": item}, "nodes": {}}))
    scenario = Scenario([(0, 2)])
    assert "it has no node n" in verify(scenario, capacity=str(file))["msg"]
    scenario.labels = {"group": "elastic"}
    assert verify(scenario, capacity=str(file))["healthy"]
    assert "1 instead of 2" in verify(Scenario([(0, 1)], labels=scenario.labels), capacity=str(file), timeout=0)["msg"]


def test_in_check_mode_nothing_is_restarted(verify):
    scenario = Scenario([(0, 2)], [(0, [plugin("old")])])
    assert verify(scenario, check_mode=True, **RESTART, settle=15)["healthy"]
    assert scenario.now == 0 and scenario.deleted == []


def test_the_operators_mig_manager_is_asked_where_the_variables_say_that_it_partitions(verify):
    operator = {"gpu_kubernetes_stack": "gpu_operator", "gpu_kubernetes_mig_manager": "operator"}
    h100 = [{**gpu, "name": "NVIDIA H100 80GB HBM3", "board": "h100-80gb-sxm"} for gpu in GPUS]
    result = verify(Scenario([(0, 2)]), variables=operator, timeout=0, fail=False, facts={"gpus": h100})
    assert "mig manager" in [check["name"] for check in result["checks"] if check["status"] == "failed"]
    # On boards without MIG the operator runs none, and sets no state.
    assert verify(Scenario([(0, 2)]), variables=operator, timeout=0)["healthy"]
    assert verify(Scenario([(0, 2)]), variables={"gpu_kubernetes_stack": "gpu_operator"}, timeout=0)["healthy"]


def test_a_plugin_whose_devices_the_host_refuses_comes_before_all_that_follows(verify):
    container = {
        "name": "nvidia-device-plugin-ctr",
        "env": [{"name": "DEVICE_LIST_STRATEGY", "value": "envvar"}, {"name": "MPS_ROOT", "value": "/run/nvidia/mps"}],
        "volumeMounts": [{"mountPath": "/var/lib/kubelet/device-plugins"}],
    }
    pods = [{**plugin("a"), "spec": {"containers": [container], "runtimeClassName": "nvidia"}}]
    toolkit = {"accept_envvar_unprivileged": False, "accept_volume_mounts": True}
    result = verify(Scenario([(0, 2)], [(0, pods)]), timeout=0, facts={"gpus": GPUS, "toolkit": toolkit}, fail=False)
    assert not result["healthy"]
    found = {check["name"]: check for check in result["checks"]}
    assert list(found) == ["node", "device plugin", "allocatable", "labels"]
    assert found["allocatable"]["status"] == "passed", "the node offers what is described, and no pod gets it"
    assert "hands devices over by envvar" in found["device plugin"]["evidence"]
    assert "nvidia_toolkit_device_injection" in found["device plugin"]["next_step"]
    shared = {"nvidia_sharing_mode": "mps", "nvidia_sharing_mps_manager": "host", "nvidia_sharing_replicas": 4}
    result = verify(Scenario([(0, 8)], [(0, pods)]), timeout=0, variables=shared, fail=False)
    (pipe,) = [check for check in result["checks"] if check["name"] == "MPS pipe"]
    assert pipe["status"] == "failed"
    assert "/run/nvidia/mps/nvidia.com/gpu/pipe, and no MPS daemon runs" in pipe["evidence"]


def test_devices_of_claims_are_compared_with_what_the_dra_driver_publishes(verify):
    found = verify(Scenario([(0, 0)]), variables={"nvidia_sharing_backend": "dra"}, timeout=0)
    assert found["failed"]
    assert "devices of claims: in the node's ResourceSlices gpu.nvidia.com: 1 instead of 2" in found["msg"]
    assert verify(Scenario([(0, 0)]), variables={"nvidia_sharing_backend": "dra"}, facts={"gpus": GPUS[:1]})["healthy"]


TO_CLAIMS = {"nvidia_sharing_backend": "dra", "nvidia_sharing_migrate_from": "mps"}
BACK = {"nvidia_sharing_backend": "mps", "nvidia_sharing_migrate_from": "dra"}
MIGRATED = "gpufleet.github.io/migrated-to"


@pytest.mark.parametrize(
    ("variables", "label", "offers", "healthy", "said"),
    [
        (
            TO_CLAIMS,
            None,
            2,
            True,
            "served by the device plugin, until gpufleet.nvidia.migrate moves the node to the DRA driver",
        ),
        (TO_CLAIMS, "device-plugin", 2, True, "served by the device plugin, until"),
        (TO_CLAIMS, None, 0, False, "served by the device plugin, until"),
        # The lab's ResourceSlice has one device, and the host two.
        (TO_CLAIMS, "dra", 0, False, ""),
        (BACK, "device-plugin", 2, True, ""),
        (BACK, "device-plugin", 0, False, ""),
        (
            BACK,
            "dra",
            2,
            False,
            "served by the DRA driver, until gpufleet.nvidia.migrate moves the node to the device plugin",
        ),
    ],
)
def test_a_node_that_is_not_moved_yet_is_as_the_old_backend_has_it(verify, variables, label, offers, healthy, said):
    scenario = Scenario([(0, offers)], labels={MIGRATED: label} if label else {})
    result = verify(scenario, variables=variables, timeout=0, fail=False)
    assert result["healthy"] is healthy
    notes = [check["evidence"] for check in result["checks"] if check["name"] == "migration"]
    assert [said in note for note in notes] == ([True] if said else [])


def test_a_rendered_file_says_what_a_node_shows_until_it_is_moved(verify, tmp_path):
    path = tmp_path / "capacity.json"
    migration = {"to": "dra", "resources": {"nvidia.com/gpu": 2}, "labels": {}}
    node = {"configuration": "x", "resources": {}, "devices": {"gpu.nvidia.com": 1}, "migration": migration}
    path.write_text(json.dumps({"configurations": {"x": {}}, "nodes": {"n": node}}))
    for label, offers, healthy in ((None, 2, True), (None, 1, False), ("dra", 0, True), ("dra", 2, False)):
        scenario = Scenario([(0, offers)], labels={MIGRATED: label} if label else {})
        result = verify(scenario, capacity=str(path), timeout=0, fail=False)
        assert result["healthy"] is healthy, (label, offers)


def test_a_pod_of_a_tenant_that_looks_like_the_plugin_is_none(verify):
    container = {
        "name": "nvidia-device-plugin-ctr",
        "env": [{"name": "DEVICE_LIST_STRATEGY", "value": "envvar"}],
        "volumeMounts": [{"mountPath": "/var/lib/kubelet/device-plugins"}],
    }
    hostile = {**plugin("new"), "spec": {"containers": [container]}}
    hostile["metadata"] = {**hostile["metadata"], "namespace": "tenant"}
    toolkit = {"accept_envvar_unprivileged": False, "accept_volume_mounts": True}
    given = {"timeout": 0, "facts": {"gpus": GPUS, "toolkit": toolkit}, "fail": False}
    assert verify(Scenario([(0, 2)], [(0, [hostile])]), **given)["healthy"]
    assert not verify(Scenario([(0, 2)], [(0, [hostile])]), namespaces=["tenant"], **given)["healthy"]
    # It stands for none that was restarted, either.
    left = verify(Scenario([(0, 2)], [(0, [plugin("old")]), (5, [hostile])]), **RESTART, **{**given, "timeout": 60})
    assert "no new pod has taken its place" in str(left["checks"])
