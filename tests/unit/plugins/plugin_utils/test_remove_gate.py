# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses a host's GPUs keeps the collection from being removed, and who does not, does not."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.remove_gate import (
    Removal,
    left_in_clusters,
    reasons_to_stay,
)
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

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


def test_what_is_left_names_what_stayed():
    kept = left_in_clusters(["a", "b"], {"toolkit": ["a", "b"], "driver": [], "dcgm": ["b"]})
    assert [line.partition("no longer held: ")[2] for line in kept[-2:]] == [
        "the container toolkit on a, b.",
        "DCGM on b.",
    ]
    assert "Left installed" not in "".join(left_in_clusters(["a"], {"driver": []}))
