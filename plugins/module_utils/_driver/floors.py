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
    :param version: such as C(580.159.03).
    :param bulletin: of NVIDIA/product-security.
    :param reason: the worst of what older versions have.
    """

    branch: int
    version: str
    bulletin: str
    reason: str


_MAY_2026 = "5821 (May 2026)"
_REASON = "CVE-2026-24187 (8.8, use after free) and CVE-2026-24197 (MIG partitions are initialised insecurely)"

#: NVIDIA/product-security 2026/5821/5821.md, "Tesla | Linux" [code].
FLOORS: Mapping[int, Floor] = {
    floor.branch: floor
    for floor in (
        Floor(535, "535.309.01", _MAY_2026, _REASON),
        Floor(580, "580.159.03", _MAY_2026, _REASON),
        Floor(595, "595.71.05", _MAY_2026, _REASON),
    )
}
_NEWEST_FLOOR = max(FLOORS)

#: End of life as year and month, NVIDIA's supported-drivers page of R615 [doc].
END_OF_LIFE: Mapping[int, str] = {535: "2026-06", 580: "2028-06", 595: "2027-03", 610: "2026-08"}

#: cloud-native-docs gpu-operator/troubleshooting.rst, gpu-operator#1361 [doc].
_BREAKS_MIXED_NODES = ("570.124.06", "570.133.20", "570.148.08", "570.158.01")


def shortfall(version: str) -> tuple[str, str] | None:
    """Return why a driver version is below the security floor and which version meets it, or None where it is not.

    A branch that the newest bulletin does not name, and that is older than one that it names, gets no fixes any more.
    """
    branch = branch_of(version)
    floor = FLOORS.get(branch)
    if floor is not None:
        if driver_key(version) >= driver_key(floor.version):
            return None
        reason = f"{version} is below the security floor {floor.version} of bulletin {floor.bulletin}: {floor.reason}"
        return reason, floor.version
    if branch > _NEWEST_FLOOR:
        return None
    replacement = FLOORS[min(known for known in FLOORS if known > branch)]
    reason = f"branch {branch} gets no security fixes any more; bulletin {replacement.bulletin} does not name it"
    return reason, replacement.version


def warnings(version: str) -> tuple[str, ...]:
    """Return what is known against a driver version although it is allowed."""
    found = []
    if version in _BREAKS_MIXED_NODES:
        found.append(
            f"driver {version} breaks scheduling on nodes that mix MIG slices with whole GPUs (gpu-operator#1361)"
        )
    end = END_OF_LIFE.get(branch_of(version))
    if end is not None and end <= "2026-11":
        found.append(f"NVIDIA's support for driver branch {branch_of(version)} ended in {end}")
    return tuple(found)
