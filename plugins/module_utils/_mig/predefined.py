# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Predefined layouts, with the names and meanings that the GPU Operator's mig-manager gave them."""

from __future__ import annotations

from collections.abc import Sequence

from .._boards.board import GpuInstanceProfile
from .._plan import Refused
from .geometry import geometry
from .model import DesiredGpu, DesiredInstance
from .profiles import parse, resolve

ALL_DISABLED = "all-disabled"
ALL_ENABLED = "all-enabled"
ALL_BALANCED = "all-balanced"

# How many instances of how many slices all-balanced has, by the slices of the whole GPU. Source: [code] mig-parted
# deployments/systemd/config-default.yaml and generate-config; a GPU with other slices has no balanced layout there.
BALANCED: dict[int, tuple[tuple[int, int], ...]] = {7: ((3, 1), (2, 1), (1, 2)), 4: ((2, 1), (1, 2))}


def label(profile: str) -> str:
    """Return the name of the predefined layout of a profile: C(all-1g.10gb.me) for C(1g.10gb+me)."""
    return "all-" + profile.replace("+", ".")


def names(profiles: Sequence[GpuInstanceProfile]) -> list[str]:
    """Return the predefined layouts of a GPU."""
    return [ALL_DISABLED, ALL_ENABLED, ALL_BALANCED, *(label(profile.name) for profile in profiles)]


def layout(name: str, profiles: Sequence[GpuInstanceProfile], thing: str, of: str) -> DesiredGpu:
    """Return what a predefined layout makes of a GPU.

    :param name: C(all-disabled), C(all-enabled) (MIG on, no instances), C(all-balanced), or C(all-) and a profile
        (C(+) may be written as a dot): as many instances of it as the GPU holds.
    :param profiles: what the GPU offers.
    :param thing: the path into the user's variables.
    :param of: how the GPU is called.
    :raises Refused: for a name that this GPU has no layout for.
    """
    if name == ALL_DISABLED:
        return DesiredGpu(False)
    if name == ALL_ENABLED:
        return DesiredGpu(True)
    if name == ALL_BALANCED:
        return _balanced(profiles, thing, of)
    if not name.startswith("all-"):
        raise Refused(thing, f"{name!r} is not a predefined layout", f"{of} has: {', '.join(names(profiles))}.")
    by_label = {label(profile.name): profile for profile in profiles}
    profile = by_label.get(name) or resolve(_profile_of(name), profiles, thing, of)
    count = profile.max_instances
    shape = geometry(tuple(profiles))
    if profile.placements is not None:
        # Not every driver counts right (A30); no more are asked for than there are places.
        while count > 1 and not shape.layouts_of(shape.request({profile.name: count})):
            count -= 1
    return DesiredGpu(True, (DesiredInstance(profile.name, (profile.gpu_slices,)),) * count)


def _profile_of(name: str) -> str:
    """Return the profile that a name means: the first dot after C(gb) stands for a plus."""
    base, separator, attributes = name[len("all-") :].partition("gb.")
    return f"{base}gb+{attributes}" if separator else name[len("all-") :]


def plain_profile(slices: int, profiles: Sequence[GpuInstanceProfile]) -> GpuInstanceProfile | None:
    """Return the ordinary profile with this many slices: no attributes, and the least memory of those."""
    found = []
    for profile in profiles:
        parsed = parse(profile.name)
        if parsed.gpu_slices == slices and not parsed.added and not parsed.removed:
            found.append((parsed.memory_gb, profile))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _balanced(profiles: Sequence[GpuInstanceProfile], thing: str, of: str) -> DesiredGpu:
    whole = max((profile.gpu_slices for profile in profiles), default=0)
    chosen = []
    for slices, count in BALANCED.get(whole, ()):
        profile = plain_profile(slices, profiles)
        if profile is not None:
            chosen += [DesiredInstance(profile.name, (slices,))] * count
    if not chosen:
        raise Refused(
            thing,
            f"all-balanced is defined for GPUs with 4 or 7 slices, and {of} has {whole}",
            "Write the instances that you want.",
        )
    return DesiredGpu(True, tuple(sorted(chosen)))
