# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, plan, apply and read back the container toolkit of a host. Every step can be repeated after a cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .._adapters import cdi
from .._adapters.packages import Package, PackageError, PackageManager, Transaction, hold_installed, released
from .._plan import Plan, Step, carry_out
from .._steps import Kind
from .._versions import product_version
from .desired import PACKAGES, DesiredToolkit
from .distributions import IDENTIFIER
from .plan import check_simulation, edited, plan, select, transaction
from .state import ToolkitState
from .system import ToolkitSystem

#: What the new packages bring (units, their settings) is only seen once they are there.
_ROUNDS = 2


@dataclass(frozen=True)
class ToolkitReport:
    """What was, or in check mode would be, done, and the state afterwards."""

    plan: Plan
    before: ToolkitState
    after: ToolkitState
    version: str


def run_stage(system: ToolkitSystem, desired: DesiredToolkit, check_mode: bool) -> ToolkitReport:
    """Apply C(desired) to the toolkit of a host.

    :raises Refused: it cannot be met; nothing was installed.
    :raises PackageError: the package manager failed.
    :raises NotInEffect: what is read back is something else.
    """
    state = system.read(desired)
    planned = plan(state, desired)
    if check_mode or not planned.changes:
        if planned.changes and desired.present and state.differing(desired.version):
            _try(system, state, desired)
        return ToolkitReport(planned, state, state, _version(state) if not planned.changes else _wanted(desired))
    if any(step.kind is Kind.ADD_REPOSITORY for step in planned.steps):
        # A key that is not the right one is found before the first step.
        system.repository(desired)
    after = state

    def apply(steps: Plan) -> None:
        for step in steps.steps:
            _APPLIERS[step.kind](system, after, desired, step)

    def plan_again() -> Plan:
        nonlocal after
        after = system.read(desired)
        return plan(after, desired)

    done, _waiting = carry_out("set up the container toolkit", planned, apply, plan_again, _ROUNDS)
    return ToolkitReport(replace(planned, steps=done), state, after, _version(after))


def _wanted(desired: DesiredToolkit) -> str:
    return desired.version if desired.present else ""


def _version(state: ToolkitState) -> str:
    return product_version(state.packages.get(PACKAGES[0], "")) or ""


def _try(system: ToolkitSystem, state: ToolkitState, desired: DesiredToolkit) -> None:
    """Ask the real resolver, with the repository as it would be where it is not configured yet."""
    if state.repository is not False or not desired.manage_repository:
        return _resolve(system.manager, state, desired)
    with system.manager.trial(system.repository(desired)) as manager:
        return _resolve(manager, state, desired) if manager is not None else None


def _resolve(manager: PackageManager, state: ToolkitState, desired: DesiredToolkit) -> None:
    packages = select(manager.offered(PACKAGES), desired.version)
    check_simulation(manager.simulate(transaction(state, packages)), packages)


def _repair(system: ToolkitSystem, state: ToolkitState, _desired: DesiredToolkit, _step: Step) -> None:
    # The four depend on each other at exactly one version: with one of them half done, holds leave the resolver no way
    # out. What is whole afterwards is held again, by the next step or by the next round.
    with released(system.manager, [name for name in PACKAGES if name in (state.holds or ())]):
        system.manager.repair()


def _remove_file(system: ToolkitSystem, _state: ToolkitState, _desired: DesiredToolkit, step: Step) -> None:
    system.remove_file(step.target)


def _configure(system: ToolkitSystem, _state: ToolkitState, desired: DesiredToolkit, _step: Step) -> None:
    system.manager.add_repository(system.repository(desired))
    try:
        system.manager.refresh()
    except PackageError:
        # A repository that cannot be read would stop every other use of the package manager on this host.
        system.manager.remove_repository(IDENTIFIER)
        raise


def _install(system: ToolkitSystem, state: ToolkitState, desired: DesiredToolkit, _step: Step) -> None:
    offers = system.manager.offered(PACKAGES)
    if not any(product_version(offer.version) == desired.version for offer in offers):
        system.manager.refresh()
        offers = system.manager.offered(PACKAGES)
    packages = select(offers, desired.version)
    wanted = transaction(state, packages)
    with released(system.manager, state.held):
        check_simulation(system.manager.simulate(wanted), packages)
        system.manager.apply(wanted)


def _hold(system: ToolkitSystem, _state: ToolkitState, _desired: DesiredToolkit, _step: Step) -> None:
    hold_installed(system.manager, PACKAGES)


def _release(system: ToolkitSystem, state: ToolkitState, _desired: DesiredToolkit, _step: Step) -> None:
    system.manager.unhold(list(state.held))


def _prepare(system: ToolkitSystem, _state: ToolkitState, _desired: DesiredToolkit, step: Step) -> None:
    system.manager.apply(Transaction(tuple(Package(str(name)) for name in step.data["packages"])))


def _settings(system: ToolkitSystem, _state: ToolkitState, desired: DesiredToolkit, _step: Step) -> None:
    # The packages' scripts may just have written the file: it is read again.
    system.write_config(edited(system.read(desired), desired))


def _enable(system: ToolkitSystem, _state: ToolkitState, _desired: DesiredToolkit, _step: Step) -> None:
    system.enable_refresh()


def _generate(_system: ToolkitSystem, _state: ToolkitState, _desired: DesiredToolkit, _step: Step) -> None:
    cdi.refresh()


def _move_aside(system: ToolkitSystem, _state: ToolkitState, _desired: DesiredToolkit, step: Step) -> None:
    system.move_aside(step.target)


def _uninstall(system: ToolkitSystem, _state: ToolkitState, _desired: DesiredToolkit, step: Step) -> None:
    system.manager.apply(Transaction(remove=tuple(map(str, step.data["packages"]))))


def _forget(system: ToolkitSystem, _state: ToolkitState, _desired: DesiredToolkit, _step: Step) -> None:
    system.manager.remove_repository(IDENTIFIER)


_APPLIERS: dict[Kind, Callable[[ToolkitSystem, ToolkitState, DesiredToolkit, Step], None]] = {
    Kind.REPAIR_PACKAGE_DATABASE: _repair,
    Kind.REMOVE_FILE: _remove_file,
    Kind.ADD_REPOSITORY: _configure,
    Kind.INSTALL_PREREQUISITES: _prepare,
    Kind.INSTALL_TOOLKIT: _install,
    Kind.HOLD_PACKAGES: _hold,
    Kind.RELEASE_PACKAGES: _release,
    Kind.ACCEPT_DEVICES: _settings,
    Kind.NAME_LOW_LEVEL_RUNTIME: _settings,
    Kind.ENABLE_SERVICE: _enable,
    Kind.GENERATE_CDI_SPECIFICATION: _generate,
    Kind.MOVE_ASIDE: _move_aside,
    Kind.UNINSTALL_TOOLKIT: _uninstall,
    Kind.REMOVE_REPOSITORY: _forget,
}
