# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one double of a package manager: a host's packages, holds and repositories in memory."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Change, PackageError


class PackageManager:
    """What it is told to change it does, and notes; what it is asked it answers from what it has.

    :ivar log: every call that changes something, with what it was given; C(changes) their names alone, without holds.
    :ivar asked: the transactions that were simulated.
    :ivar fails: by method, with what its next call fails, once.
    :ivar half: packages that an earlier transaction left half done.
    :ivar needed: packages without which nothing can be held.
    :ivar offers: what the repositories have.
    :ivar extra: what the resolver does besides what follows from the transaction.
    :ivar simulations: answers of the resolver in place of that, one after the other; the last one stays.
    """

    name = "apt"

    def __init__(self, packages=(), holds=(), urls=(), offers=()):
        self.packages, self.held, self.urls, self.offers = dict(packages), set(holds), list(urls), tuple(offers)
        self.log, self.asked, self.fails = [], [], {}
        self.half = self.needed = self.extra = self.simulations = self.disabled = self.known_streams = ()
        self.own_repositories, self.enabled_streams = set(), {}
        self.trial_works = True

    @property
    def changes(self):
        return [call[0] for call in self.log if call[0] not in ("hold", "unhold")]

    def _fail(self, method):
        if method in self.fails:
            raise PackageError(self.fails.pop(method))

    def _note(self, method, *given):
        self.log.append((method, *given))
        self._fail(method)

    def after(self, transaction):
        """Return the packages that there are after a transaction."""
        after = {**self.packages, **{package.name: package.version for package in transaction.install}}
        return {name: version for name, version in after.items() if name not in transaction.remove}

    def installed(self):
        return dict(self.packages)

    def interrupted(self):
        return self.half

    def repair(self):
        self._note("repair")
        self.half = ()

    def offered(self, names):
        return tuple(package for package in self.offers if package.name in set(names))

    def simulate(self, transaction):
        self.asked.append(transaction)
        self._fail("simulate")
        if self.simulations:
            answer, *later = self.simulations
            self.simulations = later or self.simulations
            return answer
        before, after = self.packages, self.after(transaction)
        new = [
            Change("upgrade" if before.get(name) else "install", name, before.get(name, ""), version)
            for name, version in after.items()
            if before.get(name) != version
        ]
        gone = [Change("remove", name, version) for name, version in before.items() if name not in after]
        return (*new, *gone, *self.extra)

    def apply(self, transaction):
        self._note("apply", transaction)
        self.packages = self.after(transaction)

    def refresh(self):
        self._note("refresh")

    def missing_for_holds(self):
        return tuple(name for name in self.needed if name not in self.packages)

    def holds(self):
        return tuple(sorted(self.held))

    def hold(self, packages):
        self._note("hold", list(packages))
        self.held |= {package.name for package in packages}

    def unhold(self, names):
        self._note("unhold", list(names))
        self.held -= set(names)

    def repositories(self):
        return tuple(self.urls)

    def add_repository(self, repository):
        self._note("add_repository", repository)
        self.urls.append(repository.url)
        return True

    @contextmanager
    def trial(self, repository):
        tried = copy(self)
        tried.packages, tried.urls, tried.log = dict(self.packages), [*self.urls, repository.url], []
        yield tried if self.trial_works else None

    def has_repository(self, identifier):
        return identifier in self.own_repositories

    def has_credentials(self, _identifier, _url, credentials):
        return credentials is None

    def remove_repository(self, identifier):
        self._note("remove_repository", identifier)
        self.urls.clear()
        return True

    def disabled_repositories(self):
        return self.disabled

    def enable_repositories(self, names):
        self._note("enable_repositories", *names)

    def streams(self):
        return dict(self.enabled_streams)

    def offered_streams(self, _module):
        return self.known_streams

    def enable_stream(self, module, stream):
        self._note("enable_stream", module, stream)
        self.enabled_streams[module] = stream

    def reset_stream(self, module):
        self._note("reset_stream", module)
        self.enabled_streams.pop(module, None)
