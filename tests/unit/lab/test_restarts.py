# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What C(tests/lab/restarts.py) counts of a journal."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.tests.lab import restarts

STARTED, STOPPING, FAILED = restarts._STARTED, restarts._STOPPING, "be02cf6855d2428ba40df7e92d022f03"
UNIT, OTHER = "containerd.service", "nvidia-persistenced.service"


def entries(*given):
    return [{"_BOOT_ID": boot, "MESSAGE_ID": message, "UNIT": unit} for boot, message, unit in given]


@pytest.mark.parametrize(
    "given, counted",
    [
        ((), {}),
        ([("a", STARTED, OTHER), ("a", STOPPING, OTHER)], {}),
        ([("a", STOPPING, UNIT), ("a", STARTED, UNIT)], {UNIT: 1}),
        ([("a", STOPPING, UNIT), ("a", STARTED, UNIT)] * 2, {UNIT: 2}),
        # It was dead; it does not come up, and systemd tries again.
        ([("a", STARTED, UNIT)], {UNIT: 1}),
        ([("a", STOPPING, UNIT), ("a", FAILED, UNIT), ("a", FAILED, UNIT)], {UNIT: 1}),
        # A boot stops and starts everything once.
        ([("a", STOPPING, UNIT), ("b", STARTED, UNIT)], {restarts.HOST: 1}),
        (
            [("a", STOPPING, UNIT), ("b", STARTED, UNIT), ("b", STOPPING, UNIT), ("c", STARTED, UNIT)],
            {restarts.HOST: 2},
        ),
        ([("b", STARTED, UNIT), ("b", STOPPING, UNIT), ("b", STARTED, UNIT)], {restarts.HOST: 1, UNIT: 1}),
        (
            [("a", STOPPING, UNIT), ("a", STARTED, UNIT), ("a", STOPPING, UNIT), ("b", STARTED, UNIT)],
            {restarts.HOST: 1, UNIT: 1},
        ),
    ],
)
def test_restarts_are_counted_beside_boots(given, counted):
    assert restarts.count(entries(*given), "a") == counted
