# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take a node out of service for a new MIG layout, or return it: the cordon, in one change with what the next run has to know of it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import found_cordoned
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import LONGEST_OUTPUT, printable
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_action import ClusterAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.names import LABEL_PREFIX
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.objects import annotations_of, is_cordoned

INITIAL, REASON = (f"{LABEL_PREFIX}/repartition-{name}" for name in ("initial-unschedulable", "failed-reason"))


class ActionModule(ClusterAction):
    OPTIONS = {
        "node": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["started", "done", "failed"], "required": True},
        "layout_changed": {"type": "bool", "default": False},
        "reason": {"type": "str", "default": ""},
    }

    def act(self, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        state = arguments["state"]
        # What a run that was cut off did is not known: its node is returned only when a run has come to the end.
        returned = state == "done" or (state == "failed" and not arguments["layout_changed"])
        if not arguments["kubernetes"]:
            return {"returned": returned}
        cluster = self.cluster(arguments)
        node = cluster.node(arguments["node"])
        there = annotations_of(node)
        remembered = there.get(INITIAL)
        found = found_cordoned(is_cordoned(node), remembered == "true", remembered in ("true", "false"))
        reason = str(printable(arguments["reason"], lines=True, longest=LONGEST_OUTPUT))
        after = {INITIAL: None if returned else str(found).lower(), REASON: reason or None}
        cordon = found or not returned
        changed = cordon != is_cordoned(node) or any(there.get(key) != value for key, value in after.items())
        if changed and not self._task.check_mode:
            cluster.change_node(arguments["node"], after, cordon)
        return {"changed": changed, "returned": returned}
