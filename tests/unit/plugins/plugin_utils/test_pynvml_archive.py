# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is sent to a host in place of an installed pynvml: the same bytes everywhere, and a module that can be imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import pack, pynvml_archive


@pytest.mark.parametrize("compress", [False, True])
def test_packing_depends_on_names_and_contents_alone(compress):
    one = pack({"b.py": b"2", "a.py": b"1"}, compress)
    assert one == pack({"a.py": b"1", "b.py": b"2"}, compress)
    assert one != pack({"a.py": b"1", "b.py": b"3"}, compress)


def test_python_imports_pynvml_from_the_archive(tmp_path):
    archive = tmp_path / "pynvml.zip"
    archive.write_bytes(pynvml_archive())
    script = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import pynvml; print(pynvml.__file__, pynvml.NVML_SUCCESS)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{archive}/pynvml.py", "0"]
