# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host keeps set on its GPUs, and restores at boot. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._gpu_settings import Clocks
from .._plan import Refused
from .._records import FASTEST, Settings

PREFIX = "nvidia_settings_"
RECORD = "/etc/gpufleet/settings.json"
#: Nobody's business: the value of a GPU stays as it is.
UNMANAGED = "unmanaged"
_ECC: Mapping[str, bool | None] = {UNMANAGED: None, "enabled": True, "disabled": False}


def read(desired: Mapping[str, Any]) -> Settings:
    """Return the settings that the variables C(nvidia_settings_*) in C(desired) describe.

    :raises Refused: a value is impossible, or two exclude each other.
    """
    power = int(desired.get(f"{PREFIX}power_limit") or 0)
    if power < 0:
        raise Refused(f"{PREFIX}power_limit", f"{power} W is negative", "Give watts; 0 leaves the board's own limit.")
    graphics = _range(desired, "graphics_clocks")
    memory = _range(desired, "memory_clocks")
    application = _pair(
        desired.get(f"{PREFIX}application_clocks"),
        "application_clocks",
        "[memory, graphics] in MHz, such as [2619, 1980]",
    )
    if application and (graphics or memory):
        other = "graphics_clocks" if graphics else "memory_clocks"
        raise Refused(
            f"{PREFIX}application_clocks",
            f"{PREFIX}{other} locks the clocks that application clocks set",
            f"Set one: {PREFIX}graphics_clocks and {PREFIX}memory_clocks, or {PREFIX}application_clocks.",
        )
    ecc = str(desired.get(f"{PREFIX}ecc") or UNMANAGED)
    if ecc not in _ECC:
        raise Refused(f"{PREFIX}ecc", f"{ecc!r} must be one of {', '.join(_ECC)}", "Leave it out to leave ECC alone.")
    return Settings(power or None, graphics, memory, application, _ECC[ecc])


def _range(desired: Mapping[str, Any], name: str) -> Clocks | None:
    """Return a range of frequencies; one number is a range of itself."""
    given = desired.get(f"{PREFIX}{name}") or []
    if len(given) == 1:
        given = [given[0], given[0]]
    found = _pair(given, name, "[lowest, highest] in MHz, such as [1200, 1500], or [1410] for one")
    if found and found[0] > found[1]:
        raise Refused(
            f"{PREFIX}{name}",
            f"the lowest frequency, {found[0]} MHz, is above the highest, {found[1]} MHz",
            "Swap them.",
        )
    return found


def _pair(given: Sequence[Any] | None, name: str, shape: str) -> Clocks | None:
    if not given:
        return None
    numbers = [int(one) for one in given]
    if len(numbers) != 2 or not all(0 < one <= FASTEST for one in numbers):
        raise Refused(f"{PREFIX}{name}", f"{list(given)} is not a pair of frequencies", f"Give {shape}.")
    return numbers[0], numbers[1]
