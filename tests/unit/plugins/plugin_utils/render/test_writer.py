# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is written, removed, left alone, and refused."""

from __future__ import annotations

import json
import os
import stat

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import writer

TREES = {"clusters/a": {"one.yaml": "1\n", "folder/two.yaml": "2\n"}}


def run(root, trees=None, prune=True, removed=()):
    changes = writer.plan(str(root), TREES if trees is None else trees, prune, removed)
    if not any(change.edited for change in changes):
        writer.apply(str(root), changes)
    return [(change.action, change.path) for change in changes]


def edited(root, trees=None):
    return [change.path for change in writer.plan(str(root), TREES if trees is None else trees, True) if change.edited]


def test_a_second_run_touches_nothing(tmp_path):
    assert len(run(tmp_path)) == 3
    before = {path: os.stat(path).st_mtime_ns for path in tmp_path.rglob("*")}
    assert run(tmp_path) == []
    assert {path: os.stat(path).st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_only_what_changed_is_written(tmp_path):
    run(tmp_path)
    trees = {"clusters/a": {**TREES["clusters/a"], "one.yaml": "new\n"}}
    assert run(tmp_path, trees) == [("update", "clusters/a/manifest.json"), ("update", "clusters/a/one.yaml")]


def test_a_program_can_be_run_and_is_written_again_where_it_cannot(tmp_path):
    trees = {"slurm/a": {"task-prolog.sh": "#!/bin/sh\n", "nodes.conf": "# text\n"}}
    run(tmp_path, trees)
    program, text = (tmp_path / "slurm/a" / name for name in ("task-prolog.sh", "nodes.conf"))
    assert [stat.S_IMODE(path.stat().st_mode) for path in (program, text)] == [0o755, 0o644]
    program.chmod(0o644)
    assert run(tmp_path, trees) == [("update", "slurm/a/task-prolog.sh")]
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    assert run(tmp_path, trees) == []


def test_what_is_described_no_more_is_removed_with_its_folder(tmp_path):
    run(tmp_path)
    (tmp_path / "clusters/a/mine.txt").write_text("not ours")
    assert ("remove", "clusters/a/folder/two.yaml") in run(tmp_path, {"clusters/a": {"one.yaml": "1\n"}})
    assert not (tmp_path / "clusters/a/folder").exists()
    assert (tmp_path / "clusters/a/mine.txt").read_text() == "not ours"


def test_a_cluster_of_another_inventory_stays_until_it_is_named(tmp_path):
    other = {"clusters/b": {"three.yaml": "3\n"}}
    run(tmp_path)
    assert writer.other_clusters(str(tmp_path), ["clusters/b"]) == ["a"]
    assert writer.other_clusters(str(tmp_path), ["clusters/a"]) == []
    assert {path for _action, path in run(tmp_path, other)} == {"clusters/b/manifest.json", "clusters/b/three.yaml"}
    assert (tmp_path / "clusters/a/one.yaml").exists()
    assert len(run(tmp_path, other, prune=False, removed=["clusters/a"])) == 3
    assert not (tmp_path / "clusters/a").exists()
    assert run(tmp_path, other) == []


def test_a_cluster_whose_files_were_changed_is_not_removed_in_silence(tmp_path):
    run(tmp_path)
    (tmp_path / "clusters/a/one.yaml").write_text("by hand\n")
    changes = writer.plan(str(tmp_path), {}, True, ["clusters/a"])
    assert [change.path for change in changes if change.edited] == ["clusters/a/one.yaml"]


@pytest.mark.parametrize(
    ("folder", "refused"),
    [
        ("inventory/gitops", True),
        ("inventory", True),
        ("inventory/group_vars/gitops", True),
        ("linked/gitops", True),
        ("inventory/.gitops", False),
        ("inventory/gitops.cfg", False),
        ("gitops", False),
        ("inventory-of-others/gitops", False),
        ("file.yml.d/gitops", False),
    ],
)
def test_a_tree_that_ansible_would_read_as_groups_is_refused(tmp_path, folder, refused):
    (tmp_path / "inventory").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "inventory")
    (tmp_path / "file.yml").write_text("gpu_hosts: {}\n")
    sources = [str(tmp_path / "inventory"), str(tmp_path / "file.yml"), "gpu-1,gpu-2,"]
    if not refused:
        writer.refuse_in_inventory(str(tmp_path / folder), writer.VARIABLE, sources)
        return
    with pytest.raises(Refused, match=r"gpu_kubernetes_output_directory: .* is inside the inventory"):
        writer.refuse_in_inventory(str(tmp_path / folder), writer.VARIABLE, sources)


def test_nothing_is_removed_without_prune(tmp_path):
    run(tmp_path)
    assert run(tmp_path, {}, prune=False) == []
    assert run(tmp_path, {"clusters/a": {"one.yaml": "1\n"}}, prune=False) == [("update", "clusters/a/manifest.json")]


def test_a_change_by_hand_is_found_wherever_it_would_be_lost(tmp_path):
    run(tmp_path)
    path = tmp_path / "clusters/a/one.yaml"
    path.write_text("by hand\n")
    assert edited(tmp_path) == ["clusters/a/one.yaml"]
    assert edited(tmp_path, {"clusters/a": {}}) == ["clusters/a/one.yaml"]
    path.write_text("1\n")
    assert edited(tmp_path) == []


def test_a_file_that_is_not_ours_is_not_overwritten(tmp_path):
    (tmp_path / "clusters/a").mkdir(parents=True)
    (tmp_path / "clusters/a/one.yaml").write_text("somebody's\n")
    assert edited(tmp_path) == ["clusters/a/one.yaml"]


def test_a_removed_file_comes_back(tmp_path):
    run(tmp_path)
    (tmp_path / "clusters/a/one.yaml").unlink()
    assert run(tmp_path) == [("create", "clusters/a/one.yaml")]


@pytest.mark.parametrize("number", range(4))
def test_a_run_that_was_cut_off_can_be_repeated_even_after_another_change(tmp_path, monkeypatch, number):
    run(tmp_path)
    second = {"clusters/a": {"one.yaml": "second\n", "three.yaml": "3\n"}}
    written = []

    def cut_off(path, text, *mode):
        if len(written) == number:
            raise KeyboardInterrupt
        written.append(path)
        return original(path, text, *mode)

    original = writer.write_whole
    monkeypatch.setattr(writer, "write_whole", cut_off)
    with pytest.raises(KeyboardInterrupt):
        writer.apply(str(tmp_path), writer.plan(str(tmp_path), second, True))
    monkeypatch.setattr(writer, "write_whole", original)
    third = {"clusters/a": {"one.yaml": "third\n", "four.yaml": "4\n"}}
    assert not edited(tmp_path, third)
    run(tmp_path, third)
    assert run(tmp_path, third) == []
    left = sorted(path.name for path in (tmp_path / "clusters/a").rglob("*") if path.is_file())
    assert left == ["four.yaml", "manifest.json", "one.yaml"]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"files": {"a": null, "b": "x"}}', '{"files": {"../../etc/passwd": "x", "/etc/passwd": "x"}}'],
)
def test_a_damaged_manifest_removes_nothing(tmp_path, content):
    (tmp_path / "clusters/a").mkdir(parents=True)
    (tmp_path / "clusters/a/manifest.json").write_text(content)
    changes = writer.plan(str(tmp_path), TREES, True)
    assert not [change for change in changes if change.action == "remove"]


def test_the_manifest_names_every_file(tmp_path):
    run(tmp_path)
    names = json.loads((tmp_path / "clusters/a/manifest.json").read_text())["files"]
    assert set(names) == set(TREES["clusters/a"])


@pytest.mark.parametrize("link", ["clusters", "clusters/a", "clusters/a/folder"])
def test_nothing_is_written_or_removed_through_a_link(tmp_path, link):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    run(root)
    (root / link).rename(elsewhere)
    (root / link).symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    for trees in (TREES, {"clusters/a": {"one.yaml": "new\n"}}, {"clusters/b": {"one.yaml": "1\n"}}):
        with pytest.raises(Refused, match="it is a symbolic link to"):
            writer.plan(str(root), trees, True, ["clusters/a"] if "clusters/b" in trees else [])
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("place", "what"),
    [
        (place, what)
        for place in ("manifest.json", "one.yaml", "folder/two.yaml", "folder")
        for what in ("link", "dangling link", "fifo", "directory", "device")
        if (place, what) != ("folder", "directory")
    ],
)
def test_what_is_no_file_in_the_place_of_one_is_neither_read_nor_replaced(tmp_path, place, what):
    root, secret, path = tmp_path / "root", tmp_path / "secret", tmp_path / "root/clusters/a" / place
    run(root)
    secret.write_text("of somebody else")
    path.rename(tmp_path / "away")
    if "link" in what:
        path.symlink_to(secret if what == "link" else tmp_path / "none")
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    changed = {"clusters/a": {"one.yaml": "new\n", "folder/two.yaml": "new\n"}}
    for trees, removed in ((TREES, ()), (changed, ()), ({"clusters/b": {}}, ["clusters/a"])):
        # Of a cluster that is to be removed its manifest is read; its files are removed, whatever is in their place.
        if place == "manifest.json" or "clusters/a" in trees:
            with pytest.raises(
                Refused, match=r"it is (a symbolic link to|not a (regular file|directory)).*Remove it"
            ) as refusal:
                writer.plan(str(root), trees, True, removed)
            assert str(path) in refusal.value.message and "somebody else" not in refusal.value.message
    assert os.path.lexists(path) and secret.read_text() == "of somebody else"


def test_a_directory_that_cannot_be_written_is_refused_before_anything_else(tmp_path, monkeypatch):
    writer.refuse_unwritable(str(tmp_path / "not" / "there" / "yet"))
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Refused, match=r"gpu_kubernetes_output_directory: .*file is not a directory"):
            writer.refuse_unwritable(str(path))
    # To root, who runs tests, only a read-only file system says no.
    monkeypatch.setattr(writer.os, "access", lambda _path, _mode: False)
    with pytest.raises(Refused, match=f"user ID {os.geteuid()} may not write to {tmp_path}"):
        writer.refuse_unwritable(str(tmp_path / "output"))
