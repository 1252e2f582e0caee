# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which versions may be released, and that the version stands where a release sets it. tools/release.sh itself runs in the tier importer, and signs."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
release = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(release)


@pytest.mark.parametrize(
    "version", ["1", "1.0", "v1.0.0", "1.0.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0+build", "latest", ""]
)
def test_what_is_no_semantic_version_is_refused(version):
    assert "is not a semantic version" in release.refusal(version, "0.1.0", [])


def test_versions_are_ordered_as_semver_orders_them():
    ordered = [
        "0.9.0",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.1",
        "1.10.0",
    ]
    assert sorted(set(ordered), key=release.order) == ordered


@pytest.mark.parametrize("version", ["1.0.0", "0.9.9", "1.0.0-rc.1"])
def test_a_version_that_is_not_newer_than_the_newest_tag_is_refused(version):
    assert "not newer than 1.0.0" in release.refusal(version, "0.1.0", ["v0.5.0", "v1.0.0", "unrelated"])


def test_the_version_that_is_prepared_can_be_released_once_and_an_older_one_cannot():
    assert release.refusal("1.0.0", "1.0.0", ["v0.9.0"]) == ""
    assert release.refusal("1.1.0", "1.0.0", ["v0.9.0"]) == ""
    assert "older than 1.0.0" in release.refusal("0.9.5", "1.0.0", ["v0.9.0"])


def test_the_version_is_set_everywhere_and_nowhere_else(tmp_path):
    for name in release.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    assert release.set_version(tmp_path, "7.8.9") == list(release.PLACES)
    for name in release.PLACES:
        before, after = ((folder / name).read_text(encoding="utf-8").splitlines() for folder in (ROOT, tmp_path))
        differing = [new for old, new in zip(before, after, strict=True) if old != new]
        assert differing and all("7.8.9" in line for line in differing), name


def test_a_place_without_the_version_is_named(tmp_path):
    for name in release.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    (tmp_path / "docs/scale.md").write_text("nothing\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"docs/scale\.md does not say"):
        release.set_version(tmp_path, "7.8.9")


def test_a_dirty_tree_is_refused_before_anything_is_made(tmp_path):
    copy = tmp_path / "copy"
    (copy / "tools").mkdir(parents=True)
    for name in ("tools/release.sh", "tools/release.py", "galaxy.yml"):
        shutil.copy(ROOT / name, copy / name)
    (copy / "tools/setup.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (copy / "tools/setup.sh").chmod(0o755)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run(["git", "init", "--quiet", copy], check=True)
    done = subprocess.run([copy / "tools/release.sh", "9.0.0"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "changes that are in no commit" in done.stderr
    assert not (copy / "build").exists()


def test_a_bill_of_materials_names_the_collection_and_what_it_needs():
    found = release.describe({"metadata": {}, "components": [{"name": "kubernetes"}]}, "1.2.3", {"hami": "2.10.0"})
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    assert (found["metadata"]["component"]["name"], found["metadata"]["component"]["version"]) == ("nvidia", "1.2.3")
    assert {item["name"] for item in found["components"]} == {"kubernetes", "hami", *galaxy["dependencies"]}


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """A throwaway key, as gpg finds it."""
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    made = ["gpg", "--batch", "--passphrase", "", "--quick-gen-key", "release@example.com", "ed25519", "sign", "1d"]
    subprocess.run(made, check=True, capture_output=True)
    yield "release@example.com"
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)


def sign(*arguments):
    return subprocess.run([ROOT / "tools/sign.sh", *arguments], capture_output=True, text=True, check=False)


def test_the_checksums_are_signed(tmp_path, keys):
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("0  a\n")
    assert sign("--check", keys).returncode == 0
    done = sign(keys, str(sums))
    assert done.returncode == 0, done.stderr
    verify = ["gpg", "--batch", "--verify", f"{sums}.asc", str(sums)]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0
    sums.write_text("1  a\n")
    assert subprocess.run(verify, capture_output=True, check=False).returncode != 0, "what was changed afterwards"


@pytest.mark.parametrize(
    ("given", "options"),
    [(["SIGN=KEY"], ' --sign "KEY"'), (["WRITE=yes", "SIGN=a b"], ' --write --sign "a b"'), ([], "")],
)
def test_make_hands_the_key_on(given, options):
    command = ["make", "--no-print-directory", "--dry-run", "-C", str(ROOT), "release", "VERSION=1.2.0", *given]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert " ".join(shown.split()) == " ".join(f'tools/release.sh "1.2.0"{options}'.split())


@pytest.mark.usefixtures("keys")
def test_without_the_key_nothing_is_made(tmp_path):
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("0  a\n")
    for arguments in (("--check", "other@example.com"), ("other@example.com", str(sums))):
        done = sign(*arguments)
        assert done.returncode == 2 and "no secret key other@example.com" in done.stderr
    assert not (tmp_path / "SHA256SUMS.asc").exists()
    # A release looks for it first.
    text = (ROOT / "tools/release.sh").read_text(encoding="utf-8")
    assert text.index("tools/sign.sh --check") < text.index("\n    make test-all") < text.index('tools/sign.sh "$key"')
    done = subprocess.run([ROOT / "tools/release.sh", "9.0.0", "--sign"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "SIGN=KEYID" in done.stderr
