# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The installed packages of NVIDIA and of kernels and what holds them, from the package managers' own files where they have them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .command import CommandError
from .host_files import HostFiles
from .host_reader import HostReader
from .package_databases import (
    InstalledPackage,
    RpmDatabase,
    lock_patterns,
    parse_dpkg_status,
    parse_versionlock_toml,
    parse_zypper_locks,
)

_TOOLKIT = re.compile(r"(lib)?nvidia-container")
_DCGM = re.compile(r"datacenter-gpu-manager")
#: Everything that comes with the driver, under the names of the archives in host.md, section 2.2.
_DRIVER = re.compile(
    r"(lib)?nvidia[-.\d]|cuda-drivers|libcuda1$|libcuda\.|cuda-compat|kmod-nvidia|dkms-nvidia|linux-modules-nvidia|"
    r"linux-(open|signatures|objects)-nvidia|xserver-xorg-video-nvidia|firmware-nvidia-gsp|libnvcuvid|libnvoptix|"
    r"libnvsdm|nvlsm$|nvlink5"
)
#: Names that only NVIDIA's own repositories have (host.md, section 2.2). Debian's archive has nvidia-open-kernel-dkms.
_ONLY_NVIDIA = re.compile(
    r"cuda-drivers|nvidia-open(-\d|$)|nvidia-driver-(cuda|open|pinning)|nvidia-kernel-open-dkms$|"
    r"kmod-nvidia-(open|latest)-dkms$"
)
#: linux-image-generic-hwe-24.04 and linux-headers-amd64, not linux-image-6.8.0-40-generic; kernel-devel-matched.
_KERNEL = re.compile(r"linux-(?:image|headers)-(?!\d|unsigned-|uc-)|kernel.*-devel(?:-matched)?$")
_RPM_PATTERNS = (
    "kernel*-devel*",
    "*nvidia*",
    "cuda-drivers*",
    "cuda-compat*",
    "libcuda*",
    "libnv*",
    "nvlsm*",
    "datacenter-gpu-manager*",
)


def from_nvidia(package: InstalledPackage) -> bool:
    """Return whether a package is from one of NVIDIA's repositories, or a copy of one, and not from the distribution."""
    vendor = package.vendor.lower()
    return "@nvidia.com" in vendor or vendor.startswith("nvidia") or bool(_ONLY_NVIDIA.match(package.name))


def is_driver(name: str) -> bool:
    return bool(_DRIVER.match(name)) and not _TOOLKIT.match(name)


def is_toolkit(name: str) -> bool:
    return bool(_TOOLKIT.match(name))


def is_dcgm(name: str) -> bool:
    return bool(_DCGM.match(name))


def is_kernel_package(name: str) -> bool:
    """Return whether a package follows a kernel from version to version, or brings what modules are built with."""
    return bool(_KERNEL.match(name))


def _is_read(name: str) -> bool:
    return is_driver(name) or is_toolkit(name) or is_dcgm(name) or is_kernel_package(name)


def kernel_packages(packages: Iterable[InstalledPackage]) -> list[str]:
    """Return the names of those packages that follow a kernel from version to version, or bring what modules are built with."""
    return sorted(package.name for package in packages if is_kernel_package(package.name))


def from_dpkg(text: str) -> list[InstalledPackage]:
    """Return the packages that C(/var/lib/dpkg/status) says are installed, of NVIDIA and of kernels; one that was cut off half way is not."""
    return [package for package in parse_dpkg_status(text, _is_read) if package.state == "installed"]


def read_packages(source: HostReader, manager: str | None) -> tuple[list[InstalledPackage] | None, list[str] | None]:
    """Return the installed packages of NVIDIA and of kernels and what is held, or None for both where that cannot be known.

    :param manager: C(apt), C(dnf) or C(zypper).
    """
    if manager == "apt":
        text = source.files.read("/var/lib/dpkg/status")
        if text is None:
            source.note("driver.packages", "/var/lib/dpkg/status cannot be read")
            return None, None
        packages = from_dpkg(text)
        return packages, [package.name for package in packages if package.held]
    if manager in ("dnf", "zypper"):
        return _read_rpm(source), _relevant(_rpm_locks(source.files))
    source.note("driver.packages", "the host's package manager is not known")
    return None, None


def _read_rpm(source: HostReader) -> list[InstalledPackage] | None:
    root = "/" if source.files.local else source.files.root
    try:
        found = RpmDatabase(root, lambda command, **_options: source.run(command)).installed(*_RPM_PATTERNS)
    except CommandError as error:
        source.note("driver.packages", str(error))
        return None
    return sorted((package for package in found if _is_read(package.name)), key=lambda package: package.name)


def _rpm_locks(files: HostFiles) -> list[str]:
    return [
        *lock_patterns(files.read("/etc/dnf/plugins/versionlock.list") or ""),
        *parse_versionlock_toml(files.read("/etc/dnf/versionlock.toml") or ""),
        *parse_zypper_locks(files.read("/etc/zypp/locks") or ""),
    ]


def _relevant(locks: list[str]) -> list[str]:
    return sorted({lock for lock in locks if "nvidia" in lock or "cuda" in lock or is_dcgm(lock)})
