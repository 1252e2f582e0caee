# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of the playbooks: names, types and values, checked for all hosts before anything is touched.

What the variables mean stands in the argument specifications of the roles, and of the role that documents the playbooks. Those of the host roles
are checked as a host's description.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Callable

from ..module_utils._formats.slurm_files import NODE_NAME, refuse_name
from ..module_utils._plan import Refused
from .fleet.text import refuse_namespace, refuse_operator_version, refuse_runtime_class
from .role_variables import (
    FORMER,
    HOST_ROLES,
    RENAMED,
    RoleInterface,
    entry_points,
    names_of_all_roles,
    nearest,
    registered,
    role_interface,
    validated,
    values_of,
)

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "playbooks")
_SHARE = re.compile(r"[0-9]{1,18}%?")

#: Playbooks for hosts that need not be in the group gpu_hosts.
ANY_HOST = ("adopt", "doctor")
#: The role whose entry points document the variables that only a playbook has, none of which has to be given.
DOCUMENTED = "playbooks"
#: Its playbook works on files, and has no hosts whose variables could be checked.
_OF_FILES = "lint"
#: By playbook and name. Roles have theirs in argument_specs.yml of their own.
OWN: dict[str, dict[str, dict[str, Any]]] = {
    name: options for name, options in entry_points(DOCUMENTED).items() if name != _OF_FILES
}
#: Roles whose variables a playbook reads, and which nothing else checks before its first host is changed. Those of the others are checked, too, so that
#: every playbook says the same, but what is wrong there keeps it from nothing.
ROLES = {
    "site": ("gpu_kubernetes", "gpu_slurm", "gpu_node"),
    "render": ("gpu_kubernetes", "gpu_slurm"),
    **dict.fromkeys(("plan", "verify", "inspect", "recommend", "adopt"), ("gpu_node",)),
    **dict.fromkeys(("upgrade", "rollback", "migrate"), ("gpu_upgrade", "gpu_node", "gpu_slurm")),
    "repartition": ("gpu_repartition", "gpu_node", "gpu_kubernetes", "gpu_slurm"),
    "remove": ("gpu_remove", "gpu_node"),
    "heal": ("gpu_heal", "gpu_node", "gpu_slurm"),
}
#: A number of hosts, or a percentage; those with true may be a list of them, as Ansible's serial is.
SHARES = {
    "gpu_upgrade_max_unavailable": False,
    "gpu_heal_max_unavailable": False,
    "gpu_heal_breaker_hosts": False,
    "gpu_repartition_serial": True,
    "gpu_rollback_serial": True,
}
#: The cluster that a run reads.
_OF_CLUSTER = ("gpu_cluster_kubeconfig", "gpu_cluster_context")
#: What the names of the variables of these playbooks begin with.
PREFIXES = (
    "gpu_cluster_",
    *sorted({f"{'_'.join(name.split('_')[:2])}_" for options in OWN.values() for name in options}),
    *sorted({f"{role}_" for roles in ROLES.values() for role in roles}),
)


@dataclass(frozen=True)
class Findings:
    """What is to be said of the variables of one host.

    :param others: what is wrong with variables that this playbook does not read.
    :param unknown: names that begin as the variables of these playbooks do, and are near none of them.
    :param of_run: what it says of the run, which reads these variables of one of its hosts.
    """

    refusals: tuple[Refused, ...] = ()
    others: tuple[Refused, ...] = ()
    unknown: tuple[str, ...] = ()
    of_run: Mapping[str, Any] = field(default_factory=dict, compare=False)


def check(
    playbook: str, variables: Mapping[str, Any], template: Callable[[Any], Any] = lambda value: value
) -> Findings:
    """Return what is wrong with the variables of one host for a playbook."""
    read: list[Refused] = []
    others: list[Refused] = []
    of_run: dict[str, Any] = dict.fromkeys(OWN[playbook])
    for interface in _interfaces(playbook):
        names = [name for name in interface.options if name in variables or FORMER.get(name) in variables]
        if not names:
            continue
        given, unread = values_of(names, variables, template, {})
        wrong = validated(interface, given)[1]
        wrong += [refusal for name in SHARES if name in given for refusal in _share(name, given[name], SHARES[name])]
        wrong += _names_in_cluster(given)
        if interface.role in (playbook, *ROLES.get(playbook, ())):
            read += [*unread, *wrong]
            # Hosts outside of Kubernetes need not name a cluster.
            of_run.update((name, given[name]) for name in (*OWN[playbook], *_OF_CLUSTER) if given.get(name))
        else:
            # What its template or its vault needs may be given to the playbook that reads it alone.
            others += wrong
    near, unknown = _names(variables)
    return Findings((*read, *near), tuple(others), unknown, of_run)


def different(name: str, first: tuple[str, Any], second: tuple[str, Any]) -> Refused:
    """Return the refusal of a variable of the run of which two hosts say different things."""
    said = " and ".join(f"{host} has {'none' if value is None else repr(value)}" for host, value in (first, second))
    remedy = "Set it for all hosts alike, or run once for each value, with --limit."
    return Refused(name, f"{said}, and one run takes one value for all of its hosts", remedy)


@cache
def _interfaces(playbook: str) -> tuple[RoleInterface, ...]:
    """Return those of all playbooks and roles, the first being those that C(playbook) reads."""
    roles = dict.fromkeys(role for names in (ROLES.get(playbook, ()), *ROLES.values()) for role in names)
    return (*map(_own, dict.fromkeys((playbook, *OWN))), *map(_optional, roles))


def _own(playbook: str) -> RoleInterface:
    described = f"ansible-doc -t role gpufleet.nvidia.{DOCUMENTED} -e {playbook} describes it."
    return RoleInterface(playbook, {}, OWN[playbook], frozenset(), described)


@cache
def _optional(role: str) -> RoleInterface:
    """The interface of a role, without defaults: only what is given is checked."""
    found = role_interface(role)
    options = {name: {**option, "default": None} for name, option in found.options.items()}
    return RoleInterface(role, found.defaults, options, found.registered, found.described)


def _share(name: str, value: Any, several: bool) -> list[Refused]:
    if several and isinstance(value, list):
        return [wrong for entry in value for wrong in _share(name, entry, False)] or (
            [] if value else [Refused(name, "the list is empty", "Write 2, 25% or [1, 25%].")]
        )
    text = str(value).strip()
    number = int(text.rstrip("%")) if _SHARE.fullmatch(text) and not isinstance(value, bool) else 0
    if number < 1 or (text.endswith("%") and number > 100):
        example = "2, 25% or [1, 25%]" if several else "2 or 25%"
        return [Refused(name, f"{value!r} must be 1 or more hosts, or 1% to 100% of them", f"Write {example}.")]
    return []


def _names_in_cluster(given: Mapping[str, Any]) -> list[Refused]:
    """What the generator would refuse after all hosts were changed."""
    found = []
    for name, refuse in (
        ("gpu_kubernetes_namespace", refuse_namespace),
        ("gpu_kubernetes_runtime_class", refuse_runtime_class),
        ("gpu_kubernetes_operator_version", refuse_operator_version),
        # Before the first host is drained by it.
        (NODE_NAME, lambda name: refuse_name("", name) if name else None),
    ):
        try:
            if name in given:
                refuse("" if given[name] is None else str(given[name]))
        except Refused as refusal:
            found.append(refusal)
    return found


def _names(variables: Iterable[str]) -> tuple[list[Refused], tuple[str, ...]]:
    refusals, unknown = [], []
    for name in variables:
        # What begins so is our tasks' own: with serial, those of an earlier batch have set some.
        if str(name).startswith("_") or str(name) in _known() or str(name) in RENAMED:
            continue
        meant = nearest(str(name), _candidates(), str(name).startswith(PREFIXES))
        if meant:
            reason = "no playbook and no role of gpufleet.nvidia has such a variable"
            refusals.append(Refused(str(name), reason, f"Did you mean {meant}?"))
        elif str(name).startswith(PREFIXES):
            unknown.append(str(name))
    return refusals, tuple(unknown)


@cache
def _known() -> frozenset[str]:
    own = {name for options in OWN.values() for name in options}
    return frozenset({*own, *names_of_all_roles(), *registered(_FOLDER)})


@cache
def _candidates() -> tuple[str, ...]:
    """What a name can be a slip of here. Slips of the host roles' variables, and former names, are said with the description of their host."""
    described = {name for role in HOST_ROLES for name in role_interface(role).options}
    return tuple(sorted(name for name in _known() - described if not name.startswith("_")))
