# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DCGM's packages: for which hosts there are some, what they are called, and what is refused."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.packages import (
    DEFAULT_VERSION,
    REPOSITORIES,
    check_boards,
    check_host,
    check_version,
    cuda_of_branch,
    names,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.floors import FLOORS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import CardFacts, DistributionFacts, HostFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused

#: What a maintainer of NVIDIA's lists, NVIDIA/cuda-repo-management issue 41, without azl3, which the collection does not support.
NVIDIAS_LIST = {"amzn2023", "debian12", "rhel8", "rhel9", "rhel10", "sles15", "ubuntu2204", "ubuntu2404"}


def host(name, version, machine="x86_64"):
    return HostFacts(distribution=DistributionFacts(name, version), architecture=machine)


def test_the_repositories_are_those_of_nvidias_list():
    assert set(REPOSITORIES) == NVIDIAS_LIST


@pytest.mark.parametrize(("key", "row"), DISTRIBUTIONS.items(), ids=["-".join(key) for key in DISTRIBUTIONS])
def test_every_supported_distribution_has_dcgm_or_is_refused(key, row):
    if row.repository in NVIDIAS_LIST:
        check_host(host(*key))
        return
    with pytest.raises(Refused, match=f"{row.repository} is not among those") as refused:
        check_host(host(*key))
    assert "nvidia_dcgm_state: unmanaged" in refused.value.remedy and refused.value.thing == "nvidia_dcgm_state"


def test_arm_needs_a_source_of_its_own():
    check_host(host("ubuntu", "24.04", "aarch64"))
    with pytest.raises(Refused, match="Debian 12 on aarch64"):
        check_host(host("debian", "12", "aarch64"))
    with pytest.raises(Refused, match="arch 1 is not supported"):
        check_host(host("arch", "1"))


def test_names_are_those_of_azures_images():
    """azhpc-images, components/install_dcgm.sh."""
    assert set(names(["13"])) == {
        "datacenter-gpu-manager-4-core",
        "datacenter-gpu-manager-4-cuda13",
        "datacenter-gpu-manager-4-proprietary",
        "datacenter-gpu-manager-4-proprietary-cuda13",
    }
    assert len(names(["12", "13"])) == 6


@pytest.mark.parametrize(
    ("branch", "cuda"), [(470, "11"), (520, "11"), (525, "12"), (575, "12"), (580, "13"), (620, "13")]
)
def test_a_driver_branch_brings_a_cuda(branch, cuda):
    assert cuda_of_branch(branch) == cuda


def test_every_branch_with_a_security_floor_has_one():
    assert {cuda_of_branch(branch) for branch in FLOORS} == {"13"}


@pytest.mark.parametrize("branch", [440, 625])
def test_the_cuda_of_another_branch_is_not_guessed(branch):
    with pytest.raises(Refused, match=f"branch {branch}") as refused:
        cuda_of_branch(branch)
    assert "nvidia_dcgm_cuda: ['13']" in refused.value.remedy


def test_boards_that_cuda_13_left_behind():
    volta = [CardFacts("0000:18:00.0", architecture=name) for name in ("volta", None)]
    with pytest.raises(Refused, match="CUDA 13 has no volta"):
        check_boards(volta, ["13"])
    check_boards(volta, ["12"])
    check_boards([CardFacts("0000:18:00.0", architecture="hopper")], ["13"])


@pytest.mark.parametrize("version", ["4.6", "3.3.9", "4.6.0-1", "4.6.0\n", "latest", "4.99999.0", ""])
def test_what_is_no_version_of_dcgm_4(version):
    with pytest.raises(Refused, match="is not a version of DCGM 4"):
        check_version(version, True)


def test_the_security_floor():
    assert (
        check_version(DEFAULT_VERSION, False) == check_version("4.5.3", False) == check_version("4.10.0", False) == ""
    )
    with pytest.raises(Refused, match=r"4\.5\.2 is below the security floor 4\.5\.3: CVE-2026-47483"):
        check_version("4.5.2", False)
    assert "VULNERABLE DCGM 4.5.2" in check_version("4.5.2", True)
