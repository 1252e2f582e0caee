# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What comes after the packages: nouveau, the persistence daemon, the fabric manager, and the reload of the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from .._formats import imex_files
from .._formats import module_parameters as parameters
from .._formats.unit_names import FABRIC_UNIT, IMEX_UNIT, PERSISTENCE_UNIT, wants_link
from .._plan import Refused, Step
from .._steps import Kind
from .desired import DesiredDriver
from .dkms import TOOLCHAIN_ENVIRONMENT, TOOLCHAIN_FILE
from .fabric import MODULES_FILE, MODULES_TEXT, wanted_imex
from .imex import plan as plan_imex
from .reload import PREREQUISITES, SERVICES, Reload, plan_reload, still_used
from .running import (
    Unit,
    fabric_steps,
    initramfs_step,
    nouveau_steps,
    other_build,
    parameter_steps,
    reload_step,
    service_steps,
    wanted_units,
)
from .services import (
    NOUVEAU_FILE,
    NOUVEAU_TEXT,
    PERSISTENCE_DROP_IN,
    has_install_section,
    persistence_drop_in,
    without_drop_in,
)
from .state import Host
from .system import DriverSystem


@dataclass
class PostInstallOutcome:
    """What was done after the packages.

    :param steps: in the order in which they were done.
    :param reboot: why a reboot is needed; empty when none is.
    :param problems: what failed and a reboot would not mend.
    """

    steps: list[Step] = field(default_factory=list)
    reboot: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class PostInstall:
    """Makes what runs what is installed; in check mode it only says what it would do."""

    def __init__(self, system: DriverSystem, desired: DesiredDriver, check: bool) -> None:
        self._system = system
        self._desired = desired
        self._check = check
        self.outcome = PostInstallOutcome()

    def run(self, host: Host) -> PostInstallOutcome:
        """Settle a host whose packages are as wanted; C(host) was read after they were installed."""
        if self._desired.state != "absent":
            self._block_nouveau(host)
            self._fabric_modules(host)
            host = self._parameters(host)
            changed = self._persistence_files()
        else:
            changed = self._remove_files(host)
        if changed and not self._check:
            try:
                self._system.reload_unit(PERSISTENCE_UNIT)
            except Refused as refused:
                self.outcome.problems.append(refused.message)
        self.reload(host)
        if self._desired.state != "absent":
            self._services(host)
            self._imex(host)
        return self.outcome

    def _do(self, step: Step) -> bool:
        """Note a step; return whether it is to be carried out."""
        self.outcome.steps.append(step)
        return not self._check

    def _take(self, steps: Iterable[Step], actions: Mapping[Kind, Callable[[], object]]) -> None:
        """Note the steps, and carry them out in their order."""
        for step in steps:
            if self._do(step):
                actions[step.kind]()

    def _renew_initramfs(self, host: Host) -> None:
        self._system.renew_initramfs([part.replace("{kernel}", host.kernel) for part in host.distribution.initramfs])

    def _block_nouveau(self, host: Host) -> None:
        actions = {
            Kind.BLOCK_KERNEL_MODULE: lambda: self._system.write_file(NOUVEAU_FILE, NOUVEAU_TEXT),
            Kind.RENEW_INITRAMFS: lambda: self._renew_initramfs(host),
        }
        self._take(nouveau_steps(host, self._system.is_blocked("nouveau")), actions)

    def _parameters(self, host: Host) -> Host:
        """Write the parameters of the module; return the host as it is then."""
        steps = parameter_steps(host, self._desired)
        write = partial(self._system.write_file, parameters.FILE, parameters.text_of(self._desired.parameters))
        renew = partial(self._renew_initramfs, host)
        self._take(steps, {Kind.WRITE_FILE: write, Kind.REMOVE_FILE: write, Kind.RENEW_INITRAMFS: renew})
        return self._system.read() if steps and not self._check else host

    def _fabric_modules(self, host: Host) -> None:
        actions = {
            Kind.CREATE_FILE: lambda: self._system.write_file(MODULES_FILE, MODULES_TEXT),
            Kind.LOAD_KERNEL_MODULES: lambda: self._load_modules(host.lacking_modules),
        }
        self._take(fabric_steps(host, self._desired, self._system.has_file(MODULES_FILE)), actions)

    def _load_modules(self, names: Iterable[str]) -> None:
        for name in names:
            complaint = self._system.load(name)
            if complaint:
                self.outcome.problems.append(
                    f"the kernel module {name} of NVLink 5 cannot be loaded: {complaint}; boot a kernel that has it (Ubuntu: install "
                    "linux-modules-extra of the kernel) and run again"
                )
                # It does not start without them, and its failure would hide why.
                self._desired = replace(self._desired, fabric_manager="never")

    def _persistence_files(self) -> bool:
        if not self._system.unit_exists(PERSISTENCE_UNIT):
            return False
        shown = self._system.unit_text(PERSISTENCE_UNIT)
        wanted = persistence_drop_in(without_drop_in(shown)) if self._desired.persistence else None
        has = f"# {PERSISTENCE_DROP_IN}\n" in shown
        if wanted is None and not has:
            return False
        if wanted is not None and has and wanted.strip() in shown:
            return False
        step = Step(Kind.CHANGE_FILE, PERSISTENCE_DROP_IN, "the distribution's unit does not keep GPUs initialised")
        return self._do(step) and self._system.write_file(PERSISTENCE_DROP_IN, wanted)

    def _remove_files(self, host: Host) -> bool:
        changed = False
        for path in (
            PERSISTENCE_DROP_IN,
            NOUVEAU_FILE,
            MODULES_FILE,
            TOOLCHAIN_FILE,
            TOOLCHAIN_ENVIRONMENT,
            parameters.FILE,
            *map(wants_link, (PERSISTENCE_UNIT, FABRIC_UNIT)),
            *((imex_files.NODES_FILE, imex_files.MASK, imex_files.WANTS) if self._desired.imex.managed else ()),
        ):
            there = self._system.has_file(path)
            if there and self._do(Step(Kind.REMOVE_FILE, path, "state is absent")):
                changed = self._system.write_file(path, None) or changed
            if there and path == NOUVEAU_FILE and self._do(initramfs_step("it contains the block of nouveau")):
                self._renew_initramfs(host)
        return changed

    def _services(self, host: Host) -> None:
        if self.outcome.reboot:
            return
        system = self._system
        units = {
            name: Unit(bool(system.active_units([name])), system.unit_enabled(name) or system.unit_wanted_at_boot(name))
            for name in wanted_units(host, self._desired)
            if system.unit_exists(name)
        }
        for step in service_steps(host, self._desired, units):
            actions = {
                Kind.ENABLE_SERVICE: partial(self._start_at_boot, step.target),
                Kind.START_SERVICE: partial(system.start, step.target),
                Kind.RESTART_SERVICE: partial(system.restart, step.target),
            }
            self._take([step], actions)

    def _imex(self, host: Host) -> None:
        wanted = wanted_imex(host, self._desired)
        if self.outcome.reboot or wanted is None:
            return
        users = [str(user) for user in self._system.users() if user.name[:15] not in SERVICES.values()]
        try:
            steps = plan_imex(host.imex, wanted, users)
        except Refused as refused:
            self.outcome.problems.append(refused.message)
            return
        if any(step.kind is Kind.RESTART_SERVICE for step in steps) and not self._check:
            # A run that is cut off behind the file leaves a service that does not run, which the next run sees.
            self._system.stop(IMEX_UNIT)
        actions = {
            Kind.UNMASK_SERVICE: lambda: self._system.unmask(IMEX_UNIT),
            Kind.MASK_SERVICE: lambda: self._system.mask(IMEX_UNIT),
            Kind.WRITE_FILE: lambda: self._system.write_file(imex_files.NODES_FILE, wanted.text),
            Kind.ENABLE_SERVICE: lambda: self._system.enable(IMEX_UNIT),
            Kind.START_SERVICE: lambda: self._system.start(IMEX_UNIT),
            Kind.RESTART_SERVICE: lambda: self._system.restart(IMEX_UNIT),
        }
        self._take(steps, actions)

    def _start_at_boot(self, unit: str) -> None:
        if has_install_section(self._system.unit_text(unit)):
            self._system.enable(unit)
        else:
            self._system.add_wants(unit)

    def reload(self, host: Host) -> None:
        """Load the driver on disk without a reboot, or note why that takes one."""
        # The flavour of the facts is that of the loaded modules; on disk the planner has just put the wanted one.
        others = other_build(host, self._desired, written=not self._check)
        reload = plan_reload(
            loaded=host.loaded,
            wanted=None if self._desired.state == "absent" else host.on_disk,
            modules=self._system.modules(),
            users=self._system.users(),
            active=self._system.active_units(list(SERVICES)),
            nouveau_loaded=host.nouveau_loaded,
            allowed=self._desired.reload == "auto",
            other_flavour=bool(others),
        )
        if not reload.needed:
            return
        if reload.blockers:
            self.outcome.reboot.extend(reload.blockers)
            return
        disturbs = (*reload.stop, "MIG instances, which do not survive a reload") if host.loaded else ()
        if self._do(reload_step(host, self._desired, others, disturbs, {})):
            self._carry_out(host, reload)

    def _carry_out(self, host: Host, reload: Reload) -> None:
        for unit in reload.stop:
            self._system.stop(unit)
        busy = self._still_busy(reload)
        if not busy:
            busy = self._unload(reload)
        if busy:
            self.outcome.reboot.extend(busy)
            self._start_again(reload)
            return
        if reload.load:
            for name in PREREQUISITES:
                if self._system.module_exists(name, host.kernel):
                    self._system.load(name)
            complaint = self._system.load("nvidia")
            if complaint:
                self.outcome.problems.append(f"the driver could not be loaded: {complaint}")
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
