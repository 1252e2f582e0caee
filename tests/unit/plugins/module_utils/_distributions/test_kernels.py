# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.installed_packages import is_kernel_package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.kernels import (
    Headers,
    headers,
    image_metapackages,
    later_headers,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.dkms import (
    TOOLCHAIN_ENVIRONMENT,
    TOOLCHAIN_FILE,
    header_names,
    lacking,
    later_warnings,
    toolchain_texts,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import in_family
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.plan import (
    Repositories,
    packages_differ,
    plan_present,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.selection import names_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document, card

stage = by_document(stage_of_facts)

VERSION = "580.178.04"
H100 = card("0000:18:00.0", "0x2330", "hopper", "h100-80gb-sxm")
ARCHIVE = DesiredDriver(source="distribution")


def oracle(release):
    """The release of Oracle Linux that a UEK kernel is of."""
    return ("ol", re.search(r"\.el(\d+)", release)[1])


def of_uek(column, release, compiler=""):
    """What a case proves for the support matrix, with the series of the kernel."""
    series = ".".join(release.split(".")[:2])
    note = f"{series}: {compiler}" if compiler else series
    return pytest.mark.proves("kernel", column, rows=[f"{'-'.join(oracle(release))}-uek"], note=note)


def host(distribution, kernel, *installed, **changed):
    return Host(DISTRIBUTIONS[distribution], "x86_64", kernel, (H100,), kernel_packages=installed, **changed)


@pytest.mark.parametrize(
    ("installed", "release", "flavours"),
    [
        (("linux-image-generic",), "6.8.0-40-generic", ["generic"]),
        (("linux-image-generic-hwe-24.04",), "6.11.0-26-generic", ["generic-hwe-24.04"]),
        (("linux-image-generic-hwe-24.04-edge",), "6.14.0-5-generic", ["generic-hwe-24.04-edge"]),
        (("linux-image-virtual",), "6.8.0-40-generic", ["generic"]),
        (("linux-image-virtual-hwe-24.04",), "6.11.0-26-generic", ["generic-hwe-24.04"]),
        (("linux-image-aws-lts-24.04",), "6.8.0-1015-aws", ["aws-lts-24.04"]),
        (("linux-image-nvidia-64k",), "6.8.0-1021-nvidia-64k", ["nvidia-64k"]),
        (("linux-image-nvidia-64k-hwe-24.04",), "6.11.0-1007-nvidia-64k", ["nvidia-64k-hwe-24.04"]),
        # Either may bring the next kernel.
        (
            ("linux-image-generic", "linux-image-generic-hwe-24.04"),
            "6.11.0-26-generic",
            ["generic", "generic-hwe-24.04"],
        ),
        # Those of other flavours do not bring this one.
        (("linux-image-aws", "linux-image-nvidia"), "6.8.0-40-generic", []),
        (("linux-image-6.8.0-40-generic", "linux-headers-generic"), "6.8.0-40-generic", []),
        (("linux-image-generic",), "6.8.0-custom", []),
    ],
)
def test_the_flavour_is_that_of_the_installed_metapackage(installed, release, flavours):
    assert list(image_metapackages(release, installed).values()) == flavours


@pytest.mark.parametrize(
    ("installed", "kernel", "flavour"),
    [
        ("linux-image-generic-hwe-24.04", "6.11.0-26-generic", "generic-hwe-24.04"),
        ("linux-image-aws-lts-24.04", "6.8.0-1015-aws", "aws-lts-24.04"),
        ("linux-image-nvidia-64k", "6.8.0-1021-nvidia-64k", "nvidia-64k"),
    ],
)
def test_ubuntus_module_package_follows_the_installed_kernel(installed, kernel, flavour):
    asked = names_of(host(("ubuntu", "24.04"), kernel, installed), ARCHIVE).loose
    assert asked == tuple(f"linux-modules-nvidia-580-server-open-{end}" for end in (kernel, flavour))


@pytest.mark.parametrize(
    ("branch", "flavour", "kernel", "required", "module"),
    [
        ("570", "proprietary", "default", "nvidia-driver-G06-kmp-default", "precompiled"),
        ("580", "proprietary", "default", "nvidia-driver-G06", "dkms"),
        ("595", "proprietary", "default", "nvidia-driver-G07", "dkms"),
        ("580", "open", "default", "nvidia-open-driver-G06-signed-cuda-kmp-default", "precompiled"),
        ("580", "open", "azure", "nvidia-open-driver-G06-signed-cuda-kmp-azure", "precompiled"),
        ("590", "open", "64kb", "nvidia-open-driver-G07-signed-cuda-kmp-64kb", "precompiled"),
    ],
)
def test_suses_packages_by_branch_flavour_and_kernel(branch, flavour, kernel, required, module):
    names = names_of(
        host(("sles", "15"), f"6.4.0-150600.23.25-{kernel}"), DesiredDriver(branch=branch, flavour=flavour)
    )
    assert (names.required[0], names.module) == (required, module)
    assert names.required[1] == f"nvidia-compute-utils-{'G07' if int(branch) >= 590 else 'G06'}"
    assert "nvidia-persistenced" in names.optional


@pytest.mark.parametrize("branch", ["580", "590", "615"])
@pytest.mark.parametrize(("flavour", "required"), [("open", "nvidia-open"), ("proprietary", "cuda-drivers")])
def test_the_full_variant_of_suse_is_built_on_the_host(branch, flavour, required):
    """NVIDIA's repository has no compiled modules: only SUSE's own repositories have them."""
    desired = DesiredDriver(branch=branch, flavour=flavour, variant="full")
    names = names_of(host(("sles", "15"), "6.4.0-150600.23.25-default"), desired)
    assert (names.required, names.module) == ((required,), "dkms")


def test_kernels_and_branches_that_suse_has_no_modules_for_are_refused():
    with pytest.raises(Refused, match=r"6\.4\.0-1-rt is of no flavour"):
        plan_present(host(("sles", "15"), "6.4.0-1-rt"), DesiredDriver(), Repositories())
    with pytest.raises(Refused, match="packages of branch 535 for SUSE Linux Enterprise Server 15 are not known"):
        plan_present(host(("sles", "15"), "6.4.0-1-default"), DesiredDriver(branch="535"), Repositories())


def test_signed_modules_lag_behind_and_are_held_against_the_floor():
    on = host(("sles", "15"), "6.4.0-150600.23.25-default")
    utils = [Package("nvidia-compute-utils-G07", f"{version}-1") for version in ("595.71.05", "595.91.07")]
    signed = Package("nvidia-open-driver-G07-signed-cuda-kmp-default", "595.71.05_k6.4.0_150600.21-150600.3.1")
    with pytest.raises(Refused, match=r"595\.71\.05 is below the security floor"):
        plan_present(on, DesiredDriver(branch="595"), Repositories(True, (*utils, signed)))
    with pytest.raises(Refused, match="SUSE's own repositories"):
        plan_present(on, DesiredDriver(branch="595"), Repositories(True, tuple(utils)))


def test_what_goes_with_signed_modules_has_their_version():
    """The repository of NVIDIA is ahead of the signed modules, with daemons of a newer driver."""
    on = host(("sles", "15"), "6.4.0-150600.23.25-default")
    signed = Package("nvidia-open-driver-G07-signed-cuda-kmp-default", "595.91.07_k6.4.0_150600.21-150600.3.1")
    names = ("nvidia-compute-utils-G07", "nvidia-persistenced")
    others = [Package(name, f"{version}-1") for name in names for version in ("595.99.02", "595.91.07")]
    plan = plan_present(on, DesiredDriver(branch="595"), Repositories(True, (*others, signed)))
    assert plan.transaction.install == (signed, *(Package(name, "595.91.07-1") for name in names))


def test_packages_of_suses_other_generation_go():
    old = {f"nvidia-{part}-G06": "580.178.04-1" for part in ("common", "compute", "compute-utils")}
    on = host(("sles", "15"), "6.4.0-150600.23.25-default", packages={**old, "nvidia-persistenced": "580.178.04-1"})
    names = ("nvidia-open-driver-G07-signed-cuda-kmp-default", "nvidia-compute-utils-G07")
    new = tuple(Package(name, "595.91.07-1") for name in names)
    plan = plan_present(on, DesiredDriver(branch="595"), Repositories(True, new))
    assert plan.transaction.remove == tuple(sorted(old))


def offered(*names):
    required = ("nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server")
    exact = [Package(name, f"{VERSION}-0ubuntu0.24.04.1") for name in required]
    return Repositories(True, (*exact, *(Package(name, "6.11.0-26.26+1") for name in names)))


def test_a_kernel_without_a_metapackage_is_refused_with_what_is_there():
    on = host(("ubuntu", "24.04"), "6.8.0-40-generic", "linux-image-aws")
    with pytest.raises(
        Refused, match=r"no metapackage of the running kernel 6\.8\.0-40-generic.*installed are linux-image-aws"
    ):
        plan_present(on, ARCHIVE, offered())
    # Modules that are built need none.
    assert plan_present(on, DesiredDriver(), Repositories(configured=False)).plan.steps


def test_a_metapackage_whose_modules_are_not_offered_is_refused():
    on = host(("ubuntu", "24.04"), "6.11.0-26-generic", "linux-image-generic-hwe-24.04")
    running = "linux-modules-nvidia-580-server-open-6.11.0-26-generic"
    with pytest.raises(Refused, match=r"next kernel of linux-image-generic-hwe-24\.04"):
        plan_present(on, ARCHIVE, offered(running))
    plan = plan_present(on, ARCHIVE, offered(running, "linux-modules-nvidia-580-server-open-generic-hwe-24.04"))
    assert Package("linux-modules-nvidia-580-server-open-generic-hwe-24.04") in plan.transaction.install


def test_a_kernel_of_another_flavour_that_is_booted_next_is_named_by_its_release():
    required = ("nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server")
    packages = dict.fromkeys(required, f"{VERSION}-0ubuntu0.24.04.1")
    on = host(("ubuntu", "24.04"), "6.11.0-26-generic", "linux-image-generic-hwe-24.04", packages=packages)
    on = replace(on, on_disk=VERSION, next_kernel="6.11.0-30-lowlatency")
    modules = "linux-modules-nvidia-580-server-open-"
    there = offered(f"{modules}6.11.0-26-generic", f"{modules}generic-hwe-24.04")
    with pytest.raises(Refused, match=r"for the kernel 6\.11\.0-30-lowlatency, which is booted next: linux-modules-"):
        plan_present(on, ARCHIVE, there)


def test_an_installed_driver_that_follows_another_kernel_is_mended():
    required = ("nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server")
    packages = dict.fromkeys(required, f"{VERSION}-0ubuntu0.24.04.1")
    packages["linux-modules-nvidia-580-server-open-generic"] = "6.8.0-40.40+1"
    on = host(
        ("ubuntu", "24.04"),
        "6.11.0-26-generic",
        "linux-image-generic-hwe-24.04",
        packages=packages,
        flavour="open",
        on_disk=VERSION,
        source="distribution",
    )
    assert "linux-modules-nvidia-580-server-open-generic-hwe-24.04 is not installed" in packages_differ(on, ARCHIVE)
    assert packages_differ(replace(on, kernel_packages=("linux-image-generic",)), ARCHIVE) == ""


@pytest.mark.parametrize(
    ("distribution", "release", "now", "later"),
    [
        (("debian", "12"), "6.1.0-50-amd64", ["linux-headers-6.1.0-50-amd64"], ["linux-headers-amd64"]),
        (
            ("debian", "12"),
            "6.1.0-50-cloud-amd64",
            ["linux-headers-6.1.0-50-cloud-amd64"],
            ["linux-headers-cloud-amd64"],
        ),
        (("debian", "12"), "6.1.0-50-rt-amd64", ["linux-headers-6.1.0-50-rt-amd64"], ["linux-headers-rt-amd64"]),
        (("debian", "13"), "6.12.48+deb13-amd64", ["linux-headers-6.12.48+deb13-amd64"], ["linux-headers-amd64"]),
        (("debian", "12"), "6.6.1-mine", ["linux-headers-6.6.1-mine"], None),
        (
            ("ubuntu", "24.04"),
            "6.11.0-26-generic",
            ["linux-headers-6.11.0-26-generic"],
            ["linux-headers-generic-hwe-24.04"],
        ),
        (("ubuntu", "24.04"), "6.8.0-1015-aws", ["linux-headers-6.8.0-1015-aws"], None),
        (("rhel", "8"), "4.18.0-553.el8_10.x86_64", ["kernel-devel", "kernel-headers"], []),
        *(
            pytest.param(
                oracle(release),
                release,
                ["kernel-uek-devel", "kernel-headers"],
                [],
                marks=of_uek("headers", release),
            )
            for release in (
                "5.15.0-300.163.18.el8uek.x86_64",
                "6.12.0-100.28.2.2.el9uek.aarch64",
                "6.12.0-106.55.4.2.el10uek.aarch64",
            )
        ),
        (("ol", "9"), "5.14.0-611.el9_7.x86_64", ["kernel-devel", "kernel-headers"], ["kernel-devel-matched"]),
        (("centos", "10"), "6.12.0-212.el10.x86_64", ["kernel-devel", "kernel-headers"], ["kernel-devel-matched"]),
        (("fedora", "44"), "6.19.10-300.fc44.x86_64", ["kernel-devel", "kernel-headers"], ["kernel-devel-matched"]),
        (
            ("ubuntu", "26.04"),
            "6.11.0-26-generic",
            ["linux-headers-6.11.0-26-generic"],
            ["linux-headers-generic-hwe-24.04"],
        ),
        (("sles", "16"), "6.12.0-160000.5-default", ["kernel-default-devel"], []),
        (("opensuse-leap", "16"), "6.12.0-160000.5-default", ["kernel-default-devel"], []),
        (("opensuse-leap", "15"), "6.4.0-150600.23.25-default", ["kernel-default-devel"], []),
        (("rhel", "9"), "5.14.0-687.el9.x86_64", ["kernel-devel", "kernel-headers"], ["kernel-devel-matched"]),
        (("rhel", "10"), "6.12.0-55.el10_0.aarch64", ["kernel-devel", "kernel-headers"], ["kernel-devel-matched"]),
        (
            ("rhel", "9"),
            "5.14.0-687.el9.aarch64+64k",
            ["kernel-64k-devel", "kernel-headers"],
            ["kernel-64k-devel-matched"],
        ),
        (("amzn", "2023"), "6.1.112-122.189.amzn2023.x86_64", ["kernel-devel", "kernel-headers"], []),
        (("amzn", "2023"), "6.12.20-23.97.amzn2023.x86_64", ["kernel6.12-devel"], []),
        (("sles", "15"), "6.4.0-150600.23.25-default", ["kernel-default-devel"], []),
        (("sles", "15"), "6.4.0-150600.8.17-azure", ["kernel-azure-devel"], []),
        (("sles", "15"), "6.4.0-150600.23.25-64kb", ["kernel-64kb-devel"], []),
    ],
)
def test_what_modules_are_built_with_now_and_later(distribution, release, now, later):
    kernels = DISTRIBUTIONS[distribution].kernels
    assert [item.name for item in headers(kernels, release)] == now
    found = later_headers(kernels, release, ("linux-image-virtual-hwe-24.04",))
    assert (None if found is None else [item.name for item in found]) == later


@pytest.mark.parametrize(
    ("distribution", "release", "version"),
    [
        (("rhel", "9"), "5.14.0-687.el9.x86_64", "5.14.0-687.el9"),
        (("rhel", "9"), "5.14.0-687.el9.aarch64+64k", "5.14.0-687.el9"),
        (("amzn", "2023"), "6.12.20-23.97.amzn2023.x86_64", "6.12.20-23.97.amzn2023"),
        (("sles", "15"), "6.4.0-150600.23.25-default", "6.4.0-150600.23.25"),
    ],
)
def test_the_headers_of_rpm_systems_are_those_of_the_kernels_version(distribution, release, version):
    (first, *_others) = headers(DISTRIBUTIONS[distribution].kernels, release)
    assert first == Headers(first.name, version)


@pytest.mark.parametrize(
    ("release", "warned"),
    [
        *(
            pytest.param(release, True, marks=of_uek("compiler", release, "not confirmed, and the plan says so"))
            for release in ("5.4.17-2136.330.7.el8uek.x86_64", "5.15.0-321.202.5.1.el9uek.x86_64")
        ),
        ("5.15.0-300.163.18.el8uek.x86_64", False),
        ("6.12.0-100.28.2.2.el9uek.aarch64", False),
        ("6.12.0-106.55.4.2.el10uek.x86_64", False),
        ("5.14.0-611.el9_7.x86_64", False),
    ],
)
def test_a_kernel_whose_compiler_is_not_confirmed_is_warned_of(release, warned):
    names = ("nvidia-driver-cuda", "kmod-nvidia-open-dkms")
    offered = tuple(Package(name, f"3:{VERSION}-1.el9") for name in names)
    plan = plan_present(host(oracle(release), release, headers=True), DesiredDriver(), Repositories(True, offered))
    assert any("gcc-toolset" in note for note in plan.plan.warnings) is warned


@pytest.mark.parametrize(
    ("release", "compiler"),
    [
        *(
            pytest.param(release, compiler, marks=of_uek("compiler", release, compiler or "the system's"))
            for release, compiler in (
                ("5.15.0-300.163.18.el8uek.x86_64", "gcc-toolset-11"),
                ("6.12.0-100.28.2.2.el9uek.aarch64", "gcc-toolset-14"),
                ("6.12.0-106.55.4.2.el10uek.x86_64", ""),
            )
        ),
        ("5.15.0-321.202.5.1.el9uek.x86_64", ""),
        ("5.14.0-611.el9_7.x86_64", ""),
    ],
)
def test_dkms_gets_the_compiler_of_the_kernel_before_it_builds(release, compiler, tmp_path):
    names = ("nvidia-driver-cuda", "kmod-nvidia-open-dkms")
    offered = tuple(Package(name, f"3:{VERSION}-1.el9") for name in names)
    on = host(oracle(release), release, headers=True)
    steps = plan_present(on, DesiredDriver(), Repositories(True, offered)).plan.steps
    kinds = [step.kind for step in steps]
    written = [step for step in steps if step.kind is Kind.CREATE_FILE]
    assert [step.target for step in written] == ([TOOLCHAIN_ENVIRONMENT, TOOLCHAIN_FILE] if compiler else [])
    assert not compiler or kinds.index(Kind.CREATE_FILE) < kinds.index(Kind.INSTALL_DRIVER)
    assert all(compiler in step.why and "dkms 3.3.0" in step.why for step in written)
    for version in ("3.3.0-1.el9", "1:3.10.2-1.el9"):
        assert plan_present(on, DesiredDriver(), Repositories(True, offered, dkms=version)).plan.steps == steps
    older = Repositories(True, offered, dkms="3.2.2-1.el9")
    if compiler:
        with pytest.raises(Refused, match=rf"dkms: it is 3\.2\.2-1\.el9.*{compiler}.*Install dkms 3\.3\.0"):
            plan_present(on, DesiredDriver(), older)
    else:
        assert plan_present(on, DesiredDriver(), older).plan.steps == steps
    for toolset in ("gcc-toolset-11", "gcc-toolset-14"):
        folder = tmp_path / toolset
        folder.mkdir()
        (folder / "enable").write_text(f"export PATH={folder}:$PATH\n")
    texts = {path: text.replace("/opt/rh", str(tmp_path)) for path, text in toolchain_texts(on).items()}
    (tmp_path / "environment").write_text(texts[TOOLCHAIN_ENVIRONMENT])
    # As dkms 3.3 does it in prepare_build, with what it reads of its configuration.
    script = (
        f"kernelver={release}; {texts[TOOLCHAIN_FILE].replace(TOOLCHAIN_ENVIRONMENT, str(tmp_path / 'environment'))}"
        '[[ -f "$build_environment" ]] && source <( (source "$build_environment" &>/dev/null; export -p) ); echo "$PATH"'
    )
    ran = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    first = ran.stdout.split(":")[0]
    assert first.endswith(compiler) and ("gcc-toolset" in ran.stdout) is bool(compiler)


def test_another_kernels_headers_are_not_taken():
    on = host(("sles", "15"), "6.4.0-150600.23.2-default")
    other, own = (Package("kernel-default-devel", f"6.4.0-150600.23.{minor}") for minor in ("25.1", "2.1"))
    assert lacking(on, [on.kernel], [other, own]) == (own,)
    with pytest.raises(Refused, match="do not offer its headers"):
        lacking(on, [on.kernel], [other])


def test_the_next_kernels_headers_are_a_step_and_their_lack_a_warning():
    on = host(("debian", "12"), "6.1.0-50-amd64", headers=True)
    assert header_names(on, [on.kernel]) == ("linux-headers-amd64",)
    metapackage = Package("linux-headers-amd64", "6.1.176-1")
    assert lacking(on, [on.kernel], [metapackage]) == (Package("linux-headers-amd64"),)
    assert later_warnings(on, [metapackage]) == []
    assert "do not offer linux-headers-amd64" in later_warnings(on, [])[0]
    assert "is not known" in later_warnings(replace(on, kernel="6.6.1-mine"), [])[0]
    there = replace(on, kernel_packages=("linux-headers-amd64",))
    assert (header_names(there, [on.kernel]), later_warnings(there, [])) == ((), [])


def settled(*kernel_packages):
    packages = dict.fromkeys(("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libcuda1"), f"{VERSION}-1")
    return {
        "host": {
            "kernel": "6.1.0-50-amd64",
            "architecture": "x86_64",
            "distribution": {"id": "debian", "version": "12"},
            "kernel_headers": True,
            "kernel_packages": list(kernel_packages),
        },
        "pci": [{"address": "0", "device_id": "0x2330", "kind": "gpu", "architecture": "hopper"}],
        "driver": {
            **dict.fromkeys(("loaded_version", "on_disk_version", "library_version"), VERSION),
            "flavour": "open",
            "source": "nvidia",
            "packages": packages,
            "holds": list(packages),
            "persistence_daemon": {"installed": True, "active": True},
        },
    }


def test_the_plan_from_facts_says_so_too():
    (step,) = stage(settled(), {}).steps
    assert (step.kind.key, step.data["packages"]) == ("install_prerequisites", [["linux-headers-amd64", ""]])
    assert not step.disturbs
    assert not stage(settled("linux-headers-amd64"), {}).needed
    ubuntu = settled()
    ubuntu["host"] = {
        **ubuntu["host"],
        "distribution": {"id": "ubuntu", "version": "24.04"},
        "kernel": "6.8.0-40-generic",
    }
    ubuntu["driver"] = {}
    assert stage(ubuntu, {"nvidia_driver_source": "distribution"}).refusals[0].thing == "the kernel"


def test_what_was_not_offered_is_no_step_again_until_the_kernel_changes():
    given = settled()
    given["host"]["headers_not_offered"] = ["linux-headers-amd64"]
    plan = stage(given, {})
    assert (plan.needed, plan.steps) == (False, ())
    assert "do not offer linux-headers-amd64" in " ".join(plan.warnings)
    # The module asks the repositories anew whatever is recorded.
    on = host(("debian", "12"), "6.1.0-50-amd64", headers=True, not_offered=("linux-headers-amd64",))
    assert lacking(on, [on.kernel], [Package("linux-headers-amd64", "6.1.176-1")]) == (Package("linux-headers-amd64"),)


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("linux-image-generic-hwe-24.04", True),
        ("linux-image-amd64", True),
        ("linux-headers-amd64", True),
        ("kernel-devel-matched", True),
        ("kernel6.12-devel", True),
        ("kernel-default-devel", True),
        ("linux-image-6.8.0-40-generic", False),
        ("linux-image-unsigned-6.8.0-40-generic", False),
        ("linux-headers-6.1.0-50-common", False),
        ("kernel-core", False),
    ],
)
def test_packages_of_kernels(name, yes):
    assert is_kernel_package(name) is yes


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("linux-image-nvidia-64k", False),
        ("linux-modules-6.8.0-1021-nvidia-64k", False),
        ("linux-headers-nvidia-64k", False),
        ("linux-modules-nvidia-580-server-open-nvidia-64k", True),
        ("linux-objects-nvidia-580-server-6.8.0-40-generic", True),
    ],
)
def test_nvidias_kernel_is_no_package_of_the_driver(name, yes):
    assert in_family(name) is yes


NO_HEADERS = {"kernel_headers": False, "headers_not_offered": ["linux-headers-6.1.0-50-amd64"]}
BUILD = {"name": "nvidia", "version": VERSION, "kernel": None, "state": "added"}


@pytest.mark.parametrize("change", [{"on_disk_version": None}, {"packages": {}}])
def test_headers_that_nobody_offers_are_refused_in_the_plan_in_the_words_of_the_module(change):
    given = settled("linux-headers-amd64")
    given["driver"].update(change, dkms=[BUILD])
    # A kernel without headers is nobody's concern while it has its module.
    assert not stage({**given, "host": {**given["host"], "kernel_headers": False}}, {}).refusals
    given["host"].update(NO_HEADERS)
    (refusal,) = stage(given, {}).refusals
    on = host(("debian", "12"), "6.1.0-50-amd64")
    with pytest.raises(Refused, match=r"do not offer its headers \(linux-headers-6.1.0-50-amd64\)") as by_module:
        lacking(on, [on.kernel], [])
    assert refusal.message == by_module.value.message
    given["driver"].update(on_disk_version=VERSION, packages=settled()["driver"]["packages"])
    assert not stage(given, {}).needed


def test_headers_of_the_next_kernel_that_nobody_offers_are_refused_too():
    given = settled("linux-headers-amd64")
    given["driver"].update(dkms=[BUILD], next_kernel={"release": "6.1.0-51-amd64", "version": None, "headers": False})
    assert [step.kind.key for step in stage(given, {}).steps] == ["install_prerequisites", "build_module"]
    given["host"]["headers_not_offered"] = ["linux-headers-6.1.0-51-amd64"]
    (refusal,) = stage(given, {}).refusals
    assert "6.1.0-51-amd64 is booted next and has no module" in refusal.reason


@pytest.mark.parametrize(
    ("driver", "steps", "warned"),
    [
        ({}, [], True),
        # DKMS has its source: it may build it as ever.
        ({"dkms": [BUILD]}, [], True),
        # Another driver is loaded than the packages are of, which a reload shows.
        ({"loaded_version": "580.126.09"}, ["reload_driver"], True),
    ],
)
def test_a_module_that_is_loaded_and_cannot_be_read_on_the_disk_is_not_missing(driver, steps, warned):
    given = settled("linux-headers-amd64")
    given["driver"].update({"on_disk_version": None, "on_disk_unread": True, "dkms": [], **driver})
    plan = stage(given, {})
    assert ([step.kind.key for step in plan.steps], plan.refusals) == (steps, ())
    assert ("cannot be read: it may be missing after a reboot" in " ".join(plan.warnings)) is warned
    # What is known to be missing is refused, as before.
    given["driver"].update(on_disk_unread=False, dkms=[])
    assert stage(given, {}).refusals[0].thing == "driver"
