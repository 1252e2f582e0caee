# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the actions that judge several hosts return under C(refusals): the shape of every module, and the hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.text import shortened


def of_hosts(found: Iterable[tuple[str, Refused]]) -> list[dict[str, Any]]:
    """Return every refusal once, with the hosts that it is about."""
    refusals: dict[str, dict[str, Any]] = {}
    for host, refusal in found:
        refusals.setdefault(refusal.message, {**refusal.as_dict(), "hosts": []})["hosts"].append(str(host))
    return list(refusals.values())


def sentences(refusals: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return them for people."""
    return [f"{shortened(refusal['hosts'])}: {refusal['message']}" for refusal in refusals]
