# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A product whose packages are installed, held and removed together at one version: the rules and the steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

from .._adapters.package_manager import Change, Package
from .._plan import Refused, Step
from .._steps import Kind
from .._versions import product_version


@dataclass(frozen=True)
class PackageState:
    """What a host has of a product's packages.

    :param packages: versions of the installed ones, by name, predecessors included.
    :param holds: names that the package manager holds, of whatever product.
    :param interrupted: packages that an earlier transaction left half done.
    :param missing_for_holds: packages that the package manager needs to hold others, and that are not installed.
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    holds: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()
    missing_for_holds: tuple[str, ...] = ()

    @property
    def held(self) -> tuple[str, ...]:
        """Return which of the product's packages are held: also those that are gone, whose locks keep new ones out."""
        raise NotImplementedError

    def differing(self, wanted: Iterable[str], version: str) -> dict[str, str]:
        """Return which of the wanted packages are not at C(version), with what is installed (empty for nothing)."""
        installed = {name: self.packages.get(name, "") for name in wanted}
        return {name: found for name, found in installed.items() if product_version(found) != version}


@dataclass(frozen=True)
class PackageSet:
    """A product.

    :param target: what stands for all of its packages in a plan.
    :param title: what it is called in sentences.
    :param prefix: of the variables of its role.
    :param why_held: why nothing else may move it.
    :param predecessors: packages that cannot stand beside it, and go in the transaction that installs it.
    :param default: the version that is installed by default; empty where that is up to a branch, which has a C(floor) of its own then, too.
    :param floor: the oldest version without a published vulnerability.
    """

    target: str
    title: str
    prefix: str
    why_held: str
    predecessors: tuple[str, ...] = ()
    default: str = ""
    floor: str = ""

    def below_floor(self, version: str, vulnerabilities: str, allowed: bool, risk: str = "") -> str:
        """Return the warning about a version below the floor.

        :param risk: what the vulnerabilities lead to, for the refusal.
        :raises Refused: such a version is not allowed.
        """
        if not allowed:
            raise Refused(
                f"{self.prefix}version",
                f"{version} is below the security floor {self.floor}: {risk}{vulnerabilities}",
                f"Use {self.default}, or set {self.prefix}allow_vulnerable to true to accept that risk.",
            )
        return f"VULNERABLE {self.title} {version}, below the floor {self.floor}: {vulnerabilities}"

    def step(self, kind: Kind, why: str, packages: Iterable[Any], disturbs: tuple[str, ...] = ()) -> Step:
        """Return a step on packages: names, or each with its version."""
        return Step(kind, self.target, why, disturbs, {"packages": list(packages)})

    def hold_step(self, packages: Iterable[str]) -> Step:
        return self.step(Kind.HOLD_PACKAGES, self.why_held, packages)

    def release_step(self, packages: Iterable[str], why: str) -> Step:
        return self.step(Kind.RELEASE_PACKAGES, why, packages)

    def repair_steps(self, interrupted: Sequence[str], why: str = "") -> list[Step]:
        """Return the step that comes before all others where a transaction was cut off."""
        why = why or f"partially installed: {', '.join(interrupted)}"
        return [Step(Kind.REPAIR_PACKAGE_DATABASE, self.target, why)] if interrupted else []

    def present_steps(
        self,
        state: PackageState,
        wanted: Sequence[str],
        version: str,
        hold: bool,
        releasable: Sequence[str],
        install: Callable[[Mapping[str, str], Sequence[str]], Step],
    ) -> list[Step]:
        """Return the steps after which the wanted packages are at C(version), and held or not.

        :param releasable: what is held and is not to be, without C(hold).
        :param install: makes the step that installs, of what L(PackageState.differing) returned and of the predecessors that are there.
        """
        differing = state.differing(wanted, version)
        old = [name for name in self.predecessors if name in state.packages]
        holding = hold and bool(differing or set(wanted) - set(state.holds))
        steps = []
        if holding and state.missing_for_holds:
            steps.append(self.step(Kind.INSTALL_PREREQUISITES, "packages are held with it", state.missing_for_holds))
        if differing or old:
            steps.append(install(differing, old))
        if holding:
            steps.append(self.hold_step(wanted))
        if not hold and releasable:
            steps.append(self.release_step(releasable, f"{self.prefix}hold is false"))
        return steps


def at_version(offers: Iterable[Package], wanted: Sequence[str], version: str) -> tuple[Package, ...]:
    """Return those of the wanted packages that are offered at exactly C(version)."""
    found: dict[str, Package] = {}
    for offer in offers:
        if product_version(offer.version) == version:
            found.setdefault(offer.name, Package(offer.name, offer.version))
    return tuple(found[name] for name in wanted if name in found)


def check_changes(
    changes: Iterable[Change], packages: Iterable[Package], is_too_much: Callable[[Change], bool], title: str
) -> None:
    """Refuse a transaction that does more than it was asked for.

    :param packages: those that are asked for.
    :param is_too_much: whether a change is of a package that has to stay as it is.
    :raises Refused: it makes such a change, or brings another version.
    """
    wanted = {package.name: package.version for package in packages}
    for change in changes:
        if is_too_much(change):
            raise Refused(
                "the package transaction",
                f"the package manager would {change.action} {change.name} {change.before} to install {title}",
                "Find the conflict with the package manager; nothing was installed.",
            )
        if change.name in wanted and change.action != "remove" and change.after != wanted[change.name]:
            raise Refused(
                "the package transaction",
                f"the package manager would install {change.name} {change.after} in place of {wanted[change.name]}",
                "Look for a pin or lock on it; nothing was installed.",
            )


def attempt(refusals: list[Refused], check: Callable[[], Any]) -> Any:
    """Return what C(check) does; what it refuses is kept, so that all is said at once."""
    try:
        return check()
    except Refused as refusal:
        refusals.append(refusal)
        return None
