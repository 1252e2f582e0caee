# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to be done for the installed driver to run as wanted: the steps that the stage plans from facts, and the module takes behind the
packages, where it has looked at more than the facts have. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._formats import module_parameters as parameters
from .._formats.unit_names import FABRIC_UNIT, PERSISTENCE_UNIT
from .._plan import Step
from .._steps import Kind
from .desired import DesiredDriver
from .fabric import MODULES_FILE, modules_step, needs_modules, wanted_imex, wants_fabric_manager
from .imex import plan as plan_imex
from .impact import Impact
from .state import Host
from .steps import DRIVER


@dataclass(frozen=True)
class Unit:
    """A service that exists on the host."""

    active: bool
    at_boot: bool = True


def plan_running(
    host: Host, desired: DesiredDriver, noticed: Impact, users: Sequence[str], changes: bool
) -> tuple[Step, ...]:
    """Return the steps as far as the facts tell them.

    :param noticed: whom a reload disturbs.
    :param users: processes that use the GPUs, for people.
    :param changes: whether packages change first, which brings the driver and its services by itself.
    :raises Refused: IMEX would have to stop under somebody.
    """
    # Whether anything blocks nouveau is not in the facts; where it is loaded, it has to be.
    steps = nouveau_steps(host, not host.nouveau_loaded)
    if not changes:
        steps.extend(fabric_steps(host, desired, True))
    steps.extend(parameter_steps(host, desired))
    if not changes:
        others = other_build(host, desired)
        if others or not host.same_everywhere:
            steps.append(reload_step(host, desired, others, noticed.who, noticed.data))
        steps.extend(service_steps(host, desired, _units(host)))
    wanted = wanted_imex(host, desired)
    if wanted is not None:
        steps.extend(plan_imex(host.imex, wanted, users))
    return tuple(steps)


def nouveau_steps(host: Host, blocked: bool | None) -> list[Step]:
    """Return the steps that keep nouveau from the GPUs.

    :param blocked: whether the configuration of modprobe does so; None where there is no modprobe.
    """
    if blocked is None or (blocked and not host.nouveau_loaded):
        return []
    why = "it holds the GPUs, so the driver cannot use them" if host.nouveau_loaded else "no package blocks it"
    block = [] if blocked else [Step(Kind.BLOCK_KERNEL_MODULE, "nouveau", why)]
    return [*block, initramfs_step("nouveau is loaded from it before the block is read")]


def initramfs_step(why: str) -> Step:
    """Return the step that builds the initramfs anew."""
    return Step(Kind.RENEW_INITRAMFS, "initramfs", why)


def parameter_steps(host: Host, desired: DesiredDriver) -> list[Step]:
    """Return the steps that write the parameters of the module."""
    if dict(desired.parameters) == dict(host.configured_parameters):
        return []
    kind = Kind.WRITE_FILE if desired.parameters else Kind.REMOVE_FILE
    return [
        Step(kind, parameters.FILE, "the module parameters differ"),
        initramfs_step("a module in it reads its parameters from this file"),
    ]


def fabric_steps(host: Host, desired: DesiredDriver, at_boot: bool) -> list[Step]:
    """Return the steps that load the kernel modules of NVLink 5.

    :param at_boot: whether they are loaded at boot.
    """
    if not needs_modules(host, desired):
        return []
    why = "the fabric manager needs these modules after a reboot too"
    file = [] if at_boot else [Step(Kind.CREATE_FILE, MODULES_FILE, why)]
    return [*file, *([modules_step(host.lacking_modules)] if host.lacking_modules else [])]


def other_build(host: Host, desired: DesiredDriver, written: bool = False) -> list[str]:
    """Return how the loaded driver differs from the wanted one besides its version.

    :param written: whether the parameters have just been written: one that the loaded module does not have then, no reload brings.
    """
    if host.loaded is None or desired.state != "present":
        return []
    flavour = [f"the {host.flavour} kernel modules are loaded"] if host.flavour not in (None, desired.flavour) else []
    shown, known = host.loaded_parameters, host.configured_parameters
    looked_up = [one for one in desired.parameters if one[0] in shown or (one[0] in known and not written)]
    # The facts have of the loaded module only the parameters that the file sets.
    new = [f"{name} was not set when the driver was loaded" for name, _value in desired.parameters if name not in known]
    return [*flavour, *parameters.differences(looked_up, shown), *new]


def reload_step(
    host: Host, desired: DesiredDriver, others: Sequence[str], disturbs: Sequence[str], data: Mapping[str, Any]
) -> Step:
    """Return the step that loads the driver on disk in place of the loaded one, or unloads one that was removed.

    :param others: what L(other_build) returned.
    """
    absent = desired.state == "absent"
    kind = Kind.UNLOAD_DRIVER if absent else Kind.RELOAD_DRIVER if host.loaded else Kind.LOAD_DRIVER
    version = host.loaded if absent else host.on_disk or host.version or host.loaded
    where = f"loaded: {host.loaded or 'none'}, on disk: {host.on_disk or 'none'}, library: {host.library or 'none'}"
    why = "; ".join(others) if others and host.same_everywhere else where
    return Step(kind, DRIVER, why, tuple(disturbs), {"version": version, **data})


def wanted_units(host: Host, desired: DesiredDriver) -> tuple[str, ...]:
    """Return the services of the driver that have to run."""
    fabric = (FABRIC_UNIT,) if wants_fabric_manager(host, desired) else ()
    return (*((PERSISTENCE_UNIT,) if desired.persistence else ()), *fabric)


def service_steps(host: Host, desired: DesiredDriver, units: Mapping[str, Unit]) -> list[Step]:
    """Return the steps that have the services of the driver run, now and after a reboot.

    :param units: those of L(wanted_units) that exist.
    """
    steps = []
    for name in wanted_units(host, desired):
        unit = units.get(name)
        if unit is None:
            continue
        if not unit.at_boot:
            steps.append(Step(Kind.ENABLE_SERVICE, name, "it has to run after a reboot too"))
        if not unit.active:
            steps.append(Step(Kind.START_SERVICE, name, "it has to run and does not"))
        elif name == FABRIC_UNIT and host.fabric_version not in (None, host.on_disk):
            why = f"it is of version {host.fabric_version}, not {host.on_disk}"
            steps.append(Step(Kind.RESTART_SERVICE, name, why))
    return steps


def _units(host: Host) -> dict[str, Unit]:
    """Return the services as the facts tell them; they do not say which ones start at boot."""
    persistence = {PERSISTENCE_UNIT: Unit(bool(host.persistence_active))} if host.persistence_installed else {}
    return {**persistence, FABRIC_UNIT: Unit(bool(host.fabric_active))}
