# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a host from being rebooted."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.hardware import module_problem

NEW, VERSION = "6.1.0-51-amd64", "580.178.04"
GOOD = {"release": NEW, "version": VERSION, "vermagic": NEW}
SIGNED = {**GOOD, "signer": "DKMS module signing key", "key_enrolled": True}


@pytest.mark.parametrize(
    "driver",
    [
        {"on_disk_version": VERSION},
        {"on_disk_version": None, "next_kernel": {"release": NEW, "version": None}},
        {"on_disk_version": VERSION, "next_kernel": GOOD},
        {"on_disk_version": VERSION, "next_kernel": {**GOOD, "vermagic": None}},
        {"on_disk_version": VERSION, "next_kernel": SIGNED},
    ],
)
def test_a_host_may_be_rebooted(driver):
    assert module_problem(driver) is None


@pytest.mark.parametrize(
    ("found", "reason", "remedy"),
    [
        ({"release": NEW, "version": None}, "has no module of the driver", "dkms autoinstall"),
        ({**GOOD, "version": "570.1"}, "with driver 570.1, not 580.178.04", "dkms autoinstall"),
        ({**GOOD, "vermagic": "6.1.0-50-amd64"}, "was built for 6.1.0-50-amd64", "dkms autoinstall"),
        ({**SIGNED, "signer": None, "key_enrolled": False}, "is not signed", "mokutil --import"),
        (
            {**SIGNED, "key_enrolled": False},
            "key of DKMS module signing key, which is not enrolled",
            "mokutil --import",
        ),
        ({**SIGNED, "key_enrolled": None}, "not known whether it is enrolled", "mokutil and kmod"),
    ],
)
def test_a_kernel_that_cannot_load_the_driver_is_named_with_the_reason_and_a_remedy(found, reason, remedy):
    problem = module_problem({"on_disk_version": VERSION, "next_kernel": found})
    assert NEW in problem[0] and reason in problem[0]
    assert remedy in problem[1] and "grub-set-default" in problem[1]
