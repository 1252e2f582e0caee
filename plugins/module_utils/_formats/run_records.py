# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the playbooks of day two keep on a host how far they came."""

from __future__ import annotations

UPGRADE_RECORD = "/var/lib/gpufleet/upgrade.json"
#: The steps of one node, in order. A node whose record has one of them was cut off there.
UPGRADE_STEPS = ("started", "waiting-for-jobs", "evicting", "installing", "verifying", "rolling-back", "returning")
#: There as long as a repartition, or an upgrade that stopped services, is not at its end.
REPARTITION_RECORD = "/var/lib/gpufleet/repartition.json"
STOPPED_RECORD = "/var/lib/gpufleet/upgrade-stopped.json"
#: What was tried to repair the host.
HEAL_RECORD = "/var/lib/gpufleet/heal.json"
#: Where bundles for people are put, a folder each; only root can read them.
BUNDLES = "/var/lib/gpufleet/bundles"
