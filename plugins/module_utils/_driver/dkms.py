# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where dkms comes from: on RHEL and what is compatible with it from EPEL, which has to be there before the driver."""

from __future__ import annotations

from collections.abc import Collection

from .._adapters.packages import Package, PackageManager, Transaction
from .._plan import Step
from .._steps import Kind
from .desired import PREFIX, DesiredDriver
from .host import Host
from .selection import NotOffered

DKMS_PACKAGE = "dkms"


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


def enable(manager: PackageManager, step: Step) -> None:
    """Carry out the step."""
    manager.enable_repositories([str(name) for name in step.data["enable"]])
    manager.apply(Transaction(tuple(Package(str(name), str(version)) for name, version in step.data["packages"])))
    if step.data["enable_after"]:
        manager.enable_repositories([str(name) for name in step.data["enable_after"]])
    manager.refresh()
