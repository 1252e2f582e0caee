# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils import _versions
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import grub
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats import documents, mps_commands, toml_read
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import model
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.state import parse_containerd
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import modes
from hypothesis import given
from hypothesis import strategies as st

PLUGINS = Path(__file__).resolve().parents[5] / "plugins"
LONG = "9" * 5000
NO_NUMBERS = ["", " 1", "1 ", "-1", "+1", "1_0", "\u00b2", "\u0664", "1.0", "0x1", LONG, "1\n", None, 1, True, ["1"]]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:12])
def test_what_is_no_number(value):
    assert documents.whole_number(value) is None


@given(st.one_of(st.text(), st.from_regex(r"\d+", fullmatch=True)))
def test_no_text_is_an_error(text):
    number = documents.whole_number(text)
    assert number is None or (str(number).rjust(len(text), "0") == text and number < 10**18)


@given(st.one_of(st.text(), st.from_regex(r"\d+(\.\d+)*(-\d+)?", fullmatch=True), st.just(LONG)))
def test_no_text_of_a_tool_is_an_error(text):
    _versions.numbers(text)
    _versions.product_version(text)
    grub.release_order(text)
    mps_commands.pids(text)
    mps_commands.limit_mib(text)
    mps_commands.percentage(text)


def test_numbers_that_are_too_long_are_refused_like_others():
    with pytest.raises(toml_read.TomlError, match="too long"):
        toml_read.loads(f"version = {LONG}\n")
    for read in (model.parse, lambda text: modes.memory_mib(text, "x")):
        for text in (f"1g.{LONG}gb", f"{LONG}GiB"):
            with pytest.raises(Refused):
                read(text)
    assert parse_containerd(['version = "x"\n']).version == 1
    assert mps_commands.percentage("inf") is None and mps_commands.percentage("25.0") == 25.0


def test_no_number_is_read_by_what_isdigit_says():
    found = [
        f"{path.name}: {line.strip()}"
        for path in PLUGINS.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\.is(digit|decimal|numeric)\(\)", line) and re.search(r"\b(int|float)\(", line)
    ]
    assert found == []
