# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take a node out of service for a new MIG layout, also ahead of its turn, or return it: the cordon, in one change with what the next run has to know."""

from __future__ import annotations

from dataclasses import replace

from ...module_utils._formats import utc_time
from ...module_utils._health.repair_record import found_cordoned
from .. import cluster_lease
from ..action_options import choice_of, takes
from ..cluster import Cluster
from ..cluster_action import Node, NodeStep, NodeWrite, Values
from ..fleet.objects import annotations_of, is_cordoned
from ..fleet.upgrade import REFUSED, REPARTITION, NodeRecord, from_annotations


class ActionModule(NodeStep):
    OPTIONS = {
        "state": choice_of("ahead", "started", "done", "failed"),
        **takes("node", "layout_changed"),
    }

    def step(self, arguments: Values, task_vars: Values, cluster: Cluster | None, node: Node) -> NodeWrite:  # noqa: ARG002
        state = arguments["state"]
        # What a run that was cut off did is not known: its node is returned only when a run has come to the end.
        returned = state == "done" or (state == "failed" and not arguments["layout_changed"])
        before, cordoned = from_annotations(annotations_of(node), REPARTITION), is_cordoned(node)
        if state == "ahead":
            # Its turn comes later. One that an earlier run left out of service says more than this would.
            if before.ours:
                return NodeWrite(before.state, {}, None, {"changed": False, "returned": False})
            state = "started"
        found = found_cordoned(cordoned, before.initial_unschedulable, before.ours)
        kept = NodeRecord(
            REFUSED if returned else state,
            initial_unschedulable=found,
            failed_reason=arguments["reason"],
            operator=str(cluster_lease.this_run()),
            since=utc_time.now(),
        )
        after = NodeRecord() if state == "done" else kept
        cordon = found if returned else True
        changed = cordon not in (None, cordoned) or replace(after, since="") != replace(before, since="")
        result = {"changed": changed and node is not None, "returned": returned}
        written = kept.annotations(REPARTITION)
        # Nothing is left of one that came to its end.
        written = dict.fromkeys(written) if state == "done" else written
        return NodeWrite(before.state, written, cordon, result, False if returned else state == "started" or None)
