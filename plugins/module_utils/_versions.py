# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions of programs and of their packages. The driver's, which have a shape of their own, are in _formats/driver_versions.py."""

from __future__ import annotations

import re

_IN_TEXT = re.compile(r"(?<![\w.])v?(\d+\.\d+(?:\.\d+)?[\w.~+-]*)")
_NUMBERS = re.compile(r"(?:[0-9]+:)?v?([0-9]{1,18}(?:\.[0-9]{1,18})*)")


def version_in(text: str) -> str | None:
    """Return the version in what a program such as C(containerd), C(dockerd) or C(k3s) answers to C(--version)."""
    match = _IN_TEXT.search(text)
    return match.group(1) if match else None


def numbers(version: str) -> tuple[int, ...]:
    """Return what versions are compared by: C((1, 6, 20)) for C(1.6.20~ds1); empty where there is no number.

    A package's epoch does not count, nor does what comes after the numbers.
    """
    match = _NUMBERS.match(version.strip())
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()
