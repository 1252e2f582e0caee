# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package, Transaction
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import dkms, runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.plan import packages_differ
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.selection import names_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import DkmsFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import DesiredRepository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import card
from ansible_collections.gpufleet.nvidia.tests.unit.package_manager import PackageManager

VERSION = "580.178.04"
KERNEL = "6.12.0-55.el10_0.x86_64"
URL = "https://mirror.example.com/r"
REPOSITORY = SimpleNamespace(url=URL)


def host(distribution=("rocky", "10")):
    gpu = card("0", "0x2330", "hopper")
    return Host(DISTRIBUTIONS[distribution], "x86_64", KERNEL, (gpu,), headers=True)


def test_a_rebuild_gets_epel_and_the_repository_that_it_builds_on():
    step = dkms.repository_step(host(), DesiredDriver(), ("epel-release",), ("crb", "devel"))
    assert step.what == "enable the repositories EPEL, crb"
    assert (step.data["packages"], step.data["enable"]) == ([["epel-release", ""]], ["crb"])
    old = dkms.repository_step(host(("rhel", "8")), DesiredDriver(), ("epel-release",), ("powertools",))
    assert old.data["enable"] == ["powertools"]
    enabled = dkms.repository_step(host(), DesiredDriver(), ("epel-release",), ())
    assert enabled.data["enable"] == []


@pytest.mark.parametrize(
    ("distribution", "offered"),
    [(("rocky", "10"), ("dkms", "epel-release")), (("amzn", "2023"), ()), (("debian", "12"), ())],
)
def test_where_dkms_is_offered_nothing_is_to_do(distribution, offered):
    assert dkms.repository_step(host(distribution), DesiredDriver(), offered, ("crb",)) is None


@pytest.mark.parametrize(
    ("desired", "offered", "reason"),
    [
        (DesiredDriver(), (), "comes from EPEL"),
        (
            DesiredDriver(repository=DesiredRepository(manage=False)),
            ("epel-release",),
            "nvidia_driver_manage_repository is false",
        ),
    ],
)
def test_where_it_cannot_be_enabled_the_driver_is_refused_with_what_to_do(desired, offered, reason):
    with pytest.raises(Refused, match=reason) as caught:
        dkms.repository_step(host(), desired, offered, ())
    assert "codeready-builder-for-rhel-10" in caught.value.remedy
    assert "dnf install epel-release" in caught.value.remedy


@pytest.mark.parametrize("major", ["8", "9"])
def test_oracle_has_names_of_its_own_and_brings_epel_disabled(major):
    package, builder = f"oracle-epel-release-el{major}", f"ol{major}_codeready_builder"
    step = dkms.repository_step(
        host(("ol", major)), DesiredDriver(), (package,), (builder, f"ol{major}_developer_EPEL")
    )
    assert (step.data["packages"], step.data["enable"]) == ([[package, ""]], [builder])
    manager = Manager()
    dkms.enable(manager, step)
    enabled = ("enable_repositories", f"ol{major}_developer_EPEL")
    assert manager.log == [("enable_repositories", builder), install(package), enabled, ("refresh",)]


def test_where_oracles_repository_changes_its_name_the_commands_are_named():
    assert dkms.names(host(("ol", "10"))) == ("dkms",)
    with pytest.raises(Refused, match="comes from EPEL") as caught:
        dkms.repository_step(host(("ol", "10")), DesiredDriver(), (), ("ol10_codeready_builder",))
    assert caught.value.remedy.startswith("Run: dnf install oracle-epel-release-el10")


class Manager(PackageManager):
    """A rebuild whose repositories offer dkms once EPEL is configured."""

    def __init__(self, configured=True):
        super().__init__({"bash": "5"}, urls=[URL] if configured else [])
        self.disabled = ("crb",)

    def offered(self, names):
        driver = dict.fromkeys(("nvidia-driver-cuda", "kmod-nvidia-open-dkms"), f"3:{VERSION}-1.el10")
        own = {**(driver if self.urls else {}), "epel-release": "10-1"}
        if "epel-release" in self.packages:
            own["dkms"] = "3.1.0-1"
        return tuple(Package(name, own[name]) for name in names if name in own)


def install(name):
    return "apply", Transaction((Package(name),))


def system(manager):
    return SimpleNamespace(
        manager=manager, repository_url=lambda _host, _desired: URL, repository=lambda _host, _desired: REPOSITORY
    )


@pytest.mark.parametrize("configured", [True, False])
def test_the_repositories_come_first_and_then_the_plan_is_made_anew(configured):
    manager = Manager(configured)
    made = system(manager)
    first = runner.make_plan(made, host(), DesiredDriver())
    assert first.unknown
    plan = runner.ensure_repository(made, host(), DesiredDriver(), first)
    kinds = [step.kind.key for step in plan.plan.steps]
    added = [] if configured else ["add_repository"]
    assert kinds[: len(added) + 1] == [*added, "enable_repositories"]
    assert "install_driver" in kinds
    assert plan.version == VERSION
    epel = [("enable_repositories", "crb"), install("epel-release"), ("refresh",)]
    assert manager.log == [*([] if configured else [("add_repository", REPOSITORY), ("refresh",)]), *epel]


def test_repositories_that_are_enabled_and_lack_dkms_end_the_run_and_are_not_tried_for_ever():
    manager = Manager()
    offered = manager.offered
    manager.offered = lambda names: tuple(package for package in offered(names) if package.name != "dkms")
    made = system(manager)
    with pytest.raises(Refused, match="enabled, but none of them offers it"):
        runner.ensure_repository(made, host(), DesiredDriver(), runner.make_plan(made, host(), DesiredDriver()))


def test_check_mode_enables_nothing():
    manager = Manager()
    made = system(manager)
    plan = runner.tried_repository(made, host(), DesiredDriver(), runner.make_plan(made, host(), DesiredDriver()))
    assert [step.kind.key for step in plan.plan.steps] == ["enable_repositories", "install_driver"]
    assert (plan.changes, manager.log) == ((), [])


def test_the_drivers_repository_goes_again_when_epel_cannot_be_had():
    manager = Manager(configured=False)
    manager.apply = lambda _transaction: (_ for _ in ()).throw(Refused("x", "it is gone"))
    made = system(manager)
    with pytest.raises(Refused, match="it is gone"):
        runner.ensure_repository(made, host(), DesiredDriver(), runner.make_plan(made, host(), DesiredDriver()))
    assert manager.log[-1] == ("remove_repository", "gpufleet-nvidia-driver")


LOST = replace(
    host(("debian", "12")),
    kernel="6.1.0-50-amd64",
    packages={"nvidia-kernel-open-dkms": f"{VERSION}-1"},
    source="nvidia",
    flavour="open",
)


@pytest.mark.parametrize(
    ("states", "again"),
    [({None: "added"}, False), ({"6.1.0-50-amd64": "built"}, False), ({"6.1.0-50-amd64": "broken"}, True)],
)
def test_the_module_is_built_for_the_running_kernel_and_the_next_one(states, again):
    builds = tuple(DkmsFacts("nvidia-current", VERSION, kernel, state) for kernel, state in states.items())
    lost = replace(LOST, builds=builds, next_kernel="6.1.0-51-amd64", next_module="580.126.09")
    steps = dkms.build_steps(lost, DesiredDriver())
    assert [(step.target, step.data["name"]) for step in steps] == [
        ("6.1.0-50-amd64", "nvidia-current"),
        ("6.1.0-51-amd64", "nvidia-current"),
    ]
    assert steps[0].data["again"] is again
    assert dkms.with_modules(lost, steps).on_disk == VERSION and dkms.with_modules(lost, steps[1:]).on_disk is None
    there = replace(lost, on_disk=VERSION, next_module=VERSION)
    assert dkms.build_steps(there, DesiredDriver()) == [] and dkms.with_modules(there, []) == there
    # Without its source, DKMS has nothing to build.
    with pytest.raises(
        Refused, match=f"running kernel {lost.kernel} has no module of driver {VERSION}, and DKMS"
    ) as refusal:
        dkms.build_steps(replace(lost, builds=()), DesiredDriver())
    assert "Install nvidia-kernel-open-dkms again" in refusal.value.remedy
    assert dkms.build_steps(replace(lost, builds=(), on_disk=VERSION), DesiredDriver()) == []


def test_headers_come_first_for_each_kernel_that_lacks_its_module():
    lost = replace(LOST, headers=False, next_kernel="6.1.0-51-amd64", next_headers=False, kernel_packages=())
    names = ["linux-headers-6.1.0-50-amd64", "linux-headers-6.1.0-51-amd64", "linux-headers-amd64"]
    assert list(dkms.header_names(lost, lost.unbuilt)) == names
    assert [package.name for package in dkms.lacking(lost, lost.unbuilt, dkms.as_recorded(lost))] == names
    for offered, reason in (
        ("", "for the running kernel 6.1.0-50"),
        (names[0], "6.1.0-51-amd64 is booted next and has no module"),
    ):
        with pytest.raises(Refused, match=f"{reason}.*do not offer its headers"):
            dkms.lacking(lost, lost.unbuilt, [Package(offered)])


def test_a_compiled_module_that_a_kernel_lost_is_installed_for_it():
    kernel, following = "6.8.0-60-generic", "6.8.0-61-generic"
    desired = DesiredDriver(source="distribution")
    names = (
        "nvidia-headless-no-dkms-580-server-open",
        "nvidia-utils-580-server",
        "linux-modules-nvidia-580-server-open-generic",
    )
    ubuntu = Host(
        DISTRIBUTIONS["ubuntu", "24.04"],
        "x86_64",
        kernel,
        kernel_packages=("linux-image-generic",),
        packages=dict.fromkeys(names, f"{VERSION}-0ubuntu1"),
        on_disk=VERSION,
        next_kernel=following,
        next_module=VERSION,
    )
    module = "linux-modules-nvidia-580-server-open-"
    assert packages_differ(ubuntu, desired) == ""
    assert packages_differ(replace(ubuntu, on_disk=None), desired) == f"{module}{kernel} is not installed"
    assert packages_differ(replace(ubuntu, next_module=None), desired) == f"{module}{following} is not installed"
    assert f"{module}{following}" in names_of(replace(ubuntu, next_module=None), desired).loose
