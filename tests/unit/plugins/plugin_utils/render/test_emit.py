# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest
import ruamel.yaml
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import helm_values
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.emit import yaml_text
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.versions import CHARTS
from hypothesis import given, settings

from tests.whole import examples

from .scalars import SCALARS


@pytest.mark.parametrize(
    "text",
    # A content hash may look like the first ones.
    ["12e5", "1e3", "1e+3", "08", "0o17", "y", "N", "580", "1.", ".5", "-1E4", "on", "null", "~", "0x1f", "1_000"]
    + [
        "0X1F",
        "-0X1F",
        "0B11",
        "0b1_1",
        "0O17",
        "1e_3",
        "_1",
        "_",
        "._",
        "+_",
        "-._",
        "0b_",
        "-0x_",
        "1_",
        "2026-1-2",
        "2026-01-02t1:2:3Z",
        "0x1p-2",
        ".inf",
        "<<",
        "=",
    ],
)
def test_a_text_stays_one_for_every_reader(text):
    assert yaml_text({"name": text}) == f"name: '{text}'\n"
    assert yaml_text({text: 1}) == f"'{text}': 1\n"
    assert yaml.safe_load(yaml_text([text])) == [text]


@pytest.mark.slow
@settings(max_examples=examples(10_000), deadline=None)
@given(SCALARS)
def test_pyyaml_and_ruamel_read_the_text_that_was_written(text):
    """What the Go programs read is held against the same texts in C(tests/charts)."""
    written = yaml_text({text: [text]})
    assert yaml.safe_load(written) == {text: [text]}
    for version in ((1, 1), (1, 2)):
        reader = ruamel.yaml.YAML(typ="safe", pure=True)
        reader.version = version
        assert reader.load(written) == {text: [text]}, version


@pytest.mark.parametrize("text", ["580.126.09", "1g.10gb", "8GiB", "1e3x", "year", "nvidia.com/gpu", "v1"])
def test_other_texts_stay_bare(text):
    assert yaml_text({"name": text}) == f"name: {text}\n"


TEMPLATES = sorted(Path(helm_values.__file__).parent.glob("*/*.yml.j2"))


def test_each_chart_has_its_values():
    assert {path.name.removesuffix(".yml.j2") for path in TEMPLATES if path.parent.name == "values"} == CHARTS.keys()


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_what_is_filled_into_yaml_is_one_value(path):
    """A pool may be called 12e5 or on, and a key of its own line would be one of the chart."""
    lines = path.read_text(encoding="utf-8").splitlines()
    filled = [one for line in lines if not line.startswith("#") for one in re.findall(r"{{ (.+?) -?}}", line)]
    # Words of the templates and of the generator.
    ours = re.compile(
        r"gate|what|key|split|backend_label|api_version|kind|action|policy|needs|(brought|head|suspended|caller)\(.*"
        r"|\", SkipDryRunOnMissingResource=true\" if .*"
    )
    assert [one for one in filled if not one.endswith("| json") and not ours.fullmatch(one)] == []


def test_parts_of_values_are_set_apart_by_empty_lines():
    text = "# one\n# two\na: 1\nb: {c: x}\n\n\n# three\nd:\n  # of the template\n  e: null\n\nf: []\n"
    assert list(helm_values._parts(text)) == [
        ("one\ntwo", {"a": 1, "b": {"c": "x"}}),
        ("three", {"d": {"e": None}}),
        ("", {"f": []}),
    ]
