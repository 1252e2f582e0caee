# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module of the kernel that is booted next: its version, what it was built for, and who signed it."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import kernel
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.driver import read_driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import Services

OLD, NEW = "6.1.0-9-amd64", "6.1.0-50-amd64"
VERSION = "580.178.04"
OURS, OTHER = "6A:7C:ED:58", "11:22:33:44"
#: As openssl prints certificates, which mokutil does too.
ENROLLED = """[key 1]
SHA1 Fingerprint: 76:a0:92:06:58:00:bf:37:69:01:c3:72:cd:55:a9:0e:1f:de:d2:e0
Certificate:
    Data:
        Version: 3 (0x2)
        Serial Number: 1234 (0x4d2)
[key 2]
Certificate:
    Data:
        Version: 3 (0x2)
        Serial Number:
            6a:7c:ed:58
        Signature Algorithm: sha256WithRSAEncryption
"""


class Host:
    def __init__(self, tree, monkeypatch):
        self.tree = tree
        self.modules, self.enrolled = {}, ENROLLED
        monkeypatch.setattr(kernel, "running_kernel", lambda: OLD)
        for release in (OLD, NEW):
            tree.folder(f"/lib/modules/{release}")
            tree.write(f"/boot/vmlinuz-{release}")

    def module(self, release, key=None, **fields):
        self.tree.write(f"/lib/modules/{release}/modules.dep", "updates/dkms/nvidia.ko:\n")
        shown = {"version": VERSION, "license": "NVIDIA", "vermagic": f"{release} SMP preempt", **fields}
        if key is not None:
            shown.update(sig_id="PKCS#7", signer="DKMS module signing key" if key else "", sig_key=key)
        self.modules[release] = "".join(f"{name}: {value}\n" for name, value in shown.items())

    def secure_boot(self):
        self.tree.write("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\0\0\0\x01")

    def read(self, local=True):
        source = self.tree.source(local)
        source.run = self._run
        return read_driver(source, None, Services({}))[0].get("next_kernel"), source.unknown

    def _run(self, arguments):
        if arguments[0] == "modinfo":
            text = self.modules.get(arguments[arguments.index("-k") + 1], "")
            return Result(arguments, 0 if text else 1, text, "")
        if arguments == ("mokutil", "--list-enrolled") and self.enrolled is not None:
            return Result(arguments, 0, self.enrolled, "")
        raise CommandError(arguments, "the program is not installed")


@pytest.fixture
def host(tree, monkeypatch):
    return Host(tree, monkeypatch)


def test_the_facts_name_version_and_kernel_of_the_module(host):
    host.module(NEW)
    assert host.read()[0] == {"release": NEW, "version": VERSION, "vermagic": NEW, "headers": False}
    host.tree.folder(f"/lib/modules/{NEW}/build/include")
    host.tree.write(f"/lib/modules/{NEW}/build/Makefile")
    assert host.read()[0]["headers"]


def test_a_kernel_without_the_module_has_no_version(host):
    host.tree.write(f"/lib/modules/{NEW}/modules.dep", "kernel/fs/ext4.ko:\n")
    found, unknown = host.read()
    assert found == {"release": NEW, "version": None, "headers": False}
    assert unknown["driver.next_kernel.version"] == f"no module nvidia for kernel {NEW}"


def test_the_running_kernel_is_not_named(host, monkeypatch):
    monkeypatch.setattr(kernel, "running_kernel", lambda: NEW)
    host.module(NEW)
    assert host.read()[0] is None


@pytest.mark.parametrize(
    ("key", "enrolled", "expected"),
    [
        (OURS, ENROLLED, True),
        ("04:D2", ENROLLED, True),
        (OTHER, ENROLLED, False),
        (OURS, "", False),
        (None, ENROLLED, False),
        (OURS, None, None),
        ("", ENROLLED, None),
    ],
)
def test_with_secure_boot_the_key_of_the_signature_has_to_be_enrolled(host, key, enrolled, expected):
    host.secure_boot()
    host.module(NEW, key)
    host.enrolled = enrolled
    found, unknown = host.read()
    assert found["key_enrolled"] is expected
    assert ("driver.next_kernel.key_enrolled" in unknown) == (expected is None)
    assert found["signer"] == (None if key is None else "DKMS module signing key" if key else "")


@pytest.mark.parametrize(("loaded", "expected"), [(VERSION, True), ("570.1", False), (None, False)])
def test_a_key_that_the_running_kernel_has_taken_is_taken_again(host, loaded, expected):
    """A distribution's own key is in its kernels, and not among the enrolled ones."""
    host.secure_boot()
    host.module(OLD, OTHER.lower())
    host.module(NEW, OTHER)
    if loaded:
        host.tree.write("/sys/module/nvidia/version", loaded)
    assert host.read()[0]["key_enrolled"] is expected


def test_the_keys_of_another_root_are_not_those_of_this_machine(host):
    host.secure_boot()
    host.module(NEW, OURS)
    assert host.read(local=False)[0]["key_enrolled"] is None
