# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles


def test_absolute_links_are_followed_inside_the_root(tree):
    # Debian's alternatives: library -> /etc/alternatives -> the versioned file.
    tree.write("/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.309.01")
    tree.link("/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1", "libnvidia-ml.so.535.309.01")
    tree.link("/etc/alternatives/ml", "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1")
    tree.link("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/etc/alternatives/ml")

    resolved = tree.files.resolve("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")

    assert resolved == "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.309.01"


def test_links_do_not_lead_out_of_the_root(tree):
    tree.link("/etc/os-release", "../../../../../../etc/passwd")
    tree.write("/etc/passwd", "inside")

    assert tree.files.read("/etc/os-release") == "inside"


@pytest.mark.parametrize("target", ["/loop", "/missing"])
def test_links_that_lead_nowhere_are_nothing(tree, target):
    tree.link("/loop", target)

    assert tree.files.resolve("/loop") is None
    assert tree.files.read("/loop") is None
    assert tree.files.names("/loop") == []
    assert tree.files.size("/loop") is None


def test_directories_files_and_globs(tree):
    tree.write("/etc/cdi/b.yaml", "x")
    tree.write("/etc/cdi/a.json")
    tree.link("/var/run", "/run")
    tree.write("/run/here", "yes")

    files = tree.files
    assert files.names("/etc/cdi") == ["a.json", "b.yaml"]
    assert files.glob("/etc/cdi/*.yaml") == ["/etc/cdi/b.yaml"]
    assert files.read("/var/run/here") == "yes"
    assert files.is_directory("/etc/./cdi") and not files.is_directory("/etc/cdi/b.yaml")
    assert files.size("/etc/cdi/b.yaml") == 1
    assert files.names("/etc/cdi/b.yaml") == []


def test_a_directory_is_not_read_as_a_file(tree):
    tree.folder("/etc/cdi")
    assert tree.files.read("/etc/cdi") is None


def test_programs_are_found_only_when_they_can_be_run(tree):
    tree.write("/usr/bin/containerd", "")
    assert tree.files.find_program("containerd") is None
    tree.program("/usr/local/bin/containerd")
    assert tree.files.find_program("containerd") == "/usr/local/bin/containerd"


def test_the_running_host(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("text")

    files = HostFiles()

    assert files.local
    assert files.resolve(f"{tmp_path}/link") == os.path.realpath(tmp_path / "file")
    assert files.resolve(f"{tmp_path}/none") is None
    assert files.link_name(f"{tmp_path}/link") == "file"
    assert files.link_name(f"{tmp_path}/file") is None
    assert not HostFiles(str(tmp_path)).local
