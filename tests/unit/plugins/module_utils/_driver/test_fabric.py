# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fabric of NVLink 5: its modules, now and at every boot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.board import NVLINK5
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.cards import own_switches
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board as find_board_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.fabric import MODULES_FILE
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.nvlink import fabric as check_of_fabric
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Evidence
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document, card, seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._driver.host_double import (
    NEW,
    OLD,
    Manager,
    System,
    facts,
    full,
)

stage = by_document(stage_of_facts)

HGX_B200 = card("0", "0x2901", "blackwell", "b200-180gb")


def nvlink5_host(**changed):
    """A host with the wanted driver, whose fabric manager runs already."""
    packages = {**full(NEW), "nvlsm": "2025.06.11-1"}
    system = System(Manager(packages, packages), loaded=NEW, fabric_installed=True, **changed)
    system.base = replace(system.base, gpus=(HGX_B200,), switches="nvlink5")
    system.active = system.enabled = {"nvidia-fabricmanager.service", "nvidia-persistenced.service"}
    return system


@pytest.mark.proves("fabric", "host", rows=["nvlink5-host"])
def test_the_modules_of_nvlink5_are_loaded_now_and_at_every_boot():
    system = nvlink5_host(lacking_modules=("mlx5_ib", "ib_umad"))
    report = run_stage(system, DesiredDriver(version=NEW), check=False)
    assert {"create_file", "load_kernel_modules"} <= {step.kind.key for step in report.steps}
    assert system.files[MODULES_FILE].splitlines()[1:] == ["mlx5_core", "mlx5_ib", "ib_umad"]
    assert [line for line in system.log if line.startswith("load ")] == ["load mlx5_ib", "load ib_umad"]
    assert not run_stage(system, DesiredDriver(version=NEW), check=False).changed


def test_the_modules_of_nvlink5_are_loaded_before_the_fabric_manager_starts():
    """Its own check before the start fails without them."""
    system = nvlink5_host(lacking_modules=("ib_umad",))
    system.active = {"nvidia-persistenced.service"}
    system.unit_exists = lambda _name: True
    run_stage(system, DesiredDriver(version=NEW), check=False)
    wanted = ["load ib_umad", "start nvidia-fabricmanager.service"]
    assert [line for line in system.log if line in wanted] == wanted


def test_check_mode_loads_no_module_of_nvlink5():
    system = nvlink5_host(lacking_modules=("ib_umad",))
    report = run_stage(system, DesiredDriver(version=NEW), check=True)
    assert "load_kernel_modules" in {step.kind.key for step in report.steps}
    assert MODULES_FILE not in system.files
    assert "load ib_umad" not in system.log


@pytest.mark.parametrize("gpu", [card("0", "0x2330", "hopper", "h100-80gb-sxm"), HGX_B200])
def test_a_host_without_the_fabric_manager_loads_no_module_of_nvlink5(gpu):
    system = nvlink5_host(lacking_modules=("ib_umad",))
    system.base = replace(system.base, gpus=(gpu,), switches="nvlink5" if gpu is HGX_B200 else None)
    never = "never" if gpu is HGX_B200 else "auto"
    run_stage(system, DesiredDriver(version=NEW, fabric_manager=never), check=False)
    assert MODULES_FILE not in system.files
    assert "load ib_umad" not in system.log


def test_a_module_of_nvlink5_that_cannot_be_loaded_is_said():
    system = nvlink5_host(lacking_modules=("mlx5_ib",))
    system.active, system.unit_exists = {"nvidia-persistenced.service"}, lambda _name: True
    system.load_error = "Module mlx5_ib not found"
    with pytest.raises(Failure, match="kernel module mlx5_ib of NVLink 5 cannot be loaded: Module mlx5_ib not found"):
        run_stage(system, DesiredDriver(version=NEW), check=False)
    assert not [line for line in system.log if line.startswith("start ") and "fabricmanager" in line]


def test_the_stage_plans_the_fabric_of_nvlink5_by_the_gpu():
    card = {"address": "0", "device_id": "0x2901", "kind": "gpu", "architecture": "blackwell", "board": "b200-180gb"}
    manager = {"installed": True, "active": True, "version": OLD}
    packages = {**full(OLD), "nvlsm": "2025.06.11-1"}
    host = {**facts(packages=packages, holds=list(packages)), "pci": [card, {**card, "address": "1"}]}
    host["fabric"] = {"nvswitches": 0, "manager": manager, "lacking_modules": ["ib_umad"]}
    assert [str(step) for step in stage(host, {}).steps] == [
        "load ib_umad (the fabric manager does not start without them)"
    ]
    host["fabric"]["lacking_modules"] = []
    assert not stage(host, {}).needed
    host["fabric"]["manager"] = {"installed": True, "active": False, "version": OLD}
    assert [step.kind.key for step in stage(host, {}).steps] == ["start_service"]
    # The only GPU of a host is one of a virtual machine: no baseboard with switches has one only.
    bare = {**host, "fabric": {"nvswitches": 0, "manager": {"installed": False}}}
    assert "nvidia-fabricmanager" in str(stage(bare, {}).steps[0])
    assert not stage({**bare, "pci": [card]}, {}).needed
    host["pci"] = [{**card, "device_id": "0x2941", "board": "gb200-186gb"}]
    assert not stage(host, {}).needed
    assert [refusal.thing for refusal in stage(host, {"nvidia_driver_fabric_manager": "always"}).refusals] == [
        "nvidia_driver_fabric_manager"
    ]


SERVES, NONE = {"installed": True, "active": True, "version": OLD}, {"installed": False, "active": None}
ENDED = {**SERVES, "active": False}


def test_a_fabric_manager_that_is_wanted_always_has_what_it_starts_with():
    """Also in a virtual machine that shows no switches."""
    card = {"address": "0", "kind": "gpu", "device_id": "0x2901", "architecture": "blackwell", "board": "b200-180gb"}
    host = {**facts(packages=full(OLD), holds=list(full(OLD))), "pci": [card, {**card, "address": "1"}]}
    host["fabric"] = {"nvswitches": 0, "manager": NONE, "switch_ports": 0, "virtual_machine": True}
    assert not stage(host, {}).needed
    steps = "\n".join(map(str, stage(host, {"nvidia_driver_fabric_manager": "always"}).steps))
    assert "nvlsm" in steps


def test_boards_that_are_known_by_their_name_alone_have_their_switches():
    card = {"address": "0", "kind": "gpu", "device_id": "0x29ff", "architecture": None, "board": None}
    gpus = [{"index": n, "board": "b200-180gb"} for n in range(8)]
    assert own_switches(seen({"pci": [card] * 8, "gpus": gpus, "fabric": {"manager": NONE}})) == NVLINK5


@pytest.mark.parametrize(
    ("board", "count", "fabric", "state", "wanted"),
    [
        # Bare metal, without a driver and with one: the bus says it where it can be read, else the board.
        ("b200-180gb", 8, {"manager": NONE}, None, True),
        ("b200-180gb", 8, {"manager": NONE, "switch_ports": 4}, None, True),
        ("b200-180gb", 8, {"manager": NONE, "switch_ports": 0, "virtual_machine": False}, "in_progress", True),
        ("b200-180gb", 8, {"manager": SERVES, "switch_ports": 4}, "completed", True),
        # The package was removed: what it had registered stays so until the driver is loaded anew.
        ("b200-180gb", 8, {"manager": NONE, "switch_ports": 4}, "completed", True),
        ("b200-180gb", 8, {"manager": NONE, "switch_ports": 0, "virtual_machine": False}, "completed", True),
        ("b200-180gb", 8, {"manager": NONE, "switch_ports": None, "virtual_machine": False}, "completed", True),
        ("h100-80gb-sxm", 8, {"manager": NONE, "nvswitches": 4}, None, True),
        # One GPU of a baseboard in a virtual machine.
        ("b200-180gb", 1, {"manager": NONE}, None, False),
        ("b200-180gb", 1, {"manager": NONE, "switch_ports": 0, "virtual_machine": True}, "in_progress", False),
        ("h100-80gb-sxm", 1, {"manager": NONE}, None, False),
        # All of them with their switches.
        ("b200-180gb", 8, {"manager": NONE, "switch_ports": 4}, "in_progress", True),
        ("h100-80gb-sxm", 8, {"manager": NONE, "nvswitches": 4}, "in_progress", True),
        # Without: the fabric manager of the virtual machine's host serves them, or has not yet.
        ("b200-180gb", 4, {"manager": NONE, "switch_ports": 0, "virtual_machine": True}, None, False),
        ("b300-269gb", 4, {"manager": NONE, "switch_ports": 0, "virtual_machine": True}, "in_progress", False),
        ("b200-180gb", 4, {"manager": ENDED, "switch_ports": 0, "virtual_machine": True}, "in_progress", False),
        ("b200-180gb", 4, {"manager": NONE, "switch_ports": 0, "virtual_machine": True}, "completed", False),
        ("b200-180gb", 4, {"manager": NONE}, "completed", False),
        ("h100-80gb-sxm", 4, {"manager": NONE}, "in_progress", False),
        # One that serves here has switches, whatever the bus of the virtual machine shows.
        ("b200-180gb", 8, {"manager": SERVES, "switch_ports": 0, "virtual_machine": True}, "completed", True),
        # Those of a rack have their own.
        ("gb200-186gb", 4, {"manager": NONE, "nvswitches": 2}, "in_progress", False),
    ],
)
def test_a_fabric_manager_is_wanted_where_its_switches_are(board, count, fabric, state, wanted):
    """The plan and the check of health judge the same."""
    found = find_board_of(board)
    packages = {**full(OLD), "nvlsm": "2025.06.11-1"} if fabric["manager"] is SERVES else full(OLD)
    document = facts(packages=packages, holds=list(packages))
    names = {"device_id": found.pci_device_ids[0][:6].lower(), "architecture": found.architecture, "board": board}
    document["pci"] = [{"address": str(n), "kind": "gpu", "kernel_driver": "nvidia", **names} for n in range(count)]
    document["gpus"] = [{"index": n, **names, "fabric": {"state": state} if state else None} for n in range(count)]
    document["fabric"] = {"nvswitches": 0, "state": state, **fabric}
    steps = stage(document, {}).steps
    assert any("nvidia-fabricmanager" in str(step) for step in steps) is (wanted and fabric["manager"] is not SERVES)
    shown = check_of_fabric(Evidence(seen(document)))
    assert ("no fabric manager" in shown.evidence) is (wanted and fabric["manager"] is NONE)
    if not wanted and state == "in_progress":
        assert "it is not known where its fabric is" in shown.next_step or "rack" in shown.next_step
