# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second, plain opinion on what fits on a GPU, written without the planner's code.

It walks over all sets of (profile, start) pairs with nothing but Python sets, and keeps those that obey the rules of
the MIG guide: units disjoint, no profile above its count, engines within what the whole GPU has. Slow and simple.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

ENGINES = ("decoders", "encoders", "jpeg", "ofa")


class Oracle:
    """Every layout of a table of profiles.

    A layout is a frozenset of (profile name, start); a request a frozenset of (profile name, count).
    """

    def __init__(self, profiles):
        self.profiles = {profile.name: profile for profile in profiles}
        self.places = [
            (profile.name, start, frozenset(range(start, start + profile.placements.size)))
            for profile in profiles
            if profile.placements is not None
            for start in profile.placements.starts
        ]
        whole = max(profiles, key=lambda profile: profile.gpu_slices)
        self.engines = {name: getattr(whole, name) for name in ENGINES if getattr(whole, name) is not None}
        self.layouts = defaultdict(list)
        self._walk(0, frozenset(), frozenset())

    def _walk(self, number, chosen, units):
        if number == len(self.places):
            self.layouts[self.request_of(chosen)].append(chosen)
            return
        self._walk(number + 1, chosen, units)
        name, start, own = self.places[number]
        bigger = chosen | {(name, start)}
        # Adding never repairs a broken rule, so what breaks one is not walked further.
        if not units & own and self.allowed(bigger):
            self._walk(number + 1, bigger, units | own)

    def allowed(self, layout):
        names = [name for name, _start in layout]
        if any(names.count(name) > self.profiles[name].max_instances for name in names):
            return False
        return all(
            sum(getattr(self.profiles[name], engine) or 0 for name in names) <= limit
            for engine, limit in self.engines.items()
        )

    @staticmethod
    def request_of(layout):
        names = [name for name, _start in layout]
        return frozenset((name, names.count(name)) for name in names)

    def fewest_destroyed(self, current, request, busy=frozenset()):
        """Return how many instances must go at least, or None when the request cannot be met with busy untouched."""
        kept = [len(layout & current) for layout in self.layouts.get(request, ()) if busy <= layout]
        return len(current) - max(kept) if kept else None

    def room(self, layout):
        """Return how many instances of each profile could be added alone, summed over the profiles."""
        total = 0
        for name in self.profiles:
            reached = {layout}
            while True:
                grown = {
                    one | {(name, start)}
                    for one in reached
                    for other, start, own in self.places
                    if other == name
                    and not own & self.units(one)
                    and self.allowed(one | {(name, start)})
                    and (name, start) not in one
                }
                if not grown:
                    break
                reached = grown
                total += 1
        return total

    def units(self, layout):
        return frozenset(unit for name, start, own in self.places if (name, start) in layout for unit in own)


@cache
def oracle(profiles):
    return Oracle(profiles)
