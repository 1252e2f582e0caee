# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what the repositories offer to the packages of one driver version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .._adapters.package_manager import Package
from .._adapters.repositories import canonical
from .._formats.driver_versions import branch_of, driver_key, driver_version_in, is_driver_version, nearest, newest
from .._formats.imex import VARIABLE as IMEX
from .._plan import Refused
from .desired import PREFIX, REPOSITORY_NAME, DesiredDriver
from .fabric import (
    PACKAGES,
    SUBNET_MANAGER,
    imex_packages,
    optional_packages,
    serves_nvlink5,
    wants_fabric_manager,
    wants_imex,
)
from .floors import shortfall
from .packages import Archive, Names, archive_for, fill, versioned
from .state import Host


class NotOffered(Refused):
    """What is wanted is not in the repositories, as far as their lists on the host say; newer lists may have it."""


@dataclass(frozen=True)
class Selection:
    """The packages of one driver version.

    :param version: of the driver.
    :param packages: with their package versions; the first ones are those that were asked for.
    :param pinning: NVIDIA's pinning package, where the repository offers one for this version.
    :param stream: the dnf module stream, or empty.
    :param module: C(dkms) or C(precompiled).
    """

    version: str
    packages: tuple[Package, ...]
    pinning: Package | None = None
    stream: str = ""
    module: str = "dkms"


def archive_of(host: Host, desired: DesiredDriver) -> Archive:
    """Return the table of packages for a desired state on a host. Raises Refused: the distribution's own archive has no driver."""
    names = host.distribution.archive if desired.archive_source == "distribution" else host.distribution.names
    archive = archive_for(desired.archive_source, names, desired.branch_number)
    if archive is None and names and desired.archive_source == "nvidia":
        raise Refused(
            f"{PREFIX}{'version' if desired.version else 'branch'}",
            f"the packages of branch {desired.branch_number} for {host.distribution.name} are not known",
            f'Set {PREFIX}branch: "580".',
        )
    if archive is None:
        raise Refused(
            f"{PREFIX}source",
            f"{host.distribution.name} has no driver packages of its own",
            f"Set {PREFIX}source: nvidia.",
        )
    return archive


def names_of(host: Host, desired: DesiredDriver) -> Names:
    """Return the names to install, with their placeholders filled in."""
    branch = desired.branch_number
    names = archive_of(host, desired).names[desired.flavour, desired.variant]
    kernel, flavours = host.kernel, host.kernel_flavours
    # A kernel that is booted next gets its compiled module, too.
    loose = [fill(names.loose, branch=branch, kernel=each, flavours=flavours) for each in (kernel, *host.unbuilt)]
    return Names(
        fill(names.required, branch=branch, kernel=kernel, flavours=flavours),
        tuple(dict.fromkeys(name for each in loose for name in each)),
        fill(names.optional, branch=branch, kernel=kernel),
        names.module,
    )


def follows_kernels(host: Host, desired: DesiredDriver) -> bool:
    """Return whether a package of the driver is called by the flavour of the host's kernel, which then has to be known."""
    names = archive_of(host, desired).names[desired.flavour, desired.variant]
    return any("{kernel_flavour}" in name for name in (*names.required, *names.loose))


def names_to_ask(host: Host, desired: DesiredDriver) -> tuple[str, ...]:
    """Return every package name whose offered versions the plan needs to know."""
    archive, names, branch = archive_of(host, desired), names_of(host, desired), desired.branch_number
    asked = {*names.required, *names.loose, *names.optional}
    asked.update(fill((*archive.fabric_manager, *archive.fabric_libraries), branch=branch))
    asked.update(fill(archive.pinning_packages, branch=branch, version=desired.version or "*"))
    asked.update(_mixed(host, desired))
    if serves_nvlink5(host, desired):
        asked.update((*PACKAGES, *optional_packages(host)))
    if wants_imex(host, desired):
        asked.update(fill(imex_packages(host, desired), branch=branch))
    return tuple(sorted(name for name in asked if "*" not in name))


def select(host: Host, desired: DesiredDriver, offered: Iterable[Package]) -> Selection:
    """Return the packages to install.

    :param offered: what the repositories have, at least of C(names_to_ask).
    :raises Refused: the version or branch is not offered, or is below the security floor.
    """
    available = by_version(offered)
    names = names_of(host, desired)
    if desired.archive_source == "nvidia" and desired.repository.url:
        available = _only_from(available, desired.repository.url)
    complete = _complete_versions(names.required, available)
    version = _chosen(host, desired, names, complete, available)
    check_floor(version, desired)
    archive = archive_of(host, desired)
    packages = [available[name, version] for name in names.required]
    packages.extend(_loose(names.loose, available, host))
    packages.extend(available[name, version] for name in names.optional if (name, version) in available)
    named = {package.name for package in packages}
    packages.extend(
        available[name, version] for name in _mixed(host, desired) if (name, version) in available and name not in named
    )
    if wants_fabric_manager(host, desired):
        packages.extend(_fabric(archive, version, available))
        packages.extend(_nvlink5(host, desired, available))
    if wants_imex(host, desired):
        packages.append(_imex(fill(imex_packages(host, desired), branch=branch_of(version)), version, available))
    stream = (archive.streams or {}).get(desired.flavour, "") if host.distribution.pinning == "module_stream" else ""
    return Selection(
        version,
        tuple(packages),
        _pinning(archive, version, offered),
        stream.replace("{branch}", str(branch_of(version))),
        names.module,
    )


def check_floor(version: str, desired: DesiredDriver) -> str | None:
    """Return a warning when a version below the security floor is allowed, None when it is not below.

    :raises Refused: it is below the floor, and that is not allowed.
    """
    below = shortfall(version, desired.floors)
    if below is None:
        return None
    reason, replacement = below
    if desired.allow_vulnerable:
        return f"VULNERABLE DRIVER ALLOWED ({PREFIX}allow_vulnerable): {reason}"
    raise Refused(
        f"{PREFIX}version" if desired.version else f"{PREFIX}branch",
        reason,
        f"Use {replacement} or newer, or accept the risk with {PREFIX}allow_vulnerable: true.",
    )


def missing_fabric_packages(host: Host, desired: DesiredDriver) -> tuple[str, ...]:
    """Return which packages of a wanted fabric manager or of IMEX are not installed, as far as the packages of the driver say."""
    if wants_imex(host, desired):
        # A rack's host has no fabric manager of its own.
        names = fill(imex_packages(host, desired), branch=desired.branch_number)
        return () if any(name in host.packages for name in names) else names[:1]
    if not wants_fabric_manager(host, desired):
        return ()
    managers = fill(archive_of(host, desired).fabric_manager, branch=desired.branch_number)
    there = host.fabric_installed or not managers or any(name in host.packages for name in managers)
    missing = [] if there else [managers[0]]
    if serves_nvlink5(host, desired) and SUBNET_MANAGER not in host.packages:
        missing.append(SUBNET_MANAGER)
    return tuple(missing)


def _mixed(host: Host, desired: DesiredDriver) -> tuple[str, ...]:
    """Return the installed packages to name when they are of different drivers, as after a run that was cut off.

    Their dependencies are unmet then, and a resolver only mends what is named. The module of the other flavour is left
    out: it conflicts with the wanted one.
    """
    if host.version is not None:
        return ()
    archive = archive_of(host, desired)
    own = set(names_of(host, desired).required)
    every = tuple(name for found in archive.names.values() for name in found.required)
    others = set(fill(every, branch=desired.branch_number, kernel=host.kernel, flavours=host.kernel_flavours)) - own
    return tuple(sorted(name for name in versioned(host.packages) if name not in others))


def by_version(offered: Iterable[Package]) -> dict[tuple[str, str], Package]:
    """Index packages by name and driver version; of two revisions of one version the later one in the list stays out."""
    found: dict[tuple[str, str], Package] = {}
    for package in offered:
        version = driver_version_in(package.version) or package.version
        found.setdefault((package.name, version), package)
    return found


def _only_from(available: Mapping[tuple[str, str], Package], url: str) -> dict[tuple[str, str], Package]:
    """Drop what another repository offers under names that the wanted one has too.

    apt says where a package comes from by URL; dnf and zypper by the name under which the collection configures it.
    """
    base = (canonical(url), REPOSITORY_NAME)
    known = {package.name for package in available.values() if canonical(package.origin) in base}
    return {
        key: package
        for key, package in available.items()
        if package.name not in known or canonical(package.origin) in base
    }


def _complete_versions(names: Sequence[str], available: Mapping[tuple[str, str], Package]) -> list[str]:
    sets = [{version for name, version in available if name == wanted} for wanted in names]
    return sorted(set.intersection(*sets), key=_order) if sets else []


def _order(version: str) -> tuple[int, int, int]:
    return driver_key(version) if is_driver_version(version) else (0, 0, 0)


def _chosen(
    host: Host,
    desired: DesiredDriver,
    names: Names,
    complete: Sequence[str],
    available: Mapping[tuple[str, str], Package],
) -> str:
    if desired.version:
        if desired.version in complete:
            return desired.version
        near = nearest(desired.version, complete)
        raise NotOffered(
            f"{PREFIX}version",
            f"the repositories of {host.distribution.name} do not offer {' '.join(names.required)} at {desired.version}"
            f"{_missing(names.required, desired.version, available)}",
            f"The nearest that they offer is {near}." if near else _nothing_offered(names, desired),
        )
    of_branch = [version for version in complete if _order(version)[0] == int(desired.branch)]
    # A repository may still have versions below the floor; what it has above is always taken.
    best = newest(of_branch)
    if best:
        return best
    jumped = sorted({version for name, version in available if name == names.required[0]})
    branches = sorted({str(_order(version)[0]) for version in complete if _order(version)[0]})
    if jumped and not branches:
        reason = f"{names.required[0]} is offered, but without some of its packages"
    elif str(desired.branch) in names.required[0] and branches:
        reason = (
            f"{names.required[0]} is a transitional package that installs driver {complete[-1]}, "
            f"so branch {desired.branch} is gone"
        )
    else:
        reason = f"the repositories of {host.distribution.name} do not offer branch {desired.branch}"
    remedy = f"They offer {', '.join(complete)}." if branches else _nothing_offered(names, desired)
    raise NotOffered(f"{PREFIX}branch", reason, remedy)


def _missing(names: Sequence[str], version: str, available: Mapping[tuple[str, str], Package]) -> str:
    missing = [name for name in names if (name, version) not in available]
    return f" (missing: {', '.join(missing)})" if missing and len(missing) < len(names) else ""


def _nothing_offered(names: Names, desired: DesiredDriver) -> str:
    if desired.archive_source == "distribution":
        return "They offer none at all: enable the component that has it (contrib non-free, restricted)."
    if any("-signed-" in name for name in names.required):
        return (
            "The signed modules come from SUSE's own repositories and lag behind: register the host (SUSEConnect), or set "
            f"{PREFIX}variant: full, whose modules NVIDIA's repository has and the host builds."
        )
    return f"They offer none at all: check {PREFIX}repository_url and {PREFIX}manage_repository."


def _loose(names: Sequence[str], available: Mapping[tuple[str, str], Package], host: Host) -> list[Package]:
    """Return packages with versions of their own, at the manager's choice."""
    found = []
    for name in names:
        if any(known == name for known, _version in available):
            found.append(Package(name))
        elif name.startswith("linux-modules-nvidia-"):
            # One that is booted next may be of another flavour than the one that runs.
            following = next((kernel for kernel in host.unbuilt if name.endswith(f"-{kernel}")), "")
            flavour = next((flavour for flavour in host.kernel_flavours if name.endswith(f"-{flavour}")), "")
            if name.endswith(host.kernel):
                which = f"the running kernel {host.kernel}"
            else:
                which = (
                    f"the kernel {following}, which is booted next"
                    if following
                    else f"the next kernel of linux-image-{flavour}"
                )
            raise NotOffered(
                "the kernel",
                f"there is no precompiled module for {which}: {name} is not offered",
                f"Boot a kernel that the archive has modules for, or set {PREFIX}source: nvidia, which builds them.",
            )
    return found


def _fabric(archive: Archive, version: str, available: Mapping[tuple[str, str], Package]) -> list[Package]:
    branch = branch_of(version)
    names = fill(archive.fabric_manager, branch=branch)
    managers = [available[name, version] for name in names if (name, version) in available]
    if not managers:
        raise NotOffered(
            f"{PREFIX}fabric_manager",
            f"NVSwitch systems need the fabric manager at exactly the driver's version, but {version} is not offered"
            + (f" of {' or '.join(names)}" if names else " by this source"),
            f"Choose a version that the repositories offer it for, or set {PREFIX}fabric_manager: never.",
        )
    libraries = fill(archive.fabric_libraries, branch=branch)
    return [managers[0], *(available[name, version] for name in libraries if (name, version) in available)]


def _imex(names: Sequence[str], version: str, available: Mapping[tuple[str, str], Package]) -> Package:
    found = [available[name, version] for name in names if (name, version) in available]
    if not found:
        raise NotOffered(
            IMEX,
            f"IMEX must have exactly the driver's version, but {' or '.join(names)} is not offered at {version}",
            f"Complete the mirror, or choose a version that it has, or set {IMEX}: unmanaged.",
        )
    return found[0]


def _nvlink5(host: Host, desired: DesiredDriver, available: Mapping[tuple[str, str], Package]) -> list[Package]:
    """Return what NVLink 5 needs beside the fabric manager, at versions of the package manager's choice."""
    if not serves_nvlink5(host, desired):
        return []
    known = {name for name, _version in available}
    missing = [name for name in PACKAGES if name not in known]
    if missing:
        raise NotOffered(
            f"{PREFIX}fabric_manager",
            f"the fabric manager of NVLink 5 needs {' and '.join(missing)}, which the repositories do not offer",
            f"Add the repository that has it, or set {PREFIX}fabric_manager: never.",
        )
    return [Package(name) for name in (*PACKAGES, *optional_packages(host)) if name in known]


def _pinning(archive: Archive, version: str, offered: Iterable[Package]) -> Package | None:
    by_name: dict[str, Package] = {}
    for package in offered:
        by_name.setdefault(package.name, package)
    for name in fill(archive.pinning_packages, branch=branch_of(version), version=version):
        if name in by_name:
            return by_name[name]
    return None
