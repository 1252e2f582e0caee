# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the actions that talk to the cluster have in common."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Callable, Optional, TypeVar

from ansible import constants

from ..module_utils._printable import LONGEST_OUTPUT, printable
from . import cluster_lease, lease_renewal
from .action_options import takes
from .cluster import Cluster, at_once
from .fleet import nvsentinel
from .fleet.objects import labels_of
from .fleet.upgrade import REFUSED
from .fleet.waves import DONE
from .host_facts import ControllerAction

#: What is waited for: the rest that is still there.
Left = TypeVar("Left", bound=Sized)


class ClusterAction(ControllerAction):
    """An action that talks to the cluster."""

    COMMON = {
        "kubernetes": {"type": "bool", "default": True},
        "kubeconfig": {"type": "path", "default": ""},
        "context": {"type": "str", "default": ""},
        "api_timeout": {"type": "int", "default": 300},
    }

    def hold_lease(
        self, cluster: Cluster, arguments: dict[str, Any], namespace: str, seconds: int, force: bool = False
    ) -> None:
        """Take the lease of the fleet for this run, and have it renewed until the run ends.

        :param seconds: for which it holds when nothing renews it any more.
        :param force: whether to take it from a run that has it.
        """
        here = cluster_lease.this_run()
        cluster_lease.take(cluster, namespace, here, seconds, force)
        folder = constants.DEFAULT_LOCAL_TMP
        lease_renewal.start(arguments["kubeconfig"], arguments["context"], namespace, here, seconds, folder)

    def cluster(self, arguments: dict[str, Any]) -> Cluster:
        """Return the connection to the API server."""
        return Cluster(arguments["kubeconfig"], arguments["context"], arguments["api_timeout"], at_once(self._display))


def wait_for_none(look: Callable[[], Left], seconds: float, pause: float, settle: float = 0.0) -> Left:
    """Look until nothing is left, for C(settle) seconds without interruption, or the time is over, and return what was left the last time."""
    until, none_since = time.monotonic() + seconds, None
    while True:
        left, now = look(), time.monotonic()
        none_since = None if left else now if none_since is None else none_since
        if now >= until if none_since is None else now - none_since >= settle:
            return left
        time.sleep(pause)


Values = dict[str, Any]
#: An object of the API; None without a cluster.
Node = Optional[Mapping[str, Any]]


#: States of a record of which no run has the node.
_NOT_AT_WORK = ("", DONE, REFUSED)


@dataclass(frozen=True)
class NodeWrite:
    """What one step of a playbook writes to a node, in one change.

    :param before: the state of its record until now; empty where nothing is recorded.
    :param annotations: with what the next run has to know; C(None) removes one.
    :param cordon: whether the node takes no pods from now on; None leaves that as it is.
    :param result: of the action.
    :param ours: whether the node is a playbook's from now on; False where it goes back to what it was found as, None where neither.
    :param first: what is done before the change: a run that is cut off in between does it again.
    :param then: what is done after it: the run that continues knows of it.
    """

    before: str
    annotations: Mapping[str, str | None]
    cordon: bool | None
    result: dict[str, Any]
    ours: bool | None = None
    first: Sequence[Callable[[], None]] = ()
    then: Sequence[Callable[[], None]] = ()


class NodeStep(ClusterAction):
    """An action that records a step of a playbook that takes a node out of service, or returns it: of an upgrade, a repair, a repartition."""

    COMMON = {
        **ClusterAction.COMMON,
        **takes("node", "node reason lease_namespace lease_duration nvsentinel"),
    }

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        cluster = self.cluster(arguments) if arguments["kubernetes"] else None
        if cluster and arguments["lease_namespace"] and not self._task.check_mode:
            self.hold_lease(cluster, arguments, arguments["lease_namespace"], arguments["lease_duration"])
        # What is written has to be read again by the next run.
        arguments["reason"] = str(printable(arguments["reason"], lines=True, longest=LONGEST_OUTPUT))
        name, node = arguments["node"], cluster.node(arguments["node"]) if cluster else None
        step = self.step(arguments, task_vars, cluster, node)
        annotations, cordon = dict(step.annotations), step.cordon
        labels: dict[str, str | None] = {}
        if cluster and step.ours is False:
            labels, kept, cordon = nvsentinel.returned(node, cordon, arguments["nvsentinel"])
            annotations |= kept
        elif cluster and node and step.ours and self._beside_nvsentinel(cluster, node, step, arguments["nvsentinel"]):
            labels, kept = nvsentinel.taken(node)
            annotations |= kept
            step.result["changed"] |= any(labels_of(node).get(label) != value for label, value in labels.items())
        if cluster and step.result["changed"] and not self._task.check_mode:
            for call in step.first:
                call()
            cluster.change_node(name, annotations, cordon, labels)
            for call in step.then:
                call()
        self._display.v(f"{name}: {step.before or 'untouched'} -> {arguments['state']} {arguments['reason']}")
        return step.result

    #: Whether it may take nodes that NVSentinel has released to be repaired.
    REPAIRS = False

    @abstractmethod
    def step(self, arguments: Values, task_vars: Values, cluster: Cluster | None, node: Node) -> NodeWrite:
        """Return what is written to the node."""

    def _beside_nvsentinel(self, cluster: Cluster, node: Mapping[str, Any], step: NodeWrite, mode: str) -> bool:
        """Return whether a node that is taken out of service has to be hidden from NVSentinel.

        :raises Refused: NVSentinel has it. One that a run was at work on is not NVSentinel's, which may have met it half done.
        """
        refused = step.before in _NOT_AT_WORK and nvsentinel.held(node, mode, self.REPAIRS)
        if refused:
            raise refused
        return mode != nvsentinel.IGNORE and (nvsentinel.is_seen(node) or nvsentinel.is_served(cluster.api_groups()))
