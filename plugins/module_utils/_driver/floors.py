# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security floors and support dates of driver branches, with the bulletins that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .versions import branch_of, driver_key


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


# NVIDIA/product-security 2026/5861/5861.md, "Tesla | Linux" [code]. It has no row for 535, 570, 575 and 590 and says of branches without a
# row: "upgrade to the latest branch release".
_SEPTEMBER_2026 = (
    "5861",
    "2026-09-30",
    "NVIDIA/product-security 2026/5861/5861.md",
    "CVE-2026-47599 and CVE-2026-47597 (7.8 each: an unprivileged local user gets the kernel's rights through the open kernel module)",
)

FLOORS: Mapping[int, Floor] = {
    branch: Floor(branch, version, *_SEPTEMBER_2026)
    for branch, version in ((580, "580.178.04"), (595, "595.91.07"), (610, "610.57.04"), (615, "615.71.09"))
}
_NEWEST_FLOOR = FLOORS[max(FLOORS)]

#: End of life as year and month, NVIDIA's supported-drivers page of R615 [doc].
END_OF_LIFE: Mapping[int, str] = {535: "2026-06", 580: "2028-06", 595: "2027-03", 610: "2026-08"}

#: cloud-native-docs gpu-operator/troubleshooting.rst, gpu-operator#1361 [doc].
_BREAKS_MIXED_NODES = ("570.124.06", "570.133.20", "570.148.08", "570.158.01")


def shortfall(version: str) -> tuple[str, str] | None:
    """Return why a driver version is below the security floor and which version meets it, or None where it is not.

    None is no statement about a branch that no bulletin names yet: see L(not_judged). A branch that the newest bulletin does not name, and that
    is older than one that it names, gets no fixes any more.
    """
    branch = branch_of(version)
    floor = FLOORS.get(branch)
    if floor is not None:
        if driver_key(version) >= driver_key(floor.version):
            return None
        return (
            f"{version} is below the security floor {floor.version} of {_named(floor)}: {floor.reason}",
            floor.version,
        )
    if branch > _NEWEST_FLOOR.branch:
        return None
    replacement = FLOORS[min(known for known in FLOORS if known > branch)]
    return (
        f"branch {branch} gets no security fixes any more; {_named(replacement)} does not name it",
        replacement.version,
    )


def not_judged(branch: int) -> str | None:
    """Return why nothing is known about the security of a branch, or None where the table has a row for it or for a newer one."""
    if branch <= _NEWEST_FLOOR.branch:
        return None
    return (
        f"whether driver branch {branch} has known vulnerabilities is not known: {_named(_NEWEST_FLOOR)}, the newest that the collection knows, "
        f"names no branch newer than {_NEWEST_FLOOR.branch}"
    )


def _named(floor: Floor) -> str:
    return f"bulletin {floor.bulletin} of {floor.date}"


def warnings(version: str) -> tuple[str, ...]:
    """Return what is known against a driver version although it is allowed."""
    found = []
    if version in _BREAKS_MIXED_NODES:
        found.append(
            f"driver {version} breaks scheduling on nodes that mix MIG slices with whole GPUs (gpu-operator#1361)"
        )
    unknown = not_judged(branch_of(version))
    if unknown is not None:
        found.append(unknown)
    end = END_OF_LIFE.get(branch_of(version))
    if end is not None and end <= "2026-11":
        found.append(f"NVIDIA's support for driver branch {branch_of(version)} ended in {end}")
    return tuple(found)
