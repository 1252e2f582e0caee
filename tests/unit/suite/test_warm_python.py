# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module that is run by the process that is forked is run as by Python, and knows nothing of one before."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from ...warm_python import interpreter

SCRIPT = """
import os, sys
print(os.getcwd(), os.environ["GIVEN"], sys.argv, "kept" in os.environ, hasattr(sys, "kept"), __name__)
print("said", file=sys.stderr)
os.environ["kept"] = sys.kept = "yes"
sys.exit(3)
"""


@pytest.mark.parametrize("by_file", [True, False], ids=["file", "standard input"])
def test_a_module_has_its_own_files_environment_and_end(tmp_path, by_file):
    file = tmp_path / "module.py"
    file.write_text(SCRIPT)
    arguments, given = ([str(file), "x"], "") if by_file else ([], SCRIPT)
    for python in (sys.executable, interpreter(), interpreter()):
        done = subprocess.run(
            [python, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"GIVEN": "g"},
        )
        assert (done.returncode, done.stderr) == (3, "said\n")
        assert done.stdout == f"{tmp_path} g {arguments or ['']} False False __main__\n"


def test_what_an_archive_carries_is_what_is_imported_whatever_one_of_its_name_had_before(tmp_path):
    archive = tmp_path / "payload.zip"
    script = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import carried; print(carried.VALUE); raise ValueError('x')"
    )
    for value in (1, 2):
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("carried.py", f"VALUE = {value}\n")
        done = subprocess.run([interpreter()], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, f"{value}\n")
        assert "ValueError: x" in done.stderr
