# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A tier that failed is tried once more while time is left for it, and a try that is cut off removes what it made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Each case waits for the limit of a try, or for a whole run of the script.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
#: Fails, and then takes longer than it may. What it makes is removed more slowly than xdist waits for its workers.
TESTS = """
import pathlib, time, pytest

@pytest.fixture(scope="session")
def host():
    again = pathlib.Path("made").exists()
    pathlib.Path("made").touch()
    yield again
    if again:
        time.sleep(8)
        pathlib.Path("removed").touch()

@pytest.mark.eda
@pytest.mark.parametrize("number", [1, 2])
def test_it(host, number):
    time.sleep(60 if host else 0)
    assert host
"""


@pytest.fixture
def run(tmp_path):
    """Run two tiers of a tree of its own, in which one is L(TESTS), with this many seconds for the second try."""

    def made(seconds, least):
        for name in ("needs.py", "setup.sh", "eda.sh", "docs.sh", "times.py"):
            path = tmp_path / ("tests" if name == "times.py" else "tools") / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
        script = (ROOT / "tools" / "test.sh").read_text(encoding="utf-8")
        for name, usual, value in (("AGAIN_SECONDS", 600, seconds), ("AGAIN_LEAST", 60, least)):
            assert f"\n{name}={usual}\n" in script
            script = script.replace(f"\n{name}={usual}\n", f"\n{name}={value}\n")
        (tmp_path / "tools" / "test.sh").write_text(script)
        (tmp_path / ".venv" / "bin").mkdir(parents=True)
        python = tmp_path / ".venv" / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        (tmp_path / "tests" / "eda").mkdir()
        (tmp_path / "tests" / "eda" / "test_it.py").write_text(TESTS)
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_"))}
        # Into a file: a line a minute is written by a process that outlives the run for a moment.
        said = tmp_path / "said"
        with said.open("w") as output:
            done = subprocess.run(
                [shutil.which("bash"), tmp_path / "tools" / "test.sh", "eda", "docs"],
                env={**outside, "CORES": "4", "JOBS": "2", "AGAIN": "yes"},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=120,
                check=False,
            )
        text = said.read_text()
        assert done.returncode == 1 and "\nTiers FAILED: eda\n" in text, text
        return text

    return made


@pytest.mark.by_name
def test_a_second_try_that_takes_too_long_removes_what_it_made(run, tmp_path):
    said = run(seconds=15, least=1)
    assert "== eda: once more, by itself: tests/eda/test_it.py" in said
    assert (tmp_path / "removed").exists(), said


def test_no_second_try_begins_that_could_not_end(run):
    said = run(seconds=59, least=60)
    assert "once more" not in said and "2 failed" in said, said
