# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages the newest kernel is made of, and when it is not installed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Change, Package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.kernel_update import (
    names_to_ask,
    newest_release,
    plan,
    repair,
    wanted,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused

DKMS = {"nvidia-driver-cuda": "580.178.04-1", "nvidia-kernel-open-dkms": "580.178.04-1"}
MODULES = "linux-modules-nvidia-580-server-open-generic-hwe-24.04"
COMPILED = {"nvidia-utils-580-server": "580.178.04-0ubuntu1", MODULES: "6.14.0-33.33"}
DEBIAN = Host(
    DISTRIBUTIONS["debian", "12"],
    "x86_64",
    "6.1.0-50-amd64",
    packages=DKMS,
    kernel_packages=("linux-headers-amd64", "linux-image-amd64"),
)
UBUNTU = Host(
    DISTRIBUTIONS["ubuntu", "24.04"],
    "x86_64",
    "6.14.0-33-generic",
    packages=COMPILED,
    kernel_packages=("linux-image-generic-hwe-24.04",),
    holds=tuple(sorted((*COMPILED, "linux-image-generic-hwe-24.04"))),
)
ROCKY = Host(
    DISTRIBUTIONS["rocky", "9"], "x86_64", "5.14.0-503.el9.x86_64", packages=DKMS, kernel_packages=("kernel-devel",)
)


def offered(*names, version="1", older=()):
    return tuple(Package(name, found) for name in names for found in (version, *older))


def asked(host, *extra, **versions):
    return wanted(host, offered(*names_to_ask(host), *extra, **versions))


def install(*names):
    return tuple(Change("install", name, "", "1") for name in names)


@pytest.mark.parametrize(
    ("host", "release", "names"),
    [
        (DEBIAN, "6.1.0-50-amd64", ("linux-image-amd64", "linux-headers-amd64")),
        (DEBIAN, "6.1.0-50-cloud-amd64", ("linux-image-cloud-amd64", "linux-headers-cloud-amd64")),
        (UBUNTU, UBUNTU.kernel, ("linux-image-generic-hwe-24.04", "linux-headers-generic-hwe-24.04", MODULES)),
        (ROCKY, ROCKY.kernel, ("kernel=2", "kernel-devel-matched=2")),
        (ROCKY, "5.14.0-503.el9.aarch64+64k", ("kernel-64k=2", "kernel-64k-devel-matched=2")),
        (ROCKY, "6.12.0-1.el9uek.x86_64", ("kernel-uek=2", "kernel-uek-devel=2")),
        (
            replace(ROCKY, distribution=DISTRIBUTIONS["rocky", "8"]),
            "4.18.0-1.el8.x86_64",
            ("kernel=2", "kernel-devel=2"),
        ),
        (
            replace(ROCKY, distribution=DISTRIBUTIONS["amzn", "2023"]),
            "6.12.1-1.amzn2023.x86_64",
            ("kernel6.12=2", "kernel6.12-devel=2"),
        ),
        (
            replace(ROCKY, distribution=DISTRIBUTIONS["sles", "15"]),
            "6.4.0-150700.53-default",
            ("kernel-default=2", "kernel-default-devel=2"),
        ),
    ],
)
def test_a_kernel_comes_by_its_metapackage_with_its_headers(host, release, names):
    """Packages of one name that are installed beside each other are named with the version of the newest."""
    host = replace(host, kernel=release)
    found = asked(host, version="2", older=("1",)).transaction.install
    assert tuple(f"{item.name}={item.version}" if item.version else item.name for item in found) == names


def test_a_debian_kernel_is_planned_and_held_packages_are_left_alone():
    names = ("linux-image-6.1.0-51-amd64", "linux-headers-6.1.0-51-amd64", "linux-headers-6.1.0-51-common")
    found = plan(DEBIAN, asked(DEBIAN), (*install(*names), Change("upgrade", "linux-image-amd64", "1", "2")), {})
    assert [(step.kind.key, step.target) for step in found.steps] == [("install_kernel", "6.1.0-51-amd64")]


@pytest.mark.parametrize(
    "changes",
    [
        (),
        # A metapackage alone, and another build of a kernel that is installed, are no new kernel.
        install("linux-image-amd64"),
        (Change("upgrade", "linux-image-6.1.0-50-amd64", "1", "2"),),
    ],
)
def test_where_no_new_kernel_comes_nothing_is_installed(changes):
    assert not plan(DEBIAN, asked(DEBIAN), changes, {}).changes


def test_held_modules_and_metapackages_move_together_and_are_held_again():
    changes = (
        *install("linux-image-6.14.0-37-generic", "linux-modules-nvidia-580-server-open-6.14.0-37-generic"),
        Change("upgrade", MODULES, "1", "2"),
    )
    found = plan(UBUNTU, asked(UBUNTU), changes, {})
    assert [step.kind.key for step in found.steps] == ["release_packages", "install_kernel", "hold_packages"]
    assert found.steps[0].data["packages"] == found.steps[2].data["packages"]
    assert found.steps[0].data["packages"] == ["linux-image-generic-hwe-24.04", MODULES]


@pytest.mark.parametrize(
    ("host", "changes", "said"),
    [
        (
            UBUNTU,
            install("linux-image-6.14.0-37-generic"),
            "there is no GPU module for it: linux-modules-nvidia-580-server-open-6.14.0-37-generic",
        ),
        (
            DEBIAN,
            install("linux-image-6.1.0-51-amd64"),
            r"its headers are not offered \(linux-headers-6.1.0-51-amd64\)",
        ),
        (
            DEBIAN,
            (*install("linux-image-6.1.0-51-amd64"), Change("remove", "zfs-dkms", "1")),
            "installing it would remove zfs-dkms.* Install a kernel by hand, and set gpu_upgrade_kernel to installed",
        ),
        (
            replace(DEBIAN, kernel="6.12.95+deb12-amd64"),
            install("linux-image-6.1.0-56-amd64", "linux-headers-6.1.0-56-amd64"),
            "linux-image-amd64 brings the older 6.1.0-56-amd64",
        ),
        (
            UBUNTU,
            (*install("linux-image-6.14.0-37-generic"), Change("upgrade", "nvidia-utils-580-server", "1", "2")),
            "needs other packages of the driver .nvidia-utils-580-server 1 -> 2.*Upgrade the driver first",
        ),
    ],
)
def test_a_kernel_that_would_cost_the_driver_is_refused_with_the_way_to_it(host, changes, said):
    with pytest.raises(Refused, match=said):
        plan(host, asked(host), changes, {})


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (replace(DEBIAN, kernel="6.9.0-mine"), "which package provides its newest version is not known"),
        (replace(UBUNTU, kernel_packages=()), "its metapackage is not installed"),
        (
            replace(DEBIAN, holds=("linux-image-amd64",)),
            "held, and not with the driver.*apt-mark unhold linux-image-amd64",
        ),
        (replace(DEBIAN, free_mib={"/boot": 3}), "3 MiB are free"),
    ],
)
def test_what_no_repository_can_answer_is_refused_before_it_is_asked(host, said):
    with pytest.raises(Refused, match=said):
        names_to_ask(host)


def test_what_was_cut_off_is_completed_first():
    assert [step.kind.key for step in repair(replace(DEBIAN, interrupted=("dkms",))).steps] == [
        "repair_package_database"
    ]
    assert not repair(DEBIAN).changes


def test_repositories_without_the_kernel_or_its_headers_are_refused():
    with pytest.raises(Refused, match="linux-image-amd64: the repositories do not offer it"):
        wanted(DEBIAN, ())
    with pytest.raises(Refused, match=r"kernel 2: .*its headers are not offered .kernel-devel-matched"):
        wanted(ROCKY, offered("kernel", version="2"))
    older = (*offered("kernel", version="2"), *offered("kernel-devel-matched"))
    with pytest.raises(Refused, match="its headers are not offered"):
        wanted(ROCKY, older)
    # Without a driver there is nothing to build.
    assert wanted(replace(ROCKY, packages={}), older).transaction.install == (Package("kernel", "2"),)


def test_only_a_kernel_of_the_kind_that_runs_is_its_successor():
    kernels = ("6.1.0-9-amd64", "6.1.0-50-amd64", "6.1.0-51-cloud-amd64", "6.9.0-mine")
    assert newest_release(DEBIAN, kernels) == "6.1.0-50-amd64"
    assert newest_release(DEBIAN, ()) == DEBIAN.kernel
