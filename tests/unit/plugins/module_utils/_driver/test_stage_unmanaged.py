# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage


def test_a_driver_of_somebody_else_is_left_alone():
    planned = stage({}, {"nvidia_driver_state": "unmanaged"})
    assert not planned.needed
    assert not planned.steps
