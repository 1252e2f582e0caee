# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide on the controller which nodes of a rollout are worked on: plan it, let a host wait for room and take it, end it."""

from __future__ import annotations

import collections
import datetime
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Callable

from ansible import constants
from ansible.utils.vars import load_extra_vars

from ...module_utils._facts_view import Facts
from ...module_utils._formats.host_names import UPGRADE_RECORD
from ...module_utils._formats.utc_time import in_future
from ...module_utils._plan import Refused
from ...module_utils._schema import Unfit
from .. import cluster_lease
from ..action_options import choice_of, takes
from ..cluster import Cluster, titles
from ..cluster_action import ClusterAction
from ..fleet import nvsentinel, waves
from ..fleet.upgrade import (
    LEAVES_DRIVER,
    FleetHost,
    NodeRecord,
    at_work_elsewhere,
    from_annotations,
    from_values,
    if_failed,
    progress,
    turn,
    unfinished,
    wave_node,
    would,
)
from ..fleet.waves import RackHost, announcements, changed_racks, mixed_racks
from ..host_facts import registered
from ..plain import facts_of, plain
from ..role_variables import inventory_lines
from ..upgrade_run import HOLDS, UpgradeRun
from ..users_of_host import refuse_users

#: Seconds between two looks at the run while a host waits.
_PAUSE = 1.0
#: Seconds for which what the cluster says of its nodes is taken for true.
_FRESH = 10.0
#: Seconds that a worker waits, at least and at most: whom Ansible has lost it sees only as of when it was forked.
_SHORTEST, _LONGEST = 10.0, 600.0


class ActionModule(ClusterAction):
    OPTIONS = {
        "state": choice_of("planned", "next", "ended", "finished", default="planned"),
        **takes(
            "rollout",
            "work target hosts canary max_parallel max_unavailable max_failures retry wait lease_namespace lease_duration take_over nvsentinel",
        ),
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        run = UpgradeRun(constants.DEFAULT_LOCAL_TMP)
        state = arguments["state"]
        if state != "planned":
            # What the run was planned with holds to its end.
            arguments = run.settings
        else:
            arguments.update(_one_migration(arguments["hosts"], task_vars["hostvars"]))
        cluster = self.cluster(arguments) if arguments["kubernetes"] and state != "ended" else None
        if cluster and state != "finished" and not self._task.check_mode:
            force = arguments["take_over"] and state == "planned"
            self.hold_lease(cluster, arguments, arguments["lease_namespace"], arguments["lease_duration"], force)
        if state == "planned":
            return self._plan(run, arguments, task_vars, cluster)
        if state == "finished":
            return self._finish(run, arguments, cluster)
        host = str(task_vars["inventory_hostname"])
        if state == "ended":
            run.end(host)
            return {}
        for lost in run.drop_unreachable(plain(task_vars["ansible_play_hosts"])):
            self._display.warning(f"The connection to {lost} was lost during its upgrade.")
        return self._next(run, arguments, host, cluster)

    def _plan(
        self, run: UpgradeRun, arguments: dict[str, Any], task_vars: Mapping[str, Any], cluster: Cluster | None
    ) -> dict[str, Any]:
        """Return the hosts in the order in which they start."""
        hosts, in_racks, hostvars = {}, {}, task_vars["hostvars"]
        for host in arguments.pop("hosts"):
            about = plain(hostvars[host].get("__gpu_upgrade_host") or {})
            hosts[host] = {
                "node": str(about.get("node", host)),
                "needed": bool(about.get("needed")),
                # Of a pool that nothing is migrated of.
                "bystander": about.get("work") == "",
                "reboots": bool(about.get("reboots")),
                "reachable": bool(about),
                "recorded": plain(hostvars[host].get("__gpu_upgrade_record") or {}),
                "unreadable": str(about.get("unreadable") or ""),
            }
            in_racks[host] = RackHost.of(about.get("imex") or {})
        for host, rack in changed_racks(in_racks).items():
            hosts[host]["rack"] = rack
        run.begin(arguments, hosts)
        members, nodes = self._look(run, arguments, cluster)
        order = waves.order([node for node in nodes if not members[node.name].unread])
        # Those that start, and those that a run which was cut off left in the middle.
        concerned = {*order, *(node.name for node in nodes if node.phase == waves.WORKING)}
        asked = concerned if cluster is None or arguments["work"] not in LEAVES_DRIVER else ()
        needed = {host: _read(hostvars[host]) for host in hosts if hosts[host]["needed"] and host in asked}
        try:
            if cluster:
                _refuse_strangers(members, {host: str(about["node"]) for host, about in hosts.items()})
            elif not arguments["take_over"]:
                _refuse_a_second(members.values(), arguments["lease_duration"], self._display.warning)
            used = refuse_users(needed, nodes=cluster is not None)
        except Refused:
            if cluster:
                cluster_lease.release(cluster, arguments["lease_namespace"], cluster_lease.this_run())
            raise
        decision = waves.decide(nodes, _budget(arguments))
        self._display.display("\n" + progress(nodes, members, arguments["target"]))
        if decision.stopped and not decision.start:
            self._display.warning(
                f"The rollout does not start: {decision.stopped}. Left as they were: {titles(decision.left)}."
            )
            return {"order": [], "stopped": decision.stopped}
        run.set_order(order)
        if self._task.check_mode:
            for host in order:
                users = f"; would end the work of {', '.join(used[host])}" if host in used else ""
                reboots = (
                    "; would reboot, unless what uses its driver has left by then" if hosts[host]["reboots"] else ""
                )
                self._display.display(f"  would change {host}{users}{reboots}")
        groups = plain(task_vars.get("groups") or {})
        for text in announcements(nodes, _budget(arguments), constants.DEFAULT_FORKS, groups):
            self._display.warning(text)
        if order:
            self._display.display(f"  first: {titles(decision.start)}; the order of all: {titles(order)}")
        return {"order": list(order), "stopped": None}

    def _next(self, run: UpgradeRun, arguments: dict[str, Any], host: str, cluster: Cluster | None) -> dict[str, Any]:
        """Return whether work on the host starts now; wait while the budget, or a node that is not ready, forbids it."""
        waited = run.enqueue(host)
        arrived, until = time.time() - waited, time.monotonic() + min(_LONGEST, max(_SHORTEST, waited))
        budget, parent = _budget(arguments), os.getppid()
        seen: tuple[Any, ...] | None = None
        room, why = True, None
        while True:
            if run.version() != seen or (cluster and room and run.is_older_than(_FRESH)):
                room = waves.has_slot(run.nodes(), budget)
                if cluster and room and run.is_older_than(_FRESH):
                    self._look(run, arguments, cluster)
                seen = run.version()
                why = self._decide(run, arguments, budget)
            if run.slot(host) == HOLDS:
                return self._start(run, host, arguments["work"], cluster)
            stopped = run.stopped or None
            if stopped is None and _is_stuck(run, arrived, arguments["wait"]):
                self._display.warning(f"Left out: {host}: {why or 'the budget leaves no room'}.")
            elif stopped is None:
                # A run that was killed leaves its workers behind.
                if os.getppid() != parent or time.monotonic() >= until:
                    return {"start": False, "wait": True, "stopped": None, "turn": ""}
                time.sleep(_PAUSE)
                continue
            run.abandon(host)
            return {"start": False, "wait": False, "stopped": stopped, "turn": ""}

    def _decide(self, run: UpgradeRun, arguments: dict[str, Any], budget: waves.Budget) -> str | None:
        """Start what may start of the hosts that wait, and return why nothing else does, where something is in its way."""
        with run.decision() as (nodes, start):
            decision = waves.decide(nodes, budget)
            start.extend(decision.start)
        failures = waves.too_many_failed(nodes, budget)
        if failures and run.stop(failures):
            self._display.warning(f"The rollout stops: {failures}.")
        if start and not self._task.check_mode:
            count = collections.Counter(node.phase for node in nodes)
            self._display.display(
                f"\n{arguments['target']}: {count[waves.DONE]} done, {count[waves.WORKING] + len(start)} worked on, "
                f"{count[waves.FAILED]} failed; starts: {titles(start)}"
            )
        return decision.stopped

    def _start(self, run: UpgradeRun, host: str, work: str, cluster: Cluster | None) -> dict[str, Any]:
        about = run.about(host)
        if cluster:
            record = from_annotations(cluster.node(about["node"])["metadata"].get("annotations"))
        else:
            record = from_values(about["recorded"])
        return {
            "start": True,
            "wait": False,
            "stopped": None,
            "record": record.values(),
            "turn": turn(record, work),
            "if_failed": if_failed(record, work),
            "wave": run.number(),
        }

    def _finish(self, run: UpgradeRun, arguments: dict[str, Any], cluster: Cluster | None) -> dict[str, Any]:
        """Return how the rollout ended, and give the lease back."""
        run.drop_unreachable([])
        members, looked_at = self._look(run, arguments, cluster)
        phases = {node.name: node.phase for node in run.nodes()}
        nodes = [replace(node, phase=phases[node.name]) for node in looked_at]
        if cluster:
            cluster_lease.release(cluster, arguments["lease_namespace"], cluster_lease.this_run())
        said = would(nodes) if self._task.check_mode else progress(nodes, members, arguments["target"])
        self._display.display("\n" + said)
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
        lines = inventory_lines(load_extra_vars(self._loader))
        if lines and waves.DONE in phases.values() and not self._task.check_mode:
            text = "".join(f"\n    {line}" for line in lines)
            self._display.display(
                f"  Write into the inventory of these hosts what was given with -e; gpufleet.nvidia.site takes nothing back:{text}"
            )
        mixed = mixed_racks(nodes)
        for text in mixed.values():
            self._display.warning(text)
        return {
            "report": report,
            "failed_hosts": failed,
            "left": left,
            "mixed_racks": mixed,
            "complete": not failed and not left,
        }

    def _look(
        self, run: UpgradeRun, arguments: dict[str, Any], cluster: Cluster | None
    ) -> tuple[dict[str, FleetHost], list[waves.Node]]:
        """Return the fleet as it is now, and keep it for the decisions to come."""
        objects = cluster.nodes() if cluster else {}
        members, nodes = {}, []
        for host, about, recorded, started in run.hosts():
            node = objects.get(about["node"])
            record, unread = NodeRecord(), ""
            on_host, unfit = _on_host(about["recorded"], about["unreadable"])
            try:
                if recorded:
                    # Written by this run, which alone has the lease; check mode has written it nowhere else.
                    record = from_values(recorded)
                else:
                    record = from_annotations(node["metadata"].get("annotations")) if node else NodeRecord()
                    if unfit and not record.state:
                        raise unfit
                    # Of a node that was made anew, what its host has is continued.
                    record = on_host if not record.state and (on_host.ours or not node) else record
            except Unfit as error:
                unread = error.message
                where = UPGRADE_RECORD if error is unfit else f"the annotations of node {about['node']}"
                self._display.warning(
                    f"{host} is left out: its record in {where} cannot be read: {unread} Correct or remove it, and run again."
                )
            if about["bystander"] and not record.interrupted:
                record = NodeRecord()
            refused = None if started else unfinished(on_host, record, arguments["work"], arguments["target"])
            waits = about["needed"] and not started and not record.interrupted
            kept = refused or (nvsentinel.held(node, arguments["nvsentinel"]) if node and waits else None)
            if kept:
                unread = kept.reason
                self._display.warning(f"{host} is left out: {kept.message}")
            member = FleetHost(
                host, record, about["needed"], node, about["reachable"], unread=unread, rack=about.get("rack", "")
            )
            members[host] = member
            nodes.append(wave_node(member, arguments["target"], arguments["retry"], started_here=started))
        run.refresh(nodes)
        return members, nodes


def _on_host(recorded: Any, unreadable: str) -> tuple[NodeRecord, Unfit | None]:
    """Return the record that a host has, and why it cannot be taken."""
    if unreadable:
        return NodeRecord(), Unfit("", unreadable)
    try:
        return from_values(recorded), None
    except Unfit as unfit:
        return NodeRecord(), unfit


def _is_stuck(run: UpgradeRun, arrived: float, seconds: float) -> bool:
    """Whether a host has waited so long while this run works on no node: then it is others who leave no room."""
    quiet = run.quiet_since()
    return quiet is not None and time.time() - max(arrived, quiet) > seconds


def _one_migration(hosts: Iterable[str], hostvars: Mapping[str, Any]) -> dict[str, str]:
    """Return C(work) and C(target) of a run whose pools are migrated; nothing where none is. Raises Refused: they differ, and a run has one of each."""
    found: dict[tuple[str, str], list[str]] = {}
    for host in hosts:
        about = plain(hostvars[host].get("__gpu_upgrade_host") or {})
        if about.get("work"):
            found.setdefault((str(about["work"]), str(about["target"])), []).append(host)
    if len(found) > 1:
        said = "; ".join(f"{titles(named)}: {target}" for (_work, target), named in found.items())
        raise Refused(
            "the pools of this run",
            f"they are migrated to different things ({said})",
            "Run once for each, with --limit.",
        )
    return {name: value for pair in found for name, value in zip(("work", "target"), pair, strict=True)}


def _refuse_strangers(members: Mapping[str, FleetHost], names: Mapping[str, str]) -> None:
    """Refuse a host that is no node before anything is touched: it could not be cordoned, nor emptied."""
    strangers = {host: names[host] for host, member in members.items() if member.node is None and member.reachable}
    if strangers:
        named = ", ".join(host if host == node else f"{host} (node {node})" for host, node in strangers.items())
        raise Refused(
            named,
            "the cluster has no such node",
            f"Set gpu_node_name, or leave it out: --limit 'gpu_hosts,{','.join(f'!{host}' for host in strangers)}'.",
        )


def _refuse_a_second(members: Iterable[FleetHost], seconds: int, warn: Callable[[str], None]) -> None:
    """Without a cluster there is no lease: the records on the hosts say whether another run is at work."""
    here = cluster_lease.this_run()
    now = datetime.datetime.now(datetime.timezone.utc)
    alive = [member for member in members if not cluster_lease.is_gone(member.record.operator, here)]
    for host in in_future({one.host: one.record.since for one in alive if one.record.interrupted}, now):
        warn(
            f"{host}: its record in {UPGRADE_RECORD} is of a time in the future, and is not believed. Correct the clock of whoever wrote it, or the file."
        )
    record = at_work_elsewhere(alive, str(here), now, seconds)
    if record is not None:
        host = next(member.host for member in alive if member.record is record)
        raise Refused(
            f"host {host}",
            f"{record.operator} is working on this fleet: it was last seen at {record.since}, {record.state}",
            f"Wait until it ends. If it is dead, it no longer counts {seconds} s after it was last seen, or at once with "
            "gpu_node_lease_take_over=true.",
        )


def _read(variables: Mapping[str, Any]) -> tuple[Facts | None, Mapping[str, Any]]:
    return facts_of(registered(variables, "gpu_facts_host"))[0], variables


def _budget(arguments: dict[str, Any]) -> waves.Budget:
    return waves.Budget(
        arguments["canary"], arguments["max_parallel"], arguments["max_unavailable"], arguments["max_failures"]
    )
