# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom another driver disturbs, whether the host has to reboot for it, and whether it is changed at all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._plan import REBOOT_NEEDED, REBOOT_POSSIBLE, Refused, Step, awaited_reboot
from .._users import PROCESSES_UNKNOWN, User, holders_of, merged, names, users_of
from .desired import FORCE, PREFIX, DesiredDriver
from .reload import SERVICES, plan_reload
from .state import Host
from .steps import LOADS, PACKAGES

_EVERYBODY = "every process that uses a GPU"
_LATER = f"{PREFIX}disruption: force leaves the driver to a later reboot."
_EMPTY_FIRST = f"Run gpufleet.nvidia.upgrade, which empties the host first, or let this run reboot it, whoever uses it ({PREFIX}reboot: true). {_LATER}"
_REBOOT = f"Set {PREFIX}reboot: true, which reboots the host in the run. {_LATER}"


@dataclass(frozen=True)
class Impact:
    """What another driver means for the host.

    :param who: for C(disturbs) of a step.
    :param reboot: for C(reboot) in the data of a step (see L(awaited_reboot)); None where none is needed.
    :param users: who uses the driver that is loaded, as people call them.
    :param blockers: why it cannot be reloaded.
    """

    who: tuple[str, ...] = ()
    reboot: str | None = None
    users: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()

    @property
    def data(self) -> dict[str, str]:
        """Return what the data of a step says of it."""
        return {"reboot": self.reboot} if self.reboot else {}


def impact(facts: Mapping[str, Any], host: Host, desired: DesiredDriver) -> Impact:
    """Return who notices that the driver is changed, loaded or removed; on a bare host nobody does.

    :param facts: the facts document; its C(holders) say who has the driver open, where they were gathered.
    :param host: as these facts describe it.
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
    users = gpu_users(facts) if host.loaded is not None else ()
    if host.loaded is not None:
        found.append(_EVERYBODY)
        found += [user for user in users if user.startswith("pod ")]
        count = sum(len(gpu.get("gpu_instances") or ()) for gpu in facts.get("gpus") or ())
        if count:
            found.append(f"{count} MIG instances, which a reload destroys")
    if reload.blockers:
        found.append(awaited_reboot(reload.blockers, desired.reboot, f"{PREFIX}reboot"))
        return Impact(tuple(found), REBOOT_NEEDED, users, reload.blockers)
    if host.loaded is not None and holders is None:
        found.append("the host, which needs a reboot if anything but NVIDIA's services has the driver open")
        return Impact(tuple(found), REBOOT_POSSIBLE, users)
    return Impact(tuple(found), None, users)


def disruption_refusals(
    host: Host, desired: DesiredDriver, version: str, steps: Iterable[Step], noticed: Impact
) -> list[Refused]:
    """Return why the driver is not changed now: somebody uses the one that is loaded, or the other could not be loaded in the same run.

    :param version: that the packages come to; empty where it is not known yet.
    """
    kinds = {step.kind for step in steps}
    other_flavour = desired.state == "present" and host.flavour not in (None, desired.flavour)
    another = bool(kinds & PACKAGES) and (not version or version != host.loaded or other_flavour)
    if desired.disruption == FORCE or desired.reboot or not (another or kinds & LOADS):
        return []
    if not noticed.users and not noticed.blockers:
        return []
    if host.loaded is None:
        return [Refused("the driver", f"it could not be loaded in this run: {'; '.join(noticed.blockers)}", _REBOOT)]
    mixed = host.versions and host.loaded not in host.versions
    loaded = (
        f"the packages are of driver {', '.join(host.versions)}, and driver {host.loaded}"
        if mixed
        else f"driver {host.loaded}"
    )
    used = (
        f"is in use by {', '.join(noticed.users)}"
        if noticed.users
        else f"cannot be unloaded: {'; '.join(noticed.blockers)}"
    )
    return [Refused("the driver", f"{loaded} is loaded and {used}", _EMPTY_FIRST if noticed.users else _REBOOT)]


def gpu_users(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return who uses the GPUs, as people call them."""
    return names(in_use(facts))


def in_use(facts: Mapping[str, Any]) -> tuple[User, ...]:
    """Return who uses the GPUs, NVIDIA's own services of the host excepted: processes, who has the driver open, and pods that were given a GPU."""
    known = facts.get("holders") is not None
    services = {user.pid for user in holders_of(_on_host(facts))} - {user.pid for user in driver_users(facts)}
    users = merged(*(users_of(gpu).everybody for gpu in facts.get("gpus") or ()), driver_users(facts))
    # Whoever has the driver open is known, also where NVML tells no processes.
    return tuple(
        user for user in users if user.pid not in services - {None} and not (known and user == PROCESSES_UNKNOWN)
    )


def driver_users(facts: Mapping[str, Any]) -> tuple[User, ...]:
    """Return the processes that nothing of the change ends: NVIDIA's own services of the host are stopped for it."""
    contained = [one for one in facts.get("holders") or () if one.get("container_id")]
    return merged(holders_of(contained), holders_of(_on_host(facts), excused=SERVICES.values()))


def _on_host(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in facts.get("holders") or () if not one.get("container_id")]
