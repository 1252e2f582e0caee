# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Resolving and applying a plan, where the package manager does something that nobody asked for, or fails."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import (
    Change,
    Package,
    PackageError,
    Transaction,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.plan import DriverPlan, Repositories
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.selection import archive_of, select
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host, Remains
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import DesiredRepository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan, Refused, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import PreviousDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import card
from ansible_collections.gpufleet.nvidia.tests.unit.package_manager import PackageManager

OLD, NEW = "580.126.09", "580.178.04"
OFFERS = tuple(
    Package(name, f"{NEW}-1") for name in ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "kmod-nvidia-open-dkms")
)
URL = "https://mirror.example.com/r"
REPOSITORY = SimpleNamespace(url=URL)
DEBIAN, RHEL_9 = DISTRIBUTIONS["debian", "12"], DISTRIBUTIONS["rhel", "9"]


class Manager(PackageManager):
    """Resolves what it was given."""

    def __init__(self, simulations=(), offers=(), stream=""):
        super().__init__({"libcuda1": f"{OLD}-1", "nvidia-smi": f"{OLD}-1"}, ["nvidia-smi"], [URL], offers)
        self.simulations, self.known_streams = simulations, ("580-open", "595-open")
        self.enabled_streams = {"nvidia-driver": stream} if stream else {}


def made_system(manager, record=None):
    system = SimpleNamespace(manager=manager, record=record, written=[], pinned=[])
    system.write_record = system.written.append
    system.write_preferences = system.pinned.append
    system.repository_url = lambda _host, _desired: URL
    system.repository = lambda _host, _desired: REPOSITORY
    return system


def host(distribution=DEBIAN, **seen):
    return Host(distribution, "x86_64", "6.1.0-50-amd64", (card("0", "0x2330", "hopper"),), headers=True, **seen)


def planned(*steps, version=NEW):
    return DriverPlan(Plan(tuple(steps), {}, {}, ()), version, Transaction((Package("nvidia-open", f"{version}-1"),)))


def step(kind, **data):
    return Step(kind, "driver", "it is tested", data=data)


@pytest.mark.parametrize("name", ["linux-image-6.1.0-50-amd64", "containerd", "docker-ce", "kubelet", "systemd"])
def test_a_resolution_that_removes_what_is_not_the_drivers_is_refused(name):
    manager = Manager([(Change("remove", name, "1"),)])
    with pytest.raises(Refused, match=f"would also remove {name}"):
        runner.resolve(made_system(manager), host(), planned())


def test_what_cannot_be_resolved_comes_with_what_is_usually_missing():
    manager = Manager()
    manager.fails["simulate"] = "Failed to resolve: nothing provides libX11."
    with pytest.raises(PackageError, match="SUSEConnect --product PackageHub"):
        runner.resolve(made_system(manager), host(DISTRIBUTIONS["sles", "15"]), planned())


def test_packages_that_stray_are_named_until_none_does():
    astray = (Change("install", "libcuda1", "", "595.91.07-1"),)
    manager = Manager(
        [astray, (Change("install", "libcuda1", "", f"{NEW}-1"),)], offers=(Package("libcuda1", f"{NEW}-1"),)
    )
    resolved = runner.resolve(made_system(manager), host(), planned())
    assert len(manager.asked) == 2
    assert Package("libcuda1", f"{NEW}-1") in resolved.transaction.install


def test_packages_that_pull_each_other_away_for_ever_are_given_up():
    names = [f"libnvidia-part{number}" for number in range(20)]
    manager = Manager([(Change("install", name, "", "595.91.07-1"),) for name in names])
    manager.offers = tuple(Package(name, f"{NEW}-1") for name in names)
    with pytest.raises(PackageError, match="require each other"):
        runner.resolve(made_system(manager), host(), planned())


def test_a_stream_that_will_be_enabled_counts_for_the_resolution():
    manager = Manager([()])
    runner.resolve(made_system(manager), host(RHEL_9), planned(step(Kind.ENABLE_MODULE_STREAM, stream="580-open")))
    assert manager.asked[0].stream == "nvidia-driver:580-open"
    runner.resolve(made_system(manager), host(RHEL_9), planned())
    assert manager.asked[1].stream == ""


@pytest.mark.parametrize(("distribution", "configured"), [(DEBIAN, True), (RHEL_9, False)])
def test_the_key_of_a_local_repository_package_is_only_taken_where_it_was_compared(distribution, configured):
    own = DesiredRepository(URL, "", "/k", "F")
    plan = runner.make_plan(
        made_system(Manager(offers=OFFERS)),
        host(distribution),
        DesiredDriver(source="local_repository", repository=own),
    )
    assert plan.plan.steps[0].kind is not Kind.ADD_REPOSITORY or not configured
    assert bool(plan.unknown) is not configured


def test_a_stream_that_the_repositories_do_not_have_is_refused():
    manager = Manager(offers=OFFERS)
    manager.known_streams = ()
    with pytest.raises(Refused, match=r"modules\.yaml"):
        runner.make_plan(made_system(manager), host(RHEL_9), DesiredDriver())
    manager.known_streams = ("595-open",)
    with pytest.raises(Refused, match="They have 595-open"):
        runner.make_plan(made_system(manager), host(RHEL_9), DesiredDriver())


def test_every_step_is_carried_out_in_order():
    manager = Manager([()])
    system = made_system(manager)
    plan = planned(
        step(Kind.REPAIR_PACKAGE_DATABASE),
        step(Kind.ADD_REPOSITORY),
        step(Kind.ENABLE_MODULE_STREAM, stream="580-open"),
        step(Kind.INSTALL_PREREQUISITES, packages=[["kernel-devel", "5.14"]]),
        step(
            Kind.PIN_DRIVER,
            version=NEW,
            package=["nvidia-driver-pinning-580", "1"],
            remove=["nvidia-driver-pinning-570"],
        ),
        step(Kind.RELEASE_PACKAGES, packages=["nvidia-smi"]),
        step(Kind.CHANGE_DRIVER, version=NEW, record=True),
        step(Kind.HOLD_DRIVER),
    )
    now = host(packages={"nvidia-smi": f"{OLD}-1"}, holds=("nvidia-smi",))
    runner.apply_packages(system, now, DesiredDriver(), plan)
    pin = Transaction(
        (Package("nvidia-driver-pinning-580", "1"),), ("nvidia-driver-pinning-570",), allow_downgrades=True
    )
    closure = ("libcuda1", "nvidia-driver-pinning-580", "nvidia-open", "nvidia-smi")
    # Half a transaction is repaired without the holds, which leave the resolver no way out.
    assert manager.log[:3] == [("unhold", ["nvidia-smi"]), ("repair",), ("hold", [Package("nvidia-smi", f"{OLD}-1")])]
    assert manager.log[3:] == [
        ("add_repository", REPOSITORY),
        ("refresh",),
        ("enable_stream", "nvidia-driver", "580-open"),
        ("apply", Transaction((Package("kernel-devel", "5.14"),))),
        ("apply", pin),
        ("unhold", ["nvidia-smi"]),
        ("apply", plan.transaction),
        ("hold", [Package(name, manager.packages[name]) for name in closure]),
    ]
    # A pinning package is the pin; a file of ours beside it would be a second one.
    assert system.pinned == [None]
    assert system.written[0].version == OLD


def test_removal_takes_pin_repository_and_stream_away():
    manager = Manager(stream="580-open")
    system = made_system(manager, PreviousDriver(OLD, {"a": "1"}, "open", "nvidia", pending="absent"))
    system.remains = lambda _desired: Remains(True, True, "580-open")
    desired = DesiredDriver(state="absent")
    # Also where the packages are gone already: an earlier removal was cut off.
    plan = runner.make_plan(system, host(RHEL_9, holds=("nvidia-driver", "vim")), desired)
    assert [step.kind for step in plan.plan.steps] == [Kind.RELEASE_PACKAGES, Kind.REMOVE_REMAINS]
    runner.apply_packages(system, host(RHEL_9), desired, runner.resolve(system, host(RHEL_9), plan))
    assert manager.log == [
        ("unhold", ["nvidia-driver"]),
        ("remove_repository", "gpufleet-nvidia-driver"),
        ("reset_stream", "nvidia-driver"),
    ]
    assert system.pinned == [None]
    assert system.written[-1].pending == ""
    manager.log.clear()
    own = DesiredDriver(state="absent", repository=DesiredRepository(manage=False))
    runner.apply_packages(system, host(), own, planned(step(Kind.REMOVE_REMAINS), version=""))
    assert manager.log == []
    system.remains = lambda _desired: Remains()
    assert not runner.make_plan(system, host(RHEL_9), desired).plan.changes


@pytest.mark.parametrize(
    ("half", "held"), [((), [("hold", [Package("libcuda1", f"{OLD}-1")])]), (("libcuda1",), [])], ids=["whole", "half"]
)
def test_what_was_let_go_of_is_held_again_when_nothing_was_changed(half, held):
    manager = Manager()
    manager.fails["apply"], manager.half = "Failed to apply", half
    now = host(packages={"libcuda1": f"{OLD}-1"}, holds=("libcuda1", "gone"))
    with pytest.raises(PackageError, match="Failed to apply"):
        runner.apply_packages(made_system(manager), now, DesiredDriver(), planned(step(Kind.CHANGE_DRIVER)))
    assert [entry for entry in manager.log if entry[0] == "hold"] == held


def test_the_difference_shows_what_goes():
    resolved = replace(
        planned(),
        changes=(Change("remove", "nvidia-smi", "1"), Change("upgrade", "libcuda1", "1", "2"), Change("install", "x")),
    )
    before, after = runner.package_diff(host(packages={"nvidia-smi": "1", "libcuda1": "1"}), resolved)
    assert before == {"nvidia-smi": "1", "libcuda1": "1"}
    assert (after["libcuda1"], "nvidia-smi" in after) == ("2", False)


def test_a_plan_without_packages_needs_no_resolver():
    plan = DriverPlan(Plan((), {}, {}, ()))
    assert runner.resolve(made_system(Manager()), host(), plan) == plan


class TestFabricManager:
    """NVSwitch systems: the fabric manager at exactly the driver's version, or no driver at all."""

    NAMES = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libcuda1")
    HOST = host(switches="nvswitch")

    def offers(self, *others):
        return tuple(Package(name, f"{NEW}-1", URL) for name in (*self.NAMES, *others))

    def chosen(self, *others, **desired):
        offers = self.offers("nvidia-smi", *others)
        return {package.name for package in select(self.HOST, DesiredDriver(**desired), offers).packages}

    def test_it_comes_with_its_libraries(self):
        assert {"nvidia-fabricmanager", "libnvidia-nscq"} <= self.chosen("nvidia-fabricmanager", "libnvidia-nscq")

    def test_without_it_the_version_is_refused(self):
        with pytest.raises(Refused, match="fabric manager at exactly the driver's version"):
            self.chosen()

    def test_unless_nobody_wants_it(self):
        assert "nvidia-fabricmanager" not in self.chosen(fabric_manager="never")


UBUNTU_HOST = Host(
    DISTRIBUTIONS["ubuntu", "24.04"], "x86_64", "6.8.0-60-generic", (card("0", "0x2330", "hopper"),), headers=True
)


@pytest.mark.parametrize(
    ("on", "desired", "offers", "reason", "remedy"),
    [
        (host(), {"branch": "580"}, {}, "do not offer branch 580", "nvidia_driver_repository_url"),
        (host(), {"source": "distribution", "branch": "535"}, {}, "do not offer branch 535", "contrib non-free"),
        (
            host(),
            {"branch": "575"},
            dict.fromkeys(TestFabricManager.NAMES, NEW),
            "do not offer branch 575",
            f"offer {NEW}",
        ),
        (
            host(),
            {"branch": "580"},
            {"nvidia-driver-cuda": NEW},
            "is offered, but without some of its packages",
            "none at all",
        ),
        (host(), {"version": NEW}, {"nvidia-driver-cuda": NEW}, "missing: ", "none at all"),
    ],
)
def test_what_is_not_offered_is_refused_with_the_way_out(on, desired, offers, reason, remedy):
    offered = tuple(Package(name, f"{version}-1", URL) for name, version in offers.items())
    with pytest.raises(Refused, match=reason) as refusal:
        select(on, DesiredDriver(**desired), offered)
    assert remedy in refusal.value.remedy


def test_a_transitional_package_names_the_driver_that_it_would_bring():
    names = (
        archive_of(UBUNTU_HOST, DesiredDriver(source="distribution", branch="570")).names["open", "compute"].required
    )
    offered = tuple(Package(name.replace("{branch}", "570"), "595.91.07-0ubuntu1") for name in names)
    with pytest.raises(Refused, match="transitional package that installs driver 595"):
        select(UBUNTU_HOST, DesiredDriver(source="distribution", branch="570"), offered)


def test_previous_asks_only_for_what_was_recorded():
    record = PreviousDriver(OLD, {"libcuda1": f"{OLD}-1"}, "open", "nvidia")
    manager = Manager(offers=(Package("libcuda1", f"{OLD}-1", URL),))
    plan = runner.make_plan(
        made_system(manager, record), host(packages={"libcuda1": f"{NEW}-1"}), DesiredDriver(state="previous")
    )
    assert plan.transaction.install == (Package("libcuda1", f"{OLD}-1", URL),)
    with pytest.raises(Refused, match="no previous driver"):
        runner.make_plan(made_system(Manager()), host(), DesiredDriver(state="previous"))
    assert Repositories().configured
