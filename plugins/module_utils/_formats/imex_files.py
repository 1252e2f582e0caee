# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files by which a host takes part in IMEX: apart from what is wanted of it, because whoever reads a host imports these alone."""

from __future__ import annotations

from .unit_names import IMEX_UNIT, wants_link

NODES_FILE = "/etc/nvidia-imex/nodes_config.cfg"
#: The link by which systemd knows that the unit is masked.
MASK = f"/etc/systemd/system/{IMEX_UNIT}"
#: The link by which it starts at boot.
WANTS = wants_link(IMEX_UNIT)
