# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a host runs MPS daemons of its own: the variables C(nvidia_sharing_mps_*), read once for plan, prediction and module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._plan import Refused
from . import arithmetic

SCOPES = ("node", "gpu", "instance")
PRIORITIES = {"normal": 0, "below_normal": 1}
#: The values of nvidia_sharing_mps_multi_user; Ansible hands a YAML boolean on as text, capitalised or not.
_MULTI_USER = {"": None, "none": None, "auto": None, "true": True, "false": False}


@dataclass(frozen=True)
class HostOptions:
    """How the host runs MPS.

    :param scope: C(node), one daemon in the directories that the device plugin expects; C(gpu), one for each GPU; C(instance), one
        for each MIG device.
    :param percentage: active thread percentage of a client; 0 means all threads (100).
    :param priority: C(normal) or C(below_normal).
    :param multi_user: whether clients of several users share a server; None leaves it to what the daemon serves.
    :param limits_mib: GPU index to memory of a client in MiB, for GPUs that differ from the pool's slice.
    :param protocol: of the control daemon: 2, which every release speaks, or 3.
    """

    scope: str = "node"
    percentage: float = 0.0
    priority: str = "normal"
    multi_user: bool | None = None
    limits_mib: Mapping[int, int] = field(default_factory=dict, hash=False)
    protocol: int = 2


def read(variables: Mapping[str, Any]) -> HostOptions:
    """Return how the host runs MPS, from the variables C(nvidia_sharing_mps_*).

    :raises Refused: a value that is not one of its choices.
    """
    scope = str(variables.get("nvidia_sharing_mps_scope") or "node")
    priority = str(variables.get("nvidia_sharing_mps_priority") or "normal")
    percentage = float(variables.get("nvidia_sharing_mps_active_thread_percentage") or 0)
    multi_user = str(variables.get("nvidia_sharing_mps_multi_user", "")).lower()
    for name, value, choices in (
        ("scope", scope, SCOPES),
        ("priority", priority, tuple(PRIORITIES)),
        ("multi_user", multi_user, tuple(_MULTI_USER)),
    ):
        if value not in choices:
            shown = ("auto", "true", "false") if name == "multi_user" else choices
            raise Refused(
                f"nvidia_sharing_mps_{name}", f"{value!r} is not valid", f"It must be one of {', '.join(shown)}."
            )
    if not 0 <= percentage <= 100:
        name = "nvidia_sharing_mps_active_thread_percentage"
        raise Refused(name, f"{percentage:g} is not a percentage", "Use 0 to 100; 0 means all threads.")
    return HostOptions(
        scope=scope,
        percentage=percentage,
        priority=priority,
        multi_user=_MULTI_USER[multi_user],
        limits_mib=_limits(variables),
        protocol=int(variables.get("nvidia_sharing_mps_protocol") or 2),
    )


def _limits(variables: Mapping[str, Any]) -> dict[int, int]:
    limits = {}
    for number, entry in enumerate(variables.get("nvidia_sharing_mps_limits") or ()):
        path = f"nvidia_sharing_mps_limits[{number}]"
        if not isinstance(entry, Mapping) or "gpu" not in entry or "memory" not in entry:
            raise Refused(
                path, "every entry must be a mapping with gpu and memory", "For example: {gpu: 0, memory: 8GiB}."
            )
        limits[int(entry["gpu"])] = arithmetic.memory_mib(str(entry["memory"]), f"{path}.memory")
    return limits
