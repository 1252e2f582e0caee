# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import repair_faults
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.nvlink import fabric as check
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.nvlink import is_forming
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import judge

IN_RACK = ("fabric manager of the rack", "switch trays")
COMPLETED = {"state": "completed", "status": 0, "degraded": [], "summary": "healthy"}


@pytest.mark.proves("fabric", "health", rows=["nvswitch"])
@pytest.mark.parametrize(
    ("fabric", "manager", "status", "text"),
    [
        ({}, {}, "passed", "4 NVSwitches, fabric manager 580.126.09"),
        ({"nvswitches": 0}, {"installed": False}, "skipped", "no NVSwitch"),
        ({}, {"installed": False}, "failed", "no fabric manager"),
        ({}, {"version": "580.95.05"}, "failed", "the fabric manager is 580.95.05, the driver 580.126.09"),
        ({}, {"active": False}, "failed", "does not run"),
        ({"state": "in_progress"}, {}, "failed", "in progress"),
        ({}, {"active": None}, "warning", "unknown"),
        ({"state": None}, {"version": None}, "passed", "unknown version"),
    ],
)
def test_fabric(evidence, facts, fabric, manager, status, text):
    facts["fabric"].update(fabric)
    facts["fabric"]["manager"].update(manager)
    judge(check(evidence()), status, text)


@pytest.fixture
def nvlink5(facts):
    """A host with boards of NVLink 5: no NVSwitch is on its PCI bus."""

    def build(board, *told):
        facts["pci"] = [{**device, "board": board} for device in facts["pci"][:2]]
        for gpu, fabric in zip(facts["gpus"], told):
            gpu.update(board=board, fabric=fabric)
        facts["fabric"].update(nvswitches=0, state=None)

    return build


@pytest.mark.proves("fabric", "health", rows=["nvlink5-host"])
@pytest.mark.parametrize("board", ["b200-180gb", "b300-269gb"])
def test_a_healthy_hgx_host_with_nvlink5(evidence, nvlink5, board):
    nvlink5(board, COMPLETED, COMPLETED)
    judge(check(evidence()), "passed", "NVLink 5 switches, fabric manager 580.126.09")


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (None, "GPU 1 is not on it"),
        ({**COMPLETED, "state": "not_started"}, "GPU 1 is not started"),
        ({**COMPLETED, "state": "in_progress"}, "GPU 1 is in progress"),
    ],
)
def test_a_b200_that_is_not_on_its_fabric_is_not_healthy(evidence, nvlink5, told, text):
    nvlink5("b200-180gb", COMPLETED, told)
    judge(check(evidence()), "failed", text, "ib_umad", "nvlsm")


def test_a_b200_without_the_fabric_manager(evidence, facts, nvlink5):
    nvlink5("b200-180gb", COMPLETED, {**COMPLETED, "state": "in_progress"})
    facts["fabric"]["manager"]["installed"] = False
    judge(check(evidence()), "failed", "no fabric manager")
    # The bus shows the board also where NVML does not answer.
    facts["gpus"] = None
    judge(check(evidence()), "failed", "no fabric manager")


def test_a_virtual_machine_whose_fabric_another_host_manages_or_that_has_none(evidence, facts, nvlink5):
    nvlink5("b200-180gb", COMPLETED, COMPLETED)
    facts["fabric"].update(manager={"installed": False, "active": None, "version": None})
    judge(check(evidence()), "passed", "2 GPUs are on a fabric whose switches are not visible")
    # One of a baseboard: NVML says that its fabric is not supported.
    del facts["pci"][1], facts["gpus"][1]
    facts["gpus"][0]["fabric"] = None
    judge(check(evidence()), "skipped", "the host has no NVSwitch")
    facts["gpus"][0]["fabric"] = {"state": "in_progress"}
    facts["fabric"]["state"] = "in_progress"
    judge(check(evidence()), "failed", "GPU 0 is in progress", "of the host that this virtual machine is on")


@pytest.mark.parametrize(
    ("told", "status", "text"),
    [
        (
            {"status": 15},
            "failed",
            "GPU 0 is not registered with the fabric: state completed, status 15 (the GPU is lost). Drain the host and restart "
            "nvidia-fabricmanager.service",
        ),
        ({"status": 77}, "failed", "status 77 (an error that this version does not know)"),
        ({"summary": "unhealthy"}, "failed", "GPU 0 is unhealthy (no reason)"),
        ({"summary": "unknown"}, "failed", "GPU 0 is unknown"),
        ({"degraded": ["route_unhealthy"]}, "failed", "route_unhealthy"),
        (
            {"degraded": ["insufficient_nvlinks"], "summary": None},
            "failed",
            "GPU 0 is unhealthy (insufficient_nvlinks)",
        ),
        ({"degraded": ["degraded_bandwidth"]}, "warning", "GPU 0 in the fabric: degraded_bandwidth"),
        ({"summary": "limited_capacity"}, "warning", "limited_capacity"),
        # Drivers before version 2 and 3 of the structure.
        ({"degraded": None, "summary": None}, "passed", "fabric manager"),
    ],
)
@pytest.mark.parametrize("board", ["b200-180gb", "h100-80gb-sxm"])
def test_a_completed_fabric_may_have_failed(evidence, facts, nvlink5, board, told, status, text):
    nvlink5(board, {**COMPLETED, **told}, COMPLETED)
    if board == "h100-80gb-sxm":
        facts["fabric"]["nvswitches"] = 4
    judge(check(evidence()), status, text)


@pytest.mark.parametrize(
    ("told", "status", "text"),
    [
        (COMPLETED, "passed", "2 GPUs are on a fabric whose switches are not visible"),
        ({**COMPLETED, "state": "in_progress"}, "failed", "in progress (GPU 1 is in progress)"),
        ({**COMPLETED, "status": 15}, "failed", "GPU 1 is not registered with the fabric"),
        ({**COMPLETED, "summary": "unhealthy"}, "failed", "GPU 1 is unhealthy"),
    ],
)
@pytest.mark.parametrize("board", [None, "h100-80gb-sxm"])
def test_a_fabric_that_only_the_driver_tells_of_is_judged(evidence, facts, nvlink5, board, told, status, text):
    """A board of NVLink 5 that the table lacks, and a GPU in a virtual machine, show no NVSwitch either."""
    nvlink5(board, COMPLETED, told)
    facts["fabric"].update(state=told["state"], manager={"installed": False, "active": None, "version": None})
    outcome = check(evidence())
    judge(outcome, status, text)
    assert ("it is not known where" in outcome.next_step) is (status == "failed")
    # One that is installed here and does not run has no switches to start with.
    facts["fabric"]["manager"].update(installed=True, active=False)
    left = [f"{outcome.evidence}. {outcome.next_step}"] if status == "failed" else []
    assert list(repair_faults._fabric(evidence())) == left


def test_a_host_of_a_rack_has_no_fabric_manager_of_its_own(evidence, facts, nvlink5):
    nvlink5("gb200-186gb", COMPLETED, COMPLETED)
    facts["fabric"]["manager"].update(installed=False, active=None, version=None)
    judge(check(evidence()), "passed", "2 GPUs are on the rack's fabric")
    facts["fabric"]["state"] = "in_progress"
    facts["gpus"][1]["fabric"] = {"state": "in_progress"}
    judge(check(evidence()), "failed", "in progress (GPU 1 is in progress)", *IN_RACK)


@pytest.mark.parametrize("told", [{"status": 15}, {"degraded": ["incorrect_chassis_serial_number"]}])
def test_a_fabric_that_failed_on_a_host_of_a_rack_is_mended_at_the_rack(evidence, facts, nvlink5, told):
    nvlink5("gb200-186gb", COMPLETED, {**COMPLETED, **told})
    facts["fabric"]["manager"].update(installed=False, active=None, version=None)
    outcome = check(evidence())
    judge(outcome, "failed", "GPU 1 is ", *IN_RACK)
    assert "nvidia-fabricmanager.service" not in outcome.next_step
    # Nothing that heal does on this host would mend it.
    assert list(repair_faults._fabric(evidence())) == [f"{outcome.evidence}. {outcome.next_step}"]


def test_a_fabric_manager_without_its_modules_is_mended_by_site(evidence, facts, nvlink5):
    nvlink5("b200-180gb", COMPLETED, COMPLETED)
    facts["fabric"].update(lacking_modules=["mlx5_ib", "ib_umad"])
    facts["fabric"]["manager"].update(active=False)
    outcome = check(evidence())
    judge(
        outcome, "failed", "the kernel modules that it needs are not loaded (mlx5_ib, ib_umad)", "gpufleet.nvidia.site"
    )
    # A restart of its service would end as the last start did.
    assert list(repair_faults._fabric(evidence())) == [f"{outcome.evidence}. {outcome.next_step}"]


@pytest.mark.parametrize(
    ("fabric", "result"),
    [
        ({"state": "in_progress"}, True),
        ({"state": "not_started"}, True),
        ({"state": "not_started", "manager": {"active": False}}, False),
        ({"state": "in_progress", "manager": {"active": False}}, False),
        ({"state": "in_progress", "manager": {"installed": False}}, False),
        # Without switches of the host's own, somebody elsewhere does.
        ({"state": "in_progress", "nvswitches": 0, "manager": {"installed": False}}, True),
        ({"state": "not_started", "nvswitches": 0, "manager": {"installed": False}}, False),
        ({"state": "completed"}, False),
        ({"state": None}, False),
    ],
)
def test_a_fabric_forms_where_somebody_registers_its_gpus(facts, fabric, result):
    assert is_forming(seen({**facts, "fabric": {**facts["fabric"], **fabric}})) is result


def test_a_rack_registers_the_gpus_of_a_host_that_has_no_fabric_manager(facts, nvlink5):
    nvlink5("gb200-186gb", COMPLETED, {"state": "in_progress"})
    facts["fabric"].update(state="in_progress", manager={"installed": False, "active": None, "version": None})
    assert is_forming(seen(facts))


RUNS = {"version": "580.126.09", "active": True, "enabled": True, "masked": False, "nodes": ["10.0.0.1", "10.0.0.2"]}


@pytest.mark.parametrize(
    ("imex", "status", "text"),
    [
        ({}, "passed", "IMEX runs"),
        ({"active": False, "enabled": False, "version": None}, "passed", "IMEX does not run"),
        ({"active": False, "masked": True}, "passed", "IMEX masked"),
        (
            {"active": False},
            "failed",
            "nvidia-imex.service does not run. Run gpufleet.nvidia.site (role nvidia_driver)",
        ),
        ({"version": "580.95.05"}, "failed", "IMEX is 580.95.05, the driver 580.126.09"),
        ({"active": None}, "passed", "IMEX in an unknown state"),
    ],
)
def test_imex_of_a_racks_host(evidence, facts, nvlink5, imex, status, text):
    nvlink5("gb200-186gb", COMPLETED, COMPLETED)
    facts["fabric"].update(manager={"installed": False, "active": False}, imex={**RUNS, **imex})
    judge(check(evidence()), status, text)


def test_heal_leaves_the_imex_of_a_rack_to_site(evidence, facts, nvlink5):
    """A restart takes memory from jobs of other hosts, and a reboot of this host mends nothing of it."""
    nvlink5("gb200-186gb", COMPLETED, COMPLETED)
    facts["fabric"].update(manager={"installed": False, "active": False}, imex={**RUNS, "active": False})
    (left,) = repair_faults._fabric(evidence())
    assert isinstance(left, str) and "nvidia-imex.service does not run" in left
