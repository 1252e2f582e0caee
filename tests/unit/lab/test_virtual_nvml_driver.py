# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modes, resets, reboots and the life cycle of the driver."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import nvml_health

if TYPE_CHECKING:
    from virtual_machine import VirtualMachine

SET = """
d = nvmlDeviceGetHandleByIndex(0)
status = nvmlDeviceSetMigMode(d, {})
answer([status, *nvmlDeviceGetMigMode(d)])
"""
MODE = "answer(nvmlDeviceGetMigMode(nvmlDeviceGetHandleByIndex(0)))"
RESET_REQUIRED, IN_USE = 16, 19
VERSION = "580.126.09"


def restart(machine: VirtualMachine) -> None:
    machine.gpu("reboot")
    machine.gpu("load", VERSION, "open")


@pytest.mark.parametrize("board", ["a100-40gb", "a30"])
def test_ampere_waits_for_a_reset_and_keeps_its_mode_over_a_reboot(machine: VirtualMachine, board: str) -> None:
    machine.start(board)
    assert machine.nvml(SET.format(1)) == [RESET_REQUIRED, 0, 1]
    assert machine.nvml(MODE) == [0, 1]
    machine.gpu("reset", "--gpu", "0")
    assert machine.nvml(MODE) == [1, 1]
    restart(machine)
    assert machine.nvml(MODE) == [1, 1]
    assert machine.nvml(SET.format(0)) == [RESET_REQUIRED, 1, 0]
    restart(machine)
    assert machine.nvml(MODE) == [0, 0]


@pytest.mark.parametrize("board", ["h100-80gb-sxm", "b200", "rtx-pro-6000"])
def test_hopper_and_newer_switch_at_once_and_forget_at_a_reboot(machine: VirtualMachine, board: str) -> None:
    machine.start(board)
    assert machine.nvml(SET.format(1)) == [0, 1, 1]
    machine.gpu("reset")
    assert machine.nvml(MODE) == [1, 1]
    restart(machine)
    assert machine.nvml(MODE) == [0, 0]


@pytest.mark.parametrize("board", ["a100-40gb", "h100-80gb-sxm"])
def test_a_gpu_in_use_keeps_its_mode_and_the_status_says_why(machine: VirtualMachine, board: str) -> None:
    machine.start(board)
    machine.gpu("run", "--gpu", "0", "--pid", "4100001")
    assert machine.nvml(SET.format(1)) == [IN_USE, 0, 1]
    refused = machine.run("virtual-gpu", "reset", "--gpu", "0")
    assert refused.returncode == IN_USE
    machine.gpu("stop", "--pid", "4100001")
    machine.gpu("reset", "--gpu", "0")
    assert machine.nvml(MODE) == [1, 1]


def test_instances_keep_hopper_in_mig_mode(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    machine.nvml("d = nvmlDeviceGetHandleByIndex(0); nvmlDeviceSetMigMode(d, 1); create(d, 19); answer(None)")
    assert machine.nvml(SET.format(0)) == [IN_USE, 1, 0]


@pytest.mark.parametrize("lost_by", [["reset"], ["reboot"], ["unload"]])
def test_instances_survive_nothing(machine: VirtualMachine, lost_by: list[str]) -> None:
    machine.start("a100-40gb")
    machine.nvml(SET.format(1))
    machine.gpu("reset")
    machine.nvml("d = nvmlDeviceGetHandleByIndex(0); create(d, 19); answer(None)")
    assert len(machine.show()["gpus"][0]["gpu_instances"]) == 1
    machine.gpu(*lost_by)
    machine.gpu("load", VERSION, "open")
    assert machine.show()["gpus"][0]["gpu_instances"] == []
    assert machine.nvml(MODE) == [1, 1]


def test_only_the_reset_gpu_changes(machine: VirtualMachine) -> None:
    machine.start("a100-40gb", "--count=3")
    machine.nvml("[nvmlDeviceSetMigMode(nvmlDeviceGetHandleByIndex(i), 1) for i in range(3)]; answer(None)")
    assert machine.smi("-r", "-i", "1").returncode == 0
    assert [gpu["mig"]["current"] for gpu in machine.show()["gpus"]] == [False, True, False]


def test_uuids_are_the_boards(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    before = [gpu["uuid"] for gpu in machine.show()["gpus"]]
    restart(machine)
    assert [gpu["uuid"] for gpu in machine.show()["gpus"]] == before
    assert len(set(before)) == 2


def test_a_virtual_machine_cannot_reset(machine: VirtualMachine) -> None:
    machine.gpu("create", "--board", "a100-40gb", "--passthrough")
    machine.gpu("boot")
    machine.gpu("load", VERSION, "open")
    assert machine.run("virtual-gpu", "reset").returncode == 3
    assert not (machine.tree / "sys/bus/pci/devices/0000:18:00.0/reset").exists()


# ---- Which library meets which driver


def init_error(machine: VirtualMachine, **environment: str) -> str:
    done = machine.raw("print(refused(nvmlInit))", **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_driver(machine: VirtualMachine) -> None:
    machine.gpu("create", "--board", "h100-80gb-sxm")
    machine.gpu("boot")
    assert init_error(machine) == "DriverNotLoaded"
    assert machine.raw("print(refused(nvmlDeviceGetCount))").stdout.strip() == "Uninitialized"


def test_library_of_another_version(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", driver="570.133.20")
    assert init_error(machine) == "LibRmVersionMismatch"
    assert init_error(machine, VIRTUAL_GPU_LIBRARY_VERSION="570.133.20") == "None"


def test_the_library_file_names_the_version(machine: VirtualMachine) -> None:
    """One build serves every version, under the file name that the package gives it."""
    libraries = machine.root / "libraries"
    libraries.mkdir()
    shutil.copy(machine.build / f"libnvidia-ml.so.{VERSION}", libraries / "libnvidia-ml.so.535.261.03")
    (libraries / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.535.261.03")
    machine.start("a100-40gb", driver="535.261.03")
    assert init_error(machine) == "LibRmVersionMismatch"
    found = machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        answer([nvmlSystemGetDriverVersion(), nvmlSystemGetNVMLVersion(), nvmlSystemGetCudaDriverVersion(),
                refused(nvmlDeviceGetGpuInstanceProfileInfo, d, 0)])
        """,
        LD_LIBRARY_PATH=str(libraries),
    )
    assert found == ["535.261.03", "12.535.261.03", 12020, "NotSupported"]


def test_unload_waits_for_whoever_holds_the_driver(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    machine.gpu("run", "--gpu", "0", "--pid", "4100001", "--name", "train.py")
    refused = machine.run("virtual-gpu", "unload")
    assert (refused.returncode, "train.py" in refused.stderr) == (16, True)
    machine.gpu("stop", "--pid", "4100001")
    refused = machine.run("virtual-gpu", "unload", "nvidia")
    assert (refused.returncode, "nvidia_uvm" in refused.stderr) == (16, True)
    machine.gpu("unload")
    assert machine.show()["modules"] == []


def test_an_open_nvml_session_holds_driver_and_gpu(machine: VirtualMachine) -> None:
    machine.start("a100-40gb")
    holder = subprocess.Popen(
        [str(machine.build / "virtual-gpu"), "hold"], env=machine.environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        assert machine.run("virtual-gpu", "unload").returncode == 16
        assert machine.smi("-r", "-i", "0").returncode == 255
        assert machine.nvml(SET.format(1)) == [IN_USE, 0, 1]
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    machine.gpu("unload")


def test_a_real_process_takes_its_hold_with_it(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    machine.gpu("run", "--gpu", "0", "--pid", str(process.pid), "--memory", "100")
    assert [p["pid"] for p in machine.show()["gpus"][0]["processes"]] == [process.pid]
    process.communicate(b"\n")
    assert machine.show()["gpus"][0]["processes"] == []


def test_loading_another_version_beside_the_loaded_one(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    assert machine.run("virtual-gpu", "load", "590.44.01", "open", "nvidia_drm").returncode == 22
    machine.gpu("unload")
    machine.gpu("load", "590.44.01", "proprietary")
    assert machine.show()["driver_version"] == "590.44.01"


def test_nouveau_keeps_nvidia_out(machine: VirtualMachine) -> None:
    machine.gpu("create", "--board", "t4")
    machine.gpu("boot")
    machine.gpu("nouveau", "on")
    refused = machine.run("virtual-gpu", "load", VERSION, "open")
    assert (refused.returncode, "No such device" in refused.stderr) == (19, True)
    driver = machine.tree / "sys/bus/pci/devices/0000:18:00.0/driver"
    assert driver.readlink().name == "nouveau"
    assert not (machine.tree / "sys/module/nouveau/version").exists()
    machine.gpu("nouveau", "off")
    machine.gpu("load", VERSION, "open")
    assert driver.readlink().name == "nvidia"


def test_a_gpu_that_another_driver_has_is_none_of_nvidias(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    second = machine.nvml("answer(nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(1)))")
    machine.gpu("bind", "--gpu", "0", "vfio-pci")
    assert machine.nvml("answer([nvmlDeviceGetCount(), nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(0))])") == [
        1,
        second,
    ]
    assert (machine.tree / "sys/bus/pci/devices/0000:18:00.0/driver").readlink().name == "vfio-pci"
    assert [path.name for path in (machine.tree / "proc/driver/nvidia/gpus").iterdir()] == ["0000:2a:00.0"]
    machine.gpu("unload")
    machine.gpu("bind", "--gpu", "1", "NovaCore")
    assert machine.run("virtual-gpu", "load", VERSION, "open").returncode == 19
    for gpu in "01":
        machine.gpu("bind", "--gpu", gpu, "nvidia")
    machine.gpu("load", VERSION, "open")
    assert machine.nvml("answer(nvmlDeviceGetCount())") == 2


def test_a_gpu_that_fell_off_the_bus(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    machine.gpu("lose", "--gpu", "1")
    assert machine.nvml(
        "answer([nvmlDeviceGetCount(), refused(nvmlDeviceGetHandleByIndex, 0), refused(nvmlDeviceGetHandleByIndex, 1)])"
    ) == [2, None, "GpuIsLost"]
    assert (machine.tree / "sys/bus/pci/devices/0000:2a:00.0/config").read_bytes() == b"\xff" * 256
    assert machine.run("virtual-gpu", "reset", "--gpu", "1").returncode == 15
    restart(machine)
    assert machine.nvml("answer(refused(nvmlDeviceGetHandleByIndex, 1))") is None


def test_a_handle_that_was_good_dies_with_its_gpu(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    script = f"""
        import subprocess
        d = nvmlDeviceGetHandleByIndex(0)
        before = refused(nvmlDeviceGetName, d)
        subprocess.run([{str(machine.build / "virtual-gpu")!r}, "lose", "--gpu", "0"], check=True)
        answer([before, refused(nvmlDeviceGetName, d)])
        """
    assert machine.nvml(script) == [None, "GpuIsLost"]


def fabric_state(gpu: int) -> str:
    """The script that asks how far a GPU's registration with its fabric is, by NVML's number."""
    return f"""
        info = c_nvmlGpuFabricInfo_v3_t()
        nvmlDeviceGetGpuFabricInfoV(nvmlDeviceGetHandleByIndex({gpu}), byref(info))
        answer(info.state)
        """


def test_fabric(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--nvswitch=4")
    state = fabric_state(0)
    assert machine.nvml(state) == 2
    machine.gpu("fabric", "completed")
    assert machine.nvml(state) == 3
    assert "Fabric State: Configured" in machine.text("proc/driver/nvidia-nvswitch/devices/0000:05:00.0")


def test_the_gpus_of_nvlink5_wait_for_a_fabric_manager_after_every_load_of_the_driver(machine: VirtualMachine) -> None:
    machine.start("b200-180gb", "--count=8")
    state = fabric_state(7)
    assert machine.nvml(state) == 2
    machine.gpu("fabric", "completed")
    assert machine.nvml(state) == 3
    machine.gpu("unload")
    machine.gpu("load", "580.126.09", "open")
    assert machine.nvml(state) == 2


def test_the_modules_of_nvlink5_are_none_of_the_drivers(machine: VirtualMachine) -> None:
    machine.start("b200-180gb", "--count=8")
    machine.gpu("load", "", "open", "mlx5_ib")
    assert machine.text("sys/module/mlx5_core/refcnt").strip() == "1"
    machine.gpu("unload")
    assert (machine.tree / "sys/module/mlx5_ib").is_dir() and not (machine.tree / "sys/module/nvidia").exists()
    machine.gpu("unload", "mlx5_ib", "mlx5_core")
    assert not (machine.tree / "sys/module/mlx5_ib").exists()


def test_the_fabric_of_a_rack_is_there_at_once_and_can_fail(machine: VirtualMachine) -> None:
    """The rack's switches bring it up; what NVML tells of a registration is settable, as a driver that fails tells it."""
    machine.start("gb200-186gb", "--count=4")
    state = """
        info = c_nvmlGpuFabricInfo_v3_t()
        nvmlDeviceGetGpuFabricInfoV(nvmlDeviceGetHandleByIndex(3), byref(info))
        answer([info.state, info.status, info.healthMask, info.healthSummary, info.cliqueId, bytes(info.clusterUuid) != bytes(16)])
        """
    assert machine.nvml(state) == [3, 0, 0, 1, 1, True]
    machine.gpu("fabric", "completed", "--status", "15", "--mask", "0x1", "--summary", "2")
    assert machine.nvml(state) == [3, 15, 1, 2, 1, True]
    machine.gpu("fabric", "in-progress")
    assert machine.nvml(state)[:4] == [2, 0, 0, 0]
    machine.gpu("reboot")
    machine.gpu("load", VERSION, "open")
    assert machine.nvml(state)[:4] == [3, 0, 0, 1]
    older = """
        info = c_nvmlGpuFabricInfo_t()
        nvmlDeviceGetGpuFabricInfo(nvmlDeviceGetHandleByIndex(3), byref(info))
        answer([info.state, info.cliqueId, bytes(info.clusterUuid) != bytes(16)])
        """
    assert machine.nvml(older) == [3, 1, True], "the same in the first form of the call"


def test_the_recovery_action_is_a_field_and_a_reset_clears_it(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    fields = """
        found = [nvmlDeviceGetFieldValues(nvmlDeviceGetHandleByIndex(i), [NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 1]) for i in (0, 1)]
        answer([[value.nvmlReturn, value.value.uiVal] for values in found for value in values])
        """
    not_supported = [3, 0]
    machine.gpu("recovery", "--gpu", "1", "--action", "2")
    assert machine.nvml(fields) == [[0, 0], not_supported, [0, 2], not_supported]
    machine.gpu("reset", "--gpu", "1")
    assert machine.nvml(fields) == [[0, 0], not_supported, [0, 0], not_supported]


def test_the_collections_adapter_reads_fabric_and_recovery_through_the_binary_interface(
    machine: VirtualMachine,
) -> None:
    machine.start("b200-180gb", "--count=2")
    collections = str(Path(nvml_health.__file__).parents[6])
    reading = f"""
        import sys
        sys.path.insert(0, {collections!r})
        from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import nvml_health
        from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
        with open_nvml(None) as nvml:
            answer([nvml_health.fabric_of(nvml, 0), nvml_health.recovery_action(nvml, 0)])
        """
    waiting = {"state": "in_progress", "status": None, "degraded": [], "summary": None, "clique": None}
    assert machine.nvml(reading) == [waiting, "none"]
    machine.gpu("fabric", "completed")
    machine.gpu("recovery", "--gpu", "0", "--action", "9")
    assert machine.nvml(reading) == [
        {"state": "completed", "status": 0, "degraded": [], "summary": "healthy", "clique": None},
        "value_9",
    ]


def test_the_collections_adapter_reads_the_memorys_errors_and_what_ends_them(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    collections = str(Path(nvml_health.__file__).parents[6])
    reading = f"""
        import sys
        sys.path.insert(0, {collections!r})
        from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import nvml_health
        from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
        with open_nvml(None) as nvml:
            answer([nvml_health.memory_errors(nvml, index) for index in (0, 1)])
        """
    sound = {
        "remap_pending": False,
        "remap_failed": False,
        "uncorrected": 0,
        "remapped_correctable": 0,
        "remapped_uncorrectable": 0,
    }
    assert machine.nvml(reading) == [sound, sound]
    machine.gpu("memory", "--gpu", "1", "--uncorrected", "2", "--remapped-uncorrectable", "1", "--remap", "pending")
    bad = {**sound, "uncorrected": 2, "remapped_uncorrectable": 1, "remap_pending": True}
    assert machine.nvml(reading) == [sound, bad]
    machine.gpu("reset", "--gpu", "1")
    replaced = {**sound, "remapped_uncorrectable": 1}
    assert machine.nvml(reading) == [sound, replaced], "the board keeps count of what it replaced"
    machine.gpu("memory", "--gpu", "1", "--remapped-correctable", "511", "--remap", "failed")
    machine.gpu("reset", "--gpu", "1")
    machine.gpu("reboot")
    machine.gpu("load", VERSION, "open")
    assert machine.nvml(reading) == [sound, {**replaced, "remapped_correctable": 511, "remap_failed": True}]
    machine.gpu("memory", "--gpu", "1", "--remap", "none")
    assert machine.nvml(reading)[1]["remap_failed"] is False


def test_compute_mode(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    assert machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        nvmlDeviceSetComputeMode(d, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        before = nvmlDeviceGetComputeMode(d)
        nvmlDeviceSetMigMode(d, 1)
        answer([before, nvmlDeviceGetComputeMode(d), refused(nvmlDeviceSetComputeMode, d, 3), refused(nvmlDeviceSetComputeMode, d, 9)])
        """
    ) == [3, 0, "NotSupported", "InvalidArgument"]


def test_memory(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm")
    machine.gpu("run", "--gpu", "0", "--pid", "4100001", "--memory", "1024")
    total, used, all_used = machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        second = nvmlDeviceGetMemoryInfo(d, version=nvmlMemory_v2)
        answer([second.total >> 20, second.used >> 20, nvmlDeviceGetMemoryInfo(d).used >> 20])
        """
    )
    assert (total, used) == (81559, 1024)
    assert all_used > used


def test_events(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    script = f"""
        import subprocess
        events = nvmlEventSetCreate()
        for i in range(2):
            nvmlDeviceRegisterEvents(nvmlDeviceGetHandleByIndex(i), nvmlEventTypeXidCriticalError, events)
        nothing = refused(nvmlEventSetWait_v2, events, 1)
        subprocess.run([{str(machine.build / "virtual-gpu")!r}, "xid", "--gpu", "1", "--number", "79"], check=True)
        event = nvmlEventSetWait_v2(events, 1000)
        answer([nothing, nvmlDeviceGetIndex(event.device), event.eventData])
        """
    assert machine.nvml(script) == ["Timeout", 1, 79]


def test_reading_is_quick(machine: VirtualMachine) -> None:
    """Readers take no lock: a change in progress does not hold them up."""
    machine.start("h100-80gb-sxm")
    with open(machine.root / "run" / "state.lock", "w") as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        begun = time.monotonic()
        assert machine.nvml(MODE) == [0, 0]
        assert time.monotonic() - begun < 5
