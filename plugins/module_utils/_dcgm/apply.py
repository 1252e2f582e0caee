# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, plan, apply and read back DCGM on a host. Every step can be repeated after a cut."""

from __future__ import annotations

from dataclasses import dataclass

from .._adapters import kernel, systemd
from .._adapters.command import CommandError
from .._adapters.files import HostFiles
from .._adapters.host_reader import run_command
from .._adapters.installed_packages import is_dcgm
from .._adapters.package_manager import PackageError, PackageManager, Transaction
from .._formats.host_names import DCGM_UNIT
from .._packages.transactions import Applier, Request, install, package_appliers, run, try_request
from .._plan import NotInEffect, Plan, Refused, Step
from .._runtime.unit_reload import unmask
from .._steps import Kind
from .desired import DesiredDcgm
from .packages import CORE, names
from .plan import check_simulation, cuda_of, plan, select, transaction
from .state import DcgmState


@dataclass(frozen=True)
class DcgmReport:
    """What was, or in check mode would be, done, and the state afterwards."""

    plan: Plan
    after: DcgmState


def read(manager: PackageManager, desired: DesiredDcgm) -> DcgmState:
    """Return the present state of the host. Raises PackageError: the package manager does not answer. Raises CommandError: systemd does not."""
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

    def planned(state: DcgmState) -> Plan:
        if check_mode and desired.present and not desired.cuda and state.driver is None:
            # The driver's stage has installed none in check mode.
            return Plan(warnings=("the packages of DCGM depend on the driver, and none is installed yet",))
        return plan(state, desired)

    appliers: dict[Kind, Applier[DcgmState]] = {
        **package_appliers(manager),
        Kind.INSTALL_DCGM: lambda state, _step: _install(manager, state, desired),
        Kind.ENABLE_SERVICE: _enable,
        Kind.START_SERVICE: lambda _state, step: systemd.start(step.target),
        Kind.DISABLE_SERVICE: _disable,
    }
    return DcgmReport(
        *run(
            "set up DCGM",
            check_mode,
            lambda: read(manager, desired),
            planned,
            lambda state: _try(manager, state, desired),
            appliers,
        )
    )


def _request(state: DcgmState, desired: DesiredDcgm) -> Request:
    wanted = names(cuda_of(state, desired))
    return Request(
        wanted,
        lambda offers: select(offers, wanted, desired.version),
        lambda packages: transaction(state, packages),
        check_simulation,
    )


def _try(manager: PackageManager, state: DcgmState, desired: DesiredDcgm) -> None:
    """Ask the real resolver. Before the driver's stage has configured its repository there is nobody to ask."""
    if not desired.present:
        return
    request = _request(state, desired)
    offers = manager.offered(request.names)
    if state.differing(request.names, desired.version) and any(offer.name == CORE for offer in offers):
        try_request(manager, request, offers)


def _install(manager: PackageManager, state: DcgmState, desired: DesiredDcgm) -> None:
    def change(asked: Transaction) -> None:
        if not state.active:
            return manager.apply(asked)
        # It has its libraries open, and the new ones only after a restart.
        systemd.stop(DCGM_UNIT)
        try:
            return manager.apply(asked)
        except (CommandError, PackageError):
            systemd.start(DCGM_UNIT)
            raise

    install(manager, _request(state, desired), state.held, change)


def _enable(_state: DcgmState, step: Step) -> None:
    try:
        unmask(step.target)
    except Refused as refusal:
        # The packages are there already: it is not true that nothing was changed.
        raise NotInEffect(f"Failed to set up DCGM: its packages are installed, but {refusal.message}") from refusal
    systemd.enable([step.target])


def _disable(_state: DcgmState, step: Step) -> None:
    systemd.disable([step.target])
    systemd.stop(step.target)
