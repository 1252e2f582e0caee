# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge on the controller all hosts that were read, and their nodes in the cluster; show what was found, and write it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Callable

from ansible.errors import AnsibleError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import NODES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit, check
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import node_expectations
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError, Cluster, at_once
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.described_health import (
    VARIABLES,
    described_health,
    judged,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import Description, describe, warnings_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.driver_security import driver_security
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.verification import CHECKS, verification
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ControllerAction, registered
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.imex_rack import Racks
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import facts_of, plain, said, write_report
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import node_of, pools
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect

#: Seconds that the API server may take for an answer.
_TIMEOUT = 30
_COLORS = {"passed": "green", "failed": "red", "warning": "yellow", "skipped": "cyan", "unproven": "yellow"}


class ActionModule(ControllerAction):
    OPTIONS = {
        "hosts": {"type": "list", "elements": "str", "required": True},
        "report": {"type": "path", "default": ""},
        "summary": {"type": "bool", "default": False},
        "kubeconfig": {"type": "path", "default": ""},
        "context": {"type": "str", "default": ""},
        "capacity": {"type": "path", "default": ""},
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        known = pools(plain(task_vars.get("groups", {})))
        racks = Racks(task_vars)
        nodes = _Nodes(arguments, at_once(self._display))
        hosts, stages = {}, {}
        for host in arguments["hosts"]:
            variables = task_vars["hostvars"][host]
            facts, unread = facts_of(registered(variables, "gpu_facts_host"))
            description = describe(host, variables, known, racks=racks)
            stages[host] = description.stages(facts)
            refusals = [refusal.message for stage in stages[host].values() for refusal in stage.refusals]
            checks = None
            if facts is not None:
                checks, unread, wrong = _health(variables, description, facts, bool(refusals))
                refusals += wrong
                if checks is not None and not refusals:
                    checks = [*checks, *driver_security(facts, description.variables)]
            node, unasked = nodes.checks(host, variables, facts) if facts is not None and not refusals else (None, "")
            hosts[host] = verification(
                checks, node, unread=unread, refused="; ".join(refusals), unasked=unasked or nodes.unasked
            )
        for warning in warnings_of(stages.items()):
            self._display.warning(warning)
        for host, found in hosts.items():
            self._display.display(f"\n{host}: {found.summary}")
            for one in found.checks:
                text = f"  {one['status']:8} {one['name']:14} {one['evidence']}"
                self._display.display(text, color=_COLORS.get(one["status"]))
                if one["next_step"]:
                    self._display.display(f"           next: {one['next_step']}")
        document = {host: found.as_dict() for host, found in hosts.items()}
        if arguments["report"]:
            write_report(arguments["report"], document)
        bad = [host for host, found in hosts.items() if not found.healthy]
        message = (
            f"{len(bad)} of {len(hosts)} hosts are not as described: {', '.join(bad)}."
            if bad
            else f"All {len(hosts)} hosts are as described."
        )
        return {"healthy": not bad, "msg": message, **({} if arguments["summary"] else {"hosts": document})}


def _health(
    variables: Any, description: Description, facts: Mapping[str, Any], refused: bool
) -> tuple[Sequence[Mapping[str, Any]] | None, str, list[str]]:
    """Return the checks of a host, or why there are none, and what is refused of what it is expected to be.

    :param refused: whether its description is: it is judged without one then, which may say why the description does not fit.
    """
    answered = registered(variables, "gpu_verify_on_host")
    if answered:
        try:
            found = plain(answered)
            check(CHECKS, found.get("checks"))
        except (TypeError, Unfit) as error:
            return None, said(found) or f"its checks are invalid: {error}", []
        return found["checks"], "", []
    if "health" not in facts:
        return None, "its facts lack the subset health, which the checks need", []
    if refused:
        return judged(facts, {})["checks"], "", []
    # What the roles' defaults say is what site would bring; verified is what somebody wrote.
    given = {name: plain(variables.get(name)) for name in VARIABLES}
    given[NODES] = description.variables[NODES]
    expected = {**described_health(given), **description.variables["nvidia_health_expect"]}
    try:
        return (
            judged(
                facts, expected, *(description.variables[f"nvidia_health_{name}"] for name in ("checks", "cuda_check"))
            )["checks"],
            "",
            [],
        )
    except Refused as refusal:
        return judged(facts, {})["checks"], "", [refusal.message]


class _Nodes:
    """The nodes of the cluster, read once for all hosts; their pods are read for one host at a time.

    :param unasked: why the cluster could not be asked; empty where none was to be.
    """

    def __init__(self, arguments: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        self.unasked = ""
        self._capacity = str(arguments["capacity"])
        self._cluster: Cluster | None = None
        self._slices: Callable[[], Sequence[Mapping[str, Any]]] = tuple
        self._nodes: Mapping[str, Mapping[str, Any]] = {}
        if not arguments["kubeconfig"]:
            return
        try:
            cluster = self._cluster = Cluster(arguments["kubeconfig"], arguments["context"], _TIMEOUT, warn)
            self._nodes = cluster.nodes()
            self._slices = cache(cluster.resource_slices)
        except (ApiError, AnsibleError) as error:
            self._cluster = None
            self.unasked = str(error)

    def checks(
        self, host: str, variables: Any, facts: Mapping[str, Any]
    ) -> tuple[Sequence[Mapping[str, Any]] | None, str]:
        """Return the checks of the node of C(host), or why there are none."""
        cluster = self._cluster
        if cluster is None:
            return None, self.unasked
        try:
            name = node_of(host, variables)
            wanted = node_expectations.expected(
                name,
                facts,
                lambda: collect(variables, lambda value: value, node_expectations.ROLES),
                self._capacity,
                there=self._nodes.get(name),
            )
            found = node_expectations.checks(
                name, self._nodes.get(name), lambda: cluster.pods_on(name), wanted, facts, slices=self._slices
            )
        except (Refused, ApiError, AnsibleError) as error:
            return None, getattr(error, "message", None) or str(error)
        return [one.as_dict() for one in found], ""
