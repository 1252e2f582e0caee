# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import zip_imports
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.installation import remove_compiled, write_compiled

#: Imports a package and a module of it from the archive, and counts how often each of the archive's sources is compiled.
_PROGRAM = """
import importlib, json, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import first
import zip_imports
if sys.argv[3] == "once":
    zip_imports.compile_once(sys.argv[4])
    zip_imports.compile_once(sys.argv[4])
counts = {}
def watch(event, arguments):
    if event == "compile" and str(arguments[1]).startswith(sys.argv[1]):
        name = str(arguments[1])[len(sys.argv[1]) + 1:]
        counts[name] = counts.get(name, 0) + 1
sys.addaudithook(watch)
import package.module
found = {"counts": counts, "files": [package.__file__, package.module.__file__], "value": package.module.VALUE}
print(json.dumps(found))
"""


def _import(tmp_path, how, compiled="/nowhere", python=sys.executable):
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("first.py", "")
        opened.writestr("package/__init__.py", "")
        opened.writestr("package/module.py", "VALUE = 7\n")
    folder = str(Path(zip_imports.__file__).parent)
    done = subprocess.run(
        [python, "-I", "-c", _PROGRAM, str(archive), folder, how, str(compiled)],
        capture_output=True,
        text=True,
        check=True,
    )
    return str(archive), json.loads(done.stdout)


def test_modules_of_an_archive_are_compiled_once_and_are_the_same(tmp_path):
    archive, found = _import(tmp_path, "once")
    assert found["value"] == 7
    assert found["files"] == [f"{archive}/package/__init__.py", f"{archive}/package/module.py"]
    assert found["counts"] == {"package/__init__.py": 1, "package/module.py": 1}


def test_the_files_have_the_names_that_python_gives_them(tmp_path):
    assert _import(tmp_path, "once")[1]["files"] == _import(tmp_path, "as python does")[1]["files"]


def _compiled(folder, sources):
    """Return the bytecode of a program with these sources, as the host program's installation writes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for name, source in sources.items():
            opened.writestr(name, source)
    write_compiled(b"#!/usr/bin/env python3\n" + buffer.getvalue(), str(folder / "program.pyz"))
    (path,) = folder.glob("compiled-*.zip")
    assert path.name == Path(zip_imports.COMPILED).name
    return path


def test_what_the_host_has_compiled_is_not_compiled_again(tmp_path):
    compiled = _compiled(tmp_path, {"program/other.py": "VALUE = 7\n", "__main__.py": ""})
    _archive, found = _import(tmp_path, "once", compiled)
    assert found["value"] == 7 and found["counts"] == {}


def test_another_source_is_compiled_whatever_its_name_is(tmp_path):
    compiled = _compiled(tmp_path, {"package/module.py": "VALUE = 8\n"})
    _archive, found = _import(tmp_path, "once", compiled)
    assert found["value"] == 7 and found["counts"] == {"package/__init__.py": 1, "package/module.py": 1}


@pytest.mark.parametrize("content", [b"", b"x" * 40], ids=["cut off", "no bytecode"])
def test_damaged_bytecode_is_passed_over(tmp_path, content):
    compiled = tmp_path / "compiled.zip"
    with zipfile.ZipFile(compiled, "w") as opened:
        for source in (b"", b"VALUE = 7\n"):
            opened.writestr(zip_imports.entry_name(source), content)
    assert _import(tmp_path, "once", compiled)[1]["value"] == 7
    compiled.write_bytes(compiled.read_bytes()[:60])
    assert _import(tmp_path, "once", compiled)[1]["value"] == 7


def test_bytecode_is_that_of_one_program_and_goes_with_it(tmp_path):
    (tmp_path / "compiled-00000000.zip").write_text("of another Python")
    _compiled(tmp_path, {"a.py": "1\n"})
    remove_compiled(str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_the_oldest_and_the_newest_python_of_hosts_do_the_same(tmp_path, python_of, version):
    python = python_of(version)
    code = "import importlib.util, sys; sys.path[:0] = [sys.argv[1]]; import zip_imports"
    code += "; print(importlib.util.MAGIC_NUMBER.hex(), zip_imports.COMPILED)"
    folder = str(Path(zip_imports.__file__).parent)
    told = subprocess.run([python, "-I", "-c", code, folder], capture_output=True, text=True, check=True).stdout.split()
    assert told[0] in told[1]
    _archive, found = _import(tmp_path, "once", python=python)
    assert found["value"] == 7 and found["counts"] == {"package/__init__.py": 1, "package/module.py": 1}
