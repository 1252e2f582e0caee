# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a recommendation saw of a host, and whether the host still is so. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ...module_utils._facts_view import Facts
from ...module_utils._plan import Refused

SEEN = "gpu_recommend_seen"


def state_of(facts: Facts) -> str:
    """Return a fingerprint of how the GPUs of a host are partitioned."""
    state = [
        (gpu.uuid, gpu.mig.current, sorted((one.profile, one.start, one.size) for one in gpu.gpu_instances))
        for gpu in facts.gpus or ()
    ]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


def outdated(seen: Any, host: str, facts: Facts) -> list[Refused]:
    """Return why a layout that was recommended for another state of the host is refused.

    :param seen: the user's C(gpu_recommend_seen); None where no layout was recommended.
    """
    known = seen.get(host) if isinstance(seen, Mapping) else None
    state = known.get("state") if isinstance(known, Mapping) else None
    if not state or state == state_of(facts):
        return []
    reason = "the GPUs of the host were partitioned since then, so whom the layout evicts may be others than it says"
    return [Refused(f"{SEEN}.{host}", reason, "Run gpufleet.nvidia.recommend again.")]
