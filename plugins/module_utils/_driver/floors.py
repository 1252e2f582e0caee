# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security floors of driver branches with the bulletins that they come from, and what kind of branch each is, with the end of its support."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._formats.driver_versions import branch_of, driver_key


@dataclass(frozen=True)
class Floor:
    """The oldest version of a branch that has the fixes of a security bulletin.

    :param branch: such as 580.
    :param version: such as C(580.178.04).
    :param bulletin: its number in NVIDIA/product-security.
    :param date: when the bulletin was last changed, as C(YYYY-MM-DD).
    :param source: where the row was read.
    :param reason: the worst of what older versions have.
    """

    branch: int
    version: str
    bulletin: str
    date: str
    source: str
    reason: str


_TEXTS = ("version", "bulletin", "date", "source", "reason")

# NVIDIA/product-security 2026/5861/5861.md, "Tesla | Linux" [code]. It has no row for 535, 570, 575 and 590 and says of branches without a
# row: "upgrade to the latest branch release".
_SEPTEMBER_2026 = (
    "5861",
    "2026-09-30",
    "NVIDIA/product-security 2026/5861/5861.md",
    "CVE-2026-47599 and CVE-2026-47597 (7.8 each: an unprivileged local user gains kernel privileges through the open kernel module)",
)

FLOORS: Mapping[int, Floor] = {
    branch: Floor(branch, version, *_SEPTEMBER_2026)
    for branch, version in ((580, "580.178.04"), (595, "595.91.07"), (610, "610.57.04"), (615, "615.71.09"))
}


def with_advisories(rows: Iterable[Mapping[str, Any]]) -> Mapping[int, Floor]:
    """Return the floors that hold when a site gives advisories of its own besides C(FLOORS).

    The newest bulletin decides alone on every branch up to its newest one: of a branch that it does not name NVIDIA says to move on. On branches
    that are newer still the bulletin before it decides.

    :param rows: with the fields of L(Floor), one per bulletin and branch.
    """
    bulletins: dict[tuple[str, str], list[Floor]] = {}
    given = [Floor(int(row["branch"]), *(str(row[name]) for name in _TEXTS)) for row in rows]
    for floor in (*FLOORS.values(), *given):
        bulletins.setdefault((floor.date, floor.bulletin), []).append(floor)
    found: dict[int, Floor] = {}
    for _date, floors in sorted(bulletins.items(), key=lambda item: item[0], reverse=True):
        newest = max(found, default=0)
        found.update((floor.branch, floor) for floor in floors if floor.branch > newest)
    return found


#: When a maintainer last compared the tables of this file with NVIDIA's bulletins and pages; tools/behind.py helps with it.
AS_OF = "2026-11-26"

LTS, PRODUCTION, NEW_FEATURE = "long-term support", "production", "new-feature"


@dataclass(frozen=True)
class Branch:
    """What NVIDIA says of a driver branch.

    :param kind: one of the constants above, or what NVIDIA calls it where that is none of them.
    :param end_of_life: the month, as C(YYYY-MM); empty where NVIDIA states none, as for all new-feature branches.
    """

    kind: str
    end_of_life: str = ""


#: "Supported drivers and CUDA toolkit versions", the pages of branches 615 and 620 [doc].
BRANCHES: Mapping[int, Branch] = {
    535: Branch(LTS, "2026-06"),
    580: Branch(LTS, "2028-06"),
    595: Branch(PRODUCTION, "2027-03"),
    610: Branch(NEW_FEATURE),
    615: Branch(NEW_FEATURE),
    620: Branch(LTS, "2029-09"),
}


def with_releases(rows: Iterable[Mapping[str, Any]]) -> Mapping[int, Branch]:
    """Return the branches that hold when a site gives NVIDIA's list of releases besides C(BRANCHES).

    The list says which branches there are and of which kind. It has no dates of their ends: those stay of C(BRANCHES), unless the kind changed.

    :param rows: with C(branch) and C(kind).
    """
    found = dict(BRANCHES)
    for row in rows:
        number, kind = int(row["branch"]), str(row["kind"])
        if found.get(number, Branch("")).kind != kind:
            found[number] = Branch(kind)
    return found


#: cloud-native-docs gpu-operator/troubleshooting.rst, gpu-operator#1361 [doc].
_BREAKS_MIXED_NODES = ("570.124.06", "570.133.20", "570.148.08", "570.158.01")


def shortfall(version: str, floors: Mapping[int, Floor] = FLOORS) -> tuple[str, str] | None:
    """Return why a driver version is below the security floor and which version meets it, or None where it is not.

    None is no statement about a branch that no bulletin names yet: see L(not_judged). A branch that the newest bulletin does not name, and that
    is older than one that it names, gets no fixes any more.
    """
    branch = branch_of(version)
    floor, newest = floors.get(branch), max(floors)
    if floor is not None:
        if driver_key(version) >= driver_key(floor.version):
            return None
        return (
            f"{version} is below the security floor {floor.version} of {_named(floor)}: {floor.reason}",
            floor.version,
        )
    if branch > newest:
        return None
    replacement = floors[min(known for known in floors if known > branch)]
    return (
        f"branch {branch} no longer gets security fixes; {_named(replacement)} does not name it",
        replacement.version,
    )


def not_judged(branch: int, floors: Mapping[int, Floor] = FLOORS) -> str | None:
    """Return why nothing is known about the security of a branch, or None where the table has a row for it or for a newer one."""
    newest = floors[max(floors)]
    if branch <= newest.branch:
        return None
    return (
        f"whether driver branch {branch} has known vulnerabilities is not known: {_named(newest)}, the newest that the collection knows, "
        f"names no branch newer than {newest.branch}"
    )


def _named(floor: Floor) -> str:
    return f"bulletin {floor.bulletin} of {floor.date}"


def warnings(
    version: str,
    floors: Mapping[int, Floor] = FLOORS,
    branches: Mapping[int, Branch] | None = None,
    month: str = "",
) -> tuple[str, ...]:
    """Return what is known against a driver version although it is allowed.

    :param branches: those that are known; None for L(BRANCHES).
    :param month: as L(Branch) has them; empty for today's.
    """
    found = []
    branches = BRANCHES if branches is None else branches
    if version in _BREAKS_MIXED_NODES:
        found.append(
            f"driver {version} breaks scheduling on nodes that mix MIG slices with whole GPUs (gpu-operator#1361)"
        )
    unknown = not_judged(branch_of(version), floors)
    if unknown is not None:
        found.append(unknown)
    number, today = branch_of(version), month or time.strftime("%Y-%m")
    branch = branches.get(number, Branch(""))
    if branch.end_of_life and branch.end_of_life <= today:
        found.append(f"NVIDIA's support for driver branch {number} ended in {branch.end_of_life}")
    if branch.kind == NEW_FEATURE:
        supported = [
            str(one) for one, known in sorted(branches.items()) if known.kind == LTS and known.end_of_life > today
        ]
        found.append(
            f"driver branch {number} is a new-feature branch: NVIDIA supports it for a short time and states no end; "
            f"long-term support: {', '.join(supported)}"
        )
    return tuple(found)
