# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: RUF009 (the functions declare fields)

"""What can be set of a GPU and is lost: C(settings) of one entry of C(gpus) of the facts. What the board or the driver does not tell is None. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._schema import boolean, encode, has, items, number, of

#: Frequencies in MHz, as NVML takes them: of the memory, of the graphics engine.
Clocks = tuple[int, int]
#: Watts; the largest rack-scale boards take 1.4 kW.
_WATTS = number(0, 100_000)
_MHZ = number(0, 100_000)
_PAIR = items(_MHZ, 2, least=2)


@dataclass(frozen=True)
class Power:
    """The power limit in watts."""

    limit: int | None = has(_WATTS)
    default: int | None = has(_WATTS)
    min: int | None = has(_WATTS)
    max: int | None = has(_WATTS)


@dataclass(frozen=True)
class Ecc:
    """Whether ECC is on; C(pending) as it will be after the next reset or reboot."""

    current: bool | None = has(boolean)
    pending: bool | None = has(boolean)


@dataclass(frozen=True)
class ClockSpeeds:
    """Frequencies in MHz, pairs of memory and graphics where nothing else is said.

    :param application: those that applications run at; C(default) those of the board.
    :param locked_graphics: lowest and highest, as the clock was locked since the driver was loaded; C(locked_memory) the same.
    """

    graphics: int | None = has(_MHZ)
    max: Clocks | None = has(_PAIR)
    application: Clocks | None = has(_PAIR)
    default: Clocks | None = has(_PAIR)
    locked_graphics: Clocks | None = has(_PAIR)
    locked_memory: Clocks | None = has(_PAIR)


@dataclass(frozen=True)
class GpuSettings:
    """All of them."""

    power_w: Power = has(of(Power), Power())
    ecc: Ecc = has(of(Ecc), Ecc())
    clocks_mhz: ClockSpeeds = has(of(ClockSpeeds), ClockSpeeds())

    def as_dict(self) -> dict[str, Any]:
        """Return it as the facts have it."""
        return {
            part: {name: value for name, value in values.items() if value is not None}
            for part, values in encode(self).items()
        }
