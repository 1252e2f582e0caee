# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Slurm must know of a node: its generic resources, their types and device files, from the pool's desired state and its GPUs. Pure.

Slurm numbers the devices of a node by the order of their types in C(Gres) of slurm.conf, and within a type by the order of the lines of gres.conf (measured
with 22.05.8). Both are written in the same order, so the position of a device here is its number in C(SLURM_STEP_GPUS).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...module_utils._formats.slurm_jobs import device_files
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._mig.model import DesiredGpu, compute_name, parse, wanted_of
from ...module_utils._mig.state import instances_of, present
from ...module_utils._plan import Refused
from ...module_utils._sharing.desired import read as read_sharing
from ...module_utils._sharing.host import host_sharing
from ...module_utils._sharing.modes import Sharing
from ...module_utils._sharing.mps_instances import GPU, folder_of_gpu, pipe_in
from .capacity import partitioned
from .node_labels import is_guessed, profile_memory, slice_of

#: Slurm offers a GPU to clients of MPS in percent.
_PERCENT = 100
_MIB_OF_GIB = 1024
_SITE = "gpufleet.nvidia.site"
AUTODETECT, TYPES = "gpu_slurm_autodetect", "gpu_slurm_types"
#: What stands in a line of Slurm's files; a type of digits alone would be taken for a number of devices.
_TYPE = re.compile(r"[A-Za-z0-9._-]*[A-Za-z_][A-Za-z0-9._-]*")


class NotApplied(Refused):
    """A GPU is not partitioned as described, so its device files are not known yet."""


@dataclass(frozen=True)
class SlurmDevice:
    """A device that Slurm allocates: a GPU, or a MIG device with the IDs of its instances. Without its C(minor) number it is counted
    alone. C(pipe): the directory by which its clients find the MPS daemon.
    """

    type: str
    minor: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    pipe: str = ""

    @property
    def mig(self) -> bool:
        """Whether it is a MIG device."""
        return self.minor is None or self.gpu_instance is not None

    @property
    def files(self) -> tuple[str, ...]:
        """The device files that a job needs for it."""
        return () if self.minor is None else device_files(self.minor, self.gpu_instance, self.compute_instance)


@dataclass(frozen=True)
class SlurmResources:
    """The generic resources of a node.

    :param devices: in the order of their numbers in Slurm.
    :param shared: C(shard) or C(mps), or empty where GPUs are not shared.
    :param units: by type, how many clients share each of its GPUs.
    :param detected: whether slurmd finds the devices itself, by NVML.
    """

    devices: tuple[SlurmDevice, ...]
    shared: str = ""
    units: tuple[tuple[str, int], ...] = ()
    detected: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many there are, by name and type as C(scontrol show node) names them."""
        found = Counter(one.type for one in self.devices)
        counts = {f"gpu:{name}": number for name, number in found.items()}
        return {**counts, **{f"{self.shared}:{name}": each * found[name] for name, each in self.units}}

    @property
    def gres(self) -> str:
        """The value of C(Gres) in slurm.conf, which C(scontrol show node) repeats."""
        return ",".join(f"{name}:{number}" for name, number in self.counts.items())


def resources(
    desired: Mapping[str, Any], gpus: Sequence[GpuFacts], offered: Mapping[str, int] | None = None
) -> SlurmResources:
    """Return what Slurm must know of a node with C(gpus) that is as C(desired) describes it.

    :param desired: variables of the roles nvidia_mig, nvidia_sharing and gpu_slurm.
    :param offered: what the node's files offer, for a node that has jobs and is changed later. Its GPUs are then partitioned as they are now, and shared
        as they are in the files, unless one is in MIG mode.
    :raises NotApplied: a GPU is not partitioned as described, or what it is was not read.
    :raises Refused: Slurm cannot be told what is described.
    """
    strategy, layout = str(desired.get("nvidia_mig_strategy") or "none"), desired.get("nvidia_mig_layout")
    detected = desired[AUTODETECT] == "nvml"
    sharing = read_sharing(desired)
    wanted = partitioned(gpus, strategy, layout, sharing.backend)
    if offered is not None:
        wanted = {gpu.index: _now(gpu, wanted[gpu.index]) for gpu in gpus}
        sharing = replace(sharing, mode="none")
    divided = [gpu for gpu in gpus if gpu.mig.current and not wanted[gpu.index].enabled]
    if divided and sharing.shared:
        raise _not_applied(divided[0], wanted[divided[0].index])
    pipes = _pipes(sharing, gpus)
    devices: list[SlurmDevice] = []
    means: dict[str, set[str]] = {}
    units: dict[str, int] = {}
    # What slurmd finds itself, it numbers by the addresses on the bus, as NVML does.
    ordered = sorted(gpus, key=lambda one: one.index if detected else _minor(one))
    for gpu in ordered:
        for meaning, device in _devices(gpu, wanted[gpu.index], detected):
            if is_guessed(gpu) and device.type not in desired[TYPES]:
                reason = f"{gpu.title} was not read, and its board, {gpu.board}, has more than one product name, of which one is the type"
                remedy = f"Run {_SITE} for the host first, or say what jobs call {device.type} in {TYPES}."
                raise NotApplied("gpu_facts_gpus", reason, remedy)
            name = _renamed(device.type, desired[TYPES], detected)
            means.setdefault(name, set()).add(meaning)
            devices.append(replace(device, type=name, pipe=pipes.get(gpu.index, "")))
            if sharing.shared:
                _refuse_shared_mig(device, wanted[gpu.index])
                each = slice_of(gpu.memory_mib, sharing, gpu, GPU).replicas
                units[name] = _PERCENT if pipes else each
    _refuse_collisions(means, detected)
    shared = {"time_slicing": "shard", "mps": "mps"}.get(sharing.mode, "")
    if offered and not any(one.enabled for one in wanted.values()):
        shared, units = _kept(offered, Counter(one.type for one in devices))
        if shared == "mps":
            devices = [replace(one, pipe=pipe_in(folder_of_gpu(gpu.index))) for gpu, one in zip(ordered, devices)]
    if shared == "mps" and detected and len(means) > 1:
        reason = "slurmd numbers what it finds itself by the bus, and a job with MPS is told its daemon by the order of types"
        raise Refused(AUTODETECT, reason, "Set gpu_slurm_autodetect: none.")
    return SlurmResources(
        tuple(sorted(devices, key=lambda one: one.type)), shared, tuple(sorted(units.items())), detected
    )


def _now(gpu: GpuFacts, wanted: DesiredGpu) -> DesiredGpu:
    """Return what a GPU is now. Raises NotApplied: it was not read."""
    if gpu.from_table or (gpu.mig.current is None and gpu.mig.supported is not False):
        raise _not_applied(gpu, wanted)
    return present(gpu) or DesiredGpu(False)


def _kept(offered: Mapping[str, int], types: Mapping[str, int]) -> tuple[str, dict[str, int]]:
    """Return how whole GPUs are shared in the files of the node, and by type how many clients share each; empty where they are not."""
    for shared in ("shard", "mps"):
        units = {name: offered.get(f"{shared}:{name}", 0) // number for name, number in types.items()}
        if all(units.values()):
            return shared, units
    return "", {}


def _pipes(sharing: Sharing, gpus: Sequence[GpuFacts]) -> dict[int, str]:
    """Return the pipe directory of the MPS daemon of each GPU, by its index; none where a pool has no MPS."""
    if sharing.mode != "mps":
        return {}
    if (sharing.mps_manager, sharing.mps_scope) != ("host", "gpu"):
        reason = "Slurm gives a job the MPS of one GPU, and only a daemon of the host for each GPU serves processes outside of pods"
        remedy = "Set nvidia_sharing_mps_manager: host and nvidia_sharing_mps_scope: gpu."
        raise Refused("nvidia_sharing_mps_scope", reason, remedy)
    return {gpu.index: one.pipe_directory for gpu, one in zip(gpus, host_sharing(sharing, gpus).daemons)}


def _minor(gpu: GpuFacts) -> int:
    return gpu.index if gpu.minor is None else gpu.minor


def _devices(gpu: GpuFacts, wanted: DesiredGpu, detected: bool) -> list[tuple[str, SlurmDevice]]:
    """Return the devices of a GPU, each with what distinguishes it, which its type has to tell."""
    if not gpu.name:
        raise Refused("gpu_facts_gpus", f"nothing says what {gpu.title} is called", f"Run {_SITE} for the host first.")
    # As slurmd calls what it finds. What is not a part of a type in Slurm's files never gets there.
    board = re.sub(r"[^a-z0-9._-]", "_", gpu.name.lower())
    if not wanted.enabled:
        if gpu.mig.current and not detected:
            raise _not_applied(gpu, wanted)
        return [(board, SlurmDevice(board, _minor(gpu)))]
    if detected:
        return _detected(gpu, wanted, board)
    there = instances_of(gpu)
    if not gpu.mig.current or wanted_of(there) != sorted(wanted.instances):
        raise _not_applied(gpu, wanted)
    found = []
    for instance in sorted(there, key=lambda one: one.id):
        for part in sorted(instance.compute, key=lambda one: one.id):
            name = f"{board}_{compute_name(instance.profile, part.slices).replace('+', '.').replace(',', '.')}"
            found.append((name, SlurmDevice(name, _minor(gpu), instance.id, part.id)))
    return found


def _detected(gpu: GpuFacts, wanted: DesiredGpu, board: str) -> list[tuple[str, SlurmDevice]]:
    """Return what slurmd calls the MIG devices that it finds: it cuts the board at the first hyphen, and tells neither compute instances nor attributes."""
    if not wanted.instances:
        reason = f"{gpu.title} gets MIG without instances, and with NVML slurmd does not start on such a host"
        raise Refused(AUTODETECT, reason, "Set gpu_slurm_autodetect: none, or partition the GPU.")
    found = []
    for instance in wanted.instances:
        profile = parse(instance.profile)
        memory = profile_memory(gpu, instance.profile)
        size = int(memory / _MIB_OF_GIB + 0.5) if memory else profile.memory_gb
        name = f"{board.partition('-')[0]}_{profile.gpu_slices}g.{size}gb"
        found += [
            (f"{board}_{compute_name(instance.profile, slices)}", SlurmDevice(name)) for slices in instance.compute
        ]
    return found


def _not_applied(gpu: GpuFacts, wanted: DesiredGpu) -> NotApplied:
    known = "not read" if gpu.from_table else present(gpu) or "not read"
    return NotApplied(
        "nvidia_mig_layout",
        f"{gpu.title} is to have {wanted}, and what is known of it is: {known}. gres.conf names the device files of instances that exist",
        f"Run {_SITE} for the host first; it renders at its end.",
    )


def _renamed(name: str, names: Mapping[str, str], detected: bool) -> str:
    """Return what the site calls a type."""
    mine = str(names.get(name, name))
    if not _TYPE.fullmatch(mine):
        remedy = "Use letters, digits, '.', '_' and '-', and a letter."
        raise Refused(f"{TYPES}.{name}", f"{mine!r} is not a type of Slurm", remedy)
    if detected and mine.lower() not in name:
        reason = f"slurmd finds {name}, and counts it for a type only if the type is a part of that name, which {mine} is not"
        raise Refused(f"{TYPES}.{name}", reason, f"Use a part of it, such as {name.removeprefix('nvidia_')}.")
    return mine


def _refuse_shared_mig(device: SlurmDevice, wanted: DesiredGpu) -> None:
    if wanted.enabled:
        reason = f"Slurm shares whole GPUs, by their device file, and {device.type} is a MIG device"
        remedy = "Set nvidia_sharing_mode: none for this pool, or nvidia_mig_strategy: none."
        raise Refused("nvidia_sharing_mode", reason, remedy)


def _refuse_collisions(means: Mapping[str, set[str]], detected: bool) -> None:
    """Refuse a type by which a job cannot tell what it gets."""
    for name, meanings in sorted(means.items()):
        if len(meanings) > 1:
            reason = f"{' and '.join(sorted(meanings))} of one node would have the type {name}"
            if detected:
                raise Refused(AUTODETECT, reason, "slurmd names what it finds itself: set gpu_slurm_autodetect: none.")
            raise Refused(TYPES, reason, "Give each a type of its own.")
        part = [other for other in means if detected and other != name and name in other]
        if part:
            reason = f"slurmd counts {part[0]} for the type {name}, too, because the one name is a part of the other"
            raise Refused(AUTODETECT, reason, "Set gpu_slurm_autodetect: none, or partition all GPUs of the host.")
