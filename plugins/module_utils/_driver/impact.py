# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom another driver disturbs, and whether the host has to reboot for it, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._plan import REBOOT_NEEDED, REBOOT_POSSIBLE, awaited_reboot
from .._users import User, holders_of, merged, names, users_of
from .desired import PREFIX, DesiredDriver
from .reload import SERVICES, plan_reload
from .state import Host

_EVERYBODY = "every process that uses a GPU"


@dataclass(frozen=True)
class Impact:
    """What another driver means for the host.

    :param who: for C(disturbs) of a step.
    :param reboot: for C(reboot) in the data of a step (see L(awaited_reboot)); None where none is needed.
    """

    who: tuple[str, ...] = ()
    reboot: str | None = None

    @property
    def data(self) -> dict[str, str]:
        """Return what the data of a step says of it."""
        return {"reboot": self.reboot} if self.reboot else {}


def impact(facts: Mapping[str, Any], host: Host, desired: DesiredDriver, reboot_allowed: bool) -> Impact:
    """Return who notices that the driver is changed, loaded or removed; on a bare host nobody does.

    :param facts: the facts document; its C(holders) say who has the driver open, where they were gathered.
    :param host: as these facts describe it.
    :param reboot_allowed: C(nvidia_driver_reboot).
    """
    holders = facts.get("holders")
    reload = plan_reload(
        loaded=host.loaded,
        # Any other version: what is asked is whether the loaded one can be let go of.
        wanted=None if desired.state == "absent" else "another",
        modules=host.modules,
        users=driver_users(facts),
        active=(),
        nouveau_loaded=host.nouveau_loaded and desired.state != "absent",
        allowed=desired.reload == "auto",
    )
    found = []
    if host.loaded is not None:
        found.append(_EVERYBODY)
        count = sum(len(gpu.get("gpu_instances") or ()) for gpu in facts.get("gpus") or ())
        if count:
            found.append(f"{count} MIG instances, which a reload destroys")
    if reload.blockers:
        found.append(awaited_reboot(reload.blockers, reboot_allowed, f"{PREFIX}reboot"))
        return Impact(tuple(found), REBOOT_NEEDED)
    if host.loaded is not None and holders is None:
        found.append("the host, which needs a reboot if anything but NVIDIA's services has the driver open")
        return Impact(tuple(found), REBOOT_POSSIBLE)
    return Impact(tuple(found))


def gpu_users(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return who uses the GPUs, NVIDIA's own services of the host excepted: what NVML tells, and who has the driver open, where it was looked for."""
    return names(merged(*(users_of(gpu).everybody for gpu in facts.get("gpus") or ()), driver_users(facts)))


def driver_users(facts: Mapping[str, Any]) -> tuple[User, ...]:
    """Return the processes that nothing of the change ends: NVIDIA's own services of the host are stopped for it."""
    holders = facts.get("holders") or ()
    contained = [one for one in holders if one.get("container_id")]
    others = [one for one in holders if not one.get("container_id")]
    return merged(holders_of(contained), holders_of(others, excused=SERVICES.values()))
