# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RHEL 8, 9 and 10 with their rebuilds, and Amazon Linux 2023: resolved and installed by the real dnf 4 and rpm."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package, Transaction
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import hold_names, versioned
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import DesiredRepository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from repositories import build_rpm_repository
from roots import StandInSystem, dnf_root
from stand_ins import LATER, NEWEST, NEXT, OLD, RHEL_KERNEL, StandIn, nvidia_red_hat, rpm_base, streams

VERSIONS = (OLD, LATER, NEXT, NEWEST)
VULNERABLE = {"allow_vulnerable": True}


@pytest.fixture(scope="session")
def repositories(workspace, signer):
    by_version = {version: nvidia_red_hat(version) for version in VERSIONS}
    packages = [*rpm_base(), *(package for found in by_version.values() for package in found)]
    return {
        "streams": build_rpm_repository(workspace / "rpm-streams", packages, signer, streams(by_version)),
        "flat": build_rpm_repository(workspace / "rpm-flat", packages, signer),
    }


@pytest.fixture
def system(tmp_path, repositories, signer, plugins):
    def make(world, distribution, kernel=RHEL_KERNEL, **host):
        release = distribution[1].partition(".")[0]
        manager = dnf_root(tmp_path / "root", repositories[world], signer, plugins, release)
        return StandInSystem(manager, distribution, kernel, **host)

    return make


CASES = [
    ("streams", ("rhel", "8")),
    ("streams", ("rocky", "9")),
    ("streams", ("amzn", "2023")),
    ("flat", ("almalinux", "10")),
    ("streams", ("ol", "9")),
    ("flat", ("centos", "10")),
    ("flat", ("fedora", "44")),
]


@pytest.mark.proves("driver", "nvidia", by="distribution")
@pytest.mark.parametrize(("world", "distribution"), CASES)
@pytest.mark.parametrize(
    ("flavour", "variant"),
    [
        ("open", "compute"),
        ("proprietary", "full"),
        pytest.param("open", "full", marks=pytest.mark.by_name),
        pytest.param("proprietary", "compute", marks=pytest.mark.by_name),
    ],
)
def test_every_plan_resolves_to_one_driver_version(system, world, distribution, flavour, variant):
    made = system(world, distribution)
    resolved = made.plan(DesiredDriver(version=LATER, flavour=flavour, variant=variant))
    installed = {change.name: change.after for change in resolved.changes}
    assert set(versioned(installed).values()) == {LATER}
    assert all(version.startswith("3:") for name, version in installed.items() if "nvidia" in name)
    kinds = [step.kind.key for step in resolved.plan.steps]
    assert ("enable_module_stream" in kinds) == (world == "streams")
    headers = next(step for step in resolved.plan.steps if step.kind.key == "install_prerequisites")
    base = RHEL_KERNEL.rpartition(".")[0]
    matched = [["kernel-devel-matched", base]] if distribution[1] not in ("8", "2023") else []
    assert headers.data["packages"] == [["kernel-devel", base], ["kernel-headers", ""], *matched]


@pytest.mark.parametrize(
    ("distribution", "kernel", "packages"),
    [
        (
            ("almalinux", "10"),
            "5.14.0-687.el9.aarch64+64k",
            [
                ["kernel-64k-devel", "5.14.0-687.el9"],
                ["kernel-headers", ""],
                ["kernel-64k-devel-matched", "5.14.0-687.el9"],
            ],
        ),
        pytest.param(
            ("ol", "10"),
            "6.12.0-106.55.4.2.el10uek.x86_64",
            [["kernel-uek-devel", "6.12.0-106.55.4.2.el10uek"], ["kernel-headers", ""]],
            marks=pytest.mark.proves("kernel", "headers", rows=["ol-10-uek"], note="6.12"),
        ),
        (("amzn", "2023"), "6.12.20-23.97.amzn2023.x86_64", [["kernel6.12-devel", "6.12.20-23.97.amzn2023"]]),
    ],
)
def test_the_headers_are_those_of_the_kernels_kind(system, distribution, kernel, packages):
    world = "streams" if distribution[0] == "amzn" else "flat"
    resolved = system(world, distribution, kernel).plan(DesiredDriver(version=LATER))
    headers = next(step for step in resolved.plan.steps if step.kind.key == "install_prerequisites")
    assert headers.data["packages"] == packages


@pytest.mark.proves("trap", "", rows=["newer-branch"])
def test_the_trap_is_real_without_streams_dnf_takes_the_newest_branch(system):
    dnf = system("flat", ("almalinux", "10")).manager
    changes = dnf.simulate(Transaction((Package("nvidia-open", f"3:{LATER}-1.el9"),)))
    assert {change.name: change.after for change in changes}["kmod-nvidia-open-dkms"].startswith(f"3:{NEWEST}")


@pytest.mark.proves("driver", "nvidia", by="distribution", note="installs")
@pytest.mark.parametrize(("world", "distribution"), [("streams", ("rocky", "9")), ("flat", ("rhel", "10"))])
def test_install_upgrade_over_streams_previous_and_removal(system, world, distribution):
    made = system(world, distribution)
    made.bring(DesiredDriver(version=OLD, **VULNERABLE))
    first = made.read()
    assert (first.version, first.flavour) == (OLD, "open")
    assert set(hold_names(first.packages)) <= set(first.holds)
    assert not made.plan(DesiredDriver(version=OLD, **VULNERABLE)).plan.changes
    # What dnf-automatic would do: nothing.
    assert "nvidia" not in made.manager._dnf("--assumeno", "upgrade").stdout

    made.bring(DesiredDriver(version=NEXT))
    assert made.read().version == NEXT
    if world == "streams":
        assert made.manager.streams() == {"nvidia-driver": "595-open"}

    made.bring(DesiredDriver(state="previous"))
    assert made.read().packages == first.packages
    if world == "streams":
        assert made.manager.streams() == {"nvidia-driver": "580-open"}
    assert not made.plan(DesiredDriver(state="previous")).plan.changes

    made.bring(DesiredDriver(version=LATER, flavour="proprietary"))
    assert made.read().flavour == "proprietary"
    assert "kmod-nvidia-open-dkms" not in made.read().packages

    made.bring(DesiredDriver(state="absent"))
    assert not made.read().packages
    assert "dkms" in made.manager.installed()


@pytest.mark.proves("fabric", "packages", rows=["nvswitch"])
def test_the_fabric_manager_follows_the_driver(system):
    made = system("flat", ("rhel", "10"), switches="nvswitch")
    made.bring(DesiredDriver(version=LATER))
    assert made.read().packages["nvidia-fabric-manager"] == f"3:{LATER}-1.el9"


@pytest.fixture
def rebuild(tmp_path, signer, plugins):
    """A rebuild of RHEL as it is installed: dkms in EPEL, which its own repositories bring, and CRB disabled."""
    base = [package for package in rpm_base() if package.name != "dkms"]
    epel = build_rpm_repository(tmp_path / "epel", [StandIn("dkms", "3.1.0-1")], signer)
    repo = f"[epel]\nname=EPEL\nbaseurl={epel}\nenabled=1\ngpgcheck=0\n"
    release = StandIn("epel-release", "10-1", files=(("/etc/yum.repos.d/epel.repo", repo),))

    def make(*more):
        url = build_rpm_repository(tmp_path / "own", [*base, *more, *nvidia_red_hat(LATER)], signer)
        manager = dnf_root(tmp_path / "root", url, signer, plugins, "10")
        crb = tmp_path / "root/etc/yum.repos.d/crb.repo"
        crb.write_text(f"[crb]\nname=CRB\nbaseurl={epel}\nenabled=0\ngpgcheck=0\n")
        return StandInSystem(manager, ("rocky", "10"), RHEL_KERNEL), crb

    return lambda offered: make(*([release] if offered else []))


@pytest.mark.proves("driver", "nvidia", rows=["rocky-10"], note="EPEL and CRB; installs")
def test_epel_and_crb_are_enabled_before_the_driver(rebuild):
    made, crb = rebuild(True)
    resolved = made.bring(DesiredDriver(version=LATER))
    kinds = [step.kind.key for step in resolved.plan.steps]
    assert kinds.index("enable_repositories") < kinds.index("install_driver")
    assert {"epel-release", "dkms", "kmod-nvidia-open-dkms"} <= set(made.manager.installed())
    assert "enabled=1" in crb.read_text()
    assert made.manager.disabled_repositories() == ()


def test_where_nobody_offers_epel_nothing_is_touched(rebuild):
    made, crb = rebuild(False)
    with pytest.raises(Refused, match=r"dkms: .*comes from EPEL.*codeready-builder-for-rhel-10"):
        made.plan(DesiredDriver(version=LATER))
    assert "enabled=0" in crb.read_text()
    with pytest.raises(Refused, match="manage_repository is false"):
        made.plan(DesiredDriver(version=LATER, repository=DesiredRepository(manage=False)))


def test_a_kernel_whose_headers_are_gone_is_refused(system):
    made = system("flat", ("rhel", "10"), "5.14.0-1.el9.x86_64")
    with pytest.raises(Refused, match=r"kernel 5\.14\.0-1\.el9\.x86_64.*kernel-devel"):
        made.plan(DesiredDriver())


def test_a_branch_that_is_in_no_stream_is_refused(system):
    made = system("streams", ("rocky", "9"))
    with pytest.raises(Refused, match=r"do not offer branch 650.*580\.126\.09"):
        made.plan(DesiredDriver(branch="650"))
