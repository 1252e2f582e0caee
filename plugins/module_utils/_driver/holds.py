# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages are held with the driver, and the steps that hold and release them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .._adapters.packages import Package
from .._distributions.kernels import followed
from .._plan import Step
from .desired import DesiredDriver
from .packages import closure, in_family
from .state import Host
from .steps import hold_step, prerequisites_step, release_step


def hold_names(packages: Mapping[str, str], kernel_packages: Iterable[str] | None = ()) -> tuple[str, ...]:
    """Return which installed packages a hold has to cover: the whole closure, or apt cannot install anything near it.

    Where Ubuntu's packages bring the module, the metapackages of the kernel and of its modules are held too, or the next kernel comes without
    one. The packages of one kernel stay free.

    :param kernel_packages: the installed packages that follow a kernel; None where they are not known.
    """
    own = closure(packages)
    kept = {name for name in own if not name.startswith("linux-")}
    return tuple(sorted(kept.union(followed((*own, *(kernel_packages or ()))))))


def held(host: Host) -> list[str]:
    """Return what is held of the driver: also packages that are gone, whose locks would keep every other version out."""
    own = hold_names(host.packages, host.kernel_packages)
    return [name for name in host.holds if name in host.packages or name in own or in_family(name)]


def means_steps(host: Host, desired: DesiredDriver) -> list[Step]:
    """Return the step that brings what the package manager needs to hold packages, before anything depends on it."""
    if not (desired.hold and host.missing_for_holds):
        return []
    return [prerequisites_step(map(Package, host.missing_for_holds), "the driver's packages are held with it")]


def hold_steps(host: Host, desired: DesiredDriver) -> list[Step]:
    """Return the steps that hold, or release, the installed packages of a driver that stays."""
    wanted, held_now = set(hold_names(host.packages, host.kernel_packages)), set(host.holds)
    if desired.hold and wanted - held_now:
        return [*means_steps(host, desired), hold_step(wanted - held_now)]
    if not desired.hold and wanted & held_now:
        return [release_step(sorted(wanted & held_now), "nvidia_driver_hold is false")]
    return []
