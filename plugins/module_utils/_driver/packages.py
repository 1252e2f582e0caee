# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of the driver's packages: what to ask for, per archive, flavour and variant, and what belongs to it.

This is the one place with these names: the repositories that the resolver tests generate are made of it too. Sources per table below: NVIDIA's
driver installation guide, the archives' own metadata, and SUSE's own tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .._distributions.kernels import followed
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
_Table = Mapping[tuple[str, str], Names]


def _table(full: Names, open_: Names, proprietary: Names, full_proprietary: Names | None = None) -> _Table:
    """Return the names of one archive by flavour and variant. C(full_proprietary): in place of those of C(full)."""
    return {
        (OPEN, COMPUTE): open_,
        (PROPRIETARY, COMPUTE): proprietary,
        (OPEN, FULL): full,
        (PROPRIETARY, FULL): full_proprietary or full,
    }


def _nvidia(first: str, open_: str, proprietary: str, optional: tuple[str, ...]) -> _Table:
    """Return the names of one of NVIDIA's repositories: everything has one metapackage there, per flavour."""
    return _table(
        Names(("nvidia-open",)),
        Names((first, open_), optional=optional),
        Names((first, proprietary), optional=optional),
        Names(("cuda-drivers",)),
    )


# NVIDIA's repository for Debian [secondary, four sources].
_NVIDIA_DEBIAN = _nvidia(
    "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-kernel-dkms", ("nvidia-persistenced", "nvidia-modprobe")
)
# NVIDIA's repository for Ubuntu: no suffix from 590 on [doc]. nvidia-smi is in nvidia-utils, the daemons in compute-utils.
_NVIDIA_UBUNTU_FROM_590 = _nvidia(
    "libnvidia-compute", "nvidia-dkms-open", "nvidia-dkms", ("nvidia-utils", "nvidia-compute-utils", "libnvidia-cfg1")
)
_NVIDIA_UBUNTU_BEFORE_590 = _nvidia(
    "libnvidia-compute-{branch}",
    "nvidia-dkms-{branch}-open",
    "nvidia-dkms-{branch}",
    ("nvidia-utils-{branch}", "nvidia-compute-utils-{branch}", "libnvidia-cfg1-{branch}"),
)
# NVIDIA's repositories for RHEL and Amazon Linux [doc], [secondary]; one branch per module stream.
_NVIDIA_RED_HAT = _nvidia(
    "nvidia-driver-cuda", "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms", ("nvidia-persistenced",)
)
_RED_HAT_STREAMS = {OPEN: "{branch}-open", PROPRIETARY: "{branch}-dkms"}


def _suse(generation: str, proprietary: str, module: str) -> _Table:
    """Return the names for SLES.

    SUSE's generator of driver containers, bci_build/package/nvidia.py of SUSE/BCI-dockerfile-generator [code], and SUSE's guide of 2026-02-22 for the
    signed modules, which come from SUSE's own repositories and lag behind NVIDIA's. One generation of names per range of branches; from 575 on what
    NVIDIA's repository has of modules is built by DKMS.
    """
    utils, tools = f"nvidia-compute-utils-{generation}", ("nvidia-persistenced", "nvidia-modprobe")
    signed = f"nvidia-open-driver-{generation}-signed-cuda-kmp-{{kernel_flavour}}"
    return _table(
        Names(("nvidia-open",), module=module),
        Names((signed, utils), optional=tools, module=PRECOMPILED),
        Names((proprietary, utils), optional=tools, module=module),
        Names(("cuda-drivers",), module=module),
    )


def _debian(*required: str) -> Names:
    """Return the names of Debian's archive [run].

    nvidia-persistenced and nvidia-modprobe have versions of their own, and without libnvidia-cfg1, which nothing depends on, the daemon fails.
    """
    tools = ("nvidia-smi", "libnvidia-ml1", "libcuda1", "libnvidia-cfg1")
    return Names((*required, *tools), ("nvidia-persistenced",), ("nvidia-cuda-mps",))


_DEBIAN = _table(
    _debian("nvidia-driver", "nvidia-open-kernel-dkms"),
    _debian("nvidia-open-kernel-dkms"),
    _debian("nvidia-kernel-dkms"),
    _debian("nvidia-driver", "nvidia-kernel-dkms"),
)


def _ubuntu(suffix: str, *required: str) -> Names:
    """Return the names of Ubuntu's archive [run]: modules compiled and signed by Canonical, one package per kernel."""
    modules = f"linux-modules-nvidia-{{branch}}-server{suffix}-"
    return Names(required, (f"{modules}{{kernel}}", f"{modules}{{kernel_flavour}}"), module=PRECOMPILED)


_UBUNTU = _table(
    _ubuntu("-open", "nvidia-driver-{branch}-server-open"),
    _ubuntu("-open", "nvidia-headless-no-dkms-{branch}-server-open", "nvidia-utils-{branch}-server"),
    _ubuntu("", "nvidia-headless-no-dkms-{branch}-server", "nvidia-utils-{branch}-server"),
    _ubuntu("", "nvidia-driver-{branch}-server"),
)

#: Without a suffix from 580 on; gpu-driver-container, precompiled/nvidia-driver [code], and for IMEX install.sh of ubuntu24.04, rhel8 and rhel9
#: (imex_install) [code].
_FABRIC, _FABRIC_LIBRARIES, _IMEX = ("nvidia-fabricmanager",), ("libnvidia-nscq",), ("nvidia-imex",)
_FABRIC_580, _FABRIC_LIBRARIES_580 = ("nvidia-fabricmanager-{branch}",), ("libnvidia-nscq-{branch}",)
_IMEX_580 = ("nvidia-imex-{branch}",)
_EITHER_FABRIC = ("nvidia-fabricmanager", "nvidia-fabric-manager")


def _before_580(names: _Table) -> Archive:
    return Archive(0, 579, names, _FABRIC_580, _FABRIC_LIBRARIES_580, _PINNING, imex=_IMEX_580)


def _from_580(names: _Table, first: int = 580, last: int = 999) -> Archive:
    return Archive(first, last, names, _FABRIC, _FABRIC_LIBRARIES, _PINNING, imex=_IMEX)


def _of_suse(first: int, last: int, generation: str, proprietary: str, module: str) -> Archive:
    names = _suse(generation, proprietary, module)
    return Archive(first, last, names, _EITHER_FABRIC, _FABRIC_LIBRARIES, generation=generation)


#: By source and the distribution's C(names) or C(archive).
ARCHIVES: Mapping[tuple[str, str], tuple[Archive, ...]] = {
    ("nvidia", "debian"): (_before_580(_NVIDIA_DEBIAN), _from_580(_NVIDIA_DEBIAN)),
    ("nvidia", "ubuntu"): (
        _before_580(_NVIDIA_UBUNTU_BEFORE_590),
        _from_580(_NVIDIA_UBUNTU_BEFORE_590, last=589),
        _from_580(_NVIDIA_UBUNTU_FROM_590, first=590),
    ),
    ("nvidia", "redhat"): (
        Archive(
            *_ANY,
            _NVIDIA_RED_HAT,
            _EITHER_FABRIC,
            ("libnvidia-nscq", "libnvidia-nscq-{branch}"),
            streams=_RED_HAT_STREAMS,
            imex=(*_IMEX, *_IMEX_580),
        ),
    ),
    ("nvidia", "suse"): (
        _of_suse(550, 574, "G06", "nvidia-driver-G06-kmp-{kernel_flavour}", PRECOMPILED),
        _of_suse(575, 589, "G06", "nvidia-driver-G06", DKMS),
        _of_suse(590, 999, "G07", "nvidia-driver-G07", DKMS),
    ),
    ("distribution", "debian"): (Archive(*_ANY, _DEBIAN, ()),),
    ("distribution", "ubuntu"): (Archive(*_ANY, _UBUNTU, _FABRIC_580, _FABRIC_LIBRARIES_580, imex=_IMEX_580),),
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


def hold_names(packages: Mapping[str, str], kernel_packages: Iterable[str] | None = ()) -> tuple[str, ...]:
    """Return which installed packages a hold has to cover: the whole closure, or apt cannot install anything near it.

    Where Ubuntu's packages bring the module, the metapackages of the kernel and of its modules are held too, or the next kernel comes without
    one. The packages of one kernel stay free.

    :param kernel_packages: the installed packages that follow a kernel; None where they are not known.
    """
    own = closure(packages)
    kept = {name for name in own if not name.startswith("linux-")}
    return tuple(sorted(kept.union(followed((*own, *(kernel_packages or ()))))))


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
    return tuple(sorted(name for name in closure(packages) if _UBUNTU_ARCHIVE_NAME.match(name)))
