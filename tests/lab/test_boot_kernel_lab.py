# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module boot_kernel with Debian's own programs of GRUB and its kmod.

Stand-ins: the kernels are empty files, the modules have their modinfo and no code, and grub.cfg is written here in the form of Debian's 10_linux,
because a lab host has no boot device that grub-mkconfig could find.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.lab

NAME = "boot-kernel"
NEW = "99.1.0-51-amd64"
CONFIGURATION = """\
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
fi
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-1f' {{
{entries}}}
"""
ENTRY = """\
\tmenuentry 'Debian GNU/Linux, with Linux {0}' --class debian $menuentry_id_option 'gnulinux-{0}-advanced-1f' {{
\t\tlinux\t/boot/vmlinuz-{0} root=UUID=1f ro  quiet
\t}}
"""


class Host:
    def __init__(self, fleet):
        self.fleet = fleet
        self.old = self.sh("uname -r").strip()

    def sh(self, script):
        return str(self.fleet.lab.sh(NAME, script))

    def ask(self, *options, **arguments):
        return self.fleet.module(NAME, "boot_kernel", arguments, *options)

    def module(self, release, built_for):
        """Put a module there as DKMS does."""
        fields = {
            "version": "580.178.04",
            "license": "NVIDIA",
            "name": "nvidia",
            "vermagic": f"{built_for} SMP preempt",
        }
        lines = [
            f'__attribute__((section(".modinfo"), used)) static const char f{number}[] = "{name}={value}";'
            for number, (name, value) in enumerate(fields.items())
        ]
        folder = f"/lib/modules/{release}/updates/dkms"
        self.fleet.lab.write(NAME, "/root/module.c", "\n".join(lines).encode())
        self.sh(f"mkdir -p {folder} && gcc -c -o {folder}/nvidia.ko /root/module.c && depmod {release}")


@pytest.fixture(scope="module")
def host(make_fleet):
    spec = {"name": NAME, "group": "debian", "boards": [{"board": "t4", "count": 1}]}
    host = Host(make_fleet("pytest-boot-kernel", spec))
    host.sh(
        "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends grub2-common kmod gcc libc6-dev"
    )
    for release in (host.old, NEW):
        host.sh(f"mkdir -p /lib/modules/{release} /boot/grub && touch /boot/vmlinuz-{release}")
    entries = "".join(ENTRY.format(release) for release in (NEW, host.old))
    host.fleet.lab.write(NAME, "/boot/grub/grub.cfg", CONFIGURATION.format(entries=entries).encode())
    host.sh("echo GRUB_DEFAULT=0 > /etc/default/grub; grub-editenv /boot/grub/grubenv create")
    host.module(host.old, host.old)
    return host


def test_a_kernel_is_booted_next_only_if_its_module_was_built_for_it(host):
    host.sh(f"depmod {NEW}")
    refused = host.ask()
    assert f"the kernel {NEW} is booted next and has no module of the driver" in refused.get("msg", ""), refused
    host.module(NEW, host.old)
    refused = host.ask()
    assert f"its module of the driver was built for {host.old}" in refused.get("msg", ""), refused
    host.module(NEW, NEW)
    answer = host.ask()
    assert (answer["changed"], answer["running"], answer["boots_next"]) == (False, host.old, NEW)


def test_grub_reboot_chooses_the_old_kernel_for_one_boot(host):
    host.module(NEW, NEW)
    assert host.ask("--check", release=host.old)["changed"]
    assert "next_entry" not in host.sh("grub-editenv /boot/grub/grubenv list")
    answer = host.ask(release=host.old)
    assert [step["kind"] for step in answer["steps"]] == ["boot_kernel_once"]
    assert f"next_entry=gnulinux-advanced-1f>gnulinux-{host.old}-advanced-1f" in host.sh(
        "grub-editenv /boot/grub/grubenv list"
    )
    assert not host.ask(release=host.old)["changed"]
    host.sh("grub-editenv /boot/grub/grubenv unset next_entry")
    assert host.ask()["boots_next"] == NEW


def test_grub_set_default_keeps_the_old_kernel_where_the_default_is_the_saved_entry(host):
    host.module(NEW, NEW)
    host.sh("echo GRUB_DEFAULT=saved > /etc/default/grub")
    answer = host.ask(release=host.old)
    assert [step["kind"] for step in answer["steps"]] == ["boot_kernel"]
    assert f"saved_entry=gnulinux-advanced-1f>gnulinux-{host.old}-advanced-1f" in host.sh(
        "grub-editenv /boot/grub/grubenv list"
    )
    assert host.ask()["boots_next"] == host.old


def test_a_kernel_that_is_not_installed_is_refused(host):
    refused = host.ask(release="6.1.0-1-amd64")
    assert "kernel 6.1.0-1-amd64: it is not installed" in refused.get("msg", ""), refused
