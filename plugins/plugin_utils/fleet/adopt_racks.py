# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVL72 racks of hosts that are adopted: hosts whose IMEX has the same nodes are a rack, if they are all of its nodes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._formats import host_names, imex
from ...module_utils._plan import Refused


@dataclass(frozen=True)
class Found:
    """What is known of a host's IMEX before its variables are chosen.

    :param mode: C(unmanaged) where it has none, or where it cannot be described.
    :param group: the inventory group of its rack, with C(host).
    :param difference: why it cannot be described; empty where it can.
    """

    mode: str = imex.UNMANAGED
    group: str = ""
    nodes: tuple[str, ...] = ()
    difference: str = ""


NO_IMEX = Found()


@dataclass(frozen=True)
class RackMember:
    """A host as it was read. C(address): at which the other hosts of the rack reach it, as far as the inventory tells."""

    facts: Mapping[str, Any]
    address: str


def racks(hosts: Mapping[str, RackMember], taken: Collection[str] = ()) -> dict[str, Found]:
    """Return what is known of the IMEX of each host, by its name. C(taken): names of groups that mean something already."""
    alike: dict[tuple[str, ...], list[str]] = {}
    found = {}
    for name, host in sorted(hosts.items()):
        fabric = host.facts.get("fabric") or {}
        has = imex.from_facts(fabric)
        if has.masked and (fabric.get("imex") or {}).get("version"):
            found[name] = Found(imex.MASKED)
        elif (has.active or has.enabled) and has.nodes:
            alike.setdefault(has.nodes, []).append(name)
        elif has.active or has.enabled:
            found[name] = Found(difference=f"{host_names.IMEX_NODES_FILE} has no node, or could not be read")
        else:
            found[name] = NO_IMEX
    number = 0
    for nodes, members in alike.items():
        difference = _undescribed(nodes, {name: hosts[name] for name in members})
        group = ""
        while not difference and (not group or group in {*taken, *hosts}):
            number += 1
            group = f"rack_{number}"
        mode = imex.UNMANAGED if difference else imex.HOST
        found.update(dict.fromkeys(members, Found(mode, group, () if difference else nodes, difference)))
    return found


def _undescribed(nodes: tuple[str, ...], members: Mapping[str, RackMember]) -> str:
    """Return why hosts that have these nodes are not described as a rack; empty where they are."""
    where = f"{host_names.IMEX_NODES_FILE} has {imex.few(nodes)}"
    away = [name for name, host in members.items() if host.address not in nodes]
    if away:
        return (
            f"{where}, and the address of {away[0]}, {members[away[0]].address}, is not among them: "
            f"give each host of the rack its {imex.VARIABLE}_address, and adopt all of them again"
        )
    left = sorted(set(nodes) - {host.address for host in members.values()})
    if left:
        return f"{where}, of which {imex.few(left)} {'is' if len(left) == 1 else 'are'} not adopted with the same file: adopt the whole rack in one run"
    try:
        sorted_nodes = imex.in_order([host.address for host in members.values()])
    except Refused as refusal:
        return f"{where}: {refusal.reason}"
    if sorted_nodes != nodes:
        return f"{where} in another order than that of the addresses, in which site would write it"
    versions = {str((host.facts.get("driver") or {}).get("loaded_version")) for host in members.values()}
    if len(versions) > 1:
        return f"the hosts of the rack have different drivers: {', '.join(sorted(versions))}"
    return ""
