# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, plan, apply and read back DCGM on a host. Every step can be repeated after a cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .._adapters import kernel, systemd
from .._adapters.host_files import HostFiles
from .._adapters.host_reader import run_command
from .._adapters.installed_packages import is_dcgm
from .._adapters.packages import Package, PackageError, PackageManager, Transaction, hold_installed, released
from .._formats.unit_names import DCGM_UNIT
from .._plan import Plan, Refused, Step, carry_out
from .._runtime.unit_reload import unmask
from .._steps import Kind
from .desired import DesiredDcgm
from .packages import CORE, names
from .plan import check_simulation, cuda_of, plan, select, transaction
from .state import DcgmState

#: What the new packages bring (the host engine's unit) is only seen once they are there.
_ROUNDS = 2


@dataclass(frozen=True)
class DcgmReport:
    """What was, or in check mode would be, done, and the state afterwards."""

    plan: Plan
    after: DcgmState


def read(manager: PackageManager, desired: DesiredDcgm) -> DcgmState:
    """Return the present state of the host.

    :raises PackageError: the package manager does not answer.
    :raises CommandError: systemd does not.
    """
    unit = systemd.unit(DCGM_UNIT)
    disk, _reason = kernel.module_on_disk(HostFiles(), kernel.running_kernel(), run_command)
    return DcgmState(
        packages={name: version for name, version in manager.installed().items() if is_dcgm(name)},
        holds=tuple(manager.holds()),
        interrupted=tuple(manager.interrupted()),
        missing_for_holds=manager.missing_for_holds() if desired.present and desired.hold else (),
        active=unit.is_active,
        enabled=DCGM_UNIT in systemd.enabled([DCGM_UNIT]),
        driver=disk.version if disk else None,
    )


def run_stage(manager: PackageManager, desired: DesiredDcgm, check_mode: bool) -> DcgmReport:
    """Apply C(desired) to DCGM on a host.

    :raises Refused: it cannot be met; nothing was installed.
    :raises PackageError: the package manager failed.
    :raises CommandError: the host engine does not start or stop.
    :raises NotInEffect: what is read back is something else.
    """
    state = read(manager, desired)
    if check_mode and desired.present and not desired.cuda and state.driver is None:
        # The driver's stage has installed none in check mode.
        return DcgmReport(
            Plan(warnings=("the packages of DCGM depend on the driver, and none is installed yet",)),
            state,
        )
    planned = plan(state, desired)
    if check_mode or not planned.changes:
        if planned.changes and desired.present:
            _try(manager, state, desired)
        return DcgmReport(planned, state)

    def apply(steps: Plan) -> None:
        for step in steps.steps:
            _APPLIERS[step.kind](manager, state, desired, step)

    def plan_again() -> Plan:
        nonlocal state
        state = read(manager, desired)
        return plan(state, desired)

    done, _waiting = carry_out("set up DCGM", planned, apply, plan_again, _ROUNDS)
    return DcgmReport(replace(planned, steps=done), state)


def _try(manager: PackageManager, state: DcgmState, desired: DesiredDcgm) -> None:
    """Ask the real resolver. Before the driver's stage has configured its repository there is nobody to ask."""
    wanted = names(cuda_of(state, desired))
    offers = manager.offered(wanted)
    if state.differing(wanted, desired.version) and any(offer.name == CORE for offer in offers):
        packages = select(offers, wanted, desired.version)
        check_simulation(manager.simulate(replace(transaction(state, packages), ignore_holds=True)), packages)


def _repair(manager: PackageManager, state: DcgmState, _desired: DesiredDcgm, _step: Step) -> None:
    with released(manager, state.held):
        manager.repair()


def _prepare(manager: PackageManager, _state: DcgmState, _desired: DesiredDcgm, step: Step) -> None:
    manager.apply(Transaction(tuple(Package(str(name)) for name in step.data["packages"])))


def _install(manager: PackageManager, state: DcgmState, desired: DesiredDcgm, _step: Step) -> None:
    wanted = names(cuda_of(state, desired))
    packages = _offered(manager, wanted, desired.version)
    asked = transaction(state, packages)
    with released(manager, state.held):
        check_simulation(manager.simulate(asked), packages)
        if not state.active:
            return manager.apply(asked)
        # It has its libraries open, and the new ones only after a restart.
        systemd.stop(DCGM_UNIT)
        try:
            return manager.apply(asked)
        except PackageError:
            systemd.start(DCGM_UNIT)
            raise


def _offered(manager: PackageManager, wanted: tuple[str, ...], version: str) -> tuple[Package, ...]:
    try:
        return select(manager.offered(wanted), wanted, version)
    except Refused:
        # What was fetched may be older than the repository.
        manager.refresh()
        return select(manager.offered(wanted), wanted, version)


def _hold(manager: PackageManager, _state: DcgmState, _desired: DesiredDcgm, step: Step) -> None:
    hold_installed(manager, step.data["packages"])


def _release(manager: PackageManager, state: DcgmState, _desired: DesiredDcgm, _step: Step) -> None:
    manager.unhold(list(state.held))


def _enable(_manager: PackageManager, _state: DcgmState, _desired: DesiredDcgm, step: Step) -> None:
    unmask(step.target)
    systemd.enable([step.target])


def _start(_manager: PackageManager, _state: DcgmState, _desired: DesiredDcgm, step: Step) -> None:
    systemd.start(step.target)


def _disable(_manager: PackageManager, _state: DcgmState, _desired: DesiredDcgm, step: Step) -> None:
    systemd.disable([step.target])
    systemd.stop(step.target)


def _uninstall(manager: PackageManager, _state: DcgmState, _desired: DesiredDcgm, step: Step) -> None:
    manager.apply(Transaction(remove=tuple(map(str, step.data["packages"]))))


_APPLIERS: dict[Kind, Callable[[PackageManager, DcgmState, DesiredDcgm, Step], None]] = {
    Kind.REPAIR_PACKAGE_DATABASE: _repair,
    Kind.INSTALL_PREREQUISITES: _prepare,
    Kind.INSTALL_DCGM: _install,
    Kind.HOLD_PACKAGES: _hold,
    Kind.RELEASE_PACKAGES: _release,
    Kind.ENABLE_SERVICE: _enable,
    Kind.START_SERVICE: _start,
    Kind.DISABLE_SERVICE: _disable,
    Kind.UNINSTALL_PACKAGES: _uninstall,
}
