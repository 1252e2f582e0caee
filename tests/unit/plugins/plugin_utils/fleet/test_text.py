# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.text import blocks, ranges, table


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([0], "0"), ([0, 1], "0-1"), ([0, 1, 2, 5], "0-2,5"), ([1, 3, 4, 7], "1,3-4,7")],
)
def test_ranges(numbers, text):
    assert ranges(numbers) == text


def test_columns_are_as_wide_as_their_widest_cell_and_lines_have_no_trailing_blanks():
    assert table(["A", "LONG"], [["value", "x"], ["", "y"]]) == "A      LONG\nvalue  x\n       y\n"
    assert table(["A", "B"], []) == "A  B\n"


def test_a_table_that_has_no_room_is_written_over_several_lines_and_nothing_is_cut_off():
    header = ["HOST", "DOES", "DISTURBS"]
    rows = [["gpu-1", "install driver branch 580 and load it", "-"], ["gpu-2", "-", "python3 (PID 9)"]]
    shown = table(header, rows, 37)
    assert shown == (
        "HOST   DOES            DISTURBS\n"
        "gpu-1  install driver  -\n"
        "       branch 580 and\n"
        "       load it\n"
        "gpu-2  -               python3 (PID\n"
        "                       9)\n"
    )
    assert table(header, rows, 1000) == table(header, rows)
    # A word is never broken, also where that leaves the table wider than the terminal.
    assert max(map(len, table(header, rows, 5).splitlines())) > 5


def test_columns_that_have_no_room_are_put_below_under_the_first_again():
    rows = [["NAME", "GPU0", "GPU1", "SUM"], ["gpu-1", "1/2", "2/2", "3/4"]]
    assert blocks(rows) == ["NAME   GPU0  GPU1  SUM", "gpu-1  1/2   2/2   3/4"]
    assert blocks(rows, 18) == ["NAME   GPU0  GPU1", "gpu-1  1/2   2/2", "", "NAME   SUM", "gpu-1  3/4"]
    assert blocks(rows, 3) == blocks(rows, 12)
