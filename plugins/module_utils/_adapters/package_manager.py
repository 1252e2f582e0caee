# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all package managers answer and accept: packages, transactions, changes, and the interface that apt, dnf and
zypper implement. The adapters ask and carry out; which packages at which version is decided by the planners.
"""

from __future__ import annotations

import os
import re
import time
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from .._plan import Failure, Refused
from .command import CommandError, Result, Runner
from .command import run as run_command
from .files import list_directory, read_text, remove, write_whole
from .installed_packages import RpmDatabase, versions
from .repositories import CREDENTIALS_MODE, Credentials, Repository, base_urls_in

#: Seconds that a package manager waits for another one (unattended upgrades, cloud-init) to let go of its lock.
LOCK_TIMEOUT = 600
#: Seconds between two tries.
_PAUSE = 2.0
#: Seconds that one transaction may take: a DKMS build on a slow, loaded host takes nine minutes.
TRANSACTION_TIMEOUT = 3600


class PackageError(Failure):
    """A package manager could not do what it was asked; the message has what it said."""


@dataclass(frozen=True)
class Package:
    """A package at a version, empty for "the manager's choice". C(origin): the URL or id of the repository that offers it; empty for an installed one."""

    name: str
    version: str = ""
    origin: str = ""


@dataclass(frozen=True)
class Change:
    """What a transaction does to one package. C(action): C(install), C(upgrade), C(downgrade), C(reinstall) or C(remove)."""

    action: str
    name: str
    before: str = ""
    after: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"action": self.action, "name": self.name, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class Transaction:
    """What is asked of a package manager, as one unit that is resolved and carried out together.

    :param recommends: whether weak dependencies are installed too (a compute-only driver does not want a desktop).
    :param preferences: apt only: preferences that are in force for this transaction, in place of those in the files C(replaces). apt's resolver only
        considers one candidate of each package, so exact dependencies need them.
    :param replaces: names of preferences files on the host that do not count for this transaction.
    :param ignore_holds: whether L(PackageManager.simulate) looks past holds, which are let go before it is carried out.
    :param stream: dnf only: the module stream C(module:stream) that is going to be enabled for it.
    """

    install: tuple[Package, ...] = ()
    remove: tuple[str, ...] = ()
    allow_downgrades: bool = False
    recommends: bool = False
    preferences: str = ""
    replaces: tuple[str, ...] = ()
    ignore_holds: bool = False
    stream: str = ""


class PackageManager(Protocol):
    """What C(_adapters/packages_apt.py), C(packages_dnf.py) and C(packages_zypper.py) implement."""

    name: str

    def installed(self) -> dict[str, str]:
        """Return the version of every completely installed package, by name."""

    def interrupted(self) -> tuple[str, ...]:
        """Return the packages that a transaction that was cut off has left half done."""

    def repair(self) -> None:
        """Bring a package database that was cut off back to a consistent state."""

    def offered(self, names: Iterable[str]) -> tuple[Package, ...]:
        """Return every version that the configured repositories offer of C(names), of each name the newest first."""

    def simulate(self, transaction: Transaction) -> tuple[Change, ...]:
        """Resolve C(transaction) without changing anything. Raises L(PackageError) when it cannot be resolved."""

    def apply(self, transaction: Transaction) -> None:
        """Carry C(transaction) out."""

    def refresh(self) -> None:
        """Fetch the repositories' metadata."""

    def missing_for_holds(self) -> tuple[str, ...]:
        """Return the packages that have to be installed before anything can be held; empty where nothing is missing."""
        return ()

    def holds(self) -> tuple[str, ...]:
        """Return the names of packages that nothing may move."""

    def hold(self, packages: Sequence[Package]) -> None:
        """Hold C(packages) at their versions."""

    def unhold(self, names: Sequence[str]) -> None:
        """Let C(names) go."""

    def repositories(self) -> tuple[str, ...]:
        """Return the URLs of the repositories that are configured and enabled, as C(repositories.canonical) spells them."""

    def add_repository(self, repository: Repository) -> bool:
        """Configure C(repository) and its verified key; return whether that changed anything."""

    def trial(self, repository: Repository) -> AbstractContextManager[PackageManager | None]:
        """Give a package manager that sees C(repository) too, and leaves the host as it is; only to ask and to simulate. None where the package
        manager cannot look at a repository without trusting its key for good (zypper).
        """

    def has_repository(self, identifier: str) -> bool:
        """Return whether L(add_repository) has written a repository of this name."""

    def has_credentials(self, identifier: str, url: str, credentials: Credentials | None) -> bool:
        """Return whether L(add_repository) has written C(credentials), for root alone, for the repository C(identifier) at C(url)."""

    def remove_repository(self, identifier: str) -> bool:
        """Remove what L(add_repository) wrote; return whether anything was there."""

    def disabled_repositories(self) -> tuple[str, ...]:
        """Return the names of the repositories that are configured and not enabled. This and all below: only dnf has it."""
        return ()

    def enable_repositories(self, names: Sequence[str]) -> None:
        raise PackageError(f"Failed to enable {', '.join(names)}: {self.name} cannot enable repositories by name.")

    def streams(self) -> Mapping[str, str]:
        """Return the enabled module streams, by module."""
        return {}

    def offered_streams(self, module: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return the streams of C(module) that the repositories have."""
        return ()

    def enable_stream(self, module: str, stream: str) -> None:
        """Enable C(stream) of C(module), and no other."""
        raise PackageError(f"Failed to enable {module}:{stream}: {self.name} has no module streams.")

    def reset_stream(self, module: str) -> None:
        """Forget which stream of C(module) is enabled."""
        raise PackageError(f"Failed to reset {module}: {self.name} has no module streams.")


_Manager = TypeVar("_Manager", bound="HostPackageManager")


class HostPackageManager(PackageManager):
    """What the adapters share: a repository is a file, with others for its key and its credentials. C(root):
    the tree in which repository files and keys are written; another one only in tests.
    """

    name: str
    #: Of a repository, by its name: the file that configures it, its key, its credentials.
    repository_files: tuple[str, ...]
    #: Of those that do not wait for the lock of the package database by themselves: what they say where another process holds it.
    locked: re.Pattern[str]

    def __init__(self, *, root: str = "/", options: Sequence[str] = (), runner: Runner = run_command) -> None:
        self._root = root
        self._options = tuple(options)
        self._run = runner
        #: URLs of repositories that are on trial.
        self._tried: tuple[str, ...] = ()

    def offered(self, names: Iterable[str]) -> tuple[Package, ...]:
        wanted = sorted(set(names))
        return self._offered(wanted) if wanted else ()

    @abstractmethod
    def _offered(self, names: Sequence[str]) -> tuple[Package, ...]:
        """Do as L(offered) with names, of which there are some."""

    def _with(self: _Manager, *options: str) -> _Manager:
        return type(self)(root=self._root, options=(*self._options, *options), runner=self._run)

    def _run_patiently(self, command: Sequence[str], **options: object) -> Result:
        """Run C(command) again and again while another process holds the lock, for L(LOCK_TIMEOUT) seconds at most."""
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            result = self._run(command, **options)
            if result.rc == 0 or not self.locked.search(result.stderr) or time.monotonic() >= deadline:
                return result
            time.sleep(_PAUSE)

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def _repository_path(self, identifier: str) -> str:
        return self._path(self.repository_files[0].format(identifier))

    def _credentials_path(self, identifier: str) -> str:
        return self._path(self.repository_files[-1].format(identifier))

    def _write_credentials(self, identifier: str, text: str | None) -> bool:
        path = self._credentials_path(identifier)
        return remove(path) if text is None else write_whole(path, text, CREDENTIALS_MODE)

    def has_repository(self, identifier: str) -> bool:
        return os.path.exists(self._repository_path(identifier))

    def remove_repository(self, identifier: str) -> bool:
        removed = [remove(self._path(file.format(identifier))) for file in self.repository_files]
        return any(removed)


class RpmPackageManager(HostPackageManager):
    """What dnf and zypper share: the database of rpm, and repositories in C(.repo) files."""

    def __init__(self, *, root: str = "/", options: Sequence[str] = (), runner: Runner = run_command) -> None:
        super().__init__(root=root, options=options, runner=runner)
        self._rpm = RpmDatabase(root, runner)

    def installed(self) -> dict[str, str]:
        return versions(self._rpm.installed())

    def repositories(self) -> tuple[str, ...]:
        return (*(url for _path, text in self._repo_files() for url in base_urls_in(text)), *self._tried)

    def _repo_files(self) -> list[tuple[str, str]]:
        """Return path and text of every file with repositories."""
        folder = os.path.dirname(self._repository_path("any"))
        paths = [os.path.join(folder, entry) for entry in list_directory(folder) if entry.endswith(".repo")]
        return [(path, read_text(path) or "") for path in paths]


@contextmanager
def released(manager: PackageManager, names: Collection[str]) -> Iterator[None]:
    """Release packages for a change that their holds would keep from being made; hold again what is installed of them where it fails."""
    manager.unhold(list(names))
    try:
        yield
    except (CommandError, PackageError, Refused):
        hold_installed(manager, names)
        raise


def hold_installed(manager: PackageManager, names: Collection[str]) -> None:
    """Hold those of some packages that are installed, at their versions."""
    installed = manager.installed()
    manager.hold([Package(name, installed[name]) for name in sorted(names) if name in installed])


def checked(result: Result, attempt: str, remedy: str = "") -> Result:
    """Return C(result), or raise L(PackageError) saying what was tried and what the tool said when it failed."""
    if result.rc == 0:
        return result
    raise PackageError(failure(attempt, result.stderr or result.stdout, remedy))


def failure(attempt: str, said: str, remedy: str = "") -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    text = f"Failed to {attempt}: {' / '.join(lines[-12:]) or 'it said nothing'}."
    return f"{text} {remedy}" if remedy else text
