# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where dkms comes from (on RHEL and what is compatible with it EPEL, which has to be there before the driver), and which compiler it takes."""

from __future__ import annotations

from collections.abc import Collection

from .._adapters.packages import Package, PackageManager, Transaction
from .._distributions.kernels import toolchain, toolchains
from .._plan import Refused, Step
from .._steps import Kind
from .._versions import numbers
from .desired import PREFIX, DesiredDriver
from .selection import NotOffered
from .state import Host

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
    """Carry out the step."""
    manager.enable_repositories([str(name) for name in step.data["enable"]])
    manager.apply(Transaction(tuple(Package(str(name), str(version)) for name, version in step.data["packages"])))
    if step.data["enable_after"]:
        manager.enable_repositories([str(name) for name in step.data["enable_after"]])
    manager.refresh()
