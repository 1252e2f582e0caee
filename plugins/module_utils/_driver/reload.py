# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the driver can be reloaded without a reboot and in which order (host.md, section 5.3), whom that disturbs, and whether it is done at all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .._adapters.kernel import UNLOAD_ORDER
from .._facts_view import Facts, HolderFacts
from .._plan import REBOOT_NEEDED, REBOOT_POSSIBLE, Refused, Step, awaited_reboot
from .._schema import kept
from .._users import PROCESSES_UNKNOWN, User, holders_of, merged, names, users_of
from .desired import FORCE, PREFIX, DesiredDriver
from .state import Host
from .steps import LOADS, PACKAGES

#: NVIDIA's own services that hold the driver, by unit, with the program's name as the kernel cuts it. They are stopped
#: before the driver is unloaded and started again after, in the opposite order.
SERVICES: Mapping[str, str] = {
    "nvidia-dcgm.service": "nv-hostengine",
    "dcgm.service": "nv-hostengine",
    "nvidia-imex.service": "nvidia-imex",
    "nvidia-fabricmanager.service": "nv-fabricmanage",
    "nvidia-nvlsm.service": "nvlsm",
    "nvidia-powerd.service": "nvidia-powerd",
    "nvidia-persistenced.service": "nvidia-persiste",
}

#: Modules of the kernel that the driver's modules use and that minimal kernels do not load (gpu-driver-container).
PREREQUISITES = ("i2c_core", "ipmi_msghandler")


@dataclass(frozen=True)
class Reload:
    """How the loaded driver becomes the one on disk.

    :param needed: whether it is not already.
    :param blockers: why it takes a reboot; empty when it can be reloaded.
    :param stop: units to stop first, in this order.
    :param unload: modules to unload, in this order.
    :param load: modules to load again, in this order.
    """

    needed: bool
    blockers: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    unload: tuple[str, ...] = ()
    load: tuple[str, ...] = ()


def plan_reload(
    *,
    loaded: str | None,
    wanted: str | None,
    modules: Sequence[str],
    users: Sequence[User],
    active: Sequence[str],
    nouveau_loaded: bool,
    allowed: bool,
    other_flavour: bool = False,
) -> Reload:
    """Return how to get from the loaded driver to the wanted one.

    :param loaded: version of the loaded module, or None.
    :param wanted: version on disk, or None when the driver was removed.
    :param modules: loaded modules of the driver.
    :param users: processes that have its device files open.
    :param active: units of L(SERVICES) that run.
    :param allowed: whether the user allows a reload at all.
    :param other_flavour: whether the loaded modules are of the flavour, or have the parameters, that are not wanted, whatever their version.
    """
    if loaded == wanted and not nouveau_loaded and not other_flavour:
        return Reload(False)
    stop = tuple(unit for unit in SERVICES if unit in active)
    excused = {SERVICES[unit] for unit in stop}
    blockers = [f"{user} uses the driver" for user in users if user.name[:15] not in excused]
    if nouveau_loaded and wanted is not None:
        blockers.append("nouveau holds the GPUs and cannot be unloaded while it drives a display or a console")
    if not allowed:
        blockers.append("nvidia_driver_reload is never")
    unload = tuple(name for name in UNLOAD_ORDER if name in modules)
    again = tuple(name for name in reversed(UNLOAD_ORDER) if name in {*unload, "nvidia", "nvidia_uvm"})
    load = again if wanted is not None else ()
    if loaded is None and not (nouveau_loaded and wanted is not None):
        # Nothing has to be unloaded, so nobody is in the way of loading.
        return Reload(wanted is not None, () if allowed else tuple(blockers[-1:]), (), (), load)
    return Reload(True, tuple(blockers), stop, unload, load)


def still_used(counts: Mapping[str, int | None], modules: Sequence[str]) -> tuple[str, ...]:
    """Return which modules have more users than the other modules that are about to be unloaded account for.

    NVIDIA's own rule (gpu-driver-container, _unload_driver): the module nvidia may have as many references as modules
    depend on it, the others none but those of modules above them.
    """
    dependants = {
        "nvidia": sum(1 for name in modules if name != "nvidia"),
        "nvidia_modeset": 1 if "nvidia_drm" in modules else 0,
    }
    found = []
    for name in modules:
        count = counts.get(name)
        allowed = dependants.get(name, 0)
        if count is not None and count > allowed:
            found.append(f"{name} has {count} users, {allowed} of them modules of the driver")
    return tuple(found)


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


def impact(facts: Facts, host: Host, desired: DesiredDriver) -> Impact:
    """Return who notices that the driver is changed, loaded or removed; on a bare host nobody does.

    :param facts: the facts document; its C(holders) say who has the driver open, where they were gathered.
    :param host: as these facts describe it.
    """
    holders = facts.holders
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
        count = sum(len(gpu.gpu_instances) for gpu in facts.gpus or ())
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


def gpu_users(facts: Facts) -> tuple[str, ...]:
    """Return who uses the GPUs, as people call them."""
    return names(in_use(facts))


def in_use(facts: Facts) -> tuple[User, ...]:
    """Return who uses the GPUs, as L(_in_use) finds them."""
    found: tuple[User, ...] = kept(facts, "in_use", _in_use)
    return found


def _in_use(facts: Facts) -> tuple[User, ...]:
    """Return who uses the GPUs, NVIDIA's own services of the host excepted: processes, who has the driver open, and pods that were given a GPU."""
    known = facts.holders is not None
    services = {user.pid for user in holders_of(_on_host(facts))} - {user.pid for user in driver_users(facts)}
    users = merged(*(users_of(gpu).everybody for gpu in facts.gpus or ()), driver_users(facts))
    # Whoever has the driver open is known, also where NVML tells no processes.
    return tuple(
        user for user in users if user.pid not in services - {None} and not (known and user == PROCESSES_UNKNOWN)
    )


def driver_users(facts: Facts) -> tuple[User, ...]:
    """Return the processes that nothing of the change ends: NVIDIA's own services of the host are stopped for it."""
    contained = [one for one in facts.holders or () if one.container_id]
    return merged(holders_of(contained), holders_of(_on_host(facts), excused=SERVICES.values()))


def _on_host(facts: Facts) -> list[HolderFacts]:
    return [one for one in facts.holders or () if not one.container_id]
