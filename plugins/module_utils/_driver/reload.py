# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the driver can be reloaded without a reboot, and in which order (host.md, section 5.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._adapters.kernel import UNLOAD_ORDER
from .._users import User

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

    @property
    def possible(self) -> bool:
        return self.needed and not self.blockers


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
