# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.deb_versions import deb_compare
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.floors import FLOORS, shortfall, warnings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.versions import (
    branch_of,
    driver_key,
    driver_version_in,
    is_branch,
    is_driver_version,
    nearest,
    newest,
)


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
    assert branch_of("595.71.05") == 595
    with pytest.raises(ValueError, match="not a driver version"):
        driver_key("580")


@pytest.mark.parametrize(("text", "yes"), [("580", True), ("58", False), ("580.1", False), ("080", False)])
def test_branches(text, yes):
    assert is_branch(text) is yes
    assert not is_driver_version(text) or text == "580.1"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("580.140.01", "580.159.03"), ("580.200.01", "580.159.03"), ("600.1.1", "595.71.05")],
)
def test_the_nearest_version(wanted, expected):
    assert nearest(wanted, ["580.126.09", "580.159.03", "595.71.05"]) == expected


def test_nothing_is_nearest_to_anything_in_an_empty_repository():
    assert nearest("580.140.01", []) is None


@pytest.mark.parametrize(
    ("left", "right", "sign"),
    [
        ("1.0", "1.0", 0),
        ("1.0-1", "1.0-2", -1),
        ("1:1.0", "2.0", 1),
        ("1.0~rc1", "1.0", -1),
        ("1.0-1~deb12u1", "1.0-1", -1),
        ("1.0+b1", "1.0", 1),
        ("580.65.06-1", "580.126.09-1", -1),
        ("1.0a", "1.0+", -1),
        ("535.309.01-0+deb12u1", "535.261.03-1", 1),
    ],
)
def test_debian_versions_are_ordered_as_policy_says(left, right, sign):
    order = deb_compare(left, right)
    assert (order > 0) - (order < 0) == sign
    assert (deb_compare(right, left) > 0) - (deb_compare(right, left) < 0) == -sign


@pytest.mark.parametrize("floor", FLOORS.values(), ids=str)
def test_a_floor_itself_is_allowed_and_anything_older_is_not(floor):
    assert shortfall(floor.version) is None
    reason, replacement = shortfall(f"{floor.branch}.10.01")
    assert floor.version in reason
    assert replacement == floor.version


@pytest.mark.parametrize(
    ("version", "replacement"), [("570.211.01", "580.159.03"), ("590.48.01", "595.71.05"), ("550.163.01", "580.159.03")]
)
def test_a_branch_without_fixes_is_below_whatever_its_version(version, replacement):
    reason, found = shortfall(version)
    assert "no security fixes any more" in reason
    assert found == replacement


def test_branches_newer_than_the_bulletin_have_no_floor():
    assert shortfall("610.57.04") is None
    assert shortfall("615.71.09") is None


def test_known_trouble_is_warned_of():
    assert "mix MIG slices" in warnings("570.133.20")[0]
    assert "ended in 2026-06" in warnings("535.309.01")[0]
    assert warnings("580.159.03") == ()
