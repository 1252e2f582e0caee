# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import plain


class Output:
    def __init__(self, terminal):
        self.isatty = lambda: terminal


@pytest.mark.parametrize(("terminal", "width"), [(True, 97), (False, 0)])
def test_a_terminal_has_a_width_and_a_file_has_none(monkeypatch, terminal, width):
    monkeypatch.setattr(plain.sys, "stdout", Output(terminal))
    monkeypatch.setenv("COLUMNS", "97")
    assert plain.terminal_width() == width
