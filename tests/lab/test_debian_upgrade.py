# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The life of Debian's own driver on a lab host: real apt, the real archive and its security archive, real packages with
their scripts, real DKMS. Only the kernel's build system is a stand-in, so that each of three builds takes a second;
C(test_debian_driver.py) has the real one.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from debian import DESIRED, EXACT, FIXED, HERE, RELEASED, REVISIONS, DebianHost

pytestmark = [pytest.mark.lab, pytest.mark.by_name]
DEBIAN_12 = pytest.mark.proves(
    "driver",
    "distribution",
    rows=["debian-12"],
    level="real",
    note="535, proprietary, compute; the compiler's work is a stand-in",
)


@pytest.fixture(scope="module")
def host(make_fleet):
    fleet = make_fleet(
        "pytest-debian-upgrade", {"name": "debian-upgrade", "group": "debian", "boards": [{"board": "t4", "count": 1}]}
    )
    host = DebianHost(fleet, "debian-upgrade")
    host.put(HERE / "debian_kernel.mk", host.sh("echo /usr/src/linux-headers-$(uname -r)/Makefile").strip())
    host.sh("apt-get -q update")
    return host


def prove(host: DebianHost, version: str) -> None:
    """Everything that can be read back of one driver, by Debian's own tools."""
    packages = host.packages()
    assert {name: packages.get(name) for name in EXACT} == dict.fromkeys(EXACT, REVISIONS[version])
    assert host.sh("modinfo -F version nvidia-current").strip() == version
    assert host.sh("dkms status").splitlines() == [
        f"nvidia-current/{version}, {host.sh('uname -r').strip()}, x86_64: installed"
    ]
    assert host.sh("readlink -f /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").strip().endswith(f".so.{version}")
    assert set(packages) <= set(host.sh("apt-mark showhold").split())
    assert host.would_be_moved() == []
    assert host.sh("dpkg --audit") == ""


def test_below_the_floor_is_refused(host):
    answer = host.fleet.module(host.name, "driver", {**DESIRED, "allow_vulnerable": False, "version": RELEASED})
    assert answer["refusals"][0]["thing"] == "nvidia_driver_version", answer
    assert host.packages() == {}


@DEBIAN_12
def test_the_release_is_installed_held_and_idempotent(host):
    desired = {"version": RELEASED}
    planned = host.driver("--check", **desired)
    assert planned["changed"]
    assert host.packages() == {}
    answer = host.driver(**desired)
    assert answer["version"] == RELEASED
    assert answer["reboot_reasons"] == ["nvidia_driver_reload is never"]
    prove(host, RELEASED)
    assert not host.driver(**desired)["changed"]


def test_the_real_persistence_daemon_is_there_and_starts_at_boot(host):
    assert "/usr/bin/nvidia-persistenced --user nvpd" in host.sh("systemctl cat nvidia-persistenced")
    assert "--no-persistence-mode" not in host.sh("systemctl cat nvidia-persistenced")
    assert host.sh("systemctl is-enabled nvidia-persistenced").strip() == "enabled"


@DEBIAN_12
def test_real_unattended_upgrades_do_not_move_it(host):
    host.sh(
        "apt-get -q -y -o DPkg::Lock::Timeout=600 install --no-install-recommends unattended-upgrades; "
        # Only what is NVIDIA's is on trial: the rest of the host need not be brought up to date.
        'printf \'%s\n\' \'Unattended-Upgrade::Package-Whitelist {"nvidia"; "libnvidia"; "libcuda";};\' '
        "'Unattended-Upgrade::Package-Whitelist-Strict \"false\";' > /etc/apt/apt.conf.d/99-trial"
    )
    before = host.packages()
    host.sh("unattended-upgrade --verbose")
    assert host.packages() == before
    prove(host, RELEASED)


@pytest.mark.by_name
def test_without_hold_and_pin_it_would_be_moved(host):
    """The proof that the unattended upgrade above, and the empty simulations, mean something."""
    held = host.sh("apt-mark showhold").split()
    host.sh(f"apt-mark unhold {' '.join(held)}; mv /etc/apt/preferences.d/gpufleet-nvidia-driver /root/")
    assert any(f"nvidia-kernel-dkms [{REVISIONS[RELEASED]}]" in line for line in host.would_be_moved())
    planned = host.sh("unattended-upgrade --dry-run --verbose 2>&1")
    assert "nvidia-kernel-dkms" in planned.partition("Packages that will be upgraded:")[2]
    host.sh("mv /root/gpufleet-nvidia-driver /etc/apt/preferences.d/")
    # A hold that somebody took off comes back with the next run.
    assert host.driver(version=RELEASED)["changed"]
    assert set(host.sh("apt-mark showhold").split()) == set(held)


@DEBIAN_12
def test_a_newer_version_replaces_it(host):
    answer = host.driver(version=FIXED)
    assert answer["version"] == FIXED
    prove(host, FIXED)
    assert not host.driver(version=FIXED)["changed"]


@DEBIAN_12
def test_previous_restores_the_package_set_as_one_transaction(host):
    answer = host.driver(state="previous")
    assert [step["kind"] for step in answer["steps"]].count("downgrade_driver") == 1
    prove(host, RELEASED)
    assert not host.driver(state="previous")["changed"]


@DEBIAN_12
def test_removal_leaves_neither_packages_nor_modules_nor_pins(host):
    host.driver(state="absent")
    assert host.packages() == {}
    assert (
        host.sh("apt-mark showhold; dkms status; ls /etc/apt/preferences.d; find /lib/modules -name 'nvidia*.ko*'")
        == ""
    )
    assert not host.driver(state="absent")["changed"]
