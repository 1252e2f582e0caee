# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a GPU as the facts document has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._adapters.locked_clocks import GRAPHICS, MEMORY
from .._adapters.nvml_settings import GpuSettings


def shape_settings(found: GpuSettings, locks: Mapping[str, tuple[int, int]] | None = None) -> dict[str, Any]:
    """Return C(settings) of one entry of C(gpus): what can be set of a GPU and is lost. What the board does not tell is missing.

    :param locks: how its clocks were locked since the driver was loaded, which NVML does not tell.
    """
    power, locks = found.power, locks or {}
    return {
        "power_w": _known(limit=power.limit, default=power.default, min=power.minimum, max=power.maximum),
        "ecc": _known(current=found.ecc, pending=found.ecc_pending),
        "clocks_mhz": _known(
            graphics=found.graphics_clock,
            max=_pair(found.max_clocks),
            application=_pair(found.application_clocks),
            default=_pair(found.default_application_clocks),
            locked_graphics=_pair(locks.get(GRAPHICS)),
            locked_memory=_pair(locks.get(MEMORY)),
        ),
    }


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _pair(clocks: Sequence[int] | None) -> list[int] | None:
    return None if clocks is None else list(clocks)
