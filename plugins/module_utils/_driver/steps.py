# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps on the packages of the driver, as the plans of the stage and of the module make them, and which packages are held with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._adapters.package_manager import Package
from .._formats.driver_versions import is_lower, newest
from .._packages.package_set import PackageSet
from .._plan import Step
from .._steps import Kind
from .desired import PREFIX, REPOSITORY_NAME, DesiredDriver
from .packages import hold_names
from .state import Host

MARK = "# Written by gpufleet.nvidia; changes are overwritten.\n"
#: Under this name the module's own preferences file pins the driver.
PREFERENCES_NAME = "gpufleet-nvidia-driver"
_PINNED = ("*nvidia*", "cuda-drivers*", "libcuda1", "libcudadebugger1", "libnvcuvid1", "libnvoptix1", "libxnvctrl*")
#: The target of steps on the packages of the driver.
DRIVER = "driver"
SET = PackageSet(DRIVER, "driver", PREFIX, "unattended upgrades must not move the driver")
#: The kinds of the step that has the main transaction.
PACKAGES = frozenset({Kind.INSTALL_DRIVER, Kind.CHANGE_DRIVER, Kind.DOWNGRADE_DRIVER, Kind.REMOVE_DRIVER})

#: The kinds of the step that changes which driver is loaded.
LOADS = frozenset({Kind.LOAD_DRIVER, Kind.RELOAD_DRIVER, Kind.UNLOAD_DRIVER})


def driver_step(host: Host, why: str, disturbs: Sequence[str], data: Mapping[str, Any], present: bool = True) -> Step:
    """Return the step that installs, changes or removes the packages of the driver.

    :param data: with C(version), or C(branch) where no version was chosen yet, unless the driver goes.
    """
    change = Kind.CHANGE_DRIVER if host.versions else Kind.INSTALL_DRIVER
    if is_lower(str(data.get("version") or data.get("branch") or ""), newest(host.versions) or ""):
        change = Kind.DOWNGRADE_DRIVER
    before = ", ".join(host.versions) or "packages"
    return Step(change if present else Kind.REMOVE_DRIVER, DRIVER, why, tuple(disturbs), {"before": before, **data})


def stream_step(stream: str) -> Step:
    """Return the step that enables the stream of the dnf module."""
    why = "one stream has one branch"
    return Step(Kind.ENABLE_MODULE_STREAM, f"nvidia-driver:{stream}", why, (), {"stream": stream})


def pin_step(host: Host, version: str, pinning: Package | None) -> Step:
    """Return the step that pins the driver: with NVIDIA's pinning package where there is one, else with preferences (apt)."""
    package: list[Any] = [pinning.name, pinning.version] if pinning else []
    # The pinning packages conflict with each other, and the one of the old driver must not pin the new one.
    stale = [name for name in host.packages if "nvidia-driver-pinning" in name and name not in package]
    return Step(
        Kind.PIN_DRIVER,
        pinning.name if pinning else f"/etc/apt/preferences.d/{PREFERENCES_NAME}",
        "packages of one driver depend on each other with >=, which a newer one satisfies too",
        data={"version": version, "package": package, "remove": stale},
    )


def repository_step(desired: DesiredDriver) -> Step:
    return Step(Kind.ADD_REPOSITORY, REPOSITORY_NAME, f"{desired.source} packages come from it")


def prerequisites_step(packages: Iterable[Package], why: str) -> Step:
    """Return the step that installs what the driver needs before it."""
    entries = [[package.name, package.version] for package in packages]
    return SET.step(Kind.INSTALL_PREREQUISITES, why, entries)


def hold_prerequisites(host: Host, desired: DesiredDriver) -> list[Step]:
    """Return the step that brings what the package manager needs to hold packages, before anything depends on it."""
    if not (desired.hold and host.missing_for_holds):
        return []
    return [prerequisites_step(map(Package, host.missing_for_holds), "the driver's packages are held with it")]


def hold_steps(host: Host, desired: DesiredDriver) -> list[Step]:
    """Return the steps that hold, or release, the installed packages of a driver that stays."""
    wanted, held_now = set(hold_names(host.packages, host.kernel_packages)), set(host.holds)
    if desired.hold and wanted - held_now:
        return [*hold_prerequisites(host, desired), SET.hold_step(sorted(wanted - held_now))]
    if not desired.hold and wanted & held_now:
        return [SET.release_step(sorted(wanted & held_now), f"{PREFIX}hold is false")]
    return []


def preferences(version: str) -> str:
    """Return the apt preferences that keep the driver at C(version), in place of NVIDIA's pinning package.

    A pin of a version only touches packages that have such a version, so the container toolkit is not affected. Above
    1000 a pin may also go back to an older version.
    """
    return f"{MARK}Package: {' '.join(_PINNED)}\nPin: version {version}-*\nPin-Priority: 1001\n"
