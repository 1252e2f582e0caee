# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks do to one node of the cluster."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ChosenAction, choices


class ActionModule(ChosenAction):
    # As it was before it had other actions.
    DEFAULT = "node_state"
    CHOICES = choices(
        "evict_gpu_pods gpu_clients heal_node node_operands node_server node_stack node_state repartition_node upgrade_node verify_node"
    )
