# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Installed packages and what holds them, as the databases of dpkg and rpm and the locks of dnf and zypper say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .command import CommandError, Result, Runner
from .files import HostFiles
from .host_reader import HostReader

#: For C(rpm -qa --qf); L(parse_rpms) reads the answer.
RPM_QUERY = "%{NAME}|%{EPOCHNUM}|%{VERSION}|%{RELEASE}|%{ARCH}|%{VENDOR}\\n"

#: A lock of dnf 4: C([!]name-[epoch:]version-release[.architecture]). The epoch may be left out, or be a star.
_VERSION_LOCK = re.compile(
    r"^(?P<excluded>!?)(?P<name>.+)-(?:(?P<epoch>\d+|\*):)?(?P<version>[\d*][^-:]*)-"
    r"(?P<release>[^-]+?)(?:\.(?:\*|x86_64|aarch64|noarch))?$"
)


@dataclass(frozen=True)
class InstalledPackage:
    """An installed package, with its maintainer (deb) or vendor (rpm)."""

    name: str
    version: str
    vendor: str = ""
    architecture: str = ""
    held: bool = False


class RpmDatabase:
    """rpm's database. C(root): the tree that it is in; another one only in tests. C(runner): runs a command, as C(command.run) does."""

    def __init__(self, root: str, runner: Runner) -> None:
        self._root = () if root == "/" else ("--root", root)
        self._run = runner

    def run(self, *arguments: str, timeout: float = 120) -> Result:
        """Run rpm on the database, for C(timeout) seconds at most."""
        return self._run(["rpm", *self._root, *arguments], timeout=timeout)

    def installed(self, *patterns: str) -> list[InstalledPackage]:
        """Return the installed packages, or those whose names match one of the patterns. Raises CommandError: rpm is not installed, or cannot read
        its database.
        """
        answer = self.run("-qa", "--qf", RPM_QUERY, *patterns)
        if answer.rc != 0:
            raise CommandError(answer.command, f"exit status {answer.rc}", answer.stderr or answer.stdout)
        return parse_rpms(answer.stdout)


def edition(epoch: str, version: str, release: str) -> str:
    """Return an rpm version as dnf and zypper spell it: the epoch only when it is not 0."""
    return f"{epoch}:{version}-{release}" if epoch not in ("", "0", "(none)") else f"{version}-{release}"


def parse_rpms(text: str) -> list[InstalledPackage]:
    """Return what C(rpm -qa) answered to L(RPM_QUERY), in its order."""
    found = []
    for line in text.splitlines():
        parts = line.split("|", 5)
        if len(parts) == 6:
            found.append(
                InstalledPackage(parts[0], edition(*parts[1:4]), "" if parts[5] == "(none)" else parts[5], parts[4])
            )
    return found


def versions(packages: Iterable[InstalledPackage]) -> dict[str, str]:
    """Return the version by name; of several at once, such as kernels, the last one."""
    return {package.name: package.version for package in packages}


def parse_versionlock(text: str) -> dict[str, str]:
    """Return locked versions, with their epoch where the lock names one, by name: what C(dnf versionlock list) prints. Both forms are read: the
    patterns of dnf 4 (also those of its file) and the paragraphs of dnf 5. An excluded version (with C(!)) holds nothing.
    """
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        match = None if line.startswith("#") else _VERSION_LOCK.match(line.strip())
        if match:
            if not match.group("excluded"):
                epoch = match.group("epoch") or ""
                version = edition("" if epoch == "*" else epoch, match.group("version"), match.group("release"))
                found[match.group("name")] = version
        elif line.startswith("Package name:"):
            name = line.partition(":")[2].strip()
        elif name and line.strip().startswith("evr = "):
            found[name] = line.partition("=")[2].strip()
            name = ""
    return found


def parse_zypper_locks(text: str) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r"^\s*solvable_name:\s*(\S+)", text, re.MULTILINE))))


_TOOLKIT = re.compile(r"(lib)?nvidia-container")
_DCGM = re.compile(r"datacenter-gpu-manager")
#: Everything that comes with the driver, under the names of the archives in host.md, section 2.2.
_DRIVER = re.compile(
    r"(lib)?nvidia[-.\d]|cuda-drivers|libcuda1$|libcuda\.|cuda-compat|kmod-nvidia|dkms-nvidia|linux-modules-nvidia|"
    r"linux-(open|signatures|objects)-nvidia|xserver-xorg-video-nvidia|firmware-nvidia-gsp|libnvcuvid|libnvoptix|"
    r"libnvsdm|nvlsm$|nvlink5"
)
#: Named like parts of the driver, and beside any driver or none: firmware for nouveau (Fedora's and RHEL's linux-firmware brings it), tools for MIG, GPUDirect
#: Storage, the former Docker runtime, CUDA's compiler as Debian packages it, and the choice of a laptop's GPU.
_BESIDE = re.compile(r"nvidia-(gpu-firmware|mig-(manager|parted)|docker2?$|fs(-|$)|gds(-|$)|cuda-|prime(-|$))")
#: Names that only NVIDIA's own repositories have (host.md, section 2.2), for packages without a vendor. Debian's archive has nvidia-open-kernel-dkms.
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


#: In the vendor (rpm) or maintainer (deb) of a distribution's own packages.
_DISTRIBUTION = re.compile(
    r"debian|ubuntu|canonical|red ?hat|suse|fedora|rocky|almalinux|oracle|amazon|centos", re.IGNORECASE
)


def from_nvidia(package: InstalledPackage) -> bool:
    """Return whether a package is from one of NVIDIA's repositories, or a copy of one: others have packages of the same names."""
    vendor = package.vendor.lower()
    return (
        "@nvidia.com" in vendor
        or vendor.startswith("nvidia")
        or (not _builder(package) and bool(_ONLY_NVIDIA.match(package.name)))
    )


def _builder(package: InstalledPackage) -> str:
    """Return the vendor of an rpm package; a deb package has a maintainer with an address, which packages built from others' sources may keep."""
    return "" if "@" in package.vendor else package.vendor


def other_vendor(packages: Iterable[InstalledPackage]) -> str:
    """Return who packages are from that are neither NVIDIA's nor a distribution's, such as C(RPM Fusion); empty for nobody."""
    vendors = (_builder(package) for package in packages if not from_nvidia(package))
    return next((vendor for vendor in vendors if vendor and not _DISTRIBUTION.search(vendor)), "")


def is_driver(name: str) -> bool:
    return bool(_DRIVER.match(name)) and not _TOOLKIT.match(name) and not _BESIDE.match(name)


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
    found = []
    for paragraph in text.split("\n\n"):
        name = paragraph[len("Package: ") :].partition("\n")[0] if paragraph.startswith("Package: ") else ""
        if not _is_read(name):
            continue
        pairs = (line.partition(": ") for line in paragraph.splitlines() if not line.startswith(" "))
        fields = {key: value for key, colon, value in pairs if colon}
        # want, error flag, state: "hold ok installed".
        status = fields.get("Status", "").split()
        if status[2:] == ["installed"]:
            version, vendor, architecture = (fields.get(key, "") for key in ("Version", "Maintainer", "Architecture"))
            found.append(InstalledPackage(name, version, vendor, architecture, held=status[0] == "hold"))
    return found


def read_packages(source: HostReader, manager: str | None) -> tuple[list[InstalledPackage] | None, list[str] | None]:
    """Return the installed packages of NVIDIA and of kernels and what is held, or None for both where that cannot be known. C(manager): C(apt),
    C(dnf) or C(zypper).
    """
    if manager == "apt":
        text = source.files.read("/var/lib/dpkg/status")
        if text is None:
            source.note("driver.packages", "/var/lib/dpkg/status cannot be read")
            return None, None
        packages = from_dpkg(text)
        return packages, [package.name for package in packages if package.held]
    if manager in ("dnf", "zypper"):
        return _read_rpm(source), _rpm_locks(source.files)
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
    lines = map(str.strip, (files.read("/etc/dnf/plugins/versionlock.list") or "").splitlines())
    # Of dnf 4, whose lines with an exclamation mark exclude a version, and hold nothing.
    listed = [line for line in lines if line and line[0] not in "#!"]
    named = re.findall(r'^\s*name\s*=\s*["\']([^"\']+)', files.read("/etc/dnf/versionlock.toml") or "", re.MULTILINE)
    locks = {*listed, *named, *parse_zypper_locks(files.read("/etc/zypp/locks") or "")}
    return sorted(lock for lock in locks if "nvidia" in lock or "cuda" in lock or is_dcgm(lock))
