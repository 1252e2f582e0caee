# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages belong to which kernel: what its modules are built with, and what brings the same for every later kernel.

The headers of the running kernel alone lose the driver at the next kernel update: a kernel package does not depend on its headers. Sources:
Debian's and Ubuntu's archives, and NVIDIA's driver installation guide for the others [doc].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Headers:
    """A package with what is needed to build modules.

    :param name: may hold C({kernel}) (all of what C(uname -r) prints), C({flavour}) and C({metapackage}).
    :param version: what the package's version starts with; may hold C({version}). Empty for the manager's choice.
    """

    name: str
    version: str = ""

    @property
    def spelled(self) -> str:
        """How facts call what no repository offers: by the name, and the version where that selects the kernel."""
        return f"{self.name}-{self.version}" if self.version else self.name

    def is_version(self, version: str) -> bool:
        """Return whether a package version is that of the kernel, or of a rebuild of it; 6.12.2 is not of 6.12.20."""
        rest = version[len(self.version) :]
        return version.startswith(self.version) and not (self.version and rest[:1].isdigit())


@dataclass(frozen=True)
class Kernel:
    """The packages of one kind of kernel.

    :param release: a regular expression for all of what C(uname -r) prints; its groups are C(version), which the versions of the kernel's
        packages start with, and C(flavour), by which its metapackages are called.
    :param headers: what modules for this kernel are built with. The first one has to be offered.
    :param later: what brings the headers of every later kernel along. Empty where the manager installs those of C(headers) anew with every kernel;
        None where no such package is known.
    :param caveat: what a build for this kernel may need besides; empty for nothing.
    :param toolchain: the script that puts the compiler of this kernel into PATH, where it is not the system's; its headers bring it.
    :param image: the package that brings the newest kernel of this kind; may hold C({flavour}). Empty where the host's own metapackages say, or
        where nobody knows.
    """

    release: str
    headers: tuple[Headers, ...]
    later: tuple[Headers, ...] | None = ()
    caveat: str = ""
    toolchain: str = ""
    image: str = ""


_MACHINE = r"\.(?:x86_64|aarch64)"
_ANY = r"(?P<version>.+)"
_DEB = (Headers("linux-headers-{kernel}"),)
_RPM = (Headers("kernel-devel", "{version}"), Headers("kernel-headers"))
# Debian's archive [run]; for the others what NVIDIA's guide calls the headers, without -devel [doc].
_UEK_IMAGE = "kernel-uek"
_UEK_HEADERS = (Headers("kernel-uek-devel", "{version}"), Headers("kernel-headers"))
_TOOLSET = "/opt/rh/gcc-toolset-{}/enable"
# UEK R7 of Oracle Linux 8: dkms, tests.yml and dkms(8) [code]; oracle/oracle-linux, pull request 77. UEK 8 of Oracle Linux 9: dkms, tests.yml [code];
# NVIDIA's guide 615, Oracle Linux, which also says that kernel-uek-devel requires the toolset [doc].
_UEK = (
    Kernel(rf"(?P<version>5\.15\..+\.el8uek){_MACHINE}", _UEK_HEADERS, toolchain=_TOOLSET.format(11), image=_UEK_IMAGE),
    Kernel(rf"(?P<version>6\.12\..+\.el9uek){_MACHINE}", _UEK_HEADERS, toolchain=_TOOLSET.format(14), image=_UEK_IMAGE),
    Kernel(
        rf"(?P<version>.+\.el[89]uek){_MACHINE}",
        _UEK_HEADERS,
        caveat="Oracle builds UEK kernels of Oracle Linux 8 and 9 with another compiler (gcc-toolset) than the system's, and which one builds this "
        "kernel is not confirmed: see CONFIG_CC_VERSION_TEXT in its .config, and build_environment in dkms(8)",
        image=_UEK_IMAGE,
    ),
    Kernel(rf"(?P<version>.+uek){_MACHINE}", _UEK_HEADERS, image=_UEK_IMAGE),
)

DEBIAN = (
    Kernel(
        r"(?P<version>.+?)-(?P<flavour>(?:(?:cloud|rt)-)?(?:amd64|arm64))",
        _DEB,
        (Headers("linux-headers-{flavour}"),),
        image="linux-image-{flavour}",
    ),
    Kernel(_ANY, _DEB, None),
)
#: The release names the flavour (generic) and not the metapackage (generic-hwe-24.04): that is taken from what is installed.
UBUNTU = (Kernel(_ANY, _DEB, (Headers("linux-headers-{metapackage}"),)),)
RED_HAT_8 = (*_UEK, Kernel(rf"(?P<version>.+){_MACHINE}", _RPM, image="kernel"))
RED_HAT = (
    *_UEK,
    Kernel(
        r"(?P<version>.+)\.aarch64\+64k",
        (Headers("kernel-64k-devel", "{version}"), Headers("kernel-headers")),
        (Headers("kernel-64k-devel-matched", "{version}"),),
        image="kernel-64k",
    ),
    Kernel(rf"(?P<version>.+){_MACHINE}", _RPM, (Headers("kernel-devel-matched", "{version}"),), image="kernel"),
)
AMAZON = (
    Kernel(rf"(?P<version>6\.12\..+){_MACHINE}", (Headers("kernel6.12-devel", "{version}"),), image="kernel6.12"),
    Kernel(rf"(?P<version>.+){_MACHINE}", _RPM, image="kernel"),
)
SUSE = (
    Kernel(
        r"(?P<version>.+)-(?P<flavour>default|azure|64kb)",
        (Headers("kernel-{flavour}-devel", "{version}"),),
        image="kernel-{flavour}",
    ),
)

#: linux-image-generic-hwe-24.04, not linux-image-6.8.0-40-generic.
_IMAGE_METAPACKAGE = re.compile(r"linux-image-(?!\d|unsigned-|uc-)(?P<flavour>.+)")
_UBUNTU_RELEASE = re.compile(r"\d+\.\d+\.\d+-\d+-(?P<flavour>.+)")
#: What stands behind the flavour of a metapackage that follows another kernel than the release's first one.
_SERIES = re.compile(r"(?:-(?:hwe|lts))?-\d+\.\d+[a-z]?(?:-edge)?$|-edge$")
_MODULES = re.compile(r"linux-modules-nvidia-\d{3}(?:-server)?(?:-open)?-(?P<flavour>(?!server-|open-)[a-z].*)")


def image_metapackages(release: str, installed: Iterable[str]) -> dict[str, str]:
    """Return Ubuntu's installed kernel metapackages that the running kernel may be from, with the flavour of what goes with each. Several may be
    installed (generic and generic-hwe-24.04), and any of them may bring the next kernel. After an update and before the reboot none of them depends
    on the running kernel any more, so that only the flavour ties them to it.

    :returns: such as C({"linux-image-virtual-hwe-24.04": "generic-hwe-24.04"}): there are no module packages for virtual.
    """
    match = _UBUNTU_RELEASE.fullmatch(release)
    found = {}
    for name in sorted(installed):
        metapackage = _IMAGE_METAPACKAGE.fullmatch(name)
        if match is None or metapackage is None:
            continue
        flavour = re.sub(r"^virtual(?=-|$)", "generic", metapackage.group("flavour"))
        if _SERIES.sub("", flavour) == match.group("flavour"):
            found[name] = flavour
    return found


def module_flavours(kernels: Sequence[Kernel], release: str, installed: Iterable[str]) -> tuple[str, ...]:
    """Return by which flavours the packages with compiled modules are called that a host needs; empty where that is not known."""
    kernel, groups = _match(kernels, release)
    if any("{metapackage}" in item.name for item in kernel.later or ()):
        return tuple(sorted(set(image_metapackages(release, installed).values())))
    flavour = groups.get("flavour") if kernel.release else None
    return (flavour,) if flavour else ()


def followed(installed: Iterable[str]) -> tuple[str, ...]:
    """Return the installed packages that have to be held so that a held driver keeps its precompiled module (Ubuntu's archive). The modules of the
    next kernel fit a narrow range of driver versions: a kernel metapackage that moves on leaves a held driver without one.
    """
    names = set(installed)
    flavours = {match.group("flavour"): name for name in names for match in [_MODULES.fullmatch(name)] if match}
    images = {
        name
        for name in names
        if name.startswith("linux-image-")
        and re.sub(r"^linux-image-virtual(?=-|$)", "linux-image-generic", name)[12:] in flavours
    }
    return tuple(sorted(images | set(flavours.values())))


def module_packages(installed: Iterable[str], release: str) -> dict[str, str]:
    """Return the installed metapackages of compiled modules (Ubuntu), with the package of each that a kernel C(release) needs."""
    found = {name: match.group("flavour") for name in installed for match in [_MODULES.fullmatch(name)] if match}
    return {name: name[: -len(flavour)] + release for name, flavour in sorted(found.items())}


def images(kernels: Sequence[Kernel], release: str, installed: Iterable[str]) -> tuple[str, ...]:
    """Return the packages that bring the newest kernel of the kind that runs; empty where nobody knows. C(installed): the packages of kernels that
    are installed.
    """
    kernel, groups = _match(kernels, release)
    if kernel.image:
        return (_filled(Headers(kernel.image), release, groups).name,)
    return tuple(image_metapackages(release, installed)) if kernel.later else ()


def headers_at(kernels: Sequence[Kernel], release: str, installed: Iterable[str], version: str) -> tuple[Headers, ...]:
    """Return what brings the headers of the newest kernel of the kind that runs. C(version): of its package; empty where metapackages go with it (apt)."""
    if not version:
        return later_headers(kernels, release, installed) or ()
    kernel, groups = _match(kernels, release)
    items = kernel.later or kernel.headers
    return tuple(_filled(item, release, {**groups, "version": version}) for item in items if item.version)


def same_kind(kernels: Sequence[Kernel], release: str, other: str) -> bool:
    """Return whether two kernels are of one kind and flavour, so that one is the other's successor."""
    (kernel, groups), (second, others) = _match(kernels, release), _match(kernels, other)
    return kernel == second and groups.get("flavour") == others.get("flavour")


def headers(kernels: Sequence[Kernel], release: str) -> tuple[Headers, ...]:
    """Return what modules for the kernel C(release) are built with, the first one being needed and the others where they are offered."""
    kernel, groups = _match(kernels, release)
    return tuple(_filled(item, release, groups) for item in kernel.headers)


def build_caveat(kernels: Sequence[Kernel], release: str) -> str:
    """Return what a build for the kernel C(release) may need besides its headers, or an empty string."""
    return _match(kernels, release)[0].caveat


def toolchain(kernels: Sequence[Kernel], release: str) -> str:
    """Return the script that puts the compiler of the kernel C(release) into PATH; empty for the system's own."""
    return _match(kernels, release)[0].toolchain


def toolchains(kernels: Sequence[Kernel]) -> dict[str, str]:
    """Return the scripts that put a kernel's compiler into PATH, by the regular expression of what C(uname -r) prints."""
    return {kernel.release: kernel.toolchain for kernel in kernels if kernel.toolchain}


def later_headers(kernels: Sequence[Kernel], release: str, installed: Iterable[str]) -> tuple[Headers, ...] | None:
    """Return what brings the headers of every later kernel, or None where nobody knows. C(installed): the packages of kernels that are installed."""
    kernel, groups = _match(kernels, release)
    if kernel.later is None:
        return None
    found: list[Headers] = []
    for item in kernel.later:
        if "{metapackage}" not in item.name:
            found.append(_filled(item, release, groups))
            continue
        flavours = sorted(set(image_metapackages(release, installed).values()))
        if not flavours:
            return None
        found.extend(Headers(item.name.replace("{metapackage}", flavour)) for flavour in flavours)
    return tuple(found)


def _match(kernels: Sequence[Kernel], release: str) -> tuple[Kernel, dict[str, str]]:
    for kernel in kernels:
        match = re.fullmatch(kernel.release, release)
        if match:
            return kernel, match.groupdict()
    # A kernel of somebody's own: its headers are looked for under the usual name, and nothing is known of the next one.
    return Kernel("", kernels[-1].headers, None), {"version": release, "flavour": release.rpartition("-")[2]}


def _filled(item: Headers, release: str, groups: dict[str, str]) -> Headers:
    texts = [
        text.replace("{kernel}", release)
        .replace("{flavour}", groups.get("flavour", ""))
        .replace("{version}", groups.get("version", ""))
        for text in (item.name, item.version)
    ]
    return Headers(*texts)
