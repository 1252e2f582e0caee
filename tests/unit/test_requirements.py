# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is installed for development is locked, with the hashes of its files, and is what requirements/*.in and meta/ee-requirements.txt name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "requirements"
NAMES = sorted(path.stem for path in FOLDER.glob("*.in"))
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def named(path: Path) -> tuple[dict[str, Requirement], dict[str, Requirement]]:
    """Return what a file asks for, and what it only constrains, by name."""
    asked: dict[str, Requirement] = {}
    constrained: dict[str, Requirement] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        # A lock may be what another list is constrained by.
        text = line.partition("#")[0].rstrip("\\ \n").strip()
        if text.startswith("--hash="):
            continue
        if text.startswith(("-r ", "-c ")):
            others, limits = named(path.parent / text[3:])
            (asked if text.startswith("-r ") else constrained).update(others)
            constrained.update(limits)
        elif text:
            requirement = Requirement(text)
            asked[canonicalize_name(requirement.name)] = requirement
    return asked, constrained


def locked(name: str) -> list[tuple[Requirement, str]]:
    """Return every entry of a lock file, with the lines below it."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    return [(Requirement(entry.partition("\\")[0].strip()), entry.partition("\\")[2]) for entry in entries]


def test_every_list_is_locked():
    assert NAMES
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_package_is_one_version_with_the_hashes_of_its_files(name):
    for requirement, below in locked(name):
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert _HASH.findall(below), f"{requirement} has no hash"
        rest = re.sub(r"\s*#.*", "", _HASH.sub("", below))
        assert not re.sub(r"[\s\\]", "", rest), f"{requirement}: what is {rest!r}?"


@pytest.mark.parametrize("name", NAMES)
def test_the_lock_is_of_what_is_named(name):
    """Otherwise: tools/lock.sh."""
    asked, constrained = named(FOLDER / f"{name}.in")
    direct = set()
    for requirement, below in locked(name):
        package = canonicalize_name(requirement.name)
        version = str(requirement.specifier)[2:]
        for wanted in (asked.get(package), constrained.get(package)):
            assert wanted is None or wanted.specifier.contains(version, prereleases=True), (
                f"{requirement} is not {wanted}"
            )
        if re.search(r"(via|#) +-r ", below):
            direct.add(package)
    assert direct == set(asked)


def test_a_lock_names_no_place_where_packages_come_from():
    """Each machine has its own registry; the hashes are what a file has to be, wherever it comes from."""
    for name in NAMES:
        text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
        assert "://" not in text
        assert not re.search(r"^\s*--?(?!hash)[a-z]", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("setup.sh", "development"),
        ("importer.sh", "importer"),
        ("eda.sh", "eda"),
        ("oldest-python.sh", "oldest-python"),
    ],
)
def test_the_scripts_install_nothing_else(script, name):
    text = (REPOSITORY / "tools" / script).read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install [^;\n]*", text)
    assert installs
    assert all("--require-hashes" in line and f"requirements/{name}.txt" in line for line in installs)
