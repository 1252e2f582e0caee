# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What DKMS needs to build the modules for the kernel that runs, and for those that come after it: itself (on RHEL and what is compatible with it from
EPEL, which has to be there before the driver), the compiler, and the headers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from .._adapters.package_manager import Package, PackageManager, Transaction
from .._distributions.kernels import Headers, build_caveat, headers, later_headers, toolchain, toolchains
from .._plan import Refused, Step
from .._steps import Kind
from .._versions import numbers
from .desired import PREFIX, DesiredDriver
from .packages import DKMS
from .selection import NotOffered, names_of
from .state import Host
from .steps import DRIVER

DKMS_PACKAGE = "dkms"
#: Before all others: what a site sets in a file of its own counts.
TOOLCHAIN_FILE = "/etc/dkms/framework.conf.d/00-gpufleet.conf"
TOOLCHAIN_ENVIRONMENT = "/etc/dkms/gpufleet-environment"
#: The release that knows build_environment [code].
_SINCE = "3.3.0"


def names(host: Host) -> tuple[str, ...]:
    """Return the names whose offered versions L(repository_step) needs to know."""
    source = host.distribution.dkms
    return tuple(filter(None, (DKMS_PACKAGE, source.package))) if source else ()


def repository_step(
    host: Host, desired: DesiredDriver, offered: Collection[str], disabled: Collection[str]
) -> Step | None:
    """Return the step that enables the repositories with dkms, or None where they are there.

    :param offered: names of L(names) that the repositories offer.
    :param disabled: repositories that are configured and not enabled.
    :raises NotOffered: nobody offers the package that configures EPEL, or the collection is not to configure repositories.
    """
    source = host.distribution.dkms
    if source is None or DKMS_PACKAGE in offered:
        return None
    if source.package not in offered or not desired.repository.manage:
        own = "" if desired.repository.manage else f", and {PREFIX}manage_repository is false"
        rebuild = f"On a rebuild: dnf install {source.package}, with the repository {source.builder} enabled. "
        raise NotOffered(
            DKMS_PACKAGE,
            f"it builds the modules, but no repository of this host offers it: it comes from EPEL, which needs CodeReady Builder{own}",
            f"{rebuild if source.package == 'epel-release' else ''}{source.remedy}",
        )
    builder = [source.builder] if source.builder in disabled else []
    data = {
        "repositories": ["EPEL", *builder],
        "packages": [[source.package, ""]],
        "enable": builder,
        "enable_after": [source.disabled] if source.disabled else [],
    }
    return Step(Kind.ENABLE_REPOSITORIES, "EPEL", "dkms comes from it", (), data)


def toolchain_texts(host: Host) -> dict[str, str]:
    """Return the files that have DKMS build each kernel of the distribution with that kernel's compiler; none where the system's builds all.

    DKMS takes the exported variables of the environment, with C($kernelver) set, and everything else as always (dkms(8), build_environment).
    """
    scripts = toolchains(host.distribution.kernels)
    if not scripts:
        return {}
    lines = "".join(
        f'if [[ "$kernelver" =~ ^{pattern.replace("?P<version>", "").replace("?:", "")}$ ]]; then source {script}; fi\n'
        for pattern, script in scripts.items()
    )
    return {
        TOOLCHAIN_ENVIRONMENT: f"# Written by gpufleet.nvidia: the compiler of each kernel.\n{lines}",
        TOOLCHAIN_FILE: f'# Written by gpufleet.nvidia.\nbuild_environment="{TOOLCHAIN_ENVIRONMENT}"\n',
    }


def toolchain_steps(host: Host, version: str = "") -> list[Step]:
    """Return the steps that configure it, before anything is built; none where no kernel with another compiler runs.

    :param version: of the package dkms that is installed, or would be; empty where that is not known.
    :raises Refused: it is too old to be told.
    """
    script = toolchain(host.distribution.kernels, host.kernel)
    if not script:
        return []
    why = f"kernel {host.kernel} is built with {script.split('/')[3]}, which dkms {_SINCE} and newer can be told"
    if version and numbers(version) < numbers(_SINCE):
        raise Refused(
            DKMS_PACKAGE,
            f"it is {version}, and {why}: the older one builds with the system's compiler",
            f"Install dkms {_SINCE} or newer, or boot a kernel that the system's compiler builds for (RHCK).",
        )
    return [
        Step(Kind.CREATE_FILE, path, why, (), {"path": path, "text": text})
        for path, text in toolchain_texts(host).items()
    ]


def enable(manager: PackageManager, step: Step) -> None:
    manager.enable_repositories([str(name) for name in step.data["enable"]])
    manager.apply(Transaction(tuple(Package(str(name), str(version)) for name, version in step.data["packages"])))
    if step.data["enable_after"]:
        manager.enable_repositories([str(name) for name in step.data["enable_after"]])
    manager.refresh()


def build_steps(host: Host, desired: DesiredDriver) -> list[Step]:
    """Return the steps that build the module of the installed driver for the kernels without one. Raises Refused: there is
    none for the running kernel, and DKMS does not have its source."""
    known = [build for build in host.builds if build.version == host.version]
    if names_of(host, desired).module != DKMS or not (known or host.kernel in host.unbuilt):
        return []
    if not known and host.unread:
        # What nobody can read may be there.
        return []
    if not known:
        packages = ", ".join(name for name in host.packages if "dkms" in name or "kernel" in name)
        raise Refused(
            DRIVER,
            f"the running kernel {host.kernel} has no module of driver {host.version}, and DKMS does not have its source to build one",
            f"Install {packages or 'its DKMS package'} again (apt-get install --reinstall, dnf reinstall, zypper install --force) and run again.",
        )
    steps = []
    for kernel in host.unbuilt:
        states = sorted({str(build.state) for build in known if build.kernel in (None, kernel)}) or ["added"]
        data = {
            "name": known[0].name,
            "version": host.version,
            "again": bool({"broken", "installed"}.intersection(states)),
        }
        which = "runs" if kernel == host.kernel else "is booted next"
        why = f"this kernel {which} and has no module of the driver; DKMS: {', '.join(states)}"
        steps.append(Step(Kind.BUILD_MODULE, kernel, why, (), data))
    return steps


def unread_warnings(host: Host) -> list[str]:
    """Return what to know of a module that is loaded, and whose file cannot be read (permissions, a file system that is not mounted, a container)."""
    if not host.unread:
        return []
    return [
        f"driver {host.loaded} is loaded, and whether kernel {host.kernel} has its module on the disk cannot be read: it may be missing after a reboot"
    ]


def with_modules(host: Host, steps: Iterable[Step]) -> Host:
    """Return the host as it is after the modules were built."""
    built = any(step.kind is Kind.BUILD_MODULE and step.target == host.kernel for step in steps)
    return replace(host, on_disk=host.version) if built else host


def lacking(host: Host, kernels: Collection[str], offered: Iterable[Package]) -> tuple[Package, ...]:
    """Return the packages to install for kernels that modules are built for, and for the later ones.

    :param offered: what the repositories have, at least of L(header_names).
    :raises NotOffered: one of the kernels has no headers, and nobody offers them.
    """
    known, found = tuple(offered), []
    for kernel in _without_headers(host, kernels):
        for position, item in enumerate(headers(host.distribution.kernels, kernel)):
            package = _newest(item, known)
            if package is not None:
                found.append(package)
            elif position == 0:
                reason = f"modules have to be built for the running kernel {kernel}"
                if kernel != host.kernel:
                    reason = f"the kernel {kernel} is booted next and has no module of the driver"
                raise NotOffered(
                    "the kernel",
                    f"{reason}, but the repositories do not offer its headers ({item.name})",
                    "Boot the newest kernel of the distribution, whose headers are offered, or add the repository that has them.",
                )
    later = (_newest(item, known) for item in later_lacking(host))
    return (*found, *(package for package in later if package is not None))


def _without_headers(host: Host, kernels: Collection[str]) -> list[str]:
    return [kernel for kernel in kernels if not (host.headers if kernel == host.kernel else host.next_headers)]


def later_lacking(host: Host) -> tuple[Headers, ...]:
    """Return what would bring the headers of later kernels and is not installed; empty where that cannot be told."""
    if host.kernel_packages is None:
        return ()
    wanted = later_headers(host.distribution.kernels, host.kernel, host.kernel_packages) or ()
    return tuple(item for item in wanted if item.name not in host.kernel_packages)


def as_recorded(host: Host) -> tuple[Package, ...]:
    """Return what the repositories offer of headers as far as the facts tell: all but what they did not have when they were last asked."""
    kernels = _without_headers(host, {host.kernel, *host.unbuilt})
    now = [
        item
        for kernel in kernels
        for item in headers(host.distribution.kernels, kernel)
        if item.spelled not in host.not_offered
    ]
    later = [item for item in later_lacking(host) if item.name not in host.not_offered]
    return tuple(Package(item.name, item.version) for item in (*now, *later))


def build_warnings(host: Host, offered: Iterable[Package]) -> list[str]:
    """Return what may keep DKMS from building the modules, for the running kernel and for the next one."""
    caveat = build_caveat(host.distribution.kernels, host.kernel)
    return [*([caveat] if caveat else []), *later_warnings(host, offered)]


def later_warnings(host: Host, offered: Iterable[Package]) -> list[str]:
    """Return why the driver would be lost with the next kernel."""
    if host.kernel_packages is None:
        return []
    wanted = later_headers(host.distribution.kernels, host.kernel, host.kernel_packages)
    after = "so after a kernel update the driver has no module until its headers are installed"
    if wanted is None:
        return [f"which package provides the headers of the kernels after {host.kernel} is not known, {after}"]
    names = not_offered(host, offered)
    return [f"the repositories do not offer {', '.join(names)}, {after}"] if names else []


def not_offered(host: Host, offered: Iterable[Package]) -> tuple[str, ...]:
    """Return what would bring the headers of later kernels and cannot be installed."""
    known = tuple(offered)
    return tuple(item.name for item in later_lacking(host) if _newest(item, known) is None)


def header_names(host: Host, kernels: Collection[str]) -> tuple[str, ...]:
    """Return the names whose offered versions L(lacking) needs to know."""
    now = [item for kernel in _without_headers(host, kernels) for item in headers(host.distribution.kernels, kernel)]
    return tuple(item.name for item in (*now, *later_lacking(host)))


def _newest(item: Headers, offered: Iterable[Package]) -> Package | None:
    """Return the package to ask for: at its version where that selects the kernel, else at the manager's choice."""
    for package in offered:
        if package.name == item.name and item.is_version(package.version):
            return package if item.version else Package(item.name)
    return None
