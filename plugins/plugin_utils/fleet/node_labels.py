# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Predict the labels that gpu-feature-discovery sets on a node, and what one unit of a resource is. Pure.

The rules are those of gpu-feature-discovery 0.20 (C(internal/lm)).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...module_utils._boards.board import ARCHITECTURES, GpuInstanceProfile
from ...module_utils._boards.cards import board_of
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._mig.model import DesiredGpu, compute_name, resolve
from ...module_utils._mig.state import has_mig, profiles_of
from ...module_utils._sharing.host import client_limits, refuse_clients
from ...module_utils._sharing.modes import Sharing
from ...module_utils._sharing.mps_instances import GPU, mig_resource

# gpu-feature-discovery names this architecture otherwise than the driver's users do.
_FAMILIES = {"ada": "ada-lovelace"}
#: By their keys: each value, and whether it is certain.
_Labels = dict[str, tuple[str, bool]]


def node_labels(
    gpus: Sequence[GpuFacts], divided: Mapping[int, DesiredGpu], strategy: str, sharing: Sharing
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels that are certain, and those that depend on the board's variant or on the driver."""
    found: _Labels = {
        "nvidia.com/mig.capable": (_text(any(has_mig(gpu) for gpu in gpus)), True),
        "nvidia.com/mps.capable": (_text(sharing.mode == "mps"), True),
    }
    if gpus:
        found |= _gpu_labels(gpus, divided, sharing)
    if gpus and strategy != "none":
        found["nvidia.com/mig.strategy"] = strategy, True
        found |= _mig_labels(gpus, divided, strategy, sharing)
    certain, approximate = (
        {key: value for key, (value, sure) in found.items() if sure is one} for one in (True, False)
    )
    return certain, approximate


def _gpu_labels(gpus: Sequence[GpuFacts], divided: Mapping[int, DesiredGpu], sharing: Sharing) -> _Labels:
    """Whole GPUs override GPUs with MIG; of several products the last one that gpu-feature-discovery visits wins."""
    names = sorted({str(gpu.name) for gpu in gpus})
    whole = [gpu for gpu in gpus if not divided[gpu.index].enabled]
    shown = (whole or list(gpus))[-1]
    count = sum(1 for gpu in gpus if gpu.name == shown.name)
    shared = bool(whole) and sharing.replicated
    replicas = slice_of(shown.memory_mib, sharing, shown, GPU).replicas if shared else (1 if whole else 0)
    shared = replicas > 1
    unique = len(names) == 1
    found: _Labels = {
        f"{GPU}.count": (str(count), unique),
        f"{GPU}.replicas": (str(replicas), unique),
        f"{GPU}.sharing-strategy": (_strategy_label(sharing) if replicas > 1 else "none", unique),
    }
    suffix = "-SHARED" if shared and not sharing.rename else ""
    if shown.name:
        found[f"{GPU}.product"] = product(str(shown.name)) + suffix, unique and not is_guessed(shown)
    if shown.memory_mib:
        found[f"{GPU}.memory"] = str(shown.memory_mib), unique and not shown.from_table
    architecture = shown.architecture
    if architecture:
        found[f"{GPU}.family"] = _FAMILIES.get(str(architecture), str(architecture)), unique
        known = ARCHITECTURES.get(str(architecture))
        if known and len(known.compute_capabilities) == 1:
            major, _dot, minor = known.compute_capabilities[0].partition(".")
            found |= {f"{GPU}.compute.major": (major, unique), f"{GPU}.compute.minor": (minor, unique)}
    return found


def _mig_labels(
    gpus: Sequence[GpuFacts], divided: Mapping[int, DesiredGpu], strategy: str, sharing: Sharing
) -> _Labels:
    found: _Labels = {}
    counts: Counter[str] = Counter()
    example: dict[str, tuple[GpuFacts, str, int]] = {}
    for gpu in gpus:
        for instance in divided[gpu.index].instances:
            for width in instance.compute:
                device = compute_name(instance.profile, width)
                counts[device] += 1
                example.setdefault(device, (gpu, instance.profile, width))
    for device, count in counts.items():
        gpu, profile, width = example[device]
        key = GPU if strategy == "single" else mig_resource(device)
        replicas = sharing.replicas_on(profile_memory(gpu, profile), resource=key)
        shared = replicas > 1
        found[f"{key}.count"] = str(count), True
        found[f"{key}.replicas"] = str(replicas), True
        found[f"{key}.sharing-strategy"] = _strategy_label(sharing) if shared else "none", True
        suffix = "-SHARED" if shared and not sharing.rename else ""
        name = f"{product(str(gpu.name))}-MIG-{product(device.replace('+', '.'))}{suffix}"
        found[f"{key}.product"] = name, not is_guessed(gpu)
        row = profile_of(gpu, profile)
        memory = profile_memory(gpu, profile)
        if memory is not None:
            found[f"{key}.memory"] = str(memory), False
        found[f"{key}.slices.gi"] = device.rpartition("c.")[2].partition("g.")[0], True
        found[f"{key}.slices.ci"] = str(width), True
        if row is not None and row.multiprocessors is not None and width == row.gpu_slices:
            found[f"{key}.multiprocessors"] = str(row.multiprocessors), True
    return found


def is_guessed(gpu: GpuFacts) -> bool:
    """Whether a product's name is one of several that the table of boards has for it."""
    board = board_of(gpu)
    return gpu.from_table and board is not None and len(board.product_names) > 1


def product(name: str) -> str:
    """Return a product name as gpu-feature-discovery writes it into labels: C(NVIDIA-H100-80GB-HBM3)."""
    return "-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", name).split())


def _strategy_label(sharing: Sharing) -> str:
    return "time-slicing" if sharing.mode == "time_slicing" else sharing.mode


def _text(value: bool) -> str:
    return "true" if value else "false"


@dataclass(frozen=True)
class Slice:
    """What one unit of a resource is.

    :param replicas: into how many units a GPU or MIG device is divided; 1 when it is not shared.
    :param memory_mib: memory of the GPU or MIG device; None when no source gives it.
    :param limit_mib: what one client can allocate; None when nothing limits it below C(memory_mib).
    :param active_thread_percentage: of an MPS client, else None.
    """

    replicas: int
    memory_mib: int | None
    limit_mib: int | None
    active_thread_percentage: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def slice_of(memory: int | None, sharing: Sharing, gpu: GpuFacts, resource: str) -> Slice:
    """Return what one unit of C(resource) is.

    :param memory: of the GPU or MIG device in MiB, where it is known.
    :raises Refused: the device has no room for so many clients.
    """
    replicas = sharing.replicas_on(memory, resource=resource) if sharing.replicated else 1
    if sharing.mode != "mps" or not sharing.replicated:
        return Slice(replicas, memory, None, None)
    refuse_clients(sharing, gpu.but(memory_mib=memory))
    limits = client_limits(sharing, gpu.index, memory)
    percentage = int(limits.percentage) if limits.percentage % 1 == 0 else limits.percentage
    return Slice(replicas, memory, limits.memory_mib or None, percentage)


def profile_of(gpu: GpuFacts, name: str) -> GpuInstanceProfile | None:
    """Return the MIG profile of this name that the GPU offers, where its profiles are known."""
    offered = profiles_of(gpu)
    return resolve(name, offered) if offered else None


def profile_memory(gpu: GpuFacts, name: str) -> int | None:
    """Return the memory in MiB of a MIG device: what an instance of this profile has, else what the profile says."""
    for instance in gpu.gpu_instances:
        if instance.profile == name and instance.memory_mib:
            return instance.memory_mib
    profile = profile_of(gpu, name)
    return profile.memory_mib if profile else None
