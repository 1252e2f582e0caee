# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses a host's GPUs keeps the collection from being removed, and who does not, does not. One host in use keeps all from being touched."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import remove_gate
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.remove_gate import Removal, reasons_to_stay

from ...host_documents import seen

REFUSE, FORCE = Removal(), Removal(mig_disruption="force", mps_disruption="force")
POD = "0f5b1c9e-1111-2222-3333-444455556666"
JOB = {"pid": 812, "name": "python3", "memory_mib": 100, "type": "C"}


def gpu(processes=(), on_instance=(), on_part=()):
    part = {"id": 0, "processes": list(on_part)}
    instance = {"id": 1, "processes": list(on_instance), "compute_instances": [part]}
    return {
        "index": 0,
        "pci_address": "0000:18:00.0",
        "processes": list(processes),
        "gpu_instances": [instance],
    }


def facts(**parts):
    return {
        "nvml": {"available": True},
        "driver": {"source": "nvidia"},
        "gpus": [gpu()],
        "mps": [],
        "holders": [],
        "recorded": {"mig": None},
        **parts,
    }


def said(given, removal=REFUSE):
    return [refusal.message for refusal in reasons_to_stay(seen(given), removal)]


def test_a_host_that_nobody_uses_is_let_through():
    idle = {"pipe_directory": "/run/nvidia/mps/node/pipe", "pid": 900, "clients": 0, "servers": [910]}
    holders = [
        {"pid": 400, "command": "nvidia-persiste"},
        {"pid": 410, "command": "nv-fabricmanage"},
        {"pid": 900, "command": "nvidia-cuda-mps"},
        {"pid": 910, "command": "nvidia-cuda-mps"},
    ]
    server = {"pid": 910, "name": "nvidia-cuda-mps-server", "type": "C"}
    given = facts(mps=[idle], holders=holders, gpus=[gpu([server])])
    assert said(given) == [] and said(given, Removal(driver=True)) == []


@pytest.mark.parametrize("where", ["processes", "on_instance", "on_part"])
def test_a_process_is_refused_wherever_it_runs(where):
    given = facts(gpus=[gpu(**{where: [JOB]})])
    (message,) = said(given)
    assert message == (
        "GPU 0 (0000:18:00.0): it is in use by python3 (PID 812). End what uses it. Or allow it with nvidia_mig_disruption: force."
    )
    assert said(given, FORCE) == []


def test_nothing_allows_a_process_while_the_driver_is_to_go():
    removal = Removal(driver=True, mig_disruption="force", mps_disruption="force")
    (message,) = said(facts(gpus=[gpu([JOB])]), removal)
    assert message.endswith("No variable allows it while the driver is to be removed.")


def test_who_has_the_driver_open_is_named_once_and_with_its_pod():
    holders = [
        {"pid": 812, "command": "python3"},
        {"pid": 813, "command": "nvidia-device-p", "pod_uid": POD},
    ]
    first, second = said(facts(gpus=[gpu([JOB])], holders=holders))
    assert "812" in first and "812" not in second
    assert f"nvidia-device-p (PID 813, pod {POD}). Drain the node" in second


def test_clients_of_mps_are_refused_by_their_own_variable():
    daemon = {"pipe_directory": "/run/nvidia/mps/node/pipe", "pid": 900, "clients": 2, "servers": [910]}
    (message,) = said(facts(mps=[daemon]), Removal(mig_disruption="force"))
    assert "it has 2 clients" in message and "nvidia_sharing_mps_disruption: force" in message
    assert said(facts(mps=[daemon]), Removal(mps_disruption="force")) == []
    (kept,) = said(facts(mps=[daemon]), Removal(driver=True, mps_disruption="force"))
    assert "nvidia_sharing_mps_disruption" not in kept


def test_pods_that_were_given_a_device_are_refused_without_a_process():
    given = {**gpu(), "allocations": [{"pod": "team/notebook", "pod_uid": POD, "resource": "nvidia.com/gpu"}]}
    (message,) = said(facts(gpus=[given]))
    assert "in use by pod team/notebook (nvidia.com/gpu). Drain the node." in message
    assert said(facts(gpus=[given]), FORCE) == []
    (unread,) = said(facts(gpus=[{**gpu(), "allocations": [{"reason": "it is half written"}]}]))
    assert "unknown (it is half written)" in unread


def test_a_layout_cannot_come_back_without_a_driver():
    silent = {"available": False, "reason": "the driver is not loaded"}
    (message,) = said(facts(nvml=silent, gpus=None, recorded={"mig": {"schema": 1}}))
    assert "the driver is not loaded" in message and "mig-original.json" in message
    assert said(facts(nvml=silent, gpus=None)) == []


def test_a_driver_of_the_run_installer_is_not_ours_to_remove():
    given = facts(driver={"source": "runfile"})
    assert said(given) == []
    assert "nvidia-uninstall" in said(given, Removal(driver=True))[0]
    assert "driver.enabled: false" in said(facts(driver={"source": "container"}), Removal(driver=True))[0]


GROUPS = {"gpu_hosts": ["a", "b"], "training": ["a", "b"]}


@pytest.fixture
def gate(call, bare_facts):
    def run(**variables):
        hostvars = {host: {"gpu_facts_host": {"gpu": bare_facts}, **variables.get(host, {})} for host in ("a", "b")}
        return call(remove_gate, {"hosts": ["a", "b"]}, {"groups": GROUPS, "hostvars": hostvars})[0]

    return run


def test_hosts_get_what_their_removal_needs_with_defaults(gate):
    result = gate(b={"nvidia_toolkit_runtime": "docker", "nvidia_mig_disruption": "force"})
    assert "failed" not in result and result["refusals"] == []
    assert result["hosts"]["a"]["nvidia_toolkit_runtime"] == "containerd"
    assert result["hosts"]["a"]["nvidia_mig_disruption"] == "refuse"
    # Docker is not on this host: there is nothing to take the runtime nvidia out of.
    assert result["hosts"]["b"]["nvidia_toolkit_runtime"] == "none"
    assert result["hosts"]["b"]["nvidia_mig_disruption"] == "force"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"nvidia_mig_layot": "all-balanced"}, "a: nvidia_mig_layot: no role"),
        ({"gpu_facts_host": {"gpu": {"schema": "x"}}}, "a: the host: it could not be read: its facts are invalid"),
    ],
)
def test_one_refused_host_stops_all(gate, variables, said):
    result = gate(a=variables)
    assert result["failed"] and [refusal["hosts"] for refusal in result["refusals"]] == [["a"]]
    assert said in result["msg"] and "Nothing is removed from any host." in result["msg"]


def test_what_stays_is_named_with_the_hosts_that_have_it(gate, bare_facts):
    installed = {name: {**(bare_facts.get(name) or {}), "packages": {"p": "1-1"}} for name in ("toolkit", "driver")}
    has = {"gpu_facts_host": {"gpu": {**bare_facts, **installed}}}
    has_dcgm = {"gpu_facts_host": {"gpu": {**bare_facts, "dcgm": {"packages": {"p": "1-1"}}}}}
    gone = {"gpu_remove_toolkit": True, "gpu_remove_driver": "true"}

    def left(**variables):
        return [line.partition(": ")[2] for line in gate(**variables)["left"] if line.startswith("Left installed")]

    assert left(a=has, b={**has, **gone}) == ["the container toolkit on a.", "the driver on a."]
    assert left(a={**has, "gpu_remove_driver": True}, b=has) == ["the container toolkit on a, b.", "the driver on b."]
    assert left(a={**has, **gone}, b=has_dcgm) == ["DCGM on b."]
    assert left(a={**has, **gone}, b={**has, **gone}) == []
    assert left() == [], "what a host does not have is not left on it"
