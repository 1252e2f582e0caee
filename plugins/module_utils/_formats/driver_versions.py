# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver versions (580.126.09) and the package versions that carry them (3:580.126.09-1.el9).

Driver versions are compared number by number: 580.65.06 is older than 580.126.09, although it sorts after it as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_DRIVER = re.compile(r"(?P<branch>[1-9]\d{2})\.(?P<minor>\d{1,3})(?:\.(?P<patch>\d{1,2}))?")
_BRANCH = re.compile(r"[1-9]\d{2}")
# Everything of a package version before the driver's version (an epoch) and after it (a revision, SUSE's _k<kernel>).
_IN_PACKAGE = re.compile(r"^(?:\d+:)?(?P<version>[1-9]\d{2}\.\d{1,3}(?:\.\d{1,2})?)(?=$|[-_+~])")


def driver_key(version: str) -> tuple[int, int, int]:
    """Return what a driver version is sorted by. Raises ValueError: it is not one."""
    match = _DRIVER.fullmatch(version)
    if match is None:
        raise ValueError(f"{version!r} is not a driver version such as 580.126.09")
    return int(match.group("branch")), int(match.group("minor")), int(match.group("patch") or 0)


def may_be_as_new(version: str, branch: int, first: str) -> bool:
    """Return whether a driver is C(first) or newer, or may be, where only its branch is known and C(version) is empty."""
    return driver_key(version) >= driver_key(first) if version else branch >= driver_key(first)[0]


def is_driver_version(text: str) -> bool:
    """Return whether C(text) is a complete driver version such as 580.126.09."""
    return _DRIVER.fullmatch(text) is not None


def is_branch(text: str) -> bool:
    return _BRANCH.fullmatch(text) is not None


def branch_of(version: str) -> int:
    return driver_key(version)[0]


def is_lower(wanted: str, version: str) -> bool:
    """Return whether C(wanted), a driver version or a branch, is older than a driver version; False where one of them is neither."""
    if not is_driver_version(version):
        return False
    if is_branch(wanted):
        return int(wanted) < branch_of(version)
    return is_driver_version(wanted) and driver_key(wanted) < driver_key(version)


def driver_version_in(package_version: str) -> str | None:
    """Return the driver version that a deb or rpm version carries, or None where it carries none. C(580.126.09-1ubuntu1), C(3:580.126.09-1.el9),
    C(535.309.01-0+deb12u1) and C(580.82.07_k5.14.21_150500.53-150600.3.1) carry one; C(1.20.0-1) does not.
    """
    match = _IN_PACKAGE.match(package_version)
    return match.group("version") if match else None


def newest(versions: Iterable[str]) -> str | None:
    """Return the newest of C(versions) that are driver versions, or None."""
    known = [version for version in versions if is_driver_version(version)]
    return max(known, key=driver_key) if known else None


def nearest(wanted: str, versions: Iterable[str]) -> str | None:
    """Return the nearest version to C(wanted): the next newer of its branch, else the newest of its branch or of all."""
    known = sorted({version for version in versions if is_driver_version(version)}, key=driver_key)
    same = [version for version in known if branch_of(version) == branch_of(wanted)]
    newer = [version for version in same if driver_key(version) > driver_key(wanted)]
    for candidates, pick in ((newer, 0), (same, -1), (known, -1)):
        if candidates:
            return candidates[pick]
    return None
