# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The upgrade of a rack in which one host fails with the new driver, and the ways out of it: IMEX does not start, or a GPU is not registered with the fabric.

The rack is that of C(test_imex_lab.py), and so is what is real in it. A fabric is registered anew when the driver is loaded; here the start of IMEX, which
comes after that, is the moment at which the virtual NVML is told how the registration ended. The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import os

import pytest

pytestmark = [
    pytest.mark.lab,
    # Lab hosts get a driver ten times: four minutes, and more where others work beside.
    pytest.mark.upgrade,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

GOOD, BROKEN = HOSTS = ("imex-up-1", "imex-up-2")
OLD, NEW = "580.178.04", "595.91.07"
RACK = {
    "nvidia_driver_version": OLD,
    "nvidia_driver_imex": "host",
    "nvidia_driver_imex_group": "rack",
    "nvidia_toolkit_runtime": "none",
    "nvidia_mig_strategy": "none",
    "gpu_node_kubernetes": False,
}
IS_NEW = f"grep -q {NEW} /sys/module/nvidia/version"
#: What comes before IMEX starts. A fault is one of the new driver alone: the old one is what the host is rolled back to.
STARTS = {
    "imex": f"! {IS_NEW}",
    "fabric": f"virtual-gpu fabric completed; if {IS_NEW}; then virtual-gpu fabric completed --status 15; fi",
    "none": "virtual-gpu fabric completed",
}


@pytest.fixture(scope="module")
def fleet(make_fleet):
    boards = [{"board": "gb200-186gb", "count": 4}]
    made = make_fleet(
        "imex-up", *({"name": name, "group": "rack", "boards": boards, "driver": "installed"} for name in HOSTS)
    )
    addresses = {name: {"nvidia_driver_imex_address": f"127.0.0.{number}"} for number, name in enumerate(HOSTS, 1)}
    made.describe({"rack": {"hosts": list(HOSTS), "vars": RACK}}, addresses)
    site = made.play("site", "--skip-tags", "cluster")
    assert site.rc == 0, site.text[-4000:]
    return made


def upgrade(fleet, fault, *options):
    """Run it, with or without the fault of the second host."""
    folder = "/etc/systemd/system/nvidia-imex.service.d"
    unit = f"[Service]\nExecStartPre=/bin/sh -c '{STARTS[fault]}'\n"
    fleet.lab.sh(BROKEN, f"mkdir -p {folder}")
    fleet.lab.write(BROKEN, f"{folder}/fault.conf", unit)
    fleet.lab.sh(BROKEN, "systemctl daemon-reload")
    run = fleet.play("upgrade", "-e", f"nvidia_driver_version={NEW}", *options)
    (fleet.folder / f"upgrade-{fault}.log").write_text(run.text)
    return run


def works(fleet, host, version):
    """IMEX runs, at the driver's version and with both nodes; what the record of the host says."""
    assert fleet.lab.sh(host, "cat /sys/module/nvidia/version").strip() == version
    assert fleet.lab.sh(host, "dpkg-query -W -f '${Version}' nvidia-imex") == f"{version}-1"
    assert fleet.lab.sh(host, "systemctl is-active nvidia-imex").strip() == "active"
    assert fleet.lab.sh(host, "cat /run/nvidia-imex/nodes").split() == ["127.0.0.1", "127.0.0.2"]
    return json.loads(fleet.lab.sh(host, "cat /var/lib/gpufleet/upgrade.json"))


def is_mixed(fleet, run, reason):
    """The host with the fault is rolled back with its reason, the other one keeps the new driver, and the end of the run names both."""
    assert run.rc != 0
    record = works(fleet, BROKEN, OLD)
    assert record["state"] == "failed", run.text[-3000:]
    assert reason in record["failed_reason"]
    assert f"Rolled back to driver {OLD}, which works" in record["failed_reason"]
    assert works(fleet, GOOD, NEW)["state"] == "done", "it is not rolled back by itself"
    said = " ".join(run.text.split())
    assert f"rack has two driver versions: {GOOD} has the new one, {BROKEN} failed." in said
    assert "Correct the reason and run upgrade again with gpu_upgrade_retry=true" in said


def roll_back(fleet, host):
    """Run it on one host of the rack, and return what it said, in one line."""
    run = fleet.play("rollback", "--limit", host)
    assert run.rc == 0, run.text[-3000:]
    assert works(fleet, host, OLD)["state"] == "refused"
    return " ".join(run.text.split())


def test_an_imex_that_does_not_start_with_the_new_driver_leaves_the_rack_with_two_versions(fleet):
    run = upgrade(fleet, "imex")
    assert "rack: 2 of its 2 hosts get a new driver, one after another" in " ".join(run.text.split())
    is_mixed(fleet, run, "nvidia-imex")
    assert f"rollback --limit {GOOD}" in " ".join(run.text.split())


def test_a_retry_makes_the_rack_whole_once_the_reason_is_corrected(fleet):
    run = upgrade(fleet, "none", "-e", "gpu_upgrade_retry=true")
    assert run.rc == 0, run.text[-3000:]
    assert "two driver versions" not in run.text
    assert works(fleet, BROKEN, NEW)["state"] == works(fleet, GOOD, NEW)["state"] == "done"
    verified = fleet.play("verify", "-e", f"nvidia_driver_version={NEW}")
    assert verified.rc == 0, verified.text[-3000:]


def test_the_rollback_of_one_host_says_that_its_rack_has_two_versions(fleet):
    said = roll_back(fleet, BROKEN)
    assert f"rack has two driver versions: {OLD} on {BROKEN}, {NEW} on {GOOD}. Its IMEX domain does not form" in said
    assert f"Roll the others back too: ansible-playbook gpufleet.nvidia.rollback --limit {GOOD}, or run upgrade" in said
    assert works(fleet, GOOD, NEW)["state"] == "done", "it is not named, and not touched"


def test_a_gpu_that_is_not_registered_with_the_fabric_by_the_new_driver_rolls_its_host_back(fleet):
    run = upgrade(fleet, "fabric", "-e", "gpu_upgrade_retry=true")
    is_mixed(fleet, run, "GPU 0 is not registered with the fabric: state completed, status 15 (the GPU is lost)")
    said = " ".join(run.text.split())
    assert "Look into the fabric manager of the rack, which runs on its switch trays" in said
    assert "nvidia-fabricmanager.service" not in said, "a host of a rack has none"
    assert f"rollback --limit {GOOD}" in said


def test_a_rollback_of_the_other_host_makes_the_rack_whole_with_the_old_driver(fleet):
    assert "rack has two driver versions" not in roll_back(fleet, GOOD)
    assert works(fleet, BROKEN, OLD)["state"] == "failed", "it keeps its reason"
    verified = fleet.play("verify", "-e", f"nvidia_driver_version={OLD}")
    assert verified.rc == 0, verified.text[-3000:]
