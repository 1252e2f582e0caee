# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import parse_os_release, read_host

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n'
UBUNTU = "ID=ubuntu\nID_LIKE=debian\nVERSION_ID='24.04'\nVERSION_CODENAME=noble\n"
ROCKY = '# comment\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.7"\n'
SLES = 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n'
AMAZON = 'ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2023"\n'
DERIVED = 'ID=pop\nID_LIKE="ubuntu debian"\nVERSION_ID="22.04"\nBROKEN="unclosed\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEBIAN, ("debian", "12", "bookworm", "debian")),
        (UBUNTU, ("ubuntu", "24.04", "noble", "debian")),
        (ROCKY, ("rocky", "9.7", None, "redhat")),
        (SLES, ("sles", "15.6", None, "suse")),
        (AMAZON, ("amzn", "2023", None, "amazon")),
        (DERIVED, ("pop", "22.04", None, "debian")),
        ("ID=arch\n", ("arch", None, None, None)),
        ("", (None, None, None, None)),
    ],
)
def test_distributions(text, expected):
    found = parse_os_release(text)
    assert (found["id"], found["version"], found["codename"], found["family"]) == expected


@pytest.mark.parametrize(
    ("text", "manager"), [(UBUNTU, "apt"), (ROCKY, "dnf"), (AMAZON, "dnf"), (SLES, "zypper"), ("ID=arch", None)]
)
def test_package_manager(tree, text, manager):
    tree.write("/usr/lib/os-release", text)
    tree.link("/etc/os-release", "../usr/lib/os-release")
    source = tree.source()
    assert read_host(source)["package_manager"] == manager
    assert ("host.distribution.family" in source.unknown) is (manager is None)


def test_names_come_from_the_host(tree):
    tree.write("/proc/sys/kernel/hostname", "gpu01\n")
    tree.write("/proc/sys/kernel/random/boot_id", "5f\n")
    source = tree.source()
    host = read_host(source)
    assert (host["name"], host["boot_id"]) == ("gpu01", "5f")
    assert "host.distribution.id" in source.unknown
    assert "host.secure_boot" in source.unknown


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/run/systemd/container", "systemd-nspawn"),
        ("/.dockerenv", ""),
        ("/proc/1/environ", "PATH=/bin\0container=lxc\0"),
        (None, ""),
    ],
)
def test_containers(tree, path, content):
    if path:
        tree.write(path, content)
    assert read_host(tree.source())["container"] is (path is not None)
