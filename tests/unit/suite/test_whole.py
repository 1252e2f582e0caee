# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs by name only is left out by default, said by name, and never counted as passed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ... import whole

CONFTEST = """
from whole import Whole
from whole import add_option as pytest_addoption

def pytest_configure(config):
    config.addinivalue_line("markers", "by_name: x")
    config.addinivalue_line("markers", "slow: x")
    config.pluginmanager.register(Whole(config))
"""
CASES = """
import pytest
from whole import examples, sampled

@pytest.mark.by_name
def test_long():
    pass

@pytest.mark.slow
@pytest.mark.by_name
def test_of_another_tier():
    pass

@sampled("a, b", [(n, n) for n in range(10)], default=3)
def test_matrix(a, b):
    assert a == b

@sampled("pair", [(1, 2), (3, 4), pytest.param((5, 6), id="six")], default=1)
def test_pairs(pair):
    assert len(pair) == 2

def test_short():
    print("examples:", examples(1000), examples(1000, 7))
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(CASES)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -m 'not slow' -p no:cacheprovider\n")

    def pytest_on(*arguments, **variables):
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", whole.VARIABLE))
        }
        environment["PYTHONPATH"] = str(Path(whole.__file__).parent)
        command = [sys.executable, "-m", "pytest", "-s", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env={**environment, **variables}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return pytest_on


@pytest.mark.slow
def test_the_default_run_names_what_it_leaves_out_and_counts_it_nowhere(run):
    said = run("-n", "1")
    assert "5 passed" in said
    assert "test_it.py::test_long\ntest_it.py::test_matrix (7 cases)\ntest_it.py::test_pairs (2 cases)\n" in said
    assert "10 tests run by name only: make test-all, or --whole" in said
    assert "another_tier" not in said


@pytest.mark.slow
def test_a_whole_run_leaves_nothing_out(run):
    said = run("--whole")
    assert "15 passed, 1 deselected" in said and "by name only" not in said
    assert "examples: 1000 1000" in said


@pytest.mark.slow
def test_a_test_that_the_command_line_names_runs(run):
    said = run("test_it.py::test_matrix", "test_it.py::test_short")
    assert "11 passed" in said and "examples: 100 7" in said


@pytest.mark.parametrize(("value", "said"), [("1", True), ("yes", True), ("", False), ("no", False), ("0", False)])
def test_the_environment_says_whether_a_run_is_whole(monkeypatch, value, said):
    monkeypatch.setenv(whole.VARIABLE, value)
    assert whole.whole() is said
    assert (len(whole.some(range(300))) == 300) is said


def test_a_sample_is_the_same_in_every_run(monkeypatch):
    monkeypatch.delenv(whole.VARIABLE, raising=False)
    assert whole.some(range(30)) == whole.some(range(30)) and len(whole.some(range(30))) == 10
    assert whole.some("abc") == ["a", "b", "c"] and len(whole.some(range(1000))) == 100

    def kept():
        (_names, cases) = whole.sampled("number", range(1000), default=5).args
        return [case for case in cases if isinstance(case, int)]

    assert kept() == [381, 442, 732, 734, 899]
