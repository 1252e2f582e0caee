# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What apt and dpkg print, and the order of their versions without starting C(dpkg --compare-versions) for every pair."""

from __future__ import annotations

import re
from itertools import zip_longest

from .._formats.numbers import whole_number
from .package_manager import Change, Package
from .repositories import canonical

_SIMULATED = re.compile(
    r"^(?P<what>Inst|Remv|Purg) (?P<name>[^\s:]+)(?::\S+)?(?: \[(?P<old>[^\]]+)\])?(?: \((?P<new>\S+)[^)]*\))?"
)


def parse_madison(text: str) -> tuple[Package, ...]:
    """Return what C(apt-cache madison) lists, each version of a package once, source packages left out."""
    found: dict[tuple[str, str], Package] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 3 or parts[2].endswith(" Sources"):
            continue
        found.setdefault((parts[0], parts[1]), Package(parts[0], parts[1], canonical(parts[2].split(" ")[0])))
    return tuple(found.values())


def parse_status(text: str) -> list[tuple[str, str, str]]:
    """Return (name, version, state) from C(dpkg-query); of several architectures the first that is installed."""
    found: dict[str, tuple[str, str, str]] = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) == 3 and (parts[0] not in found or found[parts[0]][2] != "installed"):
            found[parts[0]] = (parts[0], parts[1], parts[2])
    return list(found.values())


def parse_simulation(text: str) -> tuple[Change, ...]:
    """Return the changes that C(apt-get -s) announces; the lines about configuration add nothing to them."""
    changes: dict[str, Change] = {}
    for line in text.splitlines():
        match = _SIMULATED.match(line)
        if match is None:
            continue
        name, old, new = match.group("name"), match.group("old") or "", match.group("new") or ""
        if match.group("what") != "Inst":
            # A package that is removed and installed again in one transaction is listed twice; the installation counts.
            changes.setdefault(name, Change("remove", name, old))
            continue
        changes[name] = Change(_direction(old, new), name, old, new)
    return tuple(changes.values())


def _direction(old: str, new: str) -> str:
    if not old:
        return "install"
    order = deb_compare(new, old)
    return "upgrade" if order > 0 else "downgrade" if order < 0 else "reinstall"


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
    pairs = zip_longest(_runs(left), _runs(right), fillvalue=("", 0))
    orders = (_deb_letters(one[0], other[0]) or one[1] - other[1] for one, other in pairs)
    return next(filter(None, orders), 0)


def _runs(text: str) -> list[tuple[str, int]]:
    return [(part[0], whole_number(part[1]) or 0) for part in re.findall("([^0-9]*)([0-9]{0,18})", text)]


def _deb_letters(left: str, right: str) -> int:
    orders = (_weight(one) - _weight(other) for one, other in zip_longest(left, right, fillvalue=""))
    return next(filter(None, orders), 0)


def _weight(character: str) -> int:
    # A tilde sorts before everything, even before the end; letters before other characters.
    if character == "~":
        return -1
    if not character:
        return 0
    return ord(character) if character.isalpha() else ord(character) + 256
