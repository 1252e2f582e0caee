# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""dnf 4 and dnf 5: RHEL and its rebuilds, Amazon Linux 2023."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from .command import Result
from .files import read_text, write_whole
from .installed_packages import edition, parse_versionlock
from .openpgp import armoured_key
from .package_manager import TRANSACTION_TIMEOUT, Change, Package, PackageError, RpmPackageManager, Transaction, checked
from .repositories import (
    CREDENTIALS_MODE,
    Credentials,
    Repository,
    canonical,
    disabled_in,
    login_in,
    repo_file,
    with_enabled,
)

_QUERY = "%{name}|%{epoch}|%{version}|%{release}|%{arch}|%{repoid}\\n"
_SECTIONS = {
    r"Installing|Installing dependencies|Installing weak dependencies|Installing group.*": "install",
    "Upgrading": "upgrade",
    "Downgrading": "downgrade",
    "Reinstalling": "reinstall",
    r"Removing|Removing dependent packages|Removing unused dependencies|Removing:.*": "remove",
}
_NOT_ROWS = re.compile(
    r"^(Package\s+Arch|Dependencies resolved|=+$|Transaction Summary|Enabling module|Switching module|Resetting module)"
)
#: Brings C(dnf versionlock), which a minimal installation of dnf 4 does not have. It is a part of dnf 5.
_VERSION_LOCK_PLUGIN = "python3-dnf-plugin-versionlock"


class Dnf(RpmPackageManager):
    """The package manager of RHEL, Rocky, Alma and Amazon Linux."""

    name = "dnf"
    repository_files = ("/etc/yum.repos.d/{}.repo", "/etc/pki/rpm-gpg/{}.asc")
    locked = re.compile(r"Waiting for process with pid|is locked by another|Failed to obtain.*lock")

    _generation: int | None = None

    def interrupted(self) -> tuple[str, ...]:
        # rpm has no half-installed state. What a cut-off transaction leaves is the same package at two versions.
        counted = Counter((package.name, package.architecture) for package in self._rpm.installed())
        twice = {name for (name, _architecture), count in counted.items() if count > 1}
        return tuple(sorted(name for name in twice if not _INSTALLONLY.match(name)))

    def repair(self) -> None:
        self._checked("remove duplicate packages", "-y", "remove", "--duplicates")

    def _offered(self, names: Sequence[str]) -> tuple[Package, ...]:
        # Packages of module streams that are not enabled are offered too: enabling one is part of the plan.
        every = ("--disable-modular-filtering",) if self.generation() == 4 else ()
        # dnf 4 adds the line break itself; dnf 5 does not.
        query = _QUERY if self.generation() == 5 else _QUERY[: -len("\\n")]
        answer = self._checked("list offered packages", "-q", "repoquery", *every, f"--qf={query}", *names)
        return parse_repoquery(answer.stdout)

    def simulate(self, transaction: Transaction) -> tuple[Change, ...]:
        installed = self.installed()
        changes: dict[str, Change] = {}
        unfiltered = self._without_streams(transaction)
        if transaction.ignore_holds:
            unfiltered.append("--disableplugin=versionlock")
        for command in self._commands(transaction):
            # --assumeno resolves, prints the transaction and ends with 1, exactly as a resolver error does.
            answer = self._dnf("--assumeno", *unfiltered, *command)
            said = answer.stdout + answer.stderr
            if answer.rc != 0 and not re.search(r"Operation aborted", said):
                raise PackageError(_explained(f"resolve {' '.join(command)}", answer))
            for change in parse_transaction(answer.stdout, installed):
                changes[change.name] = change
        return tuple(changes.values())

    def apply(self, transaction: Transaction) -> None:
        for part in (
            Transaction(transaction.install, (), True, transaction.recommends),
            Transaction((), transaction.remove),
        ):
            for command in self._commands(part):
                answer = self._dnf("-y", *command)
                if answer.rc != 0:
                    raise PackageError(_explained(" ".join(command), answer))

    def refresh(self) -> None:
        self._checked("fetch the repositories' metadata", "-y", "makecache", "--refresh")

    def missing_for_holds(self) -> tuple[str, ...]:
        if self.generation() != 4 or not _lacks_command(self._dnf("-q", "versionlock", "list")):
            return ()
        if _VERSION_LOCK_PLUGIN in self.installed():
            raise PackageError(
                f"Failed to list version locks: {_VERSION_LOCK_PLUGIN} is installed, but dnf does not know the command versionlock. "
                "Set enabled=1 in /etc/dnf/plugins/versionlock.conf and plugins=1 in /etc/dnf/dnf.conf, or do not hold packages."
            )
        return (_VERSION_LOCK_PLUGIN,)

    def holds(self) -> tuple[str, ...]:
        answer = self._dnf("-q", "versionlock", "list")
        if _lacks_command(answer):
            # Without the plugin nothing is locked, whatever its file says.
            return ()
        return tuple(sorted(parse_versionlock(checked(answer, "list version locks").stdout)))

    def hold(self, packages: Sequence[Package]) -> None:
        # A lock of another version stays beside a new one, and then both are allowed.
        stale = set(self.holds()).intersection(package.name for package in packages)
        self.unhold(sorted(stale))
        if self.generation() == 4:
            if packages:
                specs = [_lock(package) for package in packages]
                self._checked(f"lock {', '.join(specs)}", "versionlock", "add", "--raw", *specs)
            return
        for package in packages:
            self._checked(f"lock {package.name}", "versionlock", "add", f"{package.name} = {package.version}")

    def unhold(self, names: Sequence[str]) -> None:
        if names:
            self._checked(f"unlock {', '.join(names)}", "versionlock", "delete", *names)

    def add_repository(self, repository: Repository) -> bool:
        key_path = self.repository_files[1].format(repository.identifier)
        changed = write_whole(self._path(key_path), armoured_key(repository.key))
        return self._write_repo(self._repository_path(repository.identifier), repository, key_path) or changed

    @staticmethod
    def _write_repo(path: str, repository: Repository, key_path: str) -> bool:
        text = repo_file(repository, key_path, login=repository.credentials)
        return write_whole(path, text, 0o644 if repository.credentials is None else CREDENTIALS_MODE)

    @contextmanager
    def trial(self, repository: Repository) -> Iterator[Dnf]:
        with tempfile.TemporaryDirectory(prefix="gpufleet-dnf-trial-") as folder:
            key = os.path.join(folder, f"{repository.identifier}.asc")
            write_whole(key, armoured_key(repository.key))
            self._write_repo(os.path.join(folder, f"{repository.identifier}.repo"), repository, key)
            places = ",".join((os.path.dirname(self._repository_path("any")), folder))
            tried = self._with(f"--setopt=reposdir={places}")
            tried._tried = (canonical(repository.url),)
            tried._checked("fetch the repository's metadata", "-y", "--repo", repository.identifier, "makecache")
            yield tried

    def has_credentials(self, identifier: str, url: str, credentials: Credentials | None) -> bool:
        if canonical(url) in self._tried:
            return True
        path = self._repository_path(identifier)
        private = credentials is None or (os.path.exists(path) and os.stat(path).st_mode & 0o7777 == CREDENTIALS_MODE)
        return private and login_in(read_text(path) or "") == credentials

    def disabled_repositories(self) -> tuple[str, ...]:
        return tuple(sorted(name for _path, text in self._repo_files() for name in disabled_in(text)))

    def enable_repositories(self, names: Sequence[str]) -> None:
        # As config-manager does it, which is a plugin that a minimal system of dnf 4 lacks.
        for path, text in self._repo_files():
            wanted = [name for name in disabled_in(text) if name in names]
            if wanted:
                # The file may hold credentials, and then is for root alone.
                write_whole(path, with_enabled(text, wanted), os.stat(path).st_mode & 0o7777)

    def streams(self) -> Mapping[str, str]:
        if self.generation() != 4:
            return {}
        return parse_streams(self._dnf("-q", "module", "list", "--enabled").stdout)

    def offered_streams(self, module: str) -> tuple[str, ...]:
        if self.generation() != 4:
            return ()
        answer = self._dnf("-q", "module", "list", module)
        if answer.rc != 0 and re.search(r"No matching Modules", answer.stdout + answer.stderr, re.IGNORECASE):
            return ()
        return parse_offered_streams(checked(answer, f"list the streams of {module}").stdout, module)

    def enable_stream(self, module: str, stream: str) -> None:
        if self.streams().get(module) == stream:
            return
        if module in self.streams():
            # dnf refuses to enable a second stream of a module. Resetting forgets the choice and removes nothing.
            self.reset_stream(module)
        self._checked(f"enable {module}:{stream}", "-y", "module", "enable", f"{module}:{stream}")

    def reset_stream(self, module: str) -> None:
        self._checked(f"reset {module}", "-y", "module", "reset", module)

    def generation(self) -> int:
        """Return 5 for dnf 5 and 4 for everything before it."""
        if self._generation is None:
            said = self._run(["dnf", "--version"], timeout=60).stdout
            self._generation = 5 if re.search(r"dnf5|libdnf5", said) else 4
        return self._generation

    def _without_streams(self, transaction: Transaction) -> list[str]:
        """Return options that show the resolver packages of a stream that will be enabled only when it is for real."""
        module, _colon, stream = transaction.stream.partition(":")
        if not stream or self.streams().get(module) == stream:
            return []
        origins = sorted({package.origin for package in transaction.install if package.origin})
        return [f"--setopt={origin}.module_hotfixes=1" for origin in origins]

    def _commands(self, transaction: Transaction) -> list[list[str]]:
        weak = f"--setopt=install_weak_deps={'True' if transaction.recommends else 'False'}"
        commands = []
        if transaction.install:
            wanted = [_spec(package) for package in transaction.install]
            commands.append([weak, "--allowerasing", "install", *wanted])
        # dnf has no command that installs and removes at once (dnf 5 lost the shell). The new set comes first: what
        # conflicts with it is erased in the same transaction, and only leftovers remain for the second command.
        leftovers = [name for name in transaction.remove if name in self.installed()]
        if leftovers:
            commands.append([weak, "--noautoremove", "remove", *leftovers])
        return commands

    def _dnf(self, *arguments: str) -> Result:
        return self._run_patiently(["dnf", *self._options, *arguments], timeout=TRANSACTION_TIMEOUT)

    def _checked(self, attempt: str, *arguments: str) -> Result:
        return checked(self._dnf(*arguments), attempt)


def _spec(package: Package) -> str:
    return f"{package.name}-{package.version}" if package.version else package.name


def _lock(package: Package) -> str:
    """Return a lock in the form that dnf writes itself: with the epoch, also where it is 0."""
    version = package.version if ":" in package.version else f"0:{package.version}"
    return f"{package.name}-{version}.*"


def _lacks_command(answer: Result) -> bool:
    return answer.rc != 0 and "No such command" in answer.stdout + answer.stderr


_INSTALLONLY = re.compile(r"^(gpg-pubkey|kernel.*|kmod-.*|installonlypkg.*)$")


def parse_repoquery(text: str) -> tuple[Package, ...]:
    """Return what a repoquery in our format lists, each version of a package once."""
    found: dict[tuple[str, str], Package] = {}
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) == 6:
            package = Package(parts[0], edition(*parts[1:4]), parts[5])
            found.setdefault((package.name, package.version), package)
    # dnf lists the oldest first.
    return tuple(reversed(list(found.values())))


def parse_transaction(text: str, installed: Mapping[str, str]) -> tuple[Change, ...]:
    """Return the changes in the table that C(dnf --assumeno) prints. C(installed): versions by name, for what was there before."""
    changes: dict[str, Change] = {}
    action, carried = "", ""
    for line in text.splitlines():
        verbs = (verb for pattern, verb in _SECTIONS.items() if re.fullmatch(f"(?:{pattern}):?", line.strip()))
        heading = "" if line.startswith(" ") else next(verbs, "")
        if heading:
            action, carried = heading, ""
            continue
        if _NOT_ROWS.match(line.strip()):
            action = "" if line.startswith(("Transaction Summary", "Enabling", "Switching", "Resetting")) else action
            continue
        if not action or not line.startswith(" "):
            continue
        words = (f"{carried} {line}" if carried else line).split()
        if words[0] == "replacing":
            # dnf writes "replacing  name.arch version" under the row of the package that obsoletes it.
            name = words[1].rpartition(".")[0]
            changes.setdefault(name, Change("remove", name, words[2]))
            continue
        if len(words) < 3:
            # A long name is printed alone; the rest of its row follows on the next line.
            carried = " ".join(words)
            continue
        carried = ""
        name, version = words[0], words[2]
        before = installed.get(name, version if action == "remove" else "")
        after = "" if action == "remove" else version
        changes[name] = Change(action, name, before, after)
    return tuple(changes.values())


def parse_streams(text: str) -> dict[str, str]:
    """Return enabled streams by module from C(dnf module list --enabled)."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        # The last line explains the marks: "Hint: [d]efault, [e]nabled, [x]disabled, [i]nstalled".
        if len(words) >= 2 and "[e]" in words[1:4] and not line.startswith("Hint:"):
            found[words[0]] = words[1]
    return found


def parse_offered_streams(text: str, module: str) -> tuple[str, ...]:
    """Return the streams of a module from C(dnf module list)."""
    rows = (line.split() for line in text.splitlines())
    return tuple(sorted({row[1] for row in rows if len(row) >= 2 and row[0] == module}))


def _explained(attempt: str, answer: Result) -> str:
    said = [line.strip() for line in (answer.stderr + "\n" + answer.stdout).splitlines() if line.strip()]
    reasons = [
        line for line in said if re.search(r"^(Error|Problem|No match|- )|nothing provides|conflict|requires", line)
    ]
    return f"Failed to {attempt}: {' / '.join(reasons[:12] or said[-6:])}."
