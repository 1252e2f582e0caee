# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What groups of an inventory mean: pools, those below C(gpu_hosts), and the NVL72 racks that C(nvidia_driver_imex_group) names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Callable

from ansible.errors import AnsibleError

from ..module_utils._formats.imex import ADDRESS, HOST, MASKED, VARIABLE, in_order
from ..module_utils._migration import OPERATOR, TOOLKIT, VARIABLES
from ..module_utils._plan import Refused
from .fleet.text import shortened
from .plain import plain
from .role_variables import value_of

GPU_HOSTS = "gpu_hosts"
_RUNTIME, _MIGRATES = "nvidia_toolkit_runtime", VARIABLES[TOOLKIT]
_GROUP, _VERSION = f"{VARIABLE}_group", "nvidia_driver_version"
#: The playbooks put the hosts that they work on into groups of these names while they run.
OF_PLAYBOOKS = (
    "gpu_asked",
    "gpu_site_todo",
    "gpu_plan_held",
    "gpu_upgrade_todo",
    "gpu_node_begun",
    "gpu_node_ended",
    "gpu_repartition_ahead",
    "gpu_heal_todo",
    "gpu_verify_on_host",
    "gpu_inspect_checkpoint",
)
#: Of this, what the ends of a label's value may not have is left out, and what is too long.
_LABEL = re.compile(r"[A-Za-z0-9._-]*[A-Za-z0-9][A-Za-z0-9._-]*")
_BUILT_IN = frozenset({"all", "ungrouped", GPU_HOSTS, *OF_PLAYBOOKS})


def pools(groups: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the pools of an inventory: every group, by name, all of whose hosts are in C(gpu_hosts)."""
    members = set(groups.get(GPU_HOSTS, ()))
    return {
        str(name): [str(host) for host in hosts]
        for name, hosts in sorted(groups.items())
        if name not in _BUILT_IN and hosts and members.issuperset(hosts)
    }


def refuse_keywords(groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse a keyword of the inventory that was indented to where names of groups are: Ansible ignores what is below it."""
    members = set(groups.get(GPU_HOSTS, ()))
    for name in ("vars", "hosts", "children"):
        if name in groups and members.issuperset(groups[name]):
            reason = f"{name} is a keyword of the inventory, which stands here where the name of a group is expected, so that its content is lost"
            remedy = f"Move {name}: one step to the left, beside children:, or rename the group."
            raise Refused(f"the group {name}", reason, remedy)


def pool_of(host: str, known: Mapping[str, Sequence[str]], named: Any) -> str:
    """Return the pool of C(host).

    :param named: the variable C(gpu_facts_pool), or nothing when the group membership is to decide.
    :raises Refused: the named pool does not exist or does not hold the host, or the membership is not unique.
    """
    thing, all_of_them = f"gpu_facts_pool of {host}", f"The pools are: {', '.join(known) or 'none'}."
    if named and not isinstance(named, str):
        raise Refused(thing, f"{named!r} is no text", all_of_them)
    mine = [name for name, hosts in known.items() if host in hosts]
    chosen = named if named in mine else mine[0] if len(mine) == 1 and not named else ""
    if chosen and not _LABEL.fullmatch(chosen):
        remedy = "Use letters, digits, '_', '-' and '.', and at least one letter or digit."
        raise Refused(f"the group {chosen!r}", "it is a pool, and its name becomes the value of a label", remedy)
    if chosen:
        return chosen
    if named in known:
        remedy = (
            f"Add it to that group, or name one of its own groups: {', '.join(mine) or 'it has none below gpu_hosts'}."
        )
        raise Refused(thing, f"the host is not in the group {named}", remedy)
    if named:
        near = ", ".join(difflib.get_close_matches(named, known, n=3))
        reason = f"no group below {GPU_HOSTS} is called {named}"
        raise Refused(thing, reason, f"The nearest: {near}." if near else all_of_them)
    if not mine:
        remedy = f"A pool is an inventory group whose hosts all are in {GPU_HOSTS}: make one, with this host in it."
        raise Refused(thing, f"the host is in no group below {GPU_HOSTS}", remedy)
    reason = f"the host is in several groups below {GPU_HOSTS}: {', '.join(mine)}"
    raise Refused(thing, reason, "Set gpu_facts_pool, in the group's variables, to the one that is its pool.")


def node_of(host: str, variables: Mapping[str, Any]) -> str:
    """Return the name of a host's node in the cluster: C(gpu_node_name), or the host's own."""
    return str(value_of("gpu_node_name", variables) or host)


def in_a_cluster(variables: Mapping[str, Any]) -> bool:
    """Return whether a host belongs to a cluster of Kubernetes, and so has a node. Raises Refused: its variable cannot be read."""
    return value_of("gpu_kubernetes_cluster", variables) != ""


class Racks:
    """What the stages of a host have to know of others: IMEX of those of its rack, the toolkit of those of its cluster. Each host's variables are looked at
    once, whoever asks.

    :param task_vars: with C(groups), and C(hostvars) for the variables of the other hosts.
    """

    def __init__(self, task_vars: Mapping[str, Any]) -> None:
        self._groups: Mapping[str, Sequence[str]] = task_vars.get("groups") or {}
        self._hostvars = task_vars.get("hostvars") or {}
        self._members: dict[str, dict[str, str]] = {}
        self._toolkits: dict[str, str | None] = {}

    def nodes_of(self, host: str, desired: Mapping[str, Any]) -> list[str]:
        """Return the addresses of the rack of C(host), in the order that they have on all of its hosts; none where IMEX does not run there.

        Hosts that leave IMEX to ComputeDomains have to agree too, where their rack is named: a domain forms only among equal drivers.

        :raises Refused: the rack is none, or its hosts do not agree.
        """
        group = str(desired[_GROUP] or "")
        mode = str(desired[VARIABLE])
        if mode != HOST and not (mode == MASKED and group):
            return []
        members = [str(name) for name in self._groups.get(group) or ()]
        if not group or not members:
            reason = f"the inventory group {group!r} has no host" if group else "the rack of the host is not named"
            raise Refused(_GROUP, reason, "Name the inventory group that has the hosts of this rack, and only those.")
        if host not in members:
            raise Refused(_GROUP, f"{host} is not in {group}, its own rack", f"Add it to {group}, or name its rack.")
        version = str(desired[_VERSION] or "")
        if not version:
            reason = f"the hosts of a rack run one driver version, and branch {desired['nvidia_driver_branch']} leaves the version to each of them"
            raise Refused(_VERSION, reason, f"Give the version, in the variables of {group}.")
        rack = {name: self._host(name) for name in members}
        for name, what, mine in ((_VERSION, "driver", version), (VARIABLE, "IMEX mode", mode), (_GROUP, "rack", group)):
            others = {peer: found[name] for peer, found in rack.items() if found[name] != mine}
            if others:
                named = shortened([f"{peer} ({value or 'none'})" for peer, value in others.items()])
                raise Refused(
                    name, f"{group} has hosts of another {what} than {mine}: {named}", f"Set it for all of {group}."
                )
        if mode == MASKED:
            return []
        try:
            return list(in_order([found[ADDRESS] for found in rack.values()]))
        except Refused as refusal:
            whose = [peer for peer, found in rack.items() if found[ADDRESS] in refusal.reason]
            raise Refused(refusal.thing, f"{refusal.reason} ({shortened(whose)})", refusal.remedy) from None

    def hooks_of(
        self, desired: Mapping[str, Any], known: Mapping[str, Sequence[str]], of_host: Callable[[str], Any]
    ) -> str:
        """Return whether a host that brings its toolkit gets links to its hooks: C(present) where the GPU Operator brings it to other hosts of the cluster.
        Links that are there stay until the toolkit goes: an operator that no description names may still have containers run them.
        """
        stays = of_host("gpu_kubernetes_stack") == OPERATOR and not of_host("gpu_kubernetes_migrate_from")
        if desired[_RUNTIME] == "none" or not stays:
            return ""
        if desired[_MIGRATES]:
            return "present"
        cluster = str(of_host("gpu_kubernetes_cluster"))
        # One host speaks for its pool.
        return "present" if any(self._served(hosts[0]) == cluster for hosts in known.values()) else ""

    def _served(self, name: str) -> str | None:
        """Return in which cluster the GPU Operator brings the toolkit to a host; None where it does not, or nobody can tell."""
        if name not in self._toolkits:
            found = None
            with suppress(AnsibleError, Refused, TypeError, KeyError):
                variables = self._hostvars[name]
                if value_of(_RUNTIME, variables) == "none" or value_of(_MIGRATES, variables):
                    found = str(value_of("gpu_kubernetes_cluster", variables))
            self._toolkits[name] = found
        return self._toolkits[name]

    def _host(self, name: str) -> dict[str, str]:
        """Return what a rack has to know of one of its hosts."""
        if name not in self._members:
            variables = self._hostvars[name]
            try:
                found = {one: str(plain(variables.get(one)) or "") for one in (_VERSION, VARIABLE, _GROUP, ADDRESS)}
                found[ADDRESS] = found[ADDRESS] or str(plain(variables.get("ansible_host")) or name)
            except (AnsibleError, TypeError) as error:
                raise Refused(_GROUP, f"the variables of {name} cannot be read: {error}", "Correct them.") from error
            self._members[name] = found
        return self._members[name]
