# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/proc, /sys and /dev follow what happens in the driver."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from virtual_machine import VirtualMachine


def test_pci_devices_need_no_driver(machine: VirtualMachine) -> None:
    machine.gpu("create", "--board", "h100-80gb-sxm", "--count", "2", "--board", "t4", "--nvswitch", "1")
    machine.gpu("boot")
    devices = machine.tree / "sys/bus/pci/devices"
    assert sorted(p.name for p in devices.iterdir()) == [
        "0000:00:00.0",
        "0000:05:00.0",
        "0000:18:00.0",
        "0000:2a:00.0",
        "0000:3a:00.0",
    ]
    read = {
        name: (devices / "0000:18:00.0" / name).read_text().strip()
        for name in ("vendor", "device", "class", "numa_node")
    }
    assert read == {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": "0"}
    assert (devices / "0000:3a:00.0/device").read_text() == "0x1eb8\n"
    assert (devices / "0000:05:00.0/class").read_text() == "0x068000\n"
    assert (devices / "0000:18:00.0/config").read_bytes()[:4] == bytes.fromhex("de103023")
    assert not (devices / "0000:18:00.0/driver").is_symlink()
    # As in sysfs: an entry is a link, and the first folder after /sys/devices names the PCIe root.
    assert (devices / "0000:18:00.0").readlink().as_posix() == "../../../devices/pci0000:17/0000:18:00.0"
    assert not (machine.tree / "sys/module/nvidia").exists()
    assert list((machine.tree / "proc/driver").iterdir()) == []


@pytest.mark.parametrize(
    ("flavour", "line"),
    [
        ("open", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09"),
        ("proprietary", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.09"),
    ],
)
def test_loaded_driver(machine: VirtualMachine, flavour: str, line: str) -> None:
    machine.gpu("create", "--board", "h100-80gb-sxm")
    machine.gpu("boot")
    machine.gpu("load", "580.126.09", flavour)
    assert machine.text("proc/driver/nvidia/version").startswith(line)
    assert re.search(r"Kernel Module(?: for x86_64)?\s+([\d.]+)", machine.text("proc/driver/nvidia/version"))
    assert machine.text("sys/module/nvidia/version") == "580.126.09\n"
    assert machine.text("sys/module/nvidia/refcnt") == "2\n"  # nvidia_uvm and nvidia_modeset
    assert [m.split()[0] for m in machine.text("proc/modules").splitlines()] == [
        "nvidia",
        "nvidia_uvm",
        "nvidia_modeset",
    ]
    for line in ("195 nvidia-frontend\n", " nvidia-caps\n", " nvidia-caps-imex-channels\n"):
        assert line in machine.text("proc/devices")
    assert "GPU UUID: \t GPU-" in machine.text("proc/driver/nvidia/gpus/0000:18:00.0/information")
    machine.gpu("unload")
    assert not (machine.tree / "sys/module/nvidia").exists()
    assert "nvidia" not in machine.text("proc/devices") + machine.text("proc/modules")


def test_mounted_files_keep_their_inode(machine: VirtualMachine) -> None:
    machine.gpu("create", "--board", "h100-80gb-sxm")
    machine.gpu("boot")
    paths = [
        machine.tree / p for p in ("proc/modules", "proc/devices", "sys/module", "proc/driver", "sys/bus/pci/devices")
    ]
    before = [p.stat().st_ino for p in paths]
    machine.gpu("load", "580.126.09", "open")
    machine.gpu("unload")
    machine.gpu("reboot")
    assert [p.stat().st_ino for p in paths] == before


def test_capabilities_follow_the_instances(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    minors = dict(line.split() for line in machine.text("proc/driver/nvidia-caps/mig-minors").splitlines())
    assert (minors["config"], minors["monitor"], minors["gpu0/gi7/access"], minors["gpu1/gi0/access"]) == (
        "1",
        "2",
        "66",
        "138",
    )
    machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(1)
        nvmlDeviceSetMigMode(d, 1)
        nvmlGpuInstanceCreateComputeInstance(create(d, 19, 0), 0)
        answer(None)
        """
    )
    base = machine.tree / "proc/driver/nvidia/capabilities/gpu1/mig"
    assert [p.name for p in base.iterdir()] == ["gi7"]
    assert f"DeviceFileMinor: {minors['gpu1/gi7/access']}\n" in (base / "gi7/access").read_text()
    assert f"DeviceFileMinor: {minors['gpu1/gi7/ci0/access']}\n" in (base / "gi7/ci0/access").read_text()
    for path, mode in {"gpu1/mig/gi7/access": 0o444, "gpu1/mig/gi7/ci0/access": 0o444, "mig/config": 0o400}.items():
        assert f"DeviceFileMode: {mode}\n" in machine.text(f"proc/driver/nvidia/capabilities/{path}")
    shown = machine.show()["gpus"][1]["gpu_instances"][0]
    assert (str(shown["minor"]), str(shown["compute_instances"][0]["minor"])) == (
        minors["gpu1/gi7/access"], minors["gpu1/gi7/ci0/access"],
    )  # fmt: skip
    if os.geteuid() == 0:
        nodes = {p.name for p in (machine.root / "dev/nvidia-caps").iterdir()}
        assert nodes == {"nvidia-cap1", "nvidia-cap2", "nvidia-cap201", "nvidia-cap202"}
    machine.nvml(
        """
        g = gpu_instances(nvmlDeviceGetHandleByIndex(1))[0]
        nvmlComputeInstanceDestroy(nvmlGpuInstanceGetComputeInstanceById(g, 0)); nvmlGpuInstanceDestroy(g)
        answer(None)
        """
    )
    assert list(base.iterdir()) == []


def test_device_nodes(machine: VirtualMachine) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    dev = machine.root / "dev"
    if os.geteuid() != 0:
        assert not dev.exists()  # left out, and nothing fails
        return
    numbers = {}
    for path in dev.iterdir():
        if stat.S_ISCHR(path.stat().st_mode):
            numbers[path.name] = (os.major(path.stat().st_rdev), os.minor(path.stat().st_rdev))
    assert numbers == {
        "nvidiactl": (195, 255), "nvidia0": (195, 0), "nvidia1": (195, 1), "nvidia-modeset": (195, 254), "nvidia-uvm": (510, 0),
        "nvidia-uvm-tools": (510, 1),
    }  # fmt: skip
    machine.gpu("unload")
    assert [p for p in dev.iterdir() if not p.is_dir()] == []


def test_references_count_processes_and_sessions(machine: VirtualMachine) -> None:
    machine.start("t4")
    machine.gpu("run", "--gpu", "0", "--pid", "4100001")
    assert machine.text("sys/module/nvidia/refcnt") == "3\n"
    assert machine.text("sys/module/nvidia_uvm/refcnt") == "1\n"
    if os.geteuid() == 0:
        path = str(machine.tree / "sys/module/nvidia/refcnt")
        assert machine.nvml(f"answer(open({path!r}).read())") == "4\n"
        assert machine.text("sys/module/nvidia/refcnt") == "3\n"
