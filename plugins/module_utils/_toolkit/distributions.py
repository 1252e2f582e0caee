# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's repositories of the container toolkit, as data. They are the same for all distributions of a package manager, on every machine
that the toolkit is built for: which distributions there are is in the driver's table.

Source: the install guide of the container toolkit (host.md, section 7.1); the fingerprint is that of the key file which
NVIDIA publishes with the repositories, seen alike in several independent public configurations [secondary].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._distributions.distributions import find
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


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class ToolkitDistribution:
    """How a distribution gets the toolkit.

    :param manager: C(apt), C(dnf) or C(zypper).
    """

    manager: str

    def url(self, machine: str, mirror: str = "") -> str:
        """Return the repository for C(machine), as C(uname -m) names it.

        :param mirror: of NVIDIA's C(stable/deb) or C(stable/rpm), which has a directory for each architecture.
        :raises Refused: there is none for it.
        """
        if machine not in _ARCHITECTURES:
            raise Refused(
                "the machine", f"there is no container toolkit for {machine}", "Supported are x86_64 and aarch64."
            )
        if self.manager == "apt":
            return f"{mirror.rstrip('/') or f'{BASE}/stable/deb'}/{_ARCHITECTURES[machine]}"
        return f"{mirror.rstrip('/') or f'{BASE}/stable/rpm'}/{machine}"


def distribution_of(facts: Mapping[str, Any]) -> ToolkitDistribution:
    """Return how the distribution C(host.distribution) of the facts gets the toolkit.

    :raises Refused: it is not supported.
    """
    return ToolkitDistribution(find(facts).manager)
