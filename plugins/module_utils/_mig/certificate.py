# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why an instance must go: the part of a plan that lets a person check its cost without trusting the planner.

The layouts that are looked at are all layouts of the request that keep the pinned (busy) instances. For every instance
that is destroyed the certificate says how many of them have it at its place, what else they put there, and how many
instances the best layout that keeps it would destroy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .geometry import Geometry, bits
from .model import GpuInstance, describe

MODE_OFF = "mode_off"
NOT_REQUESTED = "not_requested"
PLACE_NEEDED = "place_needed"
COSTS_MORE = "costs_more"
SURPLUS = "surplus"


@dataclass(frozen=True)
class Certificate:
    """Why one instance is destroyed.

    :param kind: C(mode_off): MIG is switched off. C(not_requested): the request has no instance of this profile.
        C(place_needed): every layout puts something else there. C(costs_more): every layout that keeps it destroys more
        instances. C(surplus): keeping it costs as much, because another instance would have to go in its place, or the
        wanted instances of its profile are busy ones elsewhere.
    :param layouts_with_it: how many of them have the instance at its place.
    :param fewest_destroyed_keeping_it: how many the best layout that keeps it destroys, or None when none keeps it.
    :param occupants: what the layouts put on its units, by profile: in how many layouts.
    """

    kind: str
    text: str
    layouts: int = 0
    layouts_with_it: int = 0
    fewest_destroyed: int = 0
    fewest_destroyed_keeping_it: int | None = None
    occupants: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def certify(
    instance: GpuInstance,
    slot: int,
    shape: Geometry,
    request: dict[str, int],
    layouts: Sequence[int],
    existing: int,
    total: int,
    kept: int,
) -> Certificate:
    """Return why an instance goes.

    :param layouts: the layouts of the request that keep the pinned instances.
    :param existing: the slots of all instances that exist.
    """
    wanted = describe(request)
    destroyed = total - kept
    if not request.get(instance.profile):
        text = f"{wanted} has no {instance.profile}: none of its layouts keeps this instance"
        return Certificate(NOT_REQUESTED, text, len(layouts), 0, destroyed)
    units = ((1 << instance.size) - 1) << instance.start
    keeping = [layout for layout in layouts if layout & slot]
    if not keeping:
        occupants: Counter[str] = Counter()
        free = 0
        for layout in layouts:
            there = {shape.profiles[other.profile].name for other in shape.slots_of(layout) if other.units & units}
            occupants.update(there)
            free += not there
        if free:
            # An instance of this profile that could move here would have given a layout that keeps this one.
            text = f"all {instance.profile} of {wanted} are instances in use elsewhere, which stay; this one is surplus"
            return Certificate(SURPLUS, text, len(layouts), 0, destroyed, None, dict(occupants))
        what = ", ".join(f"{name} in {count}" for name, count in occupants.most_common())
        where = (
            f"unit {instance.start}"
            if instance.size == 1
            else (f"units {instance.start} to {instance.start + instance.size - 1}")
        )
        text = f"every layout of {wanted} ({len(layouts)}) needs {where} for something else: {what}"
        return Certificate(PLACE_NEEDED, text, len(layouts), 0, destroyed, None, dict(occupants))
    best = total - max(bits(layout & existing) for layout in keeping)
    if best > destroyed:
        text = (
            f"{len(keeping)} of {len(layouts)} layouts of {wanted} keep it, and each of them destroys at least {best} "
            f"instances where this plan destroys {destroyed}"
        )
        return Certificate(COSTS_MORE, text, len(layouts), len(keeping), destroyed, best)
    text = (
        f"at least {destroyed} of the {total} instances must go for {wanted}; keeping this one would cost another, and "
        "destroying it disturbs the least and leaves the most room"
    )
    return Certificate(SURPLUS, text, len(layouts), len(keeping), destroyed, best)
