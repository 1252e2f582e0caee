# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host takes up Debian's newest kernel by the playbook upgrade: real kernel packages of Debian's archive with their scripts, real headers, real DKMS,
GRUB's own grub-mkconfig, grub-reboot and grubenv, and reboots after which the host runs what GRUB was told.

The stand-ins are in grub_host.py. The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from grub_host import VERSION, grub_host

pytestmark = pytest.mark.dkms


@pytest.fixture(scope="module")
def host(make_fleet, tmp_path_factory):
    found = grub_host(make_fleet, "kernel-upgrade", tmp_path_factory.mktemp("kernel"))
    site = found.fleet.play("site", "--skip-tags", "cluster")
    assert site.rc == 0, site.text[-4000:]
    return found


def test_a_metapackage_that_somebody_holds_is_left_alone(host):
    host.sh("apt-mark hold linux-image-amd64")
    refused = host.upgrade()
    assert refused.rc != 0 and "linux-image-amd64: held, and not with the driver" in host.record["failed_reason"]
    host.sh("apt-mark unhold linux-image-amd64")
    host.works(host.old)
    assert host.new not in host.sh("ls /boot")


def test_a_kernel_for_which_dkms_builds_no_module_is_refused_and_never_booted(host):
    broken = f"/etc/dkms/nvidia-{VERSION}-{host.new}.conf"
    host.sh(f"echo 'MAKE[0]=false' > {broken}")
    refused = host.upgrade()
    assert refused.rc != 0
    found = host.record
    assert found["state"] == "refused" and "build/make.log" in found["failed_reason"], found
    host.works(host.old)
    host.reboot()
    host.works(host.old)
    host.sh(f"rm {broken}")


def test_a_kernel_on_which_the_gpus_do_not_work_is_left_for_the_one_before(host):
    host.sh(f"echo {host.new} > /etc/broken")
    failed = host.upgrade()
    assert failed.rc != 0
    assert f"Rolled back to kernel {host.old} and driver {VERSION}, which works" in host.record["failed_reason"], (
        failed.text[-4000:]
    )
    host.works(host.old)


@pytest.mark.proves(
    "driver",
    "nvidia",
    rows=["debian-12"],
    note="Debian's newest kernel",
)
def test_the_newest_kernel_is_taken_up_with_its_driver(host):
    host.sh(": > /etc/broken")
    done = host.upgrade()
    assert done.rc == 0, done.text[-4000:]
    host.works(host.new)
    found = host.record
    assert (found["state"], found["from_kernel"]) == ("done", host.old)
    installed = host.sh("dpkg-query -W -f '${Package} ' 'linux-image-*' 'linux-headers-*'").split()
    assert {"linux-image-amd64", "linux-headers-amd64", f"linux-image-{host.new}", f"linux-headers-{host.new}"} <= set(
        installed
    )
    assert f"linux-image-{host.old}" in installed, "the way back stays"
    assert host.sh("dpkg --audit") == ""
    held = set(host.sh("apt-mark showhold").split())
    assert held and "linux-image-amd64" not in held


def test_a_second_run_has_nothing_to_do(host):
    again = host.upgrade()
    assert again.rc == 0 and again.quiet(host.name), again.text[-4000:]
    host.works(host.new)
