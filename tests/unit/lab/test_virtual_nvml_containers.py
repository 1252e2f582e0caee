# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the library shows to a process that it takes for one in a container, by the device nodes of that process.

Sockets stand for device nodes that can be opened: their open ends with ENXIO too. What a device cgroup refuses is tried on
lab hosts (tests/lab/test_containers_lab.py).
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from virtual_machine import VirtualMachine

#: Linux gives processes smaller numbers (PID_MAX_LIMIT): nobody on this machine has it.
NOBODY = 4194304
SEEN = """
def migs(gpu):
    found = []
    for number in range(nvmlDeviceGetMaxMigDeviceCount(gpu)):
        if refused(nvmlDeviceGetMigDeviceHandleByIndex, gpu, number) is None:
            mig = nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
            found.append([nvmlDeviceGetIndex(mig), nvmlDeviceGetGpuInstanceId(mig)])
    return found
gpus = [nvmlDeviceGetHandleByIndex(number) for number in range(nvmlDeviceGetCount())]
answer([[nvmlDeviceGetIndex(gpu), nvmlDeviceGetMinorNumber(gpu), migs(gpu)] for gpu in gpus])
"""
MAKE_INSTANCES = """
d = nvmlDeviceGetHandleByIndex(1)
nvmlDeviceSetMigMode(d, 1)
for profile in (9, 14, 19):
    nvmlGpuInstanceCreateComputeInstance(create(d, profile), {9: 2, 14: 1, 19: 0}[profile])
answer([nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(d, number)) for number in range(3)])
"""


class InContainer:
    """Ask as a process whose /dev has these nodes."""

    def __init__(self, machine: VirtualMachine, *nodes: str) -> None:
        self._machine = machine
        devices = machine.root / "container-dev"
        (devices / "nvidia-caps").mkdir(parents=True)
        for node in nodes:
            os.mknod(devices / node, stat.S_IFSOCK | 0o666)
        marker = machine.root / "marker"
        marker.touch()
        self._environment = {"VIRTUAL_GPU_DEV": str(devices), "VIRTUAL_GPU_CONTAINER": str(marker)}

    def nvml(self, script: str) -> Any:
        return self._machine.nvml(script, **self._environment)

    def init(self) -> str | None:
        done = self._machine.raw("answer(refused(nvmlInit))", **self._environment)
        return done.stdout.strip().strip('"')

    def smi(self, *arguments: str, **environment: str) -> str:
        return self._machine.smi(*arguments, **self._environment, **environment).stdout


def caps(machine: VirtualMachine, *places: str) -> list[str]:
    """The nodes of these capabilities, by the driver's own table."""
    minors = dict(line.split() for line in machine.text("proc/driver/nvidia-caps/mig-minors").splitlines())
    return [f"nvidia-caps/nvidia-cap{minors[place]}" for place in places]


def whole(machine: VirtualMachine, *instances: str) -> list[str]:
    """The nodes of these GPU instances of GPU 1 with their compute instance 0."""
    return caps(machine, *(f"gpu1/{gi}/{leaf}" for gi in instances for leaf in ("access", "ci0/access")))


@pytest.fixture
def gpus(machine: VirtualMachine) -> VirtualMachine:
    """GPU 0 and 2 whole, GPU 1 with the GPU instances 2 (3g), 3 (2g) and 9 (1g)."""
    machine.start("h100-80gb-sxm", "--count=3")
    machine.nvml(MAKE_INSTANCES)
    return machine


def test_index_of_a_mig_device(gpus: VirtualMachine) -> None:
    assert gpus.nvml(SEEN) == [[0, 0, []], [1, 1, [[0, 2], [1, 3], [2, 9]]], [2, 2, []]]


def test_index_of_a_mig_device_after_a_hole(gpus: VirtualMachine) -> None:
    gpus.nvml(
        """
        i = nvmlDeviceGetGpuInstanceById(nvmlDeviceGetHandleByIndex(1), 2)
        nvmlComputeInstanceDestroy(nvmlGpuInstanceGetComputeInstanceById(i, 0))
        nvmlGpuInstanceDestroy(i)
        answer(None)
        """
    )
    assert gpus.nvml(SEEN)[1] == [1, 1, [[1, 3], [2, 9]]]
    inside = InContainer(gpus, "nvidiactl", "nvidia1", *whole(gpus, "gi3", "gi9"))
    assert inside.nvml(SEEN) == [[0, 1, [[0, 3], [1, 9]]]]


def test_gpus_are_numbered_by_what_can_be_opened(gpus: VirtualMachine) -> None:
    assert InContainer(gpus, "nvidiactl", "nvidia2", "nvidia0").nvml(SEEN) == [[0, 0, []], [1, 2, []]]


def test_one_mig_device_is_device_0(gpus: VirtualMachine) -> None:
    inside = InContainer(gpus, "nvidiactl", "nvidia1", *whole(gpus, "gi9"))
    assert inside.nvml(SEEN) == [[0, 1, [[0, 9]]]]
    assert [line.split("(")[0].split() for line in inside.smi("-L").splitlines()] == [
        ["GPU", "0:", "NVIDIA", "H100", "80GB", "HBM3"],
        ["MIG", "1g.10gb", "Device", "0:"],
    ]


@pytest.mark.parametrize("place", ["gpu1/gi9/access", "gpu1/gi9/ci0/access"])
def test_one_of_the_two_nodes_is_not_enough(gpus: VirtualMachine, place: str) -> None:
    assert InContainer(gpus, "nvidiactl", "nvidia1", *caps(gpus, place)).nvml(SEEN) == [[0, 1, []]]


def test_capability_nodes_without_the_gpu_show_nothing(gpus: VirtualMachine) -> None:
    assert InContainer(gpus, "nvidiactl", *whole(gpus, "gi9")).nvml(SEEN) == []


def test_what_is_not_accessible_is_found_by_no_name(gpus: VirtualMachine) -> None:
    names = gpus.nvml(
        """
        whole, parent = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
        answer([nvmlDeviceGetUUID(whole), nvmlDeviceGetPciInfo(whole).busId, nvmlDeviceGetSerial(whole),
                nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(parent, 0))])
        """
    )
    inside = InContainer(gpus, "nvidiactl", "nvidia1", *whole(gpus, "gi9"))
    assert inside.nvml(
        f"""
        uuid, address, serial, mig = {names!r}
        parent = nvmlDeviceGetHandleByIndex(0)
        answer([refused(nvmlDeviceGetHandleByUUID, uuid), refused(nvmlDeviceGetHandleByPciBusId, address),
                refused(nvmlDeviceGetHandleBySerial, serial), refused(nvmlDeviceGetHandleByUUID, mig),
                refused(nvmlDeviceGetHandleByIndex, 1), refused(nvmlDeviceGetGpuInstanceById, parent, 2),
                refused(nvmlDeviceGetGpuInstanceById, parent, 9), len(gpu_instances(parent))])
        """
    ) == ["NotFound"] * 4 + ["InvalidArgument", "NotFound", None, 1]


def test_without_the_control_node_there_is_no_driver(gpus: VirtualMachine) -> None:
    inside = InContainer(gpus, "nvidia0")
    assert inside.init() == "DriverNotLoaded"
    assert inside.smi("-L").startswith("NVIDIA-SMI has failed because it couldn't communicate")


def test_a_control_node_that_cannot_be_opened_is_an_unknown_error(gpus: VirtualMachine) -> None:
    inside = InContainer(gpus)
    (gpus.root / "container-dev/nvidiactl").symlink_to("nvidiactl")
    assert inside.init() == "Unknown"
    assert inside.smi("-L") == "Failed to initialize NVML: Unknown Error\n"


def test_processes_of_others_stay_in_the_state_and_out_of_sight(gpus: VirtualMachine) -> None:
    gpus.gpu("run", "--gpu", "0", "--memory", "1024", "--name", "train", "--pid", str(NOBODY))
    listing = "answer([p.pid for p in nvmlDeviceGetComputeRunningProcesses(nvmlDeviceGetHandleByIndex(0))])"
    inside = InContainer(gpus, "nvidiactl", "nvidia0")
    assert inside.nvml(listing) == []
    inside.nvml("nvmlDeviceSetPersistenceMode(nvmlDeviceGetHandleByIndex(0), 1); answer(None)")
    assert gpus.nvml(listing) == [NOBODY]


def test_time_slice_is_set_on_the_gpu_that_has_the_index_inside(gpus: VirtualMachine) -> None:
    inside = InContainer(gpus, "nvidiactl", "nvidia2")
    inside.smi("compute-policy", "-i", "0", "--set-timeslice", "3")
    assert [gpu["timeslice"] for gpu in gpus.show()["gpus"]] == [0, 0, 3]
