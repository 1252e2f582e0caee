# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab host that boots what GRUB tells it to, with Debian's own kernel packages.

Stand-ins: what grub-probe says of a disk, and at boot C(boot_grub), which takes the entry as GRUB does; from then on every program of the host takes
that kernel for the running one, and the lab loads only modules that were built for it. The driver's modules have no code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from debian import HERE, DebianHost

VERSION = "580.178.04"
DESIRED = {
    "nvidia_driver_version": VERSION,
    "nvidia_toolkit_runtime": "none",
    "nvidia_mig_strategy": "none",
    "gpu_node_kubernetes": False,
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


def boot_unit(program: str, after: str = "") -> str:
    """Return a unit that runs C(program) at boot, before the lab's hardware is there.

    :param after: a line of its own that says what has to be there.
    """
    return f"""[Unit]
DefaultDependencies=no
{after}Before=lab-hardware.service lab-load-drivers.service sysinit.target

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/{program}

[Install]
WantedBy=sysinit.target
"""


@dataclass(frozen=True)
class GrubHost(DebianHost):
    """A host that boots what GRUB says, with real kernel packages; its boards are a T4."""

    def upgrade(self, *options: str) -> Any:
        """Run the playbook upgrade with the newest kernel; its output is in upgrade.log."""
        played = self.fleet.play("upgrade", "-e", "gpu_upgrade_retry=true", *options)
        (self.fleet.folder / "upgrade.log").write_text(played.text)
        return played

    @property
    def running(self) -> str:
        return self.sh("uname -r").strip()

    @property
    def record(self) -> dict[str, Any]:
        return dict(json.loads(self.sh("cat /var/lib/gpufleet/upgrade.json")))

    def reboot(self) -> None:
        self.fleet.lab.run("reboot", self.name)

    @cached_property
    def kernels(self) -> list[str]:
        """What Debian has of the kernel of this release, the oldest first."""
        names = self.sh("apt-cache --names-only search '^linux-image-6[.]1[.]0-[0-9]+-amd64$'").splitlines()
        return sorted(
            (line.split()[0].removeprefix("linux-image-") for line in names), key=lambda name: int(name.split("-")[1])
        )

    @property
    def old(self) -> str:
        return self.kernels[-2]

    @property
    def new(self) -> str:
        return self.kernels[-1]

    def write(self, place: str, text: str) -> None:
        self.fleet.lab.write(self.name, place, text)

    def works(self, release: str) -> None:
        """The kernel runs, with the driver that was built for it."""
        assert self.running == release
        assert self.sh("cat /sys/module/nvidia/version").strip() == VERSION
        assert self.sh(f"modinfo -k {release} -F vermagic nvidia").split()[0] == release


def grub_host(make_fleet: Callable[..., Any], name: str, folder: Path) -> GrubHost:
    """Return a host that has booted the kernel before Debian's newest; it has no driver yet.

    :param folder: an empty one.
    """
    # Without the stand-in headers: what DKMS builds for has to come from Debian.
    spec = {"name": name, "group": "kernels", "headers": False, "boards": [{"board": "t4", "count": 1}]}
    fleet = make_fleet(f"pytest-{name}", spec)
    fleet.describe({"kernels": {"hosts": [name], "vars": DESIRED}})
    host = GrubHost(fleet, name)
    boot_by_grub(host, folder)
    return host


def boot_by_grub(host: GrubHost, folder: Path) -> None:
    """Have a host boot what GRUB says from now on, first the kernel before Debian's newest.

    :param folder: an empty one.
    """
    host.sh("apt-get -q update")
    host.put(HERE / "boot_grub", "/usr/local/sbin/boot_grub")
    for place, text in (
        ("/usr/sbin/grub-probe", PROBE),
        ("/etc/systemd/system/boot-grub.service", boot_unit("boot_grub")),
        ("/usr/local/bin/cuda-proof", "#!/bin/sh\n! uname -r | grep -qxF -f /etc/broken\n"),
    ):
        host.write(place, text)
    host.sh("touch /etc/broken")
    host.sh(PREPARE.format(release=host.old))
    host.runs(host.old, folder)
    host.reboot()
    assert host.running == host.old
