# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MIG profile names: C([Cc.]Gg.Mgb[+attribute[,attribute]|-attribute]), and which profile of a GPU a name means.

The memory part of a name is computed by NVIDIA's tools and changes between driver releases and board revisions
(GB200 printed C(1g.24gb) before it printed C(1g.23gb)). A name therefore finds its profile by slices, attributes and
the fraction of memory, and only when exactly one profile is close.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .._boards.board import GpuInstanceProfile
from .._plan import Refused

_NAME = re.compile(
    r"^(?:(?P<c>[1-9][0-9]{0,3})c\.)?(?P<g>[1-9][0-9]{0,3})g\.(?P<gb>[1-9][0-9]{0,5})gb"
    r"(?:\+(?P<plus>[a-z0-9.]+(?:,[a-z0-9.]+)*)|-(?P<minus>[a-z0-9.]+(?:,[a-z0-9.]+)*))?$"
)

# The names that drivers print for one profile of one chip differ by up to 4.3 % in what the sources show (GB200: 1g.24gb
# and 1g.23gb; 7g.79gb and 7g.80gb 1.3 %). Further away a name is of another board, or mistyped, and is refused.
_SAME_MEMORY = 0.045


@dataclass(frozen=True)
class ProfileName:
    """A profile name, taken apart.

    :param gpu_slices: the G of the name.
    :param memory_gb: the number before C(gb), a label of the vendor and not a measure.
    :param compute_slices: the C of the name, or None when the name means the whole GPU instance.
    :param added: attributes after C(+), sorted: C(me), C(me.all), C(gfx).
    :param removed: attributes after C(-), sorted: C(me).
    """

    gpu_slices: int
    memory_gb: int
    compute_slices: int | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def gpu_instance(self) -> str:
        """The name of the GPU instance profile, without the compute slices."""
        suffix = ""
        if self.added:
            suffix = "+" + ",".join(self.added)
        elif self.removed:
            suffix = "-" + ",".join(self.removed)
        return f"{self.gpu_slices}g.{self.memory_gb}gb{suffix}"

    @property
    def compute(self) -> int:
        """How many compute slices an instance of this name has."""
        return self.gpu_slices if self.compute_slices is None else self.compute_slices

    def __str__(self) -> str:
        return compute_name(self.gpu_instance, self.compute)


@lru_cache(maxsize=1024)
def parse(name: str, thing: str = "MIG profile") -> ProfileName:
    """Take a profile name apart.

    A compute instance that fills its GPU instance is the same as no compute part: C(3c.3g.20gb) equals C(3g.20gb).

    :param name: such as C(1g.10gb), C(1c.3g.20gb), C(1g.24gb+me.all), C(2g.48gb-me); case does not matter.
    :raises Refused: when the name does not follow the grammar.
    """
    match = _NAME.match(name.strip().lower()) if isinstance(name, str) else None
    if match is None:
        remedy = "Names are written [Cc.]Gg.Mgb[+attribute|-attribute], such as 1g.10gb, 1c.3g.20gb or 1g.24gb+me."
        raise Refused(thing, f"{name!r} is not a MIG profile name", remedy)
    gpu_slices = int(match["g"])
    compute_slices = int(match["c"]) if match["c"] else None
    if compute_slices is not None and compute_slices > gpu_slices:
        reason = f"{name!r} has more compute slices than its GPU instance ({compute_slices} of {gpu_slices})"
        raise Refused(thing, reason, f"Ask for at most {gpu_slices}c.")
    return ProfileName(
        gpu_slices=gpu_slices,
        memory_gb=int(match["gb"]),
        compute_slices=None if compute_slices == gpu_slices else compute_slices,
        added=tuple(sorted(match["plus"].split(","))) if match["plus"] else (),
        removed=tuple(sorted(match["minus"].split(","))) if match["minus"] else (),
    )


def compute_name(gpu_instance: str, compute_slices: int) -> str:
    """Return the name of a MIG device: C(1c.3g.20gb), or C(3g.20gb) when the compute instance fills the GPU instance."""
    if parse(gpu_instance).gpu_slices == compute_slices:
        return gpu_instance
    return f"{compute_slices}c.{gpu_instance}"


def resolve(
    name: str | ProfileName, profiles: Sequence[GpuInstanceProfile], thing: str = "MIG profile", of: str = "this GPU"
) -> GpuInstanceProfile:
    """Return the GPU instance profile that a name means on a GPU.

    :param profiles: what the GPU offers: read from the driver where there is one, else the board's.
    :param of: which GPU or board the profiles belong to, for the refusal.
    :raises Refused: when no profile, or more than one, is meant; names the nearest profiles.
    """
    wanted = parse(name, thing) if isinstance(name, str) else name
    for profile in profiles:
        if profile.name == wanted.gpu_instance:
            return profile
    close = [profile for profile in profiles if _means(wanted, parse(profile.name))]
    if close:
        # Two profiles of one width and one set of attributes differ by a factor of two in memory, never this little.
        return min(close, key=lambda profile: abs(parse(profile.name).memory_gb - wanted.memory_gb))
    raise Refused(thing, f"{of} has no MIG profile {wanted.gpu_instance}", _nearest_remedy(wanted, profiles))


def canonical(name: str, profiles: Sequence[GpuInstanceProfile]) -> str:
    """Return the name that a table of profiles has for a profile, or the name itself when it has none for it. A driver of another release may call an
    instance that exists otherwise than the table does.
    """
    if any(profile.name == name for profile in profiles):
        return name
    try:
        return resolve(name, profiles).name
    except Refused:
        return name


def _means(wanted: ProfileName, offered: ProfileName) -> bool:
    return (
        wanted.gpu_slices == offered.gpu_slices
        and wanted.added == offered.added
        and wanted.removed == offered.removed
        and abs(wanted.memory_gb - offered.memory_gb) <= _SAME_MEMORY * offered.memory_gb
    )


def nearest(wanted: ProfileName, profiles: Iterable[GpuInstanceProfile], count: int = 3) -> list[str]:
    """Return the names of the profiles most like a name: by slices, then attributes, then memory."""

    def distance(profile: GpuInstanceProfile) -> tuple[int, int, float]:
        offered = parse(profile.name)
        attributes = set(wanted.added) ^ set(offered.added) | set(wanted.removed) ^ set(offered.removed)
        return (
            abs(wanted.gpu_slices - offered.gpu_slices),
            len(attributes),
            abs(wanted.memory_gb - offered.memory_gb) / offered.memory_gb,
        )

    return [profile.name for profile in sorted(profiles, key=distance)[:count]]


def _nearest_remedy(wanted: ProfileName, profiles: Sequence[GpuInstanceProfile]) -> str:
    names = nearest(wanted, profiles)
    return f"The nearest are {', '.join(names)}." if names else "It has no MIG profiles at all."
