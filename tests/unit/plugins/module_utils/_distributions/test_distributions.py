# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of distributions: a row is all that one needs, and what no source says is asked for or refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions import distributions
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import (
    DISTRIBUTIONS,
    distribution_of,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import (
    ARCHIVES,
    COMPUTE,
    OPEN,
    PROPRIETARY,
    archive_for,
    fill,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.plan import Repositories, plan_present
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import from_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import PACKAGE_MANAGERS, parse_os_release
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import DesiredRepository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.apply import ToolkitSystem
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import DesiredToolkit
from ansible_collections.gpufleet.nvidia.tests.resolver import stand_ins
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document

stage = by_document(stage_of_facts)

VERSION = "580.178.04"
FINGERPRINT = "0123456789ABCDEF0123456789ABCDEF01234567"


def facts(identifier, version, kernel="5.14.0-687.el9.x86_64"):
    return {
        "host": {
            "kernel": kernel,
            "architecture": "x86_64",
            "kernel_headers": True,
            "distribution": {"id": identifier, "version": version},
        },
        "pci": [{"kind": "gpu", "address": "0000:18:00.0", "device_id": "0x2330", "architecture": "hopper"}],
    }


def toolkit(identifier, version):
    return ToolkitSystem(None, object(), {"ID": identifier, "VERSION_ID": version})


def test_one_row_adds_a_distribution_for_the_driver_and_the_toolkit(monkeypatch):
    with pytest.raises(Refused, match=r"miracle 9\.6 is not supported"):
        from_facts(view_of(facts("miracle", "9.6")))
    row = replace(DISTRIBUTIONS["rocky", "9"], name="Miracle Linux 9")
    monkeypatch.setitem(DISTRIBUTIONS, ("miracle", "9"), row)
    host = from_facts(view_of(facts("miracle", "9.6")))
    offered = (
        Package("nvidia-driver-cuda", f"3:{VERSION}-1.el9"),
        Package("kmod-nvidia-open-dkms", f"3:{VERSION}-1.el9"),
    )
    plan = plan_present(host, DesiredDriver(), Repositories(True, offered, streams=("580-open",)))
    assert plan.version == VERSION
    assert [step.kind for step in plan.plan.steps] == [
        Kind.ENABLE_MODULE_STREAM,
        Kind.INSTALL_DRIVER,
        Kind.HOLD_DRIVER,
    ]
    assert not stage(facts("miracle", "9.6"), {}).refusals
    assert "/stable/rpm/" in toolkit("miracle", "9.6").url(DesiredToolkit())
    # The facts take the family from ID_LIKE, as every rebuild has it.
    assert parse_os_release('ID=miracle\nID_LIKE="rhel fedora"\nVERSION_ID=9.6\n')["family"] == "redhat"


@pytest.mark.proves("driver", "nvidia", by="distribution", note="repository, key and names")
@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids="-".join)
def test_a_row_names_what_there_is(distribution):
    row = DISTRIBUTIONS[distribution]
    assert ("nvidia", row.names) in ARCHIVES
    assert row.archive is None or ("distribution", row.archive) in ARCHIVES
    assert row.manager in ("apt", "dnf", "zypper")
    assert re.fullmatch(r"[a-z]+\d+", row.repository)
    assert set(row.machines) <= set(distributions.REPOSITORY_ARCHITECTURES)
    assert re.fullmatch(r"([0-9A-F]{40})?", row.key.fingerprint)
    # A key file is called by the end of its fingerprint.
    assert not row.key.fingerprint or row.key.fingerprint.endswith(row.key.file[:-4].upper())


@pytest.mark.parametrize(
    ("distribution", "repository", "key", "is_known", "pinning"),
    [
        (("ubuntu", "26.04"), "ubuntu2604", "", False, "apt_pin"),
        (("centos", "9"), "rhel9", "D42D0685.pub", True, "module_stream"),
        (("centos", "10"), "rhel10", "CDF6BA43.pub", True, "version_lock"),
        (("ol", "8"), "rhel8", "D42D0685.pub", True, "module_stream"),
        (("ol", "9"), "rhel9", "D42D0685.pub", True, "module_stream"),
        (("ol", "10"), "rhel10", "CDF6BA43.pub", True, "version_lock"),
        (("fedora", "43"), "fedora43", "1940C73E.pub", False, "version_lock"),
        (("fedora", "44"), "fedora44", "73CD9B30.pub", True, "version_lock"),
        (("sles", "16"), "suse16", "3A8B5622.pub", False, "zypper_lock"),
        (("opensuse-leap", "15"), "opensuse15", "D42D0685.pub", True, "zypper_lock"),
        (("opensuse-leap", "16"), "suse16", "3A8B5622.pub", False, "zypper_lock"),
    ],
    ids=lambda part: "-".join(part) if isinstance(part, tuple) else None,
)
def test_where_packages_come_from_and_how_they_are_kept(distribution, repository, key, is_known, pinning):
    """As NVIDIA's installation guides 610 to 620 have it; RHEL 10, and with it its rebuilds, has no module streams."""
    row = DISTRIBUTIONS[distribution]
    assert (row.repository, row.key.file, row.key.is_known, row.pinning) == (repository, key, is_known, pinning)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids="-".join)
def test_the_facts_know_the_package_manager_of_every_row(distribution):
    """By the ID alone: Fedora, for one, is like no other distribution."""
    family = parse_os_release("ID={}\nVERSION_ID={}\n".format(*distribution))["family"]
    assert PACKAGE_MANAGERS[family] == DISTRIBUTIONS[distribution].manager


@pytest.mark.parametrize("branch", [615, 620])
@pytest.mark.parametrize("names", sorted({row.names for row in DISTRIBUTIONS.values()}))
def test_the_newest_branches_have_packages_everywhere(names, branch):
    assert archive_for("nvidia", names, branch) is archive_for("nvidia", names, 590)


@pytest.mark.proves(
    "driver", "nvidia", rows=["sles-16", "opensuse-leap-16", "fedora-43", "ubuntu-26.04"], note="with the key given"
)
@pytest.mark.parametrize(
    ("identifier", "version", "kernel"),
    [
        ("sles", "16.0", "6.12.0-160000.5-default"),
        ("opensuse-leap", "16.0", "6.12.0-160000.5-default"),
        ("fedora", "43", "6.17.10-300.fc43.x86_64"),
        ("ubuntu", "26.04", "7.0.0-10-generic"),
    ],
)
def test_a_key_that_no_two_sources_confirm_has_to_be_given(identifier, version, kernel):
    given = facts(identifier, version, kernel)
    # The full variant, whose packages are called alike everywhere and follow no kernel.
    variables = {"nvidia_driver_variant": "full", "nvidia_driver_flavour": "open"}
    (refusal,) = stage(given, variables).refusals
    assert refusal.thing == "nvidia_driver_repository_key_fingerprint"
    assert "no two sources confirm the fingerprint" in refusal.reason
    known = {**variables, "nvidia_driver_repository_key_fingerprint": FINGERPRINT}
    if identifier == "ubuntu":
        assert "and nvidia_driver_repository_key_url" in refusal.remedy
        assert stage(given, known).refusals
        known["nvidia_driver_repository_key_url"] = "https://mirror.example.com/key.pub"
    assert not stage(given, known).refusals
    assert not stage(given, {**variables, "nvidia_driver_manage_repository": False}).refusals
    host = from_facts(view_of(given))
    with pytest.raises(Refused, match="no two sources"):
        plan_present(host, DesiredDriver(variant="full"), Repositories(False))
    mirror = DesiredRepository("https://mirror.example.com/r", "https://mirror.example.com/k", "", FINGERPRINT)
    assert plan_present(host, DesiredDriver(variant="full", repository=mirror), Repositories(False)).unknown


@pytest.mark.proves("driver", "distribution", rows=["ubuntu-26.04"], note="precompiled modules")
def test_ubuntus_own_archive_needs_no_key_of_nvidias():
    given = facts("ubuntu", "26.04", "7.0.0-10-generic")
    given["host"]["kernel_packages"] = ["linux-image-generic"]
    assert not stage(given, {"nvidia_driver_source": "distribution"}).refusals


@pytest.mark.proves("unconfirmed", "", rows=["azurelinux-3", "azurelinux-4"], level="refused")
@pytest.mark.parametrize(("version", "missing"), [("3.0", "tdnf"), ("4.0", "no source was found for the name")])
def test_what_lacks_more_than_a_key_is_refused_with_what_is_missing(version, missing):
    described = {"id": "azurelinux", "version": version}
    with pytest.raises(Refused, match=missing) as caught:
        distribution_of(view_of({"host": {"distribution": described, "architecture": "x86_64"}}).host)
    assert "nvidia_driver_state: unmanaged" in caught.value.remedy
    with pytest.raises(Refused, match=missing):
        toolkit("azurelinux", version)


def test_no_distribution_is_both_supported_and_not():
    assert not set(distributions.UNCONFIRMED) & set(DISTRIBUTIONS)


MAKERS = {
    "debian": stand_ins.nvidia_debian,
    "ubuntu": stand_ins.nvidia_ubuntu,
    "redhat": stand_ins.nvidia_red_hat,
    "suse": stand_ins.nvidia_suse,
}


@pytest.mark.parametrize("version", [stand_ins.LATER, stand_ins.NEXT, stand_ins.NEWEST])
@pytest.mark.parametrize("names", MAKERS)
def test_the_generated_repositories_have_what_the_table_names(names, version):
    """Package managers prove nothing from repositories that were made in another belief than the plan."""
    branch, there = int(version[:3]), {package.name for package in MAKERS[names](version)}
    archive = archive_for("nvidia", names, branch)
    for flavour in (OPEN, PROPRIETARY):
        wanted = fill(archive.names[flavour, COMPUTE].required, branch=branch, flavours=("default",))
        assert set(wanted) <= there
    assert set(fill(archive.fabric_manager, branch=branch)) & there


def test_the_generated_repository_of_suse_is_made_of_the_table(monkeypatch):
    """SUSE's names follow no rule that could be guessed: a change of the table is a change of the repository."""
    archive = archive_for("nvidia", "suse", 595)
    names = {key: replace(found, required=("renamed", *found.required[1:])) for key, found in archive.names.items()}
    monkeypatch.setitem(ARCHIVES, ("nvidia", "suse"), (replace(archive, names=names),))
    assert "renamed" in {package.name for package in stand_ins.nvidia_suse(stand_ins.NEXT)}
