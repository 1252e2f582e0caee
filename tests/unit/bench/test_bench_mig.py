# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The comparison in docs/mig.md is what the benchmark measures."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "mig.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_mig", REPOSITORY / "tests" / "bench" / "bench_mig.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_six_cases_are_those_of_the_page(bench):
    assert bench.table_of_cases() in PAGE


@pytest.mark.slow
def test_the_destroyed_instances_are_those_of_the_page(bench):
    assert bench.table_of_destroyed() in PAGE
