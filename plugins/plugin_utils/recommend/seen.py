# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a recommendation saw of a host, and whether the host still is so. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._facts_view import Facts
from ...module_utils._plan import Refused, StagePlan
from ...module_utils._records import RecordedLayout
from ...module_utils._steps import Kind

SEEN = "gpu_recommend_seen"
#: A pod as it is evicted, and a MIG device. Hosts say how they are called, and Ansible takes texts of a variables file for templates: no others are in it.
_POD = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+")
_DEVICE = re.compile(r"[A-Za-z0-9/-]+")
#: What can end who uses a GPU.
_TAKES = (
    Kind.DESTROY_GPU_INSTANCE,
    Kind.DESTROY_COMPUTE_INSTANCE,
    Kind.ENABLE_MIG,
    Kind.DISABLE_MIG,
    Kind.RESET_GPU,
    Kind.PARTITION_GPU,
)


def pods_of(names: Iterable[Any]) -> list[str]:
    """Return those of the names that are the names of pods."""
    return [str(name) for name in names if _POD.fullmatch(str(name))]


def devices_of(uuids: Iterable[Any]) -> list[str]:
    """Return those of the UUIDs of MIG devices that have the form of one, in order."""
    return sorted(str(uuid) for uuid in uuids if _DEVICE.fullmatch(str(uuid)))


def seen_of(seen: Any, host: str) -> dict[str, Any]:
    """Return what a recommendation saw of a host; empty where there is none. Raises Refused: it is no such thing.

    A host that it does not change, or that was added since, has no state: then nothing is taken from it.

    :param seen: C(gpu_recommend_seen) as the file has it: nothing of it is a template, and nothing of other hosts is read.
    """
    if seen is None:
        return {}
    known = seen.get(host, {}) if isinstance(seen, Mapping) else None
    lists: list[Any] = [known.get(key, []) for key in ("evicts", "keeps")] if isinstance(known, Mapping) else [None]
    if not isinstance(known, Mapping) or not all(isinstance(one, (list, tuple)) for one in lists):
        raise Refused(SEEN, "it is not as gpufleet.nvidia.recommend writes it", "Run gpufleet.nvidia.recommend again.")
    if not known:
        return {"state": "", "evicts": []}
    return {"state": str(known.get("state")), "evicts": pods_of(lists[0]), "keeps": devices_of(lists[1])}


def state_of(facts: Facts) -> str:
    """Return a fingerprint of how the GPUs of a host are partitioned."""
    state = [
        (gpu.uuid, gpu.mig.current, sorted((one.profile, one.start, one.size) for one in gpu.gpu_instances))
        for gpu in facts.gpus or ()
    ]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


def outdated(seen: Mapping[str, Any], host: str, facts: Facts, mig: StagePlan, layout: Any) -> list[Refused]:
    """Return why a layout that was recommended for another state of the host is refused.

    It is not where nobody can be evicted by it who was not announced: the host has no driver yet, it takes nothing from a GPU, or the host had the
    layout already, or a run that gave it to the host was cut off.

    :param seen: of L(seen_of). C(mig): the plan of the layout, C(layout).
    """
    if not mig.needed or facts.gpus is None or seen["state"] == state_of(facts):
        return []
    recorded = facts.recorded
    if recorded.mig_unfinished or recorded.repartition_unfinished:
        return []
    had = recorded.mig.request if isinstance(recorded.mig, RecordedLayout) else None
    if had and had.get("layout") == layout:
        return []
    if mig.unread is None and not any(step.kind in _TAKES for step in mig.steps):
        return []
    reason = "the GPUs of the host were partitioned since then, so whom the layout evicts may be others than it says"
    if not seen["state"]:
        reason = "the recommendation changes nothing on the host, and its layout takes instances from it now"
    return [Refused(f"{SEEN}.{host}", reason, "Run gpufleet.nvidia.recommend again.")]
