# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS, board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import (
    ProfileName,
    canonical,
    compute_name,
    parse,
    resolve,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1g.10gb", ProfileName(1, 10)),
        ("1c.3g.20gb", ProfileName(3, 20, 1)),
        ("3c.3g.20gb", ProfileName(3, 20)),
        ("1g.10gb+me", ProfileName(1, 10, None, ("me",))),
        ("1g.24gb+me.all", ProfileName(1, 24, None, ("me.all",))),
        ("1g.24gb+gfx", ProfileName(1, 24, None, ("gfx",))),
        ("1g.24gb+me,gfx", ProfileName(1, 24, None, ("gfx", "me"))),
        ("2g.48gb-me", ProfileName(2, 48, None, (), ("me",))),
        (" 1G.10GB+ME ", ProfileName(1, 10, None, ("me",))),
    ],
)
def test_names_of_the_grammar(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "1g", "g.10gb", "1g.10", "0g.10gb", "1g.10gb+", "1g.10gb+me-gfx", "1g.10gb+me,", "1c.1g", "all", None, 7],
)
def test_other_text_is_refused(text):
    with pytest.raises(Refused) as refused:
        parse(text, "nvidia_mig_layout[0].instances['x']")
    assert refused.value.thing == "nvidia_mig_layout[0].instances['x']"


def test_more_compute_than_gpu_slices_is_refused():
    with pytest.raises(Refused) as refused:
        parse("4c.3g.20gb")
    assert "4 of 3" in refused.value.reason


ATTRIBUTES = st.sampled_from([((), ()), (("me",), ()), (("me.all",), ()), (("gfx", "me"), ()), ((), ("me",))])


@given(st.integers(1, 8), st.integers(1, 999), st.integers(1, 8), ATTRIBUTES)
def test_every_name_reads_back_as_itself(slices, memory, compute, attributes):
    compute_slices = None if compute >= slices else compute
    name = ProfileName(slices, memory, compute_slices, *attributes)
    assert parse(str(name)) == name


@pytest.mark.parametrize("one", [one for one in BOARDS if one.mig], ids=lambda one: one.key)
def test_every_name_of_every_board_means_its_own_profile(one):
    for profile in one.profiles:
        assert str(parse(profile.name)) == profile.name
        assert resolve(profile.name, one.profiles) is profile
        assert resolve(f"1c.{profile.name}", one.profiles) is profile


@pytest.mark.parametrize(
    ("key", "asked", "meant"),
    [
        ("gb200-186gb", "1g.24gb", "1g.23gb"),
        ("gb200-186gb", "3g.95gb", "3g.93gb"),
        ("gb200-186gb", "7g.189gb", "7g.186gb"),
        ("gb200-186gb", "1g.24gb+me", "1g.23gb+me"),
        ("h100-80gb-sxm", "3g.39gb", "3g.40gb"),
        ("h100-80gb-sxm", "7g.79gb", "7g.80gb"),
        ("a100-40gb", "1g.10gb", "1g.10gb"),
    ],
)
def test_names_of_other_driver_releases_find_their_profile(key, asked, meant):
    assert resolve(asked, board(key).profiles).name == meant


@pytest.mark.parametrize(
    ("key", "asked", "near"),
    [
        ("h100-80gb-sxm", "1g.5gb", "1g.10gb"),
        ("h100-80gb-sxm", "2g.21gb", "2g.20gb"),
        ("h100-80gb-sxm", "1g.10gb+gfx", "1g.10gb"),
        ("a30-24gb", "1g.5gb", "1g.6gb"),
        ("a30-24gb", "7g.40gb", "4g.24gb"),
    ],
)
def test_names_of_other_boards_are_refused_with_the_nearest(key, asked, near):
    with pytest.raises(Refused) as refused:
        resolve(asked, board(key).profiles, of="GPU 0")
    assert refused.value.reason == f"GPU 0 has no MIG profile {asked}"
    assert refused.value.remedy.startswith(f"The nearest are {near}")


def test_a_board_without_profiles_says_so():
    with pytest.raises(Refused) as refused:
        resolve("1g.10gb", ())
    assert refused.value.remedy == "It has no MIG profiles at all."


def test_canonical_names():
    profiles = board("gb200-186gb").profiles
    assert canonical("1g.23gb", profiles) == "1g.23gb"
    assert canonical("1g.24gb", profiles) == "1g.23gb"
    assert canonical("1g.5gb", profiles) == "1g.5gb"


def test_names_of_compute_instances():
    assert compute_name("3g.20gb", 3) == "3g.20gb"
    assert compute_name("3g.20gb", 1) == "1c.3g.20gb"
