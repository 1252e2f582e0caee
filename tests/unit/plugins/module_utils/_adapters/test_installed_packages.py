# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import installed_packages as packages
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.installed_packages import (
    InstalledPackage,
    from_nvidia,
    read_packages,
)

DPKG = """Package: nvidia-driver
Status: hold ok installed
Priority: optional
Maintainer: Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>
Architecture: amd64
Version: 535.309.01-0+deb12u1
Description: NVIDIA metapackage
 Version: 1 is not a field here.

Package: libnvidia-ml1
Status: install ok installed
Maintainer: Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>
Version: 535.309.01-0+deb12u1

Package: nvidia-kernel-dkms
Status: deinstall ok config-files
Maintainer: Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>
Version: 535.261.03-1

Package: nvidia-smi
Status: install reinstreq half-installed
Version: 535.309.01-0+deb12u1

Package: nvidia-container-toolkit
Status: install ok installed
Maintainer: NVIDIA CORPORATION <cudatools@nvidia.com>
Version: 1.20.0-1

Package: bash
Status: install ok installed
Version: 5.2.15-2+b7
"""
RPM = (
    "nvidia-open|3|580.126.09|1.el9|x86_64|NVIDIA Corporation\n"
    "libnvidia-container1|0|1.20.0|1|x86_64|NVIDIA CORPORATION\n"
    "kmod-nvidia-open-dkms|3|580.126.09|1.el9|noarch|NVIDIA Corporation\n"
    "cuda-nvcc-13-0|0|13.0.1|1|x86_64|NVIDIA Corporation\n"
)


def test_dpkg_lists_what_is_completely_installed():
    found = packages.from_dpkg(DPKG)
    assert [(item.name, item.version, item.held, from_nvidia(item)) for item in found] == [
        ("nvidia-driver", "535.309.01-0+deb12u1", True, False),
        ("libnvidia-ml1", "535.309.01-0+deb12u1", False, False),
        ("nvidia-container-toolkit", "1.20.0-1", False, True),
    ]


def test_apt(tree):
    tree.write("/var/lib/dpkg/status", DPKG)
    source = tree.source()
    found, holds = read_packages(source, "apt")
    assert len(found) == 3
    assert holds == ["nvidia-driver"]
    assert tree.calls == []


def test_dnf_asks_rpm_once(tree):
    tree.answers["rpm"] = RPM
    tree.write(
        "/etc/dnf/plugins/versionlock.list", "# x\nnvidia-open-3:580.126.09-1.el9.*\n!nvidia-open-3:595*\nvim-2:9\n"
    )
    tree.write(
        "/etc/dnf/versionlock.toml", 'version = "1.0"\n[[packages]]\nname = "kmod-nvidia"\n[[packages.conditions]]\n'
    )
    found, holds = read_packages(tree.source(), "dnf")
    assert [item.name for item in found] == ["kmod-nvidia-open-dkms", "libnvidia-container1", "nvidia-open"]
    assert found[2] == InstalledPackage("nvidia-open", "3:580.126.09-1.el9", "NVIDIA Corporation", "x86_64")
    assert holds == ["kmod-nvidia", "nvidia-open-3:580.126.09-1.el9.*"]
    assert len(tree.calls) == 1


def test_zypper_locks(tree):
    tree.answers["rpm"] = RPM
    tree.write(
        "/etc/zypp/locks",
        "\ntype: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: nvidia-open\n\nsolvable_name: vim\n",
    )
    assert read_packages(tree.source(), "zypper")[1] == ["nvidia-open"]


def test_another_host_is_asked_by_its_root(tree):
    tree.answers["rpm"] = RPM
    read_packages(tree.source(local=False), "dnf")
    assert tree.calls[0][:3] == ("rpm", "--root", str(tree.root))


@pytest.mark.parametrize(
    ("manager", "answer", "reason"),
    [
        ("apt", None, "/var/lib/dpkg/status cannot be read"),
        ("dnf", None, "not installed"),
        ("dnf", (1, "database is broken"), "exit status 1: database is broken"),
        (None, None, "not known"),
    ],
)
def test_unknown_packages_have_a_reason(tree, manager, answer, reason):
    if answer:
        tree.answers["rpm"] = answer
    source = tree.source()
    assert read_packages(source, manager)[0] is None
    assert reason in source.unknown["driver.packages"]


@pytest.mark.parametrize(
    "name",
    [
        "nvidia-open",
        "nvidia-driver-580-server-open",
        "libnvidia-compute-580-server",
        "linux-modules-nvidia-580-server-open-generic",
        "cuda-drivers",
        "libcuda1",
        "nvidia-fabricmanager-580",
        "nvidia-fabric-manager",
        "nvidia-persistenced",
        "nvlsm",
        "kmod-nvidia-open-dkms",
    ],
)
def test_driver_packages(name):
    assert packages.is_driver(name) and not packages.is_toolkit(name)


@pytest.mark.parametrize("name", ["datacenter-gpu-manager-4-core", "datacenter-gpu-manager"])
def test_dcgm_is_no_part_of_the_driver(tree, name):
    """A host that has DCGM and a driver of the distribution, or none, has no driver of NVIDIA's."""
    assert packages.is_dcgm(name) and not packages.is_driver(name) and not packages.is_toolkit(name)
    tree.write("/etc/dnf/plugins/versionlock.list", f"{name}-1:4.6.0-1.*\nbash-5-1.*\n")
    assert packages._rpm_locks(tree.files) == [f"{name}-1:4.6.0-1.*"]


@pytest.mark.parametrize("name", ["nvidia-container-toolkit-base", "libnvidia-container1", "libnvidia-container-tools"])
def test_toolkit_packages(name):
    assert packages.is_toolkit(name) and not packages.is_driver(name)


@pytest.mark.parametrize(
    "name",
    [
        "cuda-toolkit-13-0",
        "libnvme1",
        "nvidiasettings",
        "python3-nvidia",
        "vim",
        "nvidia-gpu-firmware",
        "nvidia-mig-manager",
        "nvidia-docker2",
        "nvidia-fs-dkms",
        "nvidia-gds-13-0",
        "nvidia-cuda-toolkit",
        "nvidia-prime",
    ],
)
def test_other_packages(name):
    assert not packages.is_driver(name) and not packages.is_toolkit(name)


@pytest.mark.parametrize(
    ("name", "vendor", "nvidia"),
    [
        ("nvidia-open", "", True),
        ("nvidia-open-580", "", True),
        ("nvidia-driver-cuda", "negativo17.org", False),
        ("nvidia-driver-pinning-580", "", True),
        # Whoever maintains a deb package: its name is NVIDIA's alone.
        ("nvidia-open", "Somebody <x@example.org>", True),
        ("libnvidia-compute", "NVIDIA <cudatools@nvidia.com>", True),
        ("kmod-nvidia", "NVIDIA Corporation", True),
        ("kmod-nvidia", "RPM Fusion", False),
        ("nvidia-open-kernel-dkms", "Debian NVIDIA Maintainers <x@lists.alioth.debian.org>", False),
        ("nvidia-kernel-dkms", "Debian NVIDIA Maintainers <x@lists.alioth.debian.org>", False),
        ("nvidia-driver-580-server-open", "Ubuntu Core Developers <x@lists.ubuntu.com>", False),
    ],
)
def test_who_a_package_is_from(name, vendor, nvidia):
    assert from_nvidia(InstalledPackage(name, "1", vendor)) is nvidia
