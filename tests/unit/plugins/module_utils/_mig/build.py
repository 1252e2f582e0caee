# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Short ways to write down instances and desired states in tests."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS, board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import (
    ComputeInstance,
    DesiredGpu,
    DesiredInstance,
    GpuInstance,
    parse,
)

H100 = board("h100-80gb-sxm").profiles
PLACED = [one for one in BOARDS if one.mig and all(profile.placements for profile in one.profiles)]


def instance(profile, start, size, number=None, compute=None, busy=()):
    """Return an instance that one compute instance fills, or with compute instances of these slices."""
    slices = (parse(profile).gpu_slices,) if compute is None else compute
    return GpuInstance(
        id=start + 7 if number is None else number,
        profile=profile,
        start=start,
        size=size,
        compute=tuple(
            one if isinstance(one, ComputeInstance) else ComputeInstance(i, one) for i, one in enumerate(slices)
        ),
        busy=tuple(busy),
    )


def desired(counts=None, **parts):
    """Return a desired state by counts of whole instances; C(None) is MIG off."""
    if counts is None and not parts:
        return DesiredGpu(False)
    whole = [
        DesiredInstance(name, (parse(name).gpu_slices,)) for name, count in (counts or {}).items() for _ in range(count)
    ]
    return DesiredGpu(True, tuple(sorted(whole)))


def instances_of(layout, profiles, busy=frozenset()):
    """Return the instances of an oracle's layout; those in busy have a user."""
    sizes = {profile.name: profile.placements.size for profile in profiles}
    return [
        instance(name, start, sizes[name], number, busy=("job",) if (name, start) in busy else ())
        for number, (name, start) in enumerate(sorted(layout), start=1)
    ]
