# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with the description of a cluster is refused by C(plan) and by C(render), with the variable, before anything is written or asked."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.gpufleet.nvidia.plugins.action import render as render_action
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import check_variables, fleet_plan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.playbook_variables import OWN

from ....warm_ansible import run as run_ansible

REPOSITORY = Path(__file__).resolve().parents[4]
POOL = {"gpu_facts_gpus": [{"board": "l40s", "count": 4}]}
MIG = {
    "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 8}],
    "nvidia_mig_layout": "all-balanced",
    "nvidia_mig_strategy": "mixed",
}


def quotas(*shares, **team):
    return {"gpu_kubernetes_quotas": [{"team": "vision", "namespaces": ["vision"], "shares": list(shares), **team}]}


def two_teams(one, other):
    (first,), (second,) = (quotas({"pool": "pool", "percent": share}).values() for share in (one, other))
    return {"gpu_kubernetes_quotas": [*first, {**second[0], "team": "speech", "namespaces": ["speech"]}]}


#: Name of the case to variables of the pool, and what the message must have: the variable, and what is wrong.
CASES: dict[str, tuple[dict, tuple[str, ...]]] = {
    "quotas over 100 %": (two_teams(60, 50), ("gpu_kubernetes_quotas", "110")),
    "a team without a pool": (quotas(), ("gpu_kubernetes_quotas[0].shares", "team vision")),
    "a pool that is not there": (
        quotas({"pool": "pol", "percent": 5}),
        ("gpu_kubernetes_quotas[0].shares[0].pool", "'pol'"),
    ),
    "a share without a number": (quotas({"pool": "pool"}), ("gpu_kubernetes_quotas[0].shares[0]", "percent")),
    "a count below 0": (quotas({"pool": "pool", "count": -1}), ("gpu_kubernetes_quotas[0].shares[0].count", "-1")),
    "more than there is": (quotas({"pool": "pool", "count": 5}), ("gpu_kubernetes_quotas", "5 of the 4")),
    "an unknown kind of quotas": ({"gpu_kubernetes_quota_kind": "volcano"}, ("gpu_kubernetes_quota_kind", "volcano")),
    "an unknown addon": (
        {"gpu_kubernetes_dcgm_exportr": True},
        ("gpu_kubernetes_dcgm_exportr", "gpu_kubernetes_dcgm_exporter"),
    ),
    "values of a chart that is not there": (
        {"gpu_kubernetes_values": {"dcgm-exportr": {"a": 1}}},
        ("gpu_kubernetes_values['dcgm-exportr']", "Did you mean dcgm-exporter?"),
    ),
    "values that are none": (
        {"gpu_kubernetes_values": {"dcgm-exporter": "on"}},
        ("gpu_kubernetes_values['dcgm-exporter']", "must be a mapping"),
    ),
    "a value that the chart does not read": (
        {"gpu_kubernetes_values": {"dcgm-exporter": {"servceMonitor": {"enabled": True}}}},
        ("gpu_kubernetes_values['dcgm-exporter'].servceMonitor", "serviceMonitor"),
    ),
    "more slices than an MPS daemon serves": (
        {"nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "256MiB"},
        ("nvidia_sharing_memory_slice", "at most 48 clients, not 179"),
    ),
    "a node in upper case": ({"gpu_node_name": "GPU-Host-1"}, ("gpu_node_name", "gpu-host-1")),
    "a migration from another stack": (
        {"gpu_kubernetes_migrate_from": "operator"},
        ("gpu_kubernetes_migrate_from", "operator"),
    ),
    "a migration from the same stack": (
        {"gpu_kubernetes_migrate_from": "device_plugin"},
        ("gpu_kubernetes_migrate_from", "device_plugin"),
    ),
    "an unknown stack": ({"gpu_kubernetes_stack": "gpu-operator"}, ("gpu_kubernetes_stack", "gpu_operator")),
    "an unknown GitOps controller": ({"gpu_kubernetes_gitops": "argo"}, ("gpu_kubernetes_gitops", "argocd")),
    "a GitOps controller without a repository": (
        {"gpu_kubernetes_gitops": "argocd"},
        ("gpu_kubernetes_gitops_repository", "argocd"),
    ),
    "a version of the operator that is none": (
        {"gpu_kubernetes_stack": "gpu_operator", "gpu_kubernetes_operator_version": "latest"},
        ("gpu_kubernetes_operator_version", "latest"),
    ),
    "a cluster in upper case": ({"gpu_kubernetes_cluster": "Prod"}, ("gpu_kubernetes_cluster", "prod")),
    "a namespace that is none": ({"gpu_kubernetes_namespace": "GPU_ns"}, ("gpu_kubernetes_namespace", "GPU_ns")),
    "a runtime class that is none": (
        {"gpu_kubernetes_runtime_class": "NVidia!"},
        ("gpu_kubernetes_runtime_class", "NVidia!"),
    ),
    "claims in a cluster that has none": (
        {"nvidia_sharing_backend": "dra", "gpu_kubernetes_version": "1.32"},
        ("nvidia_sharing_backend", "Kubernetes 1.32 does not have"),
    ),
    "a migration to the backend that it is": (
        {"nvidia_sharing_backend": "dra", "nvidia_sharing_migrate_from": "dra"},
        ("nvidia_sharing_migrate_from", "dra"),
    ),
    "a match by something else": (
        {"gpu_kubernetes_node_match": {"zone": "a"}},
        ("gpu_kubernetes_node_match", "zone"),
    ),
    "a MIG manager that nobody runs": (
        {
            **MIG,
            "nvidia_sharing_backend": "dra",
            "gpu_kubernetes_version": "1.36",
            "gpu_kubernetes_stack": "gpu_operator",
            "gpu_kubernetes_mig_manager": "operator",
        },
        ("gpu_kubernetes_mig_manager of pool pool", "no GPU Operator is rendered"),
    ),
}


@pytest.fixture
def of_inventory(tmp_path):
    """What a task of a play over an inventory with one host in one pool sees; nobody answers there."""

    def read(variables):
        of_pool = {**POOL, "gpu_kubernetes_output_directory": str(tmp_path / "tree"), **variables}
        hosts = {"gpu-1": {"ansible_host": "127.0.0.1", "ansible_port": 1}}
        path = tmp_path / "inventory.yml"
        described = {"gpu_hosts": {"children": {"pool": {"hosts": hosts, "vars": of_pool}}}}
        path.write_text(yaml.safe_dump(described), encoding="utf-8")
        loader = DataLoader()
        inventory = InventoryManager(loader, sources=[str(path)])
        manager = VariableManager(loader, inventory)
        host = inventory.get_host("gpu-1")
        return {
            **manager.get_vars(host=host),
            "hostvars": HostVars(inventory, manager, loader),
            "ansible_play_hosts_all": ["gpu-1"],
        }

    return read


@pytest.fixture
def asked(call, of_inventory):
    """Return what a playbook says of variables, and whether it goes on: the actions of its tasks, in their order."""

    def plan(variables):
        checked, first = call(check_variables, {"playbook": "plan"}, variables)
        compared, _shown = call(render_action, {"hosts": []}, variables, check_mode=True)
        unrendered = "" if "changes" in compared else compared["msg"]
        of_plan = {"hosts": ["gpu-1"], "offline": True, "unrendered": unrendered}
        result, shown = call(fleet_plan, of_plan, variables)
        said = [checked.get("msg", ""), *first.lines, shown.text, result["msg"]]
        (host,) = result["plan"]["hosts"].values()
        return bool(unrendered or checked.get("failed") or host["verdict"] == "impossible"), said

    def render(variables):
        checked, first = call(check_variables, {"playbook": "render"}, variables)
        if checked.get("failed"):
            return True, [checked["msg"]]
        result, _shown = call(render_action, {"hosts": []}, variables)
        return bool(result.get("failed")), [*first.lines, result.get("msg", "")]

    def ask(playbook, variables):
        refused, said = {"plan": plan, "render": render}[playbook](of_inventory(variables))
        return refused, re.sub(r"\s+", " ", "\n".join(said))

    return ask


@pytest.mark.parametrize("playbook", ["plan", "render"])
@pytest.mark.parametrize("name", CASES)
def test_both_refuse_it_with_the_variable_and_write_nothing(asked, tmp_path, playbook, name):
    variables, wanted = CASES[name]
    refused, text = asked(playbook, variables)
    assert refused, text
    for one in wanted:
        assert one in text, text
    assert not (tmp_path / "tree").exists()


def test_what_is_right_is_refused_by_none_of_them(asked, tmp_path):
    """Or every case would be refused for another reason."""
    refused, text = asked("plan", {})
    assert not refused, text
    assert not (tmp_path / "tree").exists()
    refused, text = asked("render", {})
    assert not refused and (tmp_path / "tree").exists(), text


def test_a_variable_that_the_tree_does_not_have_is_refused_by_plan_and_named_by_render(asked):
    variables, wanted = {"gpu_node_nvsentinel": "excluded"}, "gpu_node_nvsentinel: 'excluded' must be one of exclude, "
    refused, text = asked("plan", variables)
    assert refused and wanted in text
    refused, text = asked("render", variables)
    assert not refused and wanted in text


@pytest.mark.parametrize("playbook", sorted(OWN))
def test_every_playbook_that_takes_nodes_out_of_service_refuses_it_and_the_others_name_it(call, of_inventory, playbook):
    result, shown = call(check_variables, {"playbook": playbook}, of_inventory({"gpu_node_nvsentinel": "excluded"}))
    wanted = "gpu_node_nvsentinel: 'excluded' must be one of exclude, remediate, ignore"
    assert wanted in " ".join([result.get("msg", ""), *shown.lines])
    assert bool(result.get("failed")) is (playbook not in ("render", "doctor"))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("plan", "-e", "gpu_plan_offline=true"), ("render",)], ids=lambda one: one[0])
def test_the_playbooks_end_with_it(of_inventory, tmp_path, arguments):
    variables, wanted = CASES["quotas over 100 %"]
    of_inventory(variables)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {"ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"), "ANSIBLE_NOCOLOR": "1"}
    program = Path(sys.executable).with_name("ansible-playbook")
    playbook, *options = arguments
    done = run_ansible([program, "-i", "inventory.yml", f"gpufleet.nvidia.{playbook}", *options], environment, tmp_path)
    assert done.returncode == 2 and all(one in done.stdout for one in wanted), done.stdout + done.stderr
    assert not (tmp_path / "tree").exists()
