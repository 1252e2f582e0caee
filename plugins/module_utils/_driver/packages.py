# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of the driver's packages: what to ask for, per archive, flavour and variant, and what belongs to it.

This is the one place with these names: the repositories that the resolver tests generate are made of it too. Sources per table below: NVIDIA's
driver installation guide, the archives' own metadata, and SUSE's own tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .._formats.driver_versions import driver_version_in

OPEN, PROPRIETARY = "open", "proprietary"
COMPUTE, FULL = "compute", "full"
DKMS, PRECOMPILED = "dkms", "precompiled"


@dataclass(frozen=True)
class Names:
    """What to install for one flavour and variant. Names may hold C({branch}), C({kernel}) and C({kernel_flavour}).

    A name with C({kernel_flavour}) stands for one package per kernel metapackage that is installed (Ubuntu), or for that of the running kernel
    (SUSE).

    :param required: offered at exactly the driver's version.
    :param loose: needed too, but with versions of their own.
    :param optional: installed at the driver's version where the repository offers them.
    :param module: C(dkms) where the kernel module is built on the host, C(precompiled) where a package brings it.
    """

    required: tuple[str, ...]
    loose: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    module: str = DKMS


@dataclass(frozen=True)
class Archive:
    """The packages of one archive for a range of branches.

    :param first_branch: from this branch on.
    :param last_branch: up to this one.
    :param names: by (flavour, variant).
    :param fabric_manager: alternatives for the fabric manager's package, of which the first that is offered is taken.
    :param fabric_libraries: what goes with it where it is offered.
    :param imex: the same for IMEX; empty where no source names its package.
    :param pinning_packages: names of NVIDIA's pinning packages, the most exact first.
    :param streams: dnf module stream by flavour.
    :param generation: of SUSE's names (C(G06)); packages of another one have to go.
    """

    first_branch: int
    last_branch: int
    names: Mapping[tuple[str, str], Names]
    fabric_manager: tuple[str, ...]
    fabric_libraries: tuple[str, ...] = ()
    pinning_packages: tuple[str, ...] = ()
    streams: Mapping[str, str] | None = None
    generation: str = ""
    imex: tuple[str, ...] = ()


_ANY = (0, 999)
_PINNING = ("nvidia-driver-pinning-{version}", "nvidia-driver-pinning-{branch}")
# Without a suffix from 580 on; gpu-driver-container, precompiled/nvidia-driver [code].
_FABRIC_FROM_580 = ("nvidia-fabricmanager",)
_FABRIC_LIBRARIES_FROM_580 = ("libnvidia-nscq",)
_IMEX_FROM_580 = ("nvidia-imex",)
_FABRIC_BEFORE_580 = ("nvidia-fabricmanager-{branch}",)
_FABRIC_LIBRARIES_BEFORE_580 = ("libnvidia-nscq-{branch}",)
# gpu-driver-container, install.sh of ubuntu24.04, rhel8 and rhel9 (imex_install): from 550 on, without a suffix from 580 on [code].
_IMEX_BEFORE_580 = ("nvidia-imex-{branch}",)

# NVIDIA's repository for Debian [secondary, four sources].
_NVIDIA_DEBIAN = {
    (OPEN, COMPUTE): Names(
        ("nvidia-driver-cuda", "nvidia-kernel-open-dkms"), optional=("nvidia-persistenced", "nvidia-modprobe")
    ),
    (PROPRIETARY, COMPUTE): Names(
        ("nvidia-driver-cuda", "nvidia-kernel-dkms"), optional=("nvidia-persistenced", "nvidia-modprobe")
    ),
    (OPEN, FULL): Names(("nvidia-open",)),
    (PROPRIETARY, FULL): Names(("cuda-drivers",)),
}

# NVIDIA's repository for Ubuntu: no suffix from 590 on [doc]. nvidia-smi is in nvidia-utils, the daemons in compute-utils.
_NVIDIA_UBUNTU_FROM_590 = {
    (OPEN, COMPUTE): Names(
        ("libnvidia-compute", "nvidia-dkms-open"), optional=("nvidia-utils", "nvidia-compute-utils", "libnvidia-cfg1")
    ),
    (PROPRIETARY, COMPUTE): Names(
        ("libnvidia-compute", "nvidia-dkms"), optional=("nvidia-utils", "nvidia-compute-utils", "libnvidia-cfg1")
    ),
    (OPEN, FULL): Names(("nvidia-open",)),
    (PROPRIETARY, FULL): Names(("cuda-drivers",)),
}
_UBUNTU_TOOLS = ("nvidia-utils-{branch}", "nvidia-compute-utils-{branch}", "libnvidia-cfg1-{branch}")
_NVIDIA_UBUNTU_BEFORE_590 = {
    (OPEN, COMPUTE): Names(("libnvidia-compute-{branch}", "nvidia-dkms-{branch}-open"), optional=_UBUNTU_TOOLS),
    (PROPRIETARY, COMPUTE): Names(("libnvidia-compute-{branch}", "nvidia-dkms-{branch}"), optional=_UBUNTU_TOOLS),
    (OPEN, FULL): Names(("nvidia-open",)),
    (PROPRIETARY, FULL): Names(("cuda-drivers",)),
}

# NVIDIA's repositories for RHEL and Amazon Linux [doc], [secondary]; one branch per module stream.
_NVIDIA_RED_HAT = {
    (OPEN, COMPUTE): Names(("nvidia-driver-cuda", "kmod-nvidia-open-dkms"), optional=("nvidia-persistenced",)),
    (PROPRIETARY, COMPUTE): Names(("nvidia-driver-cuda", "kmod-nvidia-latest-dkms"), optional=("nvidia-persistenced",)),
    (OPEN, FULL): Names(("nvidia-open",)),
    (PROPRIETARY, FULL): Names(("cuda-drivers",)),
}
_RED_HAT_STREAMS = {OPEN: "{branch}-open", PROPRIETARY: "{branch}-dkms"}

# SLES: SUSE's generator of driver containers, bci_build/package/nvidia.py of SUSE/BCI-dockerfile-generator [code], and SUSE's guide of 2026-02-22 for the
# signed modules, which come from SUSE's own repositories and lag behind NVIDIA's. One generation of names per range of branches; from 575 on what
# NVIDIA's repository has of modules is built by DKMS.
_SUSE_TOOLS = ("nvidia-persistenced", "nvidia-modprobe")


def _suse(generation: str, proprietary: str, module: str) -> Mapping[tuple[str, str], Names]:
    utils = f"nvidia-compute-utils-{generation}"
    signed = f"nvidia-open-driver-{generation}-signed-cuda-kmp-{{kernel_flavour}}"
    return {
        (OPEN, COMPUTE): Names((signed, utils), optional=_SUSE_TOOLS, module=PRECOMPILED),
        (PROPRIETARY, COMPUTE): Names((proprietary, utils), optional=_SUSE_TOOLS, module=module),
        (OPEN, FULL): Names(("nvidia-open",), module=module),
        (PROPRIETARY, FULL): Names(("cuda-drivers",), module=module),
    }


_SUSE_550 = _suse("G06", "nvidia-driver-G06-kmp-{kernel_flavour}", PRECOMPILED)
_SUSE_575 = _suse("G06", "nvidia-driver-G06", DKMS)
_SUSE_590 = _suse("G07", "nvidia-driver-G07", DKMS)

# Debian's archive [run]. nvidia-persistenced and nvidia-modprobe have versions of their own, and without libnvidia-cfg1,
# which nothing depends on, the daemon fails.
_DEBIAN_TOOLS = ("nvidia-smi", "libnvidia-ml1", "libcuda1", "libnvidia-cfg1")
_DEBIAN = {
    (OPEN, COMPUTE): Names(("nvidia-open-kernel-dkms", *_DEBIAN_TOOLS), ("nvidia-persistenced",), ("nvidia-cuda-mps",)),
    (PROPRIETARY, COMPUTE): Names(
        ("nvidia-kernel-dkms", *_DEBIAN_TOOLS), ("nvidia-persistenced",), ("nvidia-cuda-mps",)
    ),
    (OPEN, FULL): Names(
        ("nvidia-driver", "nvidia-open-kernel-dkms", *_DEBIAN_TOOLS), ("nvidia-persistenced",), ("nvidia-cuda-mps",)
    ),
    (PROPRIETARY, FULL): Names(
        ("nvidia-driver", "nvidia-kernel-dkms", *_DEBIAN_TOOLS), ("nvidia-persistenced",), ("nvidia-cuda-mps",)
    ),
}

# Ubuntu's archive [run]: modules compiled and signed by Canonical, one package per kernel.
_UBUNTU = {
    (OPEN, COMPUTE): Names(
        ("nvidia-headless-no-dkms-{branch}-server-open", "nvidia-utils-{branch}-server"),
        (
            "linux-modules-nvidia-{branch}-server-open-{kernel}",
            "linux-modules-nvidia-{branch}-server-open-{kernel_flavour}",
        ),
        module=PRECOMPILED,
    ),
    (PROPRIETARY, COMPUTE): Names(
        ("nvidia-headless-no-dkms-{branch}-server", "nvidia-utils-{branch}-server"),
        ("linux-modules-nvidia-{branch}-server-{kernel}", "linux-modules-nvidia-{branch}-server-{kernel_flavour}"),
        module=PRECOMPILED,
    ),
    (OPEN, FULL): Names(
        ("nvidia-driver-{branch}-server-open",),
        (
            "linux-modules-nvidia-{branch}-server-open-{kernel}",
            "linux-modules-nvidia-{branch}-server-open-{kernel_flavour}",
        ),
        module=PRECOMPILED,
    ),
    (PROPRIETARY, FULL): Names(
        ("nvidia-driver-{branch}-server",),
        ("linux-modules-nvidia-{branch}-server-{kernel}", "linux-modules-nvidia-{branch}-server-{kernel_flavour}"),
        module=PRECOMPILED,
    ),
}

#: By source and the distribution's C(names) or C(archive).
ARCHIVES: Mapping[tuple[str, str], tuple[Archive, ...]] = {
    ("nvidia", "debian"): (
        Archive(
            0, 579, _NVIDIA_DEBIAN, _FABRIC_BEFORE_580, _FABRIC_LIBRARIES_BEFORE_580, _PINNING, imex=_IMEX_BEFORE_580
        ),
        Archive(580, 999, _NVIDIA_DEBIAN, _FABRIC_FROM_580, _FABRIC_LIBRARIES_FROM_580, _PINNING, imex=_IMEX_FROM_580),
    ),
    ("nvidia", "ubuntu"): (
        Archive(
            0,
            579,
            _NVIDIA_UBUNTU_BEFORE_590,
            _FABRIC_BEFORE_580,
            _FABRIC_LIBRARIES_BEFORE_580,
            _PINNING,
            imex=_IMEX_BEFORE_580,
        ),
        Archive(
            580,
            589,
            _NVIDIA_UBUNTU_BEFORE_590,
            _FABRIC_FROM_580,
            _FABRIC_LIBRARIES_FROM_580,
            _PINNING,
            imex=_IMEX_FROM_580,
        ),
        Archive(
            590,
            999,
            _NVIDIA_UBUNTU_FROM_590,
            _FABRIC_FROM_580,
            _FABRIC_LIBRARIES_FROM_580,
            _PINNING,
            imex=_IMEX_FROM_580,
        ),
    ),
    ("nvidia", "redhat"): (
        Archive(
            *_ANY,
            _NVIDIA_RED_HAT,
            ("nvidia-fabricmanager", "nvidia-fabric-manager"),
            ("libnvidia-nscq", "libnvidia-nscq-{branch}"),
            streams=_RED_HAT_STREAMS,
            imex=(*_IMEX_FROM_580, *_IMEX_BEFORE_580),
        ),
    ),
    ("nvidia", "suse"): (
        Archive(
            550,
            574,
            _SUSE_550,
            ("nvidia-fabricmanager", "nvidia-fabric-manager"),
            ("libnvidia-nscq",),
            generation="G06",
        ),
        Archive(
            575,
            589,
            _SUSE_575,
            ("nvidia-fabricmanager", "nvidia-fabric-manager"),
            ("libnvidia-nscq",),
            generation="G06",
        ),
        Archive(
            590,
            999,
            _SUSE_590,
            ("nvidia-fabricmanager", "nvidia-fabric-manager"),
            ("libnvidia-nscq",),
            generation="G07",
        ),
    ),
    ("distribution", "debian"): (Archive(*_ANY, _DEBIAN, ()),),
    ("distribution", "ubuntu"): (
        Archive(
            *_ANY, _UBUNTU, ("nvidia-fabricmanager-{branch}",), ("libnvidia-nscq-{branch}",), imex=_IMEX_BEFORE_580
        ),
    ),
}

#: Packages that are called like the driver's and versioned on their own although the version looks like the driver's.
LOOSE_NAMES = frozenset(("nvidia-persistenced", "nvidia-modprobe", "nvidia-settings", "nvidia-xconfig", "libxnvctrl0"))

_FAMILY = re.compile(
    r"(?=.*nvidia)(?!linux-(?!(?:modules|objects|signatures|open)-nvidia-))(?!.*(?:container|docker|nsight|nvidia-gds|nvidia-fs|firmware-nvidia-graphics))"
    r"|libcuda1$|libcudadebugger1$|libnvcuvid|libnvoptix|libnvsdm|cuda-drivers|nvlsm$|nvlink5|libxnvctrl0$",
    re.IGNORECASE,
)
#: What the driver's packages bring along with versions of their own, and what has no use without them.
_HELPERS = re.compile(
    r"nvidia-(?:kernel-common|support|legacy-check|installer-cleanup|modprobe|persistenced|settings|xconfig|"
    r"driver-pinning-.*|driver-assistant)$|glx-alternative-(?:nvidia|mesa)$|update-glx$|dnf-plugin-nvidia$|"
    r"linux-(?:modules|objects|signatures|open)-nvidia-"
)
_BRANCH_IN_NAME = re.compile(r"-(\d{3})(?=-|$)")
_GENERATION = re.compile(r"(?<=-)G\d\d(?=-|$)")
_UBUNTU_ARCHIVE_NAME = re.compile(r"nvidia.*-\d{3}-server|linux-(?:modules|objects|signatures)-nvidia-")


def archive_for(source: str, names: str | None, branch: int) -> Archive | None:
    """Return the table for C(source) (C(nvidia) or C(distribution)) and a branch, or None where there is none."""
    for archive in ARCHIVES.get((source, names or ""), ()):
        if archive.first_branch <= branch <= archive.last_branch:
            return archive
    return None


def fill(
    names: tuple[str, ...], *, branch: int, version: str = "", kernel: str = "", flavours: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return C(names) with their placeholders filled in, a name with C({kernel_flavour}) once for each of C(flavours)."""
    each = [
        name.replace("{kernel_flavour}", flavour)
        for name in names
        for flavour in (flavours if "{kernel_flavour}" in name else ("",))
    ]
    return tuple(
        name.replace("{branch}", str(branch)).replace("{version}", version).replace("{kernel}", kernel) for name in each
    )


def in_family(name: str) -> bool:
    """Return whether a package of this name belongs to the driver, judged by its name alone."""
    return bool(_FAMILY.match(name)) or bool(_HELPERS.match(name))


def versioned(packages: Mapping[str, str]) -> dict[str, str]:
    """Return the driver versions of those of C(packages) that carry one and belong to the driver, by name."""
    found = {}
    for name, package_version in packages.items():
        version = driver_version_in(package_version)
        if version is not None and in_family(name) and name not in LOOSE_NAMES and not _HELPERS.match(name):
            found[name] = version
    return found


def closure(packages: Mapping[str, str]) -> dict[str, str]:
    """Return every installed package of the driver with its package version: what a hold has to cover, and a removal."""
    return {
        name: version
        for name, version in packages.items()
        if in_family(name) and (driver_version_in(version) or _HELPERS.match(name))
    }


def of_other_branch(packages: Mapping[str, str], branch: int) -> tuple[str, ...]:
    """Return the driver's packages whose names carry another branch: what an upgrade leaves behind."""
    found = []
    for name in closure(packages):
        match = _BRANCH_IN_NAME.search(name)
        if match and int(match.group(1)) != branch and "pinning" not in name:
            found.append(name)
    return tuple(sorted(found))


def of_other_generation(packages: Mapping[str, str], generation: str) -> tuple[str, ...]:
    """Return the driver's packages of another generation of SUSE's names: they define the same files under other names."""
    found = []
    for name in closure(packages) if generation else ():
        match = _GENERATION.search(name)
        if match and match.group() != generation:
            found.append(name)
    return tuple(sorted(found))


def from_ubuntu_archive(packages: Mapping[str, str]) -> tuple[str, ...]:
    """Return the driver's packages that have the names of Ubuntu's archive, not those of NVIDIA's repository."""
    return tuple(sorted(name for name in closure(packages) if _UBUNTU_ARCHIVE_NAME.match(name)))
