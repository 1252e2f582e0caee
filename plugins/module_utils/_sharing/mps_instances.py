# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The name of the systemd unit of the host's MPS daemons. Pure."""

from __future__ import annotations

UNIT = "gpufleet-mps@.service"


def is_instance(unit: str | None) -> bool:
    """Whether C(unit) is one of these daemons."""
    before, after = UNIT.split("@")
    return unit is not None and unit.startswith(f"{before}@") and unit.endswith(after)
