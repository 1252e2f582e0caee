# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a product's stage does with the package manager: try, install, repair, hold, release and remove. Every step can be repeated after a cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable, TypeVar

from .._adapters.package_manager import (
    Change,
    Package,
    PackageError,
    PackageManager,
    Transaction,
    hold_installed,
    released,
)
from .._adapters.repositories import Repository
from .._plan import Plan, Refused, Step, carry_out
from .._steps import Kind

#: What the new packages bring (units, their settings) is only seen once they are there.
_ROUNDS = 2
#: How often a transaction is resolved with what follows from its last resolution.
_RESOLUTIONS = 8

Found = TypeVar("Found")
State = TypeVar("State")
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


def resolve(
    manager: PackageManager,
    asked: Transaction,
    check: Callable[[Sequence[Change]], None],
    follow: Callable[[Transaction, Sequence[Change]], Transaction] = lambda asked, _changes: asked,
) -> tuple[Transaction, tuple[Change, ...]]:
    """Return a transaction as the package manager resolves it, with what it does.

    :param check: refuses what it would do besides.
    :param follow: returns what has to be asked in its place, for what it does.
    :raises PackageError: it cannot be resolved.
    """
    for _round in range(_RESOLUTIONS):
        changes = manager.simulate(asked)
        check(changes)
        before, asked = asked, follow(asked, changes)
        if asked == before:
            return asked, changes
    raise PackageError("Failed to resolve the packages: they require each other at other versions.")


def with_newer_lists(manager: PackageManager, find: Callable[[], Found], missing: type[Refused] = Refused) -> Found:
    """Return what C(find) returns, if it has to be after the repositories' lists were fetched anew: those on the host may be older, or missing.

    :param missing: what it raises where they lack something.
    """
    try:
        return find()
    except missing as refusal:
        try:
            manager.refresh()
        except PackageError as error:
            raise PackageError(f"{refusal.message} Newer lists could not be fetched. {error}") from error
        return find()


def configure(manager: PackageManager, repository: Repository) -> None:
    """Configure a repository, and fetch its lists."""
    try:
        manager.add_repository(repository)
        manager.refresh()
    except PackageError:
        # A repository that is half written, or cannot be read, would stop every other use of the package manager on this host.
        manager.remove_repository(repository.identifier)
        raise


def try_request(manager: PackageManager, request: Request, offers: Sequence[Package]) -> None:
    """Ask the real resolver, and change nothing.

    :param offers: what the repositories offer of the names.
    :raises Refused: the packages are not offered, or the resolver would do more.
    """
    packages = request.select(offers)
    asked = replace(request.transaction(packages), ignore_holds=True)
    resolve(manager, asked, lambda changes: request.check(changes, packages))


def install(
    manager: PackageManager, request: Request, held: Sequence[str], change: Callable[[Transaction], None] | None = None
) -> None:
    """Install what is requested; what was held and is still there is held again where that fails.

    :param held: what the holds of would keep from being changed.
    :param change: carries the transaction out, where that takes more than the package manager.
    """
    packages = with_newer_lists(manager, lambda: request.select(manager.offered(request.names)))
    asked = request.transaction(packages)
    with released(manager, held):
        resolve(manager, asked, lambda changes: request.check(changes, packages))
        (change or manager.apply)(asked)


def hold_again(manager: PackageManager, names: Iterable[str]) -> None:
    """Hold those of some packages that are installed and not held."""
    hold_installed(manager, set(names).difference(manager.holds()))


def packages_in(entries: Sequence[Any]) -> tuple[Package, ...]:
    """Return the packages in the data of a step: names, or each with its version."""
    return tuple(Package(entry) if isinstance(entry, str) else Package(*map(str, entry)) for entry in entries)


def package_appliers(manager: PackageManager) -> dict[Kind, Applier[Any]]:
    """Return how the steps are carried out that every product has. What a host was read as has C(held): what is held of the product."""

    def repair(state: Any, _step: Step) -> None:
        # Packages depend on each other at exactly one version: with one of them half done, holds leave the resolver no way
        # out.
        with released(manager, state.held):
            manager.repair()
        # What comes next may be refused.
        hold_installed(manager, state.held)

    def remove(_state: object, step: Step) -> None:
        manager.apply(Transaction(remove=tuple(map(str, step.data["packages"]))))

    return {
        Kind.REPAIR_PACKAGE_DATABASE: repair,
        Kind.INSTALL_PREREQUISITES: lambda _state, step: manager.apply(Transaction(packages_in(step.data["packages"]))),
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
