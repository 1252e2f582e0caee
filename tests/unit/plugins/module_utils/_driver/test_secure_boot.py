# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secure Boot: a driver that DKMS builds needs an enrolled key, and on a fresh host there is no key that could be enrolled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.plan import Repositories, plan_present
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host, Signing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import card

VERSION = "580.178.04"
CERTIFICATE = "/var/lib/dkms/mok.pub"
FRESH = Signing("/var/lib/dkms/mok.key", CERTIFICATE, missing=("dkms", "mokutil"))
DEBIAN = Host(
    DISTRIBUTIONS["debian", "12"],
    "x86_64",
    "6.1.0-50-amd64",
    (card("0000:18:00.0", "0x2330", "hopper"),),
    headers=True,
    secure_boot=True,
    signing=FRESH,
)
OFFERED = tuple(Package(name, f"{VERSION}-1") for name in ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libcuda1"))
ENROL = f"mokutil --import {CERTIFICATE}"


def kinds(plan):
    return [step.kind for step in plan.plan.steps]


def test_a_fresh_host_gets_dkms_and_a_key_and_no_driver():
    plan = plan_present(DEBIAN, DesiredDriver(), Repositories(True, OFFERED))
    assert kinds(plan) == [Kind.INSTALL_PREREQUISITES, Kind.CREATE_SIGNING_KEY]
    assert plan.plan.steps[0].data["packages"] == [["dkms", ""], ["mokutil", ""]]
    assert plan.plan.steps[1].target == CERTIFICATE
    assert plan.transaction is None
    assert "the driver is not installed yet" in plan.stop.reason
    for part in (ENROL, "Reboot", "Enroll MOK", "run again"):
        assert part in plan.stop.remedy


def test_with_everything_but_the_key_only_the_key_is_made():
    plan = plan_present(
        replace(DEBIAN, signing=replace(FRESH, missing=())), DesiredDriver(), Repositories(True, OFFERED)
    )
    assert kinds(plan) == [Kind.CREATE_SIGNING_KEY]


def test_an_unconfigured_repository_comes_first_and_what_it_lacks_is_refused_before_a_key_is_made():
    plan = plan_present(DEBIAN, DesiredDriver(), Repositories(False))
    assert kinds(plan) == [Kind.ADD_REPOSITORY, Kind.INSTALL_PREREQUISITES, Kind.CREATE_SIGNING_KEY]
    assert plan.unknown
    with pytest.raises(Refused, match=r"580\.190\.01"):
        plan_present(DEBIAN, DesiredDriver(version="580.190.01"), Repositories(True, OFFERED))


def test_on_a_rebuild_dkms_needs_epel_first():
    rocky = replace(DEBIAN, distribution=DISTRIBUTIONS["rocky", "9"], kernel="5.14.0-570.el9.x86_64")
    names = (
        "kmod-nvidia-open-dkms",
        "nvidia-driver-cuda",
        "nvidia-driver-cuda-libs",
        "libnvidia-ml",
        "nvidia-persistenced",
    )
    offered = (*(Package(name, f"3:{VERSION}-1.el9") for name in names), Package("epel-release", "9-7"))
    plan = plan_present(rocky, DesiredDriver(), Repositories(True, offered, dkms_installed=False, disabled=("crb",)))
    assert kinds(plan) == [Kind.ENABLE_REPOSITORIES, Kind.INSTALL_PREREQUISITES, Kind.CREATE_SIGNING_KEY]


def test_an_enrolled_key_is_all_that_is_needed():
    signing = replace(FRESH, exists=True, enrolled=True)
    plan = plan_present(replace(DEBIAN, signing=signing), DesiredDriver(), Repositories(True, OFFERED))
    assert (plan.version, plan.stop) == (VERSION, None)


@pytest.mark.parametrize(
    ("signing", "reason", "remedy"),
    [
        (replace(FRESH, exists=True, enrolled=False), "is not enrolled", ENROL),
        (replace(FRESH, exists=True, enrolled=None), "mokutil, which shows", "Install the package mokutil"),
        (Signing("pkcs11:token=hsm", "/srv/hsm.der"), "/srv/hsm.der of the signing key pkcs11:", "framework.conf"),
        (None, "was not read", "nvidia_driver_source: distribution"),
    ],
)
def test_what_no_new_key_would_mend_is_refused_with_what_would(signing, reason, remedy):
    with pytest.raises(Refused) as caught:
        plan_present(replace(DEBIAN, signing=signing), DesiredDriver(), Repositories(True, OFFERED))
    assert caught.value.thing == "Secure Boot"
    assert reason in caught.value.reason
    assert remedy in caught.value.remedy


def test_a_driver_that_was_built_without_a_key_has_to_be_built_again():
    packages = {package.name: package.version for package in OFFERED}
    host = replace(DEBIAN, packages=packages, source="nvidia", on_disk=VERSION, library=VERSION, flavour="open")
    with pytest.raises(Refused, match=r"when this host had no key.*nvidia_driver_state: absent"):
        plan_present(host, DesiredDriver(), Repositories())


@pytest.mark.parametrize("host", [replace(DEBIAN, container=True), replace(DEBIAN, secure_boot=False, signing=None)])
def test_where_the_host_does_not_check_signatures_nothing_is_asked(host):
    assert plan_present(host, DesiredDriver(), Repositories(True, OFFERED)).version == VERSION


def test_modules_that_ubuntu_has_signed_need_no_key():
    host = replace(
        DEBIAN,
        distribution=DISTRIBUTIONS["ubuntu", "24.04"],
        kernel="6.8.0-40-generic",
        kernel_packages=("linux-image-generic",),
    )
    names = (
        "nvidia-headless-no-dkms-580-server-open",
        "nvidia-utils-580-server",
        "libnvidia-compute-580-server",
        "linux-modules-nvidia-580-server-open-6.8.0-40-generic",
        "linux-modules-nvidia-580-server-open-generic",
    )
    offered = tuple(Package(name, f"{VERSION}-0ubuntu1") for name in names)
    plan = plan_present(host, DesiredDriver(source="distribution"), Repositories(True, offered))
    assert (plan.version, plan.stop) == (VERSION, None)
