# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say on the controller of all hosts that were read whether they are as described and work, and what their nodes in the cluster show; write it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, Callable

from ansible.errors import AnsibleError

from ...module_utils._facts_view import Facts
from ...module_utils._health.checks import judged
from ...module_utils._health.report import ANSWER, PASSED, SKIPPED, Check
from ...module_utils._plan import Refused
from ...module_utils._schema import Unfit, check
from .. import node_expectations
from ..action_options import takes
from ..cluster import ApiError, Cluster, at_once, if_there
from ..descriptions import RunHost, hosts_of
from ..driver_advisories import driver_security
from ..fleet.objects import MORE_NAMESPACES, NAMESPACE, own_namespaces
from ..fleet.verification import Verification, verification
from ..host_facts import ControllerAction, registered
from ..plain import message_of, plain, said, write_report
from ..pools import in_a_cluster, node_of
from ..render.cluster_definitions import NAME as DEFINITIONS
from ..render.cluster_definitions import NeededKind, needed
from ..render.cluster_definitions import check as check_definitions
from ..role_variables import collect
from ..slurm_desired import slurm_checks

#: Seconds that the API server may take for an answer.
_TIMEOUT = 30
_COLORS = {"passed": "green", "failed": "red", "warning": "yellow", "skipped": "cyan", "unproven": "yellow"}


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", "report summary kubeconfig context capacity", needs="hosts")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        nodes = _Nodes(arguments, at_once(self._display))
        hosts = {}
        for one in hosts_of(arguments["hosts"], task_vars):
            host, facts, unread = one.name, one.facts, one.unread
            stages = one.description.stages(facts)
            refused = any(stage.refusals for stage in stages.values())
            checks = None
            if facts is not None:
                checks, unread = _function(one, facts)
                if checks is not None:
                    secure = driver_security(facts, one.description.variables)
                    checks = [*checks, *secure, *slurm_checks(host, one.variables, facts)]
            node, unasked = (
                nodes.checks(host, one.variables, facts) if facts is not None and not refused else (None, "")
            )
            hosts[host] = verification(stages, checks, node, unread=unread, unasked=unasked or nodes.unasked)
        for host, found in hosts.items():
            self._display.display(f"{host}: {found.summary}" if found.unread else f"\n{host}: {found.summary}")
            if not found.unread:
                self._show(found)
        document = {host: found.as_dict() for host, found in hosts.items()}
        if arguments["report"]:
            write_report(arguments["report"], document)
        bad = [host for host, found in hosts.items() if not found.healthy]
        lost = [host for host in bad if hosts[host].unread]
        wrong = [host for host in bad if host not in lost]
        parts = [f"are not as described, or do not work: {', '.join(wrong)}"] if wrong else []
        parts += [f"could not be read: {', '.join(lost)}"] if lost else []
        message = (
            f"{len(bad)} of {len(hosts)} hosts {'; '.join(parts)}."
            if bad
            else f"All {len(hosts)} hosts are as described and work."
        )
        return {"healthy": not bad, "msg": message, **({} if arguments["summary"] else {"hosts": document})}

    def _show(self, found: Verification) -> None:
        for heading, checks in (("Description", found.described), ("Function", found.function)):
            if checks:
                self._display.display(f"  {heading}:")
            well = [one for one in checks if checks is found.described and one.status == PASSED]
            if well:
                text = f"    {PASSED:8} {', '.join(one.name.removeprefix('stage ') for one in well)}"
                self._display.display(text, color=_COLORS[PASSED])
            for one in (one for one in checks if one not in well):
                self._display.display(f"    {one.status:8} {one.name:14} {one.evidence}", color=_COLORS.get(one.status))
                if one.next_step:
                    self._display.display(f"             next: {one.next_step}")


def _function(host: RunHost, facts: Facts) -> tuple[Sequence[Check] | None, str]:
    """Return the checks of whether a host works, or why there are none. What the host itself was asked counts in place of what was read."""
    if facts.health is None:
        return None, "its facts lack the subset health, which the checks need"
    # A description that is refused has no variables.
    variables = host.description.variables
    options = ("checks", "cuda_check", "dcgm_level") if variables else ()
    checks = judged(facts, *(variables[f"nvidia_health_{name}"] for name in options)).checks
    answered = registered(host.variables, "gpu_verify_on_host")
    if not answered:
        return checks, ""
    try:
        found = plain(answered)
        said_of: Sequence[Check] = check(ANSWER, found.get("checks"))
    except (TypeError, Unfit) as error:
        return None, said(found) or f"its checks are invalid: {error}"
    of_host = {one.name: one for one in said_of}
    return [of_host.get(one.name, one) for one in checks], ""


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
            self._slices = cache(lambda: if_there(cluster.resource_slices) or ())
            self._kinds = cache(cluster.kinds)
            self._definition = cache(partial(if_there, cluster.definition, but=(403, 404)))
            self._definitions = cache(self._definitions_of)
        except (ApiError, AnsibleError) as error:
            self._cluster = None
            self.unasked = str(error)

    def checks(self, host: str, variables: Any, facts: Facts) -> tuple[Sequence[Check] | None, str]:
        """Return the checks of the node of C(host), or why there are none."""
        cluster = self._cluster
        if cluster is None:
            return None, self.unasked
        try:
            if not in_a_cluster(variables):
                return (Check("node", SKIPPED, "gpu_kubernetes_cluster is empty: the host belongs to no cluster"),), ""
            name = node_of(host, variables)
            there = self._nodes.get(name)
            described = cache(lambda: collect(variables, lambda value: value, node_expectations.ROLES))
            wanted = node_expectations.expected(name, facts, described, self._capacity, there=there)
            namespaces = own_namespaces({one: plain(variables.get(one)) for one in (NAMESPACE, MORE_NAMESPACES)})
            found = node_expectations.checks(
                name, there, lambda: cluster.pods_on(name), wanted, facts, namespaces, slices=self._slices
            )
        except (Refused, ApiError, AnsibleError) as error:
            return None, message_of(error)
        try:
            return (*found, *self._definitions(needed(described()))), ""
        except (Refused, AnsibleError) as error:
            return (*found, Check(DEFINITIONS, SKIPPED, message_of(error))), ""

    def _definitions_of(self, kinds: tuple[NeededKind, ...]) -> tuple[Check, ...]:
        """Compare definitions; what the API server does not answer is no fault of a node."""
        try:
            return check_definitions(kinds, self._kinds, self._definition)
        except ApiError as error:
            return (Check(DEFINITIONS, SKIPPED, message_of(error)),)
