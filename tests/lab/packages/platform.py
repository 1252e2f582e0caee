# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What differs between processor architectures: how Debian, NVIDIA's repositories and the linker name them."""

from __future__ import annotations

from dataclasses import dataclass

from hosts.commands import run
from hosts.progress import LabError


@dataclass(frozen=True)
class Platform:
    """Names of one architecture."""

    debian: str
    nvidia: str
    triplet: str

    @property
    def libraries(self) -> str:
        return f"/usr/lib/{self.triplet}"


_PLATFORMS = {
    "amd64": Platform("amd64", "x86_64", "x86_64-linux-gnu"),
    "arm64": Platform("arm64", "sbsa", "aarch64-linux-gnu"),
}


def this_platform() -> Platform:
    """The architecture of this machine.

    :raises LabError: NVIDIA has no packages for it.
    """
    name = run(["dpkg", "--print-architecture"]).strip()
    if name not in _PLATFORMS:
        raise LabError(f"Failed to build packages for {name}: NVIDIA has them for {', '.join(sorted(_PLATFORMS))}.")
    return _PLATFORMS[name]
