# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gzip
import lzma

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import kernel
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result

KERNEL = "6.1.0-50-amd64"
PROC_PROPRIETARY = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Tue Mar 24 20:12:03 UTC 2026
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
"""
PROC_OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build  (dvs-builder@U22)
GCC version:  gcc version 13.3.0
"""
# The shape of what kmod 30 says about the module of Debian's nvidia-kernel-dkms.
MODINFO = """filename:       /lib/modules/6.1.0-50-amd64/updates/dkms/nvidia-current.ko
alias:          char-major-195-*
version:        535.261.03
supported:      external
license:        NVIDIA
srcversion:     6B4C7E8E0E0B0C4B0A0B0C4
alias:          pci:v000010DEd*sv*sd*bc06sc80i00*
depends:
retpoline:      Y
name:           nvidia
vermagic:       6.1.0-50-amd64 SMP preempt mod_unload modversions
sig_id:         PKCS#7
signer:         DKMS module signing key
sig_key:        6A:7C:ED:58:31:09:AE:B0:2A:94:C7:5F:16:1D:07:7A:C0:10:1D:90
sig_hashalgo:   sha256
parm:           NvSwitchRegDwords:charp
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROC_PROPRIETARY, ("535.309.01", "proprietary")),
        (PROC_OPEN, ("580.126.09", "open")),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  615.71.09", ("615.71.09", "open")),
        ("something else", (None, None)),
        ("", (None, None)),
    ],
)
def test_proc_version(text, expected):
    assert kernel.parse_proc_version(text) == expected


@pytest.mark.parametrize("name", ["nvidia", "nvidia_current"])
def test_loaded_version_comes_from_sysfs_first(tree, name):
    tree.write(f"/sys/module/{name}/version", "535.261.03\n")
    tree.write("/proc/driver/nvidia/version", PROC_PROPRIETARY)
    assert kernel.loaded_version(tree.files) == "535.261.03"
    assert kernel.loaded_flavour(tree.files) == "proprietary"


def test_loaded_version_without_sysfs(tree):
    assert kernel.loaded_version(tree.files) is None
    assert kernel.loaded_flavour(tree.files) is None
    tree.write("/proc/driver/nvidia/version", PROC_OPEN)
    assert kernel.loaded_version(tree.files) == "580.126.09"


def test_loaded_modules_are_the_drivers_own(tree):
    for name in ("nvidia", "nvidia_uvm", "gdrdrv", "snd", "nvidiafb"):
        tree.write(f"/sys/module/{name}/refcnt", "1\n")
    tree.folder("/sys/module/nvidia_wmi_ec_backlight")  # built in: parameters only
    assert kernel.loaded_modules(tree.files) == ("gdrdrv", "nvidia", "nvidia_uvm")


@pytest.mark.parametrize(
    ("text", "count"), [("12\n", 12), ("0", 0), ("-1", None), ("--1", None), ("²", None), ("", None)]
)
def test_reference_count(tree, text, count):
    tree.write("/sys/module/nvidia/refcnt", text)
    assert kernel.reference_count(tree.files, "nvidia") == count
    assert kernel.reference_count(tree.files, "nouveau") is None


def test_modinfo_of_a_real_module():
    assert kernel.parse_modinfo(MODINFO) == kernel.DiskModule(
        "535.261.03",
        "proprietary",
        "/lib/modules/6.1.0-50-amd64/updates/dkms/nvidia-current.ko",
        KERNEL,
        "DKMS module signing key",
        "6A:7C:ED:58:31:09:AE:B0:2A:94:C7:5F:16:1D:07:7A:C0:10:1D:90",
    )
    assert kernel.parse_modinfo("version: 580.126.09\nlicense: Dual MIT/GPL").flavour == "open"
    assert kernel.parse_modinfo("license: GPL") == kernel.DiskModule(None, None, None)


def test_a_signature_without_openssl_in_kmod_has_no_name_and_no_key():
    module = kernel.parse_modinfo("version: 580.126.09\nsig_id: PKCS#7\nsigner:\nsig_key:\nsig_hashalgo: unknown\n")
    assert (module.signer, module.key, module.vermagic) == ("", "", None)


class Modinfo:
    def __init__(self, known):
        self.known = known
        self.calls = []

    def __call__(self, arguments):
        self.calls.append(arguments)
        text = self.known.get(arguments[-1])
        return Result(arguments, 0 if text else 1, text or "", f"modinfo: ERROR: Module {arguments[-1]} not found.")


@pytest.mark.parametrize("file", ["updates/dkms/nvidia-current.ko", "updates/dkms/nvidia-current.ko.xz"])
def test_the_index_says_what_the_module_is_called(tree, file):
    tree.write(f"/lib/modules/{KERNEL}/modules.dep", f"kernel/fs/ext4.ko: kernel/lib/crc16.ko\n{file}:\n")
    modinfo = Modinfo({"nvidia-current": MODINFO})

    disk, reason = kernel.module_on_disk(tree.files, KERNEL, modinfo)

    assert (disk.version, reason) == ("535.261.03", None)
    assert modinfo.calls == [("modinfo", "-b", str(tree.root), "-k", KERNEL, "nvidia-current")]


def test_no_module_in_the_index_starts_no_process(tree):
    tree.write(f"/lib/modules/{KERNEL}/modules.dep", "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko:\n")
    modinfo = Modinfo({})
    assert kernel.module_on_disk(tree.files, KERNEL, modinfo) == (None, f"no module nvidia for kernel {KERNEL}")
    assert modinfo.calls == []


def test_without_an_index_both_names_are_tried(tree):
    modinfo = Modinfo({"nvidia-current": MODINFO})
    assert kernel.module_on_disk(tree.files, KERNEL, modinfo)[0].version == "535.261.03"
    assert [call[-1] for call in modinfo.calls] == ["nvidia", "nvidia-current"]
    assert kernel.module_on_disk(tree.files, KERNEL, Modinfo({})) == (
        None,
        "modinfo: ERROR: Module nvidia-current not found.",
    )


@pytest.mark.parametrize("licence", [b"NVIDIA", b"Dual MIT/GPL"])
@pytest.mark.parametrize("signed", [b"", b"\x30\x82~Module signature appended~\n"])
@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)])
def test_without_modinfo_the_file_of_the_module_is_read(tree, suffix, pack, signed, licence):
    path = f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko{suffix}"
    tree.write(f"/lib/modules/{KERNEL}/modules.dep", f"kernel/a.ko:\nupdates/dkms/nvidia.ko{suffix}: kernel/a.ko\n")
    section = (
        b"\0parm=x:version=1\0version=580.178.04\0license=" + licence + b"\0vermagic=" + KERNEL.encode() + b" SMP \0"
    )
    tree.write(path, pack(b"\x7fELF version=999\0" + section + b"\0" * 64 + signed))
    disk, reason = kernel.module_on_disk(tree.files, KERNEL, tree.source().run)
    flavour = "open" if b"MIT" in licence else "proprietary"
    assert disk == kernel.DiskModule("580.178.04", flavour, path, KERNEL, "" if signed else None, None)
    assert reason is None


@pytest.mark.parametrize(
    ("suffix", "content"), [(".zst", b"\x28\xb5\x2f\xfd"), (".xz", b"no"), (".gz", b"no"), ("", b"no module")]
)
def test_a_file_that_says_nothing_is_as_none(tree, suffix, content):
    tree.write(f"/lib/modules/{KERNEL}/modules.dep", f"updates/nvidia.ko{suffix}:\n")
    tree.write(f"/lib/modules/{KERNEL}/updates/nvidia.ko{suffix}", content)
    disk, reason = kernel.module_on_disk(tree.files, KERNEL, tree.source().run)
    assert disk is None and "modinfo" in reason


def test_without_modinfo_the_module_on_disk_is_unknown(tree):
    disk, reason = kernel.module_on_disk(tree.files, KERNEL, tree.source().run)
    assert disk is None and "not installed" in reason


VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        ({}, (None, "/sys/firmware is not visible")),
        ({"/sys/firmware/acpi/x": b""}, (False, None)),
        ({VARIABLE: b"\x06\0\0\0\x01"}, (True, None)),
        ({VARIABLE: b"\x06\0\0\0\0"}, (False, None)),
        ({VARIABLE: b"\x06"}, (None, f"{VARIABLE} is too short")),
        ({"/sys/firmware/efi/systab": b""}, (False, None)),
    ],
)
def test_secure_boot(tree, prepare, expected):
    for path, content in prepare.items():
        tree.write(path, content)
    assert kernel.secure_boot(tree.files) == expected


def test_secure_boot_that_may_not_be_read(tree):
    tree.folder(VARIABLE)  # exists, and cannot be read as a file
    assert kernel.secure_boot(tree.files) == (None, f"{VARIABLE} cannot be read")


def test_headers_need_a_link_that_leads_somewhere(tree):
    tree.link(f"/lib/modules/{KERNEL}/build", f"/usr/src/linux-headers-{KERNEL}")
    assert not kernel.has_headers(tree.files, KERNEL)
    tree.folder(f"/usr/src/linux-headers-{KERNEL}")
    assert kernel.has_headers(tree.files, KERNEL)


def test_dkms_states(tree):
    base = "/var/lib/dkms/nvidia-current/535.261.03"
    tree.folder("/usr/src/nvidia-current-535.261.03")
    tree.link(f"{base}/source", "/usr/src/nvidia-current-535.261.03")
    tree.folder("/var/lib/dkms/zfs/2.1/source")
    files = tree.files
    build = {"name": "nvidia-current", "version": "535.261.03", "kernel": None, "state": "added"}
    assert kernel.dkms_modules(files) == [build]

    tree.write(f"{base}/{KERNEL}/x86_64/module/nvidia-current.ko", "ELF")
    assert kernel.dkms_modules(files) == [{**build, "kernel": KERNEL, "state": "built"}]

    tree.link(f"/var/lib/dkms/nvidia-current/kernel-{KERNEL}-x86_64", f"535.261.03/{KERNEL}/x86_64")
    assert [build["state"] for build in kernel.dkms_modules(files)] == ["installed"]

    tree.write(f"{base}/{KERNEL}/x86_64/module/nvidia-uvm.ko", "")
    assert [build["state"] for build in kernel.dkms_modules(files)] == ["broken"]


def test_the_running_kernel_is_named():
    assert kernel.running_kernel()


@pytest.fixture
def commands(monkeypatch):
    calls = []
    answers = {}

    def run(command, **_options):
        calls.append(" ".join(command))
        answer = answers.get(command[0], (0, "", ""))
        if isinstance(answer, Exception):
            raise answer
        return Result(tuple(command), *answer)

    monkeypatch.setattr(kernel, "run", run)
    monkeypatch.setattr(kernel, "find", lambda name: None if answers.get(name) == "missing" else f"/sbin/{name}")
    return calls, answers


def test_loading_and_unloading_name_one_module(commands):
    calls, _answers = commands
    kernel.load_module("nvidia")
    kernel.unload_module("nvidia")
    assert kernel.module_exists("ipmi_msghandler", "6.1")
    assert calls == ["modprobe nvidia", "rmmod nvidia", "modprobe --set-version 6.1 --dry-run ipmi_msghandler"]


def test_without_modprobe_nothing_exists_and_nobody_knows_what_is_blocked(commands):
    _calls, answers = commands
    answers["modprobe"] = "missing"
    assert not kernel.module_exists("x", "6.1")
    answers["modprobe"] = CommandError(["modprobe"], "the program is not installed")
    assert kernel.is_blocked("nouveau") is None


@pytest.mark.parametrize(
    ("text", "blocked"),
    [
        ("blacklist nouveau\n", True),
        ("install nouveau /bin/false\n", True),
        ("alias nouveau off\n", True),
        ("blacklist nouveau_x\noptions nouveau modeset=0\n", False),
        ("", False),
    ],
)
def test_what_blocks_a_module(commands, text, blocked):
    _calls, answers = commands
    answers["modprobe"] = (0, text, "")
    assert kernel.is_blocked("nouveau") is blocked


def test_the_initial_file_system_is_only_renewed_where_there_is_a_program_for_it(commands):
    calls, answers = commands
    assert kernel.renew_initramfs(["update-initramfs", "-u"])
    answers["dracut"] = "missing"
    assert not kernel.renew_initramfs(["dracut"])
    assert calls == ["update-initramfs -u"]


def test_a_module_is_built_for_a_kernel_and_again_where_dkms_takes_it_for_installed(commands):
    calls, _answers = commands
    assert kernel.build_module("nvidia", "580.1", "6.1", False) == ""
    assert kernel.build_module("nvidia", "580.1", "6.1", True) == ""
    of = "-m nvidia -v 580.1 -k 6.1"
    assert calls == [f"dkms install {of}", f"dkms build --force {of}", f"dkms install --force {of}"]


def test_a_build_that_fails_says_the_first_error_of_its_log_or_what_dkms_said(commands, monkeypatch):
    _calls, answers = commands
    answers["dkms"] = (10, "", "Error! Bad return status\n for module build")
    monkeypatch.setattr(kernel, "read_text", lambda _path: None)
    failed = kernel.build_module("nvidia", "580.1", "6.1", False)
    assert failed == "dkms install -m nvidia -v 580.1 -k 6.1: Error! Bad return status for module build"
    log = "make -Werror error.o\n  nv.c:7:9: error: implicit declaration\nmake[2]: *** [nv.o] Error 1\n"
    # The same log as before tells of an earlier build.
    monkeypatch.setattr(kernel, "read_text", lambda _path: log)
    assert "Bad return status" in kernel.build_module("nvidia", "580.1", "6.1", False)
    logs = iter((None, log))
    monkeypatch.setattr(kernel, "read_text", lambda _path: next(logs))
    failed = kernel.build_module("nvidia", "580.1", "6.1", False)
    assert failed == "nv.c:7:9: error: implicit declaration (see /var/lib/dkms/nvidia/580.1/build/make.log)"
    assert kernel.first_error("make[2]: *** [nv.o] Error 1") and not kernel.first_error("Error! x")


@pytest.mark.parametrize(
    "cause",
    [
        "/bin/sh: line 1: g++: command not found",
        "/bin/sh: 1: pahole: not found",
        "/bin/bash: line 1: gcc-12: command not found",
        "make[2]: gcc-12: No such file or directory",
        "make[1]: cc: Command not found",
        "ld: cannot find nv-kernel.o: No such file or directory",
    ],
)
def test_what_is_missing_is_the_first_error_and_not_what_make_says_of_it(cause):
    """open-gpu-kernel-modules#805: make's Error 127 names no program."""
    log = f" [ nvidia-modeset ]  CXX  dp_auxretry.cpp\n{cause}\nmake[1]: *** [Makefile:219: dp_auxretry.o] Error 127\n"
    assert kernel.first_error(log) == cause
