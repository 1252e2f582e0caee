# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The support matrix names tests that there are, every distribution that the planners know, and no mark that it does not explain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import RUNTIMES

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / "docs" / "support.md").read_text(encoding="utf-8")


def named_tests() -> list[tuple[str, str]]:
    """Every (file, test) that the matrix names; `::test` alone is of the file named before it."""
    found, path = [], ""
    for quoted in re.findall(r"`([^`]*::[^`]*)`", TEXT):
        before, _colons, name = quoted.partition("::")
        path = before or path
        found.append((path, name))
    return found


@pytest.mark.parametrize(("path", "name"), named_tests())
def test_every_test_that_is_named_exists(path, name):
    assert re.search(rf"^\s*def {name}\(", (REPOSITORY / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_mark_is_explained_and_used():
    explained = re.findall(r"^\| ([A-Z]\d) \|", TEXT, re.MULTILINE)
    assert len(explained) == len(set(explained))
    cells = [line for line in TEXT.splitlines() if line.startswith("|") and not re.match(r"\| [A-Z]\d \|", line)]
    assert {mark for line in cells for mark in re.findall(r"\b[A-Z]\d\b", line)} == set(explained)


@pytest.mark.parametrize(("identifier", "version"), DISTRIBUTIONS)
def test_every_distribution_has_a_row(identifier, version):
    names = {
        "debian": "Debian",
        "ubuntu": "Ubuntu",
        "rhel": "RHEL",
        "rocky": "Rocky",
        "almalinux": "Alma",
        "sles": "SLES",
        "ol": "Oracle Linux",
        "centos": "CentOS Stream",
        "fedora": "Fedora",
        "opensuse-leap": "openSUSE Leap",
        "amzn": "Amazon Linux",
    }
    name = names[identifier]
    rows = [line.split("|")[1] for line in TEXT.partition("## Driver")[2].splitlines() if line.startswith("|")]
    assert any(name in row and row.strip().endswith(version) for row in rows)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_runtime_has_a_row(runtime):
    rows = [line.split("|")[1].lower().replace("-", "") for line in TEXT.splitlines() if line.startswith("|")]
    assert any(runtime in row for row in rows)
