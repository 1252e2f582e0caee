# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab host behaves like a real one where the collection looks: systemd, ssh, apt, DKMS, kernel modules, reboots."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab

HOST = "host-1"
BARE = "host-2"
NAME = "pytest-hosts"
REPOSITORY = "/srv/gpufleet-lab/repository"
SET_UP_REPOSITORY = f"dpkg --install {REPOSITORY}/compute/cuda/repos/*/*/cuda-keyring_*.deb && apt-get -q update"
INSTALL = "apt-get -q --yes --no-install-recommends install"


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., object]) -> object:
    return make_lab(
        NAME,
        {"name": HOST, "group": "training", "boards": [{"board": "h100-80gb-sxm", "count": 8}], "nvswitch": 4},
        {"name": BARE, "group": "bare", "headers": False, "boards": [{"board": "l40s", "count": 1}]},
    )


@pytest.fixture(scope="module")
def inventory(lab) -> Path:
    return Path(lab.run("inventory").stdout.strip())


@pytest.fixture(scope="module")
def driver(lab) -> str:
    """The driver 580.126.09 in HOST, installed as a person would; its version."""
    lab.sh(HOST, f"{SET_UP_REPOSITORY} && {INSTALL} nvidia-driver-pinning-580.126.09")
    lab.sh(HOST, f"{INSTALL} nvidia-driver-cuda nvidia-kernel-open-dkms nvidia-fabricmanager")
    return "580.126.09"


def test_systemd_is_running(lab) -> None:
    assert lab.sh(HOST, "systemctl is-system-running") == "running\n"


def test_ssh_with_the_labs_configuration_and_known_host_key(inventory: Path) -> None:
    command = ["ssh", "-F", str(inventory.parent / "ssh_config"), "-o", "BatchMode=yes", HOST, "hostname"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{HOST}\n"), done.stderr


def test_no_process_of_the_host_can_load_kernel_modules_or_set_the_clock(lab) -> None:
    """Neither in the host nor in a program that lab exec starts; the clock and the kernel are the machine's."""
    for process in ("1", "self"):
        capabilities = int(lab.sh(HOST, f"sed -n 's/^CapBnd:\\t//p' /proc/{process}/status"), 16)
        assert not capabilities >> 16 & 1, f"CAP_SYS_MODULE of process {process}"
        assert not capabilities >> 25 & 1, f"CAP_SYS_TIME of process {process}"


def test_boards_are_on_the_bus_before_there_is_a_driver(lab) -> None:
    found = lab.sh(BARE, "cat /sys/bus/pci/devices/*/vendor | grep -c 0x10de; ls /sys/module | grep -c nvidia || true")
    assert found.split() == ["1", "0"]


def test_without_a_driver_modprobe_says_so(lab) -> None:
    done = lab.run("exec", BARE, "--", "modprobe", "nvidia", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("modprobe: FATAL: Module nvidia not found in directory /lib/modules/")


def test_the_repository_is_signed_and_asked_for_by_its_pin(lab, driver: str) -> None:
    policy = lab.sh(HOST, "apt-cache policy nvidia-open")
    assert f"Candidate: {driver}-1" in policy
    assert "1000" in policy
    release = lab.sh(HOST, "apt-get -q update 2>&1")
    assert "cannot be authenticated" not in release
    assert "NO_PUBKEY" not in release


def test_a_repository_signed_by_another_key_is_refused(lab) -> None:
    """The signature is really checked: with Debian's key the lab's repository is not accepted."""
    said = lab.sh(
        HOST,
        "mkdir -p /tmp/wrong/lists/partial; echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
        f"file:{REPOSITORY}/kernel /' >/tmp/wrong/wrong.list; apt-get update -o Dir::Etc::SourceList=/tmp/wrong/wrong.list "
        "-o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=/tmp/wrong/lists 2>&1 || true",
    )
    assert "NO_PUBKEY" in said


def test_a_meta_package_of_an_old_version_brings_the_newest_driver_unless_it_is_pinned(lab) -> None:
    """The trap of NVIDIA's repository, on the host without a pinning package."""
    lab.sh(BARE, SET_UP_REPOSITORY)
    unpinned = lab.sh(BARE, "apt-get --simulate install nvidia-open=580.126.09-1")
    assert "Inst nvidia-driver-cuda (595.91.07-1" in unpinned


def test_toolkit_packages_of_an_old_version_do_not_mix_with_the_newest(lab) -> None:
    lab.sh(
        BARE,
        f"echo 'deb [signed-by={REPOSITORY}/libnvidia-container/gpgkey] "
        f"file:{REPOSITORY}/libnvidia-container/stable/deb/'$(dpkg --print-architecture)' /' "
        ">/etc/apt/sources.list.d/toolkit.list",
    )
    # apt reads an armoured key only from a file that is named so.
    lab.sh(BARE, f"cp {REPOSITORY}/libnvidia-container/gpgkey /etc/apt/keyrings/toolkit.asc")
    lab.sh(
        BARE, "sed -i 's#signed-by=[^]]*#signed-by=/etc/apt/keyrings/toolkit.asc#' /etc/apt/sources.list.d/toolkit.list"
    )
    lab.sh(BARE, "apt-get -q update")
    assert lab.status(BARE, "apt-get --simulate install nvidia-container-toolkit=1.19.1-1") == 100
    names = (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    )
    lab.sh(BARE, f"{INSTALL} {' '.join(f'{name}=1.19.1-1' for name in names)}")
    assert "1.19.1" in lab.sh(BARE, "nvidia-ctk --version")


def test_dkms_really_builds_and_installs(lab, driver: str) -> None:
    status = lab.sh(HOST, "dkms status")
    assert f"nvidia/{driver}" in status
    assert ": installed" in status
    assert lab.sh(HOST, "modinfo -F version nvidia; modinfo -F license nvidia").splitlines() == [driver, "Dual MIT/GPL"]
    # depmod computed this from the symbols in the files.
    assert "updates/dkms/nvidia.ko" in lab.sh(HOST, "grep nvidia-uvm.ko: /lib/modules/$(uname -r)/modules.dep")


def test_without_headers_the_package_installs_and_builds_nothing(lab) -> None:
    """The exit status lies, as on real hosts: only dkms status tells."""
    lab.sh(BARE, f"{INSTALL} nvidia-driver-pinning-580 && {INSTALL} nvidia-driver-cuda nvidia-kernel-open-dkms")
    assert lab.sh(BARE, "dkms status").strip().endswith(": added")
    assert lab.status(BARE, "modprobe nvidia") == 1


def test_headers_come_from_the_package_archive(lab) -> None:
    lab.sh(BARE, f"{INSTALL} linux-headers-$(uname -r) && dkms autoinstall")
    assert ": installed" in lab.sh(BARE, "dkms status")
    lab.sh(BARE, "modprobe nvidia")
    assert lab.sh(BARE, "nvidia-smi -L").count("GPU ") == 1


def test_the_driver_is_loaded_and_unloaded_like_a_module(lab, driver: str) -> None:
    lab.sh(HOST, "modprobe nvidia")
    assert lab.sh(HOST, "cat /sys/module/nvidia/version") == f"{driver}\n"
    assert lab.sh(HOST, "nvidia-smi -L").count("GPU ") == 8
    lab.sh(HOST, "systemctl restart nvidia-persistenced nvidia-fabricmanager")
    assert '"fabric": "completed"' in lab.sh(HOST, "virtual-gpu show")

    lab.sh(HOST, "systemd-run --quiet --unit=nvml-client virtual-gpu hold; sleep 1")
    held = lab.run("exec", HOST, "--", "modprobe", "-r", "nvidia_uvm", "nvidia", check=False)
    assert held.returncode == 1
    assert held.stderr == "modprobe: FATAL: Module nvidia is in use\n"

    lab.sh(
        HOST,
        "systemctl stop nvml-client nvidia-persistenced nvidia-fabricmanager && modprobe -r nvidia_uvm nvidia_modeset nvidia",
    )
    assert lab.status(HOST, "test -e /sys/module/nvidia") == 1
    assert lab.status(HOST, "nvidia-smi") == 9


def test_library_of_another_version_than_the_loaded_driver(lab, driver: str) -> None:
    """An upgrade under a running driver: the mismatch that every upgrade passes through."""
    lab.sh(HOST, "modprobe nvidia")
    lab.sh(HOST, f"{INSTALL} nvidia-driver-pinning-580 && apt-get -q --yes --no-install-recommends dist-upgrade")
    assert lab.sh(HOST, "cat /sys/module/nvidia/version") == f"{driver}\n"
    said = lab.sh(HOST, "nvidia-smi 2>&1 || true")
    assert "Driver/library version mismatch" in said


@pytest.mark.usefixtures("driver")
def test_after_a_reboot_the_new_driver_is_there(lab) -> None:
    boot = lab.sh(HOST, "cat /proc/sys/kernel/random/boot_id")
    lab.run("reboot", HOST)
    assert lab.sh(HOST, "cat /proc/sys/kernel/random/boot_id") != boot
    assert lab.sh(HOST, "cat /sys/module/nvidia/version") == "580.178.04\n"
    assert lab.sh(HOST, "nvidia-smi -L").count("GPU ") == 8
    assert lab.sh(HOST, "systemctl is-active nvidia-persistenced") == "active\n"


@pytest.mark.usefixtures("driver")
def test_after_a_power_cut_the_host_comes_back(lab) -> None:
    lab.sh(HOST, "touch /root/kept /run/lost")
    lab.run("power-cut", HOST)
    assert lab.sh(HOST, "ls -d /root/kept /run/lost 2>/dev/null || true") == "/root/kept\n"
    assert lab.sh(HOST, "systemctl is-system-running") == "running\n"


def test_a_stopped_host_stays_off_and_can_be_started(lab) -> None:
    lab.run("stop", BARE)
    assert lab.run("exec", BARE, "--", "true", check=False).returncode == 1
    lab.run("start", BARE)
    assert lab.sh(BARE, "hostname") == f"{BARE}\n"


def test_a_second_up_changes_nothing_and_another_specification_is_refused(lab, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"hosts": [{"name": "other"}]}', encoding="utf-8")
    refused = lab.run("up", "--spec", str(other), check=False)
    assert refused.returncode == 1
    assert f"lab down --name {NAME}" in refused.stderr


def _is_alive(process: int) -> bool:
    """Whether there is more of it than an exit status that its parent has not asked for."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_down_leaves_nothing(make_lab: Callable[..., object], lab) -> None:
    short = make_lab("pytest-down", {"name": "down-1", "boards": [{"board": "t4", "count": 1}]})
    directory = Path(short.run("inventory").stdout.strip()).parent
    hosts = list((directory / "hosts").iterdir())
    numbers = [int((host / name).read_text()) for host in hosts for name in ("supervisor.pid", "leader.pid")]
    numbers.append(int((directory / "repository-server.pid").read_text()))
    short.run("down")
    assert not directory.exists()
    assert [number for number in numbers if _is_alive(number)] == []
    assert "pytest-down" not in Path("/proc/mounts").read_text(encoding="utf-8")
    assert [str(path) for path in Path("/sys/fs/cgroup").glob("**/gpufleet-lab-pytest-down-*")] == []
    assert not Path("/run/systemd/nspawn/propagate/pytest-down-down-1").exists()
    assert lab.sh(HOST, "hostname") == f"{HOST}\n", "another lab is not touched"
