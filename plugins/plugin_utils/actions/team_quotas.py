# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lower the quotas of teams before nodes get another layout, and raise them to the described ones after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.documents import read_yaml_documents
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError, Cluster, at_once
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_action import ClusterAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.names import LABEL_PREFIX
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.objects import annotations_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.quotas import (
    NUMBERS,
    VARIABLE,
    amounts,
    fingerprint,
    lowered,
)

PLANNED, LOWERED, RAISED = "planned", "lowered", "raised"
#: Which numbers a run wrote: the next one goes on from there, whatever layout it brings.
WRITTEN = f"{LABEL_PREFIX}/quota-written"
#: To write and read back; hosts of one batch do so at the same time.
_ATTEMPTS = 5


class ActionModule(ClusterAction):
    OPTIONS = {
        "state": {"type": "str", "choices": [PLANNED, LOWERED, RAISED], "required": True},
        "quotas": {"type": "dict", "default": {}},
        "lease_namespace": {"type": "str", "default": "default"},
        "lease_duration": {"type": "int", "default": 1800},
    }

    def act(self, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        quotas, state = arguments["quotas"], arguments["state"]
        if not arguments["kubernetes"] or not quotas:
            return {"changed": False}
        if len(quotas) > 1:
            reason = f"this run has hosts of the clusters {', '.join(sorted(quotas))}, and it changes one cluster"
            raise Refused(VARIABLE, reason, "Run it once for each cluster, with --limit.")
        ((name, texts),) = quotas.items()
        cluster = self.cluster(arguments)
        changed = False
        for _attempt in range(_ATTEMPTS):
            found = writes(cluster, name, texts, state, at_once(self._display))
            for text, _call in found:
                self._display.display(f"  {text}")
            if not found or state == PLANNED or self._task.check_mode:
                return {"changed": changed or (bool(found) and state != PLANNED)}
            changed = True
            self.hold_lease(cluster, arguments, arguments["lease_namespace"], arguments["lease_duration"])
            try:
                for _line, call in found:
                    call()
            except ApiError as error:
                # Another host of the batch wrote it, or a person, which reading it again tells.
                if error.status != 409:
                    raise
        lines = ", ".join(text for text, _call in found)
        raise Refused(VARIABLE, f"the cluster did not take the numbers ({lines})", "Look at who else writes them.")


def writes(
    cluster: Cluster, name: str, texts: Mapping[str, str], state: str, notify: Callable[[str], None]
) -> list[tuple[str, Callable[[], None]]]:
    """Return what changes the quotas of a cluster, as text and as calls.

    :raises Refused: somebody else changed the numbers of one.
    """
    folder = f"clusters/{name}/quotas"
    before, after = (_numbers(texts[one]) for one in ("before", "after"))
    found, foreign = [], []
    for key, described in after.items():
        label = f"{key[0]} {key[2]}"
        live, rendered = cluster.quota(*key), before.get(key, described)
        if live is None or texts["gitops"]:
            text = _text(rendered, lowered(rendered, described))
            if text and state == PLANNED:
                remedy = f"apply {folder}" if live is None else "merge these numbers and sync them first"
                notify(
                    f"{label} {'is missing' if live is None else 'belongs to GitOps'} and stays as it is; {remedy}: {text}."
                )
            continue
        now = live["spec"].get(NUMBERS[key[0]])
        known = {fingerprint(one) for one in (rendered, described, lowered(rendered, described))}
        if fingerprint(now) not in known | {annotations_of(live).get(WRITTEN)}:
            foreign.append(label)
            continue
        then = described if state == RAISED else lowered(now, described)
        if fingerprint(now) != fingerprint(then):
            found.append((f"{label}: {_text(now, then)}", _write(cluster, key[0], live, now, then)))
    if foreign:
        reason = (
            f"somebody changed the numbers of {', '.join(foreign)}, or the tree was not applied since it was rendered"
        )
        raise Refused(VARIABLE, reason, f"Describe what is wanted, render, and apply {folder}.")
    return found


def _write(cluster: Cluster, kind: str, live: Mapping[str, Any], now: Any, then: Any) -> Callable[[], None]:
    # A merge patch keeps what it does not name.
    spec = {NUMBERS[kind]: {**dict.fromkeys(now), **then} if isinstance(then, Mapping) else then}
    return lambda: cluster.change_quota(kind, live, spec, {WRITTEN: fingerprint(then)})


def _numbers(text: str) -> dict[tuple[str, str, str], Any]:
    """Return the numbers of the objects in a rendered file, by kind, namespace and name."""
    return {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one["spec"][NUMBERS[one["kind"]]]
        for one in read_yaml_documents(text)
        if one and one["kind"] in NUMBERS
    }


def _text(now: Any, then: Any) -> str:
    before, after = amounts(now), amounts(then)
    changed = [key for key in sorted({*before, *after}) if before.get(key, 0) != after.get(key, 0)]
    return ", ".join(f"{' '.join(key).strip()} {before.get(key, 0)} -> {after.get(key, 0)}" for key in changed)
