# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The answer of the fleet planner as people, programs and other playbooks take it: by host, with its proof. Pure.

Whom the change of a GPU evicts says the planner that changes it (L(plan_gpu)), which C(repartition) asks with the same devices that stay.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from ...module_utils._facts_view import Facts
from ...module_utils._mig.mig_parted import layout_of
from ...module_utils._mig.model import DesiredGpu, DesiredInstance, describe
from ...module_utils._mig.plan import FORCE, named_as, plan_gpu
from ...module_utils._mig.state import NodeGpu, node_gpus
from ..fleet.text import ranges, shortened, table
from ..fleet.usage import NodeUsage, PodShare, node_usage
from .goals import EmptiedHosts, Offer, Purchase
from .outcome import FleetOutcome, Instances, KindPrices
from .problem import EMPTY
from .seen import SEEN, devices_of, pods_of, state_of

LAYOUTS = "gpu_recommend_layouts"
#: A text that extra variables and group variables hold for all hosts: the layout of the host, else that of its pool, else nothing.
_LAYOUT = (
    "{{ ([inventory_hostname, gpu_facts_pool | default('', true)] + group_names | default([]))"
    f" | select('in', {LAYOUTS}) | map('extract', {LAYOUTS}) | first | default([]) }}}}"
)
#: What a GPU becomes that is to be empty.
_SPARE = (EMPTY,)


@dataclass(frozen=True)
class AnnouncedChange:
    """What one GPU becomes.

    :param evicted: who uses what does not stay. C(keeps): the MIG devices in use that stay, by UUID.
    :param idle: how many instances go that nobody uses.
    :param then: what there is then.
    """

    index: int
    before: str
    after: str
    evicted: tuple[str, ...]
    idle: int
    keeps: tuple[str, ...]
    then: tuple[PodShare, ...]


@dataclass(frozen=True)
class HostAnswer:
    """What becomes of a host. C(layout): its C(nvidia_mig_layout). C(state): L(state_of) when it was read. C(empty): GPUs that nobody needs."""

    name: str
    pool: str
    layout: Any
    state: str = ""
    changes: tuple[AnnouncedChange, ...] = ()
    empty: tuple[int, ...] = ()

    @property
    def evicted(self) -> list[str]:
        return sorted({who for one in self.changes for who in one.evicted})


@dataclass(frozen=True)
class FleetAnswer:
    """The whole answer.

    :param gap: by how much a better plan could be cheaper, in idle instances; C(more): how many requests more could be served, by priority. Both are what
        the checker says.
    :param blocked: whom C(repartition) refuses to evict unless a variable allows it, and why.
    :param order: of the hosts that change, in which at most C(short) running users lack a unit in between.
    :param pictures: of L(pictured), where they are asked for.
    :param least: how many hosts at the least every plan changes that is as good.
    :param spare: the priority of GPUs that are asked to be empty; None where none are. C(emptied): the hosts that are, as a whole.
    :param homeless: who is evicted, has several devices, and for whom no host was found that has as many. C(fewer): of L(fewer_by_pods).
    """

    hosts: Sequence[HostAnswer]
    outcome: FleetOutcome
    left_out: Mapping[str, str]
    gap: Fraction
    more: Mapping[int, Fraction]
    spare: int | None = None
    emptied: EmptiedHosts | None = None
    blocked: Mapping[str, str] = field(default_factory=dict)
    pictures: Sequence[NodeUsage] = ()
    order: Sequence[str] = ()
    short: int = 0
    least: int = 0
    homeless: Sequence[str] = ()
    fewer: int = 0

    @property
    def changed(self) -> list[HostAnswer]:
        return [host for host in self.hosts if host.changes]

    @property
    def evicted(self) -> list[str]:
        return sorted({who for host in self.hosts for who in host.evicted})

    @property
    def preempted(self) -> int:
        """How many users lose an instance that stays: the scheduler gives it to pods of more priority."""
        return sum(self.outcome.leaving.values())

    @property
    def requests(self) -> dict[int, dict[str, int]]:
        """Return how many requests of each priority there are and how many are served, the highest first."""
        found = sorted(self.outcome.served.items(), reverse=True)
        return {one: {"asked": self.outcome.asked[one], "served": count} for one, count in found if one != self.spare}

    def proof(self) -> str:
        """Return what is proven, one sentence."""
        bound, other = _proven(self.outcome, self.gap)
        plan = "plan that serves as much" + (" and leaves as many hosts empty" if self.emptied else "")
        text = f"{bound}no {plan} evicts fewer, weighted by priority."
        if other >= 1:
            text = f"Not proven to be the best: a {plan} could do with up to {other:.1f} evictions of the lowest weight less."
        elif other:
            text = f"{bound}no {plan} is better by a whole eviction."
        # Requests are whole: a part of one is none.
        more = {priority: int(count) for priority, count in self.more.items() if count >= 1}
        empty = more.pop(self.spare, 0) if self.spare is not None else 0
        open_ = ", ".join(f"{count} of priority {priority}" for priority, count in more.items())
        text += f" Up to {open_} more could perhaps be served." if open_ else ""
        if self.fewer:
            text += f" This counts devices: by pods, of which some have several, another plan could evict up to {self.fewer} fewer, weighted by priority."
        return text + (f" Up to {empty} GPUs more could perhaps be empty." if empty else "")

    def ties(self) -> str:
        """Return what of plans that are as good was chosen, and how far that is from the best, one sentence."""
        hosts, room = len(self.changed), self.outcome.room
        fewest = (
            "no plan that is as good changes fewer"
            if hosts <= self.least
            else f"one that is as good could do with {self.least}"
        )
        more = "and others were not compared by the room that they leave"
        if self.outcome.most_room is not None:
            less = self.outcome.most_room - room
            more = f"and could leave room for {less} instances more"
            more = more if less > 0 else "and none with as few leaves more room"
        text = f"changed: {hosts}; {fewest}, {more}."
        if self.emptied is None:
            return f"Hosts {text}"
        most = self.emptied.most
        others = (
            "no plan that serves as much leaves more" if len(self.emptied.hosts) >= most else f"others may leave {most}"
        )
        return f"Hosts left empty: {shortened(sorted(self.emptied.hosts), 20) or 'none'}; {others}. With these, hosts {text}"

    def text(self, width: int = 0) -> str:
        """Return it for people: what is served, what changes, whom that evicts, and what is proven."""
        served = [[str(one), str(count["asked"]), str(count["served"])] for one, count in self.requests.items()]
        rows = [row for host in self.changed for row in _rows(host)]
        gpus = sum(len(host.changes) for host in self.changed)
        idle = sum(one.idle for host in self.changed for one in host.changes)
        parts = [table(["PRIORITY", "REQUESTS", "SERVED"], served, width)] if served else []
        parts += [table(["HOST", "POOL", "GPUS", "NOW", "THEN", "EVICTS"], rows, width)] if rows else []
        parts += ["".join(f"left out: {name}: {reason}\n" for name, reason in self.left_out.items())]
        refused = (
            "gpufleet.nvidia.repartition evicts it only with gpu_node_evict_force or gpu_node_evict_delete_empty_dir"
        )
        parts += ["".join(f"{title}: {reason}; {refused}\n" for title, reason in self.blocked.items())]
        summary = f"{gpus} GPUs of {len(self.changed)} hosts change; evicted: {shortened(self.evicted, 20) or 'none'}; idle instances destroyed: {idle}."
        if self.preempted:
            summary += f" {self.preempted} users lose an instance that stays to requests of more priority."
        if self.homeless:
            summary += f" No host was found that has all devices of: {shortened(self.homeless, 20)}."
        if self.short:
            summary += f" While a host changes, up to {self.short} running users have no unit at once, in any order that was found."
        if self.spare is not None:
            empty = [f"{host.name}: {ranges(host.empty)}" for host in self.hosts if host.empty]
            summary += (
                f"\nEmpty then: {sum(len(host.empty) for host in self.hosts)} GPUs ({'; '.join(empty) or 'none'})."
            )
        summary += f"\n{self.proof()}"
        summary += f"\n{self.ties()}" if self.changed else ""
        return "\n".join(part for part in (*parts, summary) if part)

    def as_dict(self) -> dict[str, Any]:
        """Return it for programs, with the certificate."""
        emptied = {"emptied": sorted(self.emptied.hosts), "most_emptied": self.emptied.most} if self.emptied else {}
        return {
            "ties": {
                **emptied,
                "hosts": len(self.changed),
                "least_hosts": self.least,
                "room": self.outcome.room,
                "most_room": self.outcome.most_room,
            },
            "served": _by_text(self.requests),
            "hosts": {
                host.name: {
                    "pool": host.pool,
                    "layout": host.layout,
                    "evicts": host.evicted,
                    "empty": list(host.empty),
                    "gpus": [
                        {"index": one.index, "before": one.before, "after": one.after, "evicts": list(one.evicted)}
                        for one in host.changes
                    ],
                }
                for host in self.hosts
            },
            "order": list(self.order),
            "short": self.short,
            "left_out": dict(self.left_out),
            "homeless": list(self.homeless),
            "blocked": dict(self.blocked),
            "preempted": [
                {**kind._asdict(), "priority": priority, "count": count}
                for (kind, priority), count in sorted(self.outcome.leaving.items())
            ],
            "proof": self.proof(),
            "certificate": _certificate(self.outcome, self.gap),
        }

    def variables(self) -> dict[str, Any]:
        """Return what C(plan), C(render) and C(repartition) take: layouts, by pool where that are fewer entries, and what was seen of hosts that change."""
        layouts: dict[str, Any] = {}
        pools: dict[str, list[HostAnswer]] = {}
        for host in self.hosts:
            pools.setdefault(host.pool, []).append(host)
        names = {host.name for host in self.hosts}
        for pool, hosts in sorted(pools.items()):
            texts = {host.name: json.dumps(host.layout, sort_keys=True) for host in hosts}
            # With an entry of the pool, only hosts that have another layout need one: the fewest where it is the most frequent.
            (most, count), *_others = Counter(texts.values()).most_common(1)
            shared = most if pool and pool not in names and count > 1 else None
            if shared:
                layouts[pool] = next(host.layout for host in hosts if texts[host.name] == shared)
            layouts.update({host.name: host.layout for host in hosts if texts[host.name] != shared})
        seen = {
            host.name: {
                "state": host.state,
                "evicts": pods_of(host.evicted),
                "keeps": devices_of(device for one in host.changes for device in one.keeps),
            }
            for host in self.changed
        }
        return {"nvidia_mig_layout": _LAYOUT, LAYOUTS: layouts, SEEN: seen, "gpu_recommend_order": list(self.order)}


@dataclass(frozen=True)
class PurchaseAnswer:
    """Which hosts have to be bought. C(offers): the price of each. C(gap): as of L(FleetAnswer).

    :param by_device: some pods ask for several devices, each of which was taken for a request.
    """

    purchase: Purchase
    offers: Mapping[Offer, int]
    left_out: Mapping[str, str]
    gap: Fraction
    by_device: bool = False

    def proof(self) -> str:
        bound, other = _proven(self.purchase.outcome, self.gap)
        text = f"{bound}no cheaper purchase serves everything."
        if not self.purchase.hosts:
            text = "Nothing has to be bought: layouts of the GPUs that there are serve everything."
        elif other >= 1:
            less = float(other) * self.purchase.unit
            text = f"Not proven to be the cheapest: another purchase could cost up to {less:.0f} less."
        return text + (" That one host has all devices of each pod is not part of it." if self.by_device else "")

    def text(self, width: int = 0) -> str:
        lines = self.as_dict()["purchase"]
        rows = [[*map(str, line.values())] for line in lines]
        parts = [table(["POOL", "BOARD", "GPUS", "HOSTS", "PRICE"], rows, width)] if rows else []
        parts += ["".join(f"left out: {name}: {reason}\n" for name, reason in self.left_out.items())]
        gpus = sum(line["gpus"] * line["count"] for line in lines)
        hosts = f", in {sum(self.purchase.hosts.values())} hosts" if any(line["gpus"] > 1 for line in lines) else ""
        summary = f"{gpus} GPUs are missing{hosts}; the cheapest cost {self.purchase.cost}."
        return "\n".join(part for part in (*parts, f"{summary}\n{self.proof()}") if part)

    def as_dict(self) -> dict[str, Any]:
        bought = sorted(self.purchase.hosts.items())
        return {
            "purchase": [
                {"pool": offer[0], "board": offer[1], "gpus": offer[2], "count": count, "price": self.offers[offer]}
                for offer, count in bought
            ],
            "cost": self.purchase.cost,
            "left_out": dict(self.left_out),
            "proof": self.proof(),
            "certificate": _certificate(self.purchase.outcome, self.gap),
        }


def _proven(outcome: FleetOutcome, gap: Fraction) -> tuple[str, float]:
    """Return how it is known that no plan is better, and by how many evictions of the least weight one still could be."""
    if gap < outcome.scale:
        # Prices alone show it to less than an eviction, and the search what is below that.
        return "Proven: ", 0 if outcome.searched or gap < 1 else float(gap) / outcome.scale
    return "Proven by the search, and not by prices alone: ", 0 if outcome.searched else outcome.gap


def _certificate(outcome: FleetOutcome, gap: Fraction) -> dict[str, Any]:
    served = {one: _prices(table) for one, table in outcome.served_prices.items()}
    return {
        "cost": outcome.cost,
        "scale": outcome.scale,
        "parts": outcome.parts,
        "gap": str(gap),
        "searched": outcome.searched,
        **_prices(outcome.prices),
        "served_prices": _by_text(served),
    }


def _by_text(by_priority: Mapping[int, Any]) -> dict[str, Any]:
    return {str(priority): value for priority, value in by_priority.items()}


def _prices(prices: KindPrices) -> dict[str, Any]:
    return {
        "prices": [{**kind._asdict(), "price": price} for kind, price in sorted(prices.unit.items())],
        "kept": [
            {**kind._asdict(), "priority": priority, "price": price}
            for (kind, priority), price in sorted(prices.kept.items())
        ],
        "served_at": _by_text(prices.served),
    }


def _rows(host: HostAnswer) -> list[list[str]]:
    """Return the lines of a host; GPUs that change alike and evict nobody are one."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for one in host.changes:
        alike.setdefault((one.before, one.after, ", ".join(one.evicted) or "-"), []).append(one.index)
    return [
        [host.name, host.pool, ranges(indices), before, after, evicts]
        for (before, after, evicts), indices in alike.items()
    ]


def pictured(answer: FleetAnswer, facts: Mapping[str, Facts], users: Mapping[str, Any]) -> list[NodeUsage]:
    """Return the hosts that change with these GPUs of theirs, now and then. C(users): by host and device."""
    found = []
    for host in answer.changed:
        given = {device: Counter(who) for device, who in users[host.name].items()}
        node = node_usage(host.name, host.pool, facts[host.name], {}, (), (), given)
        then = {one.index: one.then for one in host.changes}
        gpus = [(gpu, then[gpu.index]) for gpu in node.gpus if gpu.index in then]
        both = [replace(gpu, then=replace(gpu, mig=all(one.size for one in new), shares=new)) for gpu, new in gpus]
        found.append(replace(node, gpus=tuple(both)))
    return found


def host_answer(
    name: str,
    pool: str,
    facts: Facts,
    after: Mapping[int, Instances | None],
    users: Mapping[str, Collection[str]],
) -> HostAnswer:
    """Return what becomes of a host.

    :param after: of its GPUs that are planned, by index.
    :param users: who uses which device, by UUID.
    """
    gpus = [gpu for gpu in node_gpus(facts) if gpu.index in after]
    empty = tuple(gpu.index for gpu in gpus if after[gpu.index] == _SPARE)
    # An empty GPU keeps its MIG mode.
    after = {**after, **{gpu.index: () if gpu.enabled else None for gpu in gpus if gpu.index in empty}}
    changes = (_change(gpu, after[gpu.index], users) for gpu in gpus)
    capable = {gpu.index: _desired(gpu, after[gpu.index]) for gpu in gpus if gpu.has_mig}
    layout = _layout(capable, len(gpus) == len(facts.gpus or ()))
    return HostAnswer(name, pool, layout, state_of(facts), tuple(one for one in changes if one is not None), empty)


def _desired(gpu: NodeGpu, after: Instances | None) -> DesiredGpu:
    slices = {profile.name: profile.gpu_slices for profile in gpu.profiles}
    return DesiredGpu(
        after is not None, tuple(sorted(DesiredInstance(name, (slices[name],)) for name, _start, _size in after or ()))
    )


def _change(gpu: NodeGpu, after: Instances | None, users: Mapping[str, Collection[str]]) -> AnnouncedChange | None:
    """Return what a GPU becomes: a layout says how many instances there are, and which of those in use stay is the search's to say."""
    desired = _desired(gpu, after)
    current = [
        replace(
            one,
            busy=(),
            named=(one.profile, one.start, one.size) in (after or ())
            and any(users.get(str(part.uuid)) for part in one.compute),
            compute=tuple(replace(part, busy=tuple(users.get(str(part.uuid), ()))) for part in one.compute),
        )
        for one in named_as(gpu.current, gpu.profiles)
    ]
    found = plan_gpu(current if gpu.enabled else (), desired, gpu.profiles, FORCE, gpu.title)
    switched = bool(gpu.enabled) != desired.enabled
    if not (switched or found.destroy or found.create):
        return None
    going = [one.instance for one in found.destroy]
    evicted = [*(who for one in going for who in one.users)]
    if switched and desired.enabled:
        evicted += users.get(str(gpu.facts.uuid), ())
    then = [PodShare("", "", 0, 0, gpu.facts.memory_mib or 0, 1)]
    if desired.enabled:
        memory = {one.name: one.memory_mib or 0 for one in gpu.profiles}
        there = {(one.profile, one.start, one.size): one.users for one in (kept.instance for kept in found.keep)}
        there.update({(one.profile.name, one.start, one.size): () for one in found.create})
        then = [PodShare("", *place, memory.get(place[0], 0), 1, Counter(who)) for place, who in there.items()]
    return AnnouncedChange(
        gpu.index,
        describe(Counter(one.profile for one in current)) if gpu.enabled else "MIG off",
        str(desired),
        tuple(dict.fromkeys(evicted)),
        sum(1 for one in going if not one.users),
        tuple(str(part.uuid) for one in current if one.named for part in one.compute),
        tuple(then),
    )


def _layout(after: Mapping[int, DesiredGpu], everything: bool) -> list[dict[str, Any]]:
    """Return the fewest entries of a layout. C(everything): whether no other GPU of the host is left alone."""
    entries = sorted(layout_of(after, 0), key=lambda entry: len(entry["devices"]))
    if everything and entries:
        entries[-1]["devices"] = "all"
    return entries
