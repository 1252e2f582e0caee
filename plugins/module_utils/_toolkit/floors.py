# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The toolkit's security floor.

Source: NVIDIA's security bulletins (github.com/NVIDIA/product-security). Where the documentation and a bulletin differ
(CVE-2024-0135 to -0137), the bulletin counts; either way the floor is set by the newest entry.
"""

from __future__ import annotations

from dataclasses import dataclass

from .._plan import Refused
from .._versions import product_key

DEFAULT_VERSION = "1.20.0"


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


def vulnerabilities_of(version: str) -> tuple[Vulnerability, ...]:
    """Return the published vulnerabilities that C(version) has.

    :raises ValueError: as L(product_key).
    """
    key = product_key(version)
    return tuple(entry for entry in VULNERABILITIES if key < product_key(entry.fixed))


def check_floor(version: str, allow_vulnerable: bool) -> str | None:
    """Return a warning when C(version) is below the floor and that is allowed; None when it is not below.

    :raises Refused: it is below the floor, or no version.
    """
    try:
        found = vulnerabilities_of(version)
    except ValueError as error:
        raise Refused(
            "nvidia_toolkit_version",
            f"{version!r} is not a version of the container toolkit",
            f"Use a version such as {DEFAULT_VERSION}, without the package's revision.",
        ) from error
    if not found:
        return None
    listed = "; ".join(str(entry) for entry in found)
    if not allow_vulnerable:
        raise Refused(
            "nvidia_toolkit_version",
            f"{version} is below the security floor {FLOOR}: containers can break out or read the host, {listed}",
            f"Use {DEFAULT_VERSION}, or set nvidia_toolkit_allow_vulnerable to true to accept that risk.",
        )
    return f"VULNERABLE container toolkit {version}, below the floor {FLOOR}: {listed}"
