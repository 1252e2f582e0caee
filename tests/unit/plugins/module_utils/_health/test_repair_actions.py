# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is done after each error of NVIDIA's catalogue, written out by number: a row that changes there has to be looked at here."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import RECOVERY_ACTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import Sxid, Xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import (
    STRONGER,
    Action,
    of_recovery,
    of_sxid,
    of_xid,
    strongest,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid_catalogue import CATALOGUE


def numbers(text):
    """Read C(1-3, 5)."""
    found = []
    for part in text.split(","):
        low, _dash, high = part.strip().partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


TABLE = {
    Action.RESET_GPU: "46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143-150, 155, 156, 158, 159",
    Action.REBOOT: "79, 151",
    Action.HAND_OVER: (
        "1-7, 9, 10, 12, 15-24, 26-30, 33-36, 42, 47, 49-59, 61, 65, 73, 81, 87, 90, 91, 111-118, 122-125, 138, 142"
    ),
    Action.NOTHING: (
        "8, 11, 13, 14, 25, 31, 32, 37-41, 43-45, 60, 63, 66-72, 75-78, 80, 82-86, 88, 89, 92-94, 96-108, 121, 126-135, 137, 139, 141, "
        "152, 153, 157, 160-172"
    ),
}
EXPECTED = {number: action for action, text in TABLE.items() for number in numbers(text)}


@pytest.mark.parametrize("number", sorted(set(CATALOGUE) - {154}))
def test_every_xid_of_the_catalogue(number):
    assert of_xid(Xid(number, "0000:18:00", "pid=1, name=x")) is EXPECTED[number]


def test_the_table_has_no_other_numbers():
    assert set(EXPECTED) == set(CATALOGUE) - {154}
    assert sum(len(numbers(text)) for text in TABLE.values()) == len(EXPECTED)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", Action.RESET_GPU),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", Action.REBOOT),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", Action.NOTHING),
        ("GPU recovery action changed from 0x0 (None) to 0x63 (something new)", Action.HAND_OVER),
        ("a text that nobody knows", Action.HAND_OVER),
    ],
)
def test_xid_154_says_what_the_driver_asks_for(text, action):
    assert of_xid(Xid(154, "0000:18:00", text)) is action


def test_nvlink_5_tells_whether_it_is_fatal():
    text = "RLW_REMAP {} XC0 i0 Link 00 (0x00000004 0x00000000)"
    assert of_xid(Xid(145, "0000:18:00", text.format("Nonfatal"))) is Action.NOTHING
    assert of_xid(Xid(145, "0000:18:00", text.format("Fatal"))) is Action.RESET_GPU


def test_an_xid_that_the_catalogue_lacks_is_not_harmless():
    assert of_xid(Xid(999, "0000:18:00", "")) is Action.HAND_OVER


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("none", Action.NOTHING),
        ("gpu_reset", Action.RESET_GPU),
        ("node_reboot", Action.REBOOT),
        ("drain_p2p", Action.DRAIN),
        ("drain_and_reset", Action.RESET_GPU),
        ("recover_imex_domain", Action.HAND_OVER),
        ("bus_reset", Action.REBOOT),
        ("system_reboot", Action.HAND_OVER),
        ("value_9", Action.HAND_OVER),
    ],
)
def test_what_the_driver_asks_for(name, action):
    assert of_recovery(name) is action


def test_every_recovery_action_is_known():
    assert all(of_recovery(name) is Action.HAND_OVER for name in ("", "value_8"))
    assert len(RECOVERY_ACTIONS) == 8, "a new one has to be looked at"


@pytest.mark.parametrize(
    ("number", "text", "action"),
    [
        (12028, "Non-fatal, Link 32 egress non-posted PRIV error (First)", Action.NOTHING),
        (20034, "Fatal, Link 30 LTSSM Fault Up", Action.RESET_GPU),
        (22003, "Non-fatal, whatever it says", Action.REBOOT),
        (31337, "", Action.RESET_GPU),
    ],
)
def test_sxids(number, text, action):
    assert of_sxid(Sxid(number, "0000:05:00.0", text)) is action


def test_an_action_that_did_not_help_is_followed_by_a_stronger_one():
    for action, stronger in STRONGER.items():
        assert stronger.rank > action.rank or action is stronger is Action.HAND_OVER
    assert strongest([]) is Action.NOTHING
    assert strongest([Action.RESET_GPU, Action.HAND_OVER, Action.DRAIN]) is Action.HAND_OVER
