# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rollout says of the NVL72 racks that it changes: an IMEX domain forms only among hosts with one driver version. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils._formats.imex import HOST, MASKED
from .text import shortened
from .waves import CURRENT, DONE, FAILED, Budget, Node


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
