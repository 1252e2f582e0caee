# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of GRUB's ways to another kernel is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.grub import Grub
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.kernel_update import plan_boot as plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind

OLD, NEW = "6.1.0-9-amd64", "6.1.0-50-amd64"
DEBIAN = Grub((OLD, NEW), NEW, "0", True, {OLD: f"a>b-{OLD}", NEW: f"a>b-{NEW}"}, False, "grub")
#: With entries of the Boot Loader Specification, which grub.cfg does not have.
RED_HAT = Grub((OLD, NEW), NEW, "saved", True, {}, True, "grub2")


@pytest.mark.parametrize(
    ("grub", "kind"),
    [
        (DEBIAN, Kind.BOOT_KERNEL_ONCE),
        (replace(DEBIAN, default="saved"), Kind.BOOT_KERNEL),
        (RED_HAT, Kind.BOOT_KERNEL),
        (replace(RED_HAT, program=None), Kind.BOOT_KERNEL),
        (replace(DEBIAN, default="saved", program="grub2"), Kind.BOOT_KERNEL),
        (replace(DEBIAN, following=None), Kind.BOOT_KERNEL_ONCE),
    ],
)
def test_the_old_kernel_is_booted_for_good_where_grub_keeps_it_and_else_once(grub, kind):
    found = plan(grub, OLD)
    assert [(step.kind, step.target) for step in found.steps] == [(kind, OLD)]
    assert found.after == {"boots_next": OLD}


def test_what_is_booted_anyway_takes_nothing():
    assert not plan(DEBIAN, NEW).changes


@pytest.mark.parametrize(
    ("grub", "release", "said"),
    [
        (DEBIAN, "5.10.0-1-amd64", "it is not installed; installed are 6.1.0-9-amd64, 6.1.0-50-amd64"),
        (replace(DEBIAN, program=None), OLD, "none of GRUB's programs"),
        (replace(DEBIAN, boots_once=False), OLD, "Set GRUB_DEFAULT=saved"),
        (replace(DEBIAN, entries={}), OLD, "has no entry for it"),
        (replace(DEBIAN, entries={}, default="saved"), OLD, "has no entry for it"),
        (replace(RED_HAT, default="0"), OLD, "Set GRUB_DEFAULT=saved"),
    ],
)
def test_where_grub_cannot_be_told_it_is_refused_with_the_reason(grub, release, said):
    with pytest.raises(Refused, match=said):
        plan(grub, release)
