# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The newest kernel, resolved and installed by real apt and dnf from generated repositories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package, Transaction
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.kernel_update import names_to_ask, plan, wanted
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from repositories import build_deb_repository, build_rpm_repository
from roots import StandInSystem, apt_root, dnf_root
from stand_ins import HWE_KERNEL, RHEL_KERNEL, StandIn

NEWER = "6.11.0-29-generic"
FLAVOUR = "generic-hwe-24.04"
MODULES = "linux-modules-nvidia-580-server-open"
DRIVER = StandIn("nvidia-utils-580-server", "580.178.04-0ubuntu1")


def ubuntu_kernel(release, version, common="nvidia-utils-580-server (>= 580.126)"):
    """A kernel of Ubuntu's archive with its headers and the driver's module, and the metapackages that bring them."""
    exact = f"(= {version})"
    return [
        StandIn(f"linux-image-{release}", version),
        StandIn(f"linux-headers-{release}", version),
        StandIn(f"linux-image-{FLAVOUR}", version, (f"linux-image-{release} {exact}",)),
        StandIn(f"linux-headers-{FLAVOUR}", version, (f"linux-headers-{release} {exact}",)),
        *(
            [
                StandIn(f"{MODULES}-{release}", version, (common,)),
                StandIn(f"{MODULES}-{FLAVOUR}", version, (f"{MODULES}-{release} {exact}",)),
            ]
            if common
            else []
        ),
    ]


def rhel_kernel(version):
    return [
        StandIn("kernel", version),
        StandIn("kernel-devel", version),
        StandIn("kernel-devel-matched", version, (f"kernel-devel = {version}",)),
    ]


def ask(system):
    host = system.read()
    asked = wanted(host, system.manager.offered(names_to_ask(host)))
    return asked, plan(host, asked, system.manager.simulate(asked.transaction), system.manager.installed())


@pytest.fixture
def ubuntu(tmp_path, signer):
    """A host with the older kernel, its module and the driver, all of them held."""

    def make(newer):
        old = ubuntu_kernel(HWE_KERNEL, "6.11.0-26.26")
        packages = [*old, DRIVER, replace(DRIVER, version="580.190.01-0ubuntu1"), *newer]
        manager = apt_root(tmp_path / "root", build_deb_repository(tmp_path / "repository", packages, signer), signer)
        names = [item.name for item in old if "headers" not in item.name]
        manager.apply(Transaction(tuple(Package(name, "6.11.0-26.26") for name in names)))
        manager.apply(Transaction((Package(DRIVER.name, DRIVER.version),), allow_downgrades=True))
        held = [f"linux-image-{FLAVOUR}", f"{MODULES}-{FLAVOUR}", DRIVER.name]
        manager.hold([Package(name) for name in held])
        return StandInSystem(manager, ("ubuntu", "24.04"), HWE_KERNEL)

    return make


def test_ubuntus_kernel_comes_with_its_headers_and_its_module_past_the_holds(ubuntu):
    system = ubuntu(ubuntu_kernel(NEWER, "6.11.0-29.29"))
    asked, steps = ask(system)
    assert [step.kind.key for step in steps.steps] == ["release_packages", "install_kernel", "hold_packages"]
    assert steps.steps[1].target == NEWER
    system.manager.apply(asked.transaction)
    installed = system.manager.installed()
    assert {f"linux-image-{NEWER}", f"linux-headers-{NEWER}", f"{MODULES}-{NEWER}"} <= set(installed)
    assert f"linux-image-{HWE_KERNEL}" in installed and installed[DRIVER.name] == DRIVER.version
    assert not ask(system)[1].changes


def test_a_kernel_that_the_archive_has_no_module_for_is_refused(ubuntu):
    with pytest.raises(Refused, match=f"kernel {NEWER}: there is no GPU module for it: {MODULES}-{NEWER}"):
        ask(ubuntu(ubuntu_kernel(NEWER, "6.11.0-29.29", common="")))


def test_a_kernel_whose_module_needs_a_newer_driver_is_refused(ubuntu):
    with pytest.raises(
        Refused, match=f"{DRIVER.name} {DRIVER.version} -> 580.190.01-0ubuntu1.*Upgrade the driver first"
    ):
        ask(ubuntu(ubuntu_kernel(NEWER, "6.11.0-29.29", common=f"{DRIVER.name} (>= 580.190)")))


def test_the_newest_of_kernels_with_one_name_is_installed_beside_the_running_one(tmp_path, signer, plugins):
    old, new = RHEL_KERNEL.rpartition(".")[0], "5.14.0-700.el9"
    packages = [*rhel_kernel(old), *rhel_kernel(new), StandIn("nvidia-driver-cuda", "580.178.04-1.el9")]
    manager = dnf_root(
        tmp_path / "root", build_rpm_repository(tmp_path / "repository", packages, signer), signer, plugins, "9"
    )
    manager.apply(Transaction((*(Package(item.name, old) for item in rhel_kernel(old)), Package("nvidia-driver-cuda"))))
    system = StandInSystem(manager, ("rocky", "9"), RHEL_KERNEL)
    asked, steps = ask(system)
    assert [step.target for step in steps.steps] == [new]
    system.manager.apply(asked.transaction)
    found = {(package.name, package.version) for package in manager._rpm.installed()}
    assert {("kernel", old), ("kernel", new), ("kernel-devel", new)} <= found
    assert not ask(system)[1].changes
