# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recommend MIG layouts for all hosts of a play: what serves a demand with the fewest evictions. Nothing is changed by it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ansible.errors import AnsibleError

from ...module_utils._adapters.files import read_text, write_whole
from ...module_utils._boards.board import GpuInstanceProfile
from ...module_utils._boards.lookup import board, described_board
from ...module_utils._facts_view import Facts
from ...module_utils._formats.documents import whole_number
from ...module_utils._mig.desired import LAYOUT
from ...module_utils._plan import Failure, Refused
from ...module_utils._sharing.desired import read as read_sharing
from ...module_utils._sharing.modes import Sharing
from ...module_utils._sharing.mps_instances import GPU, mig_resource
from ...module_utils._users import JOB, allocated, mps_pids, processes_on
from ..action_options import takes
from ..cluster import Cluster, at_once
from ..descriptions import RunHost, hosts_of
from ..fleet import capacity
from ..fleet.objects import identities
from ..fleet.pods import Pod, evictions
from ..fleet.pods import read as read_pod
from ..fleet.text import shortened
from ..host_facts import ControllerAction
from ..plain import plain, terminal_width, write_report
from ..pools import GPU_HOSTS
from ..recommend import demand
from ..recommend.answer import FleetAnswer, HostAnswer, PurchaseAnswer, host_answer, pictured
from ..recommend.checker import NotProven, least_hosts, verify
from ..recommend.goals import consolidate, empty_hosts, grow
from ..recommend.highs import INFINITY, numpy
from ..recommend.moves import order_of
from ..recommend.one_host import fewer_by_pods, pods_with_several, recommend_hosted, without_host
from ..recommend.outcome import refuse_missing
from ..recommend.problem import WHOLE, FleetGpu, Group, Problem, UnitKind, check
from ..recommend.survey import FleetSurvey, SurveyedHost, survey
from ..render import usage_page
from ..render.emit import comment, yaml_text
from ..role_variables import value_of
from .fleet_plan import facts_of_host

_HEADER = """Written by gpufleet.nvidia.recommend. Give it to plan, repartition and render with -e @FILE. In group_vars/gpu_hosts it counts only for hosts
of which no other group and no host variable says nvidia_mig_layout. A host whose GPUs were partitioned otherwise since is refused: run
gpufleet.nvidia.recommend again."""


@dataclass
class _Fleet:
    """The hosts of the play.

    :param users: who uses which device of each host, by UUID.
    :param described: the hosts as they are described, for those that are not planned.
    """

    hosts: dict[str, SurveyedHost] = field(default_factory=dict)
    users: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    sharing: dict[str, Sharing] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    described: dict[str, HostAnswer] = field(default_factory=dict)


class ActionModule(ControllerAction):
    OPTIONS = takes(
        "fleet",
        "hosts facts_directory mode prices demand requests headroom free weights larger partial seconds report html variables_file kubeconfig context",
    )
    UNTOUCHED = " Nothing was changed."

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self._answer(arguments, task_vars)
        except (Failure, AnsibleError) as error:
            return {"failed": True, "refusals": [], "msg": str(error)}
        except NotProven as error:
            message = f"the plan that was found is not what it says: {error}. Nothing was written. Please report it."
            return {"failed": True, "refusals": [], "msg": message}
        self._display.display("\n" + answer.text(terminal_width()))
        changed = False
        if arguments["report"]:
            changed |= write_report(arguments["report"], answer.as_dict())
        result = {"changed": changed, "to_change": [], "evicted": [], "refusals": [], "msg": answer.proof()}
        if isinstance(answer, PurchaseAnswer):
            return result
        if arguments["variables_file"]:
            text = comment(_HEADER) + yaml_text(answer.variables())
            changed |= write_whole(os.path.abspath(arguments["variables_file"]), text)
        if arguments["html"]:
            page = usage_page.page(answer.pictures, "GPUs now, and with the recommended layouts")
            changed |= write_whole(os.path.abspath(arguments["html"]), page)
        hosts = [host.name for host in answer.changed]
        return {**result, "changed": changed, "to_change": hosts, "evicted": answer.evicted}

    def _answer(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> FleetAnswer | PurchaseAnswer:
        # Before the cluster is asked and the demand is read: nothing of it is of use without.
        numpy()
        grows = arguments["mode"] == "grow"
        for option in ("file", "html") if grows else ():
            if arguments["variables_file" if option == "file" else option]:
                reason = "gpu_recommend_mode: grow says what has to be bought, and recommends no layouts"
                raise Refused(f"gpu_recommend_{option}", reason, "Leave it out, or use gpu_recommend_mode: serve.")
        seconds = INFINITY if arguments["seconds"] is None else arguments["seconds"]
        if seconds < 1:
            raise Refused("gpu_recommend_seconds", f"{seconds} must be an integer from 1 on", "")
        pods: list[tuple[Pod, dict[str, Any]]] | None = None
        daemon_sets: Collection[tuple[str, str]] = ()
        if arguments["kubeconfig"]:
            cluster = Cluster(arguments["kubeconfig"], arguments["context"], 30, at_once(self._display))
            pods = [(read_pod(document), document) for document in cluster.pods()]
            daemon_sets = identities(cluster.daemon_sets())
        # Asked only where a pod has claims: there may be no such API.
        claims = any(pod.claims for pod, _document in pods or ())
        lines = _lines(arguments, pods or (), cluster.resource_claims() if claims else ())
        fleet = _read(arguments, task_vars, pods)
        found = survey(list(fleet.hosts.values()))
        left_out = {**fleet.left_out, **found.left_out}
        if not found.groups:
            reasons = shortened([f"{name}: {reason}" for name, reason in left_out.items()], 20)
            remedy = "Run gpufleet.nvidia.site first, or name other hosts with --limit."
            raise Refused("gpu_hosts", f"no GPU can be planned ({reasons or 'there are no hosts'})", remedy)
        prices = _prices(arguments["prices"], found) if grows else {}
        sold = {name for name, _gpus in prices}
        boards = {**{name: board(name).profiles for name in sold - found.boards.keys()}, **found.boards}
        pools = {pool: sorted({*names, *sold}) for pool, names in found.pools.items()}
        offers = {(pool, *host): price for pool in pools for host, price in prices.items()}
        # A board that can be bought is one of the fleet of which there is no GPU.
        groups = (*found.groups, *(Group((FleetGpu(pool, name),), 0) for pool in pools for name in sorted(sold)))
        by_claims = {host.pool for name, host in fleet.hosts.items() if fleet.sharing[name].backend == "dra"}
        wanted, unplanned = demand.wanted(lines, pools, boards, arguments["larger"], by_claims)
        left_out.update(unplanned)
        moves, replicas = _moves(pools, boards), _replicas(found, fleet)
        problem = Problem(boards, groups, tuple(wanted), moves, replicas, _weights(arguments["weights"]))
        free, _pods = demand.wanted(demand.free(arguments["free"]), pools, boards, arguments["larger"])
        # Nobody runs with the priority of what is to stay free, so it has no part in the ranks.
        weights = {**problem.weight(), demand.LOWEST: 1} if free else problem.weights
        problem = replace(problem, wanted=(*wanted, *free), weights=weights)
        check(problem)
        if grows:
            purchase = grow(problem, offers, seconds)
            by_device = any(one.together > 1 for one in problem.wanted)
            return PurchaseAnswer(purchase, offers, left_out, verify(purchase.problem, purchase.outcome)[0], by_device)
        asked, spare, emptied = problem, None, None
        if arguments["mode"] == "consolidate":
            asked, spare = consolidate(problem)
        elif arguments["mode"] == "consolidate_hosts":
            emptied = empty_hosts(problem, {name.partition(": ")[0] for name in found.left_out}, seconds)
            asked, spare = emptied.problem, emptied.spare
        hosted = recommend_hosted(asked, seconds)
        hosted = hosted if emptied is None else emptied.judged(hosted)
        outcome, after = hosted.outcome, hosted.plan.after
        left_out.update(hosted.left_out)
        if not arguments["partial"]:
            refuse_missing(hosted.plan.problem, hosted.plan.outcome)
        answers = [_host(fleet, name, layouts) for name, layouts in after.items()]
        planned = {host.name for host in answers}
        others = [host for name, host in fleet.described.items() if name not in planned]
        hosts = sorted((*answers, *others), key=lambda host: host.name)
        evicted = {who for host in hosts for who in host.evicted}
        several = pods_with_several(fleet.hosts, found.users, hosted.plan)
        gone = [pod for pod in several if pod.name in evicted]
        leave = [pod for pod, _document in pods or () if pod.title in evicted]
        changed = [host.name for host in hosts if host.changes]
        order, short = order_of(problem, after, changed)
        answer = FleetAnswer(
            hosts,
            outcome,
            left_out,
            hosted.gap,
            hosted.more,
            spare,
            emptied,
            blocked=evictions(leave, daemon_sets=daemon_sets, uids=[pod.uid for pod in leave]).blockers,
            order=order,
            short=short,
            least=min(len(changed), max(outcome.least_hosts, least_hosts(hosted.problem, outcome))),
            homeless=without_host(hosted.plan, gone),
            fewer=fewer_by_pods(hosted, several, gone),
        )
        facts = {name: host.facts for name, host in fleet.hosts.items()}
        return replace(answer, pictures=pictured(answer, facts, fleet.users)) if arguments["html"] else answer


def _lines(
    arguments: Mapping[str, Any], pods: Sequence[tuple[Pod, Mapping[str, Any]]], claims: Sequence[Mapping[str, Any]]
) -> list[demand.DemandLine]:
    """Return everything that is wanted: as it is described, with the headroom, and what waits now."""
    headroom = arguments["headroom"]
    if not 0 <= headroom <= 1000:
        raise Refused("gpu_recommend_headroom", f"{headroom} must be an integer from 0 to 1000", "It is in percent.")
    described = demand.described(arguments["demand"] or [])
    lines = [replace(one, count=-(-one.count * (100 + headroom) // 100)) for one in described]
    if arguments["requests"]:
        path = os.path.abspath(arguments["requests"])
        text = read_text(path)
        if text is None:
            raise Refused("gpu_recommend_requests", f"{path} cannot be read", "Give the path of a CSV file.")
        lines += demand.over_time(text, arguments["requests"], headroom)
    return lines + demand.waiting(pods, claims)


def _read(
    arguments: Mapping[str, Any], task_vars: Mapping[str, Any], pods: Sequence[tuple[Pod, Mapping[str, Any]]] | None
) -> _Fleet:
    names = plain((task_vars.get("groups") or {}).get(GPU_HOSTS) or [])
    played = set(names if arguments["hosts"] is None else arguments["hosts"])
    priorities = {pod.title: int((document.get("spec") or {}).get("priority") or 0) for pod, document in pods or ()}
    asked = None if pods is None else {pod.uid: pod for pod, _document in pods if not pod.ended}
    fleet = _Fleet()
    for host in hosts_of(names, task_vars):
        # The file describes all hosts, those outside of the limit as they are described now.
        layout: Any = []
        try:
            layout = value_of(LAYOUT, host.variables, default=[])
            directory = arguments["facts_directory"]
            reason = _take(host, fleet, directory, asked, priorities) if host.name in played else ""
        except Refused as refusal:
            reason = refusal.message
        if reason:
            fleet.left_out[host.name] = reason
        fleet.described[host.name] = HostAnswer(host.name, host.description.pool or "", layout)
    return fleet


def _take(
    host: RunHost, fleet: _Fleet, directory: str, pods: Mapping[str, Pod] | None, priorities: Mapping[str, int]
) -> str:
    """Take a host into the fleet, or return why it is left out."""
    facts, unread = facts_of_host(host, directory, bool(directory))
    if facts is None:
        return f"it could not be read: {unread}"
    if host.description.refusals:
        return host.description.refusals[0].message
    desired = host.description.variables
    sharing, strategy = read_sharing(desired), desired["nvidia_mig_strategy"]
    if sharing.backend == "hami" or sharing.consumed:
        return "its GPUs are divided by what each pod asks for"
    if strategy == "none" and any(gpu.mig.current for gpu in facts.gpus or ()):
        return "MIG is on, and nvidia_mig_strategy is none"
    users = _users(facts, pods)
    fleet.users[host.name], fleet.sharing[host.name] = users, sharing
    # Processes that share a device are one user: nobody has counted them when the device was given.
    parts = [part for gpu in facts.gpus or () for part in gpu.parts]
    given = {str(part.uuid) for part in parts if part.allocations} if sharing.replicated else set()
    counted = {device: who if device in given else (", ".join(sorted(who)),) for device, who in users.items()}
    ranks = {one: max(priorities.get(name, 0) for name in one.split(", ")) for who in counted.values() for one in who}
    fleet.hosts[host.name] = SurveyedHost(
        host.name,
        host.description.pool or "",
        facts,
        strategy == "single",
        strategy == "none",
        counted,
        ranks,
    )
    return ""


def _users(facts: Facts, pods: Mapping[str, Pod] | None) -> dict[str, tuple[str, ...]]:
    """Return who uses each device: the pods of the kubelet's record that there still are and the jobs of Slurm, else the processes.

    :param pods: those of the cluster, by UID; None where it was not asked.
    """
    found, daemons = {}, mps_pids(facts)
    for gpu in facts.gpus or ():
        for part in gpu.parts:
            given = [one for one in part.allocations if one.pod_uid and (pods is None or one.pod_uid in pods)]
            who = [pods[str(one.pod_uid)].title if pods else str(one.pod or one.pod_uid) for one in given]
            who += [user.name for user in allocated(part.allocations) if user.kind == JOB]
            who = who or [str(user) for user in processes_on(part) if user.pid not in daemons]
            if who:
                found[str(part.uuid)] = tuple(who)
    return found


def _prices(given: Mapping[Any, Any], found: FleetSurvey) -> dict[tuple[str, int], int]:
    """Return what a host costs, by the board of its GPUs and how many it has; the price of a GPU alone is that of a host with one."""
    prices = {}
    for name, several in given.items():
        path = f"gpu_recommend_prices['{name}']"
        key = name if name in found.boards else described_board(str(name), path).key
        for gpus, price in several.items() if isinstance(several, Mapping) else [(1, several)]:
            count = whole_number(str(gpus))
            if not count or count > 16:
                raise Refused(
                    f"{path}['{gpus}']", "must be an integer from 1 to 16", "It is the number of GPUs of a host."
                )
            if isinstance(price, bool) or not isinstance(price, int) or price < 1:
                what = "a host" if isinstance(several, Mapping) else "one GPU"
                raise Refused(path, f"{price!r} must be an integer from 1 on", f"It is the price of {what}.")
            prices[key, count] = price
    if not prices:
        raise Refused("gpu_recommend_prices", "no board has a price", "For example {h100-80gb-sxm: {8: 250000}}.")
    return prices


def _moves(
    pools: Mapping[str, Sequence[str]], boards: Mapping[str, Sequence[GpuInstanceProfile]]
) -> dict[UnitKind, tuple[UnitKind, ...]]:
    """Return what serves whoever is evicted: the same resource on any board of the pool."""
    alike: dict[tuple[str, str], tuple[UnitKind, ...]] = {}
    for pool, names in pools.items():
        for name in names:
            for profile in (WHOLE, *(one.name for one in boards[name])):
                alike[pool, profile] = (*alike.get((pool, profile), ()), UnitKind(pool, name, profile))
    return {kind: kinds for kinds in alike.values() for kind in kinds}


def _replicas(found: FleetSurvey, fleet: _Fleet) -> dict[UnitKind, int]:
    """Return how many users share a unit of each kind: where hosts of a pool differ, as many as all of them offer; 1 where one of them shares none."""
    shared: dict[UnitKind, int] = {}
    for group in found.groups:
        for host in set(group.hosts):
            sharing, facts = fleet.sharing[host], fleet.hosts[host].facts
            for state in group.states:
                memory = max((gpu.memory_mib or 0 for gpu in facts.gpus or ()), default=0)
                offered = [(WHOLE, memory), *((one.name, one.memory_mib) for one in found.boards[state.board])]
                for profile, mib in offered:
                    kind = UnitKind(state.pool, state.board, profile)
                    single = profile == WHOLE or fleet.hosts[host].single
                    count = 1
                    # Where the slice does not fit twice, the device is not shared.
                    with suppress(Refused):
                        if sharing.replicated:
                            count = sharing.replicas_on(mib, resource=GPU if single else mig_resource(profile))
                    shared[kind] = min(count, shared.get(kind, count))
    return shared


def _weights(given: Mapping[Any, Any]) -> dict[int, int]:
    try:
        # A text keeps int from cutting 1.5.
        return {int(str(priority)): int(str(weight)) for priority, weight in given.items()}
    except ValueError:
        remedy = "For example {0: 1, 1000: 10}."
        raise Refused("gpu_recommend_weights", "must be integers by priority", remedy) from None


def _host(fleet: _Fleet, name: str, after: Mapping[int, Any]) -> HostAnswer:
    host = fleet.hosts[name]
    if host.fixed:
        return fleet.described[name]
    answer = host_answer(name, host.pool, host.facts, after, fleet.users[name])
    if answer.changes:
        # Nothing is recommended that the host's other variables refuse.
        try:
            capacity.capacity(
                host.facts.gpus or (), "single" if host.single else "mixed", answer.layout, fleet.sharing[name]
            )
        except Refused as refusal:
            raise Refused(f"{name}: {refusal.thing}", refusal.reason, refusal.remedy) from None
    return answer
