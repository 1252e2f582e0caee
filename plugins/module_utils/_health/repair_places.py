# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a host keeps what was tried to repair it."""

from __future__ import annotations

RECORD = "/var/lib/gpufleet/heal.json"
#: Where bundles for people are put, a folder each; only root can read them.
BUNDLES = "/var/lib/gpufleet/bundles"
