# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import plain

DOCUMENTS = (
    {},
    {"a": None, "b": [], "c": {}},
    {
        "total": 3,
        "hosts": {"b": {"gpus": [{"name": "a\nb"}, {}], "x": {}}, "a": {}},
        "unread": {"c": "why"},
        "\u00e9": ["1"],
    },
    ["no", "mapping"],
)


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("indent", [1, 2])
def test_a_report_in_parts_is_what_json_makes_of_it(document, indent):
    assert "\n".join(plain.json_lines(document, indent)) == json.dumps(document, indent=indent, sort_keys=True)


def test_a_mapping_that_is_made_when_it_is_looked_at_may_be_empty():
    assert "\n".join(plain.json_lines({"expected": MappingProxyType({}), "total": 0}, 1)) == (
        '{\n "expected": {},\n "total": 0\n}'
    )


class _Made(Mapping):
    """Hosts of which each is a mebibyte that is made when it is looked at."""

    def __getitem__(self, name):
        return {"name": name, "text": "x" * (1 << 20)}

    def __iter__(self):
        return iter([f"gpu{number}" for number in range(len(self))])

    def __len__(self):
        return 50


def test_a_report_of_many_hosts_takes_the_memory_of_one(tmp_path):
    path = tmp_path / "report.json"
    tracemalloc.start()
    try:
        assert plain.write_report(str(path), {"hosts": _Made()})
        assert not plain.write_report(str(path), {"hosts": _Made()}), "nothing has changed"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 50 << 20 and peak < 10 << 20
    assert not list(tmp_path.glob(".gpufleet-*"))


def test_a_report_with_another_mode_is_written_again(tmp_path):
    path = tmp_path / "report.json"
    assert plain.write_report(str(path), {"a": 1}) and not plain.write_report(str(path), {"a": 1})
    assert plain.write_report(str(path), {"a": 1}, 0o600) and path.stat().st_mode & 0o777 == 0o600
    assert plain.write_report(str(path), {"a": 2}, 0o600) and json.loads(path.read_text()) == {"a": 2}


_NO_JSON = "Module result deserialization failed: No start of json char found"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            {"module_stderr": "sudo: a terminal is required\nsudo: a password is required\n"},
            "sudo: a terminal is required; sudo: a password is required",
        ),
        (
            # pyenv 2.4, where its shim is the interpreter and no version that is in force has the program.
            {
                "module_stderr": "pyenv: python3.13: command not found\n\nThe `python3.13' command exists in these Python versions:\n  3.13.0\n\n"
                "Note: See 'pyenv help global' for tips on allowing multiple\n      Python versions to be found at the same time.\n"
            },
            "pyenv: python3.13: command not found; The `python3.13' command exists in these Python versions:; 3.13.0; "
            "Note: See 'pyenv help global' for tips on allowing multiple; Python versions to be found at the same time.",
        ),
        (
            {
                "module_stdout": 'Traceback (most recent call last):\n  File "AnsiballZ_gpu_info.py", line 107\nImportError: No module named json\n'
            },
            "ImportError: No module named json",
        ),
        (
            {
                "module_stdout": "/bin/sh: 1: sudo: not found\r\n",
                "module_stderr": "Shared connection to gpu01 closed.\r\n",
            },
            "/bin/sh: 1: sudo: not found",
        ),
        ({"module_stdout": "\x1b[2Jgone"}, "?[2Jgone"),
    ],
)
def test_why_a_module_did_not_run_is_what_the_host_wrote_in_its_place(written, said):
    answer = {"failed": True, "msg": _NO_JSON, **written}
    assert plain.facts_of(answer) == (None, f"the module did not run: {said}")


def test_a_module_that_wrote_nothing_is_told_by_its_message():
    assert plain.facts_of({"msg": f"{_NO_JSON}\nmore", "module_stdout": "", "module_stderr": ""}) == (None, _NO_JSON)
