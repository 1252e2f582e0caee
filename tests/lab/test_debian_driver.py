# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's own NVIDIA packages in a lab host: the real archive, the real sources, real kernel headers, a real build."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.dkms

HOST = "debian-1"
INSTALL = "apt-get -q --yes --no-install-recommends install"


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., object]) -> object:
    # Without the stand-in headers of the running kernel: the build is for Debian's own kernel.
    lab = make_lab("pytest-debian", {"name": HOST, "headers": False, "boards": [{"board": "t4", "count": 1}]})
    lab.sh(HOST, f"apt-get -q update && {INSTALL} linux-headers-amd64 nvidia-kernel-dkms nvidia-smi libnvidia-ml1")
    return lab


@pytest.fixture(scope="module")
def kernel(lab) -> str:
    """The newest Debian kernel that there are headers for."""
    return lab.sh(HOST, "basename $(ls -d /lib/modules/*-amd64 | sort -V | tail -1)").strip()


def test_without_headers_of_the_running_kernel_the_packages_install_and_nothing_is_built(lab) -> None:
    status = lab.sh(HOST, "dkms status")
    assert status.startswith("nvidia-current/535.")
    assert status.strip().endswith(": added")


def test_the_driver_is_below_no_floor_of_its_branch(lab) -> None:
    assert lab.sh(HOST, "dpkg-query -f '${Version}' -W nvidia-kernel-dkms").startswith("535.309.01-")


def test_the_real_nvidia_smi_says_that_no_driver_is_loaded(lab) -> None:
    done = lab.run("exec", HOST, "--", "nvidia-smi", check=False)
    assert done.returncode == 9
    assert done.stdout.startswith("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver")


def test_dkms_builds_the_real_modules_for_debians_kernel(lab, kernel: str) -> None:
    version = lab.sh(HOST, "dkms status | sed -E 's#^nvidia-current/([0-9.]+).*#\\1#' | head -1").strip()
    lab.sh(HOST, f"dkms install -m nvidia-current -v {version} -k {kernel}")
    assert f"{kernel}, x86_64: installed" in lab.sh(HOST, "dkms status")
    assert lab.sh(HOST, f"modinfo -k {kernel} -F version nvidia-current").strip() == version
    size = int(lab.sh(HOST, f"stat -c %s $(modinfo -k {kernel} -F filename nvidia-current)"))
    assert size > 10_000_000, "an empty module file is a failed build"
