# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/support.md is what the marks of the tests say, and a mark says something that the page has room for."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS

REPOSITORY = Path(__file__).resolve().parents[2]
TOOL = REPOSITORY / "tools" / "support-matrix.py"


@pytest.fixture(scope="module")
def matrix():
    spec = importlib.util.spec_from_file_location("support_matrix", TOOL)
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_marks_of_the_tests_say():
    done = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def item(path, *, arguments=("driver", "nvidia"), params=None, tiers=(), **options):
    """A collected test with one mark of ours and those of its tiers, and the mark."""
    made = SimpleNamespace(nodeid=f"{path}::test_x[a]", name="test_x[a]", originalname="test_x")
    made.callspec = SimpleNamespace(params=params or {})
    made.iter_markers = lambda: [SimpleNamespace(name=tier) for tier in tiers]
    return made, SimpleNamespace(args=arguments, kwargs=options)


@pytest.mark.parametrize(
    ("path", "options", "level"),
    [
        ("tests/lab/test_a.py", {}, "lab"),
        ("tests/resolver/test_a.py", {}, "resolver"),
        ("tests/unit/deep/test_a.py", {}, "plan"),
        ("tests/lab/test_a.py", {"level": "real"}, "real"),
    ],
)
def test_the_level_is_where_the_test_is(matrix, path, options, level):
    (found,) = matrix.proofs_of(*item(path, rows=["debian-12"], **options))
    assert (found.level, found.row, found.test) == (level, "debian-12", f"{path}::test_x")


def test_a_row_can_be_a_parameter_of_the_test(matrix):
    params = {"distribution": ("debian", "12"), "runtime": "crio"}
    assert matrix.proofs_of(*item("tests/lab/t.py", params=params, by="distribution"))[0].row == "debian-12"
    assert matrix.proofs_of(*item("tests/lab/t.py", params=params, by="runtime"))[0].row == "crio"


@pytest.mark.parametrize(
    "options", [{}, {"rows": ["a"], "by": "b"}, {"rows": ["a"], "nota": "x"}, {"rows": ["a"], "level": "proven"}]
)
def test_a_mark_that_says_nothing_or_too_much_is_an_error(matrix, options):
    with pytest.raises(ValueError, match="test_x"):
        matrix.proofs_of(*item("tests/lab/t.py", **options))


def test_a_proof_of_what_the_page_does_not_have_is_an_error(matrix):
    proofs = matrix.proofs_of(*item("tests/lab/t.py", rows=["debian-99"]))
    with pytest.raises(SystemExit, match="debian-99"):
        matrix.page(proofs)
    with pytest.raises(SystemExit, match="compilers"):
        matrix.page(matrix.proofs_of(*item("tests/lab/t.py", arguments=("compilers", ""), rows=["gcc"])))


def test_what_no_test_proves_is_unconfirmed_and_a_new_row_needs_no_edit(matrix):
    text = matrix.page(matrix.proofs_of(*item("tests/lab/t.py", rows=["debian-12"], note="faults")))
    assert "| Debian 12 | **lab** 1 (faults) | unconfirmed | unconfirmed |" in text
    driver = text.partition("## Driver")[2].partition("Distributions that")[0]
    assert len(re.findall(r"^\| (?!\|)(?!---)", driver, re.M)) == len(DISTRIBUTIONS)


def test_a_test_that_runs_by_name_only_is_marked_wherever_it_is_named(matrix):
    proofs = [
        *matrix.proofs_of(*item("tests/lab/a.py", rows=["debian-12"], tiers=["lab"])),
        *matrix.proofs_of(*item("tests/lab/b.py", rows=["debian-12"], tiers=["dkms"])),
        *matrix.proofs_of(*item("tests/lab/c.py", rows=["debian-13"], tiers=["lab", "upgrade"])),
    ]
    text = matrix.page(proofs)
    assert "| Debian 12 | **lab** 1, 2\N{DAGGER} |" in text and "| Debian 13 | **lab** 3\N{DAGGER} |" in text
    assert "| 2\N{DAGGER} | `tests/lab/b.py::test_x` |" in text and "| 1 | `tests/lab/a.py::test_x` |" in text
    assert "(`make test TIERS=dkms`, `make test TIERS=upgrade`)" in text


def test_a_case_that_runs_by_name_only_is_marked_in_its_cell_alone(matrix):
    text = matrix.page(
        [
            *matrix.proofs_of(*item("tests/lab/a.py", rows=["debian-12"], tiers=["lab"])),
            *matrix.proofs_of(*item("tests/lab/a.py", rows=["debian-13"], tiers=["lab", "by_name"])),
        ]
    )
    assert "| Debian 12 | **lab** 1 |" in text and "| Debian 13 | **lab** 1\N{DAGGER} |" in text
    assert "| 1 | `tests/lab/a.py::test_x` |" in text and "(`make test-all`)" in text


def test_the_tiers_that_run_by_name_are_those_of_the_script(matrix):
    assert {"dkms", "debian", "upgrade"} <= set(matrix.tiers_by_name())
