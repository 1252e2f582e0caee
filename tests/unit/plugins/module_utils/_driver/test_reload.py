# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the driver can be reloaded."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.reload import plan_reload, still_used
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import HOLDER, User


@pytest.mark.parametrize(
    ("changed", "needed", "blockers"),
    [
        ({"loaded": "1"}, False, 0),
        ({"loaded": "1", "other_flavour": True}, True, 0),
        ({"loaded": None}, True, 0),
        ({"loaded": None, "allowed": False}, True, 1),
        ({"loaded": "0", "users": (User(HOLDER, "nvidia-persistenced"[:15], 1),)}, True, 0),
        ({"loaded": "0", "users": (User(HOLDER, "python3", 1),), "allowed": False}, True, 2),
        ({"loaded": "1", "nouveau_loaded": True}, True, 1),
        ({"loaded": None, "wanted": None}, False, 0),
    ],
)
def test_reload_plans(changed, needed, blockers):
    base = {
        "loaded": None,
        "wanted": "1",
        "modules": ("nvidia",),
        "users": (),
        "active": ("nvidia-persistenced.service",),
        "nouveau_loaded": False,
        "allowed": True,
    }
    plan = plan_reload(**{**base, **changed})
    assert (plan.needed, len(plan.blockers)) == (needed, blockers)


def test_reference_counts_that_the_drivers_own_modules_explain():
    modules = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
    assert still_used({"nvidia": 3, "nvidia_modeset": 1, "nvidia_uvm": 0, "nvidia_drm": None}, modules) == ()
    assert still_used({"nvidia": 4, "nvidia_modeset": 1, "nvidia_uvm": 1, "nvidia_drm": 0}, modules) == (
        "nvidia_uvm has 1 users, 0 of them modules of the driver",
        "nvidia has 4 users, 3 of them modules of the driver",
    )
