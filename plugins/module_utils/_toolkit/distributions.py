# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's repositories of the container toolkit, as data. They are the same for all releases of a distribution.

Source: the install guide of the container toolkit (host.md, section 7.1); the fingerprint is that of the key file which
NVIDIA publishes with the repositories, seen alike in several independent public configurations [secondary].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._plan import Refused

BASE = "https://nvidia.github.io/libnvidia-container"
KEY_URL = f"{BASE}/gpgkey"
KEY_FINGERPRINT = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
#: The repository's name on a host: NVIDIA's own file name, so that a site's and ours never stand beside each other.
IDENTIFIER = "nvidia-container-toolkit"

#: apt source files of earlier generations; without signed-by they give "Conflicting values set for option Signed-By".
OLD_SOURCES = (
    "/etc/apt/sources.list.d/nvidia-docker.list",
    "/etc/apt/sources.list.d/libnvidia-container.list",
    "/etc/apt/sources.list.d/nvidia-container-runtime.list",
    "/etc/apt/sources.list.d/nvidia-container-toolkit.list",
)


@dataclass(frozen=True)
class ToolkitDistribution:
    """How a distribution gets the toolkit.

    :param manager: C(apt), C(dnf) or C(zypper).
    :param supported: whether NVIDIA lists it; Debian 12 and 13 "should work" and are proven by this project's tests.
    """

    manager: str
    supported: bool = True

    def url(self, machine: str, mirror: str = "") -> str:
        """Return the repository for C(machine), as C(uname -m) names it.

        :param mirror: of NVIDIA's C(stable/deb) or C(stable/rpm), which has a directory for each architecture.
        :raises Refused: there is none for it.
        """
        if machine not in _ARCHITECTURES:
            raise Refused(
                "the machine", f"there is no container toolkit for {machine}", "x86_64 and aarch64 are built."
            )
        if self.manager == "apt":
            return f"{mirror.rstrip('/') or f'{BASE}/stable/deb'}/{_ARCHITECTURES[machine]}"
        return f"{mirror.rstrip('/') or f'{BASE}/stable/rpm'}/{machine}"


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_RED_HAT = {
    (name, major): ToolkitDistribution("dnf") for name in ("rhel", "rocky", "almalinux") for major in ("8", "9", "10")
}

#: By os-release's ID and the part of VERSION_ID that decides.
DISTRIBUTIONS: Mapping[tuple[str, str], ToolkitDistribution] = {
    ("debian", "12"): ToolkitDistribution("apt", supported=False),
    ("debian", "13"): ToolkitDistribution("apt", supported=False),
    ("ubuntu", "22.04"): ToolkitDistribution("apt"),
    ("ubuntu", "24.04"): ToolkitDistribution("apt"),
    **_RED_HAT,
    ("sles", "15"): ToolkitDistribution("zypper"),
    ("amzn", "2023"): ToolkitDistribution("dnf"),
}


def distribution_of(facts: Mapping[str, Any]) -> ToolkitDistribution:
    """Return the entry for C(host.distribution) of the facts.

    :raises Refused: it is not supported.
    """
    name, version = str(facts.get("id") or "").lower(), str(facts.get("version") or "")
    for key in ((name, version), (name, version.partition(".")[0])):
        if key in DISTRIBUTIONS:
            return DISTRIBUTIONS[key]
    known = ", ".join(sorted({f"{name} {release}" for name, release in DISTRIBUTIONS}))
    raise Refused("the distribution", f"{name or 'unknown'} {version} is not supported", f"Supported are {known}.")
