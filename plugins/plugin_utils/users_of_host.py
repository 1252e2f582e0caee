# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose work a playbook of day two ends on a host, where no cluster takes it away: upgrade, rollback and heal ask here before they touch it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..module_utils._driver.reload import in_use
from ..module_utils._facts_view import Facts
from ..module_utils._plan import Refused
from ..module_utils._users import PROCESS, mps_pids, names, users_of
from .role_variables import role_interface, value_of
from .slurm_desired import is_brought

_ROLE, _DRAIN, _DISRUPTION, _SERVICES = (
    "gpu_node",
    "gpu_node_drain_command",
    "gpu_node_disruption",
    "gpu_node_stop_services",
)
_MPS_DAEMONS = "gpufleet-mps@"


def users_of_host(facts: Facts | None, variables: Mapping[str, Any], node: bool = False) -> tuple[str, ...]:
    """Return who uses the GPUs of a host, but for what the playbooks stop themselves: services of theirs, and MPS daemons.

    :param facts: with the holders of device files; None where the host was not read.
    :param node: whether it is a node, whose pods are evicted. Then jobs that are no pods are left: processes that NVML lists on a GPU. Who only has
        the driver open is a monitor there.
    """
    facts = facts or Facts()
    stopped = {f"{name}.service" for name in _value(variables, _SERVICES) or ()}
    units = {one.pid: one.unit or "" for one in facts.holders or ()}
    ours = {pid for pid, unit in units.items() if unit in stopped or unit.startswith(_MPS_DAEMONS)}
    users = [user for user in in_use(facts) if user.pid is None or user.pid not in ours | mps_pids(facts)]
    if node:
        outside = {one.pid for one in facts.holders or () if not one.pod_uid}
        listed = {user.pid for gpu in facts.gpus or () for user in users_of(gpu).everybody if user.kind == PROCESS}
        users = [user for user in users if user.pid in outside & listed]
    return names(users)


def refuse_users(
    hosts: Mapping[str, tuple[Facts | None, Mapping[str, Any]]], nodes: bool = False
) -> dict[str, tuple[str, ...]]:
    """Return who uses which of some hosts, where what takes them out of service, or leave to end their work, was given.

    :param nodes: whether they are nodes: only jobs that are no pods count.
    """
    found = {host: users_of_host(facts, variables, nodes) for host, (facts, variables) in hosts.items()}
    refused = {
        host: users
        for host, users in found.items()
        if users
        and not _value(hosts[host][1], _DRAIN)
        and not is_brought(hosts[host][1])
        and _value(hosts[host][1], _DISRUPTION) != "force"
    }
    if refused:
        raise Refused(
            "; ".join(f"host {host}, in use by {', '.join(users)}" for host, users in refused.items()),
            "they are no pods, and nothing else takes them away"
            if nodes
            else "without Kubernetes nothing takes them out of service",
            f"Set {_DRAIN}, end their work, leave these hosts out with --limit, or allow it with {_DISRUPTION}: force. Nothing was changed on them.",
        )
    return {host: users for host, users in found.items() if users}


def _value(variables: Mapping[str, Any], name: str) -> Any:
    """Return a variable of the role gpu_node; the defaults of a role are not among the variables of a host."""
    return value_of(name, variables, default=role_interface(_ROLE).defaults.get(name))
