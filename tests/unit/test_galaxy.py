# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection's tarball holds what users need, and nothing that lies about in a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
#: What a checkout may hold beside its tracked files.
STRAYS = (
    ".env",
    "kubeconfig",
    "id_ed25519",
    "plugins/modules/.env",
    "roles/kubeconfig",
    "docs/notes.json",
    "my-hosts.yml",
    "roles/nvidia_driver/vault.yml",
    "roles/nvidia_driver/.vault_pass",
    "roles/vault.yml",
)
#: What git does not track, and galaxy.yml cannot tell from what belongs there.
UNTRACKED = (
    *STRAYS,
    "roles/nvidia_driver/vars/vault.yml",
    "playbooks/mine.yml",
    "plugins/modules/mine.py",
    "docs/customer.md",
    "examples/fleet/group_vars/all/vault.yml",
)


@pytest.fixture
def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name]


def _checkout(folder, tracked, strays):
    for name in tracked:
        if not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    for name in strays:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("secret\n")


@pytest.mark.slow
def test_only_what_is_named_is_packed(tmp_path, tracked):
    _checkout(tmp_path / "checkout", tracked, STRAYS)
    names = packed(
        tmp_path, Path(sys.executable).parent / "ansible-galaxy", "collection", "build", "--output-path", tmp_path
    )
    _check(names, STRAYS, tracked)
    (path,) = tmp_path.glob("gpufleet-nvidia-*.tar.gz")
    _installs_without_galaxy(path, tmp_path / "installed")


def packed(folder, *command):
    """Return the names in the tarball that a command writes into C(folder), where C(checkout) is."""
    subprocess.run(command, cwd=folder / "checkout", check=True, stdout=subprocess.DEVNULL)
    (path,) = folder.glob("gpufleet-nvidia-*.tar.gz")
    with tarfile.open(path) as found:
        return set(found.getnames())


def _check(names, strays, tracked):
    assert not names & set(strays)
    folders = (
        "changelogs/fragments",
        "charts",
        "docs",
        "examples",
        "extensions/eda",
        "meta",
        "playbooks",
        "plugins",
        "roles",
    )
    needed = {name for name in tracked if name.startswith(tuple(f"{folder}/" for folder in folders))}
    assert needed <= names, "what is in these folders and no directive of galaxy.yml names"
    assert {"README.md", "LICENSE", "MANIFEST.json", "FILES.json"} <= names
    assert not any(name.startswith(("tools/", ".ci", ".venv", "tests/unit")) for name in names)


@pytest.mark.slow
def test_a_tarball_is_made_of_what_git_tracks(tmp_path, tracked):
    checkout = tmp_path / "checkout"
    _checkout(checkout, tracked, ())
    (checkout / ".venv").symlink_to(REPOSITORY / ".venv")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    _checkout(checkout, (), UNTRACKED)
    names = packed(tmp_path, "tools/tarball.sh", tmp_path)
    _check(names, UNTRACKED, tracked)
    assert (
        not names
        - {*tracked, "MANIFEST.json", "FILES.json"}
        - {str(one) for name in tracked for one in Path(name).parents}
    )


def _installs_without_galaxy(tarball, folder):
    """The line of docs/air-gap.md, where no server of Galaxy answers and nothing else is installed."""
    page = (REPOSITORY / "docs" / "air-gap.md").read_text(encoding="utf-8")
    (given,) = re.findall(r"`ansible-galaxy (collection install) \./gpufleet-nvidia-\*\.tar\.gz`", page)
    program = Path(sys.executable).parent / "ansible-galaxy"
    alone = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    alone |= {"ANSIBLE_GALAXY_SERVER": "http://127.0.0.1:9/", "ANSIBLE_COLLECTIONS_PATH": str(folder)}
    done = subprocess.run(
        [program, *given.split(), tarball], env=alone, cwd=tarball.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [
        path.name for path in (folder / "ansible_collections").iterdir() if path.is_dir() and "." not in path.name
    ] == ["gpufleet"]


def test_no_other_collection_is_used():
    """Otherwise galaxy.yml names it, and every way to install without Galaxy has to bring it."""
    assert not yaml.safe_load((REPOSITORY / "galaxy.yml").read_text(encoding="utf-8"))["dependencies"]
    name = re.compile(r"^[ -]*(?:group/)?([a-z]\w*\.[a-z]\w*)\.\w+:", re.MULTILINE)
    used = {
        found
        for folder in ("playbooks", "roles")
        for path in (REPOSITORY / folder).rglob("*.yml")
        for found in name.findall(path.read_text(encoding="utf-8"))
    }
    assert used == {"ansible.builtin", "gpufleet.nvidia"}
