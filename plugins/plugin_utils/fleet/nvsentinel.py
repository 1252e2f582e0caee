# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVSentinel, which watches, cordons and repairs GPU nodes too: which of the two has a node. Pure.

While DCGM is down, as in each change of a driver, NVSentinel cordons the node and may repair it; an uncordon by anybody else cancels its repair. Names and
behaviour: NVSentinel 1.28, docs/runbooks/driver-upgrades.md, docs/components/cancelling-breakfix.md, docs/tutorials/integrating-external-remediation.md,
and fault-quarantine/pkg/common/common.go.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...module_utils._formats.documents import read_record
from ...module_utils._plan import Refused
from ...module_utils._schema import mapping, text
from .objects import annotations_of, labels_of, metadata
from .text import LABEL_PREFIX

#: Values of C(gpu_node_nvsentinel).
MODES = EXCLUDE, REMEDIATE, IGNORE = ("exclude", "remediate", "ignore")
GROUP = "nvsentinel.dgxc.nvidia.com"
#: Its own API group, and that of its janitor, which older releases have alone.
_GROUPS = {GROUP, "janitor.dgxc.nvidia.com"}
#: With one of them C(false) it leaves a node alone. Releases before 1.0 know the second only, and its monitors the first only: both are set.
MANAGED = (f"{GROUP}/managed", "k8saas.nvidia.com/ManagedByNVSentinel")
_QUARANTINED = ("quarantineHealthEvent", "quarantineHealthEventIsCordoned")
#: The taint of a node that it has released to another system, with the name of the ExternalRemediationRequest (from 1.24).
_RELEASED = f"{GROUP}/external-remediation"
#: Its conditions: that of NVSentinel, and that of the system that repairs.
_OWNERSHIP, _COMPLETE = "NVSentinelOwnershipReleased", "ExternalRemediationComplete"
#: What the labels were before a playbook took the node.
INITIAL = f"{LABEL_PREFIX}/initial-nvsentinel-managed"
_INITIAL = mapping(text())


def is_seen(node: Mapping[str, Any] | None) -> bool:
    """Whether a node has labels or annotations of NVSentinel."""
    labels = labels_of(node)
    return any(name.startswith(f"{GROUP}/") or name == MANAGED[1] for name in labels) or bool(_quarantine(node))


def is_served(groups: Collection[str]) -> bool:
    """Whether these API groups of a cluster have one of NVSentinel's."""
    return not _GROUPS.isdisjoint(groups)


def released_by(node: Mapping[str, Any] | None) -> str:
    """Return the name of the ExternalRemediationRequest by which NVSentinel has released a node, or an empty text."""
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    return next((str(one.get("value") or "") for one in taints if one.get("key") == _RELEASED), "")


def held(node: Mapping[str, Any] | None, mode: str, repairs: bool = False) -> Refused | None:
    """Return why a node is not to be taken, because NVSentinel has it, or None. Not for a node that a run has taken already.

    :param repairs: whether it is heal that asks, which alone takes with C(remediate) what NVSentinel has released.
    """
    name = f"node {metadata(node).get('name')}"
    request, event = released_by(node), _quarantine(node)
    if mode == IGNORE or INITIAL in annotations_of(node) or (request and repairs and mode == REMEDIATE):
        return None
    if request:
        why = f"NVSentinel has released it to another system (ExternalRemediationRequest {request})"
        remedy = "Wait until that system has repaired it. If that is to be heal, set gpu_node_nvsentinel: remediate."
        return Refused(name, why, remedy)
    if event:
        why = f"NVSentinel has quarantined it (annotation {event})"
        return Refused(name, why, "Wait until NVSentinel returns it, or uncordon it, which cancels that repair.")
    return None


def is_awaited(request: Mapping[str, Any]) -> bool:
    """Whether an ExternalRemediationRequest waits for its result: the node is released, and nobody has said how it ended."""
    status = {one.get("type"): one.get("status") for one in _conditions(request)}
    return status.get(_OWNERSHIP) == "True" and status.get(_COMPLETE) not in ("True", "False")


def reported(request: Mapping[str, Any], repaired: bool, message: str, now: str) -> list[dict[str, Any]]:
    """Return the conditions of a request with the result. Without C(repaired) the node stays released until people delete the request."""
    others = [dict(one) for one in _conditions(request) if one.get("type") != _COMPLETE]
    reason = "Repaired" if repaired else "HandedOver"
    status = {"status": "True" if repaired else "False", "lastTransitionTime": now}
    return [*others, {"type": _COMPLETE, **status, "reason": reason, "message": message}]


def _conditions(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = (request.get("status") or {}).get("conditions") or ()
    return [one for one in found if isinstance(one, Mapping)]


def taken(node: Mapping[str, Any]) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return the labels and annotations with which NVSentinel leaves a node alone. What a run before this one found is kept."""
    there = labels_of(node)
    found = annotations_of(node).get(INITIAL) or json.dumps({name: there[name] for name in MANAGED if name in there})
    return dict.fromkeys(MANAGED, "false"), {INITIAL: found}


def returned(
    node: Mapping[str, Any] | None, cordon: bool | None, mode: str
) -> tuple[dict[str, str | None], dict[str, str | None], bool | None]:
    """Return the labels and annotations with which a node goes back to NVSentinel, and its cordon: one that NVSentinel needs stays, and it removes it."""
    written = annotations_of(node).get(INITIAL)
    kept = None if cordon is False and mode != IGNORE and _quarantine(node) else cordon
    if written is None:
        return {}, {}, kept
    before = read_record(_INITIAL, written) or {}
    return {name: before.get(name) for name in MANAGED}, {INITIAL: None}, kept


def _quarantine(node: Mapping[str, Any] | None) -> str:
    """Return the annotation by which NVSentinel says that it has quarantined a node, or an empty text."""
    there = annotations_of(node)
    return next((name for name in _QUARANTINED if there.get(name) not in (None, "", "False")), "")
