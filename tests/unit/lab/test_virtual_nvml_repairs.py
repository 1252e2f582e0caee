# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every fault that the virtual GPU can have, as the collection reads it through NVML's binary interface and as heal plans it, before and after."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import AnswerFacts, view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_faults import Described
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_plan import Policy, RepairPlan, plan_repair
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import Action, RepairRecord
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Evidence
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import errors_in
from virtual_machine import VERSION

if TYPE_CHECKING:
    from virtual_machine import VirtualMachine

COLLECTIONS = str(Path(nvml.__file__).parents[6])
READING = f"""
    import sys
    sys.path.insert(0, {COLLECTIONS!r})
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_reader import HostReader
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import nvml
    nvml.NVML_LIMIT = float(os.environ["LIMIT"])
    answer(nvml.begin_gpus(HostReader(HostFiles()), None, ("errors",))())
    """
SECOND = "0000:2a:00.0"
NOW = datetime.datetime(2026, 11, 23, tzinfo=datetime.timezone.utc)


def planned(machine: VirtualMachine, limit: float = 60) -> RepairPlan:
    """What heal would do to the machine as it is now.

    :param limit: seconds that NVML is waited for.
    """
    log = Path(machine.environment["VIRTUAL_GPU_KMSG"])
    done = machine.raw(READING, LIMIT=str(limit))
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    switches = machine.show()["nvswitches"]
    facts = {
        **read,
        "host": {"boot_id": "b"},
        "pci": [
            {"address": gpu["pci_address"], "kind": "gpu", "kernel_driver": "nvidia"} for gpu in machine.show()["gpus"]
        ],
        "driver": {f"{place}_version": VERSION for place in ("loaded", "on_disk", "library")},
        "fabric": {
            "nvswitches": switches,
            "manager": {"installed": switches > 0, "active": switches > 0, "version": VERSION},
            "state": read["fabric_state"],
        },
        "recorded": {},
    }
    smi = machine.smi("-L")
    devices = [(device["kind"], device["address"]) for device in facts["pci"]]
    xids = [error for _number, error in errors_in(log.read_text(), devices)]
    evidence = Evidence(view_of(facts), AnswerFacts(smi.returncode, smi.stdout), xids, [])
    return plan_repair(evidence, Described(), RepairRecord(), Policy(NOW))


def reset(machine: VirtualMachine) -> None:
    machine.smi("--gpu-reset", "-i", "0,1")


def reboot(machine: VirtualMachine) -> None:
    Path(machine.environment["VIRTUAL_GPU_KMSG"]).write_text("")
    machine.gpu("boot")
    machine.gpu("load", VERSION, "open")
    machine.gpu("fabric", "completed")


#: Fault, to the commands that make it, what is planned then, and what is planned after the reset of the GPUs and after a reboot.
FAULTS = {
    "a reset helps": (["recovery --gpu 1 --action 1"], Action.RESET_GPU, Action.NOTHING, Action.NOTHING),
    "a reset does not help": (
        ["recovery --gpu 1 --action 1 --until boot"],
        Action.RESET_GPU,
        Action.RESET_GPU,
        Action.NOTHING,
    ),
    "only a new board helps": (
        ["recovery --gpu 1 --action 1 --until replaced"],
        Action.RESET_GPU,
        Action.RESET_GPU,
        Action.RESET_GPU,
    ),
    "programs have to end": (["recovery --gpu 1 --action 3"], Action.DRAIN, Action.NOTHING, Action.NOTHING),
    "the node has to be booted": (
        ["recovery --gpu 1 --action 2 --until boot"],
        Action.REBOOT,
        Action.REBOOT,
        Action.NOTHING,
    ),
    "an action of tomorrow": (
        ["recovery --gpu 1 --action 9 --until replaced"],
        Action.HAND_OVER,
        Action.HAND_OVER,
        Action.HAND_OVER,
    ),
    "off the bus": (["lose --gpu 1"], Action.REBOOT, Action.REBOOT, Action.NOTHING),
    "no spare rows": (["memory --gpu 1 --remap failed"], Action.HAND_OVER, Action.HAND_OVER, Action.HAND_OVER),
    "rows that wait for a reset": (
        ["memory --gpu 1 --uncorrected 1 --remap pending"],
        Action.NOTHING,
        Action.NOTHING,
        Action.NOTHING,
    ),
    "a fabric that did not start": (
        ["fabric not-started"],
        Action.RESTART_SERVICE,
        Action.RESTART_SERVICE,
        Action.NOTHING,
    ),
    "a fabric that refused a GPU": (
        ["fabric completed --status 15"],
        Action.RESTART_SERVICE,
        Action.RESTART_SERVICE,
        Action.NOTHING,
    ),
    "a text in the log where the driver tells nothing": (
        ["fail nvmlDeviceGetFieldValues NOT_SUPPORTED", "xid --gpu 1 --number 119"],
        Action.NOTHING,
        Action.NOTHING,
        Action.NOTHING,
    ),
    "an error that the counters of the driver without recovery action confirm": (
        ["fail nvmlDeviceGetFieldValues NOT_SUPPORTED", "xid --gpu 1 --number 48", "memory --gpu 1 --uncorrected 1"],
        Action.RESET_GPU,
        Action.NOTHING,
        Action.NOTHING,
    ),
    "an error that the driver has an answer to": (
        ["xid --gpu 1 --number 119"],
        Action.NOTHING,
        Action.NOTHING,
        Action.NOTHING,
    ),
}


@pytest.fixture
def ready(machine: VirtualMachine, tmp_path: Path) -> VirtualMachine:
    log = tmp_path / "kmsg"
    log.touch()
    machine.environment["VIRTUAL_GPU_KMSG"] = str(log)
    machine.start("h100-80gb-sxm", "--count=2", "--nvswitch=4")
    machine.gpu("fabric", "completed")
    assert planned(machine).action is Action.NOTHING
    return machine


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_before_and_after_what_ends_it(ready: VirtualMachine, fault: str) -> None:
    commands, broken, after_reset, after_reboot = FAULTS[fault]
    for command in commands:
        ready.gpu(*command.split())
    assert planned(ready).action is broken
    reset(ready)
    assert planned(ready).action is after_reset
    reboot(ready)
    assert planned(ready).action is after_reboot


def test_a_call_that_hangs(ready: VirtualMachine) -> None:
    ready.gpu("fail", "nvmlDeviceGetCount_v2", "hang:3")
    found = planned(ready, limit=1)
    assert found.action is Action.REBOOT and "NVML does not answer" in str(found.decided[0])
    reboot(ready)
    assert planned(ready).action is Action.NOTHING


def test_two_faults_at_once(ready: VirtualMachine) -> None:
    """The stronger action is taken, and of the other GPU's fault is said what it is."""
    ready.gpu("recovery", "--gpu", "0", "--action", "1")
    ready.gpu("lose", "--gpu", "1")
    ready.gpu("xid", "--gpu", "1", "--number", "79")
    found = planned(ready)
    assert found.action is Action.REBOOT and found.errors == {79}
    assert [one.fault.key for one in found.decided] == [(SECOND, "gpu_lost"), ("0000:18:00.0", "recovery")], (
        "a GPU that is gone is one fault, whatever shows it"
    )
    ready.gpu("find", "--gpu", "1")
    ready.gpu("memory", "--gpu", "1", "--remap", "pending")
    found = planned(ready)
    assert found.action is Action.RESET_GPU and found.gpus == ("0000:18:00.0",)
    assert f"GPU 1 ({SECOND}) replaces bad memory at its next reset; it can be used until then" in found.notes
