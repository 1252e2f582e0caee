# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a node in the cluster shows what the description of its host predicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Callable

from ..module_utils._adapters.files import read_text
from ..module_utils._facts_view import Facts
from ..module_utils._health.report import FAILED, PASSED, Check
from ..module_utils._mig.state import profiles_of
from ..module_utils._plan import Refused
from .fleet import claims, clients, expectations, objects, plugin_pod, sharing_configurations
from .fleet.served import SERVERS
from .role_variables import HOST_ROLES

#: The roles whose variables say what a node shows.
ROLES = (*HOST_ROLES, "gpu_kubernetes")


def expected(
    node: str,
    facts: Facts,
    variables: Callable[[], Mapping[str, Any]],
    capacity_file: str = "",
    labels: bool = True,
    there: Mapping[str, Any] | None = None,
) -> expectations.Expected:
    """Return what C(node) must show: by a rendered file, or as it follows from the host's GPUs and its variables.

    :param variables: gives those of C(ROLES), typed and complete; not called where there is a file.
    :param there: the Node object, by which a file knows a node that it does not name.
    :raises Refused: the file is not there, or does not know the node; or variables cannot be taken.
    """
    if capacity_file:
        text = read_text(capacity_file)
        if text is None:
            raise Refused(capacity_file, "there is no such file", "Render the clusters first: gpufleet.nvidia.render.")
        return expectations.expected(text, capacity_file, node, there)
    found = variables()
    choices = sharing_configurations.read(found, facts.gpus or ())
    sharing, predicted = choices.effective.sharing, choices.effective.capacity
    named = {} if choices.chosen else choices.named
    before = choices.before.capacity if choices.before else None
    operator = (found["gpu_kubernetes_stack"], found["gpu_kubernetes_mig_manager"]) == ("gpu_operator", "operator")
    return expectations.Expected(
        predicted.resources,
        predicted.labels if labels else {},
        # The operator runs no MIG manager on a node without a board that has MIG.
        mig_manager=operator and any(profiles_of(gpu) for gpu in facts.gpus or ()),
        mps_of_host=sharing.mps_of_host,
        mps_replicas={name: unit.replicas for name, unit in predicted.slices.items()} if sharing.mps_of_plugin else {},
        devices=predicted.devices,
        choices={
            name: shown if labels else replace(shown, labels={})
            for name, shown in ((name, sharing_configurations.shown(one)) for name, one in named.items())
        },
        other_choices=expectations.MORE
        if "gpu_operator" in (found["gpu_kubernetes_stack"], found["gpu_kubernetes_migrate_from"])
        else expectations.OWN,
        moved_to=SERVERS[sharing.backend] if before else "",
        before=expectations.Expected(before.resources, before.labels if labels else {}, devices=before.devices)
        if before
        else None,
    )


def checks(
    name: str,
    node: Mapping[str, Any] | None,
    pods: Callable[[], Sequence[Mapping[str, Any]]],
    wanted: expectations.Expected,
    facts: Facts,
    namespaces: Collection[str],
    restarted: Sequence[Mapping[str, Any]] = (),
    slices: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
    waiting: bool = False,
) -> tuple[Check, ...]:
    """Return what a node shows beside what it must show. The first failure is the one to fix.

    :param node: the object of the API; None where the cluster has none of that name.
    :param pods: gives the objects of the pods on it; not called where the node alone says enough.
    :param namespaces: those of the cluster's own plugins: what looks like one elsewhere is a tenant's.
    :param restarted: pods that were restarted, and must have been replaced.
    :param slices: gives the cluster's ResourceSlices; not called where no DRA driver is to serve the node.
    :param waiting: whether the node is asked until it agrees: facts of before say nothing of a daemon that comes with the plugin's pods.
    """
    if node is None:
        step = "Set gpu_node_name to the node's name, or join the host to the cluster."
        return (Check("node", FAILED, f"the cluster has no node {name}", step),)
    if not objects.is_ready(node):
        step = "Look at the kubelet on the host: journalctl -u kubelet."
        return (Check("node", FAILED, "it is not Ready", step),)
    ready = Check("node", PASSED, "Ready")
    wanted, said = expectations.chosen(node, wanted)
    there = objects.own(pods(), namespaces)
    waited = clients.not_replaced(restarted, there) if restarted else {}
    if waited:
        why = "; ".join(f"{title}: {reason}" for title, reason in waited.items())
        step = "See what keeps the pod: kubectl describe pod, and its log."
        return (ready, Check("plugin pods", FAILED, why, step))
    # What keeps the plugin from its devices comes before what the node therefore does not offer.
    plugin = [plugin_pod.check(there, facts)]
    if wanted.mps_of_host:
        plugin.append(plugin_pod.mps_check(there, sorted(wanted.resources), facts.mps or ()))
    if wanted.mps_replicas and not waiting:
        plugin.append(plugin_pod.mps_limits_check(wanted.mps_replicas, facts, there))
    devices = claims.counts(claims.published(slices(), {name: node}).get(name, ())) if wanted.devices else None
    return (ready, *said, *plugin, *expectations.compare(node, wanted, devices))
