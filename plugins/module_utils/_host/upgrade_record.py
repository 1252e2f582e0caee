# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far the upgrade of a host came: where that is recorded on it, and the steps that it can be cut off in."""

from __future__ import annotations

PATH = "/var/lib/gpufleet/upgrade.json"
#: The steps of one node, in order. A node whose record has one of them was cut off there.
STEPS = ("started", "waiting-for-jobs", "evicting", "installing", "verifying", "rolling-back", "returning")
