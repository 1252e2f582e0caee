# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the facts document has to be, within the bounds of real hosts. Pure.

Facts are what a host says. Where they are taken in, a host whose facts do not fit is one that was not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from .._schema import OUTPUT, Unfit, anything, boolean, check, fields, items, mapping, not_null, number, text
from .._settings.state import SETTINGS
from .schema_version import SCHEMA

_NAME, _TEXT = text(256), text()
_PROFILE = text(64)
_ID, _PID = number(0, 2**32 - 1), number(0, 2**32 - 1)
#: 4 TiB, of a GPU or a process on it.
_MIB = number(0, 4 * 1024 * 1024)
_INDEX = number(0, 1023)
#: Memory slices of a GPU; all boards have twelve or fewer.
_SLICES = 64
_SLICE = number(0, _SLICES)
#: In how many ways the MIG profiles of the GPUs of a host may be placed; planners go through all of them. All boards have 5,536 or fewer,
#: and GPUs with the same profiles count once.
_ARRANGEMENTS = 30_000
_VERSION = _NAME

_PROCESS = fields(
    {"pid": _PID, "name": _TEXT, "memory_mib": _MIB, "type": _NAME, "gpu_instance": _ID}, required=("pid",)
)
_PROCESSES = items(_PROCESS)
#: A shared device has up to some hundred replicas, each of which is one container's.
_ALLOCATIONS = items(
    # The name of a claim, which a user chooses, has up to 253 characters, and what it is stands before it.
    fields({**dict.fromkeys(("pod", "pod_uid", "container"), _NAME), "resource": text(320), "reason": _TEXT}),
    4096,
)
_COMPUTE_INSTANCE = fields(
    {
        "id": _ID,
        "profile": _PROFILE,
        "profile_id": _ID,
        "multiprocessors": number(0, 4096),
        "uuid": _NAME,
        "index": _INDEX,
        "processes": _PROCESSES,
        "allocations": _ALLOCATIONS,
    },
    required=("id", "profile"),
)
_GPU_INSTANCE = fields(
    {
        "id": _ID,
        "profile": _PROFILE,
        "profile_id": _ID,
        "start": _SLICE,
        "size": _SLICE,
        "memory_mib": _MIB,
        "processes": _PROCESSES,
        "compute_instances": items(_COMPUTE_INSTANCE, 64),
    },
    required=("id", "profile", "start", "size"),
)
_PROFILES = items(
    fields(
        {
            "name": _PROFILE,
            "id": _ID,
            "memory_mib": _MIB,
            "multiprocessors": number(0, 4096),
            **dict.fromkeys(("enum", "copy_engines", "decoders", "encoders", "jpeg", "ofa"), number(0, 4096)),
            "max_instances": _SLICE,
            "remaining": _SLICE,
            "starts": items(_SLICE, 64),
            "size": _SLICE,
        },
        required=("name", "id", "memory_mib"),
    ),
    256,
)
_ERRORS = fields(
    {
        "remap_pending": boolean,
        "remap_failed": boolean,
        **dict.fromkeys(("uncorrected", "remapped_correctable", "remapped_uncorrectable"), number()),
    }
)
GPU = fields(
    {
        "index": _INDEX,
        "minor": _INDEX,
        **dict.fromkeys(("uuid", "pci_address", "name", "board", "device_id", "architecture", "compute_mode"), _NAME),
        "memory_mib": _MIB,
        "persistence_mode": boolean,
        "mig": fields({"supported": boolean, "current": boolean, "pending": boolean}),
        "processes": _PROCESSES,
        "allocations": _ALLOCATIONS,
        "gpu_instances": items(_GPU_INSTANCE, 64),
        "profiles": _PROFILES,
        "errors": _ERRORS,
        "recovery_action": _NAME,
        "fabric": fields(
            {"state": _NAME, "status": number(), "degraded": items(_NAME, 64), "summary": _NAME, "clique": _NAME}
        ),
        "settings": SETTINGS,
        "lost": boolean,
    },
    required=("index",),
)
GPUS = items(GPU, 64)
_UNIT = fields({"installed": boolean, "active": boolean, "masked": boolean, "version": _VERSION})
_VERSIONS = mapping(not_null(_VERSION))
_DRIVER = fields(
    {
        **dict.fromkeys(("loaded_version", "on_disk_version", "library_version", "flavour", "source"), _VERSION),
        "packages": _VERSIONS,
        "holds": items(_TEXT),
        "nouveau_loaded": boolean,
        "modules": items(_NAME),
        "next_kernel": fields(
            {"release": _NAME, "version": _VERSION, "vermagic": _NAME, "signer": _TEXT, "key_enrolled": boolean}
        ),
        **dict.fromkeys(("configured_parameters", "loaded_parameters"), mapping(_TEXT, 256)),
        "dkms": items(fields(dict.fromkeys(("name", "version", "kernel", "state"), _NAME))),
        "persistence_daemon": _UNIT,
    }
)
_RUNTIME = fields(
    {
        **dict.fromkeys(("version", "default_runtime"), _VERSION),
        **dict.fromkeys(("config_path", "binary", "low_level_runtime"), _TEXT),
        "active": boolean,
        "config_version": number(0, 1000),
        "nvidia": boolean,
        "has_type": boolean,
        "cdi": boolean,
        "cgroup_drivers": _VERSIONS,
        "monitors": mapping(_TEXT),
    }
)
_CARD = fields(
    {
        **dict.fromkeys(("address", "device_id", "subsystem_id", "class", "kind", "kernel_driver", "board"), _NAME),
        "architecture": _NAME,
        "numa_node": number(-1, 65535),
    },
    required=("address",),
)
_DAEMON = fields(
    {
        "pipe_directory": _TEXT,
        "pid": _PID,
        **dict.fromkeys(("responds", "in_container"), boolean),
        "percentage": number(0, 100, real=True),
        "limits": items(_NAME, 64),
        "clients": number(0, 65536),
        "servers": items(_PID),
    },
    required=("pid",),
)
_CDI = fields(
    {
        **dict.fromkeys(("path", "kind", "version"), _TEXT),
        "devices": number(0, 65536),
        "missing": items(_NAME, 64),
        "stale": items(_NAME, 64),
        "differs": items(_TEXT, 64),
        "own": boolean,
    },
    required=("path",),
)
_HOLDER = fields(
    {
        "pid": _PID,
        **dict.fromkeys(("command", "command_line", "pod_uid", "container_id", "unit"), _TEXT),
        "devices": items(_TEXT),
    },
    required=("pid", "command", "devices"),
)
_LOGGED = items(
    fields(
        {"number": number(0, 65535), "pci_address": _NAME, "text": OUTPUT},
        required=("number", "pci_address", "text"),
    ),
)
_HEALTH = fields(
    {
        "nvidia_smi": fields({"rc": number(-255, 255), "text": OUTPUT}, required=("text",)),
        "cuda_program": _TEXT,
        "xids": _LOGGED,
        "sxids": _LOGGED,
    }
)
_DISTRIBUTION = fields(dict.fromkeys(("id", "version", "codename", "family"), _NAME))
_HOST = fields(
    {
        **dict.fromkeys(("name", "kernel", "architecture", "boot_id", "python", "package_manager"), _NAME),
        "distribution": _DISTRIBUTION,
        "kernel_packages": items(_NAME),
        "headers_not_offered": items(_NAME, 64),
        **dict.fromkeys(("root", "secure_boot", "kernel_headers", "container"), boolean),
    }
)
_FACTS = fields(
    {
        "schema": number(SCHEMA, SCHEMA),
        "host": _HOST,
        "pci": items(_CARD, 1024),
        "driver": _DRIVER,
        "nvml": fields({"available": boolean, **dict.fromkeys(("reason", "code", "version", "cuda_version"), _TEXT)}),
        "gpus": GPUS,
        "fabric": fields(
            {
                "nvswitches": number(0, 1024),
                "manager": _UNIT,
                "state": _NAME,
                "lacking_modules": items(_NAME, 64),
                "imex": fields(
                    {
                        **dict.fromkeys(("active", "enabled", "masked"), boolean),
                        "version": _VERSION,
                        "nodes": items(_NAME, 1024),
                    }
                ),
            }
        ),
        "mps": items(_DAEMON, 4096),
        "mps_control": fields({"installed": boolean, "multi_user": boolean}),
        "toolkit": fields(
            {
                "version": _VERSION,
                "packages": _VERSIONS,
                "holds": items(_TEXT),
                "accept_envvar_unprivileged": boolean,
                "accept_volume_mounts": boolean,
                "low_level_runtimes": items(_TEXT),
            }
        ),
        "dcgm": fields(
            {
                "packages": _VERSIONS,
                "holds": items(_TEXT),
                "dcgmi": _TEXT,
                **dict.fromkeys(("active", "enabled"), boolean),
            }
        ),
        "runtimes": mapping(not_null(_RUNTIME), 64),
        "kubelet": _UNIT,
        "cdi": items(_CDI, 1024),
        "recorded": fields(
            {
                **dict.fromkeys(("mig", "sharing", "settings", "heal", "driver_previous"), mapping(anything)),
                **dict.fromkeys(("mig_unfinished", "repartition_unfinished", "acceptance_owed"), boolean),
                "upgrade_state": _NAME,
                "rolled_out": fields(
                    {
                        **dict.fromkeys(("driver", "former", "operator", "since"), _TEXT),
                        "former_layout": mapping(anything),
                    }
                ),
            }
        ),
        "host_program": fields(
            {
                **dict.fromkeys(("version", "python", "metrics_directory"), _TEXT),
                "sha256": _NAME,
                "metrics_active": boolean,
                "units": mapping(not_null(fields({"sha256": _NAME, "state": _NAME}, required=("state",))), 4096),
            }
        ),
        "health": _HEALTH,
        "holders": items(_HOLDER, 65536),
        "mig_parted": fields({"config_path": _TEXT, "config": OUTPUT, "selected": _TEXT, "enabled": boolean}),
        "unknown": mapping(_TEXT),
    },
)


def check_facts(document: Any) -> None:
    """Hold a facts document against its schema.

    :raises Unfit: it does not fit; the message has the path and the reason.
    """
    if not isinstance(document, dict):
        raise Unfit("", "it must be a mapping")
    check(_FACTS, document)
    _check_gpus(document.get("gpus") or ())


def check_gpus(gpus: Any) -> None:
    """Hold the part C(gpus) of the facts against its schema.

    :raises Unfit: it does not fit.
    """
    check(fields({"gpus": GPUS}, required=("gpus",)), {"gpus": gpus})
    _check_gpus(gpus)


def _check_gpus(gpus: Any) -> None:
    seen: set[int] = set()
    arrangements: dict[frozenset[tuple[int, int, int]], int] = {}
    for position, gpu in enumerate(gpus):
        if gpu["index"] in seen:
            raise Unfit(f"gpus[{position}].index", f"{gpu['index']} is the index of two GPUs")
        seen.add(gpu["index"])
        _check_apart(gpu.get("gpu_instances") or (), f"gpus[{position}].gpu_instances")
        path = f"gpus[{position}].profiles"
        slots = frozenset(_slots(gpu.get("profiles") or (), path))
        if slots and slots not in arrangements:
            arrangements[slots] = _arrangements(slots)
            if sum(arrangements.values()) > _ARRANGEMENTS:
                raise Unfit(
                    path, f"they can be placed in more than {_ARRANGEMENTS:,} ways, the most that a host may have"
                )


def _check_apart(instances: Any, path: str) -> None:
    taken: set[int] = set()
    for position, instance in enumerate(instances):
        units = range(instance["start"], instance["start"] + instance["size"])
        if taken.intersection(units):
            raise Unfit(f"{path}[{position}]", f"memory slices from {units[0]} on belong to another instance")
        taken.update(units)


def _slots(profiles: Any, path: str) -> Iterator[tuple[int, int, int]]:
    """Return each place of each profile: the profile's number, the first memory slice, and how many it takes."""
    for number_of_profile, profile in enumerate(profiles):
        starts, size = profile.get("starts") or (), profile.get("size") or 0
        place = f"{path}[{number_of_profile}]"
        if starts and not size:
            raise Unfit(f"{place}.size", "it must be at least 1 if there are starts")
        if any(after <= before for before, after in zip(starts, starts[1:])):
            raise Unfit(f"{place}.starts", "they must be in ascending order without duplicates")
        if starts and starts[-1] + size > _SLICES:
            raise Unfit(f"{place}.starts", f"{starts[-1]} and {size} memory slices from there exceed {_SLICES}")
        for start in starts:
            yield number_of_profile, start, size


def _arrangements(slots: Collection[tuple[int, int, int]]) -> int:
    """Return in how many ways places can be chosen without overlap.

    :param slots: as of L(_slots).
    """
    from_here = [1] * (_SLICES + 1)
    for unit in range(_SLICES - 1, -1, -1):
        from_here[unit] = from_here[unit + 1] + sum(from_here[unit + slot[2]] for slot in slots if slot[1] == unit)
    return from_here[0]
