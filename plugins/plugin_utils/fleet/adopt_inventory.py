# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory of hosts that are adopted: equal ones in a pool, what all have in common in one file, and what was found beside it; their NVL72 racks, which
are hosts whose IMEX has the same nodes, if they are all of its nodes; and what variables of other tools mean. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from ...module_utils._facts_view import Facts, ImexFacts
from ...module_utils._formats import host_names, imex
from ...module_utils._plan import Refused
from ...module_utils._schema import encode
from .text import table

#: The first line of every file that is written; a file that begins with it may be replaced when that is asked for.
MARK = "# Written by gpufleet.nvidia.adopt from what the hosts are."
_NOT_OF_A_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Adopted:
    """A host as it is described.

    :param boards: how many GPUs of each board it has; empty where a board is not in the table.
    :param variables: of the host roles, under their full names.
    :param rack: the inventory group of the hosts with which it shares GPU memory through IMEX; empty where site does not run it.
    """

    host: str
    boards: Mapping[str, int]
    variables: Mapping[str, Any]
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rack: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in encode(self).items() if name != "rack" or value}


@dataclass(frozen=True)
class Pool:
    """Hosts with the same boards and the same settings."""

    name: str
    hosts: tuple[str, ...]
    boards: Mapping[str, int]
    variables: Mapping[str, Any]


@dataclass(frozen=True)
class Inventory:
    """What is written.

    :param common: the variables that all pools have alike, with those of the cluster.
    :param of_hosts: variables of single hosts: how they are reached, and their names in the cluster.
    """

    pools: tuple[Pool, ...]
    common: Mapping[str, Any]
    of_hosts: Mapping[str, Mapping[str, Any]]
    adopted: Sequence[Adopted]
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def differences(self) -> dict[str, list[str]]:
        return {one.host: list(one.differences) for one in self.adopted if one.differences}

    def files(self) -> dict[str, str]:
        """Return the files, by path inside the inventory's folder."""
        members = {
            pool.name: {"hosts": {host: dict(self.of_hosts.get(host) or {}) or None for host in pool.hosts}}
            for pool in self.pools
        }
        racks: dict[str, dict[str, Any]] = {}
        for one in self.adopted:
            if one.rack:
                racks.setdefault(one.rack, {"hosts": {}})["hosts"][one.host] = None
        groups = {"gpu_hosts": {"children": members}, **dict(sorted(racks.items()))}
        found = {
            "hosts.yml": _document({"all": {"children": groups}}),
            "group_vars/gpu_hosts.yml": _document(dict(self.common)),
            "README.md": self._readme(),
        }
        for pool in self.pools:
            found[f"group_vars/{pool.name}.yml"] = _document(dict(pool.variables))
        for rack in racks:
            # Not in the pool: hosts of equal racks are one pool.
            found[f"group_vars/{rack}.yml"] = _document({"nvidia_driver_imex_group": rack})
        return found

    def text(self) -> str:
        """Return what a person sees of it: a line for each pool, then what is not described, equal things once."""
        rows = [
            [pool.name, str(len(pool.hosts)), _boards(pool.boards), pool.hosts[0] + (" ..." if pool.hosts[1:] else "")]
            for pool in self.pools
        ]
        lines = [table(["POOL", "HOSTS", "EACH WITH", "FIRST"], rows).rstrip("\n")]
        for title, found in (
            ("Not described: where the hosts differ from the inventory, or what site leaves alone:", self.differences),
            ("Notes:", {one.host: list(one.notes) for one in self.adopted if one.notes}),
            ("Left out:", {host: [reason] for host, reason in self.left_out.items()}),
        ):
            lines += ["", title, *_grouped(found)] if found else []
        lines += ["", *(f"{note}" for note in self.notes)] if self.notes else []
        return "\n".join(lines)

    def _readme(self) -> str:
        body = self.text().replace("\n", "\n    ")
        return (
            "# Adopted hosts\n\n"
            "Written by gpufleet.nvidia.adopt from what the hosts are. Nothing on them was changed. The inventory is yours from here on: edit it,\n"
            "rename the pools, keep it in git.\n\n"
            f"    {body}\n"
        )


def inventory(
    adopted: Sequence[Adopted],
    cluster: Mapping[str, Any],
    of_hosts: Mapping[str, Mapping[str, Any]],
    left_out: Mapping[str, str],
    notes: Sequence[str],
    taken: Collection[str] = (),
) -> Inventory:
    """Return the inventory of the hosts. C(taken): names of groups that mean something already."""
    alike: dict[str, list[Adopted]] = {}
    for one in sorted(adopted, key=lambda one: one.host):
        alike.setdefault(json.dumps([one.boards, one.variables], sort_keys=True), []).append(one)
    firsts = [members[0] for members in alike.values()]
    common = {
        name: value
        for name, value in (firsts[0].variables if firsts else {}).items()
        if name != "gpu_facts_gpus" and all(name in one.variables and one.variables[name] == value for one in firsts)
    }
    used = {*taken, "all", "ungrouped", "gpu_hosts", *(name for one in adopted for name in (one.host, one.rack))}
    pools = []
    for members in alike.values():
        name = _free(_name(members[0]), used)
        used.add(name)
        own = {key: value for key, value in members[0].variables.items() if key not in common}
        pools.append(Pool(name, tuple(one.host for one in members), members[0].boards, own))
    pools.sort(key=lambda pool: pool.name)
    return Inventory(tuple(pools), {**common, **cluster}, of_hosts, list(adopted), dict(left_out), list(notes))


def _name(one: Adopted) -> str:
    board = max(one.boards, key=lambda name: one.boards[name]) if one.boards else "gpus"
    parts = [_NOT_OF_A_NAME.sub("_", board.lower()).strip("_")]
    if one.variables.get("nvidia_mig_layout"):
        parts.append("mig")
    mode = one.variables.get("nvidia_sharing_mode")
    return "_".join([*parts, *([str(mode)] if mode not in (None, "none") else [])])


def _free(name: str, used: Collection[str]) -> str:
    number, found = 2, name
    while found in used:
        found, number = f"{name}_{number}", number + 1
    return found


def _document(content: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(dict(content), sort_keys=False, width=140, default_flow_style=False) if content else "{}\n"
    return f"---\n{MARK}\n{text}"


def _boards(boards: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {board}" for board, count in boards.items()) or "boards that are not in the table"


def _grouped(found: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a heading with the hosts, then what is said of them; equal things once."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for host, texts in found.items():
        alike.setdefault(tuple(texts), []).append(host)
    return [
        line for texts, hosts in alike.items() for line in (f"  {', '.join(hosts)}", *(f"    {text}" for text in texts))
    ]


@dataclass(frozen=True)
class Found:
    """What is known of a host's IMEX before its variables are chosen.

    :param mode: C(unmanaged) where it has none, or where it cannot be described.
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

    facts: Facts
    address: str


def racks(hosts: Mapping[str, RackMember], taken: Collection[str] = ()) -> dict[str, Found]:
    """Return what is known of the IMEX of each host, by its name. C(taken): names of groups that mean something already."""
    alike: dict[tuple[str, ...], list[str]] = {}
    found = {}
    for name, host in sorted(hosts.items()):
        has = host.facts.fabric.imex or ImexFacts()
        if has.masked and has.version:
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
    versions = {str(host.facts.driver.loaded_version) for host in members.values()}
    if len(versions) > 1:
        return f"the hosts of the rack have different drivers: {', '.join(sorted(versions))}"
    return ""


#: Variables of NVIDIA's DeepOps, and of its role nvidia.nvidia_driver.
#: Source: config.example/group_vars/k8s-cluster.yml of NVIDIA/deepops, and the README of its role nvidia.nvidia_driver.
_STRATEGY, _RUNTIME, _OPERATOR = "k8s_gpu_mig_strategy", "container_manager", "deepops_gpu_operator_enabled"
#: nvidia_driver_branch is a variable of both, and means the same.
_BRANCH = "nvidia_driver_branch"
_OF_DRIVER = (
    "nvidia_driver_package_state",
    "nvidia_driver_package_version",
    "nvidia_driver_persistence_mode_on",
    "nvidia_driver_skip_reboot",
    "nvidia_driver_ubuntu_install_from_cuda_repo",
    "nvidia_driver_ubuntu_cuda_repo_baseurl",
    "nvidia_driver_ubuntu_cuda_package",
    "nvidia_driver_ubuntu_packages_suffix",
    "nvidia_driver_rhel_cuda_repo_baseurl",
    "nvidia_driver_rhel_cuda_repo_gpgkey",
)
DEEPOPS_NAMES = (_STRATEGY, _RUNTIME, _OPERATOR, _BRANCH, *_OF_DRIVER)


@dataclass(frozen=True)
class DeepOpsVariables:
    """What the variables of DeepOps mean for a host that is adopted."""

    strategy: str | None = None
    runtime: str = ""
    notes: tuple[str, ...] = ()


def read_deepops(variables: Mapping[str, Any], branch: str, cluster_read: bool) -> DeepOpsVariables:
    """Return what DeepOps' variables say of a host. What the host has decides: they break ties, and where they say something else, that is named."""
    notes = []
    if variables.get(_OPERATOR) in (True, "true", "yes") and not cluster_read:
        notes.append(
            f"DeepOps: {_OPERATOR} is true, so the GPU Operator serves this host. Set gpu_cluster_kubeconfig to adopt what it does"
        )
    pinned = str(variables.get(_BRANCH) or "")
    if pinned and pinned != branch:
        notes.append(
            f"DeepOps: {_BRANCH} is {pinned}, and the host has branch {branch or 'none'}; what the host has is written"
        )
    unused = [name for name in _OF_DRIVER if name in variables]
    if unused:
        notes.append(
            f"DeepOps: {', '.join(unused)} have no equivalent here and are not written. Use the written inventory alone, not beside the old one"
        )
    strategy = variables.get(_STRATEGY)
    return DeepOpsVariables(str(strategy) if strategy else None, str(variables.get(_RUNTIME) or ""), tuple(notes))
