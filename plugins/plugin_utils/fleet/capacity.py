# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cluster must show of a node: extended resources, labels and memory per slice, from the pool's desired state and its GPUs. Pure.

The rules are those of the device plugin and of gpu-feature-discovery 0.20 (C(internal/rm), C(internal/lm)).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._boards.lookup import described_board
from ...module_utils._gpu_facts import GpuFacts, MigModeFacts
from ...module_utils._mig.desired import LEAVE, desired_layout, unselected_policy
from ...module_utils._mig.layouts import refuse_parts
from ...module_utils._mig.model import DesiredGpu, compute_name
from ...module_utils._mig.state import present
from ...module_utils._plan import Refused
from ...module_utils._sharing.desired import refuse_on_mig
from ...module_utils._sharing.host import MigDevice, refuse_clients
from ...module_utils._sharing.modes import Sharing
from ...module_utils._sharing.mps_instances import GPU, mig_resource
from .claims import GPU_CLASS, mig_devices
from .node_labels import Slice, node_labels, profile_memory, slice_of

#: HAMi offers each GPU this many times (C(devicePlugin.deviceSplitCount)).
HAMI_SPLIT = 10

#: As many as the schema of the facts takes.
_MOST_GPUS = 64


@dataclass(frozen=True)
class Capacity:
    """What one node must show.

    :param labels: labels that gpu-feature-discovery puts on the node and that follow from the description.
    :param approximate: labels whose value depends on the board's variant or the driver's version.
    :param replicas: resource, as it is called before it is renamed, to the replicas that the device plugin is told to make.
    :param assumed: what could not be read and was taken from the table of boards.
    :param devices: kind of device to count, as the DRA driver publishes them in ResourceSlices; such a node has no extended resources.
    """

    resources: Mapping[str, int]
    labels: Mapping[str, str]
    approximate: Mapping[str, str] = field(default_factory=dict)
    slices: Mapping[str, Slice] = field(default_factory=dict)
    replicas: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    devices: Mapping[str, int] = field(default_factory=dict)

    @property
    def offers(self) -> dict[str, int]:
        """What pods can ask of the node, by a limit or by a claim."""
        return {**self.resources, **self.devices}

    def as_dict(self) -> dict[str, Any]:
        return {
            "resources": dict(sorted(self.resources.items())),
            **({"devices": dict(sorted(self.devices.items()))} if self.devices else {}),
            "labels": dict(sorted(self.labels.items())),
            "labels_approximate": dict(sorted(self.approximate.items())),
            "slices": {name: unit.as_dict() for name, unit in sorted(self.slices.items())},
            "assumed": list(self.assumed),
        }


def gpus_of_inventory(entries: Sequence[Mapping[str, Any]]) -> list[GpuFacts]:
    """Return GPUs for C(gpu_facts_gpus): what the inventory says before a host was read.

    :param entries: each with C(board), a key of the table of boards, and C(count).
    :raises Refused: an unknown board, or a count that no host has.
    """
    gpus: list[GpuFacts] = []
    for number, entry in enumerate(entries):
        path = f"gpu_facts_gpus[{number}]"
        key, count = str(entry.get("board")), entry.get("count")
        board = described_board(key, f"{path}.board")
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_GPUS:
            reason = f"{count!r} must be an integer from 1 to {_MOST_GPUS}"
            raise Refused(f"{path}.count", reason, "Write how many GPUs a host has.")
        for _number in range(count):
            gpus.append(
                GpuFacts(
                    len(gpus),
                    board=board.key,
                    name=next(iter(board.product_names), None),
                    architecture=board.architecture,
                    memory_mib=board.total_memory_mib,
                    device_id=f"0x{board.pci_device_ids[0][2:6]}" if board.pci_device_ids else None,
                    mig=MigModeFacts(supported=board.mig, current=False, pending=False),
                    from_table=True,
                )
            )
    return gpus


def capacity(gpus: Sequence[GpuFacts], strategy: str, layout: Any, sharing: Sharing) -> Capacity:
    """Return what a node with C(gpus) shows once it is as its pool describes it.

    :raises Refused: the desired state does not fit the GPUs, or the device plugin cannot serve it.
    """
    refuse_on_mig(sharing, strategy)
    divided = partitioned(gpus, strategy, layout, sharing.backend)
    for desired in divided.values():
        refuse_parts(desired, strategy)
    if sharing.backend == "dra":
        return _claimed(gpus, divided, sharing)
    if sharing.backend == "hami":
        return _hami(gpus, divided, sharing)
    groups = _groups(gpus, divided, strategy, sharing)
    _refuse_unoffered(sharing, groups)
    resources: Counter[str] = Counter()
    slices: dict[str, Slice] = {}
    replicas = {name: units[0].replicas for name, units in sorted(groups.items()) if units[0].replicas > 1}
    for name, units in groups.items():
        # The plugin renames what its file lists; a resource that is not shared keeps its name.
        shown = f"{name}.shared" if sharing.rename and name in replicas else name
        for unit in units:
            resources[shown] += unit.replicas
        slices[shown] = min(units, key=lambda unit: unit.memory_mib or 0)
        _refuse_uneven(name, units)
    if sharing.mode == "mps" and sharing.mps_manager == "host":
        # gpu-feature-discovery stays off there: its label nvidia.com/mps.capable would start the chart's own MPS daemon.
        return Capacity(dict(resources), {}, {}, slices, replicas, _assumed(gpus))
    certain, approximate = node_labels(gpus, divided, strategy, sharing)
    return Capacity(dict(resources), certain, approximate, slices, replicas, _assumed(gpus))


def merged(capacities: Sequence[Capacity]) -> Capacity:
    """Return what nodes show that the same configuration serves.

    Of each resource that is the highest count and the smallest slice, and of the labels those that all nodes have.
    """
    if len(capacities) == 1:
        return capacities[0]
    slices: dict[str, Slice] = {}
    replicas: dict[str, int] = {}
    for one in capacities:
        for name, unit in one.slices.items():
            slices[name] = min(unit, slices.get(name, unit), key=lambda each: each.memory_mib or 0)
        replicas.update(one.replicas)
    return Capacity(
        _highest([one.resources for one in capacities]),
        _common([one.labels for one in capacities]),
        _common([one.approximate for one in capacities]),
        slices,
        replicas,
        tuple(sorted({note for one in capacities for note in one.assumed})),
        _highest([one.devices for one in capacities]),
    )


def _highest(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {
        name: max(one.get(name, 0) for one in counts) for name in dict.fromkeys(name for one in counts for name in one)
    }


def _common(labels: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *others = labels
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def partitioned(gpus: Sequence[GpuFacts], strategy: str, layout: Any, backend: str) -> dict[int, DesiredGpu]:
    """Return what MIG makes of each GPU."""
    found = desired_layout(layout, strategy, gpus).gpus if strategy != "none" or layout else {}
    stays = unselected_policy(strategy, backend) == LEAVE
    return {gpu.index: found.get(gpu.index) or (present(gpu) if stays else None) or DesiredGpu(False) for gpu in gpus}


def _groups(
    gpus: Sequence[GpuFacts], divided: Mapping[int, DesiredGpu], strategy: str, sharing: Sharing
) -> dict[str, list[Slice]]:
    """Return, by resource, one entry for each GPU or MIG device behind it."""
    groups: dict[str, list[Slice]] = {}
    for gpu in gpus:
        desired = divided[gpu.index]
        if not desired.enabled or strategy == "none":
            groups.setdefault(GPU, []).append(slice_of(gpu.memory_mib, sharing, gpu, GPU))
            continue
        for instance in desired.instances:
            memory = profile_memory(gpu, instance.profile)
            for width in instance.compute:
                device = compute_name(instance.profile, width)
                name = GPU if strategy == "single" else mig_resource(device)
                groups.setdefault(name, []).append(slice_of(memory, sharing, gpu, name))
    return groups


def _refuse_uneven(name: str, units: Sequence[Slice]) -> None:
    """One file of the device plugin has one number of replicas for a resource, on all devices of the node."""
    numbers = sorted({unit.replicas for unit in units})
    if len(numbers) > 1:
        raise Refused(
            "nvidia_sharing_memory_slice",
            f"the devices behind {name} differ in memory, so the slice divides them into {' and '.join(map(str, numbers))} replicas",
            f"Set nvidia_sharing_replicas: {numbers[0]}, which all of them can hold, or make a pool for each board.",
        )


def _refuse_unoffered(sharing: Sharing, groups: Mapping[str, Any]) -> None:
    """The plugin ignores a number for a resource that the node does not have."""
    for resource, _number in sharing.resource_replicas:
        if resource not in groups:
            remedy = f"It has {', '.join(sorted(groups)) or 'none'} (before nvidia_sharing_rename)."
            raise Refused(f"nvidia_sharing_replicas, {resource}", "the node has no such resource", remedy)


def _hami(gpus: Sequence[GpuFacts], divided: Mapping[int, DesiredGpu], sharing: Sharing) -> Capacity:
    if any(desired.enabled for desired in divided.values()):
        raise Refused(
            "nvidia_sharing_backend",
            "HAMi is rendered in its operating mode hami-core, which shares whole GPUs, and MIG is enabled",
            "Set nvidia_mig_strategy: none, or a backend other than hami. HAMi's operating mode mig makes and destroys MIG instances by itself, "
            "against nvidia_mig_layout.",
        )
    memories = [gpu.memory_mib for gpu in gpus]
    known = [memory for memory in memories if memory is not None]
    unit = Slice(HAMI_SPLIT, min(known) if known else None, sharing.slice_mib, None)
    return Capacity({GPU: HAMI_SPLIT * len(gpus)}, {}, slices={GPU: unit}, assumed=_assumed(gpus))


def _claimed(gpus: Sequence[GpuFacts], divided: Mapping[int, DesiredGpu], sharing: Sharing) -> Capacity:
    """Return what the DRA driver publishes: GPUs without MIG, and the MIG devices of the others.

    A device that is shared is published once: its replicas are the pods for which the claim divides it.
    """
    groups: dict[str, list[Slice]] = {}
    found: dict[str, list[Slice]] = {}
    for gpu in gpus:
        desired = divided[gpu.index]
        kinds = [(GPU_CLASS, GPU, gpu.memory_mib)]
        if desired.enabled:
            kinds = [
                (mig_devices(device), mig_resource(device), profile_memory(gpu, instance.profile))
                for instance in desired.instances
                for width in instance.compute
                for device in [compute_name(instance.profile, width)]
            ]
        for kind, resource, memory in kinds:
            unit = Slice(1, memory, sharing.slice_mib, None)
            if sharing.claims_shared:
                unit = slice_of(memory, sharing, gpu, resource)
                if desired.enabled and sharing.mode == "mps":
                    profile = kind.partition("/")[2]
                    refuse_clients(sharing, gpu, device=MigDevice(profile, memory))
            groups.setdefault(resource, []).append(unit)
            found.setdefault(kind, []).append(unit)
    _refuse_unoffered(sharing, groups)
    for name, units in groups.items():
        _refuse_uneven(name, units)
    return Capacity(
        {},
        {},
        slices={kind: min(units, key=_size) for kind, units in found.items()},
        replicas={name: units[0].replicas for name, units in sorted(groups.items()) if units[0].replicas > 1},
        assumed=_assumed(gpus),
        devices={kind: len(units) for kind, units in found.items()},
    )


def _size(unit: Slice) -> float:
    return math.inf if unit.memory_mib is None else unit.memory_mib


def _assumed(gpus: Sequence[GpuFacts]) -> tuple[str, ...]:
    boards = sorted({str(gpu.board) for gpu in gpus if gpu.from_table})
    return tuple(
        f"product name and memory of {board}: from the table of boards, no facts are recorded" for board in boards
    )
