# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the sharing of a pool from its variables C(nvidia_sharing_*)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._plan import Refused
from . import arithmetic, contradictions, modes
from .modes import HostOptions, Sharing
from .resources import GPU, mig_resource

_PROFILE = re.compile(r"[0-9]+g\.[0-9]+gb(?:[+.-][a-z0-9.]+)?")
#: The values of nvidia_sharing_mps_multi_user; Ansible hands a YAML boolean on as text, capitalised or not.
_MULTI_USER = {"": None, "none": None, "auto": None, "true": True, "false": False}


def read(desired: Mapping[str, Any]) -> Sharing:
    """Return the sharing that the variables C(nvidia_sharing_*) in C(desired) describe.

    :raises Refused: values that exclude each other, or have no effect together.
    """
    mode = _choice(desired, "nvidia_sharing_mode", "none", modes.MODES)
    backend = _choice(desired, "nvidia_sharing_backend", "mps", modes.BACKENDS)
    replicas, by_resource = _replicas(desired)
    gpus_per_pod = _number(desired, "nvidia_sharing_gpus_per_pod", 1)
    text = str(desired.get("nvidia_sharing_memory_slice") or "").strip()
    slice_mib = arithmetic.memory_mib(text, "nvidia_sharing_memory_slice") if text else None
    sharing = Sharing(
        mode=mode,
        replicas=replicas,
        slice_mib=slice_mib,
        gpus_per_pod=gpus_per_pod,
        time_slice=_choice(desired, "nvidia_sharing_time_slice", "default", modes.TIME_SLICES),
        mps_manager=_choice(desired, "nvidia_sharing_mps_manager", "device_plugin", modes.MPS_MANAGERS),
        backend=backend,
        rename=bool(desired.get("nvidia_sharing_rename", False)),
        mps_scope=str(desired.get("nvidia_sharing_mps_scope") or "node"),
        resource_replicas=by_resource,
        compute_mode=_choice(desired, "nvidia_sharing_compute_mode", "auto", modes.COMPUTE_MODES),
        migrate_from=_choice(desired, "nvidia_sharing_migrate_from", "", ("", *modes.MIGRATED)),
    )
    contradictions.refuse(sharing, text)
    if sharing.mode != "mps" or sharing.mps_manager != "host":
        contradictions.refuse_without_host_daemon(desired)
    return replace(sharing, host=_host_options(desired)) if sharing.mode == "mps" else sharing


def _host_options(variables: Mapping[str, Any]) -> HostOptions:
    """Return how the host runs MPS, from the variables C(nvidia_sharing_mps_*)."""
    scope = str(variables.get("nvidia_sharing_mps_scope") or "node")
    priority = str(variables.get("nvidia_sharing_mps_priority") or "normal")
    percentage = float(variables.get("nvidia_sharing_mps_active_thread_percentage") or 0)
    multi_user = str(variables.get("nvidia_sharing_mps_multi_user", "")).lower()
    for name, value, choices in (
        ("scope", scope, modes.SCOPES),
        ("priority", priority, tuple(modes.PRIORITIES)),
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


def _choice(desired: Mapping[str, Any], name: str, default: str, choices: tuple[str, ...]) -> str:
    value = str(desired.get(name, default))
    if value not in choices:
        raise Refused(name, f"{value!r} is not valid", f"It must be one of {', '.join(choices)}.")
    return value


def _replicas(desired: Mapping[str, Any]) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return C(nvidia_sharing_replicas): one number for everything, or a number for each resource."""
    name = "nvidia_sharing_replicas"
    value = desired.get(name, 0)
    if not isinstance(value, Mapping):
        if value is None or value == "":
            return 0, ()
        if isinstance(value, (list, tuple)):
            remedy = "Write one number, or a mapping from resource to number such as {gpu: 4, 1g.10gb: 2}."
            raise Refused(name, f"{value!r} is a list", remedy)
        return _number(desired, name, 0), ()
    found: dict[str, int] = {}
    for key, count in value.items():
        path = f"{name}.{key}"
        resource = _resource(str(key), path)
        if resource in found:
            raise Refused(path, f"{resource} is named twice", "Name each resource once.")
        number = _number({path: count}, path, 0)
        if number < 2:
            raise Refused(
                path,
                f"{number} replicas share nothing; the device plugin refuses fewer than 2",
                "Ask for 2 or more, or leave the resource out: it is not shared then.",
            )
        found[resource] = number
    if not found:
        raise Refused(name, "the mapping is empty", "Write a number, or a mapping such as {gpu: 4, 1g.10gb: 2}.")
    return 0, tuple(sorted(found.items()))


def _resource(key: str, path: str) -> str:
    """Return the resource that a key means: C(gpu), a MIG profile such as C(1g.10gb+me), or the name that pods ask for."""
    short = key[len("nvidia.com/") :] if key.startswith("nvidia.com/") else key
    short = short[len("mig-") :] if short.startswith("mig-") else short
    if short == "gpu":
        return GPU
    if not _PROFILE.fullmatch(short):
        raise Refused(
            path,
            f"{key!r} is neither gpu nor a MIG profile",
            "Write gpu, or a profile such as 1g.10gb or 1g.10gb+me; nvidia_sharing_rename renames the resource.",
        )
    return mig_resource(short)


def _number(desired: Mapping[str, Any], name: str, default: int) -> int:
    value = desired.get(name, default)
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,18}\s*", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(name, f"{value!r} must be an integer", "Write it without quotes and unit, such as 4.")
    return value
