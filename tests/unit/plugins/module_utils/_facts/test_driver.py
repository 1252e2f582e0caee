# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import kernel
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.installed_packages import InstalledPackage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.driver import (
    driver_source,
    library_path,
    library_version,
    read_driver,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import Services, read_services

LIB = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture(autouse=True)
def running_kernel(monkeypatch):
    monkeypatch.setattr(kernel, "running_kernel", lambda: "6.1.0-50-amd64")


def on_disk(tree, version="580.126.09", licence="Dual MIT/GPL"):
    tree.write("/lib/modules/6.1.0-50-amd64/modules.dep", "updates/dkms/nvidia.ko:\n")
    tree.answers["modinfo"] = f"filename: x\nversion: {version}\nlicense: {licence}\n"


def library(tree, version="580.126.09"):
    tree.write(f"{LIB}/libnvidia-ml.so.{version}")
    tree.link(f"{LIB}/libnvidia-ml.so.1", f"libnvidia-ml.so.{version}")


def loaded(tree, version="580.126.09"):
    tree.write("/sys/module/nvidia/version", version)
    tree.write("/sys/module/nvidia/refcnt", "0")
    tree.write("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  x")


def read(tree, manager="apt"):
    source = tree.source()
    return read_driver(source, manager, Services())[0], source.unknown


def versions(driver):
    return driver["loaded_version"], driver["on_disk_version"], driver["library_version"]


def test_a_bare_host(tree):
    tree.write("/var/lib/dpkg/status", "")
    tree.write("/lib/modules/6.1.0-50-amd64/modules.dep", "")
    tree.folder("/sys/module")
    driver, unknown = read(tree)
    assert versions(driver) == (None, None, None)
    assert driver["source"] is None and driver["flavour"] is None and driver["packages"] == {}
    assert unknown == {
        "driver.loaded_version": "the module nvidia is not loaded",
        "driver.on_disk_version": "no module nvidia for kernel 6.1.0-50-amd64",
        "driver.library_version": "libnvidia-ml.so.1 is not installed",
    }
    assert tree.calls == []


def test_on_disk_and_not_loaded(tree):
    on_disk(tree)
    library(tree)
    tree.write("/sys/module/nouveau/refcnt", "3")
    driver, _unknown = read(tree)
    assert versions(driver) == (None, "580.126.09", "580.126.09")
    assert driver["flavour"] == "open"
    assert driver["nouveau_loaded"] is True


def test_loaded(tree):
    on_disk(tree)
    library(tree)
    loaded(tree)
    tree.program("/usr/bin/nvidia-persistenced")
    driver, _unknown = read(tree)
    assert versions(driver) == ("580.126.09",) * 3
    assert driver["modules"] == ["nvidia"]
    assert driver["persistence_daemon"] == {"installed": True, "active": None}


def test_mismatch_after_an_upgrade(tree):
    on_disk(tree, "595.91.07")
    library(tree, "595.91.07")
    loaded(tree)
    assert versions(read(tree)[0]) == ("580.126.09", "595.91.07", "595.91.07")


def test_the_loaded_modules_flavour_wins(tree):
    on_disk(tree, licence="NVIDIA")
    assert read(tree)[0]["flavour"] == "proprietary"
    loaded(tree)
    assert read(tree)[0]["flavour"] == "open"


def test_a_module_without_a_version(tree):
    on_disk(tree)
    tree.answers["modinfo"] = "license: GPL\n"
    driver, unknown = read(tree)
    assert driver["on_disk_version"] is None
    assert unknown["driver.on_disk_version"] == "modinfo shows no version"
    assert "/sys is not visible" in unknown["driver.loaded_version"]


@pytest.mark.parametrize(
    ("index", "answer", "unread"),
    [
        # A container, or a file system that is not mounted.
        (None, (1, "modinfo: ERROR: Module nvidia not found."), True),
        ("updates/dkms/nvidia.ko.zst:\n", (1, "modinfo: ERROR: could not get modinfo: Permission denied"), True),
        ("updates/dkms/nvidia.ko:\n", "license: GPL\n", True),
        ("kernel/drivers/net/x.ko:\n", (1, "modinfo: ERROR: Module nvidia not found."), False),
        # Nobody told depmod.
        ("kernel/gone/nvidia.ko:\n", (1, "modinfo: ERROR: could not get modinfo from 'nvidia': No such file"), False),
        ("updates/dkms/nvidia.ko:\n", "version: 580.126.09\n", False),
    ],
)
def test_a_module_that_is_loaded_and_cannot_be_read_on_the_disk(tree, index, answer, unread):
    if index is not None:
        tree.write("/lib/modules/6.1.0-50-amd64/modules.dep", index)
        for name in ("nvidia.ko", "nvidia.ko.zst"):
            tree.write(f"/lib/modules/6.1.0-50-amd64/updates/dkms/{name}")
    tree.answers["modinfo"] = answer
    assert "on_disk_unread" not in read(tree)[0]
    loaded(tree)
    assert read(tree)[0].get("on_disk_unread", False) is unread


def test_dkms_is_told(tree):
    tree.folder("/var/lib/dkms/nvidia/580.126.09/source")
    assert read(tree)[0]["dkms"] == [{"name": "nvidia", "version": "580.126.09", "kernel": None, "state": "added"}]


@pytest.mark.parametrize("folder", ["/usr/lib64", "/usr/lib/aarch64-linux-gnu", "/lib64"])
def test_library_folders(tree, folder):
    tree.write(f"{folder}/libnvidia-ml.so.1")
    assert library_path(tree.files) == f"{folder}/libnvidia-ml.so.1"


def test_a_folder_that_only_the_linker_knows(tree):
    tree.write("/opt/nvidia/libnvidia-ml.so.580.126.09")
    tree.link("/opt/nvidia/libnvidia-ml.so.1", "libnvidia-ml.so.580.126.09")
    tree.write("/etc/ld.so.cache", b"glibc-ld.so.cache1.1\0libnvidia-ml.so.1\0/opt/nvidia/libnvidia-ml.so.1\0libz.so\0")
    assert library_path(tree.files) == "/opt/nvidia/libnvidia-ml.so.580.126.09"


@pytest.mark.parametrize("folder", ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64"])
def test_the_library_of_the_operators_driver_container_where_the_host_has_none(tree, folder):
    tree.write(f"/run/nvidia/driver/usr/{folder}/libnvidia-ml.so.580.126.09")
    tree.link(f"/run/nvidia/driver/usr/{folder}/libnvidia-ml.so.1", "libnvidia-ml.so.580.126.09")
    assert library_path(tree.files) == f"/run/nvidia/driver/usr/{folder}/libnvidia-ml.so.580.126.09"
    tree.write("/opt/nvidia/libnvidia-ml.so.1")
    tree.write("/etc/ld.so.cache", b"glibc-ld.so.cache1.1\0libnvidia-ml.so.1\0/opt/nvidia/libnvidia-ml.so.1\0libz.so\0")
    assert library_path(tree.files) == "/opt/nvidia/libnvidia-ml.so.1"


@pytest.mark.parametrize(
    ("path", "version"),
    [("/x/libnvidia-ml.so.535.261.03", "535.261.03"), ("/x/libnvidia-ml.so.1", None), ("/x/libnvidia-ml.so", None)],
)
def test_library_version(path, version):
    assert library_version(path) == version


def test_a_library_without_a_version(tree):
    tree.write(f"{LIB}/libnvidia-ml.so.1")
    driver, unknown = read(tree)
    assert driver["library_version"] is None
    assert unknown["driver.library_version"] == f"{LIB}/libnvidia-ml.so.1 carries no version in its name"


NVIDIA = InstalledPackage("nvidia-open", "580.126.09-1", "NVIDIA <cudatools@nvidia.com>")
DEBIAN = InstalledPackage(
    "nvidia-driver", "535.309.01-0+deb12u1", "Debian NVIDIA Maintainers <x@lists.alioth.debian.org>"
)
#: Under names that NVIDIA's repositories have, too.
NEGATIVO = InstalledPackage("nvidia-driver-cuda", "3:580.126.09-1.el9", "negativo17.org")
#: What a site builds itself does not make the driver somebody else's.
SITE, KMOD = InstalledPackage("nvidia-site", "1.2-1", "Site"), InstalledPackage("kmod-nvidia", "580.126.09-1", "Site")
TOOLKIT = InstalledPackage("nvidia-container-toolkit", "1.20.2-1", "NVIDIA CORPORATION <cudatools@nvidia.com>")


#: As an image of containers has it (recorded on an H200, whose driver was mounted): libraries, no driver.
COMPAT = InstalledPackage("cuda-compat-13-0", "580.95.05-0ubuntu1", "cudatools <cudatools@nvidia.com>")

#: Named like a driver's, and beside any.
BESIDE = InstalledPackage("nvidia-vaapi-driver", "0.0.11-1", "Ubuntu Developers <x@lists.ubuntu.com>")


@pytest.mark.parametrize(
    ("packages", "present", "mark", "source"),
    [
        ([NVIDIA], True, None, "nvidia"),
        ([DEBIAN, TOOLKIT], True, None, "distribution"),
        ([NEGATIVO], True, None, "vendor"),
        ([NVIDIA, SITE, KMOD], True, None, "nvidia"),
        ([TOOLKIT], True, None, "outside"),
        ([COMPAT], True, None, "outside"),
        ([BESIDE], True, "/run/nvidia/driver/usr/bin/nvidia-smi", "container"),
        ([TOOLKIT], True, "/run/nvidia/driver/usr/bin/nvidia-smi", "container"),
        ([], False, "/run/nvidia/driver/usr/bin/nvidia-smi", None),
        ([COMPAT], False, None, None),
        ([], False, "/usr/bin/nvidia-uninstall", "runfile"),
        ([TOOLKIT], False, None, None),
    ],
)
def test_source(tree, packages, present, mark, source):
    if mark:
        tree.write(mark)
    found = driver_source(tree.files, packages, present)
    assert found["source"] == source and found.get("vendor") == (NEGATIVO.vendor if source == "vendor" else None)


def test_packages_of_two_vendors(tree):
    assert driver_source(tree.files, [NEGATIVO, NVIDIA], True) == {"source": "nvidia", "vendor": "negativo17.org"}


def test_services(tree):
    tree.active = {"containerd.service"}
    tree.folder("/run/systemd/system")
    services = read_services(tree.source())
    assert (services.active("containerd"), services.active("docker")) == (True, False)
    assert len(tree.calls) == 1


@pytest.mark.parametrize(("local", "systemd"), [(True, False), (False, True)])
def test_services_without_systemd_are_unknown(tree, local, systemd):
    if systemd:
        tree.folder("/run/systemd/system")
    source = tree.source(local=local)
    services = read_services(source)
    assert services.active("containerd") is None
    assert source.unknown["services"]
    assert tree.calls == []


def test_systemd_that_does_not_answer(tree):
    tree.folder("/run/systemd/system")
    source = tree.source()

    def units(_names):
        raise CommandError(["systemctl", "show"], "no answer within 60 s")

    source.units = units
    assert read_services(source).active("containerd") is None
    assert "no answer" in source.unknown["services"]
