# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of Debian package versions, without starting C(dpkg --compare-versions) for every pair."""

from __future__ import annotations

import re

from .._formats.numbers import whole_number


def deb_compare(left: str, right: str) -> int:
    """Compare two Debian package versions (Debian Policy, section 5.6.12): negative, zero or positive."""
    left_epoch, left_upstream, left_revision = _deb_parts(left)
    right_epoch, right_upstream, right_revision = _deb_parts(right)
    if left_epoch != right_epoch:
        return left_epoch - right_epoch
    return _deb_text(left_upstream, right_upstream) or _deb_text(left_revision, right_revision)


def _deb_parts(version: str) -> tuple[int, str, str]:
    epoch, separator, rest = version.partition(":")
    if not separator:
        epoch, rest = "0", version
    upstream, _dash, revision = rest.rpartition("-") if "-" in rest else (rest, "", "0")
    return whole_number(epoch) or 0, upstream, revision


def _deb_text(left: str, right: str) -> int:
    for left_run, right_run in _zip_runs(left, right):
        order = _deb_letters(left_run[0], right_run[0]) or left_run[1] - right_run[1]
        if order:
            return order
    return 0


def _zip_runs(left: str, right: str) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    runs = [
        [(part[0], whole_number(part[1]) or 0) for part in re.findall("([^0-9]*)([0-9]{0,18})", text)]
        for text in (left, right)
    ]
    length = max(len(runs[0]), len(runs[1]))
    for run in runs:
        run.extend([("", 0)] * (length - len(run)))
    return [(runs[0][index], runs[1][index]) for index in range(length)]


def _deb_letters(left: str, right: str) -> int:
    for index in range(max(len(left), len(right))):
        order = _weight(left[index : index + 1]) - _weight(right[index : index + 1])
        if order:
            return order
    return 0


def _weight(character: str) -> int:
    # A tilde sorts before everything, even before the end; letters before other characters.
    if character == "~":
        return -1
    if not character:
        return 0
    return ord(character) if character.isalpha() else ord(character) + 256
