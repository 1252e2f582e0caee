# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The newest kernel of the kind that runs, with what the driver's modules for it come from. Pure.

A kernel's packages depend neither on its headers nor on compiled modules: what is left out here is missing after the reboot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .._adapters.grub import Grub, release_order
from .._adapters.package_manager import Change, Package, Transaction
from .._distributions.kernels import headers_at, images, module_packages, same_kind
from .._plan import Plan, Refused, Step
from .._steps import Kind
from .packages import hold_names, in_family
from .refusals import space_refusals
from .state import Host
from .steps import SET

_INSTEAD = "Install a kernel by hand, and set gpu_upgrade_kernel to installed."
_OR_INSTEAD = "Or install a kernel by hand, and set gpu_upgrade_kernel to installed."
#: The package of one kernel, of those that metapackages bring.
_IMAGE = re.compile(r"linux-image-(?:unsigned-)?(?P<release>\d.*)")
#: Which modules come in packages that fit the kernel by themselves: SUSE's.
_KMP = re.compile(r".*-kmp-")


@dataclass(frozen=True)
class Wanted:
    """What is asked of the package manager.

    :param images: the packages that bring the kernel.
    :param version: of the kernel's package, where kernels are told apart by that (rpm); else empty.
    """

    transaction: Transaction
    images: tuple[str, ...]
    version: str = ""


def names_to_ask(host: Host) -> tuple[str, ...]:
    """Return the names whose offered versions L(wanted) needs to know. Raises Refused: nobody knows which package brings the newest kernel."""
    for refusal in space_refusals(host):
        raise refusal
    known = host.kernel_packages or ()
    found = images(host.distribution.kernels, host.kernel, known)
    if not found:
        raise Refused(
            f"kernel {host.kernel}",
            "which package provides its newest version is not known: it is none of the distribution's, or its metapackage is not installed",
            f"Install the metapackage that it is from. {_OR_INSTEAD}",
        )
    foreign = sorted(set(found).intersection(host.holds).difference(hold_names(host.packages, known)))
    if foreign:
        raise Refused(
            ", ".join(foreign),
            "held, and not with the driver, so that somebody wants this kernel to stay",
            f"Release the hold (apt-mark unhold {' '.join(foreign)}), or set gpu_upgrade_kernel to keep.",
        )
    every = (item.name for item in headers_at(host.distribution.kernels, host.kernel, known, _version(host, "0")))
    return (*found, *every)


def wanted(host: Host, offered: Iterable[Package]) -> Wanted:
    """Return the transaction that installs the newest kernel with its headers, and moves compiled modules with it.

    :param offered: what the repositories have of L(names_to_ask), of each name the newest first.
    :raises Refused: they do not have it, or not what modules for it are built with.
    """
    known, available = host.kernel_packages or (), tuple(offered)
    found = images(host.distribution.kernels, host.kernel, known)
    newest = {package.name: package.version for package in reversed(available)}
    missing = [name for name in found if name not in newest]
    if missing:
        raise Refused(
            ", ".join(missing),
            "the repositories do not offer it",
            f"Add the distribution's repository with its kernels, or complete the mirror. {_OR_INSTEAD}",
        )
    version = _version(host, newest[found[0]])
    modules = tuple(module_packages(host.packages, ""))
    headers = []
    for item in headers_at(host.distribution.kernels, host.kernel, known, version):
        fitting = [
            package for package in available if package.name == item.name and package.version.startswith(item.version)
        ]
        if fitting:
            headers.append(Package(item.name, fitting[0].version if version else ""))
        elif _builds(host):
            raise _no_headers(version or host.kernel, item.name)
    kernels = [Package(name, newest[name] if version else "") for name in found]
    install = (*kernels, *headers, *map(Package, modules))
    return Wanted(Transaction(install=install, ignore_holds=True), found, version)


def plan(host: Host, asked: Wanted, changes: Sequence[Change], installed: Mapping[str, str]) -> Plan:
    """Return the steps that install what was resolved; none where the newest kernel is installed.

    :param changes: what the transaction does.
    :param installed: all installed packages.
    :raises Refused: the kernel would come without the driver's module, or with another driver, or something would be removed for it.
    """
    releases = _releases(asked, changes)
    if not releases:
        return Plan()
    if not asked.version and release_order(releases[-1]) < release_order(host.kernel):
        raise Refused(
            f"kernel {host.kernel}",
            f"{', '.join(asked.images)} brings the older {releases[-1]}, so which package provides its newest version is not known",
            _INSTEAD,
        )
    target, after = releases[-1], {*installed, *(change.name for change in changes if change.action != "remove")}
    thing = f"kernel {target}"
    removed = [change.name for change in changes if change.action == "remove"]
    if removed:
        raise Refused(thing, f"installing it would remove {', '.join(removed)}", _INSTEAD)
    moved = [change for change in changes if in_family(change.name) and not change.name.startswith("linux-")]
    if moved:
        named = ", ".join(f"{change.name} {change.before or 'not installed'} -> {change.after}" for change in moved)
        raise Refused(
            thing,
            f"its module of the driver needs other packages of the driver ({named})",
            "Upgrade the driver first (nvidia_driver_version, with gpu_upgrade_kernel: keep), then the kernel.",
        )
    for release in releases if not asked.version else ():
        lacking = [name for name in module_packages(host.packages, release).values() if name not in after]
        if lacking:
            raise Refused(
                thing,
                f"there is no GPU module for it: {', '.join(lacking)} is not offered",
                "Wait until the archive has it, or set nvidia_driver_source: nvidia, which builds modules. Until then set gpu_upgrade_kernel to keep.",
            )
        if _builds(host) and f"linux-headers-{release}" not in after:
            raise _no_headers(release, f"linux-headers-{release}")
    held = sorted(
        set(hold_names(host.packages, host.kernel_packages)).intersection(
            host.holds, (item.name for item in asked.transaction.install)
        )
    )
    step = Step(
        Kind.INSTALL_KERNEL,
        target,
        f"{host.kernel} runs",
        (),
        {"packages": sorted(change.name for change in changes), "changes": [change.as_dict() for change in changes]},
    )
    around = (SET.release_step(held, "the kernel and the driver's modules move together"), step, SET.hold_step(held))
    return Plan(around if held else (step,), {"kernel": host.kernel}, {"kernel": target})


def repair(host: Host) -> Plan:
    """Return the step that completes what was cut off; none where nothing was. What is installed is known only after it."""
    if not host.interrupted:
        return Plan()
    why = f"an earlier transaction was cut off and left {', '.join(host.interrupted)} half done"
    return Plan((Step(Kind.REPAIR_PACKAGE_DATABASE, "packages", why),))


def newest_release(host: Host, kernels: Iterable[str]) -> str:
    """Return the newest of the installed C(kernels), the oldest first, that is of the kind that runs."""
    found = [release for release in kernels if same_kind(host.distribution.kernels, host.kernel, release)]
    return found[-1] if found else host.kernel


def _version(host: Host, version: str) -> str:
    """Return C(version) where kernels of one name are installed beside each other; apt has a name for each."""
    return "" if host.distribution.manager == "apt" else version


def _builds(host: Host) -> bool:
    """Return whether modules are built on the host: there is a driver, and no package has its modules compiled."""
    return bool(host.packages) and not module_packages(host.packages, "") and not any(map(_KMP.match, host.packages))


def _releases(asked: Wanted, changes: Iterable[Change]) -> list[str]:
    """Return which kernels come: by their release, or by the version of their package."""
    new = [change for change in changes if change.action == "install"]
    if asked.version:
        return [asked.version] if any(change.name in asked.images for change in new) else []
    return [match.group("release") for change in new for match in [_IMAGE.fullmatch(change.name)] if match]


def _no_headers(kernel: str, name: str) -> Refused:
    return Refused(
        f"kernel {kernel}",
        f"the driver's module has to be built for it, and its headers are not offered ({name})",
        "Complete the mirror, or set gpu_upgrade_kernel to keep until it has them.",
    )


_SAVED = "Set GRUB_DEFAULT=saved in /etc/default/grub and write GRUB's configuration again (update-grub, or grub2-mkconfig -o /boot/grub2/grub.cfg)."


def plan_boot(grub: Grub, release: str) -> Plan:
    """Return the step that has kernel C(release) booted next; none where it is. Raises Refused: GRUB cannot be told."""
    thing = f"kernel {release}"
    if release not in grub.kernels:
        raise Refused(thing, f"it is not installed; installed are {', '.join(grub.kernels) or 'none'}")
    if grub.following == release:
        return Plan()
    if grub.default == "saved" and (grub.grubby or (grub.program and release in grub.entries)):
        return _boot_plan(grub, Step(Kind.BOOT_KERNEL, release, "another one is booted next"))
    if not grub.program:
        raise Refused(thing, "the host has none of GRUB's programs that choose a kernel (grub-reboot, grub2-reboot)")
    if grub.boots_once and release in grub.entries:
        why = f"GRUB_DEFAULT is {grub.default}, so the boot after that takes this one again"
        return _boot_plan(grub, Step(Kind.BOOT_KERNEL_ONCE, release, why))
    if release not in grub.entries and not grub.grubby:
        raise Refused(
            thing, "GRUB's configuration has no entry for it", "Write it again: update-grub or grub2-mkconfig."
        )
    raise Refused(
        thing, f"GRUB_DEFAULT is {grub.default}, so the entry that is saved for it would not be booted", _SAVED
    )


def _boot_plan(grub: Grub, step: Step) -> Plan:
    return Plan((step,), {"boots_next": grub.following}, {"boots_next": step.target})
