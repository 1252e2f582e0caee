# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run says in the beginning what it has to download or build, and refuses a machine on which it could not end."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def needs(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("needs", ROOT / "tools" / "needs.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "needs", module)
    spec.loader.exec_module(module)
    return module


def test_what_is_missing_is_named_with_its_minutes_and_what_is_there_is_not(needs, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(needs, "available", lambda: (10**6, 10**6))
    assert needs.tell({"nodes"}) == 0
    said = capsys.readouterr().out
    assert re.search(r"^ +7 min  Kubernetes 1\.\d+\.\d+$", said, re.MULTILINE) and "Debian for lab hosts" in said

    kubelet = tmp_path / "gpufleet" / "tools" / f"kubernetes-v{needs.programs.KUBERNETES}" / "kubelet"
    kubelet.parent.mkdir(parents=True)
    kubelet.touch()
    assert needs.tell({"nodes"}) == 0
    assert "Kubernetes" not in capsys.readouterr().out
    assert needs.tell({"unit"}) == 0
    assert "Debian for lab hosts" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("free", "memory", "said"),
    [
        (3000, 10**6, r"needs \S+ GiB of disk, and 2\.9 GiB are free\. Free "),
        (10**6, 3000, r"needs 5\.9 GiB of memory, and 2\.9 GiB are free\. "),
    ],
)
def test_a_machine_that_is_too_small_is_refused_with_what_it_lacks(needs, monkeypatch, capsys, free, memory, said):
    monkeypatch.setattr(needs, "available", lambda: (free, memory))
    assert needs.tell({"lab"}) == 2
    assert re.search(said, capsys.readouterr().err)


def test_a_refused_run_ends_before_anything_is_made(tmp_path):
    """It is the first thing that a run asks, of the machine's own Python, and takes a second."""
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copy(ROOT / "tools" / "test.sh", tools)
    (tools / "needs.py").write_text("import sys; sys.exit(f'too small for {sys.argv[1:]}')\n")
    done = subprocess.run(
        ["bash", tools / "test.sh", "lab", "unit"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1 and done.stderr.strip() == "too small for ['lab', 'unit']"
    # But what Python compiled of itself.
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert {str(path) for path in made if path.parts[:2] != ("build", "pycache")} == {
        "tools/needs.py",
        "tools/test.sh",
    }


def test_tiers_that_cannot_run_without_root_or_go_are_named(needs, monkeypatch, capsys):
    monkeypatch.setattr(needs, "available", lambda: (10**6, 10**6))
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(needs.shutil, "which", lambda _program: None)
    assert needs.tell({"lab", "nodes", "charts", "unit"}) == 0
    said = capsys.readouterr().out
    assert "NOT RUN without root: lab nodes." in said and "NOT RUN without Go: charts nodes." in said


def test_the_tiers_are_those_of_the_script(needs):
    lists = dict(
        re.findall(r'^(NEED_\w+)="(.*)"$', (ROOT / "tools" / "test.sh").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert set(lists["NEED_ROOT"].split()) == needs.LAB | {"resolver"}
    assert set(lists["NEED_GO"].split()) == needs.GO
