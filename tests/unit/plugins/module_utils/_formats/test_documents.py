# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts that others write are read within bounds, or refused with one kind of error."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.documents import (
    LONGEST_JSON,
    LONGEST_YAML,
    read_json,
    read_yaml,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.whole import examples

PLUGINS = Path(__file__).parents[5] / "plugins"
#: Nine lists of nine times the one before.
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
#: Each list has only the one before: few nodes, but as deep as there are lines.
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 2000))


@pytest.mark.parametrize("count", [150, 900, 30_000, 1_000_000])
@pytest.mark.parametrize("bracket", ["[", "{", '{"a":', "[{", "- ", "? "])
def test_nested_texts_are_refused(bracket, count):
    text = bracket * count
    for read in (read_json, read_yaml):
        with pytest.raises(ValueError, match=r"\w"):
            read(text)
    with pytest.raises(ValueError, match=r"\w"):
        read_json("[" * count + "]" * count)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, "aliases stand for more than"),
        (CHAIN, "nested too deeply"),
        ("&a [*a]", "'a' stands for nothing that ends before it"),
        ("a: *b", "'b' stands for nothing"),
        ("a: &a {<<: *a}", "stands for nothing"),
        ("x" * (LONGEST_YAML + 1), "may have at most"),
        ("a: 2026-99-99", "month"),
        ("a: !!python/object/apply:os.system [x]", "invalid YAML"),
        ("? [a]\n: b", "invalid YAML"),
        ("a: [", "invalid YAML"),
        ("=", "invalid YAML"),
    ],
)
def test_what_expands_or_is_no_yaml_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        read_yaml(text)


def test_a_text_of_json_has_a_bound_in_size():
    with pytest.raises(ValueError, match="may have at most"):
        read_json('"' + "x" * LONGEST_JSON + '"')
    assert len(read_json('"' + "x" * LONGEST_JSON + '"', None)) == LONGEST_JSON


@pytest.mark.parametrize(
    "value",
    ["!!bool maybe", "!!int ''", "!!float ''", "!!timestamp foo", "!!timestamp 2020-99-99", "1" + ":1" * 300 + ".0"],
)
def test_a_value_that_does_not_fit_its_type_is_refused(value):
    with pytest.raises(ValueError):
        read_yaml(f"a: {value}")


def test_what_people_write_is_read():
    text = "common: &c {replicas: 4}\nsharing: [*c, {<<: *c, name: x}]\n"
    assert read_yaml(text) == {
        "common": {"replicas": 4},
        "sharing": [{"replicas": 4}, {"replicas": 4, "name": "x"}],
    }
    assert read_yaml("") is None and read_json(b"[1, {}]") == [1, {}]


_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
)


@pytest.mark.slow
@settings(max_examples=examples(10_000, 250), deadline=None)
@given(_DATA, st.text("[]{}:,&*a-?!|>'\"\n #%@<0~", max_size=60), st.integers(0, 60))
def test_any_text_is_read_or_refused_with_a_value_error(data, noise, place):
    text = json.dumps(data)
    assert read_json(text) == data
    mutated = text[:place] + noise + text[place:]
    for read in (read_json, read_yaml):
        try:
            found = read(mutated)
        except ValueError:
            continue
        assert found is None or isinstance(found, (bool, int, float, str, list, dict, bytes, set)) or "-" in str(found)


def test_nothing_else_reads_texts_that_others_write():
    """What is left reads what the same process, or the collection's own package, wrote."""
    own = {
        "doc_fragments/variables.py": "the specifications of the collection's roles",
        "module_utils/_formats/documents.py": "the reader itself",
        "module_utils/_formats/json_edit.py": "an editor, which needs the members as they are written",
        "module_utils/_facts/nvml.py": "the answer of a child of its own",
        "plugin_utils/lease_renewal.py": "its own arguments",
        "plugin_utils/upgrade_run.py": "the database of its own run",
        "plugin_utils/host_program.py": "galaxy.yml and MANIFEST.json of the collection",
        "plugin_utils/role_variables.py": "the files of the collection's roles",
        "plugin_utils/lint/lint.py": "calls the linter's own reader of YAML as Go reads it, which has bounds",
        "plugin_utils/lint/hami.py": "of a text that this has read",
        "plugin_utils/render/gitops.py": "values that it has rendered",
        "plugin_utils/fleet/saved_plan.py": "the data of its own steps, as a document has them",
        "plugin_utils/actions/inspect.py": "a text that it has made",
    }
    call = re.compile(r"(?<!_)(json\.loads?|yaml\.(safe_load|load|load_all|safe_load_all))\(")
    found = {
        str(path.relative_to(PLUGINS))
        for path in PLUGINS.rglob("*.py")
        if call.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(own)


def test_the_reader_needs_no_c_library(monkeypatch):
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert read_yaml("a: [1, 2]") == {"a": [1, 2]}
    with pytest.raises(ValueError, match="nested too deeply"):
        read_yaml("[" * 30_000)
