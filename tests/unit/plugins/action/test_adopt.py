# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import adopt
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError

from .... import recorded_facts
from ...mutation import examples_of, mutated, property_of, shown

FACTS = Path(__file__).parents[1] / "plugin_utils" / "fleet" / "adopt"


def read(name, **parts):
    return {"gpu_facts_host": {"gpu": {**recorded_facts.read(FACTS / f"{name}.json"), **parts}}}


@pytest.fixture
def run(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def adopt_hosts(groups=None, check_mode=False, given=None, **hosts):
        given = {"hosts": list(hosts), "directory": "inventory/adopted", **(given or {})}
        variables = {"hostvars": hosts, "groups": groups or {"all": list(hosts)}}
        result, shown = call(adopt, given, variables, check_mode)
        return result, shown.text

    return adopt_hosts


def test_an_inventory_is_written_with_how_hosts_are_reached_and_without_secrets(run, tmp_path):
    reached = {"ansible_host": "10.0.0.1", "ansible_user": "admin", "ansible_password": "s3cret"}
    result, text = run(gpu01={**read("hand"), **reached}, gpu02=read("hand"), gpu03=read("parted"))
    assert result["changed"] and result["differences"] == {}
    assert result["msg"] == "3 hosts in 2 pools, 0 left out, 0 differences not described."
    assert result["pools"] == {"h100_80gb_sxm_mig": ["gpu03"], "l40s_48gb": ["gpu01", "gpu02"]}
    hosts = yaml.safe_load((tmp_path / "inventory/adopted/hosts.yml").read_text())
    pools = hosts["all"]["children"]["gpu_hosts"]["children"]
    assert pools["l40s_48gb"]["hosts"]["gpu01"] == {"ansible_host": "10.0.0.1", "ansible_user": "admin"}
    everything = "".join(path.read_text() for path in (tmp_path / "inventory").rglob("*") if path.is_file())
    assert "s3cret" not in everything and "ansible_password" in text
    # No kubelet runs there: hosts of no cluster, for which nothing is rendered.
    common = yaml.safe_load((tmp_path / "inventory/adopted/group_vars/gpu_hosts.yml").read_text())
    assert common["gpu_kubernetes_cluster"] == "" and common["nvidia_driver_branch"] == "580"
    assert "ansible-playbook -i inventory/adopted gpufleet.nvidia.plan" in text


def test_the_name_of_a_node_in_slurm_is_one_of_the_host_and_not_of_its_pool(run, tmp_path):
    conf = {"/etc/slurm/slurm.conf": "ClusterName=hpc\nSlurmctldHost=head\nNodeName=big NodeHostname=gpu09\n"}
    facts = read("hand", slurm={"site": conf})
    facts["gpu_facts_host"]["gpu"]["host"]["name"] = "gpu09"
    run(gpu01=facts)
    hosts = yaml.safe_load((tmp_path / "inventory/adopted/hosts.yml").read_text())
    assert hosts["all"]["children"]["gpu_hosts"]["children"]["l40s_48gb"]["hosts"]["gpu01"] == {
        "gpu_slurm_node_name": "big"
    }
    common = yaml.safe_load((tmp_path / "inventory/adopted/group_vars/gpu_hosts.yml").read_text())
    assert (common["gpu_slurm_cluster"], common["gpu_slurm_controllers"]) == ("hpc", ["head"])


def test_nothing_is_overwritten_unless_that_is_asked_for_and_nothing_of_others_ever(run, tmp_path):
    run(gpu01=read("hand"), gpu02=read("parted"))
    refused, _text = run(gpu01=read("hand"))
    assert refused["failed"] and "gpu_adopt_overwrite: true" in refused["msg"]
    again, _text = run(given={"overwrite": True}, gpu01=read("hand"), gpu02=read("parted"))
    assert not again["changed"]
    fewer, _text = run(given={"overwrite": True}, gpu01=read("hand"))
    assert fewer["changed"]
    names = {path.name for path in (tmp_path / "inventory/adopted").rglob("*.yml")}
    assert names == {"hosts.yml", "gpu_hosts.yml", "l40s_48gb.yml"}
    (tmp_path / "inventory/adopted/mine.yml").write_text("a: 1\n")
    refused, _text = run(given={"overwrite": True}, gpu01=read("hand"))
    assert refused["failed"] and "no earlier adopt wrote: mine.yml" in refused["msg"]


def test_check_mode_shows_it_and_writes_nothing(run, tmp_path):
    result, text = run(check_mode=True, gpu01=read("hand"))
    assert result["changed"] and "would be written" in text and not (tmp_path / "inventory").exists()


def test_hosts_that_cannot_be_adopted_are_left_out_with_the_reason(run, bare_facts):
    groups = {"gpu_hosts": ["mine"], "training": ["mine"], "all": []}
    result, text = run(
        groups,
        lost={"gpu_facts_host": {"unreachable": True, "msg": "Connection refused"}},
        dead=read("hand", nvml={"available": False, "reason": "libnvidia-ml.so.1 is not installed"}, gpus=[]),
        web={"gpu_facts_host": {"gpu": {**bare_facts, "pci": [], "gpus": []}}},
        mine=read("hand"),
        gpu01=read("hand"),
    )
    assert list(result["hosts"]) == ["gpu01"]
    reasons = result["left_out"]
    assert reasons["lost"] == "Connection refused" and "no NVIDIA GPU on its PCI bus" in reasons["web"]
    assert "libnvidia-ml.so.1 is not installed" in reasons["dead"] and "doctor" in reasons["dead"]
    assert "already in the group gpu_hosts" in reasons["mine"] and "Left out:" in text


def test_a_bare_host_and_one_that_gives_gpus_to_machines_are_adopted(run, bare_facts):
    facts = read("hand")["gpu_facts_host"]["gpu"]
    other = {**facts["pci"][0], "address": "0000:f1:00.0", "kernel_driver": "vfio-pci"}
    half = read("hand", pci=[*facts["pci"], other])
    result, _text = run(bare={"gpu_facts_host": {"gpu": bare_facts}}, half=half)
    assert result["left_out"] == {} and result["hosts"]["half"]["variables"]["gpu_facts_passthrough"] == 1
    assert "nvidia_driver_state" not in result["hosts"]["bare"]["variables"]
    (difference,) = result["differences"]
    assert "driver: none is installed. Site would: install driver" in str(result["differences"][difference])


@examples_of(tests=2)
@pytest.mark.parametrize("name", ["hand", "parted"])
def test_facts_of_a_host_change_nothing_of_what_is_adopted_of_another(run, examples, name):
    honest = read("hand")
    expected, _text = run(check_mode=True, gpu02=honest)
    assert expected["hosts"]["gpu02"]["variables"]

    @property_of(mutated(read(name)["gpu_facts_host"]["gpu"]), examples)
    def check(facts):
        found, text = run(check_mode=True, gpu01={"gpu_facts_host": {"gpu": facts}}, gpu02=honest)
        assert found["hosts"]["gpu02"] == expected["hosts"]["gpu02"]
        assert ("gpu01" in found["hosts"]) is ("gpu01" not in found["left_out"])
        shown(text)


def test_facts_with_a_profile_that_does_not_exist_leave_their_host_out(run):
    facts = copy.deepcopy(read("parted")["gpu_facts_host"]["gpu"])
    facts["gpus"][0]["gpu_instances"][0]["profile"] = ""
    result, _text = run(gpu01={"gpu_facts_host": {"gpu": facts}}, gpu02=read("hand"))
    assert list(result["hosts"]) == ["gpu02"] and "'' is not a MIG profile name" in result["left_out"]["gpu01"]


def test_without_a_host_that_can_be_adopted_nothing_is_written(run, bare_facts, tmp_path):
    result, _text = run(web={"gpu_facts_host": {"gpu": {**bare_facts, "pci": [], "gpus": []}}})
    assert result["failed"] and "nothing is written" in result["msg"] and not (tmp_path / "inventory").exists()


class Api:
    """Answers as the API server of a cluster with the GPU Operator."""

    def __init__(self, chart="v26.7.0", **driver):
        self.chart, self.driver = chart, {"enabled": False, **driver}

    def nodes(self):
        metadata = {"name": "node-7", "labels": {"nvidia.com/device-plugin.config": "four"}}
        status = {"addresses": [{"address": "gpu01"}], "nodeInfo": {"kubeletVersion": "v1.34.4"}}
        return {"node-7": {"metadata": metadata, "status": status}}

    def daemon_sets(self):
        return []

    def call(self, _method, path, what, **_query):
        four = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
        spec = {"driver": self.driver, "toolkit": {"enabled": False}, "mig": {"strategy": "none"}}
        policy = {
            "metadata": {"labels": {"helm.sh/chart": f"gpu-operator-{self.chart}"}},
            "spec": {**spec, "devicePlugin": {"config": {"name": "c"}}},
            "status": {"namespace": "gpu-operator"},
        }
        known = {
            "/apis/nvidia.com/v1/clusterpolicies": {"items": [policy]},
            "/api/v1/namespaces/gpu-operator/configmaps/c": {"data": {"four": four}},
        }
        if path not in known:
            raise ApiError(404, what, "not found")
        return known[path]


def test_what_the_tree_would_upgrade_is_named(run, monkeypatch):
    monkeypatch.setattr(adopt.ActionModule, "cluster", lambda _self, _arguments: Api())
    _result, text = run(given={"kubeconfig": "admin.conf"}, gpu01=read("hand"))
    assert "the tree would upgrade it" not in text and "installs driver" not in text
    older = Api("v25.3.4", enabled=True, version="580.105.08")
    monkeypatch.setattr(adopt.ActionModule, "cluster", lambda _self, _arguments: older)
    _result, text = run(given={"kubeconfig": "admin.conf", "overwrite": True}, gpu01=read("hand"))
    text = " ".join(text.split())
    assert (
        "The cluster has chart gpu-operator v25.3.4, and the tree keeps it (gpu_kubernetes_operator_version). Render writes values for v26.7.0; "
        "remove the variable to upgrade." in text
    )
    assert 'gpu_kubernetes_values: {gpu-operator: {driver: {version: "580.105.08"}}}' in text


@pytest.mark.parametrize("chart", ["v26.7.0", "v25.3.4"])
def test_the_version_of_the_operators_chart_is_the_clusters(run, monkeypatch, tmp_path, chart):
    """Also where it is the pinned one: a later release of the collection pins another."""
    monkeypatch.setattr(adopt.ActionModule, "cluster", lambda _self, _arguments: Api(chart))
    run(given={"kubeconfig": "admin.conf"}, gpu01=read("hand"))
    common = yaml.safe_load((tmp_path / "inventory/adopted/group_vars/gpu_hosts.yml").read_text())
    assert common["gpu_kubernetes_operator_version"] == chart


def test_a_chart_label_that_is_no_version_is_not_written_and_the_upgrade_is_named(run, monkeypatch, tmp_path):
    monkeypatch.setattr(adopt.ActionModule, "cluster", lambda _self, _arguments: Api("v25 of ours"))
    _result, text = run(given={"kubeconfig": "admin.conf"}, gpu01=read("hand"))
    assert "render writes values for v26.7.0: the tree would upgrade it." in " ".join(text.split())
    common = yaml.safe_load((tmp_path / "inventory/adopted/group_vars/gpu_hosts.yml").read_text())
    assert "gpu_kubernetes_operator_version" not in common


def test_a_cluster_policy_that_is_none_is_not_taken_for_no_operator(run, monkeypatch, tmp_path):
    monkeypatch.setattr(adopt.ActionModule, "cluster", lambda _self, _arguments: Api(enabled="no"))
    result, _text = run(given={"kubeconfig": "admin.conf"}, gpu01=read("hand"))
    assert result["failed"] and "ClusterPolicies of the cluster: one has fields of other types" in result["msg"]
    assert not (tmp_path / "inventory").exists()


def test_how_a_cluster_serves_its_nodes_is_described(run, monkeypatch, tmp_path):
    monkeypatch.setattr(adopt.ActionModule, "cluster", lambda _self, _arguments: Api())
    result, _text = run(given={"kubeconfig": "admin.conf"}, gpu01=read("hand"), gpu02=read("hand"))
    variables = result["hosts"]["gpu01"]["variables"]
    assert (variables["nvidia_sharing_mode"], variables["nvidia_sharing_replicas"]) == ("time_slicing", 4)
    assert result["differences"] == {"gpu02": ["the cluster has no node of this name or address"]}
    folder = tmp_path / "inventory/adopted"
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())["all"]["children"]["gpu_hosts"]["children"]
    named = {"gpu_node_name": "node-7"}
    assert hosts["l40s_48gb_time_slicing"]["hosts"]["gpu01"] == named
    common = yaml.safe_load((folder / "group_vars/gpu_hosts.yml").read_text())
    assert common["gpu_kubernetes_stack"] == "gpu_operator" and common["gpu_kubernetes_version"] == "1.34"
