# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions of programs, of products and of their packages. The driver's, which have a shape of their own, are in _formats/driver_versions.py."""

from __future__ import annotations

import re

_IN_TEXT = re.compile(r"(?<![\w.])v?(\d+\.\d+(?:\.\d+)?[\w.~+-]*)")
#: Of the container toolkit and of DCGM.
_PRODUCT = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})(?:[-~]rc\.?([0-9]{1,4}))?")
_IN_PACKAGE = re.compile(r"(?:[0-9]{1,9}:)?([0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(?:~rc\.?[0-9]{1,9})?)(?:-.*)?")
_NUMBERS = re.compile(r"(?:[0-9]+:)?v?([0-9]{1,18}(?:\.[0-9]{1,18})*)")


def version_in(text: str) -> str | None:
    """Return the version in what a program such as C(containerd), C(dockerd) or C(k3s) answers to C(--version)."""
    match = _IN_TEXT.search(text)
    return match.group(1) if match else None


def numbers(version: str) -> tuple[int, ...]:
    """Return what versions are compared by: C((1, 6, 20)) for C(1.6.20~ds1); empty where there is no number. A package's epoch does not count, nor
    does what comes after the numbers.
    """
    match = _NUMBERS.match(version.strip())
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()


def product_version(package_version: str) -> str | None:
    """Return the version of a product in its package's: C(1.20.0) in C(0:1.20.0-1), C(1.20.0~rc.1) in C(1.20.0~rc.1-1); None where there is none."""
    match = _IN_PACKAGE.fullmatch(package_version)
    return match.group(1) if match else None


def product_key(version: str) -> tuple[int, ...]:
    """Return what orders versions of a product; a release candidate is older than its release. Raises ValueError: it is none, such as C(1.20.0) or
    C(1.20.0~rc.1).
    """
    match = _PRODUCT.fullmatch(version)
    if match is None:
        raise ValueError(f"{version!r} is not a version such as 1.20.0")
    major, minor, patch, candidate = match.groups()
    return int(major), int(minor), int(patch), 10**9 if candidate is None else int(candidate)
