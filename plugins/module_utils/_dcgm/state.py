# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host has of DCGM, as the host reads it or as its facts say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._adapters.installed_packages import is_dcgm
from .._versions import product_version


@dataclass(frozen=True)
class DcgmState:
    """What a host has.

    :param packages: versions of the installed packages of DCGM, by name.
    :param holds: names that the package manager holds.
    :param interrupted: packages that an earlier transaction left half done.
    :param missing_for_holds: packages that the package manager needs to hold others, and that are not installed.
    :param active: whether the host engine runs.
    :param enabled: whether it starts at boot.
    :param driver: version of the driver on disk for the running kernel; None without one.
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    holds: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()
    missing_for_holds: tuple[str, ...] = ()
    active: bool = False
    enabled: bool = False
    driver: str | None = None

    @property
    def held(self) -> tuple[str, ...]:
        """Return which packages of DCGM are held: also those that are gone, whose locks keep new ones out."""
        return tuple(name for name in self.holds if is_dcgm(name))

    def differing(self, wanted: Iterable[str], version: str) -> dict[str, str]:
        """Return which of the wanted packages are not at C(version), with what is installed (empty for nothing)."""
        installed = {name: self.packages.get(name, "") for name in wanted}
        return {name: found for name, found in installed.items() if product_version(found) != version}


def from_facts(facts: Mapping[str, Any], wanted: Iterable[str]) -> DcgmState | None:
    """Return what the facts say of a host; None where they do not say which packages it has.

    :param wanted: the packages that are to be held: holds that are not known are no reason for a step.
    """
    found = facts.get("dcgm") or {}
    if found.get("packages") is None:
        return None
    holds = found.get("holds")
    return DcgmState(
        packages=found["packages"],
        holds=tuple(wanted if holds is None else holds),
        active=found.get("active") is True,
        enabled=found.get("enabled") is True,
    )
