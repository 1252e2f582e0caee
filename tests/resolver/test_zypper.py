# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SLES 15: resolved and installed by the real zypper and rpm."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package, Transaction
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_zypper import parse_summary
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import hold_names, versioned
from repositories import build_rpm_repository
from roots import StandInSystem, zypper_root
from stand_ins import LATER, NEXT, OLD, SUSE_KERNEL, StandIn, nvidia_suse, suse_base

VULNERABLE = {"allow_vulnerable": True}


@pytest.fixture(scope="session")
def repository(workspace, signer):
    packages = [
        StandIn("aaa_base", "84.87-1"),
        *suse_base(),
        *(item for version in (OLD, LATER, NEXT) for item in nvidia_suse(version)),
    ]
    return build_rpm_repository(workspace / "rpm-suse", packages, signer)


@pytest.fixture
def system(tmp_path, repository, signer):
    zypper = zypper_root(tmp_path / "root", repository, signer)
    # zypper cannot read an rpm database without any package in it, which no system has.
    zypper.apply(Transaction((Package("aaa_base"),)))
    return StandInSystem(zypper, ("sles", "15"), SUSE_KERNEL)


MODULES = {
    ("open", LATER): "nvidia-open-driver-G06-signed-cuda-kmp-default",
    ("proprietary", LATER): "nvidia-driver-G06",
    ("open", NEXT): "nvidia-open-driver-G07-signed-cuda-kmp-default",
    ("proprietary", NEXT): "nvidia-driver-G07",
}


@pytest.mark.proves("driver", "nvidia", rows=["sles-15"])
@pytest.mark.parametrize(("flavour", "version"), MODULES)
def test_a_compute_only_plan_resolves_to_one_driver_version(system, flavour, version):
    resolved = system.plan(DesiredDriver(version=version, flavour=flavour, **VULNERABLE))
    installed = {change.name: change.after for change in resolved.changes}
    assert set(versioned(installed).values()) == {version}
    assert MODULES[flavour, version] in installed
    assert ("dkms" in installed) == (flavour == "proprietary")
    assert "nvidia-persistenced" in installed


@pytest.mark.proves("driver", "nvidia", rows=["sles-15"])
def test_the_full_variant_is_kept_in_lockstep_too(system):
    resolved = system.plan(DesiredDriver(version=LATER, variant="full"))
    installed = {change.name: change.after for change in resolved.changes}
    assert installed["nvidia-open-driver-G06"].startswith(LATER)
    headers = next(step for step in resolved.plan.steps if step.kind.key == "install_prerequisites")
    assert headers.data["packages"] == [["kernel-default-devel", "6.4.0-150600.21.1"]]


@pytest.mark.proves("driver", "nvidia", rows=["sles-15"], note="installs")
def test_install_upgrade_previous_and_removal(system):
    system.bring(DesiredDriver(version=OLD, **VULNERABLE))
    first = system.read()
    assert first.version == OLD
    assert set(hold_names(first.packages)) <= set(first.holds)
    assert not system.plan(DesiredDriver(version=OLD, **VULNERABLE)).plan.changes
    # What an unattended update would do: nothing.
    waiting = system.manager._zypper("update", "--dry-run", xml=True)
    assert not [change for change in parse_summary(waiting.stdout) if "nvidia" in change.name]

    system.bring(DesiredDriver(version=NEXT))
    assert system.read().version == NEXT
    # Another generation of names: nothing of the old one stays.
    assert not [name for name in system.read().packages if "G06" in name]
    system.bring(DesiredDriver(state="previous"))
    assert system.read().packages == first.packages
    system.bring(DesiredDriver(state="absent"))
    assert not system.read().packages
    assert not system.manager.holds()
