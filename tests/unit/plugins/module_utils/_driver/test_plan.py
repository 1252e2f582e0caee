# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import (
    DISTRIBUTIONS,
    distribution_of,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import (
    DesiredDriver,
    from_options,
    from_variables,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.fabric import imex_packages, wants_fabric_manager
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.plan import (
    Repositories,
    packages_differ,
    plan_present,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.selection import names_to_ask
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import DesiredImex
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import card
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._driver.plan_cases import (
    B200,
    BARE,
    GH200,
    H100,
    KERNEL,
    NEW,
    OLD,
    RTX_PRO_6000,
    V100,
    closure,
    installed,
    kinds,
    offers,
)


def test_a_bare_host_gets_the_newest_version_of_the_branch():
    plan = plan_present(BARE, DesiredDriver(), offers(OLD, NEW, "595.91.07"))
    assert plan.version == NEW
    assert kinds(plan) == ["pin_driver", "install_driver", "hold_driver"]
    assert {package.version for package in plan.transaction.install} == {f"{NEW}-1"}
    assert plan.transaction.allow_downgrades


def test_nothing_is_to_do_when_the_host_is_as_described():
    plan = plan_present(installed(), DesiredDriver(), Repositories())
    assert not plan.plan.changes
    assert plan.version == NEW


@pytest.mark.parametrize(
    ("host", "desired", "why"),
    [
        (BARE, DesiredDriver(), "no driver"),
        (installed(OLD), DesiredDriver(), "security floor"),
        (installed("595.91.07"), DesiredDriver(), "driver 595.91.07 is installed"),
        (installed(), DesiredDriver(version="580.190.01"), f"driver {NEW} is installed"),
        (installed(flavour="proprietary"), DesiredDriver(), "proprietary kernel modules"),
        (installed(), DesiredDriver(variant="full"), "nvidia-open is not installed"),
        (installed(interrupted=("nvidia-smi",)), DesiredDriver(), "cut off"),
        (installed(packages={**closure(NEW), "libcuda1": f"{OLD}-1"}), DesiredDriver(), "different drivers"),
        (installed(packages={**closure(NEW), "nvidia-firmware-570": f"{NEW}-1"}), DesiredDriver(), "left over"),
    ],
)
def test_why_packages_have_to_change(host, desired, why):
    assert why in packages_differ(host, desired)


def test_an_upgrade_lets_go_of_the_holds_first_and_holds_again():
    plan = plan_present(installed(OLD), DesiredDriver(), offers(OLD, NEW))
    assert kinds(plan) == ["release_packages", "pin_driver", "change_driver", "hold_driver"]
    assert plan.transaction.allow_downgrades
    step = next(step for step in plan.plan.steps if step.kind.key == "change_driver")
    assert step.what == f"change driver {OLD} to {NEW}"
    assert step.disturbs


def test_missing_holds_are_put_back_and_unwanted_ones_let_go():
    assert kinds(plan_present(installed(holds=("libcuda1",)), DesiredDriver(), Repositories())) == ["hold_packages"]
    assert kinds(plan_present(installed(), DesiredDriver(hold=False), Repositories())) == ["release_packages"]


def test_a_repository_that_is_not_there_yet_makes_the_plan_rough():
    plan = plan_present(BARE, DesiredDriver(), Repositories(configured=False))
    assert kinds(plan) == ["add_repository", "install_driver"]
    assert "not configured yet" in plan.unknown


def test_a_pinning_package_is_preferred_and_replaces_the_one_of_the_old_driver():
    pinning = Package("nvidia-driver-pinning-580", f"{NEW}-1")
    host = installed(OLD, packages={**closure(OLD), "nvidia-driver-pinning-570": "570.1-1"})
    plan = plan_present(host, DesiredDriver(), offers(NEW, extra=(pinning,)))
    step = next(step for step in plan.plan.steps if step.kind.key == "pin_driver")
    assert step.data["package"] == ["nvidia-driver-pinning-580", f"{NEW}-1"]
    assert step.data["remove"] == ["nvidia-driver-pinning-570"]


def test_missing_headers_are_a_step_and_unobtainable_ones_a_refusal():
    host = replace(BARE, headers=False)
    headers = Package(f"linux-headers-{KERNEL}", "6.1.176-1")
    assert "install_prerequisites" in kinds(plan_present(host, DesiredDriver(), offers(NEW, extra=(headers,))))
    with pytest.raises(Refused, match=f"linux-headers-{KERNEL}"):
        plan_present(host, DesiredDriver(), offers(NEW))


@pytest.mark.parametrize(
    ("gpus", "desired", "reason"),
    [
        ((V100,), DesiredDriver(branch="595"), "Volta, which branch 580 is the last"),
        ((V100,), DesiredDriver(), "only by the proprietary"),
        ((B200,), DesiredDriver(flavour="proprietary"), "only by the open"),
        ((GH200,), DesiredDriver(flavour="proprietary"), "only by the open"),
        ((B200, V100), DesiredDriver(flavour="proprietary"), "only by the open"),
    ],
)
def test_boards_that_cannot_run_the_driver(gpus, desired, reason):
    with pytest.raises(Refused, match=reason):
        plan_present(replace(BARE, gpus=gpus), desired, offers(NEW))


@pytest.mark.parametrize(
    ("gpu", "desired", "reason", "remedy"),
    [
        (B200, DesiredDriver(branch="535"), r"needs driver 570\.133\.20 or newer, and branch 535", "580"),
        (B200, DesiredDriver(version="570.124.06"), r"570\.124\.06 is older than the board", "580"),
        (RTX_PRO_6000, DesiredDriver(branch="570"), r"needs driver 575\.57\.08 or newer", "580"),
        (
            card("0", "0x2941", "blackwell", "gb200-186gb"),
            DesiredDriver(branch="535"),
            r"needs branch 570 or newer",
            "580",
        ),
    ],
)
def test_a_driver_that_is_older_than_the_board_is_refused(gpu, desired, reason, remedy):
    with pytest.raises(Refused, match=reason) as caught:
        plan_present(replace(BARE, gpus=(gpu,)), replace(desired, allow_vulnerable=True), offers(NEW))
    assert caught.value.remedy == f'Set nvidia_driver_branch: "{remedy}".'


@pytest.mark.parametrize(
    ("gpu", "branch", "version"),
    [
        (card("0", "0x2335", "hopper", "h200-141gb"), "535", "535.309.01"),
        (card("0", "0x2bb1", "blackwell", "rtx-pro-6000-96gb"), "570", "570.211.01"),
    ],
)
def test_a_board_runs_with_a_driver_that_has_no_mig_for_it_yet(gpu, branch, version):
    desired = DesiredDriver(branch=branch, allow_vulnerable=True)
    assert plan_present(replace(BARE, gpus=(gpu,)), desired, offers(version)).version == version


def test_the_newest_of_a_branch_may_be_older_than_the_board_too():
    desired = DesiredDriver(branch="570", allow_vulnerable=True)
    host = replace(BARE, gpus=(B200,))
    with pytest.raises(Refused, match=r"570\.124\.06 is older than the board"):
        plan_present(host, desired, offers("570.124.06"))
    assert plan_present(host, desired, offers("570.211.01")).version == "570.211.01"


def test_two_boards_that_no_flavour_drives_together_are_named():
    with pytest.raises(Refused, match="No flavour drives both"):
        plan_present(replace(BARE, gpus=(B200, V100)), DesiredDriver(flavour="proprietary"), offers(NEW))


def test_a_board_that_is_in_no_table_is_only_warned_of():
    plan = plan_present(replace(BARE, gpus=(card("0000:01:00.0", "0xffff"),)), DesiredDriver(), offers(NEW))
    assert "not in the table of boards" in plan.plan.warnings[0]


def test_a_branch_that_no_bulletin_names_is_said_to_be_unknown():
    wanted = plan_present(BARE, DesiredDriver(branch="620"), offers("620.10.01"))
    there = plan_present(installed("620.10.01"), DesiredDriver(branch="620"), Repositories())
    for plan in (wanted, there):
        assert any("driver branch 620 has known vulnerabilities is not known" in note for note in plan.plan.warnings)


def test_below_the_floor_is_refused_unless_allowed_loudly():
    desired = DesiredDriver(version=OLD)
    with pytest.raises(Refused, match=r"security floor 580\.178\.04.*nvidia_driver_allow_vulnerable"):
        plan_present(BARE, desired, offers(OLD, NEW))
    plan = plan_present(BARE, replace(desired, allow_vulnerable=True), offers(OLD, NEW))
    assert plan.version == OLD
    assert "VULNERABLE" in plan.plan.warnings[0]


@pytest.mark.parametrize(
    ("changed", "desired", "thing"),
    [
        ({"secure_boot": True}, DesiredDriver(), "Secure Boot"),
        ({"source": "runfile"}, DesiredDriver(), "nvidia_driver_source"),
        ({"free_mib": {"/usr,/var": 300}}, DesiredDriver(), "the file system of /usr, /var"),
    ],
)
def test_refusals_of_the_host(changed, desired, thing):
    with pytest.raises(Refused) as caught:
        plan_present(replace(BARE, **changed), desired, offers(NEW))
    assert caught.value.thing == thing


def test_sources_are_never_mixed_and_the_way_out_is_named():
    with pytest.raises(Refused, match="nvidia_driver_state: absent"):
        plan_present(installed(), DesiredDriver(source="distribution", flavour="open", branch="535"), offers(NEW))


@pytest.mark.parametrize(
    ("source", "who", "remedy"),
    [
        (
            "runfile",
            "by NVIDIA's .run installer",
            "with nvidia-uninstall first, or leave it alone with nvidia_driver_state: unmanaged",
        ),
        ("container", "by the GPU Operator's driver container", r"driver.enabled: false\) first"),
        ("outside", "by something other than a package", "the way it was installed first"),
        (
            "vendor",
            "is from negativo17.org, and packages of NVIDIA's repository",
            "unmanaged, or remove the driver first with",
        ),
        (
            "nvidia",
            "are from NVIDIA's repository and others from negativo17.org, and they define the same files",
            "Disable the repository of negativo17.org, remove the driver with nvidia_driver_state: absent and then",
        ),
    ],
)
def test_a_driver_of_somebody_else_is_called_what_it_is(source, who, remedy):
    with pytest.raises(Refused, match=f"{who}.*{remedy}"):
        plan_present(installed(source=source, vendor="negativo17.org"), DesiredDriver(), offers(NEW))


@pytest.mark.parametrize(("source", "refused"), [("container", ""), ("outside", ""), ("runfile", "run installer")])
def test_what_would_follow_the_operators_container_is_planned_before_that_leaves(source, refused):
    host = replace(BARE, loaded=OLD, library=OLD, source=source)
    wanted = DesiredDriver(migrate_from="gpu_operator")
    if refused:
        with pytest.raises(Refused, match=refused):
            plan_present(host, wanted, offers(NEW))
        return
    assert plan_present(host, wanted, offers(NEW)).version == NEW
    with pytest.raises(Refused, match="do not offer branch 580"):
        plan_present(host, wanted, offers("575.51.03"))


def test_ubuntus_packages_are_recognised_by_their_names():
    host = replace(
        BARE,
        distribution=DISTRIBUTIONS["ubuntu", "24.04"],
        packages={"nvidia-utils-580-server": "580.178.04-0ubuntu1"},
        source="nvidia",
    )
    with pytest.raises(Refused, match="from the distribution's archive"):
        plan_present(host, DesiredDriver(), offers(NEW))


def test_several_refusals_come_together():
    with pytest.raises(Refused, match=r"Secure Boot.*; .*|.*; Secure Boot"):
        plan_present(replace(BARE, gpus=(V100,), secure_boot=True), DesiredDriver(), offers(NEW))


@pytest.mark.proves("driver", "distribution", by="distribution", level="refused")
@pytest.mark.parametrize("distribution", [key for key, row in DISTRIBUTIONS.items() if row.archive is None])
def test_a_distribution_without_a_driver_says_so(distribution):
    host = replace(BARE, distribution=DISTRIBUTIONS[distribution])
    with pytest.raises(Refused, match="no driver packages of its own"):
        plan_present(host, DesiredDriver(source="distribution"), Repositories())


HGX_B200 = card("0000:1a:00.0", "0x2901", "blackwell", "b200-180gb")
GB200 = card("0000:1a:00.0", "0x2941", "blackwell", "gb200-186gb")
FABRIC = (
    Package("nvidia-fabricmanager", f"{NEW}-1"),
    Package("nvlsm", "2025.06.11-1"),
    Package("infiniband-diags", "44.0-2"),
)


@pytest.mark.proves("fabric", "packages", rows=["nvlink5-host"])
def test_nvlink5_brings_the_subnet_manager_with_the_fabric_manager():
    """An HGX B200 has no NVSwitch on its PCI bus: the GPU says that there is a fabric."""
    host = replace(BARE, gpus=(HGX_B200,), switches="nvlink5")
    chosen = {
        package.name for package in plan_present(host, DesiredDriver(), offers(NEW, extra=FABRIC)).transaction.install
    }
    assert {package.name for package in FABRIC} <= chosen
    assert {"nvlsm", "infiniband-diags"} <= set(names_to_ask(host, DesiredDriver()))
    with pytest.raises(Refused, match="needs nvlsm, which the repositories do not offer"):
        plan_present(host, DesiredDriver(), offers(NEW, extra=(FABRIC[0], FABRIC[2])))
    plan = plan_present(host, DesiredDriver(fabric_manager="never"), offers(NEW))
    assert "nvlsm" not in {package.name for package in plan.transaction.install}
    # Hopper's NVSwitches have no subnet manager.
    hopper = plan_present(replace(BARE, switches="nvswitch"), DesiredDriver(), offers(NEW, extra=FABRIC))
    assert "nvlsm" not in {package.name for package in hopper.transaction.install}


def test_the_infiniband_modules_of_ubuntu():
    host = replace(
        BARE,
        distribution=DISTRIBUTIONS["ubuntu", "24.04"],
        kernel="6.8.0-60-generic",
        gpus=(HGX_B200,),
        switches="nvlink5",
    )
    assert "linux-modules-extra-6.8.0-60-generic" in names_to_ask(host, DesiredDriver())
    assert "linux-modules-extra-6.8.0-60-generic" not in names_to_ask(
        replace(host, gpus=(H100,), switches=None), DesiredDriver()
    )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"gpus": (HGX_B200,), "switches": "nvlink5"}, "nvidia-fabricmanager, nvlsm are not installed"),
        ({"gpus": (HGX_B200,), "switches": "nvlink5", "fabric_installed": True}, "nvlsm is not installed"),
        ({"switches": "nvswitch"}, "nvidia-fabricmanager is not installed"),
        ({"switches": "nvswitch", "fabric_installed": True}, ""),
        ({"gpus": (GB200,)}, ""),
    ],
)
def test_a_driver_without_the_fabric_manager_is_not_as_wanted(changed, reason):
    assert packages_differ(installed(**changed), DesiredDriver()) == reason


def test_a_host_of_a_rack_has_no_fabric_manager_of_its_own():
    host = replace(BARE, gpus=(GB200,))
    assert not wants_fabric_manager(host, DesiredDriver())
    with pytest.raises(Refused, match="belong to the rack"):
        plan_present(host, DesiredDriver(fabric_manager="always"), offers(NEW, extra=FABRIC))


@pytest.mark.parametrize(
    ("distribution", "source", "branch", "names"),
    [
        (("debian", "12"), "nvidia", "580", ("nvidia-imex",)),
        (("ubuntu", "24.04"), "nvidia", "595", ("nvidia-imex",)),
        (("ubuntu", "24.04"), "nvidia", "570", ("nvidia-imex-{branch}",)),
        (("ubuntu", "24.04"), "distribution", "580", ("nvidia-imex-{branch}",)),
        (("rhel", "9"), "nvidia", "580", ("nvidia-imex", "nvidia-imex-{branch}")),
        (("sles", "15"), "nvidia", "580", ()),
        (("debian", "12"), "distribution", "535", ()),
    ],
)
def test_the_package_of_imex(distribution, source, branch, names):
    """gpu-driver-container, imex_install of ubuntu24.04, rhel8 and rhel9; Ubuntu's archive has it with the branch."""
    host = replace(BARE, distribution=DISTRIBUTIONS[distribution], gpus=(GB200,))
    assert imex_packages(host, DesiredDriver(source=source, branch=branch)) == names


def test_imex_has_to_be_offered_at_exactly_the_drivers_version():
    host, masked = replace(BARE, gpus=(GB200,)), DesiredDriver(imex=DesiredImex("masked"))
    assert "nvidia-imex" in names_to_ask(host, masked)
    with pytest.raises(Refused, match=f"exactly the driver's version, but nvidia-imex is not offered at {NEW}"):
        plan_present(host, masked, offers(NEW, extra=(Package("nvidia-imex", f"{OLD}-1"),)))
    plan = plan_present(host, masked, offers(NEW, extra=(Package("nvidia-imex", f"{NEW}-1"), *FABRIC)))
    chosen = {package.name: package.version for package in plan.transaction.install}
    assert chosen["nvidia-imex"] == f"{NEW}-1"
    assert "nvidia-fabricmanager" not in chosen
    with pytest.raises(Refused, match="not h100-80gb-sxm"):
        plan_present(BARE, masked, offers(NEW))


def test_the_fabric_manager_has_to_be_offered_at_exactly_the_drivers_version():
    host = replace(BARE, switches="nvswitch")
    with pytest.raises(Refused, match="need the fabric manager at exactly"):
        plan_present(host, DesiredDriver(), offers(NEW, extra=(Package("nvidia-fabricmanager", f"{OLD}-1"),)))
    plan = plan_present(host, DesiredDriver(), offers(NEW, extra=(Package("nvidia-fabricmanager", f"{NEW}-1"),)))
    assert "nvidia-fabricmanager" in [package.name for package in plan.transaction.install]
    assert plan_present(host, DesiredDriver(fabric_manager="never"), offers(NEW)).version == NEW


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "580"}, "not a driver version"),
        ({"branch": "R580"}, "not a driver branch"),
        ({"branch": "620", "flavour": "proprietary"}, "no proprietary kernel modules from branch 620"),
        ({"source": "local_repository"}, "needs its address"),
        ({"repository": {"url": "https://mirror.invalid"}}, "needs the key that signs it"),
        ({"repository": {"url": "https://mirror.invalid", "key_file": "/k"}}, "only trusted by its fingerprint"),
    ],
)
def test_desired_states_that_contradict_themselves(options, message):
    with pytest.raises(Refused, match=message):
        from_options(options)


def test_variables_and_options_give_the_same_desired_state():
    variables = {"nvidia_driver_branch": "595", "nvidia_driver_manage_repository": False, "nvidia_driver_hold": False}
    desired = from_variables(variables)
    assert desired == from_options({"branch": "595", "hold": False, "repository": {"manage": False}})
    assert desired.branch_number == 595
    assert not desired.met_by("nonsense")
    assert not desired.met_by(None)


@pytest.mark.parametrize(
    ("described", "repository"),
    [
        ({"id": "rocky", "version": "9.6"}, "rhel9"),
        ({"id": "almalinux", "version": "10.0"}, "rhel10"),
        ({"id": "sles", "version": "15.6"}, "sles15"),
        ({"id": "amzn", "version": "2023"}, "amzn2023"),
        ({"id": "ubuntu", "version": "24.04"}, "ubuntu2404"),
        ({"id": "debian", "version": "13"}, "debian13"),
        ({"id": "ubuntu", "version": "26.04"}, "ubuntu2604"),
        ({"id": "ol", "version": "8.10"}, "rhel8"),
        ({"id": "ol", "version": "10.1"}, "rhel10"),
        ({"id": "centos", "version": "9"}, "rhel9"),
        ({"id": "sles", "version": "16.0"}, "suse16"),
    ],
)
def test_distributions(described, repository):
    found = distribution_of(view_of({"host": {"distribution": described, "architecture": "aarch64"}}).host)
    assert found.url("aarch64").endswith(f"/repos/{repository}/sbsa")


@pytest.mark.parametrize(
    "host",
    [
        {},
        {"distribution": {"id": "ubuntu", "version": "20.04"}, "architecture": "x86_64"},
        {"distribution": {"id": "debian", "version": "12"}, "architecture": "riscv64"},
        {"distribution": {"id": "fedora", "version": "44"}, "architecture": "aarch64"},
        {"distribution": {"id": "opensuse-leap", "version": "15.6"}, "architecture": "aarch64"},
        {"distribution": {"id": "opensuse-leap", "version": "16.0"}, "architecture": "aarch64"},
        {"distribution": {"id": "fedora", "version": "42"}, "architecture": "x86_64"},
    ],
)
def test_other_distributions_and_processors_are_refused(host):
    with pytest.raises(Refused, match=r"Supported (are|is)"):
        distribution_of(view_of({"host": host}).host)
