# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host lacks to build the driver's modules for the kernel that runs, and for those that come after it."""

from __future__ import annotations

from collections.abc import Iterable

from .._adapters.packages import Package
from .._distributions.kernels import Headers, build_caveat, headers, later_headers
from .selection import NotOffered
from .state import Host


def lacking(host: Host, offered: Iterable[Package]) -> tuple[Package, ...]:
    """Return the packages to install for the running kernel and the later ones.

    :param offered: what the repositories have, at least of L(header_names).
    :raises NotOffered: the running kernel has no headers, and nobody offers them.
    """
    known, found = tuple(offered), []
    for position, item in enumerate(() if host.headers else headers(host.distribution.kernels, host.kernel)):
        package = _newest(item, known)
        if package is not None:
            found.append(package)
        elif position == 0:
            raise NotOffered(
                "the kernel",
                f"modules have to be built for the running kernel {host.kernel}, but the repositories do not offer its "
                f"headers ({item.name})",
                "Boot the newest kernel of the distribution, whose headers are offered, or add the repository that has them.",
            )
    return (*found, *later_packages(host, known))


def later_packages(host: Host, offered: Iterable[Package]) -> tuple[Package, ...]:
    """Return the packages to install for the kernels after the running one, of those that are offered."""
    known = tuple(offered)
    found = [_newest(item, known) for item in later_lacking(host)]
    return tuple(package for package in found if package is not None)


def later_lacking(host: Host) -> tuple[Headers, ...]:
    """Return what would bring the headers of later kernels and is not installed; empty where that cannot be told."""
    if host.kernel_packages is None:
        return ()
    wanted = later_headers(host.distribution.kernels, host.kernel, host.kernel_packages) or ()
    return tuple(item for item in wanted if item.name not in host.kernel_packages)


def as_recorded(host: Host) -> tuple[Package, ...]:
    """Return what the repositories offer for later kernels as far as the facts tell: all but what they did not have when they were last asked."""
    return tuple(Package(item.name, item.version) for item in later_lacking(host) if item.name not in host.not_offered)


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


def header_names(host: Host) -> tuple[str, ...]:
    """Return the names whose offered versions L(lacking) needs to know."""
    now = () if host.headers else headers(host.distribution.kernels, host.kernel)
    return (*(item.name for item in now), *later_names(host))


def later_names(host: Host) -> tuple[str, ...]:
    """Return the names whose offered versions L(later_packages) needs to know."""
    return tuple(item.name for item in later_lacking(host))


def _newest(item: Headers, offered: Iterable[Package]) -> Package | None:
    """Return the package to ask for: at its version where that selects the kernel, else at the manager's choice."""
    for package in offered:
        if package.name == item.name and _is_of(package.version, item.version):
            return package if item.version else Package(item.name)
    return None


def _is_of(version: str, kernel: str) -> bool:
    """Return whether a package version is that of a kernel, or of a rebuild of it; 6.12.2 is not of 6.12.20."""
    rest = version[len(kernel) :]
    return version.startswith(kernel) and not (kernel and rest[:1].isdigit())
