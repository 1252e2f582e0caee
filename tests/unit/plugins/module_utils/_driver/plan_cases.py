# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts, and what repositories offer, for the tests of plans."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.plan import Repositories
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import card

OLD, NEW = "580.126.09", "580.178.04"


H100 = card("0000:18:00.0", "0x2330", "hopper", "h100-80gb-sxm")


V100 = card("0000:19:00.0", "0x1db1", "volta")


B200 = card("0000:1a:00.0", "0x2901", "blackwell", "b200")


RTX_PRO_6000 = card("0000:1c:00.0", "0x2bb5", "blackwell", "rtx-pro-6000-96gb")


GH200 = card("0000:1b:00.0", "0x2342", "hopper")


KERNEL = "6.1.0-50-amd64"


BARE = Host(DISTRIBUTIONS["debian", "12"], "x86_64", KERNEL, (H100,), headers=True)


def closure(version):
    full = f"{version}-1"
    return dict.fromkeys(("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libcuda1", "firmware-nvidia-gsp"), full)


def installed(version=NEW, **changed):
    packages = closure(version)
    base = replace(
        BARE,
        packages=packages,
        holds=tuple(packages),
        loaded=version,
        on_disk=version,
        library=version,
        flavour="open",
        source="nvidia",
        persistence_installed=True,
        persistence_active=True,
    )
    return replace(base, **changed)


def offers(*versions, extra=()):
    found = [Package(name, full) for version in versions for name, full in closure(version).items()]
    return Repositories(True, (*found, *extra))


def kinds(plan):
    return [step.kind.key for step in plan.plan.steps]
