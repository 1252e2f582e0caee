# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests on lab hosts share: a lab of their own, brought up by the same command that a person uses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LAB = Path(__file__).resolve().parent / "lab"


class LabUnderTest:
    """A lab of a name that no person uses."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Call the lab's command line: its output is shown when a test fails."""
        action, *rest = arguments
        command = [str(LAB), action, "--name", self.name, *rest]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if check and done.returncode:
            pytest.fail(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def sh(self, host: str, script: str, *, check: bool = True) -> str:
        """Run a shell script in a host and return what it wrote."""
        done = self.run("exec", host, "--", "bash", "-euo", "pipefail", "-c", script, check=False)
        if check and done.returncode:
            pytest.fail(f"{script!r} in {host}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def status(self, host: str, script: str) -> int:
        """Run a shell script in a host and return its exit status."""
        return self.run("exec", host, "--", "bash", "-c", script, check=False).returncode


@pytest.fixture(scope="module")
def make_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LabUnderTest]]:
    """Bring labs up; all of them are taken down at the end, whatever happened."""
    labs: list[LabUnderTest] = []

    def make(name: str, *hosts: dict[str, Any]) -> LabUnderTest:
        lab = LabUnderTest(name)
        lab.run("down")
        labs.append(lab)
        spec = tmp_path_factory.mktemp(name) / "lab.json"
        spec.write_text(json.dumps({"hosts": list(hosts)}), encoding="utf-8")
        lab.run("up", "--spec", str(spec))
        return lab

    yield make
    for lab in labs:
        lab.run("down")
