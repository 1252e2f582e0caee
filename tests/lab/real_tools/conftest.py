# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's own tools on a virtual machine of the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "virtual_nvml")]

import install
from virtual_machine import VERSION, VirtualMachine, machine, virtual_nvml

__all__ = ["machine", "virtual_nvml"]


class Tools:
    """Run the unmodified tools where /proc, /sys and /dev are the machine's."""

    def __init__(self, machine: VirtualMachine) -> None:
        self.machine = machine

    def command(self, tool: str, *arguments: str) -> list[str]:
        """The command line; the tool is built first if it has to be, and a test without it fails with the reason."""
        try:
            program = install.install(install.TOOLS[tool])
        except install.NotInstalled as error:
            pytest.fail(str(error), pytrace=False)
        return [str(HERE / "with-machine"), str(self.machine.root), str(program), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """The machine's, with its nvidia-smi before any other."""
        return {**self.machine.environment, "PATH": f"{self.machine.build}:{os.environ['PATH']}"}

    def run(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end, without judging its status."""
        return subprocess.run(
            self.command(tool, *arguments), env=self.environment, capture_output=True, text=True, check=False
        )

    def ok(self, tool: str, *arguments: str) -> str:
        """The same; it has to succeed."""
        done = self.run(tool, *arguments)
        assert done.returncode == 0, f"{tool} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def driver_root(self) -> Path:
        """A root with the driver's libraries where packages put them; nvidia-ctk looks for them by name."""
        libraries = self.machine.root / "driver/usr/lib/x86_64-linux-gnu"
        libraries.mkdir(parents=True, exist_ok=True)
        for name in ("libnvidia-ml.so", "libcuda.so"):
            file = libraries / f"{name}.{VERSION}"
            file.write_bytes((self.machine.build / f"libnvidia-ml.so.{VERSION}").read_bytes() if "ml" in name else b"")
            link = libraries / f"{name}.1"
            link.unlink(missing_ok=True)
            link.symlink_to(file.name)
        return self.machine.root / "driver"


@pytest.fixture
def tools(machine: VirtualMachine) -> Tools:
    if os.geteuid() != 0:
        pytest.skip("NVIDIA's tools read /proc and /sys themselves: showing them the virtual machine's needs root")
    return Tools(machine)
