# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the sharing of a pool from its variables C(nvidia_sharing_*)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._boards.board import mps_clients, mps_clients_of_device_plugin
from .._plan import Refused
from . import modes
from .modes import MIGRATED, HostOptions, Sharing
from .mps_instances import GPU, mig_resource

_PROFILE = re.compile(r"[0-9]+g\.[0-9]+gb(?:[+.-][a-z0-9.]+)?")
#: The values of nvidia_sharing_mps_multi_user; Ansible hands a YAML boolean on as text, capitalised or not.
_MULTI_USER = {"": None, "none": None, "auto": None, "true": True, "false": False}


def read(desired: Mapping[str, Any]) -> Sharing:
    """Return the sharing that the variables C(nvidia_sharing_*) in C(desired) describe. Raises Refused: values that exclude each other, or have no
    effect together.
    """
    mode = _choice(desired, "nvidia_sharing_mode", "none", modes.MODES)
    backend = _choice(desired, "nvidia_sharing_backend", "mps", modes.BACKENDS)
    replicas, by_resource = _replicas(desired)
    gpus_per_pod = _number(desired, "nvidia_sharing_gpus_per_pod", 1)
    text = str(desired.get("nvidia_sharing_memory_slice") or "").strip()
    slice_mib = modes.memory_mib(text, "nvidia_sharing_memory_slice") if text else None
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
    _refuse_compute_mode(sharing)
    _refuse_migration(sharing)
    _refuse_contradictions(sharing, text)
    if sharing.mode != "mps" or sharing.mps_manager != "host":
        _refuse_without_host_daemon(desired)
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
            reason = f"{value!r} is not valid"
            raise Refused(f"nvidia_sharing_mps_{name}", reason, f"It must be one of {', '.join(shown)}.")
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
            remedy = "For example: {gpu: 0, memory: 8GiB}."
            raise Refused(path, "every entry must be a mapping with gpu and memory", remedy)
        limits[int(entry["gpu"])] = modes.memory_mib(str(entry["memory"]), f"{path}.memory")
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
            advice = "Ask for 2 or more, or leave the resource out: it is not shared then."
            raise Refused(path, f"{number} replicas share nothing; the device plugin refuses fewer than 2", advice)
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
        remedy = "Write gpu, or a profile such as 1g.10gb or 1g.10gb+me; nvidia_sharing_rename renames the resource."
        raise Refused(path, f"{key!r} is neither gpu nor a MIG profile", remedy)
    return mig_resource(short)


def _number(desired: Mapping[str, Any], name: str, default: int) -> int:
    value = desired.get(name, default)
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,18}\s*", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(name, f"{value!r} must be an integer", "Write it without quotes and unit, such as 4.")
    return value


def refuse_on_mig(sharing: Sharing, mig_strategy: str) -> None:
    """Refuse ways of sharing that do not go together with MIG: MPS of the device plugin, and consumable shares of DRA. Raises Refused: the plugin
    exits, and gpu-feature-discovery publishes no label at all, on such a node; the DRA driver has no memory slices of MIG devices.
    """
    if mig_strategy == "single" and sharing.migrate_from:
        raise Refused(
            "nvidia_sharing_migrate_from",
            "nvidia_mig_strategy is single, so pods request MIG devices as nvidia.com/gpu: with the DRA driver that is the name of its chart's "
            "DeviceClass gpu.nvidia.com, which has whole GPUs only, and no second class may have it",
            "Set nvidia_mig_strategy: mixed first and let the pods request nvidia.com/mig-PROFILE, or remove it, drain the pool's nodes, and "
            "set nvidia_sharing_backend alone.",
        )
    if mig_strategy != "none" and sharing.backend == "dra" and sharing.consumed:
        reason = f"the DRA driver slices the memory of whole GPUs, and nvidia_mig_strategy is {mig_strategy}"
        remedy = "Remove it: pods then claim the MIG devices of the layout. Or set nvidia_mig_strategy: none."
        raise Refused("nvidia_sharing_memory_slice", reason, remedy)
    if mig_strategy != "none" and sharing.claims_shared and sharing.time_slice != "default":
        reason = f"the DRA driver sets no time slice of MIG devices, and nvidia_mig_strategy is {mig_strategy}"
        remedy = "Remove it: pods that share a MIG device by a claim have the driver's own time slice."
        raise Refused("nvidia_sharing_time_slice", reason, remedy)
    if mig_strategy != "none" and sharing.compute_mode not in ("auto", "default"):
        mode = sharing.compute_mode
        why = f"the compute mode of a GPU in MIG mode is default and cannot be {mode}, and nvidia_mig_strategy is {mig_strategy}"
        remedy = "Remove it: a MIG device has only one user anyway."
        raise Refused("nvidia_sharing_compute_mode", why, remedy)
    if mig_strategy != "none" and sharing.mps_of_plugin:
        reason = f"the device plugin does not share MIG devices by MPS, and nvidia_mig_strategy is {mig_strategy}"
        remedy = "Use nvidia_sharing_mode: time_slicing on the MIG devices, nvidia_mig_strategy: none, or nvidia_sharing_mps_manager: host."
        raise Refused("nvidia_sharing_mode", reason, remedy)


def _refuse_migration(sharing: Sharing) -> None:
    """Refuse to migrate what pods cannot request alike on both sides: only devices that nobody shares."""
    name, before = "nvidia_sharing_migrate_from", sharing.migrate_from
    if not before:
        return
    if sharing.backend not in MIGRATED or before == sharing.backend:
        other = "dra" if before == "mps" else "mps"
        remedy = f"Set nvidia_sharing_backend: {other}, to which the pool is migrated, or remove {name}."
        raise Refused(name, f"it is {before}, and nvidia_sharing_backend is {sharing.backend}", remedy)
    shared = "nvidia_sharing_mode" if sharing.shared else "nvidia_sharing_memory_slice" if sharing.slice_mib else ""
    if shared:
        reason = f"{shared} is set, and for a request by name the DRA driver gives each pod a device of its own: shares of it have no such name"
        remedy = "Remove one of the two. A pool with shared GPUs changes to claims together with its pods, which then name a ResourceClaim."
        raise Refused(name, reason, remedy)


def _refuse_compute_mode(sharing: Sharing) -> None:
    """Who shares a GPU decides on its compute mode: exclusive_process lets one process in, and prohibited none."""
    if sharing.compute_mode == "auto" or (not sharing.shared and sharing.backend == "mps"):
        return
    if sharing.claims_shared:
        why = "the DRA driver sets the one that each claim needs"
    elif sharing.mode == "time_slicing":
        if sharing.compute_mode == "default":
            return
        why = "time slices are of several processes, and it lets in " + (
            "one" if sharing.compute_mode == "exclusive_process" else "none"
        )
    elif sharing.mode == "mps":
        why = (
            "the MPS daemon "
            + ("of the host" if sharing.mps_manager == "host" else "of the device plugin")
            + " needs and sets its own"
        )
    else:
        why = f"nvidia_sharing_backend {sharing.backend} has several processes on a GPU and sets its own"
    raise Refused("nvidia_sharing_compute_mode", f"{sharing.compute_mode} is requested, but {why}", "Remove it.")


def _refuse_contradictions(sharing: Sharing, memory_slice: str) -> None:
    if sharing.gpus_per_pod < 1:
        thing = "nvidia_sharing_gpus_per_pod"
        raise Refused(thing, f"{sharing.gpus_per_pod} is less than 1", "A pod spreads over 1 GPU or more.")
    if sharing.replicas < 0 or sharing.replicas == 1:
        reason = f"{sharing.replicas} replicas share nothing; the device plugin refuses fewer than 2"
        raise Refused("nvidia_sharing_replicas", reason, "Ask for 2 or more, or set nvidia_sharing_mode: none.")
    if sharing.resource_replicas and sharing.mode == "mps":
        reason = "numbers by resource are for time slicing: the clients of an MPS daemon have one limit"
        remedy = "Write one number such as nvidia_sharing_replicas: 4, or set nvidia_sharing_mode: time_slicing."
        raise Refused("nvidia_sharing_replicas", reason, remedy)
    if sharing.counted and sharing.slice_mib:
        by_resource = ", ".join(f"{resource}: {number}" for resource, number in sharing.resource_replicas)
        given = sharing.replicas or by_resource
        reason = f"both nvidia_sharing_replicas ({given}) and nvidia_sharing_memory_slice ({memory_slice}) are set"
        raise Refused("nvidia_sharing_replicas", reason, "One follows from the other: set one.")
    if sharing.backend != "mps":
        _refuse_other_backend(sharing)
    elif sharing.mode == "none" and (sharing.counted or sharing.slice_mib):
        name = "nvidia_sharing_replicas" if sharing.counted else "nvidia_sharing_memory_slice"
        remedy = "Set nvidia_sharing_mode: mps or time_slicing."
        raise Refused(name, "it has no effect with nvidia_sharing_mode: none", remedy)
    elif sharing.shared and not sharing.counted and not sharing.slice_mib:
        raise _without_number(sharing)
    if sharing.mode != "mps" and sharing.mps_manager == "host":
        thing = "nvidia_sharing_mps_manager"
        raise Refused(thing, f"it has no effect with nvidia_sharing_mode: {sharing.mode}", "Remove it.")
    if sharing.backend == "mps" and not sharing.shared and sharing.gpus_per_pod > 1:
        reason = "it has no effect with nvidia_sharing_mode: none; a pod asks for as many whole GPUs as it wants"
        raise Refused("nvidia_sharing_gpus_per_pod", reason, "Remove it, or set nvidia_sharing_mode: mps.")
    if not sharing.shared and sharing.rename:
        reason = "it names shared devices, and nvidia_sharing_mode is none"
        raise Refused("nvidia_sharing_rename", reason, "Remove it, or set nvidia_sharing_mode: mps or time_slicing.")
    if sharing.mode == "mps" and sharing.time_slice != "default":
        reason = "with MPS the clients of a GPU run at the same time, without time slices"
        raise Refused("nvidia_sharing_time_slice", reason, "Remove it, or set nvidia_sharing_mode: time_slicing.")
    if sharing.mode == "mps":
        # What no GPU with any driver can do; what those of a host can is known when it was read.
        most = mps_clients_of_device_plugin(None) if sharing.mps_of_plugin else mps_clients(None, None)
        modes.refuse_too_many_clients(sharing.replicas, most, "a GPU", "nvidia_sharing_replicas")


#: What a daemon of the host is told, with the values that tell it nothing.
_OF_HOST_DAEMON: Mapping[str, tuple[Any, ...]] = {
    "nvidia_sharing_mps_scope": (None, "", "node"),
    "nvidia_sharing_mps_active_thread_percentage": (None, "", 0, 100),
    "nvidia_sharing_mps_priority": (None, "", "normal"),
    # That the plugin's daemon serves one user at a time can be said; it has no option to serve several.
    "nvidia_sharing_mps_multi_user": (None, "", "auto", False, "false", "False"),
    "nvidia_sharing_mps_limits": (None, "", []),
    "nvidia_sharing_mps_protocol": (None, "", 2),
}


def _refuse_without_host_daemon(desired: Mapping[str, Any]) -> None:
    """The device plugin's own daemon divides by the number of replicas, and can be told nothing else."""
    for name, nothing in _OF_HOST_DAEMON.items():
        if desired.get(name) not in nothing:
            remedy = "Remove it, or set nvidia_sharing_mode: mps and nvidia_sharing_mps_manager: host."
            raise Refused(name, "it is for MPS daemons of the host, and this pool has none", remedy)


def _refuse_other_backend(sharing: Sharing) -> None:
    if sharing.claims_shared:
        _refuse_shared_claims(sharing)
        return
    if sharing.shared:
        thing = "nvidia_sharing_backend"
        reason = f"{sharing.backend} does the sharing itself, and nvidia_sharing_mode is {sharing.mode}"
        raise Refused(thing, reason, "Set nvidia_sharing_mode: none, or nvidia_sharing_backend: mps or dra.")
    if sharing.backend == "hami" and not sharing.slice_mib:
        reason = "hami counts memory, and no slice is set"
        raise Refused("nvidia_sharing_backend", reason, "Set nvidia_sharing_memory_slice, such as 4GiB.")
    if sharing.counted or (sharing.gpus_per_pod > 1 and not sharing.slice_mib):
        name = "nvidia_sharing_replicas" if sharing.counted else "nvidia_sharing_gpus_per_pod"
        reason = f"it has no effect with nvidia_sharing_backend: {sharing.backend}, where each pod says what it wants"
        raise Refused(name, reason, "Remove it.")


def _refuse_shared_claims(sharing: Sharing) -> None:
    """Refuse what only the device plugin does: it makes several devices of one, and a claim is for one that its pods share."""
    if not sharing.counted and not sharing.slice_mib:
        raise _without_number(sharing)
    if sharing.mps_manager == "host":
        reason = "the DRA driver starts an MPS daemon for each claim, and a GPU never has that of the host as well"
        raise Refused("nvidia_sharing_mps_manager", reason, "Remove it, or set nvidia_sharing_backend: mps.")
    if sharing.rename:
        reason = "it names extended resources of the device plugin, and the pods of nvidia_sharing_backend: dra name a ResourceClaim"
        raise Refused("nvidia_sharing_rename", reason, "Remove it.")


def _without_number(sharing: Sharing) -> Refused:
    remedy = "Set nvidia_sharing_replicas (2 or more), or nvidia_sharing_memory_slice such as 4GiB."
    return Refused("nvidia_sharing_mode", f"{sharing.mode} needs the number of slices", remedy)
