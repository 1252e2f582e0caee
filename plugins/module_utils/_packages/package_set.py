# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A product whose packages are installed, held and removed together at one version: the rules and the
steps, and where its packages come from, as the user wants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

from .._adapters.openpgp import key_of_digest, verified_key
from .._adapters.package_manager import Change, Package
from .._adapters.package_tools import Fetch
from .._adapters.repositories import Credentials, check_url, checked_credentials, for_server_of, refuse_credentials_in
from .._facts_view import Facts
from .._plan import Refused, Step
from .._steps import Kind
from .._versions import product_version
from .key_file import read_key


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


@dataclass(frozen=True)
class DesiredRepository:
    """Where the packages come from.

    :param url: of a mirror, or empty for NVIDIA's own repository.
    :param key_url: where its signing key is fetched from; empty for NVIDIA's own.
    :param key_file: a file on the host with its signing key, in place of C(key_url).
    :param key_fingerprint: of that key, all hexadecimal digits; empty for the known one of NVIDIA's own repository.
    :param manage: whether the collection configures the repository; otherwise it has to be there already.
    :param credentials: what the mirror asks for.
    """

    url: str = ""
    key_url: str = ""
    key_file: str = ""
    key_fingerprint: str = ""
    manage: bool = True
    credentials: Credentials | None = None

    def signing_key(
        self, url: str, key_url: str, fingerprint: str, fetch: Fetch, prefix: str, digest: str = ""
    ) -> bytes:
        """Return the key that signs the repository at C(url).

        :param key_url: where it is fetched from unless the user says otherwise.
        :param fingerprint: of the right one; empty where its C(digest) is known alone.
        :param prefix: of the role's variables, for messages.
        :raises Refused: the key file cannot be read.
        :raises KeyRefused: the key is another one.
        """
        if self.key_file:
            source, content = self.key_file, read_key(self.key_file, f"{prefix}repository_key_file")
        else:
            source = check_url(self.key_url or key_url, f"{prefix}repository_key_url")
            content = fetch(source, for_server_of(source, url, self.credentials))
        return verified_key(content, fingerprint, source) if fingerprint else key_of_digest(content, digest, source)


def read_repository(option: Mapping[str, Any], prefix: str) -> DesiredRepository:
    """Return what the option C(repository) of a module says.

    :param prefix: of the role's variables.
    :raises Refused: credentials stand in an address, or cannot be taken as they are.
    """
    names = ("url", "key_url", "key_file", "key_fingerprint", "username", "password")
    texts = {name: str(option.get(name) or "") for name in names}
    manage = bool(option.get("manage", True))
    username, password = texts.pop("username"), texts.pop("password")
    refuse_credentials_in(texts["url"], f"{prefix}repository_url")
    refuse_credentials_in(texts["key_url"], f"{prefix}repository_key_url")
    credentials = checked_credentials(prefix, texts["url"], username, password, manage)
    return DesiredRepository(**texts, manage=manage, credentials=credentials)


def key_file_refusals(facts: Facts, wanted: DesiredRepository, prefix: str) -> list[Refused]:
    """Return that the file with the key is of no use, where packages are to come from the repository."""
    variable = f"{prefix}repository_key_file"
    fault = (facts.key_files or {}).get(variable) if wanted.manage and wanted.key_file else None
    remedy = f"Put the key of the repository there, on the host, or give {prefix}repository_key_url instead."
    return [Refused(variable, fault, remedy)] if fault else []
