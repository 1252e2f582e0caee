# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the time of a run went is written by a run with workers, added to by a second one, and shown for all tiers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ... import times

CASES = """
import time
import pytest

@pytest.fixture(scope="module")
def inner():
    time.sleep(0.2)

@pytest.fixture(scope="module")
def outer(request):
    request.getfixturevalue("inner")

@pytest.mark.parametrize("number", [1, 2])
def test_it(outer, number):
    time.sleep(0.1)
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "conftest.py").write_text("from times import configure as pytest_configure\n")
    (tmp_path / "test_it.py").write_text(CASES)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider\n")
    written = tmp_path / "build" / "times" / "unit.json"

    def pytest_on(*arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        environment |= {"PYTHONPATH": str(Path(times.__file__).parent), times.VARIABLE: str(written)}
        command = [sys.executable, "-m", "pytest", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(written.read_text())

    return pytest_on


@pytest.mark.slow
@pytest.mark.by_name
def test_workers_report_and_a_second_run_of_a_tier_is_added(run, tmp_path, capsys):
    first = run("-n", "1")
    (seconds, count) = first["tests"]["test_it.py::test_it"]
    assert count == 2 and seconds >= 0.2
    assert first["fixtures"]["test_it.py::inner"][0] >= 0.2
    assert first["fixtures"]["test_it.py::outer"][0] < 0.2, "the seconds of what it asks for are not its own"
    assert first["files"]["test_it.py"][0] >= 0.4

    assert run()["tests"]["test_it.py::test_it"][1] == 4

    times.main([str(tmp_path / "build"), "lint=60", "unit=7", "unit=5"])
    said = capsys.readouterr().out
    assert "unit     test_it.py::test_it (4 times)" in said and "The slowest fixtures" in said
    tiers = json.loads((tmp_path / "build" / "times.json").read_text())["tiers"]
    assert (tiers["lint"]["seconds"], tiers["unit"]["seconds"]) == (60, 12)


def test_of_a_run_that_is_cut_off_it_is_known_where_its_time_went(tmp_path, monkeypatch):
    path = tmp_path / "times" / "lab.json"
    report = SimpleNamespace(nodeid="a.py::b[1]", when="call", duration=2.5, fixture_seconds=[("a.py::fixture", 1.0)])
    measured, worker = times.Times(path), times.Times(path, writes=False)
    measured.pytest_runtest_logreport(report)
    assert not path.exists()
    monkeypatch.setattr(times, "EVERY", -1.0)
    worker.pytest_runtest_logreport(report)
    assert not path.exists()
    for _number in range(2):
        measured.pytest_runtest_logreport(report)
    found = json.loads(path.read_text())
    assert found["tests"] == {"a.py::b": [7.5, 3]} and found["fixtures"] == {"a.py::fixture": [3.0, 3]}
    # The next run of the tier adds to that.
    times.Times(path).pytest_sessionfinish()
    assert json.loads(path.read_text()) == found
