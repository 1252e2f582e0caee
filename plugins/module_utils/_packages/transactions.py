# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a product's stage does with the package manager: try, install, repair, hold, release and remove. Every step can be repeated after a cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable, TypeVar

from .._adapters.package_manager import Change, Package, PackageManager, Transaction, hold_installed, released
from .._plan import Plan, Refused, Step, carry_out
from .._steps import Kind
from .package_set import PackageState

#: What the new packages bring (units, their settings) is only seen once they are there.
_ROUNDS = 2

State = TypeVar("State", bound=PackageState)
#: Carries a step out on a host that was read as a state.
Applier = Callable[[State, Step], object]


@dataclass(frozen=True)
class Request:
    """What is asked of the repositories and of the resolver.

    :param names: of the wanted packages.
    :param select: returns them at the wanted version, of what is offered; refuses where it cannot.
    :param transaction: returns the one transaction that installs them.
    :param check: refuses what the resolver would do besides.
    """

    names: Sequence[str]
    select: Callable[[Sequence[Package]], tuple[Package, ...]]
    transaction: Callable[[Sequence[Package]], Transaction]
    check: Callable[[Sequence[Change], Sequence[Package]], None]


def try_request(manager: PackageManager, request: Request, offers: Sequence[Package]) -> None:
    """Ask the real resolver, and change nothing.

    :param offers: what the repositories offer of the names.
    :raises Refused: the packages are not offered, or the resolver would do more.
    """
    packages = request.select(offers)
    request.check(manager.simulate(replace(request.transaction(packages), ignore_holds=True)), packages)


def install(
    manager: PackageManager, request: Request, held: Sequence[str], change: Callable[[Transaction], None] | None = None
) -> None:
    """Install what is requested; what was held and is still there is held again where that fails.

    :param held: what the holds of would keep from being changed.
    :param change: carries the transaction out, where that takes more than the package manager.
    """
    try:
        packages = request.select(manager.offered(request.names))
    except Refused:
        # What was fetched may be older than the repository.
        manager.refresh()
        packages = request.select(manager.offered(request.names))
    asked = request.transaction(packages)
    with released(manager, held):
        request.check(manager.simulate(asked), packages)
        (change or manager.apply)(asked)


def package_appliers(manager: PackageManager) -> dict[Kind, Applier[Any]]:
    """Return how the steps are carried out that every product has."""

    def repair(state: PackageState, _step: Step) -> None:
        # Packages depend on each other at exactly one version: with one of them half done, holds leave the resolver no way
        # out.
        with released(manager, state.held):
            manager.repair()
        # What comes next may be refused.
        hold_installed(manager, state.held)

    def remove(_state: PackageState, step: Step) -> None:
        manager.apply(Transaction(remove=tuple(map(str, step.data["packages"]))))

    return {
        Kind.REPAIR_PACKAGE_DATABASE: repair,
        Kind.INSTALL_PREREQUISITES: lambda _state, step: manager.apply(
            Transaction(tuple(Package(str(name)) for name in step.data["packages"]))
        ),
        Kind.HOLD_PACKAGES: lambda _state, step: hold_installed(manager, step.data["packages"]),
        Kind.RELEASE_PACKAGES: lambda _state, step: manager.unhold(list(step.data["packages"])),
        Kind.UNINSTALL_PACKAGES: remove,
        Kind.UNINSTALL_TOOLKIT: remove,
    }


def run(
    what: str,
    check_mode: bool,
    read: Callable[[], State],
    plan: Callable[[State], Plan],
    attempt: Callable[[State], object],
    appliers: Mapping[Kind, Applier[State]],
) -> tuple[Plan, State]:
    """Read, plan, apply and read back; return the plan with the steps that were carried out, and the state afterwards.

    :param what: is done, such as C(set up DCGM).
    :param attempt: asks the resolver in check mode, where something is to do.
    :raises NotInEffect: what is read back is something else.
    """
    found = read()
    planned = plan(found)
    if check_mode or not planned.changes:
        if planned.changes:
            attempt(found)
        return planned, found

    def apply(steps: Plan) -> None:
        for step in steps.steps:
            appliers[step.kind](found, step)

    def plan_again() -> Plan:
        nonlocal found
        found = read()
        return plan(found)

    done, _waiting = carry_out(what, planned, apply, plan_again, _ROUNDS)
    return replace(planned, steps=done), found
