# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes keep every byte that is not theirs, can be repeated, and can be undone from the text alone."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_edit import (
    append_tables,
    is_marked,
    remove_table,
    render,
    restore,
    set_value,
    set_values,
    unset,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import TomlError, loads, parse
from hypothesis import given, settings
from hypothesis import strategies as st

CASES = [
    # name, text, path, value, expected text
    ("same value", "a = 1\n", ("a",), 1, "a = 1\n"),
    ("changed", "a = 1 # x\n", ("a",), 2, "# gpufleet.nvidia: was | a = 1 # x\na = 2 # x\n"),
    ("other type", "a = 1\n", ("a",), True, "# gpufleet.nvidia: was | a = 1\na = true\n"),
    (
        "over several lines",
        "[t]\n  a = [\n  1, # one\n]\nb = 1\n",
        ("t", "a"),
        ["x"],
        "[t]\n# gpufleet.nvidia: was |   a = [\n# gpufleet.nvidia: was |   1, # one\n# gpufleet.nvidia: was | ]\n"
        '  a = ["x"]\nb = 1\n',
    ),
    ("added to a table", "[t]\n\ta = 1\n", ("t", "b"), 2, "[t]\n\ta = 1\n\t# gpufleet.nvidia: added b\n\tb = 2\n"),
    ("added to an empty table", " [t]\n[u]\n", ("t", "b"), 2, " [t]\n   # gpufleet.nvidia: added b\n   b = 2\n[u]\n"),
    ("added at the top", "# c\n[t]\n", ("b",), 2, "# gpufleet.nvidia: added b\nb = 2\n# c\n[t]\n"),
    ("added after others at the top", "a = 1\n[t]\n", ("b",), 2, "a = 1\n# gpufleet.nvidia: added b\nb = 2\n[t]\n"),
    ("no line break at the end", "a = 1", ("b",), 2, "a = 1\n# gpufleet.nvidia: added b\nb = 2"),
    ("changed without a line break", "a = 1", ("a",), 2, "# gpufleet.nvidia: was | a = 1\na = 2"),
    ("dotted keys", "t.a.x = 1\n", ("t", "a", "y"), 2, "t.a.x = 1\n# gpufleet.nvidia: added t.a.y\nt.a.y = 2\n"),
    (
        "inside an inline table",
        "t = {a = {x = 1}}\n",
        ("t", "a", "x"),
        2,
        "# gpufleet.nvidia: was | t = {a = {x = 1}}\nt = {a = {x = 2}}\n",
    ),
    (
        "into an inline table",
        "t = {a = {x = 1}}\n",
        ("t", "a", "y"),
        2,
        "# gpufleet.nvidia: was | t = {a = {x = 1}}\nt = {a = {x = 1, y = 2}}\n",
    ),
    ("into an empty inline table", "t = {}\n", ("t", "y"), 2, "# gpufleet.nvidia: was | t = {}\nt = { y = 2 }\n"),
    (
        "deep into an inline table",
        "t = {a = 1}\n",
        ("t", "b", "c"),
        2,
        "# gpufleet.nvidia: was | t = {a = 1}\nt = {a = 1, b.c = 2}\n",
    ),
    (
        "a new table",
        "[t]\na = 1\n",
        ("t", "q.r", "b"),
        "x",
        '[t]\na = 1\n\n# gpufleet.nvidia: begin\n[t."q.r"]\n  b = "x"\n# gpufleet.nvidia: end\n',
    ),
    (
        "a new table, no line break at the end",
        "[t]",
        ("u", "b"),
        1,
        "[t]\n\n# gpufleet.nvidia: begin\n[u]\n  b = 1\n# gpufleet.nvidia: end",
    ),
    (
        "CRLF",
        "[t]\r\na = 1\r\n",
        ("u", "b"),
        1,
        "[t]\r\na = 1\r\n\r\n# gpufleet.nvidia: begin\r\n[u]\r\n  b = 1\r\n# gpufleet.nvidia: end\r\n",
    ),
    (
        "characters that are no line breaks",
        "# \x85 \u2028\na = 1\n",
        ("a",),
        2,
        "# \x85 \u2028\n# gpufleet.nvidia: was | a = 1\na = 2\n",
    ),
]


@pytest.mark.parametrize(("text", "path", "value", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_set_value(text, path, value, expected):
    assert set_value(text, path, value) == expected
    assert parse(expected).get(path) == value
    assert set_value(expected, path, value) == expected
    assert restore(expected) == text
    assert is_marked(expected) is (text != expected)


def test_a_setting_that_is_changed_twice_keeps_the_users_text():
    twice = set_value(set_value("a = 1\n", ("a",), 2), ("a",), 3)
    assert twice == "# gpufleet.nvidia: was | a = 1\na = 3\n"
    assert restore(twice) == "a = 1\n"


def test_a_setting_that_was_added_can_be_changed():
    twice = set_value(set_value("[t]\na = 1\n", ("t", "b"), 2), ("t", "b"), 3)
    assert restore(twice) == "[t]\na = 1\n"
    assert loads(twice) == {"t": {"a": 1, "b": 3}}


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("a = 1\n", ("a", "b"), "a is not a table"),
        ("[[a]]\nb = 1\n", ("a", "b"), "array of tables"),
        ("[[a]]\nb = 1\n", ("a", "c", "d"), "array of tables"),
        ("a = \n", ("a",), "expected a value"),
        ("[a.b]\n", ("a", "b"), "a.b is a table"),
        ("[a.b]\n", ("a",), "a is a table"),
    ],
)
def test_what_cannot_be_set(text, path, reason):
    with pytest.raises(TomlError, match=reason):
        set_value(text, path, 1)


class TestUnset:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("b = 1\na = 1 # x\n", "b = 1\n# gpufleet.nvidia: was | a = 1 # x\n# gpufleet.nvidia: removed\n"),
            ("b = 1\na = 1", "b = 1\n# gpufleet.nvidia: was | a = 1\n# gpufleet.nvidia: removed"),
            ("b = 1\r\na = 1\r\n", "b = 1\r\n# gpufleet.nvidia: was | a = 1\r\n# gpufleet.nvidia: removed\r\n"),
            ("b = 1\n", "b = 1\n"),
        ],
    )
    def test_keeps_the_lines_and_gives_them_back(self, text, expected):
        assert unset(text, ("a",)) == expected
        assert restore(expected) == text
        assert "a" not in loads(expected)

    def test_inside_an_inline_table_is_refused(self):
        with pytest.raises(TomlError, match="is inside an inline table"):
            unset("t = {a = 1}\n", ("t", "a"))


class TestRemoveTable:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                "[a]\nx = 1\n# about b\n[b]\ny = 1\n# in b\nz = 1\n[b.c]\n# about d\n[d]\n",
                "[a]\nx = 1\n# about b\n# about d\n[d]\n",
            ),
            ("[a]\nb.x = 1\nc = 2\nb.y = 2\n", "[a]\nc = 2\n"),
            ("[b]\nx = 1\n# the end\n", "# the end\n"),
            ("[a]\n", "[a]\n"),
        ],
    )
    def test_takes_everything_of_it(self, text, expected):
        path = ("a", "b") if "b.x" in text else ("b",)
        assert remove_table(text, path) == expected

    def test_an_inline_table_is_one_setting(self):
        assert remove_table("[a]\nb = {x = 1}\nc = 1\n", ("a", "b")) == "[a]\nc = 1\n"

    def test_inside_an_inline_table_is_refused(self):
        with pytest.raises(TomlError, match="is inside an inline table"):
            remove_table("[a]\nb = {x = {y = 1}}\n", ("a", "b", "x"))


class TestRestore:
    def test_a_marked_setting_that_somebody_replaced_stays(self):
        assert restore("[t]\n# gpufleet.nvidia: added b\nc = 1\n") == "[t]\nc = 1\n"
        assert restore("# gpufleet.nvidia: was | a = 1\nb = 2\n") == "a = 1\nb = 2\n"

    def test_a_mark_at_the_end_without_its_setting(self):
        assert restore("a = 1\n# gpufleet.nvidia: added b\n") == "a = 1\n"

    def test_text_without_marks_stays(self):
        assert restore("# gpufleet.nvidia: begin\nx = 1\n") == "# gpufleet.nvidia: begin\nx = 1\n"

    def test_a_block_in_the_middle(self):
        text = append_tables("[a]\n", {("b",): {"c": 1}}) + "[d]\ne = 1\n"
        assert restore(text) == "[a]\n[d]\ne = 1\n"

    def test_a_block_after_a_line_of_somebody_else(self):
        assert restore("[a]\n# gpufleet.nvidia: begin\n[b]\n# gpufleet.nvidia: end\n[c]\n") == "[a]\n[c]\n"


def test_append_refuses_what_is_there():
    with pytest.raises(TomlError, match="defined twice"):
        append_tables("[a]\n", {("a",): {"b": 1}})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (-3, "-3"),
        ('q"\\\n\x7f\u00e9', '"q\\"\\\\\\n\\u007f\u00e9"'),
        (["a", 1], '["a", 1]'),
        ({"a b": {}}, '{ "a b" = {} }'),
    ],
)
def test_render(value, text):
    assert render(value) == text
    assert loads(f"x = {text}") == {"x": value}


def test_render_refuses_what_toml_has_not():
    with pytest.raises(TomlError, match="NoneType"):
        render(None)


NAMES = st.sampled_from(["a", "b", "c d"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
SCALARS = st.one_of(
    st.booleans(), st.integers(-9, 9), st.text(max_size=4).filter(lambda t: t.isprintable()), st.just(["x"])
)


def _document(pairs, newline, ending):
    lines = ["# head", ""]
    tables = {}
    for path, value in pairs:
        tables.setdefault(path[:-1], {})[path[-1]] = value
    for path in sorted(tables):
        if path:
            lines.append("[" + ".".join(f'"{name}"' for name in path) + "]  # t")
        lines.extend(f'  "{key}" = {render(value)} # {key}' for key, value in tables[path].items())
        lines.append("# after")
    text = newline.join(lines) + newline
    return text if ending else text[: -len(newline)]


DOCUMENTS = st.builds(
    _document, st.lists(st.tuples(PATHS, SCALARS), max_size=6), st.sampled_from(["\n", "\r\n"]), st.booleans()
)


@given(DOCUMENTS, st.dictionaries(PATHS, SCALARS, min_size=1, max_size=3))
@settings(max_examples=150)
def test_any_change_keeps_the_rest_is_stable_and_is_undone(text, changes):
    try:
        before = loads(text)
        after = set_values(text, changes)
    except TomlError:
        return
    document = parse(after)
    for path, value in changes.items():
        assert document.get(path) == value
    for statement in parse(text).statements:
        if statement.pair and statement.path not in changes:
            assert document.get(statement.path) == parse(text).get(statement.path)
    assert set_values(after, changes) == after
    assert restore(after) == text
    assert loads(restore(after)) == before
