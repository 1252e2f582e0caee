# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes of a fleet are changed, in which order, and by whom."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ChosenAction, choices


class ActionModule(ChosenAction):
    CHOICES = choices("heal_plan team_quotas upgrade_lease upgrade_waves")
