# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host takes up Debian's newest kernel by the playbook upgrade: real kernel packages of Debian's archive with their scripts, real headers, real DKMS,
GRUB's own grub-mkconfig, grub-reboot and grubenv, and reboots after which the host runs what GRUB was told.

Stand-ins: what grub-probe says of a disk, and at boot C(boot_grub), which takes the entry as GRUB does; from then on every program of the host takes
that kernel for the running one, and the lab loads only modules that were built for it. The driver's modules have no code. The tests run in order: each
begins with what the one before left.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from debian import HERE, DebianHost

pytestmark = pytest.mark.dkms

NAME = "kernel-upgrade"
VERSION = "580.178.04"
DESIRED = {
    "nvidia_driver_version": VERSION,
    "nvidia_toolkit_runtime": "none",
    "nvidia_mig_strategy": "none",
    "gpu_upgrade_kubernetes": False,
    "gpu_upgrade_kernel": "latest",
    "nvidia_health_cuda_check": ["/usr/local/bin/cuda-proof"],
}
PROBE = """#!/bin/sh
for word in "$@"; do
    case $word in
        --target=*) target=${word#--target=} ;;
    esac
done
case $target in
    device) echo /dev/sda1 ;;
    fs_uuid) echo 1f ;;
    fs) echo ext2 ;;
    partmap) echo gpt ;;
esac
"""
UNIT = """[Unit]
DefaultDependencies=no
Before=lab-hardware.service lab-load-drivers.service sysinit.target

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/boot_grub

[Install]
WantedBy=sysinit.target
"""
PREPARE = """
export DEBIAN_FRONTEND=noninteractive
dpkg-divert --quiet --local --no-rename --add /usr/sbin/grub-probe
chmod +x /usr/sbin/grub-probe /usr/local/sbin/boot_grub /usr/local/bin/cuda-proof
mkdir -p /boot/grub /etc/initramfs-tools/conf.d
# An initial file system of a host that mounts nothing: its content is nobody's affair here.
echo MODULES=list > /etc/initramfs-tools/conf.d/lab
apt-get -q -y --no-install-recommends install grub2-common kmod initramfs-tools
echo GRUB_DEFAULT=0 > /etc/default/grub
grub-editenv /boot/grub/grubenv create
# GRUB's own hook leaves containers alone, which a lab host is.
printf '#!/bin/sh\nexec update-grub\n' > /etc/kernel/postinst.d/zzz-update-grub
chmod +x /etc/kernel/postinst.d/zzz-update-grub
apt-get -q -y --no-install-recommends install linux-image-{release}
systemctl enable boot-grub
"""


def run(host, *options):
    played = host.fleet.play("upgrade", "-e", "gpu_upgrade_retry=true", *options)
    (host.fleet.folder / "upgrade.log").write_text(played.text)
    return played


def running(host):
    return host.sh("uname -r").strip()


def record(host):
    return json.loads(host.sh("cat /var/lib/gpufleet/upgrade.json"))


def kernels(host):
    """What Debian has of the kernel of this release, the oldest first."""
    names = host.sh("apt-cache --names-only search '^linux-image-6[.]1[.]0-[0-9]+-amd64$'").splitlines()
    return sorted(
        (line.split()[0].removeprefix("linux-image-") for line in names), key=lambda name: int(name.split("-")[1])
    )


@pytest.fixture(scope="module")
def host(make_fleet, tmp_path_factory):
    # Without the stand-in headers: what DKMS builds for has to come from Debian.
    spec = {"name": NAME, "group": "kernels", "headers": False, "boards": [{"board": "t4", "count": 1}]}
    fleet = make_fleet("pytest-kernel-upgrade", spec)
    fleet.describe({"kernels": {"hosts": [NAME], "vars": DESIRED}})
    host = DebianHost(fleet, NAME)
    host.sh("apt-get -q update")
    old = kernels(host)[-2]
    host.put(HERE / "boot_grub", "/usr/local/sbin/boot_grub")
    for place, text in (
        ("/usr/sbin/grub-probe", PROBE),
        ("/etc/systemd/system/boot-grub.service", UNIT),
        ("/usr/local/bin/cuda-proof", "#!/bin/sh\n! uname -r | grep -qxF -f /etc/broken\n"),
    ):
        fleet.lab.write(NAME, place, text)
    host.sh("touch /etc/broken")
    host.sh(PREPARE.format(release=old))
    host.runs(old, tmp_path_factory.mktemp("kernel"))
    fleet.lab.run("reboot", NAME)
    assert running(host) == old
    site = fleet.play("site", "--skip-tags", "cluster")
    assert site.rc == 0, site.text[-4000:]
    return host


@pytest.fixture(scope="module")
def old(host):
    return kernels(host)[-2]


@pytest.fixture(scope="module")
def new(host):
    return kernels(host)[-1]


def works(host, release):
    """The kernel runs, with the driver that was built for it."""
    assert running(host) == release
    assert host.sh("cat /sys/module/nvidia/version").strip() == VERSION
    assert host.sh(f"modinfo -k {release} -F vermagic nvidia").split()[0] == release


def test_a_metapackage_that_somebody_holds_is_left_alone(host, old):
    host.sh("apt-mark hold linux-image-amd64")
    refused = run(host)
    assert refused.rc != 0 and "linux-image-amd64: held, and not with the driver" in record(host)["failed_reason"]
    host.sh("apt-mark unhold linux-image-amd64")
    works(host, old)
    assert kernels(host)[-1] not in host.sh("ls /boot")


def test_a_kernel_for_which_dkms_builds_no_module_is_refused_and_never_booted(host, old, new):
    broken = f"/etc/dkms/nvidia-{VERSION}-{new}.conf"
    host.sh(f"echo 'MAKE[0]=false' > {broken}")
    refused = run(host)
    assert refused.rc != 0
    found = record(host)
    assert found["state"] == "refused" and "build/make.log" in found["failed_reason"], found
    works(host, old)
    host.fleet.lab.run("reboot", NAME)
    works(host, old)
    host.sh(f"rm {broken}")


def test_a_kernel_on_which_the_gpus_do_not_work_is_left_for_the_one_before(host, old, new):
    host.sh(f"echo {new} > /etc/broken")
    failed = run(host)
    assert failed.rc != 0
    assert f"Rolled back to kernel {old} and driver {VERSION}, which works" in record(host)["failed_reason"], (
        failed.text[-4000:]
    )
    works(host, old)


@pytest.mark.proves(
    "driver",
    "nvidia",
    rows=["debian-12"],
    note="Debian's newest kernel",
)
def test_the_newest_kernel_is_taken_up_with_its_driver(host, old, new):
    host.sh(": > /etc/broken")
    done = run(host)
    assert done.rc == 0, done.text[-4000:]
    works(host, new)
    found = record(host)
    assert (found["state"], found["from_kernel"]) == ("done", old)
    installed = host.sh("dpkg-query -W -f '${Package} ' 'linux-image-*' 'linux-headers-*'").split()
    assert {"linux-image-amd64", "linux-headers-amd64", f"linux-image-{new}", f"linux-headers-{new}"} <= set(installed)
    assert f"linux-image-{old}" in installed, "the way back stays"
    assert host.sh("dpkg --audit") == ""
    held = set(host.sh("apt-mark showhold").split())
    assert held and "linux-image-amd64" not in held


def test_a_second_run_has_nothing_to_do(host, new):
    again = run(host)
    assert again.rc == 0 and again.quiet(NAME), again.text[-4000:]
    works(host, new)
