# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import from_options
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.floors import (
    BRANCHES,
    FLOORS,
    LTS,
    NEW_FEATURE,
    PRODUCTION,
    Branch,
    not_judged,
    shortfall,
    warnings,
    with_releases,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.driver_versions import (
    branch_of,
    driver_key,
    driver_version_in,
    is_branch,
    is_driver_version,
    nearest,
    newest,
)

REPOSITORY = Path(__file__).resolve().parents[5]


@pytest.mark.parametrize(
    ("package_version", "expected"),
    [
        ("580.126.09-1", "580.126.09"),
        ("580.126.09-1ubuntu1", "580.126.09"),
        ("580.178.04-0ubuntu0.24.04.1", "580.178.04"),
        ("3:580.126.09-1.el9", "580.126.09"),
        ("535.309.01-0+deb12u1", "535.309.01"),
        ("580.82.07_k5.14.21_150500.53-150600.3.1", "580.82.07"),
        ("565.77-0", "565.77"),
        ("1.20.0-1", None),
        ("6.8.0-40.40+1", None),
        ("1.2.2", None),
        ("20220217+3~deb12u1", None),
    ],
)
def test_the_driver_version_in_a_package_version(package_version, expected):
    assert driver_version_in(package_version) == expected


def test_driver_versions_are_compared_number_by_number():
    assert driver_key("580.65.06") < driver_key("580.126.09")
    assert newest(["580.65.06", "580.126.09", "nonsense"]) == "580.126.09"
    assert newest([]) is None
    assert branch_of("595.91.07") == 595
    with pytest.raises(ValueError, match="not a driver version"):
        driver_key("580")


@pytest.mark.parametrize(("text", "yes"), [("580", True), ("58", False), ("580.1", False), ("080", False)])
def test_branches(text, yes):
    assert is_branch(text) is yes
    assert not is_driver_version(text) or text == "580.1"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("580.140.01", "580.178.04"), ("580.200.01", "580.178.04"), ("600.1.1", "595.91.07")],
)
def test_the_nearest_version(wanted, expected):
    assert nearest(wanted, ["580.126.09", "580.178.04", "595.91.07"]) == expected


def test_nothing_is_nearest_to_anything_in_an_empty_repository():
    assert nearest("580.140.01", []) is None


@pytest.mark.parametrize("floor", FLOORS.values(), ids=str)
def test_a_floor_itself_is_allowed_and_anything_older_is_not(floor):
    assert shortfall(floor.version) is None
    assert not_judged(floor.branch) is None
    reason, replacement = shortfall(f"{floor.branch}.10.01")
    assert floor.version in reason
    assert f"bulletin {floor.bulletin} of {floor.date}" in reason
    assert replacement == floor.version


@pytest.mark.parametrize(
    ("branch", "version"), [(580, "580.178.04"), (595, "595.91.07"), (610, "610.57.04"), (615, "615.71.09")]
)
def test_the_floors_are_those_of_bulletin_5861(branch, version):
    assert (FLOORS[branch].version, FLOORS[branch].bulletin, FLOORS[branch].date) == (version, "5861", "2026-09-30")
    assert FLOORS[branch].source.startswith("NVIDIA/product-security 2026/5861/")


@pytest.mark.parametrize("version", ["580.159.03", "595.71.05", "610.43.02"])
def test_the_floors_of_the_bulletin_before_are_below(version):
    assert shortfall(version) is not None


@pytest.mark.parametrize(
    ("version", "replacement"),
    [
        ("535.309.01", "580.178.04"),
        ("550.163.01", "580.178.04"),
        ("570.211.01", "580.178.04"),
        ("575.57.08", "580.178.04"),
        ("590.48.01", "595.91.07"),
    ],
)
def test_a_branch_without_fixes_is_below_whatever_its_version(version, replacement):
    reason, found = shortfall(version)
    assert "no longer gets security fixes" in reason
    assert found == replacement


def test_a_branch_newer_than_the_bulletin_is_unknown_and_not_safe():
    assert shortfall("620.10.01") is None
    assert "names no branch newer than 615" in not_judged(620)
    assert not_judged(620) in warnings("620.10.01")
    assert not_judged(590) is None


def test_known_trouble_is_warned_of():
    assert "mix MIG slices" in warnings("570.133.20")[0]
    assert "ended in 2026-06" in warnings("535.309.01")[0]
    assert warnings("595.91.07", month="2027-02") == ()
    assert "ended in 2027-03" in warnings("595.91.07", month="2027-03")[0]
    assert warnings("580.178.04", month="2026-11") == ()


def test_the_branches_are_those_of_nvidias_page_of_branch_620():
    assert BRANCHES[620] == Branch("long-term support", "2029-09")
    assert (BRANCHES[580].end_of_life, BRANCHES[595]) == ("2028-06", Branch("production", "2027-03"))
    assert warnings("620.40.01", month="2029-08") == (not_judged(620),)
    assert "ended in 2029-09" in warnings("620.40.01", month="2029-09")[-1]


@pytest.mark.parametrize("branch", [610, 615])
def test_a_new_feature_branch_is_named_with_those_of_long_term_support(branch):
    (text,) = warnings(f"{branch}.99.99", month="2026-11")
    assert f"driver branch {branch} is a new-feature branch" in text and text.endswith("long-term support: 580, 620")
    assert warnings(f"{branch}.99.99", month="2028-07")[0].endswith("long-term support: 620")


def test_a_given_list_adds_branches_and_changes_kinds_and_keeps_the_ends_that_it_does_not_have():
    rows = [{"branch": 580, "kind": LTS}, {"branch": 615, "kind": PRODUCTION}, {"branch": 625, "kind": NEW_FEATURE}]
    branches = with_releases(rows)
    assert branches[580] == BRANCHES[580] and branches[620] == BRANCHES[620]
    assert warnings("615.99.99", branches=branches, month="2026-11") == ()
    assert "625 is a new-feature branch" in warnings("625.10.01", branches=branches, month="2026-11")[-1]
    # What was the end of a branch of another kind is none of the new one.
    assert with_releases([{"branch": 595, "kind": LTS}])[595] == Branch(LTS)
    assert from_options({"releases": rows}).branches == branches


def test_what_the_examples_and_the_documentation_recommend_is_not_below_the_floor():
    recommended = re.compile(r"nvidia_driver_version\"?\s*[:=]\s*[\"']?(\d{3}\.\d+(?:\.\d+)?)")
    texts = [
        path
        for folder in ("examples", "docs", "roles", "playbooks", "plugins")
        for path in (REPOSITORY / folder).rglob("*")
        # A transcript is what a run printed, whatever was recommended later.
        if path.suffix in (".md", ".yml", ".yaml", ".json", ".py", ".txt") and "transcripts" not in path.parts
    ]
    found = [(path, version) for path in texts for version in recommended.findall(path.read_text())]
    assert found
    assert [(path, version) for path, version in found if shortfall(version) is not None] == []


def test_the_documentation_of_the_role_has_every_floor():
    text = (REPOSITORY / "roles/nvidia_driver/README.md").read_text()
    assert [floor for floor in FLOORS.values() if f"| {floor.branch} | {floor.version} |" not in text] == []
