# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.text import ranges, table


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([0], "0"), ([0, 1], "0-1"), ([0, 1, 2, 5], "0-2,5"), ([1, 3, 4, 7], "1,3-4,7")],
)
def test_ranges(numbers, text):
    assert ranges(numbers) == text


def test_columns_are_as_wide_as_their_widest_cell_and_lines_have_no_trailing_blanks():
    assert table(["A", "LONG"], [["value", "x"], ["", "y"]]) == "A      LONG\nvalue  x\n       y\n"
    assert table(["A", "B"], []) == "A  B\n"
    assert table(["A", "B"], [["1", "2"]], gap=" | ") == "A | B\n1 | 2\n"
