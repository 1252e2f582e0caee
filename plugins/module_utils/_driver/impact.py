# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom another driver disturbs, and whether the host has to reboot for it, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._plan import REBOOT_NEEDED, REBOOT_POSSIBLE, awaited_reboot
from .desired import PREFIX, DesiredDriver
from .reload import SERVICES, User, plan_reload
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
        users=[] if holders is None else _users(holders),
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
    """Return who uses the GPUs, NVIDIA's own services of the host excepted: who has the driver open, where it was looked for, and what NVML tells."""
    holders = _users(facts.get("holders") or [])
    found: dict[Any, str] = {user.pid: str(user) for user in holders}
    for process in (process for gpu in facts.get("gpus") or () for process in _processes(gpu)):
        found.setdefault(process.get("pid"), f"{process.get('name') or 'a process'} ({process.get('pid')})")
    return tuple(found.values())


def _processes(gpu: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    instances = gpu.get("gpu_instances") or ()
    parts = [part for instance in instances for part in instance.get("compute_instances") or ()]
    return [process for one in (gpu, *instances, *parts) for process in one.get("processes") or ()]


def _users(holders: list[Mapping[str, Any]]) -> list[User]:
    """Return the processes that nothing of the change ends: NVIDIA's own services of the host are stopped for it."""
    return [
        User(int(holder["pid"]), str(holder["command"]))
        for holder in holders
        if holder.get("container_id") or str(holder["command"])[:15] not in SERVICES.values()
    ]
