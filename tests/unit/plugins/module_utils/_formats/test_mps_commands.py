# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers observed from the real nvidia-cuda-mps-control 535, 550, 580 and 615."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats import mps_commands


@pytest.mark.parametrize(
    ("answer", "value"),
    [("100.0\n", 100.0), ("12.5\n", 12.5), ("", None), ("Unknown command\n", None), ("Server not found\n", None)],
)
def test_percentage_is_a_float_or_nothing(answer, value):
    assert mps_commands.percentage(answer) == value


@pytest.mark.parametrize(
    ("answer", "value"), [("", ()), ("812\n913\n", (812, 913)), ("Server not found\n", ()), (" 7 \n", (7,))]
)
def test_pids_of_a_list(answer, value):
    assert mps_commands.pids(answer) == value


@pytest.mark.parametrize(
    ("mib", "text"),
    [(40960, "40G"), (1025, "1G"), (900, "900M"), (100500, "98G"), (0, ""), (1024, "1G"), (1023, "1023M")],
)
def test_limit_is_compared_as_the_daemon_prints_it(mib, text):
    assert mps_commands.limit_text(mib) == text


@pytest.mark.parametrize(
    ("answer", "value"), [("4G\n", "4G"), ("", ""), ("\n", ""), ("nonsense\n", None), ("900M", "900M")]
)
def test_limit_of_an_answer(answer, value):
    assert mps_commands.limit(answer) == value


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        ('Unknown command "x"\n', True),
        ("Server 12 not found\n", True),
        (
            "Insufficient privileges for UID 1000. Control deamon settings can only be modified by the user who started it",
            True,
        ),
        ("Not enough privilege to execute quit command\n", True),
        ("Failed to query devices\n", True),
        ("25.0\n", False),
        ("", False),
    ],
)
def test_refusals_are_found_in_spite_of_exit_status_0(answer, is_refusal):
    assert (mps_commands.refused(answer) is not None) == is_refusal
