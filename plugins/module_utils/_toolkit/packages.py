# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container toolkit's packages, its repositories and its security floor, as data.

NVIDIA's repositories are the same for all distributions of a package manager, on every machine that the toolkit is built for (the toolkit's install
guide); the fingerprint is that of the key file which NVIDIA publishes with them, seen alike in several independent public configurations [secondary].
"""

from __future__ import annotations

from dataclasses import dataclass

from .._options import default
from .._packages.package_set import PackageSet
from .._plan import Refused
from .._versions import product_key

PREFIX = "nvidia_toolkit_"
DEFAULT_VERSION: str = default("container_toolkit", "version")
#: The package that stands for all four.
TOOLKIT = "nvidia-container-toolkit"
#: Since 1.18.0 the four depend on each other at exactly their own version.
PACKAGES = (TOOLKIT, "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1")
#: What earlier generations were called. They pull the toolkit at any version, or stand in its way.
OLD_PACKAGES = ("nvidia-docker", "nvidia-docker2", "nvidia-container-runtime", "nvidia-container-runtime-hook")

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


def repository_url(manager: str, machine: str, mirror: str = "") -> str:
    """Return the repository for a package manager and C(machine), as C(uname -m) names it.

    :param mirror: of NVIDIA's C(stable/deb) or C(stable/rpm), which has a directory for each architecture.
    :raises Refused: there is none for it.
    """
    if machine not in _ARCHITECTURES:
        raise Refused(
            "the machine", f"there is no container toolkit for {machine}", "Supported are x86_64 and aarch64."
        )
    kind, folder = ("deb", _ARCHITECTURES[machine]) if manager == "apt" else ("rpm", machine)
    return f"{mirror.rstrip('/') or f'{BASE}/stable/{kind}'}/{folder}"


@dataclass(frozen=True)
class Vulnerability:
    """A published vulnerability of the container toolkit.

    :param names: CVE numbers.
    :param last_affected: the newest version that has it.
    :param fixed: the first version without it.
    :param score: the highest CVSS base score of the bulletin; None where the bulletin's was not recorded.
    """

    names: tuple[str, ...]
    last_affected: str
    fixed: str
    score: float | None = None

    def __str__(self) -> str:
        score = f", CVSS {self.score}" if self.score is not None else ""
        return f"{', '.join(self.names)} (fixed in {self.fixed}{score})"


# NVIDIA's security bulletins (github.com/NVIDIA/product-security). Where the documentation and a bulletin differ (CVE-2024-0135 to -0137), the
# bulletin counts; either way the floor is set by the newest entry.
VULNERABILITIES = (
    Vulnerability(("CVE-2024-0132", "CVE-2024-0133"), "1.16.1", "1.16.2", 9.0),
    Vulnerability(("CVE-2024-0134",), "1.16.2", "1.17.0"),
    Vulnerability(("CVE-2024-0135", "CVE-2024-0136", "CVE-2024-0137"), "1.17.0", "1.17.1"),
    Vulnerability(("CVE-2025-23359",), "1.17.3", "1.17.4"),
    Vulnerability(("CVE-2025-23266", "CVE-2025-23267"), "1.17.7", "1.17.8", 9.0),
    Vulnerability(("CVE-2026-24260",), "1.19.0", "1.19.1", 8.5),
)
#: The oldest version without a published vulnerability.
FLOOR = max((vulnerability.fixed for vulnerability in VULNERABILITIES), key=product_key)
SET = PackageSet(
    TOOLKIT,
    "container toolkit",
    PREFIX,
    "unattended upgrades must not move the container toolkit",
    OLD_PACKAGES,
    DEFAULT_VERSION,
    FLOOR,
)


def vulnerabilities_of(version: str) -> tuple[Vulnerability, ...]:
    """Return the published vulnerabilities that C(version) has. Raises ValueError: as L(product_key)."""
    key = product_key(version)
    return tuple(entry for entry in VULNERABILITIES if key < product_key(entry.fixed))


def check_version(version: str, allow_vulnerable: bool) -> str:
    """Return what is known against a version that is allowed all the same; empty for nothing. Raises Refused: it is below the floor, or no version."""
    try:
        found = vulnerabilities_of(version)
    except ValueError as error:
        raise Refused(
            f"{PREFIX}version",
            f"{version!r} is not a version of the container toolkit",
            f"Use a version such as {DEFAULT_VERSION}, without the package's revision.",
        ) from error
    listed = "; ".join(map(str, found))
    risk = "containers can break out or read the host, "
    return SET.below_floor(version, listed, allow_vulnerable, risk) if found else ""
