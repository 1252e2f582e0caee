# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide on the controller which nodes of a rollout are worked on: plan the waves, open the next one, end it."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.upgrade_record import PATH
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import Cluster, titles
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_action import ClusterAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import waves
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import (
    ROLLING_BACK,
    Member,
    Record,
    at_work_elsewhere,
    from_annotations,
    from_values,
    progress,
    wave_node,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain

_PAUSE = 5.0


class ActionModule(ClusterAction):
    _VALID_ARGS = None
    OPTIONS = {
        "state": {"type": "str", "choices": ["planned", "next", "finished"], "default": "planned"},
        "target": {"type": "str", "required": True},
        "hosts": {"type": "list", "elements": "str", "required": True},
        "batch": {"type": "list", "elements": "str", "default": []},
        "wave": {"type": "int", "default": 0},
        "canary": {"type": "int", "default": 1},
        "max_parallel": {"type": "int", "default": 1},
        "max_unavailable": {"type": "str", "default": "25%"},
        "max_failures": {"type": "int", "default": 0},
        "retry": {"type": "bool", "default": False},
        "wait": {"type": "int", "default": 300},
        "lease_namespace": {"type": "str", "default": "default"},
        "lease_duration": {"type": "int", "default": 1800},
        "take_over": {"type": "bool", "default": False},
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        cluster = self.cluster(arguments) if arguments["kubernetes"] else None
        if cluster and arguments["state"] != "finished" and not self._task.check_mode:
            self.hold_lease(
                cluster,
                arguments,
                arguments["lease_namespace"],
                arguments["lease_duration"],
                arguments["take_over"] and arguments["state"] == "planned",
            )
        act = {"planned": self._plan, "next": self._next, "finished": self._finish}[arguments["state"]]
        return act(arguments, task_vars, cluster)

    def _plan(self, arguments: dict[str, Any], task_vars: dict[str, Any], cluster: Cluster | None) -> dict[str, Any]:
        """Return the waves as they will be if every node succeeds."""
        members, nodes = self._fleet(arguments, task_vars, cluster)
        if cluster:
            try:
                _refuse_strangers(members, task_vars)
            except Refused:
                cluster_lease.let_go(cluster, arguments["lease_namespace"], cluster_lease.this_run())
                raise
        if cluster is None and not arguments["take_over"]:
            _refuse_a_second(members.values(), arguments["lease_duration"])
        found = waves.schedule(nodes, _budget(arguments))
        self._display.display("\n" + progress(nodes, members, arguments["target"]))
        for number, names in enumerate(found, 1):
            self._display.display(f"  wave {number}: {titles(names)}")
        planned = {name for names in found for name in names}
        # Those that cannot start now get waves of their own: what keeps them may be over by then.
        late = [
            node.name
            for node in nodes
            if node.phase == waves.WAITING
            and not node.skip
            and node.name not in planned
            and not members[node.name].unread
        ]
        decision = waves.decide(nodes, _budget(arguments))
        if not found and decision.stopped:
            self._display.warning(f"The rollout does not start: {decision.stopped}. Left: {titles(decision.left)}.")
            late = []
        return {
            "waves": [list(names) for names in found] + [[name] for name in late],
            "hosts": arguments["hosts"],
            "number": {name: number for number, names in enumerate(found, 1) for name in names}
            | {name: len(found) + number for number, name in enumerate(late, 1)},
            "order": [name for names in found for name in names] + late,
            "sizes": [len(names) for names in found] + [1] * len(late) or [1],
            "stopped": decision.stopped if not found else None,
            "left": list(decision.left) if not found else [],
        }

    def _next(self, arguments: dict[str, Any], task_vars: dict[str, Any], cluster: Cluster | None) -> dict[str, Any]:
        """Return which nodes of the batch start now; wait while the budget, or a node that is not ready, forbids it."""
        batch = arguments["batch"]
        until = time.monotonic() + arguments["wait"]
        while True:
            members, nodes = self._fleet(arguments, task_vars, cluster)
            elsewhere = [
                waves.Node(
                    node.name,
                    node.phase,
                    node.ready,
                    node.cordoned,
                    node.cordoned_by_hand,
                    node.skip or node.name not in batch,
                )
                for node in nodes
            ]
            decision = waves.decide(elsewhere, _budget(arguments))
            wanted = [node for node in nodes if node.name in batch and node.phase == waves.WAITING and not node.skip]
            failures = sum(1 for node in nodes if node.phase == waves.FAILED) > arguments["max_failures"]
            if failures or len(decision.start) >= len(wanted) or time.monotonic() >= until:
                break
            time.sleep(_PAUSE)
        start = list(decision.start)
        self._display.display("\n" + progress(nodes, members, arguments["target"]))
        if start:
            self._display.display(f"wave {arguments['wave']}: {titles(start)}")
        stopped = decision.stopped if failures else None
        if stopped:
            self._display.warning(f"The rollout stops: {stopped}.")
        elif len(start) < len(wanted):
            left = [node.name for node in wanted if node.name not in start]
            self._display.warning(f"Left out: {titles(left)}: {decision.stopped or 'the budget leaves no room'}.")
        return {
            "start": start,
            "stopped": stopped,
            "records": {name: members[name].record.values() for name in start},
            "rolling_back": [name for name in start if members[name].record.state == ROLLING_BACK],
        }

    def _finish(self, arguments: dict[str, Any], task_vars: dict[str, Any], cluster: Cluster | None) -> dict[str, Any]:
        """Return how the rollout ended, and give the lease back."""
        members, nodes = self._fleet(arguments, task_vars, cluster)
        if cluster:
            cluster_lease.let_go(cluster, arguments["lease_namespace"], cluster_lease.this_run())
        self._display.display("\n" + progress(nodes, members, arguments["target"]))
        report = {}
        for node in nodes:
            record = members[node.name].record
            lost = record.interrupted and node.phase == waves.FAILED
            reason = record.failed_reason or (f"the host was lost while {record.state}" if lost else "")
            report[node.name] = {
                **record.values(),
                "phase": node.phase,
                "failed_reason": reason or members[node.name].unread,
            }
            if node.phase == waves.FAILED:
                self._display.display(f"  {node.name}: {record.state}: {reason}")
        left = [node.name for node in nodes if node.phase == waves.WAITING and not node.skip]
        failed = [node.name for node in nodes if node.phase == waves.FAILED]
        if left:
            self._display.display(f"  left as they were: {titles(left)}")
        return {"report": report, "failed_hosts": failed, "left": left, "complete": not failed and not left}

    def _fleet(
        self, arguments: dict[str, Any], task_vars: dict[str, Any], cluster: Cluster | None
    ) -> tuple[dict[str, Member], list[waves.Node]]:
        objects = cluster.nodes() if cluster else {}
        target, retry = arguments["target"], arguments["retry"]
        members, nodes = {}, []
        for host in arguments["hosts"]:
            variables = task_vars["hostvars"][host]
            about = plain(variables.get("__gpu_upgrade_host") or {})
            node = objects.get(about.get("node", host))
            record, unread = Record(), ""
            try:
                if node:
                    record = from_annotations(node["metadata"].get("annotations"))
                else:
                    record = from_values(plain(variables.get("__gpu_upgrade_record") or {}))
            except Unfit as unfit:
                unread = unfit.message
                where = f"the annotations of node {about.get('node', host)}" if node else PATH
                self._display.warning(f"{host} is left out: its record in {where} cannot be read: {unread}")
            member = Member(host, record, bool(about.get("needed")), node, reachable=bool(about), unread=unread)
            members[host] = member
            started = bool(plain(variables.get("__gpu_upgrade_started") or False))
            nodes.append(wave_node(member, target, retry, started_here=started))
        return members, nodes


def _refuse_strangers(members: Mapping[str, Member], task_vars: Mapping[str, Any]) -> None:
    """Refuse a host that is no node before anything is touched: it could not be cordoned, nor emptied.

    :raises Refused: there is one.
    """
    strangers = {
        host: str(plain(task_vars["hostvars"][host]["__gpu_upgrade_host"])["node"])
        for host, member in members.items()
        if member.node is None and member.reachable
    }
    if strangers:
        named = ", ".join(host if host == node else f"{host} (node {node})" for host, node in strangers.items())
        raise Refused(
            named,
            "the cluster has no such node",
            f"Set gpu_upgrade_node, or leave it out: --limit 'gpu_hosts,{','.join(f'!{host}' for host in strangers)}'.",
        )


def _refuse_a_second(members: Iterable[Member], seconds: int) -> None:
    """Without a cluster there is no lease: the records on the hosts say whether another run is at work.

    :raises Refused: one is.
    """
    here = cluster_lease.this_run()
    now = datetime.datetime.now(datetime.timezone.utc)
    alive = [member for member in members if not cluster_lease.is_gone(member.record.operator, here)]
    record = at_work_elsewhere(alive, str(here), now, seconds)
    if record is not None:
        host = next(member.host for member in alive if member.record is record)
        raise Refused(
            f"host {host}",
            f"{record.operator} works on this fleet: it was last seen at {record.since}, {record.state}",
            f"Wait for it; if it is known to be dead, it is taken for that {seconds} s after it was last seen, or at once with "
            "gpu_upgrade_take_over=true.",
        )


def _budget(arguments: dict[str, Any]) -> waves.Budget:
    return waves.Budget(
        arguments["canary"], arguments["max_parallel"], arguments["max_unavailable"], arguments["max_failures"]
    )
