# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take a node out of service for a new MIG layout, or return it: the cordon, in one change with what the next run has to know of it."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import found_cordoned
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import Cluster
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_action import Node, NodeStep, Step, Values
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.names import LABEL_PREFIX
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.objects import annotations_of, is_cordoned

INITIAL, REASON = (f"{LABEL_PREFIX}/repartition-{name}" for name in ("initial-unschedulable", "failed-reason"))


class ActionModule(NodeStep):
    OPTIONS = {
        "state": {"type": "str", "choices": ["started", "done", "failed"], "required": True},
        "layout_changed": {"type": "bool", "default": False},
    }

    def step(self, arguments: Values, task_vars: Values, cluster: Cluster | None, node: Node) -> Step:  # noqa: ARG002
        state = arguments["state"]
        # What a run that was cut off did is not known: its node is returned only when a run has come to the end.
        returned = state == "done" or (state == "failed" and not arguments["layout_changed"])
        there, cordoned = annotations_of(node), is_cordoned(node)
        remembered = there.get(INITIAL)
        found = found_cordoned(cordoned, remembered == "true", remembered in ("true", "false"))
        after = {INITIAL: None if returned else str(found).lower(), REASON: arguments["reason"] or None}
        cordon = found if returned else True if state == "started" else None
        changed = cordon not in (None, cordoned) or any(there.get(key) != value for key, value in after.items())
        result = {"changed": changed and node is not None, "returned": returned}
        return Step("started" if remembered else "", after, cordon, result, returns=returned)
