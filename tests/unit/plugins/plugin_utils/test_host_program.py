# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import host_program

MODULE_UTILS = Path(host_program.__file__).resolve().parents[1] / "module_utils"


def test_the_same_input_gives_the_same_bytes():
    first = host_program.host_program()
    assert host_program.host_program() == first
    assert first.content.startswith(b"#!/usr/bin/env python3\n")


def test_the_program_runs_with_nothing_but_python(tmp_path):
    program = tmp_path / "gpufleet-host.pyz"
    program.write_bytes(host_program.host_program().content)
    # -I: neither this checkout nor the environment's packages can help out.
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program), "status"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert '"recorded"' in done.stdout


def test_the_program_holds_what_it_imports_and_nothing_that_changes_packages_or_runtimes():
    parts = host_program.parts()
    assert {"_host/main.py", "_host/__init__.py", "_plan.py", "_mig/apply.py", "_adapters/nvml_gpus.py"} <= set(parts)
    assert {"_host/write_metrics.py", "_facts/document.py", "_health/checks.py"} <= set(parts)
    changes = {"plan.py", "stage.py", "apply.py"}
    assert not [name for name in parts if name.startswith(("_driver/", "_adapters/packages_"))]
    assert not [name for name in parts if name.startswith(("_toolkit/", "_runtime/")) and name.split("/")[1] in changes]
    for name in parts:
        assert "ansible" not in {
            (node.module or "").split(".")[0]
            for node in ast.walk(ast.parse((MODULE_UTILS / name).read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and not node.level
        }, name


def test_only_the_first_fork_builds(tmp_path, monkeypatch):
    first = host_program.host_program(str(tmp_path))
    monkeypatch.setattr(host_program, "_build", None)
    assert host_program.host_program(str(tmp_path)) == first


def test_pynvml_is_sent_alone():
    with zipfile.ZipFile(io.BytesIO(host_program.pynvml_archive())) as archive:
        assert archive.namelist() == ["pynvml.py"]


@pytest.mark.parametrize("origin", [None, "/site-packages/pynvml/__init__.py"])
def test_a_controller_without_nvidia_ml_py_says_so(monkeypatch, origin):
    spec = None if origin is None else type("Spec", (), {"origin": origin})
    monkeypatch.setattr(host_program.importlib.util, "find_spec", lambda _name: spec)
    host_program.pynvml_source.cache_clear()
    with pytest.raises(host_program.PynvmlNotOnController, match="nvidia-ml-py"):
        host_program.pynvml_source()
    monkeypatch.undo()
    host_program.pynvml_source.cache_clear()


def test_the_version_of_an_installed_collection(tmp_path, monkeypatch):
    (tmp_path / "MANIFEST.json").write_text('{"collection_info": {"version": "4.5.6"}}')
    monkeypatch.setattr(host_program, "_COLLECTION", tmp_path)
    assert host_program.collection_version() == "4.5.6"
