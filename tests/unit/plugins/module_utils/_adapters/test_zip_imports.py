# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import zip_imports

#: Imports a package and a module of it from the archive, and counts how often each of the archive's sources is compiled.
_PROGRAM = """
import importlib, json, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import first
import zip_imports
if sys.argv[3] == "once":
    zip_imports.compile_once()
    zip_imports.compile_once()
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


def _import(tmp_path, how):
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("first.py", "")
        opened.writestr("package/__init__.py", "")
        opened.writestr("package/module.py", "VALUE = 7\n")
    folder = str(Path(zip_imports.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-I", "-c", _PROGRAM, str(archive), folder, how], capture_output=True, text=True, check=True
    )
    return str(archive), json.loads(done.stdout)


def test_modules_of_an_archive_are_compiled_once_and_are_the_same(tmp_path):
    archive, found = _import(tmp_path, "once")
    assert found["value"] == 7
    assert found["files"] == [f"{archive}/package/__init__.py", f"{archive}/package/module.py"]
    assert found["counts"] == {"package/__init__.py": 1, "package/module.py": 1}


def test_the_files_have_the_names_that_python_gives_them(tmp_path):
    assert _import(tmp_path, "once")[1]["files"] == _import(tmp_path, "as python does")[1]["files"]
