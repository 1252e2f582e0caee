# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is opened is a regular file, and where a file is the collection's own, no link to one."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles

PLUGINS = Path(__file__).parents[5] / "plugins"


def _make(path, kind):
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    elif kind == "directory":
        path.mkdir()
    elif kind == "link to a fifo":
        os.mkfifo(path.with_name("target"))
        path.symlink_to("target")


@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "link to a fifo", "nothing"])
def test_nothing_but_files_is_read(tmp_path, kind):
    path = tmp_path / "file"
    _make(path, kind)
    for links in (True, False):
        assert files.read_text(str(path), links) is None
        assert files.read_bytes(str(path), links) is None
    assert HostFiles().read(str(path)) is None
    assert HostFiles(str(tmp_path)).read("/file") is None


def test_a_link_is_followed_to_files_of_the_system_alone(tmp_path):
    (tmp_path / "target").write_bytes(b" \xff\n")
    (tmp_path / "link").symlink_to("target")
    assert files.read_text(str(tmp_path / "link")) == "\ufffd"
    assert files.read_bytes(str(tmp_path / "link")) == b" \xff\n"
    assert files.read_text(str(tmp_path / "link"), links=False) is None
    assert files.read_text(str(tmp_path / "target"), links=False) == "\ufffd"


@pytest.mark.parametrize("kind", ["fifo", "device", "link", "dangling link", "same link"])
@pytest.mark.parametrize("write", ["write_whole", "write_parts"])
def test_what_is_in_the_place_of_a_file_is_replaced(tmp_path, kind, write):
    path, other = tmp_path / "file", tmp_path / "other"
    other.write_text("new" if kind == "same link" else "theirs")
    if "link" in kind:
        path.symlink_to(tmp_path / "none" if kind == "dangling link" else other)
    else:
        _make(path, kind)
    before = other.read_text()
    content = b"new" if write == "write_whole" else (b"ne", b"w")
    assert getattr(files, write)(str(path), content)
    assert path.read_text() == "new" and not path.is_symlink() and path.is_file()
    assert other.read_text() == before and not (tmp_path / "none").exists()
    assert not getattr(files, write)(str(path), content)


def test_nothing_else_opens_files():
    """What is left opens no file that another could have put there."""
    own = {
        "module_utils/_adapters/files.py": "the functions themselves, and the lock, which it makes, without following a link",
        "module_utils/_mig/journal.py": "the journal, to which it appends, without following a link",
        "module_utils/_facts/health.py": "the kernel's log, which is a device",
        "module_utils/_runtime/engines.py": "writes into a temporary directory that it has made",
        "plugin_utils/cluster_lease.py": "files of /proc",
        "plugin_utils/lease_renewal.py": "makes a file that must not exist",
        "doc_fragments/variables.py": "files of the collection's roles",
        "plugin_utils/role_variables.py": "files of the collection's roles",
        "plugin_utils/host_program.py": "files of the collection, pynvml as it is installed, and a temporary file that it has made",
    }
    found = {str(path.relative_to(PLUGINS)) for path in PLUGINS.rglob("*.py") if any(map(_opens, _calls(path)))}
    assert found == set(own)


def _calls(path):
    return (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))


def _opens(call):
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    name, of = getattr(call.func, "attr", ""), getattr(call.func, "value", None)
    # Of pathlib, they take no path.
    return (name == "open" and getattr(of, "id", "") in ("os", "io")) or (
        name in ("read_text", "read_bytes") and not call.args
    )


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
