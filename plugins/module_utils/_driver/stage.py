# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver stage would do on a host, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._adapters.package_databases import parse_versionlock
from .._adapters.packages import Package
from .._distributions.kernels import Headers
from .._formats import module_parameters as parameters
from .._plan import Refused, StagePlan, Step
from .._steps import Kind
from .desired import DesiredDriver, from_variables
from .fabric import fabric_refusals, imex_warnings, modules_step, needs_modules, wants_fabric_manager, wants_imex
from .floors import not_judged, shortfall, warnings
from .host import Host, from_facts
from .imex import plan as plan_imex
from .impact import Impact, gpu_users, impact
from .kernel_headers import later_lacking
from .packages import DKMS, closure
from .plan import hold_names, packages_differ, source_of_runfile
from .refusals import board_refusals, board_warnings, kernel_refusals, key_refusals, source_refusals
from .selection import check_floor, names_of
from .steps import DRIVER, driver_step, hold_step, prerequisites_step, release_step

#: The driver is somebody else's, such as an image's: the later stages take it as it is.
UNMANAGED = "unmanaged"


def stage(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> StagePlan:
    """Return what the driver stage would do.

    :param facts: the facts document.
    :param desired: the variables of the role, under their full names.
    """
    if desired.get("nvidia_driver_state") == UNMANAGED:
        return StagePlan("driver", False, warnings=_unmanaged_warnings(desired))
    try:
        wanted = from_variables(desired)
        host = from_facts(facts)
    except Refused as refusal:
        return StagePlan("driver", True, refusals=(refusal,))
    if not host.gpus and wanted.state == "present" and facts.get("pci") is not None:
        return StagePlan(
            "driver", False, warnings=("there is no NVIDIA GPU on the PCI bus, so no driver is installed",)
        )
    host = from_facts(facts, holds=_held_names(host))
    noticed = impact(facts, host, wanted, bool(desired.get("nvidia_driver_reboot")))
    if wanted.state == "absent":
        steps = _absent_steps(host, noticed)
        return StagePlan("driver", bool(steps), steps, refusals=tuple(source_of_runfile(host)))
    if wanted.state == "previous":
        # What is recorded is on the host: only the module knows whether it is what is installed.
        return StagePlan(
            "driver", True, unknown="the previous package set is recorded on the host and is read when the stage runs"
        )
    return _present(host, wanted, noticed, gpu_users(facts))


def _unmanaged_warnings(desired: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    if desired.get("nvidia_driver_module_parameters") or desired.get("nvidia_driver_coherent_memory") not in (
        None,
        "default",
    ):
        found.append("nvidia_driver_state is unmanaged, so the requested module parameters are not set")
    if desired.get("nvidia_driver_imex") not in (None, "unmanaged"):
        found.append("nvidia_driver_state is unmanaged, so the requested IMEX is not set up")
    return tuple(found)


def _present(host: Host, desired: DesiredDriver, noticed: Impact, users: Sequence[str]) -> StagePlan:
    refused = [
        *board_refusals(host, desired),
        *source_refusals(host, desired),
        *key_refusals(host, desired),
        *fabric_refusals(host, desired),
    ]
    if not refused:
        # The distribution may have no driver of its own, which is told when its packages are looked for.
        refused.extend(kernel_refusals(host, desired))
    notes = [*board_warnings(host), *imex_warnings(host, desired)]
    fabric: tuple[Step, ...] = ()
    if not refused and wants_imex(host, desired):
        try:
            fabric = plan_imex(host.imex, desired.imex, users)
        except Refused as refusal:
            refused.append(refusal)
    try:
        floor = (
            check_floor(desired.version or _floor_version(host, desired), desired)
            if _floor_version(host, desired)
            else None
        )
        notes.extend([floor] if floor else [])
    except Refused as refusal:
        refused.append(refusal)
    if host.version:
        notes.extend(warnings(host.version, desired.floors))
    unknown = not_judged(desired.branch_number, desired.floors)
    if unknown is not None and unknown not in notes:
        notes.append(unknown)
    if host.secure_boot and not refused and names_of(host, desired).module == DKMS and not host.same_everywhere:
        notes.append(
            "Secure Boot is on: whether the key that signs modules is enrolled is checked when the stage runs. Where there is no key yet, the run "
            "installs dkms, creates the key and stops before the driver with instructions to enrol it"
        )
    if refused:
        return StagePlan("driver", True, refusals=tuple(refused), warnings=tuple(notes))
    why = packages_differ(host, desired)
    recorded = [item.name for item in (() if why else _later(host, desired)) if item.name in host.not_offered]
    if recorded:
        notes.append(
            f"the repositories did not offer {', '.join(recorded)} when the driver's stage last asked them with this kernel, so after a kernel "
            "update the driver has no module until its headers are installed"
        )
    steps = (*_present_steps(host, desired, why, noticed), *fabric)
    unknown = "the exact packages are known once the repository is queried" if why else None
    return StagePlan("driver", bool(steps), steps, unknown, warnings=tuple(notes))


def _floor_version(host: Host, desired: DesiredDriver) -> str:
    """Return the version whose floor can be judged without a repository: the one that was asked for, or will stay."""
    if desired.version:
        return desired.version
    installed = host.version
    allowed = desired.allow_vulnerable or installed is None or shortfall(installed, desired.floors) is None
    if installed is not None and allowed and desired.met_by(installed):
        return installed
    # Any version of a branch without fixes is refused; a branch that has a floor gets a version above it.
    return f"{desired.branch}.00" if shortfall(f"{desired.branch}.999", desired.floors) is not None else ""


def _present_steps(host: Host, desired: DesiredDriver, why: str, noticed: Impact) -> tuple[Step, ...]:
    steps: list[Step] = []
    if why:
        data = {"version": desired.version, "branch": desired.branch, **_data(noticed)}
        steps.append(driver_step(host, why, noticed.who, data))
    elif not host.same_everywhere:
        where = f"loaded: {host.loaded or 'none'}, on disk: {host.on_disk or 'none'}, library: {host.library or 'none'}"
        data = {"version": host.version, **_data(noticed)}
        steps.append(Step(Kind.LOAD_DRIVER, DRIVER, where, noticed.who, data))
    steps.extend(_parameter_steps(host, desired, noticed, reloaded=bool(steps)))
    if host.nouveau_loaded:
        steps.append(Step(Kind.BLOCK_KERNEL_MODULE, "nouveau", "it holds the GPUs, so the driver cannot use them"))
    if not why:
        steps.extend(_keeping_steps(host, desired))
    return tuple(steps)


def _parameter_steps(host: Host, desired: DesiredDriver, noticed: Impact, reloaded: bool) -> list[Step]:
    """Return the steps for the parameters of the module.

    :param reloaded: whether another step loads the driver anew anyway.
    """
    steps = []
    if dict(desired.parameters) != dict(host.configured_parameters):
        kind = Kind.WRITE_FILE if desired.parameters else Kind.REMOVE_FILE
        steps.append(Step(kind, parameters.FILE, "the module parameters differ"))
    left = parameters.differences(desired.parameters, host.loaded_parameters)
    if left and host.loaded is not None and not reloaded:
        data = {"version": host.version, **_data(noticed)}
        steps.append(Step(Kind.RELOAD_DRIVER, DRIVER, "; ".join(left), noticed.who, data))
    return steps


def _keeping_steps(host: Host, desired: DesiredDriver) -> list[Step]:
    steps = []
    # What the repositories did not have when the stage asked them would be a step in every run that no run takes.
    lacking = [item for item in _later(host, desired) if item.name not in host.not_offered]
    if lacking:
        why = "modules are built for every later kernel"
        steps.append(prerequisites_step([Package(item.name) for item in lacking], why))
    wanted, held = set(hold_names(closure(host.packages), host.kernel_packages)), set(host.holds)
    if desired.hold and wanted - held:
        steps.append(hold_step(wanted - held))
    if not desired.hold and wanted & held:
        steps.append(release_step(sorted(wanted & held), "nvidia_driver_hold is false"))
    if desired.persistence and not host.persistence_active:
        steps.append(Step(Kind.START_SERVICE, "nvidia-persistenced", "persistence mode is requested"))
    if needs_modules(host, desired) and host.lacking_modules:
        steps.append(modules_step(host.lacking_modules))
    if wants_fabric_manager(host, desired) and not (host.fabric_active and host.fabric_version == host.version):
        found = f"version {host.fabric_version}, active: {host.fabric_active}"
        steps.append(
            Step(Kind.START_SERVICE, "nvidia-fabricmanager", f"it has to run at {host.version}; found {found}")
        )
    return steps


def _later(host: Host, desired: DesiredDriver) -> tuple[Headers, ...]:
    """Return the packages with headers of later kernels that are not installed."""
    return later_lacking(host) if names_of(host, desired).module == DKMS else ()


def _absent_steps(host: Host, noticed: Impact) -> tuple[Step, ...]:
    installed = closure(host.packages)
    if not installed:
        return ()
    data = {"remove": sorted(installed), **_data(noticed)}
    return (driver_step(host, "state is absent", noticed.who, data, present=False),)


def _data(noticed: Impact) -> dict[str, Any]:
    return {"reboot": noticed.reboot} if noticed.reboot else {}


def _held_names(host: Host) -> tuple[str, ...]:
    """Return the names that are held: dnf's locks are patterns with versions, the others are names."""
    locks = parse_versionlock("\n".join(host.holds))
    return tuple(sorted({*locks, *(hold for hold in host.holds if hold in host.packages)}))
