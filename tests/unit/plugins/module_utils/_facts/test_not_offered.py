# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import not_offered_names, not_offered_text

NAMES = ("linux-headers-generic-hwe-24.04", "linux-headers-generic")


def test_what_is_written_is_read_for_the_same_kernel_only():
    text = not_offered_text("6.8.0-40-generic", NAMES)
    assert not_offered_names(text, "6.8.0-40-generic") == sorted(NAMES)
    assert not_offered_names(text, "6.8.0-41-generic") == []


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[1]",
        '{"schema": 2, "kernel": "k", "packages": ["a"]}',
        '{"schema": 1, "kernel": "k", "packages": "a"}',
    ],
)
def test_what_is_no_such_record_says_nothing(text):
    assert not_offered_names(text, "k") == []
