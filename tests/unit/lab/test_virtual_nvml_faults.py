# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failing on demand, and the record of calls that a crash matrix is made from."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from virtual_machine import VirtualMachine

CREATE_3 = """
d = nvmlDeviceGetHandleByIndex(0)
answer([refused(create, d, 19) for _ in range(3)])
"""


@pytest.fixture
def ready(machine: VirtualMachine) -> VirtualMachine:
    machine.start("h100-80gb-sxm")
    machine.nvml("nvmlDeviceSetMigMode(nvmlDeviceGetHandleByIndex(0), 1); answer(None)")
    return machine


def instances(machine: VirtualMachine) -> int:
    return len(machine.show()["gpus"][0]["gpu_instances"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["Unknown"] * 3),
        (["--nth", "2"], [None, "Unknown", None]),
        (["--count", "2"], ["Unknown", "Unknown", None]),
        (["--nth", "2", "--count", "2"], [None, "Unknown", "Unknown"]),
    ],
)
def test_error(ready: VirtualMachine, options: list[str], expected: list[str | None]) -> None:
    ready.gpu("fail", "nvmlDeviceCreateGpuInstance*", "UNKNOWN", *options)
    assert ready.nvml(CREATE_3) == expected
    assert instances(ready) == expected.count(None)


def test_shared_rules_count_the_calls_of_all_processes(ready: VirtualMachine) -> None:
    ready.gpu("fail", "nvmlDeviceCreateGpuInstance", "NVML_ERROR_INSUFFICIENT_RESOURCES", "--nth", "4")
    assert ready.nvml(CREATE_3) == [None] * 3
    assert ready.nvml(CREATE_3) == ["InsufficientResources", None, None]
    ready.gpu("fail", "--clear")
    assert ready.gpu("fail", "--list") == ""


def test_environment_hits_one_process(ready: VirtualMachine) -> None:
    rule = "nvmlDeviceCreateGpuInstance:error=TIMEOUT:nth=1"
    assert ready.nvml(CREATE_3, VIRTUAL_GPU_FAIL=rule) == ["Timeout", None, None]
    assert ready.nvml(CREATE_3) == [None] * 3


def test_error_after_the_effect(ready: VirtualMachine) -> None:
    ready.gpu("fail", "nvmlDeviceCreateGpuInstance", "after:TIMEOUT", "--nth", "1")
    assert ready.nvml(CREATE_3) == ["Timeout", None, None]
    assert instances(ready) == 3


@pytest.mark.parametrize(("action", "left"), [("kill", 1), ("kill-after", 2)])
def test_kill(ready: VirtualMachine, action: str, left: int) -> None:
    ready.gpu("fail", "nvmlDeviceCreateGpuInstance", action, "--nth", "2")
    assert ready.raw("nvmlInit()\n" + CREATE_3).returncode == -signal.SIGKILL
    assert instances(ready) == left
    assert ready.nvml(CREATE_3) == [None] * 3  # nothing is locked


def test_any_call_can_be_the_one(ready: VirtualMachine) -> None:
    ready.gpu("trace", "on")
    ready.nvml(CREATE_3)
    ready.gpu("trace", "off")
    counts = json.loads(ready.gpu("trace", "show"))
    assert counts["nvmlDeviceCreateGpuInstance"] == 3
    log = ready.gpu("trace", "log").splitlines()
    assert len(log) == sum(counts.values())
    assert log[1].split()[1:] == ["nvmlDeviceGetHandleByIndex_v2", "SUCCESS"]
    number = next(i for i, line in enumerate(log, start=1) if "CreateGpuInstance" in line)
    ready.gpu("fail", "*", "kill", "--nth", str(number + 1))
    assert ready.raw("nvmlInit()\n" + CREATE_3).returncode == -signal.SIGKILL
    assert instances(ready) == 3 + 1


@pytest.mark.parametrize("action", ["delay:200", "hang:1"])
def test_delay(ready: VirtualMachine, action: str) -> None:
    ready.gpu("fail", "nvmlDeviceGetName", action)
    begun = time.monotonic()
    ready.nvml("answer(nvmlDeviceGetName(nvmlDeviceGetHandleByIndex(0)))")
    assert time.monotonic() - begun >= 0.2


def test_reset_and_modules_can_fail_too(ready: VirtualMachine) -> None:
    ready.gpu("fail", "gpuReset", "UNKNOWN")
    assert ready.smi("-r", "-i", "0").returncode == 999 % 256
    ready.gpu("fail", "moduleUnload", "IN_USE")
    assert ready.run("virtual-gpu", "unload").returncode == 16


@pytest.mark.parametrize(
    "rule", [["nvmlInit*", "NO_SUCH_ERROR"], ["nvmlInit*"], ["nvmlInit*", "killed"], ["nvmlInit*", "hang:0.2"]]
)
def test_a_rule_that_means_nothing_is_refused(ready: VirtualMachine, rule: list[str]) -> None:
    assert ready.run("virtual-gpu", "fail", *rule).returncode == 2


def test_a_wrong_variable_does_not_pass_for_a_passed_test(ready: VirtualMachine) -> None:
    done = ready.raw("nvmlInit()", VIRTUAL_GPU_FAIL="nvmlInit*:explode")
    assert done.returncode == -signal.SIGABRT


def test_a_change_cut_off_before_the_files_is_made_up_for(ready: VirtualMachine) -> None:
    """The state was written and its process killed before /proc and /dev were in step."""
    ready.nvml("create(nvmlDeviceGetHandleByIndex(0), 19, 0); answer(None)")
    access = ready.tree / "proc/driver/nvidia/capabilities/gpu0/mig/gi7/access"
    access.unlink()
    (ready.root / "run" / "state.unfinished").touch()
    ready.nvml("nvmlDeviceSetPersistenceMode(nvmlDeviceGetHandleByIndex(0), 1); answer(None)")
    assert "DeviceFileMinor: 66" in access.read_text()
