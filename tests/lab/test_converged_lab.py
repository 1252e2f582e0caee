# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that start from the disk of one that site has converged: as if site had just been applied to each of them."""

from __future__ import annotations

import os

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOSTS = ("converged-1", "converged-2")
#: What no two hosts have in common.
IDENTITY = (
    "cat /etc/machine-id",
    "hostname",
    "cat /proc/sys/kernel/random/boot_id",
    "cat /etc/ssh/ssh_host_*_key.pub",
    "nvidia-smi -L",
)


@pytest.fixture(scope="module")
def fleet(converged_fleet):
    boards = [{"board": "h100-80gb-sxm", "count": 2}]
    return converged_fleet("converged", *({"name": name, "group": "pool", "boards": boards} for name in HOSTS))


def test_site_has_nothing_to_do_and_verify_finds_nothing_wrong(fleet):
    again = fleet.play("site", "--skip-tags", "cluster")
    assert again.rc == 0 and all(again.quiet(host) for host in HOSTS), again.text
    verified = fleet.play("verify")
    assert verified.rc == 0, verified.text


def test_the_driver_runs_and_the_toolkit_is_configured(fleet):
    for host in HOSTS:
        assert fleet.lab.sh(host, "nvidia-smi -L").count("GPU ") == 2
        assert fleet.lab.sh(host, "systemctl is-system-running").strip() == "running"
        assert "nvidia-container-runtime" in fleet.lab.sh(host, "containerd config dump")


def test_every_host_has_an_identity_of_its_own(fleet):
    for script in IDENTITY:
        first, second = (fleet.lab.sh(host, script) for host in HOSTS)
        assert first and first != second, script
