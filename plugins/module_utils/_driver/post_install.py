# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What comes after the packages: nouveau, the persistence daemon, the fabric manager, IMEX, and the reload of the driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .._formats import host_names
from .._formats import module_parameters as parameters
from .._formats.host_names import FABRIC_UNIT, IMEX_UNIT, PERSISTENCE_UNIT, wants_link
from .._plan import REBOOT_NEEDED, Plan, Refused, Step
from .._steps import Kind
from .desired import DesiredDriver
from .dkms import TOOLCHAIN_ENVIRONMENT, TOOLCHAIN_FILE
from .fabric import MODULES_FILE, MODULES_TEXT, wanted_imex
from .reload import PREREQUISITES, SERVICES, Impact, Reload, plan_reload, still_used
from .running import (
    NOUVEAU_FILE,
    NOUVEAU_TEXT,
    PERSISTENCE_DROP_IN,
    DriverUnit,
    Seen,
    has_install_section,
    other_build,
    persistence_drop_in,
    plan_running,
    reload_step,
    wanted_units,
    without_drop_in,
)
from .state import Host
from .steps import LOADS
from .system import DriverSystem


class PostInstall:
    """Makes what runs what is installed.

    :ivar noticed: whom the last plan disturbs, and what keeps the driver from being reloaded.
    :ivar reboot: why only a reboot loads the driver on disk, as far as it is known; empty where none is needed.
    :ivar problems: what failed and a reboot would not mend.
    :ivar done: the steps that were carried out.
    """

    def __init__(self, system: DriverSystem, desired: DesiredDriver) -> None:
        self._system = system
        self._desired = desired
        self.noticed = Impact()
        self.reboot: tuple[str, ...] = ()
        self.problems: list[str] = []
        self.done: list[Step] = []

    @property
    def is_removal(self) -> bool:
        return self._desired.state == "absent"

    def plan(self, host: Host, changes: bool = False) -> Plan:
        """Return the steps on a host whose packages are as wanted. C(changes): whether its packages are not known yet, for check mode."""
        reload = self._reload(host)
        self.reboot = self.reboot or reload.blockers
        told = {"reboot": REBOOT_NEEDED} if self.reboot else {}
        disturbed = (*reload.stop, "MIG instances, which do not survive a reload") if host.loaded else ()
        users = tuple(str(user) for user in self._system.users() if user.name[:15] not in SERVICES.values())
        self.noticed = noticed = Impact((*disturbed, *self.reboot), told.get("reboot"), users, self.reboot)
        seen = self._look(host)
        try:
            return Plan(plan_running(host, self._desired, noticed, users, changes, seen))
        except Refused as refused:
            # Of IMEX alone. What else there is to do is done.
            self.problems.append(refused.message)
            others = replace(self._desired, imex=replace(self._desired.imex, mode="unmanaged"))
            return Plan(plan_running(host, others, noticed, users, changes, seen))

    def awaits_reboot(self, step: Step) -> bool:
        """Return whether a step that is left has to wait for a reboot: nouveau goes with it, too."""
        return bool(self.reboot) and step.kind in LOADS | {Kind.RENEW_INITRAMFS}

    def apply(self, plan: Plan, host: Host) -> None:
        """Carry the steps out in their order, as far as no reboot has to come first."""
        restarted = [step.target for step in plan.steps if step.kind is Kind.RESTART_SERVICE]
        failed: set[str] = set()
        after_load = False
        for step in plan.steps:
            if step.kind in LOADS:
                after_load = True
                self._load(host)
                self.done += [] if self.reboot else [step]
                continue
            if after_load and self.reboot:
                break
            self.done.append(step)
            if step.kind is Kind.LOAD_KERNEL_MODULES:
                # The fabric manager does not start without them, and its failure would hide why.
                failed |= {FABRIC_UNIT} if self._load_modules(host.lacking_modules) else set()
            elif step.target not in failed:
                if step.target == host_names.IMEX_NODES_FILE and IMEX_UNIT in restarted:
                    # A run that is cut off behind the file leaves a service that does not run, which the next run sees.
                    self._system.stop(IMEX_UNIT)
                self._take(step, host)

    def reload(self, host: Host) -> None:
        """Load the driver on disk and nothing else, or note why that takes a reboot."""
        if self._reload(host).needed:
            step = reload_step(host, self._desired, other_build(host, self._desired), Impact())
            self.apply(Plan((step,)), host)

    def _take(self, step: Step, host: Host) -> None:
        system, target = self._system, step.target
        if step.kind is Kind.BLOCK_KERNEL_MODULE:
            system.write_file(NOUVEAU_FILE, NOUVEAU_TEXT)
        elif step.kind is Kind.RENEW_INITRAMFS:
            system.renew_initramfs([part.replace("{kernel}", host.kernel) for part in host.distribution.initramfs])
        elif step.kind in (Kind.WRITE_FILE, Kind.CREATE_FILE, Kind.CHANGE_FILE, Kind.REMOVE_FILE):
            system.write_file(target, None if step.kind is Kind.REMOVE_FILE else self._text(target, host))
            if target.startswith("/etc/systemd/"):
                try:
                    system.reload_unit(PERSISTENCE_UNIT)
                except Refused as refused:
                    self.problems.append(refused.message)
        elif step.kind is Kind.ENABLE_SERVICE:
            (system.enable if has_install_section(system.unit_text(target)) else system.add_wants)(target)
        else:
            change = {
                Kind.START_SERVICE: system.start,
                Kind.RESTART_SERVICE: system.restart,
                Kind.MASK_SERVICE: system.mask,
                Kind.UNMASK_SERVICE: system.unmask,
            }[step.kind]
            try:
                change(target)
            except Refused as refused:
                self.problems.append(refused.message)

    def _text(self, path: str, host: Host) -> str | None:
        """Return what a file of the driver has to say."""
        if path == host_names.IMEX_NODES_FILE:
            wanted = wanted_imex(host, self._desired)
            return wanted.text if wanted else None
        if path == PERSISTENCE_DROP_IN:
            return self._drop_in()[1]
        return parameters.text_of(self._desired.parameters) if path == parameters.FILE else MODULES_TEXT

    def _look(self, host: Host) -> Seen:
        """Return what the facts do not have."""
        system = self._system
        if self._desired.state == "absent":
            links = map(wants_link, (PERSISTENCE_UNIT, FABRIC_UNIT))
            imex = (
                (host_names.IMEX_NODES_FILE, host_names.IMEX_MASK, host_names.IMEX_WANTS)
                if self._desired.imex.managed
                else ()
            )
            written = (PERSISTENCE_DROP_IN, NOUVEAU_FILE, MODULES_FILE, TOOLCHAIN_FILE, TOOLCHAIN_ENVIRONMENT)
            names = (*written, parameters.FILE, *links, *imex)
            return Seen(files=tuple(filter(system.has_file, names)))
        units = {
            name: DriverUnit(
                bool(system.active_units([name])),
                system.unit_enabled(name) or system.unit_wanted_at_boot(name),
                name in host.masked,
            )
            for name in wanted_units(host, self._desired)
            if system.unit_exists(name) or name in host.masked
        }
        shown, wanted = self._drop_in()
        there = system.has_file(MODULES_FILE)
        return Seen(system.is_blocked("nouveau"), there, shown == wanted, units, reboot=self.reboot)

    def _drop_in(self) -> tuple[str | None, str | None]:
        """Return the drop-in of the persistence daemon as it is, None for none, and as it is wanted."""
        if not self._system.unit_exists(PERSISTENCE_UNIT):
            return None, None
        shown = self._system.unit_text(PERSISTENCE_UNIT)
        wanted = persistence_drop_in(without_drop_in(shown)) if self._desired.persistence else None
        if f"# {PERSISTENCE_DROP_IN}\n" not in shown:
            return None, wanted
        return wanted if wanted is not None and wanted.strip() in shown else "another", wanted

    def _load_modules(self, names: Iterable[str]) -> bool:
        """Load the kernel modules of NVLink 5; return whether one of them failed."""
        complaints = {name: self._system.load(name) for name in names}
        for name, complaint in complaints.items():
            if complaint:
                self.problems.append(
                    f"the kernel module {name} of NVLink 5 cannot be loaded: {complaint}; boot a kernel that has it (Ubuntu: install "
                    "linux-modules-extra of the kernel) and run again"
                )
        return any(complaints.values())

    def _reload(self, host: Host) -> Reload:
        return plan_reload(
            loaded=host.loaded,
            wanted=None if self._desired.state == "absent" else host.on_disk,
            modules=self._system.modules(),
            users=self._system.users(),
            active=self._system.active_units(list(SERVICES)),
            nouveau_loaded=host.nouveau_loaded and self._desired.state != "absent",
            allowed=self._desired.reload == "auto",
            other_flavour=bool(other_build(host, self._desired)),
        )

    def _load(self, host: Host) -> None:
        """Load the driver on disk without a reboot, or note why that takes one."""
        reload = self._reload(host)
        self.reboot = self.reboot or reload.blockers
        if self.reboot or not reload.needed:
            return
        for unit in reload.stop:
            self._system.stop(unit)
        busy = self._still_busy(reload) or self._unload(reload)
        if busy:
            self.reboot = tuple(busy)
            self._start_again(reload)
            return
        if reload.load:
            for name in PREREQUISITES:
                if self._system.module_exists(name, host.kernel):
                    self._system.load(name)
            complaint = self._system.load("nvidia")
            if complaint:
                self.problems.append(f"the driver could not be loaded: {complaint}")
            for name in reload.load:
                if name != "nvidia" and not complaint:
                    self._system.load(name)
        self._start_again(reload)

    def _still_busy(self, reload: Reload) -> list[str]:
        users = [f"{user} uses the driver" for user in self._system.users()]
        return users or list(still_used(self._system.reference_counts(reload.unload), reload.unload))

    def _unload(self, reload: Reload) -> list[str]:
        done: list[str] = []
        for name in reload.unload:
            complaint = self._system.unload(name)
            if complaint:
                # What was unloaded is loaded again, so that a host that cannot reload is left as it was.
                for again in reversed(done):
                    self._system.load(again)
                return [f"{name} could not be unloaded: {complaint}"]
            done.append(name)
        return []

    def _start_again(self, reload: Reload) -> None:
        if self._desired.state == "absent":
            return
        for unit in reversed(reload.stop):
            if self._system.unit_exists(unit):
                self._system.start(unit)
