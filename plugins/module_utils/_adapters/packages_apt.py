# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""apt and dpkg: Debian and Ubuntu."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .command import Result, Runner
from .command import run as run_command
from .files import list_directory, read_bytes, read_text, remove, write_whole
from .package_manager import (
    LOCK_TIMEOUT,
    TRANSACTION_TIMEOUT,
    Change,
    HostPackageManager,
    Package,
    PackageError,
    Transaction,
    checked,
    failure,
)
from .repositories import CREDENTIALS_MODE, Credentials, Repository, apt_auth, canonical, deb822, is_written, sources_in

_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    # Ubuntu's needrestart would restart services, the container runtime among them, in the middle of a transaction.
    "NEEDRESTART_SUSPEND": "1",
    "UCF_FORCE_CONFFOLD": "1",
}
# A user's changed configuration file is kept; an unchanged one is replaced by the package's new one.
_KEEP_CONFIGURATION = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
#: Of packages whose files are all there.
_UNCONFIGURED = ("unpacked", "half-configured")


class Apt(HostPackageManager):
    """The package manager of Debian and Ubuntu."""

    name = "apt"
    repository_files = (
        "/etc/apt/sources.list.d/{}.sources",
        "/etc/apt/keyrings/{}.gpg",
        "/etc/apt/auth.conf.d/{}.conf",
    )
    locked = re.compile(
        r"lock (?:file )?.*(?:is held by|was locked by)|Could not get lock|is locked by another process"
    )

    def __init__(self, *, root: str = "/", options: Sequence[str] = (), runner: Runner = run_command) -> None:
        super().__init__(root=root, options=options, runner=runner)
        self._dpkg = () if root == "/" else (f"--admindir={self._path('var/lib/dpkg')}",)

    def installed(self) -> dict[str, str]:
        # A held package is installed as well; what counts is the third word of dpkg's status.
        return {name: version for name, version, state in self._status() if state == "installed"}

    def interrupted(self) -> tuple[str, ...]:
        half = {"half-installed", *_UNCONFIGURED, "triggers-awaited", "triggers-pending"}
        names = [name for name, _version, state in self._status() if state in half]
        journal = self._path("var/lib/dpkg/updates")
        if any(entry.isdigit() for entry in list_directory(journal)):
            names.append("dpkg's own journal")
        return tuple(sorted(set(names)))

    def repair(self) -> None:
        done = self._run_patiently(
            ["dpkg", *self._dpkg, "--force-confdef", "--force-confold", "--configure", "-a"],
            environment=_ENVIRONMENT,
            timeout=TRANSACTION_TIMEOUT,
        )
        # A package that was cut off while it was unpacked cannot be configured. apt's fixer unpacks some of them again; one whose
        # dependencies are met it leaves alone, as if dpkg would configure it: that has to be named.
        # A pin may want an older version of it than the one that was being unpacked.
        named = self._to_reinstall()
        fixed = self._fix(named)
        if fixed.rc != 0:
            # Where power was lost before what a package needs in its version was unpacked, too, apt finds no other version of it unless it is named.
            named = tuple(
                sorted({*named, *(name for name, _version, state in self._status() if state in _UNCONFIGURED)})
            )
            fixed = self._fix(named)
        if fixed.rc != 0:
            checked(done, "repair the interrupted package database")
            checked(fixed, "repair the interrupted package database")

    def _fix(self, named: Sequence[str]) -> Result:
        """Have apt mend what is broken. C(named): packages to unpack again, at the version that its pins want."""
        holds = self.holds() if named else ()
        fixed = self._apt_get(
            "install",
            "--fix-broken",
            "--allow-downgrades",
            "--allow-change-held-packages",
            *_KEEP_CONFIGURATION,
            *(("--reinstall", "--no-install-recommends", *named) if named else ()),
        )
        # apt takes the hold off a package that is named.
        self.hold([Package(name) for name in named if name.partition(":")[0] in holds])
        return fixed

    def _offered(self, names: Sequence[str]) -> tuple[Package, ...]:
        return parse_madison(self._run(["apt-cache", *self._options, "madison", *names], timeout=120).stdout)

    def simulate(self, transaction: Transaction) -> tuple[Change, ...]:
        # The form in which apt lists packages is the host's to configure; here it is the one that parse_simulation reads.
        form = _settings("APT::Output-Version=0", "APT::Get::Show-Versions=false", "APT::Get::List-Columns=false")
        holds = ("--ignore-hold",) if transaction.ignore_holds else ()
        with self._pinned(transaction) as pinned:
            answer = self._run(
                ["apt-get", *self._options, *pinned, *form, "-s", "-y", *holds, *_arguments(transaction)],
                timeout=300,
                environment=_ENVIRONMENT,
            )
        _checked(answer, f"resolve {describe(transaction)}")
        return parse_simulation(answer.stdout)

    def apply(self, transaction: Transaction) -> None:
        with self._pinned(transaction) as pinned:
            answer = self._apt_get(*pinned, *_KEEP_CONFIGURATION, *_arguments(transaction))
        _checked(answer, describe(transaction))

    @contextmanager
    def _pinned(self, transaction: Transaction) -> Iterator[tuple[str, ...]]:
        """Give the options for a transaction with preferences of its own: the host's files, less those it replaces."""
        if not transaction.preferences:
            yield ()
            return
        with tempfile.TemporaryDirectory(prefix="gpufleet-apt-") as folder:
            own = self._path("etc/apt/preferences.d")
            for entry in list_directory(own):
                if entry not in transaction.replaces:
                    os.symlink(os.path.join(own, entry), os.path.join(folder, entry))
            write_whole(os.path.join(folder, "00-gpufleet-transaction"), transaction.preferences)
            os.chmod(folder, 0o755)
            yield _settings(f"Dir::Etc::PreferencesParts={folder}")

    def refresh(self) -> None:
        answer = self._run(
            ["apt-get", *self._options, "-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT}", "update", "-q"],
            timeout=TRANSACTION_TIMEOUT,
            environment=_ENVIRONMENT,
        )
        remedy = "Check that the repository can be reached and is signed by its key."
        checked(answer, "fetch the package lists", remedy)
        # apt-get update ends with 0 when an index could not be fetched and an old one is used in its place.
        stale = [line for line in answer.stderr.splitlines() if line.startswith(("E:", "W: Failed to fetch", "Err:"))]
        if stale:
            raise PackageError(f"Failed to fetch the package lists: {' / '.join(stale)}. {remedy}")

    def holds(self) -> tuple[str, ...]:
        answer = checked(self._run(["apt-mark", *self._options, "showhold"], timeout=60), "list held packages")
        return tuple(sorted(line.partition(":")[0] for line in answer.stdout.split()))

    def hold(self, packages: Sequence[Package]) -> None:
        self._mark("hold", "hold", [package.name for package in packages])

    def unhold(self, names: Sequence[str]) -> None:
        self._mark("unhold", "release", names)

    def repositories(self) -> tuple[str, ...]:
        # apt reads nothing from a source whose key file is not there, as that of NVIDIA's local-repository package is not
        # until somebody copies it.
        found = (url for url, key in self._sources() if not key.startswith("/") or os.path.exists(self._path(key)))
        return (*found, *self._tried)

    def add_repository(self, repository: Repository) -> bool:
        name, credentials = repository.identifier, repository.credentials
        own, keyring = self._repository_path(name), self.repository_files[1].format(name)
        login = None if credentials is None else apt_auth(repository.url, credentials)
        opened = self._write_credentials(name, login)
        for url, signed_by in self._sources(without=own):
            if url != canonical(repository.url) or signed_by == keyring:
                continue
            path = self._path(signed_by)
            if signed_by.startswith("/") and read_bytes(path) in (None, repository.key):
                # That source is complete with the key that it names: a second one would be in its way.
                return write_whole(path, repository.key) or opened
            # apt refuses to read any list when one URL is signed by two different key files.
            raise PackageError(
                f"Failed to add the repository {repository.url}: another file in /etc/apt has it already, "
                f"signed by {signed_by or 'any trusted key'}. Remove that entry, or leave the repository to it "
                "(nvidia_driver_manage_repository: false)."
            )
        changed = write_whole(self._path(keyring), repository.key)
        return write_whole(own, deb822(repository, keyring)) or changed or opened

    @contextmanager
    def trial(self, repository: Repository) -> Iterator[Apt]:
        with tempfile.TemporaryDirectory(prefix="gpufleet-apt-trial-") as folder:
            # apt reads lists and keys without its privileges.
            os.chmod(folder, 0o755)
            own, parts, lists = (os.path.join(folder, name) for name in ("own", "parts", "lists"))
            os.makedirs(own)
            os.makedirs(parts)
            os.makedirs(os.path.join(lists, "partial"))
            sources = self._path("etc/apt/sources.list.d")
            for place, target in ((sources, parts), (self._path("var/lib/apt/lists"), lists)):
                for entry in list_directory(place):
                    path = os.path.join(place, entry)
                    # apt reads nothing at all when one URL is signed by two keys; for real such a source goes first.
                    same = place == sources and _names(read_text(path) or "", repository.url)
                    if os.path.isfile(path) and entry != "lock" and not same:
                        os.symlink(path, os.path.join(target, entry))
            keyring = os.path.join(folder, f"{repository.identifier}.gpg")
            write_whole(keyring, repository.key)
            text = deb822(repository, keyring)
            for place in (own, parts):
                write_whole(os.path.join(place, f"{repository.identifier}.sources"), text)
            own_lists = _settings("Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache=", f"Dir::State::Lists={lists}/")
            opened = self._trial_credentials(repository, os.path.join(folder, "auth"))
            # The other repositories' lists stay as the host has them.
            alone = ("Dir::Etc::SourceList=/dev/null", f"Dir::Etc::SourceParts={own}", "APT::Get::List-Cleanup=0")
            self._with(*own_lists, *opened, *_settings(*alone)).refresh()
            tried = self._with(*own_lists, *opened, *_settings(f"Dir::Etc::SourceParts={parts}"))
            tried._tried = (canonical(repository.url),)
            yield tried

    def _trial_credentials(self, repository: Repository, folder: str) -> tuple[str, ...]:
        """Put the host's credentials and those of the repository into C(folder), and return the options that have apt read them there."""
        if repository.credentials is None:
            return ()
        os.makedirs(folder, mode=0o700)
        there, name = self._path("etc/apt/auth.conf.d"), f"{repository.identifier}.conf"
        for entry in list_directory(there):
            if entry != name:
                os.symlink(os.path.join(there, entry), os.path.join(folder, entry))
        write_whole(os.path.join(folder, name), apt_auth(repository.url, repository.credentials), CREDENTIALS_MODE)
        return _settings(f"Dir::Etc::netrcparts={folder}/")

    def has_credentials(self, identifier: str, url: str, credentials: Credentials | None) -> bool:
        text = None if credentials is None else apt_auth(url, credentials)
        return canonical(url) in self._tried or is_written(self._credentials_path(identifier), text)

    def preferences(self, name: str) -> str | None:
        content = read_bytes(self._path(f"etc/apt/preferences.d/{name}"))
        return None if content is None else content.decode(errors="replace")

    def write_preferences(self, name: str, text: str | None) -> bool:
        """Write, or with None remove, the preferences file C(name); return whether that changed anything."""
        path = self._path(f"etc/apt/preferences.d/{name}")
        return remove(path) if text is None else write_whole(path, text)

    def _sources(self, without: str = "") -> list[tuple[str, str]]:
        folder = self._path("etc/apt/sources.list.d")
        files = [
            os.path.join(folder, entry) for entry in list_directory(folder) if entry.endswith((".list", ".sources"))
        ]
        found: list[tuple[str, str]] = []
        for path in [self._path("etc/apt/sources.list"), *files]:
            if path != without:
                found.extend(sources_in(read_text(path) or ""))
        return found

    def _status(self) -> list[tuple[str, str, str]]:
        answer = self._run(
            ["dpkg-query", *self._dpkg, "-W", "-f", "${Package}\\t${Version}\\t${db:Status-Status}\\n"], timeout=60
        )
        return parse_status(answer.stdout)

    def _to_reinstall(self) -> tuple[str, ...]:
        """Return the packages that dpkg refuses to configure before they are unpacked again."""
        answer = self._run(
            ["dpkg-query", *self._dpkg, "-W", "-f", "${binary:Package}\\t${db:Status-Eflag}\\n"], timeout=60
        )
        pairs = (line.partition("\t") for line in answer.stdout.splitlines())
        return tuple(sorted(name for name, _tab, flag in pairs if flag == "reinstreq"))

    def _mark(self, verb: str, attempt: str, names: Sequence[str]) -> None:
        if names:
            answer = self._run_patiently(["apt-mark", *self._options, verb, *names], timeout=60)
            checked(answer, f"{attempt} {', '.join(names)}")

    def _apt_get(self, *arguments: str) -> Result:
        return self._run(
            ["apt-get", *self._options, "-y", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT}", *arguments],
            timeout=TRANSACTION_TIMEOUT,
            environment=_ENVIRONMENT,
        )


def _settings(*settings: str) -> tuple[str, ...]:
    return tuple(part for setting in settings for part in ("-o", setting))


def _names(text: str, url: str) -> bool:
    """Return whether a source file has the repository at C(url), whose last part may be the processor architecture."""
    architecture = canonical(url).rpartition("/")[2]
    return any(found.replace("$(ARCH)", architecture) == canonical(url) for found, _signed_by in sources_in(text))


def describe(transaction: Transaction) -> str:
    """Return a transaction as a phrase for messages."""
    parts = []
    if transaction.install:
        parts.append("install " + " ".join(_wanted(package) for package in transaction.install))
    if transaction.remove:
        parts.append("remove " + " ".join(transaction.remove))
    return " and ".join(parts) or "do nothing"


def _wanted(package: Package) -> str:
    return f"{package.name}={package.version}" if package.version else package.name


def _arguments(transaction: Transaction) -> list[str]:
    # What may be removed is judged on the simulation, by the planner.
    arguments = ["install", "--purge", "--allow-change-held-packages"]
    if transaction.allow_downgrades:
        arguments.append("--allow-downgrades")
    arguments.append("--install-recommends" if transaction.recommends else "--no-install-recommends")
    arguments.extend(_wanted(package) for package in transaction.install)
    arguments.extend(f"{name}-" for name in transaction.remove)
    return arguments


def _checked(answer: Result, attempt: str) -> None:
    """Raise what apt said when it failed: which dependencies are unmet is on its standard output, the verdict on the other."""
    if answer.rc != 0:
        _before, found, unmet = answer.stdout.partition("The following packages have unmet dependencies:\n")
        killed = f"\napt-get was ended by signal {-answer.rc}" if answer.rc < 0 else ""
        raise PackageError(failure(attempt, (unmet if found else "") + answer.stderr + killed))


_SIMULATED = re.compile(
    r"^(?P<what>Inst|Remv|Purg) (?P<name>[^\s:]+)(?::\S+)?(?: \[(?P<old>[^\]]+)\])?(?: \((?P<new>\S+)[^)]*\))?"
)
#: The names of packages, in lines that begin with a space.
_DOWNGRADED = re.compile(r"^The following packages will be DOWNGRADED:\n((?: .*\n)+)", re.MULTILINE)


def parse_madison(text: str) -> tuple[Package, ...]:
    """Return what C(apt-cache madison) lists, each version of a package once, source packages left out."""
    found: dict[tuple[str, str], Package] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 3 or parts[2].endswith(" Sources"):
            continue
        found.setdefault((parts[0], parts[1]), Package(parts[0], parts[1], canonical(parts[2].split(" ")[0])))
    return tuple(found.values())


def parse_status(text: str) -> list[tuple[str, str, str]]:
    """Return (name, version, state) from C(dpkg-query); of several architectures the first that is installed."""
    found: dict[str, tuple[str, str, str]] = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) == 3 and (parts[0] not in found or found[parts[0]][2] != "installed"):
            found[parts[0]] = (parts[0], parts[1], parts[2])
    return list(found.values())


def parse_simulation(text: str) -> tuple[Change, ...]:
    """Return the changes that C(apt-get -s) announces; the lines about configuration add nothing to them."""
    downgraded = {name.partition(":")[0] for names in _DOWNGRADED.findall(text) for name in names.split()}
    changes: dict[str, Change] = {}
    for line in text.splitlines():
        match = _SIMULATED.match(line)
        if match is None:
            continue
        name, old, new = match.group("name"), match.group("old") or "", match.group("new") or ""
        if match.group("what") != "Inst":
            # A package that is removed and installed again in one transaction is listed twice; the installation counts.
            changes.setdefault(name, Change("remove", name, old))
            continue
        changes[name] = Change(_action(old, new, name in downgraded), name, old, new)
    return tuple(changes.values())


def _action(old: str, new: str, downgraded: bool) -> str:
    if not old:
        return "install"
    if old == new:
        return "reinstall"
    return "downgrade" if downgraded else "upgrade"
