# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in NVIDIA's repositories and in the distributions' archives, as far as a resolver can see it: names, versions,
dependencies, conflicts, module streams, and their traps (host.md, section 3). The packages hold no driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.packages import FAMILY
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import (
    COMPUTE,
    OPEN,
    PROPRIETARY,
    archive_for,
    fill,
)

VERSIONS = ("535.288.01", "580.126.09", "580.178.04", "595.91.07", "610.57.04")
OLD, LATER, NEXT, NEWEST = VERSIONS[1:]

DEBIAN_KERNEL = "6.1.0-50-amd64"
UBUNTU_KERNEL = "6.8.0-40-generic"
HWE_KERNEL = "6.11.0-26-generic"
RHEL_KERNEL = "5.14.0-687.el9.x86_64"
SUSE_KERNEL = "6.4.0-150600.21-default"


@dataclass(frozen=True)
class StandIn:
    """A package as the resolver sees it.

    :param version: deb: upstream and revision; rpm: version and release joined with a dash.
    :param files: contents by path.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    obsoletes: tuple[str, ...] = ()
    epoch: int = 0
    files: tuple[tuple[str, str], ...] = ()


def deb_base(*kernels: str) -> list[StandIn]:
    """What the driver builds with, and the headers of the kernels of these tests and of C(kernels)."""
    return [
        StandIn("dkms", "3.0.10-8", ("make", "gcc")),
        StandIn("make", "4.3-4.1"),
        StandIn("gcc", "12.2.0-3"),
        *(
            StandIn(f"linux-headers-{kernel}", "6.1.176-1")
            for kernel in sorted({DEBIAN_KERNEL, UBUNTU_KERNEL, HWE_KERNEL, *kernels})
        ),
        # What follows a kernel from version to version.
        StandIn("linux-headers-amd64", "6.1.176-1", (f"linux-headers-{DEBIAN_KERNEL}",)),
        *(
            StandIn(f"linux-{kind}-{flavour}", "6.8.0-40.40", (f"linux-headers-{kernel}",))
            for flavour, kernel in (("generic", UBUNTU_KERNEL), ("generic-hwe-24.04", HWE_KERNEL))
            for kind in ("image", "headers")
        ),
    ]


def _pinning(version: str, suffix: str) -> list[StandIn]:
    found = []
    for name, pattern in ((version, f"{version}-*"), (version[:3], f"{version[:3]}.*")):
        text = f"Package: *nvidia* libcuda1 cuda-drivers*\nPin: version {pattern}\nPin-Priority: 1000\n"
        found.append(
            StandIn(
                f"nvidia-driver-pinning-{name}",
                f"{version}-1{suffix}",
                provides=("nvidia-driver-pinning",),
                conflicts=("nvidia-driver-pinning",),
                files=(("/etc/apt/preferences.d/nvidia-driver-pin", text),),
            )
        )
    return found


def nvidia_debian(version: str, pinning: bool = True) -> list[StandIn]:
    """NVIDIA's repository for Debian: the meta packages depend with >=, the rest with = (host.md, section 3, first row)."""
    full = f"{version}-1"
    found = [
        StandIn("nvidia-open", full, (f"nvidia-driver (>= {full})", f"nvidia-kernel-open-dkms (>= {full})")),
        StandIn("cuda-drivers", full, (f"nvidia-driver (>= {full})", f"nvidia-kernel-dkms (>= {full})")),
        StandIn("nvidia-driver", full, (f"nvidia-driver-cuda (= {full})", f"nvidia-driver-libs (= {full})")),
        StandIn("nvidia-driver-libs", full, (f"libnvidia-ml1 (= {full})",)),
        StandIn(
            "nvidia-driver-cuda",
            full,
            (f"libcuda1 (= {full})", f"libnvidia-ml1 (= {full})", f"nvidia-persistenced (>= {full})"),
        ),
        StandIn("libcuda1", full),
        StandIn("libnvidia-ml1", full),
        StandIn("nvidia-persistenced", full, ("libnvidia-cfg1 (>= 535)",)),
        StandIn("libnvidia-cfg1", full),
        StandIn("nvidia-modprobe", full),
        StandIn("nvidia-kernel-support", full, (f"nvidia-modprobe (>= {full})",)),
        StandIn(
            "nvidia-kernel-open-dkms",
            full,
            ("dkms", f"firmware-nvidia-gsp (= {full})", f"nvidia-kernel-support (>= {full})"),
            ("nvidia-kernel-module",),
            ("nvidia-kernel-dkms",),
        ),
        StandIn(
            "nvidia-kernel-dkms",
            full,
            ("dkms", f"firmware-nvidia-gsp (= {full})", f"nvidia-kernel-support (>= {full})"),
            ("nvidia-kernel-module",),
            ("nvidia-kernel-open-dkms",),
        ),
        StandIn("firmware-nvidia-gsp", full),
        StandIn("nvidia-fabricmanager", full, (f"nvidia-kernel-support (>= {full})",)),
        StandIn("nvidia-imex", full),
        StandIn("libnvidia-nscq", full),
    ]
    return [*found, *(_pinning(version, "") if pinning else [])]


def nvidia_ubuntu(version: str) -> list[StandIn]:
    """NVIDIA's repository for Ubuntu: branch suffixes before 590, none after."""
    full, branch = f"{version}-1ubuntu1", int(version[:3])
    suffix = f"-{branch}" if branch < 590 else ""
    open_dkms = f"nvidia-dkms{suffix}-open" if suffix else "nvidia-dkms-open"
    exact = f"(= {full})"
    return [
        StandIn("nvidia-open", full, (f"nvidia-driver-open (>= {full})",)),
        StandIn("nvidia-driver-open", full, (f"libnvidia-compute{suffix} {exact}", f"{open_dkms} {exact}")),
        StandIn(f"libnvidia-compute{suffix}", full, (f"libnvidia-cfg1{suffix} (>= {full})",)),
        StandIn(f"libnvidia-cfg1{suffix}", full),
        StandIn(f"nvidia-utils{suffix}", full, (f"libnvidia-compute{suffix} {exact}",)),
        StandIn(f"nvidia-compute-utils{suffix}", full, (f"libnvidia-cfg1{suffix} {exact}",)),
        StandIn(f"nvidia-firmware-{branch}", full),
        StandIn(
            open_dkms,
            full,
            ("dkms", f"nvidia-firmware-{branch} {exact}"),
            ("nvidia-dkms-kernel",),
            ("nvidia-dkms-kernel",),
        ),
        StandIn(
            f"nvidia-dkms{suffix}",
            full,
            ("dkms", f"nvidia-firmware-{branch} {exact}"),
            ("nvidia-dkms-kernel",),
            ("nvidia-dkms-kernel",),
        ),
        StandIn("nvidia-fabricmanager" if branch >= 580 else f"nvidia-fabricmanager-{branch}", full),
        StandIn("nvidia-imex" if branch >= 580 else f"nvidia-imex-{branch}", full),
        *_pinning(version, "ubuntu1"),
    ]


def _ubuntu_modules(name: str, flavour: str, kernel: str, version: str) -> list[StandIn]:
    """The modules of a kernel, and the metapackage that follows that kernel's."""
    modules = f"linux-modules-nvidia-{name}-{kernel}"
    return [
        StandIn(modules, version),
        StandIn(f"linux-modules-nvidia-{name}-{flavour}", version, (f"{modules} (= {version})",)),
    ]


def ubuntu_archive() -> list[StandIn]:
    """Ubuntu's archive: 570-server is a transitional package that jumps to 580-server (host.md, section 3, second row)."""
    found: list[StandIn] = []
    for branch, version in (("580", "580.178.04"), ("595", "595.91.07")):
        full = f"{version}-0ubuntu0.24.04.1"
        for flavour in ("", "-open"):
            name = f"{branch}-server{flavour}"
            found += [
                StandIn(
                    f"nvidia-headless-no-dkms-{name}",
                    full,
                    (
                        f"libnvidia-compute-{branch}-server (= {full})",
                        f"nvidia-compute-utils-{branch}-server (= {full})",
                    ),
                ),
                *_ubuntu_modules(name, "generic", UBUNTU_KERNEL, "6.8.0-40.40+1"),
                *_ubuntu_modules(name, "generic-hwe-24.04", HWE_KERNEL, "6.11.0-26.26+1"),
            ]
        found += [
            StandIn(f"libnvidia-compute-{branch}-server", full),
            StandIn(f"nvidia-compute-utils-{branch}-server", full, (f"libnvidia-compute-{branch}-server (= {full})",)),
            StandIn(f"nvidia-utils-{branch}-server", full, (f"libnvidia-compute-{branch}-server (= {full})",)),
            StandIn(f"nvidia-fabricmanager-{branch}", full),
            StandIn(f"nvidia-imex-{branch}", full),
            StandIn(f"libnvidia-nscq-{branch}", full),
        ]
    jump = "580.178.04-0ubuntu0.24.04.1"
    found += [
        StandIn("nvidia-headless-no-dkms-570-server-open", jump, ("nvidia-headless-no-dkms-580-server-open",)),
        StandIn("nvidia-utils-570-server", jump, ("nvidia-utils-580-server",)),
    ]
    return found


def debian_archive(version: str, revision: str) -> list[StandIn]:
    """Debian 12's archive: the closure of a compute-only driver, tied together with =."""
    full = f"{version}-{revision}"
    exact = f"(= {full})"
    return [
        StandIn("nvidia-smi", full, (f"libnvidia-ml1 {exact}", f"nvidia-alternative {exact}")),
        StandIn("libnvidia-ml1", full, (f"nvidia-alternative {exact}",)),
        StandIn("libcuda1", full, (f"nvidia-alternative {exact}", f"libnvidia-ptxjitcompiler1 {exact}")),
        StandIn("libnvidia-ptxjitcompiler1", full),
        StandIn("libnvidia-cfg1", full, (f"nvidia-alternative {exact}",)),
        StandIn("nvidia-alternative", full, ("glx-alternative-nvidia (>= 1.2)",)),
        StandIn("nvidia-kernel-dkms", full, ("dkms", f"nvidia-kernel-support {exact}"), ("nvidia-kernel-dkms-any",)),
        StandIn("nvidia-kernel-support", full, (f"nvidia-alternative {exact}",)),
        StandIn("nvidia-cuda-mps", full),
    ]


def debian_archive_companions() -> list[StandIn]:
    return [
        StandIn("nvidia-persistenced", "535.171.04-1~deb12u1"),
        StandIn("nvidia-modprobe", "535.161.07-1~deb12u1"),
        StandIn("glx-alternative-nvidia", "1.2.2"),
    ]


def rpm_base(kernel: str = RHEL_KERNEL) -> list[StandIn]:
    release = kernel.rpartition(".")[0]
    return [
        StandIn("dkms", "3.1.0-1"),
        StandIn("kernel-headers", release),
        StandIn("kernel-devel", release),
        StandIn("kernel-devel-matched", release, (f"kernel-devel = {release}",)),
        StandIn("kernel-devel", "5.14.0-700.el9"),
        StandIn("kernel-devel-matched", "5.14.0-700.el9", ("kernel-devel = 5.14.0-700.el9",)),
        StandIn("kernel-64k-devel", "5.14.0-687.el9"),
        StandIn("kernel-64k-devel-matched", "5.14.0-687.el9", ("kernel-64k-devel = 5.14.0-687.el9",)),
        StandIn("kernel-uek-devel", "6.12.0-106.55.4.2.el10uek"),
        StandIn("kernel6.12-devel", "6.12.20-23.97.amzn2023"),
    ]


def nvidia_red_hat(version: str, suffix: str = "el9") -> list[StandIn]:
    """NVIDIA's repository for RHEL: the epoch is 3; the meta package takes anything newer too."""
    full, evr = f"{version}-1.{suffix}", f"3:{version}"
    return [
        _rpm("nvidia-open", full, (f"nvidia-driver >= {evr}", f"kmod-nvidia-open-dkms >= {evr}")),
        _rpm("cuda-drivers", full, (f"nvidia-driver >= {evr}", f"kmod-nvidia-latest-dkms >= {evr}")),
        _rpm("nvidia-driver", full, (f"nvidia-driver-libs = {evr}", f"nvidia-driver-cuda = {evr}")),
        _rpm("nvidia-driver-libs", full, (f"libnvidia-ml >= {evr}",)),
        _rpm("nvidia-driver-cuda", full, (f"nvidia-driver-cuda-libs = {evr}", f"nvidia-persistenced >= {evr}")),
        _rpm("nvidia-driver-cuda-libs", full, (f"libnvidia-ml >= {evr}",)),
        _rpm("libnvidia-ml", full),
        _rpm("nvidia-persistenced", full),
        _rpm("nvidia-kmod-common", full),
        _rpm(
            "kmod-nvidia-open-dkms",
            full,
            ("dkms", f"nvidia-kmod-common >= {evr}"),
            (f"nvidia-kmod = {evr}",),
            ("kmod-nvidia-latest-dkms",),
        ),
        _rpm(
            "kmod-nvidia-latest-dkms",
            full,
            ("dkms", f"nvidia-kmod-common >= {evr}"),
            (f"nvidia-kmod = {evr}",),
            ("kmod-nvidia-open-dkms",),
        ),
        _rpm("nvidia-fabric-manager", full),
        _rpm("libnvidia-nscq", full),
    ]


def _rpm(
    name: str,
    version: str,
    requires: tuple[str, ...] = (),
    provides: tuple[str, ...] = (),
    conflicts: tuple[str, ...] = (),
) -> StandIn:
    return StandIn(name, version, requires, provides, conflicts, epoch=3)


def container_toolkit(version: str, rpm: bool) -> list[StandIn]:
    """The four packages of the container toolkit, which depend on each other at exactly their version since 1.18.0."""
    full = f"{version}-1"
    exact = f"= {full}" if rpm else f"(= {full})"
    whole, base, tools, library = (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    )
    return [
        StandIn(whole, full, (f"{base} {exact}", f"{tools} {exact}")),
        StandIn(base, full),
        StandIn(tools, full, (f"{library} {exact}",)),
        StandIn(library, full),
    ]


def dcgm(version: str, rpm: bool) -> list[StandIn]:
    """DCGM 4 for CUDA 12 and 13.

    The names are those of Azure/azhpc-images; the epoch is that of C(datacenter-gpu-manager-4-core-1:4.5.2-1.x86_64), as dnf said on Amazon Linux 2023, and
    of the deb packages there. That each needs the core of its own version is what those scripts say of the packages multinode.
    """
    full = f"{version}-1" if rpm else f"1:{version}-1"
    core = f"{FAMILY}-4-core"
    same = (f"{core} = 1:{full}" if rpm else f"{core} (= {full})",)
    kinds = ("proprietary", *(f"{kind}cuda{cuda}" for cuda in (12, 13) for kind in ("", "proprietary-")))
    epoch = 1 if rpm else 0
    return [
        StandIn(core, full, conflicts=(FAMILY,), epoch=epoch),
        *(StandIn(f"{FAMILY}-4-{kind}", full, same, epoch=epoch) for kind in kinds),
    ]


def dcgm_3(rpm: bool) -> StandIn:
    """The one package that DCGM 3 is."""
    version = "3.3.9-1" if rpm else "1:3.3.9"
    return StandIn(FAMILY, version, conflicts=(f"{FAMILY}-4-core",), epoch=1 if rpm else 0)


def suse_base(kernel: str = SUSE_KERNEL) -> list[StandIn]:
    """What the driver builds with; the package of the headers has a rebuild's number behind the kernel's version."""
    version, _dash, flavour = kernel.rpartition("-")
    return [StandIn("dkms", "3.1.0-1"), StandIn(f"kernel-{flavour}-devel", f"{version}.1")]


def nvidia_suse(version: str, kernel_flavour: str = "default") -> list[StandIn]:
    """NVIDIA's repository for SLES with SUSE's signed modules, by the names of the collection's own table.

    Packages with compiled modules carry the kernel in their version. The generations define the same files under other names.
    """
    branch = int(version[:3])
    archive = archive_for("nvidia", "suse", branch)
    if archive is None:
        return []
    generation, exact = archive.generation, f"{version}-1"
    other = "G06" if generation == "G07" else "G07"
    built = f"nvidia-open-driver-{generation}"
    modules = {
        fill(archive.names[flavour, COMPUTE].required, branch=branch, flavours=(kernel_flavour,))[0]
        for flavour in (OPEN, PROPRIETARY)
    }
    found = [
        StandIn("nvidia-open", exact, (f"{built} >= {version}", f"nvidia-compute-utils-{generation} >= {version}")),
        StandIn(f"nvidia-common-{generation}", exact, conflicts=(f"nvidia-common-{other}",)),
        StandIn(f"nvidia-compute-{generation}", exact, (f"nvidia-common-{generation} >= {version}",)),
        StandIn(f"nvidia-compute-utils-{generation}", exact, (f"nvidia-compute-{generation} >= {version}",)),
        StandIn("nvidia-persistenced", exact),
        StandIn("nvidia-fabricmanager", exact),
    ]
    for name in sorted({*modules, built}):
        compiled = "-kmp-" in name
        needs = (f"nvidia-common-{generation}", *(() if compiled else ("dkms",)))
        found.append(StandIn(name, f"{version}_k6.4.0_150600.21-150600.3.1" if compiled else exact, needs))
    return found


def streams(packages: dict[str, list[StandIn]], machine: str = "x86_64") -> str:
    """Return the modules.yaml of NVIDIA's repository: one stream per branch and flavour, and the rolling ones."""
    documents = []
    wanted = {f"{branch}-{kind}": [branch] for branch in ("580", "595", "610") for kind in ("open", "dkms")}
    wanted["open-dkms"] = wanted["latest-dkms"] = ["580", "595", "610"]
    for number, (stream, branches) in enumerate(sorted(wanted.items())):
        artifacts = [
            f"{package.name}-3:{package.version}.{machine}"
            for version, found in packages.items()
            if version[:3] in branches
            for package in found
        ]
        lines = "\n".join(f"      - {artifact}" for artifact in artifacts)
        documents.append(
            "---\ndocument: modulemd\nversion: 2\ndata:\n  name: nvidia-driver\n"
            f'  stream: "{stream}"\n  version: 2026{number:04d}\n  context: abcdef{number:02d}\n  arch: {machine}\n'
            f"  summary: NVIDIA driver {stream}\n  description: >-\n    A stand-in.\n  license:\n    module:\n      - MIT\n"
            f"  dependencies:\n    - requires:\n        platform: []\n"
            f"  profiles:\n    default:\n      rpms:\n        - nvidia-driver\n  artifacts:\n    rpms:\n{lines}\n...\n"
        )
    return "".join(documents)
