# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every product has of its packages' stage, and the double of a package manager that its tests share."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import package_manager
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import (
    Change,
    Package,
    PackageError,
    Transaction,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import (
    PackageSet,
    PackageState,
    at_version,
    check_changes,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.transactions import (
    Request,
    configure,
    install,
    package_appliers,
    resolve,
    try_request,
    with_newer_lists,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.tests.unit.package_manager import PackageManager

TOOL = PackageSet("tool", "tool", "tool_", "they move together", ("tool-1",), "2.0.0", "1.5.0")
NAMES = ("tool-a", "tool-b")
OFFERS = tuple(Package(name, f"{version}-1") for version in ("2.0.0", "1.0.0") for name in NAMES)


class State(PackageState):
    @property
    def held(self):
        return tuple(name for name in self.holds if name.startswith("tool"))


def select(offers):
    chosen = at_version(offers, NAMES, "2.0.0")
    if len(chosen) < len(NAMES):
        raise Refused("tool_version", "it is not offered")
    return chosen


def check(changes, asked):
    check_changes(changes, asked, lambda change: change.action == "remove", "tool")


REQUEST = Request(NAMES, select, lambda chosen: Transaction(tuple(chosen)), check)


def steps(state, hold=True, releasable=()):
    def made(differing, old):
        return Step(Kind.INSTALL_TOOLKIT, "tool", f"{sorted(differing)} {old}")

    return [(step.kind.key, step.data) for step in TOOL.present_steps(state, NAMES, "2.0.0", hold, releasable, made)]


@pytest.mark.parametrize("adapter", ["packages_apt.Apt", "packages_dnf.Dnf", "packages_zypper.Zypper", None])
def test_the_double_and_the_adapters_answer_the_same_calls(adapter):
    """A double that lacks a method, or takes other arguments, proves nothing about the adapters."""
    if adapter is None:
        made = PackageManager
    else:
        file, name = adapter.split(".")
        module = __import__(package_manager.__package__ + "." + file, fromlist=[name])
        made = getattr(module, name)
    for name, wanted in inspect.getmembers(package_manager.PackageManager, inspect.isfunction):
        if not name.startswith("_"):
            assert len(inspect.signature(getattr(made, name)).parameters) == len(inspect.signature(wanted).parameters)


def test_what_is_right_and_held_needs_nothing_and_one_that_is_not_needs_all():
    right = dict.fromkeys(NAMES, "2.0.0-1")
    assert steps(State(right, NAMES)) == []
    assert steps(State(right, NAMES[:1])) == [("hold_packages", {"packages": list(NAMES)})]
    assert steps(State(right, missing_for_holds=("plugin",)))[0] == ("install_prerequisites", {"packages": ["plugin"]})
    assert [kind for kind, _data in steps(State({**right, "tool-b": "1.0.0-1"}, NAMES))] == [
        "install_toolkit",
        "hold_packages",
    ]
    assert [kind for kind, _data in steps(State({**right, "tool-1": "0.9"}, NAMES))] == ["install_toolkit"]


def test_without_holds_only_what_may_be_released_is():
    right = State(dict.fromkeys(NAMES, "2.0.0-1"), NAMES)
    assert steps(right, hold=False) == []
    assert steps(right, hold=False, releasable=NAMES) == [("release_packages", {"packages": list(NAMES)})]


def test_a_version_below_the_floor():
    with pytest.raises(Refused, match=r"1\.0\.0 is below the security floor 1\.5\.0: it leaks, CVE-1") as refused:
        TOOL.below_floor("1.0.0", "CVE-1", False, "it leaks, ")
    assert refused.value.thing == "tool_version" and "tool_allow_vulnerable" in refused.value.remedy
    assert TOOL.below_floor("1.0.0", "CVE-1", True) == "VULNERABLE tool 1.0.0, below the floor 1.5.0: CVE-1"


def test_old_lists_are_fetched_anew_before_a_version_is_refused():
    manager = PackageManager()
    manager.refresh = lambda: setattr(manager, "offers", OFFERS)
    install(manager, REQUEST, ())
    assert manager.packages == dict.fromkeys(NAMES, "2.0.0-1")
    with pytest.raises(Refused, match="not offered"):
        install(PackageManager(), REQUEST, ())


def test_a_change_that_fails_leaves_what_is_there_held():
    manager = PackageManager(dict.fromkeys(NAMES[:1], "1.0.0-1"), NAMES, offers=OFFERS)
    manager.fails["apply"] = "no space"
    with pytest.raises(PackageError, match="no space"):
        install(manager, REQUEST, NAMES)
    assert manager.held == {"tool-a"} and manager.log[0] == ("unhold", list(NAMES))
    manager.extra = (Change("remove", "libc6", "2"),)
    with pytest.raises(Refused, match="would remove libc6 2"):
        install(manager, REQUEST, NAMES)
    assert manager.changes == ["apply"]


def test_trying_looks_past_holds_and_changes_nothing():
    manager = PackageManager(offers=OFFERS)
    try_request(manager, REQUEST, OFFERS)
    assert manager.asked[0].ignore_holds and manager.log == [] and manager.packages == {}


def test_a_transaction_is_resolved_again_with_what_follows_from_it_until_nothing_does():
    manager, seen = PackageManager(), []
    asked, changes = resolve(
        manager, Transaction(OFFERS[:1]), seen.append, lambda _asked, _changes: Transaction(OFFERS[:2])
    )
    assert asked.install == OFFERS[:2] and [len(found) for found in seen] == [1, 2] and changes == seen[-1]
    with pytest.raises(PackageError, match="require each other"):
        resolve(manager, Transaction(), seen.append, lambda asked, _changes: Transaction((*asked.install, OFFERS[0])))


def test_a_repository_whose_lists_cannot_be_fetched_is_taken_away_again():
    manager = PackageManager()
    repository = SimpleNamespace(url="https://x", identifier="tool")
    configure(manager, repository)
    assert manager.changes == ["add_repository", "refresh"]
    manager.fails["refresh"] = "no network"
    with pytest.raises(PackageError, match="no network"):
        configure(manager, repository)
    assert manager.log[-1] == ("remove_repository", "tool")
    # Its key is imported last: what was written before is there by then.
    manager.fails["add_repository"] = "the key cannot be imported"
    with pytest.raises(PackageError, match="the key"):
        configure(manager, repository)
    assert manager.log[-1] == ("remove_repository", "tool")


def test_lists_that_cannot_be_fetched_anew_are_named_beside_what_they_lack():
    manager = PackageManager()
    manager.fails["refresh"] = "no network"
    with pytest.raises(PackageError, match=r"not offered.*Newer lists could not be fetched\. no network"):
        with_newer_lists(manager, lambda: select(()))


def test_a_repair_leaves_no_hold_off_for_what_comes_next():
    manager = PackageManager({"tool-a": "1.0.0-1"}, holds=("tool-a",))
    state = State({"tool-a": "1.0.0-1"}, ("tool-a",), ("tool-a",))
    package_appliers(manager)[Kind.REPAIR_PACKAGE_DATABASE](state, Step(Kind.REPAIR_PACKAGE_DATABASE, "tool", "why"))
    # Nothing of it is offered.
    with pytest.raises(Refused):
        install(manager, REQUEST, state.held)
    assert manager.held == {"tool-a"}


def test_a_change_that_did_not_come_back_leaves_no_hold_off():
    manager = PackageManager({"tool-a": "1.0.0-1"}, holds=("tool-a",), offers=OFFERS)

    def change(_asked):
        raise CommandError(["apt-get"], "it did not end within 1800 s", "")

    with pytest.raises(CommandError):
        install(manager, REQUEST, ("tool-a",), change)
    assert manager.held == {"tool-a"}
