# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep a resolver from mixing versions of the driver.

NVIDIA's packages depend on each other with C(>=): asked for one package at one version, a resolver takes the newest of the
others. So a plan is resolved, looked at, and resolved again with every package that strayed named at its version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .._adapters.packages import Change, Package, Transaction
from .._formats.driver_versions import driver_key, driver_version_in
from .._plan import Refused
from .desired import PREFIX
from .packages import LOOSE_NAMES, versioned
from .selection import by_version


def strayed(changes: Iterable[Change], version: str, installed: Mapping[str, str]) -> dict[str, str]:
    """Return the driver's packages that would be at another driver version than C(version) afterwards.

    Both kinds count: those that a resolution brings to another version, and those that it leaves where they are because
    the old version still satisfies a C(>=).

    :param installed: all installed packages of the driver.
    :returns: the package versions that they would have, by name.
    """
    after = dict(installed)
    for change in changes:
        if change.action == "remove":
            after.pop(change.name, None)
        else:
            after[change.name] = change.after
    loose = {name: driver_version_in(after[name]) for name in LOOSE_NAMES if name in after}
    found = {**versioned(after), **loose}
    return {name: after[name] for name, driver in sorted(found.items()) if driver not in (version, None)}


def in_lockstep(
    transaction: Transaction,
    astray: Mapping[str, str],
    offered: Iterable[Package],
    version: str,
    installed: Mapping[str, str],
) -> Transaction:
    """Return C(transaction) with every package that strayed named at the version of the others.

    One that is installed, and that the repositories do not offer at that version, does not belong to the driver any
    more and is removed.

    :param astray: what L(strayed) returned.
    :param offered: what the repositories have of those packages.
    :raises Refused: a package would go to a newer driver, and the repositories do not offer it at C(version).
    """
    available = by_version(offered)
    named = {package.name for package in transaction.install if package.version}
    added, removed = [], []
    for name, package_version in astray.items():
        package = available.get((name, version))
        if package is None and name in LOOSE_NAMES:
            # In the distributions' archives these have versions of their own.
            continue
        found = driver_version_in(package_version)
        if package is not None and name not in named:
            added.append(package)
        elif found is not None and driver_key(found) > driver_key(version) and installed.get(name) != package_version:
            raise Refused(
                f"{PREFIX}version",
                f"driver {version} would pull in {name} {package_version} of a newer driver, and the repositories do not "
                f"offer {name} at {version}",
                "Complete the mirror, or choose the version that the repositories offer completely.",
            )
        elif name not in transaction.remove and name not in named:
            removed.append(name)
    return replace(transaction, install=(*transaction.install, *added), remove=(*transaction.remove, *removed))
