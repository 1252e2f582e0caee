# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes of a fleet may be taken out of service next, and what that does to NVL72 racks. Pure.

The order of a rollout is: a canary, which has to be verified before anything else starts, then as many nodes at a time as the budget
leaves: a node follows as soon as another ends. Every node that is out of service counts against the budget, whoever took it out.

The nodes of a rack follow each other, for a rack is without its IMEX domain while its nodes have different drivers: none of another rack is
started before all of them are, and, with a canary, none before one rack has been completed, for only that proves the new driver in a domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils._formats.documents import whole_number
from ...module_utils._formats.imex import HOST, MASKED
from ...module_utils._plan import Refused
from .text import shortened

WAITING = "waiting"
WORKING = "working"
DONE = "done"
FAILED = "failed"
#: Nothing is to do there: counted in the fleet, and no proof that the new state works.
CURRENT = "current"


@dataclass(frozen=True)
class Node:
    """One node as it is now.

    :param phase: C(waiting), C(working), C(done) or C(failed), of this rollout, or C(current) when it has nothing to do.
    :param ready: whether the node answers (Kubernetes: Ready). A node that does not is counted, and not started.
    :param cordoned_by_hand: whether it took none before this rollout came to it. It stays so at the end.
    :param failing: whether it has failed and is worked on all the same, to bring it back to what it was.
    :param rack: the rack whose nodes need one driver version; empty where the node is in none.
    """

    name: str
    phase: str = WAITING
    ready: bool = True
    cordoned: bool = False
    cordoned_by_hand: bool = False
    skip: bool = False
    failing: bool = False
    rack: str = ""

    @property
    def unavailable(self) -> bool:
        return self.cordoned or self.cordoned_by_hand or not self.ready or self.phase == WORKING


@dataclass(frozen=True)
class Budget:
    """What a rollout may take out of service.

    :param canary: how many nodes go first, and have to be done before any other starts; 0 is none.
    :param max_parallel: how many nodes are worked on at a time; 0 sets no limit of its own.
    :param max_unavailable: a number, or a percentage of the fleet such as C(25%), rounded down, and never less than one.
    :param max_failures: how many failed nodes are borne; one more stops the rollout.
    """

    canary: int = 1
    max_parallel: int = 1
    max_unavailable: str = "25%"
    max_failures: int = 0

    def unavailable(self, fleet: int) -> int:
        """Return how many nodes of a fleet of that size may be out of service."""
        text = str(self.max_unavailable).strip()
        number = whole_number(text[:-1] if text.endswith("%") else text)
        if number is None or number >= 10**9 or (text.endswith("%") and number > 100):
            raise Refused(
                "max_unavailable", f"{text!r} must be a number of nodes, or a percentage of them", "Write 2 or 25%."
            )
        allowed = fleet * number // 100 if text.endswith("%") else number
        return max(1, allowed)


@dataclass(frozen=True)
class Decision:
    """What to do now.

    :param finished: whether the rollout is over: nothing is worked on and nothing more can start by itself.
    :param stopped: why no further node starts although some wait, or None.
    :param left: names of the nodes that wait and cannot start, when the rollout is over.
    """

    start: tuple[str, ...] = ()
    finished: bool = False
    stopped: str | None = None
    left: tuple[str, ...] = ()


def decide(nodes: Sequence[Node], budget: Budget) -> Decision:
    """Return the nodes that may start now.

    Nodes that are out of service already (cordoned by hand) go first: they cost nothing of what may be unavailable.
    """
    working = sum(1 for node in nodes if node.phase == WORKING)
    waiting = [node for node in nodes if node.phase == WAITING and not node.skip]
    reason = too_many_failed(nodes, budget)
    if reason:
        return Decision(
            finished=not working, stopped=reason if waiting else None, left=() if working else _all(waiting)
        )

    able = [node for node in waiting if node.ready]
    start = _startable(nodes, able, budget, working)
    if start or working:
        return Decision(start=_all(start))
    if not waiting:
        return Decision(finished=True)
    away = [node.name for node in waiting if not node.ready]
    reason = (
        f"{shortened(away)} not ready"
        if not able
        else f"at most {budget.max_unavailable} may be unavailable, and that many already are"
    )
    return Decision(finished=True, stopped=reason, left=_all(waiting))


def too_many_failed(nodes: Sequence[Node], budget: Budget) -> str | None:
    """Return why no further node starts whatever happens, or None."""
    failed = [node.name for node in nodes if node.phase == FAILED or node.failing]
    if len(failed) <= budget.max_failures:
        return None
    return f"{len(failed)} failed ({shortened(failed)}) and at most {budget.max_failures} may"


def order(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the nodes that are to be worked on, in the order in which they start.

    Those that cost nothing of what may be unavailable are the first. Those that are not ready are the last: that may be over by then.
    """
    waiting = [node for node in nodes if node.phase == WAITING and not node.skip]
    able = _in_order(nodes, [node for node in waiting if node.ready])
    return _all([*able, *(node for node in waiting if not node.ready)])


def has_slot(nodes: Sequence[Node], budget: Budget) -> bool:
    """Whether one more node may be worked on, if the nodes that are unavailable leave room."""
    return _slots(nodes, budget, sum(1 for node in nodes if node.phase == WORKING)) > 0


def _in_order(nodes: Sequence[Node], able: Sequence[Node]) -> list[Node]:
    """Return nodes that can start in their order: those that cost nothing first, and the nodes of a rack together, begun racks before others."""
    begun = {node.rack for node in nodes if node.phase != WAITING}
    ranks: dict[str, tuple[bool, bool, int]] = {}
    places = {node.name: (not node.unavailable, place) for place, node in enumerate(able)}
    for node in able:
        rank = (node.rack not in begun, *places[node.name])
        ranks[node.rack] = min(ranks.get(node.rack, rank), rank)
    return sorted(
        able, key=lambda node: (ranks[node.rack] if node.rack else (True, *places[node.name]), places[node.name])
    )


def _startable(nodes: Sequence[Node], able: Sequence[Node], budget: Budget, working: int) -> list[Node]:
    slots = _slots(nodes, budget, working)
    room = budget.unavailable(len(nodes)) - sum(1 for node in nodes if node.unavailable)
    unproven = budget.canary > 0 and not _has_completed_a_rack(nodes)
    # While it is not empty, no node of another rack starts.
    only = {node.rack for node in nodes if node.rack and node.phase in (WORKING, DONE)} if unproven else set()
    start: list[Node] = []
    for node in _in_order(nodes, able):
        if len(start) == slots:
            break
        if node.rack and only and node.rack not in only:
            continue
        if node.unavailable or room > 0:
            room -= not node.unavailable
            start.append(node)
            waits = unproven and not only
        else:
            waits = True
        if waits and node.rack:
            only = {node.rack}
    return start


def _has_completed_a_rack(nodes: Sequence[Node]) -> bool:
    """Whether a rack has nodes with the new state, and none that is worked on or could start."""
    open_racks = {
        node.rack for node in nodes if node.phase == WORKING or (node.phase == WAITING and node.ready and not node.skip)
    }
    return any(node.rack and node.rack not in open_racks for node in nodes if node.phase == DONE)


def _slots(nodes: Sequence[Node], budget: Budget, working: int) -> int:
    slots = budget.max_parallel - working if budget.max_parallel else len(nodes)
    done = sum(1 for node in nodes if node.phase == DONE)
    if done < budget.canary:
        slots = min(slots, budget.canary - done - working)
    return max(0, slots)


def _all(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


@dataclass(frozen=True)
class RackHost:
    """A host of a rack as the inventory describes it and as it was read.

    :param rack: the inventory group of its rack, or C(clique ...) by its fabric; empty where IMEX is not used, or neither is known.
    :param wanted: the version that is described, or the present one where it stays; empty where a newer one of the branch is installed.
    """

    rack: str = ""
    driver: str = ""
    wanted: str = ""

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> RackHost:
        """Return the host that the survey describes.

        :param described: C(mode) of IMEX, the inventory C(group) of the rack, the NVLink C(cliques) of the GPUs, the C(driver) that is loaded, the
            C(version) that is described and whether the driver C(changes); empty of a host that was not read.
        """
        cliques = [str(clique) for clique in described.get("cliques") or () if clique]
        # A rack that no group names is known by its fabric.
        rack = str(described.get("group") or "") or (f"clique {cliques[0]}" if cliques else "")
        driver = str(described.get("driver") or "")
        wanted = str(described.get("version") or "") or ("" if described.get("changes") else driver)
        return cls(rack if described.get("mode") in (HOST, MASKED) else "", driver, wanted)


def changed_racks(hosts: Mapping[str, RackHost]) -> dict[str, str]:
    """Return the rack of each host whose rack gets another driver, by the host's name; other racks keep their domain."""
    changed = {host.rack for host in hosts.values() if host.rack and host.driver != host.wanted}
    return {name: host.rack for name, host in hosts.items() if host.rack in changed}


def announcements(nodes: Sequence[Node], budget: Budget, forks: int, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what the rollout does to each rack, one sentence or two each, before it starts.

    :param groups: the hosts of each rack by the inventory, whether the run has them or not.
    """
    texts = []
    for rack, members in _racks(nodes).items():
        waiting = [node for node in members if node.phase not in (DONE, CURRENT) and not node.skip]
        size = len(waiting)
        if not size:
            continue
        pace = min(budget.max_parallel or size, budget.unavailable(len(nodes)), forks, size)
        how = "all at a time" if pace == size else "one after another" if pace == 1 else f"at most {pace} at a time"
        text = (
            f"{rack}: {size} of its {max(len(groups.get(rack) or ()), len(members))} hosts get a new driver, {how}. Until the last has it, "
            "the rack is out of its IMEX domain: no job can share memory between hosts with the old driver and hosts with the new one."
        )
        if pace < size:
            needs = [f"gpu_upgrade_max_parallel={size}"] if 0 < budget.max_parallel < size else []
            needs += [f"gpu_upgrade_max_unavailable={size}"] if budget.unavailable(len(nodes)) < size else []
            needs += [f"--forks {size}"] if forks < size else []
            text += f" To change them together: {', '.join(needs)}."
        present = {node.name for node in members if not node.skip}
        outside = [host for host in groups.get(rack) or () if host not in present]
        if outside:
            text += f" {shortened(outside)}: not part of this run. The rack stays out of its domain until they have that driver too."
        texts.append(text)
    return texts


def mixed_racks(nodes: Sequence[Node]) -> dict[str, str]:
    """Return what is to be said of each rack that the rollout leaves with two driver versions, by the rack's name."""
    found = {}
    for rack, members in _racks(nodes).items():
        new = [node.name for node in members if node.phase in (DONE, CURRENT)]
        failed = [node.name for node in members if node.phase == FAILED]
        left = [node.name for node in members if node.name not in {*new, *failed}]
        if not new or not (failed or left):
            continue
        others = [f"{shortened(failed)} failed"] if failed else []
        others += [f"{shortened(left)} kept the old one"] if left else []
        upgraded = [node.name for node in members if node.phase == DONE]
        back = f", or take the others back: ansible-playbook gpufleet.nvidia.rollback --limit {','.join(upgraded)}"
        found[rack] = (
            f"{rack} has two driver versions: {shortened(new)} {'has' if len(new) == 1 else 'have'} the new one, {', '.join(others)}. "
            "Its IMEX domain does not form, and no job can share memory across it, until all of its hosts have one version. Correct the reason "
            f"and run upgrade again{' with gpu_upgrade_retry=true' if failed else ''}{back if upgraded else ''}."
        )
    return found


def split_racks(
    racks: Mapping[str, Sequence[str]], drivers: Mapping[str, str], rolled_back: Sequence[str]
) -> dict[str, str]:
    """Return what is to be said of each rack that a rollback by hand leaves with two driver versions, by the rack's name.

    :param racks: the hosts of each rack by the inventory, whether they were rolled back or not.
    """
    found = {}
    for rack, members in racks.items():
        hosts: dict[str, list[str]] = {}
        for host in members:
            if drivers.get(host):
                hosts.setdefault(drivers[host], []).append(host)
        if len(hosts) < 2:
            continue
        versions = ", ".join(f"{version} on {shortened(names)}" for version, names in sorted(hosts.items()))
        back = {drivers[host] for host in rolled_back if host in drivers and host in members}
        others = [host for host in members if host not in rolled_back and drivers.get(host, "") not in {"", *back}]
        way = (
            f"Roll the others back too: ansible-playbook gpufleet.nvidia.rollback --limit {','.join(others)}, or r"
            if others
            else "R"
        )
        found[rack] = (
            f"{rack} has two driver versions: {versions}. Its IMEX domain does not form, and no job can share memory across it, until all of its "
            f"hosts have one version. {way}un upgrade with gpu_upgrade_retry=true to give all of them the new one."
        )
    return found


def _racks(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    racks: dict[str, list[Node]] = {}
    for node in nodes:
        if node.rack:
            racks.setdefault(node.rack, []).append(node)
    return racks
