# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, plan, apply and read back the container toolkit of a host. Every step can be repeated after a cut."""

from __future__ import annotations

from dataclasses import dataclass

from .._adapters import cdi_generator
from .._adapters.files import write_link
from .._packages.transactions import Applier, Request, configure, install, package_appliers, run, try_request
from .._plan import Plan, Step
from .._steps import Kind
from .._versions import product_version
from .config import LINKS
from .desired import DesiredToolkit
from .packages import IDENTIFIER, PACKAGES
from .plan import check_simulation, edited, plan, select, transaction
from .state import ToolkitState
from .system import ToolkitSystem


@dataclass(frozen=True)
class ToolkitReport:
    """What was, or in check mode would be, done, and the state afterwards."""

    plan: Plan
    after: ToolkitState
    version: str


def run_stage(system: ToolkitSystem, desired: DesiredToolkit, check_mode: bool) -> ToolkitReport:
    """Apply C(desired) to the toolkit of a host.

    :raises Refused: it cannot be met; nothing was installed.
    :raises PackageError: the package manager failed.
    :raises NotInEffect: what is read back is something else.
    """

    def planned(state: ToolkitState) -> Plan:
        made = plan(state, desired)
        if not check_mode and any(step.kind is Kind.ADD_REPOSITORY for step in made.steps):
            # A key that is not the right one is found before the first step.
            system.repository(desired)
        return made

    done, after = run(
        "set up the container toolkit",
        check_mode,
        lambda: system.read(desired),
        planned,
        lambda state: _try(system, state, desired),
        _appliers(system, desired),
    )
    version = product_version(after.packages.get(PACKAGES[0], "")) or ""
    if check_mode and done.changes:
        version = desired.version if desired.present else ""
    return ToolkitReport(done, after, version)


def _try(system: ToolkitSystem, state: ToolkitState, desired: DesiredToolkit) -> None:
    """Ask the real resolver, with the repository as it would be where it is not configured yet."""
    if not (desired.present and state.differing(PACKAGES, desired.version)):
        return None
    request = _request(state, desired)
    if state.repository is not False or not desired.repository.manage:
        return try_request(system.manager, request, system.manager.offered(PACKAGES))
    with system.manager.trial(system.repository(desired)) as manager:
        return try_request(manager, request, manager.offered(PACKAGES)) if manager is not None else None


def _request(state: ToolkitState, desired: DesiredToolkit) -> Request:
    return Request(
        PACKAGES,
        lambda offers: select(offers, desired.version),
        lambda packages: transaction(state, packages),
        check_simulation,
    )


def _appliers(system: ToolkitSystem, desired: DesiredToolkit) -> dict[Kind, Applier[ToolkitState]]:
    def settings(_state: ToolkitState, _step: Step) -> None:
        # The packages' scripts may just have written the file: it is read again.
        system.write_config(edited(system.read(desired), desired))

    return {
        **package_appliers(system.manager),
        Kind.CREATE_FILE: lambda _state, step: write_link(step.target, LINKS[step.target]),
        Kind.REMOVE_FILE: lambda _state, step: system.remove_file(step.target),
        Kind.ADD_REPOSITORY: lambda _state, _step: configure(system.manager, system.repository(desired)),
        Kind.INSTALL_TOOLKIT: lambda state, _step: install(system.manager, _request(state, desired), state.held),
        Kind.ACCEPT_DEVICES: settings,
        Kind.NAME_LOW_LEVEL_RUNTIME: settings,
        Kind.ENABLE_SERVICE: lambda _state, _step: system.enable_refresh(),
        Kind.GENERATE_CDI_SPECIFICATION: lambda _state, _step: cdi_generator.refresh(),
        Kind.MOVE_ASIDE: lambda _state, step: system.move_aside(step.target),
        Kind.REMOVE_REPOSITORY: lambda _state, _step: system.manager.remove_repository(IDENTIFIER),
    }
