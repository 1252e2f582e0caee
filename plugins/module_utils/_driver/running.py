# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to be done for the installed driver to run as wanted: planned by the stage from facts, and by the module before and after it changes
what runs, where it has looked at more than the facts have. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .._formats import module_parameters as parameters
from .._formats.host_names import FABRIC_UNIT, PERSISTENCE_UNIT
from .._plan import Step
from .._steps import Kind
from .desired import PREFIX, DesiredDriver
from .fabric import MODULES_FILE, imex_steps, modules_step, needs_modules, wanted_imex, wants_fabric_manager
from .packages import DKMS
from .reload import Impact
from .selection import names_of
from .state import Host
from .steps import DRIVER, MARK

PERSISTENCE_DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/50-gpufleet.conf"
NOUVEAU_FILE = "/etc/modprobe.d/gpufleet-nouveau.conf"
NOUVEAU_TEXT = f"{MARK}blacklist nouveau\noptions nouveau modeset=0\n"


@dataclass(frozen=True)
class DriverUnit:
    """A service that exists on the host. C(at_boot): whether it is started at boot. C(masked): whether nothing can start it."""

    active: bool
    at_boot: bool = True
    masked: bool = False


@dataclass(frozen=True)
class Seen:
    """What plans of what runs are made of besides the facts.

    :param nouveau_blocked: whether the configuration of modprobe keeps nouveau out; None where there is no modprobe.
    :param modules_at_boot: whether the kernel modules of NVLink 5 are loaded at boot.
    :param drop_in: whether the drop-in of the persistence daemon is as wanted.
    :param units: services of the driver that exist.
    :param files: what the collection has written for the driver, which goes with it.
    :param reboot: why only a reboot loads the driver on disk: what follows its load is planned behind it then.
    """

    nouveau_blocked: bool | None = True
    modules_at_boot: bool = True
    drop_in: bool = True
    units: Mapping[str, DriverUnit] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    reboot: tuple[str, ...] = ()


def seen_in_facts(host: Host) -> Seen:
    """Return what the facts tell of it. Whether anything blocks nouveau is not in them; where it is loaded, it has to be."""
    active = {FABRIC_UNIT: host.fabric_active}
    if host.persistence_installed:
        active[PERSISTENCE_UNIT] = host.persistence_active
    units = {name: DriverUnit(bool(runs), masked=name in host.masked) for name, runs in active.items()}
    return Seen(not host.nouveau_loaded, units=units)


def plan_running(
    host: Host, desired: DesiredDriver, noticed: Impact, users: Sequence[str], changes: bool, seen: Seen
) -> tuple[Step, ...]:
    """Return the steps that have the installed driver run as wanted, or take away what the collection wrote for one that goes.

    :param noticed: whom a reload disturbs.
    :param users: processes that use the GPUs, for people.
    :param changes: whether packages change first, which brings the driver and its services by itself.
    :raises Refused: IMEX would have to stop under somebody.
    """
    if desired.state == "absent":
        unloading = [reload_step(host, desired, (), noticed)] if host.loaded else []
        return (*removal_steps(seen.files), *unloading)
    steps = nouveau_steps(host, seen.nouveau_blocked)
    if not changes:
        steps.extend(fabric_steps(host, desired, seen.modules_at_boot))
    steps.extend(parameter_steps(host, desired))
    if not seen.drop_in:
        why = "the distribution's unit does not keep GPUs initialised"
        steps.append(Step(Kind.CHANGE_FILE, PERSISTENCE_DROP_IN, why))
    if not changes:
        others = other_build(host, desired)
        if others or not host.same_everywhere:
            steps.append(reload_step(host, desired, others, noticed))
    if seen.reboot:
        return tuple(steps)
    if not changes:
        steps.extend(service_steps(host, desired, seen.units))
    wanted = wanted_imex(host, desired)
    if wanted is not None:
        steps.extend(imex_steps(host.imex, wanted, users))
    return tuple(steps)


def removal_steps(files: Sequence[str]) -> list[Step]:
    """Return the steps that remove what the collection has written for the driver."""
    steps = [Step(Kind.REMOVE_FILE, path, "state is absent") for path in files]
    return [*steps, *([initramfs_step("it contains the block of nouveau")] if NOUVEAU_FILE in files else [])]


def nouveau_steps(host: Host, blocked: bool | None) -> list[Step]:
    """Return the steps that keep nouveau from the GPUs. C(blocked): whether the configuration of modprobe does so; None where there is no modprobe."""
    if blocked is None or (blocked and not host.nouveau_loaded):
        return []
    why = "it holds the GPUs, so the driver cannot use them" if host.nouveau_loaded else "no package blocks it"
    block = [] if blocked else [Step(Kind.BLOCK_KERNEL_MODULE, "nouveau", why)]
    return [*block, initramfs_step("nouveau is loaded from it before the block is read")]


def initramfs_step(why: str) -> Step:
    return Step(Kind.RENEW_INITRAMFS, "initramfs", why)


def parameter_steps(host: Host, desired: DesiredDriver) -> list[Step]:
    if dict(desired.parameters) == dict(host.configured_parameters):
        return []
    kind = Kind.WRITE_FILE if desired.parameters else Kind.REMOVE_FILE
    return [
        Step(kind, parameters.FILE, "the module parameters differ"),
        initramfs_step("a module in it reads its parameters from this file"),
    ]


def fabric_steps(host: Host, desired: DesiredDriver, at_boot: bool) -> list[Step]:
    """Return the steps that load the kernel modules of NVLink 5. C(at_boot): whether they are loaded at boot."""
    if not needs_modules(host, desired):
        return []
    why = "the fabric manager needs these modules after a reboot too"
    file = [] if at_boot else [Step(Kind.CREATE_FILE, MODULES_FILE, why)]
    return [*file, *([modules_step(host.lacking_modules)] if host.lacking_modules else [])]


def other_build(host: Host, desired: DesiredDriver) -> list[str]:
    """Return how the loaded driver differs from the wanted one besides its version."""
    if host.loaded is None or desired.state != "present":
        return []
    flavour = [f"the {host.flavour} kernel modules are loaded"] if host.flavour not in (None, desired.flavour) else []
    shown, known = host.loaded_parameters, host.configured_parameters
    looked_up = [one for one in desired.parameters if one[0] in shown or one[0] in known]
    # The facts have of the loaded module only the parameters that the file sets.
    new = [f"{name} was not set when the driver was loaded" for name, _value in desired.parameters if name not in known]
    return [*flavour, *parameters.differences(looked_up, shown), *new]


def reload_step(host: Host, desired: DesiredDriver, others: Sequence[str], noticed: Impact) -> Step:
    """Return the step that loads the driver on disk in place of the loaded one, or unloads one that was removed.

    :param others: what L(other_build) returned.
    """
    absent = desired.state == "absent"
    kind = Kind.UNLOAD_DRIVER if absent else Kind.RELOAD_DRIVER if host.loaded else Kind.LOAD_DRIVER
    version = host.loaded if absent else host.on_disk or host.version or host.loaded
    where = f"loaded: {host.loaded or 'none'}, on disk: {host.on_disk or 'none'}, library: {host.library or 'none'}"
    unbuilt = "" if absent else not_built(host, desired)
    why = "; ".join(others) if others and host.same_everywhere else f"{where}; {unbuilt}" if unbuilt else where
    return Step(kind, DRIVER, why, noticed.who, {"version": version, **noticed.data})


def mismatch(host: Host) -> str:
    """Return that the loaded module is of another driver than the packages, and what leads on: another run of C(site) alone does not."""
    return (
        f"The packages are of driver {', '.join(host.versions) or 'none'} and the loaded module is of {host.loaded}: reboot the host, or run "
        f"gpufleet.nvidia.upgrade, which empties it first and loads the driver on disk (gpufleet.nvidia.site does so with {PREFIX}reboot: true)"
    )


def not_built(host: Host, desired: DesiredDriver) -> str:
    """Return why the running kernel has no module of the installed driver, or an empty string where it has one."""
    if host.version is None or host.on_disk == host.version:
        return ""
    if desired.state == "present" and names_of(host, desired).module != DKMS:
        return f"the package with the modules of kernel {host.kernel} is missing"
    builds = [build for build in host.builds if build.version == host.version and build.kernel in (None, host.kernel)]
    if any(build.state == "broken" for build in builds):
        return f"DKMS built an empty file, see /var/lib/dkms/nvidia*/{host.version}/build/make.log"
    if not host.headers:
        return f"DKMS built nothing because the headers of kernel {host.kernel} are not installed"
    states = ", ".join(sorted({str(build.state) for build in builds})) or "unknown to DKMS"
    return f"the state of the build for kernel {host.kernel} is {states}"


def wanted_units(host: Host, desired: DesiredDriver) -> tuple[str, ...]:
    """Return the services of the driver that have to run."""
    fabric = (FABRIC_UNIT,) if wants_fabric_manager(host, desired) else ()
    return (*((PERSISTENCE_UNIT,) if desired.persistence else ()), *fabric)


def service_steps(host: Host, desired: DesiredDriver, units: Mapping[str, DriverUnit]) -> list[Step]:
    """Return the steps that have the services of the driver run, now and after a reboot. C(units): those of L(wanted_units) that exist."""
    steps = []
    for name in wanted_units(host, desired):
        unit = units.get(name)
        if unit is None:
            continue
        if unit.masked:
            steps.append(Step(Kind.UNMASK_SERVICE, name, "it has to run"))
        if not unit.at_boot:
            steps.append(Step(Kind.ENABLE_SERVICE, name, "it has to run after a reboot too"))
        if not unit.active:
            steps.append(Step(Kind.START_SERVICE, name, "it has to run and does not"))
        elif name == FABRIC_UNIT and host.fabric_version not in (None, host.on_disk):
            why = f"it is of version {host.fabric_version}, not {host.on_disk}"
            steps.append(Step(Kind.RESTART_SERVICE, name, why))
    return steps


def persistence_drop_in(unit: str) -> str | None:
    """Return the drop-in that makes a persistence daemon's unit really persistent, or None where it already is.

    Ubuntu's unit starts the daemon with C(--no-persistence-mode) and stops it when nothing needs it (host.md, section 4).

    :param unit: what C(systemctl cat) prints without our own drop-in.
    """
    commands = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    command = commands[-1].strip() if commands else ""
    not_persistent = "--no-persistence-mode" in command.split()
    stops = re.search(r"^StopWhenUnneeded=(?:true|yes|on|1)\s*$", unit, re.MULTILINE | re.IGNORECASE) is not None
    if not (not_persistent or stops):
        return None
    lines = [MARK.rstrip("\n")]
    if stops:
        lines += ["[Unit]", "StopWhenUnneeded=false"]
    if not_persistent:
        persistent = " ".join(
            "--persistence-mode" if word == "--no-persistence-mode" else word for word in command.split()
        )
        lines += ["[Service]", "ExecStart=", f"ExecStart={persistent}"]
    return "\n".join(lines) + "\n"


def without_drop_in(text: str) -> str:
    """Return what C(systemctl cat) printed without the part that comes from L(PERSISTENCE_DROP_IN)."""
    parts = re.split(r"(?m)^(?=# /)", text)
    return "".join(part for part in parts if not part.startswith(f"# {PERSISTENCE_DROP_IN}\n"))


def has_install_section(text: str) -> bool:
    """Return whether a unit can be enabled by itself; Ubuntu's cannot."""
    return re.search(r"^\[Install\]", text, re.MULTILINE) is not None
