# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done to a new host's disk before it is switched on for the first time: its boards, its kernel's files."""

from __future__ import annotations

import platform
from pathlib import Path

from .spec import HostSpec


def first_boot_commands(spec: HostSpec, layer: Path) -> list[list[str]]:
    """The programs to run in the host's root, in order."""
    commands: list[list[str]] = []
    if not spec.headers:
        commands.append(["dpkg", "--purge", f"linux-headers-{platform.release()}"])
    if spec.boards and (layer / "usr/bin/virtual-gpu").exists():
        commands.append(hardware_command(spec))
    return commands


def hardware_command(spec: HostSpec) -> list[str]:
    """The call of virtual-gpu that puts the boards of C(spec) into the host."""
    command = ["virtual-gpu", "create"]
    for boards in spec.boards:
        command += ["--board", boards.board, "--count", str(boards.count)]
    if spec.nvswitch:
        command += ["--nvswitch", str(spec.nvswitch)]
    return command
