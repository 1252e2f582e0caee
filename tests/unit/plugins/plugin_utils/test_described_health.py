# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.described_health import described_health


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {}),
        ({"gpu_facts_gpus": [{"board": "t4", "count": "2"}, {"board": "l4", "count": 1}]}, {"gpus": 3}),
        (
            {"nvidia_driver_branch": 580, "nvidia_driver_flavour": "open"},
            {"driver_branch": "580", "driver_flavour": "open"},
        ),
        (
            {"nvidia_driver_branch": "580", "nvidia_driver_version": "595.91.07"},
            {"driver_version": "595.91.07"},
        ),
        ({"nvidia_driver_branch": "580", "nvidia_driver_state": "absent"}, {}),
        ({"nvidia_toolkit_version": "1.20.0", "nvidia_toolkit_cdi": True}, {}),
        ({"nvidia_health_dcgm_level": 0}, {}),
        ({"nvidia_health_dcgm_level": "2"}, {"accepted": True}),
        ({"nvidia_toolkit_version": "1.20.0", "nvidia_toolkit_runtime": "none"}, {}),
        (
            {"nvidia_toolkit_version": "1.20.0", "nvidia_toolkit_runtime": "containerd", "nvidia_toolkit_cdi": "yes"},
            {"toolkit_version": "1.20.0", "runtime": "containerd", "cdi": True},
        ),
    ],
)
def test_what_is_left_empty_or_switched_off_is_not_compared(variables, expected):
    assert described_health(variables) == expected
