# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host has of DCGM, as the host reads it or as its facts say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .._adapters.installed_packages import is_dcgm
from .._facts_view import Facts
from .._packages.package_set import PackageState


@dataclass(frozen=True)
class DcgmState(PackageState):
    """What a host has.

    :param active: whether the host engine runs.
    :param enabled: whether it starts at boot.
    :param driver: version of the driver on disk for the running kernel; None without one.
    """

    active: bool = False
    enabled: bool = False
    driver: str | None = None

    @property
    def held(self) -> tuple[str, ...]:
        return tuple(name for name in self.holds if is_dcgm(name))


def from_facts(facts: Facts, wanted: Iterable[str]) -> DcgmState | None:
    """Return what the facts say of a host; None where they do not say which packages it has.

    :param wanted: the packages that are to be held: holds that are not known are no reason for a step.
    """
    found = facts.dcgm
    if found is None or found.packages is None:
        return None
    return DcgmState(
        packages=found.packages,
        holds=tuple(wanted if found.holds is None else found.holds),
        active=found.active is True,
        enabled=found.enabled is True,
    )
