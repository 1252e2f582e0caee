# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan says of a reload of systemd, from facts alone. Pure.

Which containers lose their GPUs is known on the host only, where C(_runtime/unit_reload.py) refuses such a reload.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._facts_view import Facts, RuntimeFacts
from .._users import holders_of, named


def containers_at_risk(facts: Facts, runtime: str) -> str:
    """Return the programs in containers that use GPUs on a host whose runtime leaves cgroups to systemd; empty where there are none."""
    found = (facts.runtimes or {}).get(runtime, RuntimeFacts())
    if "systemd" not in (found.cgroup_drivers or {}).values():
        return ""
    return named(holders_of(one for one in facts.holders or () if one.container_id))


def refused_reload(facts: Facts, desired: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what to know before units of the collection change on a host; containers that got their GPUs by CDI keep them.

    :param desired: C(nvidia_toolkit_runtime) and C(nvidia_toolkit_device_injection).
    """
    if desired.get("nvidia_toolkit_device_injection") == "cdi":
        return ()
    named = containers_at_risk(facts, str(desired.get("nvidia_toolkit_runtime") or ""))
    if not named:
        return ()
    return (
        "if a unit changes that systemd already knows, systemd has to be reloaded, which takes the GPUs from containers that NVIDIA's hook gave them "
        f"to; the host refuses that while they run. Running in containers: {named}. Drain the host first, or have them stopped",
    )
