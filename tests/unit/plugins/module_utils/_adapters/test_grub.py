# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which kernel is booted next, from the files of a host."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import grub
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.grub import (
    installed_kernels,
    next_kernel,
    parse_entries,
    read_grub,
    set_default,
    set_once,
)

OLD, NEW = "6.1.0-9-amd64", "6.1.0-50-amd64"
UUID = "7d0c2e3f-9d4e-4c9f"


def install(tree, *releases):
    for release in releases:
        tree.folder(f"/lib/modules/{release}")
        tree.write(f"/boot/vmlinuz-{release}")


def test_a_host_without_kernels_boots_none_that_is_known(tree):
    tree.folder("/lib/modules/6.1.0-9-amd64")
    assert next_kernel(tree.files) == (None, None)


def test_kernels_are_ordered_by_number_and_only_those_that_can_be_booted_count(tree):
    install(tree, NEW, OLD)
    tree.folder("/lib/modules/6.9.0-1-amd64")
    tree.write("/lib/modules/5.14.0-611.el9.x86_64/vmlinuz")
    assert installed_kernels(tree.files) == ("5.14.0-611.el9.x86_64", OLD, NEW)


@pytest.mark.parametrize(
    ("default", "environment", "expected"),
    [
        (None, None, NEW),
        ("0", None, NEW),
        ("saved", None, NEW),
        ("saved", f"saved_entry=0123456789abcdef-{OLD}", OLD),
        ("saved", f"saved_entry={NEW}\nnext_entry=Advanced options>Debian GNU/Linux, with Linux {OLD}", OLD),
        (f"gnulinux-advanced-{UUID}>gnulinux-{OLD}-advanced-{UUID}", f"saved_entry={NEW}", OLD),
        ("0", f"saved_entry={OLD}", NEW),
    ],
)
def test_grub_decides_which_of_them(tree, default, environment, expected):
    install(tree, OLD, NEW)
    if default is not None:
        tree.write("/etc/default/grub", f'GRUB_TIMEOUT=5\nGRUB_DEFAULT="{default}"\n')
    if environment is not None:
        tree.write("/boot/grub2/grubenv", f"# GRUB Environment Block\n{environment}\n####")
    assert next_kernel(tree.files) == (expected, None)


def test_an_entry_that_names_no_kernel_is_not_guessed(tree):
    install(tree, OLD, NEW)
    tree.write("/etc/default/grub", "GRUB_DEFAULT=2\n")
    release, reason = next_kernel(tree.files)
    assert release is None and "'2'" in reason


DEBIAN = """\
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
else
   set default="0"
fi
function gfxmode {
	set gfxpayload="${1}"
}
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-7d0c2e3f' {
	linux	/boot/vmlinuz-6.1.0-50-amd64 root=UUID=7d0c2e3f ro  quiet
	initrd	/boot/initrd.img-6.1.0-50-amd64
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-7d0c2e3f' {
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-50-amd64' --class debian $menuentry_id_option 'gnulinux-6.1.0-50-amd64-advanced-7d0c2e3f' {
		linux	/boot/vmlinuz-6.1.0-50-amd64 root=UUID=7d0c2e3f ro  quiet
	}
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-9-amd64 (recovery mode)' $menuentry_id_option 'gnulinux-6.1.0-9-amd64-recovery-7d0c2e3f' {
		linux	/boot/vmlinuz-6.1.0-9-amd64 root=UUID=7d0c2e3f ro single
	}
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-9-amd64' $menuentry_id_option 'gnulinux-6.1.0-9-amd64-advanced-7d0c2e3f' {
		linux	/boot/vmlinuz-6.1.0-9-amd64 root=UUID=7d0c2e3f ro  quiet
	}
}
"""


def test_the_entries_of_kernels_are_named_with_their_submenus_and_without_recovery():
    assert parse_entries(DEBIAN) == {
        NEW: "gnulinux-advanced-7d0c2e3f>gnulinux-6.1.0-50-amd64-advanced-7d0c2e3f",
        OLD: "gnulinux-advanced-7d0c2e3f>gnulinux-6.1.0-9-amd64-advanced-7d0c2e3f",
    }
    old = "menuentry 'Linux 6.1.0-9-amd64' --class x {\n linux16 /vmlinuz-6.1.0-9-amd64 ro\n}\n"
    assert parse_entries(old) == {OLD: "Linux 6.1.0-9-amd64"}


def test_what_grub_was_told_is_what_is_read_back(tree, monkeypatch):
    install(tree, OLD, NEW)
    tree.write("/boot/grub/grub.cfg", DEBIAN)
    tree.program("/usr/sbin/grub-reboot")
    booted = read_grub(tree.files)
    assert (booted.following, booted.default, booted.boots_once, booted.grubby, booted.program) == (
        NEW,
        "0",
        True,
        False,
        "grub",
    )
    called = []
    monkeypatch.setattr(grub, "run", lambda command, **_options: called.append(list(command)))
    set_once(booted, OLD)
    set_default(booted, OLD)
    set_default(replace(booted, grubby=True), OLD)
    assert called == [
        ["grub-reboot", booted.entries[OLD]],
        ["grub-set-default", booted.entries[OLD]],
        ["grubby", "--set-default", f"/boot/vmlinuz-{OLD}"],
    ]
    tree.write("/boot/grub/grubenv", f"# GRUB Environment Block\nnext_entry={booted.entries[OLD]}\n###")
    assert read_grub(tree.files).following == OLD
