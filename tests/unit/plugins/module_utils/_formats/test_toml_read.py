# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reader agrees with tomllib, on what is TOML as well as on what is not."""

from __future__ import annotations

import datetime
import math

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import TomlError, dig, loads, parse
from hypothesis import given
from hypothesis import strategies as st

tomllib = pytest.importorskip("tomllib")

VALID = [
    "",
    "# only a comment",
    "a = 1\nb = -1_000\nc = 0xDEAD_beef\nd = 0o17\ne = 0b1_0\nf = +5\n",
    "a = 1.5\nb = -2e10\nc = 3.1E-2\nd = inf\ne = -inf\nf = 1_0.0_1\n",
    "a = true\nb = false",
    "a = 1979-05-27T07:32:00Z\nb = 1979-05-27 07:32:00.5\nc = 1979-05-27\nd = 07:32:00\ne = 1979-05-27T07:32:00-07:00",
    'a = "q\\"\\\\ \\t \\u00e9 \\U0001F600"\nb = \'no \\ escapes\'\nc = ""\nd = \'\'',
    'a = """\nfirst\n  second \\\n     folded"""\nb = \'\'\'\n raw \\ "x" \'\'\'\nc = """""two quotes"""""\n',
    "a = [1, 2, # three\n 3,\n]\nb = []\nc = [[1], ['x', \"y\"], [{a = 1}]]\n",
    'a = {}\nb = { c = 1, "d e" = { f.g = [] } }\n',
    'a.b.c = 1\na.b.d = 2\n"x y".z = 3\n\'lit.eral\'."q" = 4\n',
    "[a]\nb = 1\n[a.c]\nd = 2\n[e.f.g]\n[e]\nh = 1\n[e.f]\n",
    "[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd = 1\n[[a.e]]\n[[a.e]]\nf = 1\n",
    "[fruit]\napple.color = 1\napple.taste.sweet = true\n[fruit.apple.texture]\nsmooth = true\n",
    "a = 1\r\n[b]\r\nc = '''x\r\ny'''\r\n",
    '  [ a . "b" ]  # comment\n\tc = 1\t# d\n',
    "1 = 2\n-_ = 3\n",
]

INVALID = [
    "a",
    "a =",
    "a = 1 b = 2",
    "a = 01",
    "a = 1__0",
    "a = _1",
    "a = 1.",
    "a = .5",
    "a = 0x",
    "a = tru",
    "a = truex",
    'a = "x',
    'a = "x\ny"',
    'a = "\\q"',
    'a = "\\ud800"',
    'a = "\\u12"',
    "a = 'x",
    "a = '''x",
    'a = """x',
    "a = [1",
    "a = [1 2]",
    "a = {b = 1",
    "a = {b = 1,}",
    "a = {b = 1\n}",
    "a = {b = 1, b = 2}",
    "a = {b.c = 1, b = 2}",
    "a = 1\na = 2",
    "a = 1\n[a]",
    "[a]\n[a]",
    "[a]\nb.c = 1\n[a.b]",
    "[a.b]\n[a]\nb.c = 1",
    "a = {b = 1}\na.c = 2",
    "a = {b = 1}\n[a]",
    "a = {b = 1}\n[a.c]",
    "a = {b = {c = 1}}\n[a.b.d]",
    "a = []\n[[a]]",
    "[[a]]\n[a]",
    "[a]\n[[a]]",
    "[[a.b]]\n[a]\nb.c = 1",
    "a.b = 1\n[a]",
    "a.b = 1\na.b.c = 2",
    "[a",
    "[[a]",
    "[]",
    "[a] b",
    "= 1",
    "a b = 1",
    '"""a""" = 1',
    "a = 1979-13-01",
    "a = 25:00:00",
    "a = \x00",
    "# a\x01",
    "a = 1\rb = 2",
    "\ufeffa = 1",
]


def plain(value):
    """What tomllib says, in this reader's terms: dates are text."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return "date" if isinstance(value, (datetime.date, datetime.time)) else value


@pytest.mark.parametrize("text", [text for text in VALID if "1979" not in text])
def test_reads_what_tomllib_reads(text):
    assert loads(text) == tomllib.loads(text)


def test_dates_and_times_stay_text():
    text = next(text for text in VALID if "1979" in text)
    assert set(loads(text)) == set(tomllib.loads(text))
    assert loads(text)["a"] == "1979-05-27T07:32:00Z"


def test_nan():
    assert math.isnan(loads("a = nan")["a"])


@pytest.mark.parametrize("text", INVALID)
def test_refuses_what_tomllib_refuses(text):
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    with pytest.raises(TomlError):
        loads(text)


def test_errors_say_where():
    with pytest.raises(TomlError, match=r"defined twice \(line 3, column 1\)"):
        loads("a = 1\nb = 2\na = 3\n")


def test_statements_cover_whole_lines_and_know_their_table():
    text = "# head\na = 1 # one\n\n[b]\n  c.d = [\n 2]\n"
    document = parse(text)
    assert [text[s.start : s.end] for s in document.statements] == ["a = 1 # one\n", "[b]\n", "  c.d = [\n 2]\n"]
    assert [s.path for s in document.statements] == [("a",), ("b",), ("b", "c", "d")]
    assert document.get(("b", "c", "d")) == [2]
    assert document.get(("b", "x"), 7) == 7


def test_elements_of_arrays_of_tables_are_marked():
    document = parse("[[a]]\nb = 1\n[a.c]\nd = 2\n[e]\n")
    assert [s.crosses_array for s in document.statements] == [True, True, True, True, False]


def test_dig_stops_at_plain_values():
    assert dig({"a": {"b": 1}}, ("a", "b", "c"), "none") == "none"


FRAGMENTS = st.sampled_from(
    [
        "a",
        "b",
        "a.b",
        '"a"',
        "'b c'",
        " ",
        "=",
        "1",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        ",",
        "\n",
        "#",
        '"',
        "'",
        '"""',
        "\\",
        ".",
    ]
    + [
        "a = 1\n",
        "[a]\n",
        "[a.b]\n",
        "[[a]]\n",
        "b = [1, 2]\n",
        "a = {b = 1}\n",
        "a.b = 2\n",
        "[b]\n",
        "b.c = 3\n",
        "\r\n",
        "e5",
        "-",
    ]
)


@given(st.lists(FRAGMENTS, max_size=12).map("".join))
def test_agrees_with_tomllib_on_arbitrary_text(text):
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(TomlError):
            loads(text)
    else:
        assert plain(expected) == plain(loads(text))
