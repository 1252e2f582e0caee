# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks do on the controller for all of their hosts."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ChosenAction, choices


class ActionModule(ChosenAction):
    CHOICES = choices(
        "adopt check_variables doctor_report fleet_plan host_plan inspect plan_gate rack_drivers remove_gate site_gate site_times slurm_drained slurm_report"
        " verify_report"
    )
    LATE = "fleet_recommend"
