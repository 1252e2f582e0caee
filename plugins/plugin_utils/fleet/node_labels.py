# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Predict the labels that gpu-feature-discovery sets on a node. Pure.

The rules are those of gpu-feature-discovery 0.20 (C(internal/lm)).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ...module_utils._boards.architectures import ARCHITECTURES
from ...module_utils._boards.cards import board_of
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._mig.model import DesiredGpu
from ...module_utils._mig.profiles import compute_name
from ...module_utils._mig.state import has_mig
from ...module_utils._sharing.modes import Sharing
from ...module_utils._sharing.mps_instances import GPU, mig_resource
from .slices import profile_memory, profile_of, slice_of

# gpu-feature-discovery names this architecture otherwise than the driver's users do.
_FAMILIES = {"ada": "ada-lovelace"}


def node_labels(
    gpus: Sequence[GpuFacts], divided: Mapping[int, DesiredGpu], strategy: str, sharing: Sharing
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels that are certain, and those that depend on the board's variant or on the driver."""
    certain = {
        "nvidia.com/mig.capable": _text(any(has_mig(gpu) for gpu in gpus)),
        "nvidia.com/mps.capable": _text(sharing.mode == "mps"),
    }
    approximate: dict[str, str] = {}
    if not gpus:
        return certain, approximate
    if strategy != "none":
        certain["nvidia.com/mig.strategy"] = strategy
    _gpu_labels(gpus, divided, sharing, certain, approximate)
    if strategy != "none":
        _mig_labels(gpus, divided, strategy, sharing, certain, approximate)
    return certain, approximate


def _gpu_labels(
    gpus: Sequence[GpuFacts],
    divided: Mapping[int, DesiredGpu],
    sharing: Sharing,
    certain: dict[str, str],
    approximate: dict[str, str],
) -> None:
    """Whole GPUs override GPUs with MIG; of several products the last one that gpu-feature-discovery visits wins."""
    names = sorted({str(gpu.name) for gpu in gpus})
    whole = [gpu for gpu in gpus if not divided[gpu.index].enabled]
    shown = (whole or list(gpus))[-1]
    count = sum(1 for gpu in gpus if gpu.name == shown.name)
    shared = bool(whole) and sharing.replicated
    replicas = slice_of(shown.memory_mib, sharing, shown, GPU).replicas if shared else (1 if whole else 0)
    shared = replicas > 1
    target = certain if len(names) == 1 else approximate
    target[f"{GPU}.count"] = str(count)
    target[f"{GPU}.replicas"] = str(replicas)
    target[f"{GPU}.sharing-strategy"] = _strategy_label(sharing) if replicas > 1 else "none"
    suffix = "-SHARED" if shared and not sharing.rename else ""
    if shown.name:
        _known(shown, f"{GPU}.product", product(str(shown.name)) + suffix, len(names) == 1, certain, approximate)
    if shown.memory_mib:
        _known(shown, f"{GPU}.memory", str(shown.memory_mib), len(names) == 1, certain, approximate)
    architecture = shown.architecture
    if architecture:
        target[f"{GPU}.family"] = _FAMILIES.get(str(architecture), str(architecture))
        known = ARCHITECTURES.get(str(architecture))
        if known and len(known.compute_capabilities) == 1:
            major, _dot, minor = known.compute_capabilities[0].partition(".")
            target[f"{GPU}.compute.major"], target[f"{GPU}.compute.minor"] = major, minor


def _mig_labels(
    gpus: Sequence[GpuFacts],
    divided: Mapping[int, DesiredGpu],
    strategy: str,
    sharing: Sharing,
    certain: dict[str, str],
    approximate: dict[str, str],
) -> None:
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
        certain[f"{key}.count"] = str(count)
        certain[f"{key}.replicas"] = str(replicas)
        certain[f"{key}.sharing-strategy"] = _strategy_label(sharing) if shared else "none"
        suffix = "-SHARED" if shared and not sharing.rename else ""
        name = f"{product(str(gpu.name))}-MIG-{product(device.replace('+', '.'))}{suffix}"
        _known(gpu, f"{key}.product", name, True, certain, approximate)
        row = profile_of(gpu, profile)
        memory = profile_memory(gpu, profile)
        if memory is not None:
            approximate[f"{key}.memory"] = str(memory)
            certain.pop(f"{key}.memory", None)
        certain[f"{key}.slices.gi"] = device.rpartition("c.")[2].partition("g.")[0]
        certain[f"{key}.slices.ci"] = str(width)
        if row is not None and row.multiprocessors is not None and width == row.gpu_slices:
            certain[f"{key}.multiprocessors"] = str(row.multiprocessors)


def _known(
    gpu: GpuFacts, key: str, value: str, unique: bool, certain: dict[str, str], approximate: dict[str, str]
) -> None:
    """Put a value that comes from the GPU itself where it belongs: the table of boards knows it about only."""
    board = board_of(gpu)
    variants = board is not None and len(board.product_names) > 1
    guessed = bool(gpu.from_table) and (variants or key.endswith(".memory"))
    (approximate if guessed or not unique else certain)[key] = value
    (certain if guessed or not unique else approximate).pop(key, None)


def product(name: str) -> str:
    """Return a product name as gpu-feature-discovery writes it into labels: C(NVIDIA-H100-80GB-HBM3)."""
    return "-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", name).split())


def _strategy_label(sharing: Sharing) -> str:
    return "time-slicing" if sharing.mode == "time_slicing" else sharing.mode


def _text(value: bool) -> str:
    return "true" if value else "false"
