# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of packages: removal, the way back, lockstep, holds, and modules that were not built."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import (
    Change,
    Package,
    Transaction,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import packages as names
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver, from_options
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import hold_names
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.plan import (
    Repositories,
    plan_absent,
    plan_present,
    plan_previous,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.runner import in_lockstep, strayed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.running import not_built
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Remains, to_write
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import DkmsFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.documents import read_record
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import PREVIOUS_DRIVER, PreviousDriver
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._driver.plan_cases import (
    BARE,
    KERNEL,
    NEW,
    OLD,
    closure,
    installed,
    kinds,
    offers,
)


def test_packages_of_a_mirror_win_over_those_of_other_repositories():
    desired = from_options(
        {
            "repository": {
                "url": "https://mirror.invalid/x",
                "key_url": "https://mirror.invalid/k",
                "key_fingerprint": "A" * 40,
            }
        }
    )
    mirror = [Package(name, full, "https://mirror.invalid/x") for name, full in closure(NEW).items()]
    others = [Package(name, "580.190.01-1", "https://deb.invalid") for name in closure(NEW)]
    assert plan_present(BARE, desired, Repositories(True, (*mirror, *others))).version == NEW


def test_removal_lets_go_and_removes_the_whole_closure():
    plan = plan_absent(installed(), Remains())
    assert kinds(plan) == ["release_packages", "remove_driver"]
    assert set(plan.transaction.remove) == set(closure(NEW))
    assert not plan_absent(BARE, Remains()).plan.changes
    with pytest.raises(Refused, match="nvidia-uninstall"):
        plan_absent(replace(BARE, source="runfile"), Remains())


def test_going_back_is_one_transaction_over_the_whole_closure():
    record = PreviousDriver(OLD, {**closure(OLD), "nvidia-modprobe": "535.1-1"}, "open", "nvidia")
    host = installed(packages={**closure(NEW), "nvidia-modprobe": "580.1-1", "libnvidia-new1": f"{NEW}-1"})
    plan = plan_previous(host, DesiredDriver(state="previous"), record, offers(OLD, NEW))
    assert {(package.name, package.version) for package in plan.transaction.install} == set(closure(OLD).items())
    assert plan.transaction.remove == ("libnvidia-new1",)
    assert plan.transaction.allow_downgrades
    assert "VULNERABLE" in plan.plan.warnings[0]


def test_going_back_twice_does_nothing_and_without_a_record_is_refused():
    record = PreviousDriver(NEW, closure(NEW), "open", "nvidia")
    assert not plan_previous(installed(), DesiredDriver(state="previous"), record, offers(NEW)).plan.changes
    with pytest.raises(Refused, match="no previous driver"):
        plan_previous(installed(), DesiredDriver(state="previous"), None, offers(NEW))
    with pytest.raises(Refused, match="no longer offer the previous driver"):
        plan_previous(installed(NEW), DesiredDriver(state="previous"), PreviousDriver(OLD, closure(OLD)), offers(NEW))


def test_the_record_survives_a_run_that_was_cut_off():
    first = to_write(installed(OLD, toolkit="1.19.1"), None, NEW)
    assert (first.version, first.pending, first.toolkit) == (OLD, NEW, "1.19.1")
    assert read_record(PREVIOUS_DRIVER, first.as_text()) == first
    written = json.loads(first.as_text())
    for broken in ({**written, "schema": 2}, {**written, "packages": {}}, {**written, "packages": {"x": 3}}, [], 7):
        assert read_record(PREVIOUS_DRIVER, json.dumps(broken)) is None
    half = installed(packages={**closure(NEW), "libcuda1": f"{OLD}-1"})
    assert to_write(half, first, NEW) is None
    assert to_write(half, None, NEW) is None
    assert to_write(half, first, "595.91.07").pending == "595.91.07"
    assert to_write(installed(), replace(first, pending=""), "").pending == "absent"


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"schema": 2}', '{"schema": 1, "packages": {}}'])
def test_what_is_no_record_is_none(text):
    assert read_record(PREVIOUS_DRIVER, text) is None


def test_lockstep_names_what_strayed_and_what_would_stay_behind():
    changes = [Change("install", "nvidia-kernel-support", "", "610.57.04-1")]
    stay = {"libcuda1": f"{OLD}-1", "libgone": "1", "libnvidia-gone": f"{OLD}-1"}
    astray = strayed(changes, NEW, stay)
    assert set(astray) == {"nvidia-kernel-support", "libcuda1", "libnvidia-gone"}
    offered = [Package("nvidia-kernel-support", f"{NEW}-1"), Package("libcuda1", f"{NEW}-1")]
    named = in_lockstep(Transaction(), astray, offered, NEW, stay)
    assert {package.name for package in named.install} == {"nvidia-kernel-support", "libcuda1"}
    assert named.remove == ("libnvidia-gone",)


def test_lockstep_refuses_a_jump_that_cannot_be_stopped():
    astray = {"nvidia-kernel-support": "610.57.04-1"}
    with pytest.raises(Refused, match="of a newer driver"):
        in_lockstep(Transaction(), astray, [], NEW, {})


def test_companions_with_versions_of_their_own_may_stay():
    astray = strayed([Change("install", "nvidia-persistenced", "", "535.171.04-1")], "535.309.01", {})
    assert in_lockstep(Transaction(), astray, [], "535.309.01", {}) == Transaction()


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("nvidia-driver-cuda", True),
        ("libnvidia-ml1", True),
        ("kmod-nvidia-open-dkms", True),
        ("libcuda1", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("cuda-compat-13-0", False),
        ("datacenter-gpu-manager-4-core", False),
        ("nvidia-fs-dkms", False),
        ("firmware-nvidia-graphics", False),
    ],
)
def test_what_belongs_to_the_driver(name, yes):
    assert names.in_family(name) is yes


def test_holds_leave_the_packages_of_one_kernel_free():
    packages = {**closure(NEW), "linux-modules-nvidia-580-server-open-6.8.0-40-generic": "6.8.0-40.40+1"}
    assert set(hold_names(packages)) == set(closure(NEW))


def test_holds_cover_what_brings_the_next_kernel_and_its_modules():
    modules = "linux-modules-nvidia-580-server-open-generic-hwe-24.04"
    packages = {**closure(NEW), modules: "6.11.0-26.26+1"}
    kernels = ("linux-image-generic", "linux-image-virtual-hwe-24.04", "linux-headers-generic-hwe-24.04")
    assert set(hold_names(packages, kernels)) == {*closure(NEW), modules, "linux-image-virtual-hwe-24.04"}
    # Modules that are built follow no kernel.
    assert set(hold_names(closure(NEW), kernels)) == set(closure(NEW))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, None),
        (
            {"builds": (DkmsFacts("nvidia", NEW, None, "added"),)},
            "state of the build for kernel 6.1.0-50-amd64 is added",
        ),
        ({"builds": (DkmsFacts("nvidia", NEW, KERNEL, "broken"),)}, "empty file"),
        ({"headers": False}, "headers of kernel 6.1.0-50-amd64 are not installed"),
    ],
)
def test_a_module_that_was_not_built_is_named_with_its_reason(changed, why):
    host = installed(**changed) if why is None else installed(on_disk=None, **changed)
    found = not_built(host, DesiredDriver())
    assert why in found if why else found == ""
