# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which kernel is booted next, from the files of a host."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import kernel
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.boot_kernel import (
    installed_kernels,
    next_kernel,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.driver import read_driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.services import Services

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


@pytest.mark.parametrize(
    ("index", "version"), [("updates/dkms/nvidia.ko:\n", "580.178.04"), ("kernel/fs/ext4.ko:\n", None)]
)
def test_the_facts_name_the_module_of_the_next_kernel(tree, monkeypatch, index, version):
    monkeypatch.setattr(kernel, "running_kernel", lambda: OLD)
    install(tree, OLD, NEW)
    tree.write(f"/lib/modules/{NEW}/modules.dep", index)
    tree.answers["modinfo"] = "version: 580.178.04\nlicense: NVIDIA\n"
    driver, _packages = read_driver(tree.source(), None, Services({}))
    assert driver["next_kernel"] == {"release": NEW, "version": version}
    monkeypatch.setattr(kernel, "running_kernel", lambda: NEW)
    assert "next_kernel" not in read_driver(tree.source(), None, Services({}))[0]
