# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""zypper: SUSE Linux Enterprise Server."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from xml.etree import ElementTree

from .command import Result
from .files import read_text, write_whole
from .installed_packages import parse_zypper_locks
from .openpgp import armoured_key
from .package_manager import (
    LOCK_TIMEOUT,
    TRANSACTION_TIMEOUT,
    Change,
    Package,
    PackageError,
    RpmPackageManager,
    Transaction,
    checked,
)
from .repositories import Credentials, Repository, is_written, repo_file, zypper_credentials

# zypper(8), exit codes: 100 to 103 are information (102: a reboot is suggested), not failures.
_GOOD = (0, 100, 101, 102, 103)
_NOT_FOUND = 104
_SUMMARY = {
    "to-install": "install",
    "to-upgrade": "upgrade",
    "to-upgrade-change-arch": "upgrade",
    "to-downgrade": "downgrade",
    "to-downgrade-change-arch": "downgrade",
    "to-reinstall": "reinstall",
    "to-remove": "remove",
}


class Zypper(RpmPackageManager):
    """The package manager of SLES."""

    name = "zypper"
    repository_files = ("/etc/zypp/repos.d/{}.repo", "/etc/pki/rpm-gpg/{}.asc", "/etc/zypp/credentials.d/{}")

    def interrupted(self) -> tuple[str, ...]:
        # libzypp works package by package; what a cut-off transaction leaves is unmet dependencies, which rpm names.
        answer = self._rpm.run("-Va", "--nofiles", "--nodigest", "--noscripts", timeout=600)
        broken = [
            line.split()[-1] for line in answer.stdout.splitlines() if line.startswith("Unsatisfied dependencies for")
        ]
        return tuple(sorted(name.rstrip(":") for name in broken if "nvidia" in name))

    def repair(self) -> None:
        _good("repair unmet dependencies", self._zypper("verify"))

    def _offered(self, names: Sequence[str]) -> tuple[Package, ...]:
        answer = self._zypper("search", "--details", "--match-exact", "--type", "package", *names, xml=True)
        return () if answer.rc == _NOT_FOUND else parse_search(_good("list offered packages", answer).stdout)

    def simulate(self, transaction: Transaction) -> tuple[Change, ...]:
        arguments = self._arguments(transaction)
        with _without_locks(self._path("etc/zypp/zypp.conf"), transaction.ignore_holds) as environment:
            answer = self._zypper(arguments[0], "--dry-run", *arguments[1:], xml=True, environment=environment)
        return parse_summary(_good(f"resolve {' '.join(arguments)}", answer).stdout)

    def apply(self, transaction: Transaction) -> None:
        arguments = self._arguments(transaction)
        _good(" ".join(arguments), self._zypper(*arguments, xml=True))

    def refresh(self) -> None:
        # Without --gpg-auto-import-keys: that takes whatever key lies beside the metadata, so anybody could sign them.
        _good("fetch the repositories' metadata", self._zypper("refresh", "--force"))

    def holds(self) -> tuple[str, ...]:
        return parse_zypper_locks(read_text(self._path("etc/zypp/locks")) or "")

    def hold(self, packages: Sequence[Package]) -> None:
        if packages:
            names = [package.name for package in packages]
            _good(f"lock {', '.join(names)}", self._zypper("addlock", "--type", "package", *names))

    def unhold(self, names: Sequence[str]) -> None:
        if names:
            _good(f"unlock {', '.join(names)}", self._zypper("removelock", "--type", "package", *names))

    def add_repository(self, repository: Repository) -> bool:
        name, credentials = repository.identifier, repository.credentials
        key_path = self.repository_files[1].format(name)
        changed = write_whole(self._path(key_path), armoured_key(repository.key))
        login = None if credentials is None else zypper_credentials(credentials)
        changed = self._write_credentials(name, login) or changed
        query = "" if credentials is None else f"?credentials={name}"
        changed = write_whole(self._repository_path(name), repo_file(repository, key_path, query=query)) or changed
        if changed:
            # Importing the verified key here means that no later call has to accept a key that it has not seen.
            checked(self._rpm.run("--import", self._path(key_path)), f"import the key {key_path}")
        return changed

    @contextmanager
    def trial(self, _repository: Repository) -> Iterator[None]:
        # zypper keeps the keys that it trusts in rpm's database: to look at a signed repository is to change the host.
        yield None

    def has_credentials(self, identifier: str, _url: str, credentials: Credentials | None) -> bool:
        text = None if credentials is None else zypper_credentials(credentials)
        named = "?credentials=" in (read_text(self._repository_path(identifier)) or "")
        return named == (credentials is not None) and is_written(self._credentials_path(identifier), text)

    def _arguments(self, transaction: Transaction) -> list[str]:
        if not transaction.install:
            return ["remove", "--no-clean-deps", *transaction.remove]
        arguments = ["install", "--auto-agree-with-licenses", "--force-resolution"]
        if transaction.allow_downgrades:
            arguments.append("--oldpackage")
        arguments.append("--recommends" if transaction.recommends else "--no-recommends")
        arguments.extend(f"{item.name}={item.version}" if item.version else item.name for item in transaction.install)
        # A leading "!" removes in the same transaction.
        arguments.extend(f"!{name}" for name in transaction.remove)
        return arguments

    def _zypper(self, *arguments: str, xml: bool = False, environment: Mapping[str, str] | None = None) -> Result:
        return self._run(
            ["zypper", "--non-interactive", *(("--xmlout",) if xml else ()), *self._options, *arguments],
            timeout=TRANSACTION_TIMEOUT,
            environment={"ZYPP_LOCK_TIMEOUT": str(LOCK_TIMEOUT), **(environment or {})},
        )


@contextmanager
def _without_locks(configuration: str, wanted: bool) -> Iterator[Mapping[str, str]]:
    """Give the environment of a resolution that looks past locks: libzypp has no option for that, only its configuration."""
    if not wanted:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="gpufleet-zypp-") as folder:
        kept = [line for line in (read_text(configuration) or "[main]").splitlines() if "locksfile" not in line]
        write_whole(f"{folder}/zypp.conf", "\n".join([*kept, f"locksfile.path = {folder}/locks", ""]))
        yield {"ZYPP_CONF": f"{folder}/zypp.conf"}


def parse_search(text: str) -> tuple[Package, ...]:
    """Return what C(zypper --xmlout search --details) lists, packages that no repository offers left out."""
    found: dict[tuple[str, str], Package] = {}
    for solvable in _elements(text, "solvable"):
        repository = solvable.get("repository", "")
        if solvable.get("kind", "package") != "package" or repository == "(System Packages)":
            continue
        package = Package(solvable.get("name", ""), solvable.get("edition", ""), repository)
        found.setdefault((package.name, package.version), package)
    return tuple(found.values())


def parse_summary(text: str) -> tuple[Change, ...]:
    """Return the changes in the installation summary of C(zypper --xmlout)."""
    changes = []
    for summary in _elements(text, "install-summary"):
        for group in summary:
            action = _SUMMARY.get(group.tag)
            if action is None:
                continue
            for solvable in group.iter("solvable"):
                if solvable.get("type", "package") != "package":
                    continue
                name, new, old = solvable.get("name", ""), solvable.get("edition", ""), solvable.get("edition-old", "")
                changes.append(Change(action, name, new, "") if action == "remove" else Change(action, name, old, new))
    return tuple(changes)


def _elements(text: str, tag: str) -> list[ElementTree.Element]:
    # A plugin or a warning may print outside of the document.
    start, end = text.find("<?xml"), text.rfind("</stream>")
    if start < 0 or end < 0:
        return []
    try:
        return list(ElementTree.fromstring(text[start : end + len("</stream>")]).iter(tag))
    except ElementTree.ParseError as error:
        raise PackageError(f"Failed to read zypper's answer: {error}.") from error


def _good(attempt: str, answer: Result) -> Result:
    """Return the answer, or raise what zypper said, of whose XML the texts are kept, when it failed."""
    if answer.rc in _GOOD:
        return answer
    said = re.sub(r"<[^>]+>", " ", answer.stdout) + "\n" + answer.stderr
    lines = [re.sub(r"\s+", " ", line).strip() for line in said.splitlines()]
    kept = [line for line in lines if line and not re.match(r"(Loading|Reading|Refreshing|Retrieving|Resolving)", line)]
    raise PackageError(f"Failed to {attempt}: {' / '.join(kept[-12:]) or f'exit status {answer.rc}'}.")
