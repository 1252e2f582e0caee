# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fabrics of an HGX B200 and an HGX H100 on lab hosts: real apt, systemd, kmod and infiniband-diags, virtual GPUs and switches, and stand-ins for
NVIDIA's daemons.

The stand-in of the fabric manager refuses what nvidia-fabricmanager-start.sh refuses, as recorded in public reports (see its source); no NVLink 5 switch
is here that it could ask. The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import os

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.by_name,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

#: With NVLink 5, and with NVSwitches on the PCI bus.
HOST, OLDER = "hgx-b200", "hgx-h100"
OLD, NEW = "580.126.09", "580.178.04"
MODULES = "mlx5_core mlx5_ib ib_umad"
AT_BOOT = "/etc/modules-load.d/gpufleet-nvlink5.conf"
POOL = {
    "nvidia_driver_version": OLD,
    "nvidia_driver_allow_vulnerable": True,
    "nvidia_toolkit_runtime": "none",
    "nvidia_mig_strategy": "none",
    "nvidia_health_fabric_timeout": 10,
}
RESTART = "systemctl restart nvidia-fabricmanager || true"


@pytest.fixture(scope="module")
def fleet(make_fleet):
    fleet = make_fleet(
        "fabric",
        {"name": HOST, "group": "hgx", "boards": [{"board": "b200-180gb", "count": 8}]},
        {"name": OLDER, "group": "hgx", "boards": [{"board": "h100-80gb-sxm", "count": 8}], "nvswitch": 4},
    )
    describe(fleet)
    return fleet


def describe(fleet, **variables):
    fleet.describe({"hgx": {"hosts": [HOST, OLDER], "vars": {**POOL, **variables}}})


def fabric(fleet, host=HOST):
    """The state of the virtual fabric."""
    return json.loads(fleet.lab.sh(host, "virtual-gpu show"))["fabric"]


def loaded(fleet):
    return fleet.lab.sh(HOST, f"cd /sys/module && ls -d {MODULES} 2>/dev/null || true").split()


def installed(fleet, package, host=HOST):
    return fleet.lab.sh(host, f"dpkg-query -W -f '${{db:Status-Status}} ${{Version}}' {package}", check=False)


@pytest.mark.proves("fabric", "packages", rows=["nvlink5-host"])
def test_the_fabric_manager_comes_with_what_starts_it(fleet):
    assert fabric(fleet) == "in-progress" and loaded(fleet) == []
    played = fleet.play("site")
    assert played.rc == 0, played.text
    assert installed(fleet, "nvidia-fabricmanager") == f"installed {OLD}-1"
    assert installed(fleet, "nvlsm") == "installed 2025.10.11-1"
    # Debian's: the start of the fabric manager calls its ibstat.
    assert installed(fleet, "infiniband-diags").startswith("installed ")
    assert fleet.lab.status(HOST, "command -v ibstat") == 0


@pytest.mark.proves("fabric", "host", rows=["nvlink5-host"])
def test_the_fabric_is_up_with_its_modules_and_its_subnet_manager(fleet):
    assert sorted(loaded(fleet)) == sorted(MODULES.split())
    assert fabric(fleet) == "completed"
    assert "nvlsm" in fleet.lab.sh(HOST, "systemctl status nvidia-fabricmanager --no-pager")
    verified = fleet.play("verify")
    assert verified.rc == 0, verified.text
    again = fleet.play("site")
    assert again.rc == 0 and again.quiet(HOST) and again.quiet(OLDER), again.text


@pytest.mark.proves("fabric", "host", rows=["nvswitch"])
def test_nvswitches_on_the_bus_get_the_fabric_manager_alone(fleet):
    assert installed(fleet, "nvidia-fabricmanager", OLDER) == f"installed {OLD}-1"
    assert not installed(fleet, "nvlsm", OLDER) and fleet.lab.status(OLDER, f"test -e {AT_BOOT}") != 0
    assert fabric(fleet, OLDER) == "completed"
    fleet.lab.run("reboot", OLDER)
    assert fabric(fleet, OLDER) == "completed"
    assert fleet.play("verify").rc == 0


@pytest.mark.proves("fabric", "health", rows=["nvswitch"])
def test_nvswitches_whose_fabric_manager_ended_are_not_healthy(fleet):
    fleet.lab.sh(OLDER, "systemctl stop nvidia-fabricmanager && virtual-gpu fabric in-progress")
    verified = fleet.play("verify")
    assert verified.rc != 0 and "nvidia-fabricmanager.service does not run" in verified.text, verified.text
    mended = fleet.play("site")
    assert mended.rc == 0 and fabric(fleet, OLDER) == "completed", mended.text


@pytest.mark.proves("fabric", "host", rows=["nvlink5-host"])
@pytest.mark.parametrize("how", ["reboot", "power-cut"])
def test_the_fabric_is_up_again_after(fleet, how):
    fleet.lab.run(how, HOST)
    assert sorted(loaded(fleet)) == sorted(MODULES.split())
    assert fleet.lab.sh(HOST, "systemctl is-active nvidia-fabricmanager").strip() == "active"
    assert fabric(fleet) == "completed"
    assert fleet.play("verify").rc == 0


@pytest.mark.proves("fabric", "host", rows=["nvlink5-host"])
def test_a_new_driver_brings_its_fabric_manager_and_the_fabric(fleet):
    describe(fleet, nvidia_driver_version=NEW)
    played = fleet.play("site")
    assert played.rc == 0, played.text
    assert installed(fleet, "nvidia-fabricmanager") == f"installed {NEW}-1"
    assert fabric(fleet) == "completed"
    verified = fleet.play("verify")
    assert verified.rc == 0, verified.text
    assert fleet.lab.sh(HOST, "systemctl show -P NRestarts nvidia-fabricmanager").strip() == "0"


@pytest.mark.proves("fabric", "health", rows=["nvlink5-host"])
def test_a_fabric_manager_that_ended_is_not_waited_for(fleet):
    """Its GPUs are in progress, as those are that are being registered: nobody registers them."""
    fleet.lab.sh(HOST, "systemctl stop nvidia-fabricmanager && virtual-gpu fabric in-progress")
    describe(fleet, nvidia_driver_version=NEW, nvidia_health_fabric_timeout=3600)
    verified = fleet.play("verify", timeout=600)
    assert verified.rc != 0
    assert "nvidia-fabricmanager.service does not run; CUDA will not start" in verified.text, verified.text
    describe(fleet, nvidia_driver_version=NEW)
    mended = fleet.play("site")
    assert mended.rc == 0 and fabric(fleet) == "completed", mended.text


@pytest.mark.proves("fabric", "host", rows=["nvlink5-host"])
def test_a_module_that_somebody_unloaded_is_loaded_again(fleet):
    fleet.lab.sh(HOST, "systemctl stop nvidia-fabricmanager && modprobe -r ib_umad && virtual-gpu fabric in-progress")
    fleet.lab.sh(HOST, RESTART)
    log = fleet.lab.sh(HOST, "journalctl -b -u nvidia-fabricmanager --no-pager")
    assert 'Kernel module "ib_umad" has not been loaded' in log
    planned = fleet.play("plan")
    assert "load ib_umad (the fabric manager does not start without them)" in planned.text, planned.text
    mended = fleet.play("site")
    assert mended.rc == 0 and fabric(fleet) == "completed", mended.text


@pytest.mark.proves("fabric", "host", rows=["nvlink5-host"])
def test_a_kernel_without_the_modules_is_said_and_never_called_healthy(fleet):
    """As Ubuntu's without linux-modules-extra: the fabric manager then sees no NVLink 5 (NVIDIA/gpu-operator#2781)."""
    kept = "/root/kept-modules"
    move = (
        f"mkdir -p {kept} && find /lib/modules/$(uname -r)/kernel -name mlx5_ib.ko -exec mv {{}} {kept} \\; && depmod"
    )
    fleet.lab.sh(HOST, move)
    fleet.lab.run("reboot", HOST)
    assert "mlx5_ib" not in loaded(fleet) and fabric(fleet) == "in-progress"
    verified = fleet.play("verify")
    assert verified.rc != 0
    assert "the kernel modules that it needs are not loaded (mlx5_ib)" in " ".join(verified.text.split()), verified.text
    played = fleet.play("site")
    assert played.rc != 0
    assert "the kernel module mlx5_ib of NVLink 5 cannot be loaded: " in played.text, played.text
    assert "not found in directory" in played.text, played.text
    back = "/lib/modules/$(uname -r)/kernel/drivers/infiniband/hw/mlx5"
    fleet.lab.sh(HOST, f"mv {kept}/mlx5_ib.ko {back}/ && depmod")
    mended = fleet.play("site")
    assert mended.rc == 0 and fabric(fleet) == "completed", mended.text
    assert fleet.play("verify").rc == 0


@pytest.mark.proves("fabric", "health", rows=["nvlink5-host"])
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("in-progress", "the fabric is not complete (GPU 0 is in progress, GPU 1 is in progress"),
        (
            "completed --status 15",
            "GPU 0 is not registered with the fabric: state completed, status 15 (the GPU is lost)",
        ),
        ("completed --summary 2", "GPU 0 is unhealthy"),
    ],
)
def test_a_fabric_that_failed_is_not_healthy(fleet, fault, text):
    fleet.lab.sh(HOST, f"virtual-gpu fabric {fault}")
    verified = fleet.play("verify")
    assert verified.rc != 0 and text in " ".join(verified.text.split()), verified.text
    fleet.lab.sh(HOST, "virtual-gpu fabric completed")


@pytest.mark.proves("fabric", "host", rows=["nvlink5-host"])
def test_the_removal_of_the_driver_leaves_nothing_of_the_fabric(fleet):
    assert fleet.lab.status(HOST, f"test -e {AT_BOOT}") == 0
    repository = "/srv/gpufleet-lab/repository/compute/cuda/repos/debian12/x86_64"
    source = {"url": f"file://{repository}", "key_file": f"{repository}/cuda-archive-keyring.gpg"}
    assert "packages" in fleet.module(HOST, "driver", {"state": "absent", "repository": source})
    assert fleet.lab.status(HOST, f"test -e {AT_BOOT}") != 0
    assert installed(fleet, "nvidia-fabricmanager") in ("", f"config-files {NEW}-1")


@pytest.mark.by_name
def test_a_virtual_machine_with_one_gpu_gets_no_fabric_manager(make_fleet):
    """Its driver reports no fabric, as NVIDIA's 580.159.04 did in one with an H100 and one with an H200."""
    alone = "vm-b200"
    fleet = make_fleet(
        "fabric-alone", {"name": alone, "group": "alone", "boards": [{"board": "b200-180gb", "count": 1}]}
    )
    pool = {name: value for name, value in POOL.items() if name.startswith(("nvidia_toolkit", "nvidia_mig"))}
    fleet.describe({"alone": {"hosts": [alone], "vars": pool}})
    played = fleet.play("site")
    assert played.rc == 0, played.text
    assert not installed(fleet, "nvidia-fabricmanager", alone) and not installed(fleet, "nvlsm", alone)
    assert fleet.facts(alone)["fabric"]["state"] is None and fleet.facts(alone)["gpus"][0].get("fabric") is None
    assert fleet.play("verify").rc == 0
    assert fleet.play("site").quiet(alone)
