# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian 12 and 13, Ubuntu 22.04 and 24.04: every plan is resolved, and installed, by the real apt and dpkg."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import (
    Package,
    PackageError,
    Transaction,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import hold_names, versioned
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import CardFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.driver_versions import driver_version_in
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import DesiredImex
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from repositories import Signer, build_deb_repository
from roots import StandInSystem, apt_root
from stand_ins import (
    DEBIAN_KERNEL,
    HWE_KERNEL,
    LATER,
    NEWEST,
    NEXT,
    OLD,
    UBUNTU_KERNEL,
    VERSIONS,
    deb_base,
    debian_archive,
    debian_archive_companions,
    nvidia_debian,
    nvidia_ubuntu,
    ubuntu_archive,
)

VULNERABLE = {"allow_vulnerable": True}


@pytest.fixture(scope="session")
def repositories(workspace, signer):
    debian = [*deb_base(), *(package for version in VERSIONS for package in nvidia_debian(version))]
    plain = [*deb_base(), *(package for version in VERSIONS for package in nvidia_debian(version, pinning=False))]
    ubuntu = [*deb_base(), *(package for version in VERSIONS for package in nvidia_ubuntu(version))]
    archive = [
        *deb_base(),
        *debian_archive("535.261.03", "1"),
        *debian_archive("535.309.01", "0+deb12u1"),
        *debian_archive_companions(),
    ]
    worlds = {
        "debian": debian,
        "debian-mirror": plain,
        "ubuntu": ubuntu,
        "debian-archive": archive,
        "debian-13-archive": [*deb_base(), *debian_archive("550.163.01", "2"), *debian_archive_companions()],
        "ubuntu-archive": [*deb_base(), *ubuntu_archive()],
    }
    return {name: build_deb_repository(workspace / name, packages, signer) for name, packages in worlds.items()}


@pytest.fixture
def system(tmp_path, repositories, signer):
    def make(world, distribution, kernel=DEBIAN_KERNEL, **host):
        return StandInSystem(apt_root(tmp_path / "root", repositories[world], signer), distribution, kernel, **host)

    return make


NVIDIA_CASES = [
    ("debian", ("debian", "12"), DEBIAN_KERNEL),
    ("debian", ("debian", "13"), DEBIAN_KERNEL),
    ("debian-mirror", ("debian", "12"), DEBIAN_KERNEL),
    ("ubuntu", ("ubuntu", "22.04"), UBUNTU_KERNEL),
    ("ubuntu", ("ubuntu", "24.04"), UBUNTU_KERNEL),
]
BY_DEFAULT = (("open", "compute", OLD), ("open", "full", NEXT), ("proprietary", "compute", LATER))


@pytest.mark.proves("driver", "nvidia", by="distribution")
@pytest.mark.parametrize(("world", "distribution", "kernel"), NVIDIA_CASES)
@pytest.mark.parametrize(
    ("flavour", "variant", "version"),
    [
        # By default each flavour, variant and version comes once.
        pytest.param(
            flavour, variant, version, marks=[pytest.mark.by_name] * ((flavour, variant, version) not in BY_DEFAULT)
        )
        for flavour in ("open", "proprietary")
        for variant in ("compute", "full")
        for version in (OLD, LATER, NEXT)
    ],
)
def test_every_plan_resolves_to_one_driver_version(system, world, distribution, kernel, flavour, variant, version):
    if world == "ubuntu" and (flavour, variant) == ("proprietary", "full"):
        pytest.skip("the stand-in of Ubuntu has no cuda-drivers; Debian's proves the shape")
    made = system(world, distribution, kernel)
    resolved = made.plan(DesiredDriver(version=version, flavour=flavour, variant=variant, **VULNERABLE))
    installed = {change.name: change.after for change in resolved.changes}
    assert resolved.changes
    assert set(versioned(installed).values()) == {version}
    headers = next(step for step in resolved.plan.steps if step.kind.key == "install_prerequisites")
    following = {"linux-headers-amd64"} if distribution[0] == "debian" else set()
    assert {f"linux-headers-{kernel}", *following} == {name for name, _version in headers.data["packages"]}


@pytest.mark.proves("trap", "", rows=["newer-branch"])
def test_the_trap_is_real_without_us_apt_takes_the_newest_branch(system):
    apt = system("debian", ("debian", "12")).manager
    changes = apt.simulate(Transaction((Package("nvidia-open", f"{LATER}-1"),)))
    assert {change.name: change.after for change in changes}["nvidia-kernel-open-dkms"] == f"{NEWEST}-1"


@pytest.mark.proves("driver", "nvidia", rows=["debian-12"], note="installs")
def test_install_upgrade_downgrade_flavour_previous_and_removal(system):
    made = system("debian", ("debian", "12"))
    made.bring(DesiredDriver(version=OLD, **VULNERABLE))
    first = made.read()
    assert (first.version, first.flavour) == (OLD, "open")
    assert set(hold_names(first.packages)) <= set(first.holds)

    again = made.plan(DesiredDriver(version=OLD, **VULNERABLE))
    assert not again.plan.changes

    made.bring(DesiredDriver(branch="595"))
    assert made.read().version == NEXT
    made.bring(DesiredDriver(branch="595", state="previous"))
    back = made.read()
    assert back.version == OLD
    assert {name: version for name, version in back.packages.items() if "pinning" not in name} == {
        name: version for name, version in first.packages.items() if "pinning" not in name
    }
    assert not made.plan(DesiredDriver(state="previous")).plan.changes

    made.bring(DesiredDriver(version=LATER, flavour="proprietary"))
    switched = made.read()
    assert (switched.version, switched.flavour) == (LATER, "proprietary")
    assert "nvidia-kernel-open-dkms" not in switched.packages

    made.bring(DesiredDriver(state="absent"))
    assert not made.read().packages
    assert "dkms" in made.manager.installed()


def test_the_pinning_package_of_nvidia_is_installed_before_the_driver(system):
    made = system("debian", ("debian", "12"))
    made.bring(DesiredDriver(version=LATER))
    assert f"nvidia-driver-pinning-{LATER}" in made.manager.installed()
    made.bring(DesiredDriver(version=NEXT))
    pins = [name for name in made.manager.installed() if "pinning" in name]
    assert pins == [f"nvidia-driver-pinning-{NEXT}"]


@pytest.mark.proves("driver", "mirror", rows=["debian-12"], note="installs")
def test_a_mirror_without_pinning_packages_is_pinned_by_preferences_and_holds(system):
    made = system("debian-mirror", ("debian", "12"))
    made.bring(DesiredDriver(version=LATER))
    assert f"Pin: version {LATER}-*" in made.manager.preferences("gpufleet-nvidia-driver")
    # What unattended-upgrades would do: nothing.
    assert made.manager._run(["apt-get", *made.manager._options, "-s", "dist-upgrade"]).stdout.count("Inst ") == 0
    made.manager.unhold(made.manager.holds())
    assert made.manager._run(["apt-get", *made.manager._options, "-s", "dist-upgrade"]).stdout.count("Inst ") == 0


@pytest.mark.proves("trap", "", rows=["partial-hold"])
def test_a_partial_hold_makes_apt_refuse_and_ours_covers_the_closure(system):
    made = system("debian-archive", ("debian", "12"))
    desired = DesiredDriver(
        branch="535", version="535.261.03", flavour="proprietary", source="distribution", **VULNERABLE
    )
    made.bring(desired)
    apt = made.manager
    apt.unhold(apt.holds())
    apt.hold([Package("nvidia-smi")])
    with pytest.raises(PackageError, match=r"held|unmet|nvidia-alternative"):
        # The user's own apt, that does not know of the hold's partners.
        answer = apt._run(
            ["apt-get", *apt._options, "-s", "install", "libnvidia-ml1=535.309.01-0+deb12u1", "nvidia-smi"]
        )
        if answer.rc:
            raise PackageError(answer.stdout + answer.stderr)
    assert made.plan(desired).plan.steps[-1].kind.key == "hold_packages"
    made.bring(desired)
    assert set(hold_names(made.read().packages)) <= set(apt.holds())


@pytest.mark.proves("driver", "distribution", rows=["debian-12"], note="535, below the security floor; installs")
def test_debians_archive_upgrade_and_the_rollback_of_the_whole_closure(system):
    made = system("debian-archive", ("debian", "12"))
    old = DesiredDriver(version="535.261.03", flavour="proprietary", source="distribution", **VULNERABLE)
    made.bring(old)
    made.bring(
        DesiredDriver(branch="535", version="535.309.01", flavour="proprietary", source="distribution", **VULNERABLE)
    )
    assert made.read().version == "535.309.01"
    with pytest.raises(PackageError, match=r"nvidia-alternative|unmet"):
        made.manager.simulate(Transaction((Package("nvidia-smi", "535.261.03-1"),), allow_downgrades=True))
    made.bring(DesiredDriver(state="previous", flavour="proprietary", source="distribution"))
    back = made.read()
    assert back.version == "535.261.03"
    assert back.packages["nvidia-persistenced"] == "535.171.04-1~deb12u1"


@pytest.mark.parametrize("state", ["unpacked", "half-installed"])
def test_a_package_that_was_cut_off_while_it_was_unpacked_is_unpacked_again(system, state):
    """What dpkg writes down when it is killed in the middle of a package; it refuses to configure that."""
    made = system("debian-archive", ("debian", "12"))
    made.bring(DesiredDriver(version="535.261.03", source="distribution", flavour="proprietary", **VULNERABLE))
    before = made.read()
    status = Path(made.manager._root) / "var/lib/dpkg/status"
    head, package, tail = status.read_text().partition("Package: nvidia-smi\n")
    status.write_text(head + package + tail.replace(" ok installed", f" reinstreq {state}", 1))
    assert made.manager.interrupted() == ("nvidia-smi",)
    made.manager.repair()
    assert made.manager.interrupted() == ()
    assert made.read() == before


def test_the_first_package_that_was_unpacked_before_power_was_lost_goes_back(system):
    """dpkg does not configure it beside the older packages that it needs in its version, and apt chooses no other version of what is not named."""
    made = system("debian-archive", ("debian", "12"))
    made.bring(DesiredDriver(version="535.261.03", source="distribution", flavour="proprietary", **VULNERABLE))
    before = made.read()
    status = Path(made.manager._root) / "var/lib/dpkg/status"
    head, package, tail = status.read_text().partition("Package: nvidia-smi\n")
    entry, end, rest = tail.partition("\n\n")
    newer = entry.replace("535.261.03-1", "535.309.01-0+deb12u1").replace(" ok installed", " ok unpacked")
    status.write_text(head + package + newer + end + rest)
    assert made.manager.interrupted() == ("nvidia-smi",)
    made.manager.repair()
    assert made.manager.interrupted() == ()
    assert made.read() == before


def test_a_branch_that_debian_does_not_have_is_refused_with_what_it_has(system):
    made = system("debian-archive", ("debian", "12"))
    with pytest.raises(Refused, match=r"do not offer branch 580.*535\.309\.01"):
        made.plan(DesiredDriver(source="distribution", flavour="proprietary"))


@pytest.mark.proves("driver", "distribution", rows=["debian-13"], note="550, below the security floor")
def test_debian_13s_archive_is_below_the_floor_and_resolves_when_that_is_allowed(system):
    made = system("debian-13-archive", ("debian", "13"))
    desired = {"branch": "550", "flavour": "proprietary", "source": "distribution"}
    with pytest.raises(Refused, match="allow_vulnerable"):
        made.plan(DesiredDriver(**desired))
    resolved = made.plan(DesiredDriver(**desired, **VULNERABLE))
    assert set(versioned({change.name: change.after for change in resolved.changes}).values()) == {"550.163.01"}


@pytest.mark.proves("driver", "distribution", by="distribution", note="precompiled modules; installs")
@pytest.mark.parametrize("distribution", [("ubuntu", "22.04"), ("ubuntu", "24.04")])
def test_ubuntus_archive_installs_the_precompiled_module_of_the_kernel(system, distribution):
    made = system("ubuntu-archive", distribution, UBUNTU_KERNEL)
    with pytest.raises(Refused, match="no metapackage of the running kernel"):
        made.plan(DesiredDriver(source="distribution"))
    made.manager.apply(Transaction((Package("linux-image-generic"),)))
    resolved = made.bring(DesiredDriver(source="distribution"))
    names = {change.name for change in resolved.changes}
    assert f"linux-modules-nvidia-580-server-open-{UBUNTU_KERNEL}" in names
    assert "dkms" not in names
    held = set(made.manager.holds())
    assert "nvidia-utils-580-server" in held
    following = {"linux-image-generic", "linux-modules-nvidia-580-server-open-generic"}
    assert {name for name in held if name.startswith("linux-")} == following
    assert not made.plan(DesiredDriver(source="distribution")).plan.changes
    made.bring(DesiredDriver(state="absent", source="distribution"))
    assert made.manager.holds() == ()


@pytest.mark.proves("driver", "distribution", rows=["ubuntu-24.04"], note="HWE kernel, precompiled modules; installs")
def test_a_host_on_the_hwe_kernel_gets_its_modules_and_not_those_of_the_first_kernel(system):
    made = system("ubuntu-archive", ("ubuntu", "24.04"), HWE_KERNEL)
    made.manager.apply(Transaction((Package("linux-image-generic-hwe-24.04"),)))
    made.bring(DesiredDriver(source="distribution"))
    modules = {name for name in made.manager.installed() if name.startswith("linux-modules-nvidia-")}
    assert modules == {f"linux-modules-nvidia-580-server-open-{kernel}" for kernel in (HWE_KERNEL, "generic-hwe-24.04")}


def test_the_headers_follow_the_kernel_that_is_installed(system):
    made = system("ubuntu", ("ubuntu", "24.04"), HWE_KERNEL)
    made.manager.apply(Transaction((Package("linux-image-generic-hwe-24.04"),)))
    made.bring(DesiredDriver(version=LATER))
    assert "linux-headers-generic-hwe-24.04" in made.manager.installed()
    assert "linux-headers-generic" not in made.manager.installed()
    # Somebody removed it: the next run brings it back, and nothing else.
    made.manager.apply(Transaction(remove=("linux-headers-generic-hwe-24.04",)))
    again = made.plan(DesiredDriver(version=LATER)).plan
    assert [step.kind.key for step in again.steps] == ["install_prerequisites"]


def test_ubuntus_archive_without_a_module_for_the_kernel_is_refused(system):
    made = system("ubuntu-archive", ("ubuntu", "24.04"), "6.8.0-99-generic")
    made.manager.apply(Transaction((Package("linux-image-generic"),)))
    with pytest.raises(Refused, match=r"no precompiled module for the running kernel 6\.8\.0-99-generic"):
        made.plan(DesiredDriver(source="distribution"))


@pytest.mark.proves("trap", "", rows=["transitional"])
def test_a_transitional_package_that_jumps_branches_is_refused(system):
    made = system("ubuntu-archive", ("ubuntu", "24.04"), UBUNTU_KERNEL)
    made.manager.apply(Transaction((Package("linux-image-generic"),)))
    with pytest.raises(Refused, match=r"transitional package that installs driver 580\.178\.04"):
        made.plan(DesiredDriver(branch="570", source="distribution", **VULNERABLE))


def test_an_upgrade_over_branches_clears_the_leftovers_of_the_old_one(system):
    made = system("ubuntu", ("ubuntu", "24.04"), UBUNTU_KERNEL)
    made.bring(DesiredDriver(version=LATER))
    assert "nvidia-firmware-580" in made.read().packages
    made.bring(DesiredDriver(version=NEXT))
    after = made.read()
    assert after.version == NEXT
    assert not [name for name in after.packages if "-580" in name]


def test_headers_that_nobody_offers_are_refused(system):
    made = system("debian", ("debian", "12"), "6.1.0-99-amd64")
    with pytest.raises(Refused, match=r"linux-headers-6\.1\.0-99-amd64"):
        made.plan(DesiredDriver())


def test_a_version_that_is_not_offered_names_the_nearest(system):
    made = system("debian", ("debian", "12"))
    with pytest.raises(Refused, match=f"The nearest that they offer is {LATER}"):
        made.plan(DesiredDriver(version="580.140.01", **VULNERABLE))


@pytest.mark.proves("fabric", "packages", rows=["nvswitch"])
def test_the_fabric_manager_comes_at_exactly_the_drivers_version(system):
    made = system("debian", ("debian", "12"), switches="nvswitch")
    made.bring(DesiredDriver(version=LATER))
    packages = made.read().packages
    assert packages["nvidia-fabricmanager"] == packages["libnvidia-nscq"] == f"{LATER}-1"


GB200 = CardFacts("0000:1a:00.0", "0x2941", architecture="blackwell", board="gb200-186gb")
RACK = DesiredImex("masked")


@pytest.mark.proves("fabric", "packages", rows=["nvlink5-rack"])
def test_imex_comes_at_exactly_the_drivers_version_and_moves_with_it(system):
    made = system("debian", ("debian", "12"))
    made._base = replace(made._base, gpus=(GB200,))
    for version in (LATER, NEXT):
        made.bring(DesiredDriver(version=version, imex=RACK))
        packages = made.read().packages
        assert driver_version_in(packages["nvidia-imex"]) == version
        assert "nvidia-fabricmanager" not in packages
        assert "nvidia-imex" in made.read().holds


def test_a_repository_signed_by_another_key_is_not_read(tmp_path, repositories):
    other = Signer.create(tmp_path / "other")
    try:
        with pytest.raises(PackageError, match=r"NO_PUBKEY|not signed|couldn't be verified"):
            apt_root(tmp_path / "root", repositories["debian"], other)
    finally:
        other.close()
