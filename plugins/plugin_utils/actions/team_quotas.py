# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lower the quotas of teams before nodes get another layout, and raise them after, as far as the nodes offer what is described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...module_utils._plan import Refused
from ..action_options import choice_of, takes
from ..cluster import Cluster
from ..cluster_action import ClusterAction
from ..fleet import claims
from ..fleet.expectations import gpu_allocatable
from ..fleet.objects import metadata, taken
from ..host_facts import registered
from ..plain import plain
from ..render.clusters import MANAGED_BY
from ..render.quotas import TEAM_LABEL
from ..render.team_quotas import QUEUE, SHAPES, Key, changes, existing

PLANNED, LOWERED, RAISED = "planned", "lowered", "raised"
#: What rendered objects have: those of others with the same name have not.
_OURS = ",".join([*(f"{name}={value}" for name, value in MANAGED_BY.items()), TEAM_LABEL])
#: To write and to read back: Kueue writes the same objects, and so do the other hosts of a batch.
_ATTEMPTS = 8


class ActionModule(ClusterAction):
    OPTIONS = {
        "state": choice_of(PLANNED, LOWERED, RAISED),
        **takes("rollout", "lease_namespace lease_duration"),
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        host, lowers = task_vars["inventory_hostname"], arguments["state"] == LOWERED
        rendered = (registered(task_vars, "gpu_kubernetes_result") or {}).get("quotas") or {}
        quotas = plain(next((one for one in rendered.values() if host in one["hosts"]), None))
        if not quotas or not arguments["kubernetes"]:
            return {"changed": False}
        # Each host lowers before it changes. The rest one host does for its cluster, whose connection it has.
        hosts = {*quotas["hosts"]}
        if not lowers and next((one for one in task_vars["ansible_play_hosts"] if one in hosts), host) != host:
            return {"changed": False}
        if quotas["gitops"]:
            if not lowers:
                self._display.display(
                    f"  {quotas['gitops']} syncs {quotas['file']}: the quotas in the cluster are left alone. Merge lower numbers of what becomes less "
                    "before the run, and what it renders after it."
                )
            return {"changed": False}
        return {"changed": self._change(self.cluster(arguments), quotas, arguments)}

    def _change(self, cluster: Cluster, quotas: Mapping[str, Any], arguments: dict[str, Any]) -> bool:
        """Change the numbers, and read them back. Returns whether any changed, or would."""
        state = arguments["state"]
        kinds = {one["kind"] for one in quotas["objects"]} & SHAPES.keys()
        for attempt in range(_ATTEMPTS):
            live = {kind: cluster.quotas(kind, _OURS) for kind in kinds}
            there = _existing(cluster, quotas["offered"]) if state == RAISED else None
            found, notes = changes(quotas["file"], quotas["objects"], live, there)
            flavors = [one for one in quotas["objects"] if one["kind"] == "ResourceFlavor" and live.get(QUEUE)]
            known = taken(cluster.quotas("ResourceFlavor"), {"metadata": {"name": str}}) if flavors else []
            names = {metadata(one).get("name") for one in known}
            flavors = [one for one in flavors if metadata(one)["name"] not in names]
            lines = [f"{metadata(one)['name']}: a new ResourceFlavor" for one in flavors]
            lines += [text for *_rest, text in found]
            writes = bool(lines) and state != PLANNED and not self._task.check_mode
            for line in lines if writes or state == LOWERED else [*lines, *notes]:
                self._display.display(f"  {line}")
            if not writes:
                return attempt > 0 or (bool(lines) and state != PLANNED)
            self.hold_lease(cluster, arguments, arguments["lease_namespace"], arguments["lease_duration"])
            # A queue of which a flavor is missing admits nothing.
            for flavor in flavors:
                cluster.create_flavor(flavor)
            for kind, one, spec, _text in found:
                cluster.change_quota(kind, one, spec)
        reason = f"the cluster does not keep the numbers ({'; '.join(lines)})"
        raise Refused(quotas["file"], reason, "Find out who else writes them.")


def _existing(cluster: Cluster, offered: list[Any]) -> dict[Key, tuple[int, int]]:
    """Return what the nodes offer now of what is described."""
    nodes = cluster.nodes()
    kinds = {one["resource"].partition("/")[0] for one in offered}
    slices = cluster.resource_slices() if kinds & {claims.GPU_CLASS, claims.MIG_CLASS} else []
    there = claims.published(slices, nodes)
    now = {name: {**gpu_allocatable(node), **claims.counts(there.get(name, ()))} for name, node in nodes.items()}
    return existing(offered, now)
