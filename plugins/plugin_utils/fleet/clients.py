# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a cluster's own holds the GPUs of a node, and how it is sent away while the driver changes. Pure.

The device plugin, gpu-feature-discovery and the metrics exporter are pods of DaemonSets: an eviction brings them back at once, and while
one of them has NVML open the driver cannot be unloaded. What sends such a pod away is a label of its node that its DaemonSet excludes.
The charts that the collection renders exclude C(gpufleet.github.io/gpu-clients=paused). The GPU Operator's operands have each a label of
their own, which its driver manager sets to C(paused-for-driver-upgrade); values that people chose, C(false) above all, are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

from ...module_utils._driver.packages import closure
from ...module_utils._facts_view import Facts
from ...module_utils._migration import DRIVER, HOST, TOOLKIT, of_operator
from ...module_utils._toolkit.packages import OLD_PACKAGES, PACKAGES
from . import objects
from .objects import metadata, pod_spec
from .text import LABEL_PREFIX

LABEL = f"{LABEL_PREFIX}/gpu-clients"
PAUSED = "paused"
#: C(controllers/state_manager.go) of the GPU Operator, and C(main.go) of its k8s-driver-manager.
OPERATOR_PREFIX = "nvidia.com/gpu.deploy."
#: The label of a node to which the operator, if it is C(false), brings nothing at all.
NOTHING = f"{OPERATOR_PREFIX}operands"
OPERATOR_PAUSED = "paused-for-driver-upgrade"
#: Those of the operator's operands that open NVML, or that fail without a driver.
OPERANDS = (
    "client",
    "dcgm",
    "dcgm-dra",
    "dcgm-exporter",
    "dcgm-exporter-dra",
    "device-plugin",
    "dra-driver",
    "dra-validator",
    "gpu-feature-discovery",
    "mig-manager",
    "nvsm",
    "operator-validator",
)
#: Set by C(gpufleet.nvidia.migrate) alone, never by a rule: whose device plugin serves the node, as C(gpu_kubernetes_stack). Where both stacks are
#: rendered, the releases of C(device_plugin) run on nodes with this value.
STACK_LABEL, OWN_STACK, OPERATOR_STACK = f"{LABEL_PREFIX}/stack", "device_plugin", "gpu_operator"
#: What has a release of its own in the stack device_plugin. The MPS daemon of the operator's plugin is placed as its plugin.
REPLACED = ("device-plugin", "gpu-feature-discovery", "dcgm", "dcgm-exporter")
#: The value of their labels where the stack device_plugin serves the node. What people had switched off keeps its own, and stays off on the way back.
OPERATOR_REPLACED = "replaced-by-gpufleet"
#: Values of an operand's label with which the operator leaves it to the host: of people, and of its driver manager, which found a driver there.
_OF_HOST = ("false", "pre-installed")


def of_host(labels: Mapping[str, str], operand: str) -> bool:
    """Return whether the labels of a node keep an operand of the GPU Operator away for good, which its ClusterPolicy has for the cluster."""
    return labels.get(f"{OPERATOR_PREFIX}{operand}") in _OF_HOST or labels.get(NOTHING) == "false"


def is_moved(facts: Facts, operands: Iterable[str], by_host: Callable[[str], bool], to: str) -> bool:
    """Return whether a node has some operands from where its pool is moved to, as its host and its labels say.

    :param by_host: whether the node's labels keep the operator's container away.
    """
    if to == HOST:
        return all(by_host(one) and not of_operator(facts, one) for one in operands)
    # What a removal takes away, and not all that is named like it.
    installed = {
        DRIVER: closure(facts.driver.packages or {}),
        TOOLKIT: {*PACKAGES, *OLD_PACKAGES} & {*(facts.toolkit.packages or ())},
    }
    return not any(by_host(one) or installed[one] for one in operands)


def paused(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a node on which the clients are paused."""
    changed = dict(labels)
    changed[LABEL] = PAUSED
    for key in _operands(labels, "true"):
        changed[key] = OPERATOR_PAUSED
    return changed


def resumed(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a node on which they may run."""
    changed = {key: value for key, value in labels.items() if key != LABEL}
    for key in _operands(labels, OPERATOR_PAUSED):
        changed[key] = "true"
    return changed


def brought(labels: Mapping[str, str], operands: Sequence[str], by_operator: bool) -> dict[str, str]:
    """Return the labels of a node to which the GPU Operator brings some operands, or to which their host does."""
    return {**labels, **{f"{OPERATOR_PREFIX}{name}": "true" if by_operator else "false" for name in operands}}


def served(labels: Mapping[str, str], by_operator: bool) -> dict[str, str]:
    """Return the labels of a node whose L(REPLACED) are the GPU Operator's, or are not."""
    keys = {f"{OPERATOR_PREFIX}{name}" for name in REPLACED} - {*left_off(labels)}
    return {**labels, **dict.fromkeys(keys, "true" if by_operator else OPERATOR_REPLACED)}


def left_off(labels: Mapping[str, str]) -> list[str]:
    """Return the labels of L(REPLACED) with which a node keeps them away for good, whichever stack serves it."""
    return [f"{OPERATOR_PREFIX}{name}" for name in REPLACED if labels.get(f"{OPERATOR_PREFIX}{name}") in _OF_HOST]


def _operands(labels: Mapping[str, str], value: str) -> list[str]:
    keys = [f"{OPERATOR_PREFIX}{name}" for name in OPERANDS]
    return [key for key in keys if labels.get(key) == value]


def patch(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str | None]:
    """Return what has to be written; C(None) removes a label."""
    changes: dict[str, str | None] = {key: None for key in before if key not in after}
    changes.update({key: value for key, value in after.items() if before.get(key) != value})
    return changes


def moved(
    daemon_sets: Iterable[Mapping[str, Any]], labels: Mapping[str, str], operands: Sequence[str] = ()
) -> dict[str, str]:
    """Return the DaemonSets that run on a node only while nothing is paused, UID to title.

    :param daemon_sets: objects of the API, the cluster's own: a tenant can say the same of a DaemonSet, and let it never become ready.
    :param operands: of the GPU Operator. With any, those that run only while the operator brings one of them.
    """
    there = resumed(labels)
    there, away = brought(there, operands, True), brought(there, operands, False) if operands else paused(there)
    return _between(daemon_sets, there, away)


def of_stack(daemon_sets: Iterable[Mapping[str, Any]], labels: Mapping[str, str], stack: str) -> dict[str, str]:
    """Return the DaemonSets of a stack that run on a node only where it serves the node, UID to title."""
    there = resumed(labels)
    if stack == OPERATOR_STACK:
        there = served(there, True)
        return _between(daemon_sets, there, served(there, False))
    return _between(daemon_sets, {**there, STACK_LABEL: OWN_STACK}, {**there, STACK_LABEL: OPERATOR_STACK})


def _between(
    daemon_sets: Iterable[Mapping[str, Any]], there: Mapping[str, str], away: Mapping[str, str]
) -> dict[str, str]:
    specs = ((one, pod_spec(one)) for one in daemon_sets)
    return {_uid(one): title(one) for one, spec in specs if placed(spec, there) and not placed(spec, away)}


def placed(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a pod of this spec may run on a node with these labels, as far as labels decide it.

    As the scheduler does: every entry of the node selector, and any one of the terms of the required node affinity.
    """
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term(term, labels) for term in required.get("nodeSelectorTerms") or ())


def _term(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    if not expressions and not term.get("matchFields"):
        # A term without a condition matches no node.
        return False
    return all(_matches(expression, labels) for expression in expressions)


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = str(expression.get("key")), [str(value) for value in expression.get("values") or ()]
    operator, there = expression.get("operator"), labels.get(key)
    if operator == "In":
        return there in values
    if operator == "NotIn":
        return there not in values
    if operator == "Exists":
        return there is not None
    if operator == "DoesNotExist":
        return there is None
    if there is None or len(values) != 1:
        return False
    try:
        return int(there) > int(values[0]) if operator == "Gt" else int(there) < int(values[0])
    except ValueError:
        return False


def owner(pod: Mapping[str, Any]) -> str:
    """Return the UID of a pod's controller, or an empty string."""
    owners = metadata(pod).get("ownerReferences") or ()
    return next((str(item.get("uid")) for item in owners if item.get("controller")), "")


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod works: ready, and not about to end."""
    return objects.is_ready(pod) and not metadata(pod).get("deletionTimestamp")


def not_replaced(deleted: Iterable[Mapping[str, Any]], present: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return why pods that were deleted do not work again: the title of a pod to the reason.

    :param deleted: pods of the node, objects of the API. One without a controller is not expected back.
    """
    deleted = list(deleted)
    uids = {_uid(pod) for pod in deleted}
    new: dict[str, list[Mapping[str, Any]]] = {}
    for pod in present:
        if _uid(pod) not in uids and not metadata(pod).get("deletionTimestamp"):
            new.setdefault(owner(pod), []).append(pod)
    found = {}
    for pod in deleted:
        controller = owner(pod)
        if not controller:
            continue
        if controller not in new:
            found[title(pod)] = "it was restarted, and no new pod has taken its place"
        elif not any(is_ready(other) for other in new[controller]):
            found[title(new[controller][0])] = "it was recreated and is not ready"
    return found


def _uid(pod: Mapping[str, Any]) -> str:
    return str(metadata(pod).get("uid"))


def title(pod: Mapping[str, Any]) -> str:
    return f"{metadata(pod).get('namespace')}/{metadata(pod).get('name')}"
