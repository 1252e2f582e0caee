# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a new host has on its disk: its boards, its kernel's headers and, where the specification says so, a driver."""

from __future__ import annotations

import platform
from pathlib import Path

from .paths import REPOSITORY_IN_HOST
from .spec import HostSpec

_INSTALLED_BRANCH = "580"


def before_first_boot(spec: HostSpec, repository: Path) -> list[list[str]]:
    """The programs to run in the host's root before it is switched on, in order."""
    commands: list[list[str]] = [["depmod", platform.release()]]
    if spec.headers:
        commands.extend(
            ["dpkg", "--install", f"{REPOSITORY_IN_HOST}/kernel/{path.name}"]
            for path in sorted((repository / "kernel").glob(f"linux-headers-{platform.release()}_*.deb"))
        )
    if spec.boards:
        commands.append(hardware_command(spec))
    return commands


def after_first_boot(spec: HostSpec, repository: Path) -> list[list[str]]:
    """The programs to run in the host once it is up for the first time, in order."""
    if spec.driver == "none":
        return []
    keyring = next(iter(sorted((repository / "compute/cuda/repos").glob("*/*/cuda-keyring_*.deb"))))
    apt = ["apt-get", "--yes", "--no-install-recommends", "install"]
    fabric: list[list[str]] = []
    if spec.nvswitch:
        # Without it CUDA does not start on boards behind NVSwitches. Its version has to be the driver's.
        fabric = [[*apt, "nvidia-fabricmanager"], ["systemctl", "enable", "--now", "nvidia-fabricmanager.service"]]
    return [
        ["dpkg", "--install", f"{REPOSITORY_IN_HOST}/{keyring.relative_to(repository)}"],
        ["apt-get", "update"],
        # In a transaction of its own: the pin has to be there before apt chooses versions.
        [*apt, f"nvidia-driver-pinning-{_INSTALLED_BRANCH}"],
        [*apt, "nvidia-driver-cuda", "nvidia-kernel-open-dkms"],
        ["systemctl", "restart", "lab-load-drivers.service"],
        ["systemctl", "restart", "nvidia-persistenced.service"],
        *fabric,
    ]


def hardware_command(spec: HostSpec) -> list[str]:
    """The call of virtual-gpu that puts the boards of C(spec) into the host."""
    command = ["virtual-gpu", "create", "--seed", spec.name]
    for boards in spec.boards:
        command += ["--board", boards.board, "--count", str(boards.count)]
    if spec.nvswitch:
        command += ["--nvswitch", str(spec.nvswitch)]
    return command
