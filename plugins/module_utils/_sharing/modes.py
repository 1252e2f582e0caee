# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways of sharing a GPU, and which one a pool has, with how its hosts run MPS daemons of their own;
and the arithmetic of shared GPUs: slices, replicas, what one MPS client may use, N GiB over M GPUs.

All sizes are MiB (2**20 bytes). The numbers are those of the device plugin 0.20 (C(cmd/mps-control-daemon/mps)):
a resource with R replicas gives every MPS client C(floor(total / R)) MiB and C(floor(100 / R)) percent of the threads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from .._plan import Refused
from .._printable import amount
from .mps_instances import GPU

_MEMORY = re.compile(r"\s*(?P<number>[0-9]{1,15}(?:\.[0-9]{1,15})?)\s*(?P<unit>[A-Za-z]*)\s*")
_MIB_PER_UNIT = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
_LIKELY_UNIT = {"m": "MiB", "mb": "MiB", "mi": "MiB", "mib": "MiB", "g": "GiB", "gb": "GiB", "gi": "GiB", "gib": "GiB"}


@dataclass(frozen=True)
class ClientLimits:
    """What one MPS client gets of a device.

    :param memory_mib: device memory that it can allocate; 0 is no limit.
    :param percentage: the share of the device's threads that it can use.
    """

    memory_mib: int
    percentage: float


@dataclass(frozen=True)
class Share:
    """A pod's request "N GiB over M GPUs", resolved."""

    memory_mib: int
    gpus: int
    per_gpu_mib: int


def memory_mib(text: str, thing: str) -> int:
    """Return the size that C(text) names, such as C(4GiB) or C(512MiB), in MiB. Raises Refused: no number with one of the units MiB, GiB, TiB, or no
    whole number of MiB. C(4GB) and C(4G) are refused, because one reads 4000 MB and the other 4096 MiB into them.
    """
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise Refused(thing, f"{text!r} is not a size", "Write a number and a binary unit, such as 4GiB or 512MiB.")
    number, unit = match.group("number"), match.group("unit")
    if unit not in _MIB_PER_UNIT:
        likely = _LIKELY_UNIT.get(unit.lower(), "GiB")
        reason = f"the unit {unit!r} of {text!r} is ambiguous" if unit else f"{text!r} has no unit"
        raise Refused(thing, reason, f"Units are binary and written out: {number}{likely}?")
    size = float(number) * _MIB_PER_UNIT[unit]
    if size < 1 or size != int(size):
        remedy = "Write a number such as 4GiB or 512MiB."
        raise Refused(thing, f"{text!r} is not a whole number of MiB above zero", remedy)
    return int(size)


def memory_text(mib: int) -> str:
    """Return C(mib) in the unit in which it is a whole number: C(4GiB), C(4188MiB)."""
    return f"{mib // 1024}GiB" if mib % 1024 == 0 else f"{mib}MiB"


def replicas_of(total_mib: int, slice_mib: int, thing: str) -> int:
    """Return into how many slices of C(slice_mib) a GPU with C(total_mib) is divided. Raises Refused: fewer than two slices fit; the remedy names the
    largest slice that makes two.
    """
    replicas = total_mib // slice_mib
    if replicas < 2:
        reason = f"a slice of {memory_text(slice_mib)} fits {replicas} times into a GPU of {total_mib} MiB, and sharing needs 2 or more"
        remedy = f"The largest slice of this GPU is {total_mib // 2}MiB; a whole GPU for each pod is nvidia_sharing_mode: none."
        raise Refused(thing, reason, remedy)
    return replicas


def mps_limits(total_mib: int, replicas: int) -> ClientLimits:
    """Return what the device plugin's MPS daemon gives each client of a GPU with C(total_mib)."""
    return ClientLimits(total_mib // replicas, 100 // replicas)


def refuse_too_many_clients(replicas: int, limit: int, of: str, thing: str) -> None:
    """Refuse more MPS clients than a device has.

    :param limit: L(architectures.mps_clients), or what the daemon of the device plugin starts with.
    :raises Refused: the clients beyond the limit would find no room; the daemon of the device plugin would not even start.
    """
    if replicas > limit:
        remedy = f"Ask for {limit} or fewer replicas, for a larger slice, or for nvidia_sharing_mode: time_slicing."
        raise Refused(thing, f"MPS on {of} allows at most {limit} clients, not {replicas}", remedy)


def share(memory: str, gpus: int, thing: str) -> Share:
    """Resolve "N GiB over M GPUs" into what the pod gets on each GPU.

    :param memory: N with its unit, such as C(8GiB).
    :raises Refused: N, in the unit in which it is written, cannot be divided by M.
    """
    total = memory_mib(memory, thing)
    if gpus < 1:
        raise Refused(thing, f"{memory} over {amount(gpus, 'GPU')} is not a valid request", "Ask for one GPU or more.")
    unit = next(name for name in _MIB_PER_UNIT if memory.strip().endswith(name))
    number = total / _MIB_PER_UNIT[unit]
    if number % gpus:
        lower = int(number // gpus) * gpus
        near = [f"{value}{unit}" for value in (lower, lower + gpus) if value]
        remedy = f"The nearest: {' or '.join(near)} over {amount(gpus, 'GPU')}."
        raise Refused(thing, f"{memory} over {amount(gpus, 'GPU')} is not a whole number of {unit} on each", remedy)
    return Share(memory_mib=total, gpus=gpus, per_gpu_mib=total // gpus)


MODES = ("none", "time_slicing", "mps")
BACKENDS = ("mps", "hami", "dra")
#: Between these M(gpufleet.nvidia.migrate) moves a pool.
MIGRATED = ("mps", "dra")
MPS_MANAGERS = ("device_plugin", "host")
#: C(auto) is what the way of sharing needs.
COMPUTE_MODES = ("auto", "default", "exclusive_process", "prohibited")
TIME_SLICES = ("default", "short", "medium", "long")
SCOPES = ("node", "gpu", "instance")
PRIORITIES = {"normal": 0, "below_normal": 1}


@dataclass(frozen=True)
class HostOptions:
    """How the host runs MPS.

    :param scope: C(node), one daemon in the directories that the device plugin expects; C(gpu), one for each GPU; C(instance), one
        for each MIG device.
    :param percentage: active thread percentage of a client; 0 means all threads (100).
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


@dataclass(frozen=True)
class Sharing:
    """One pool's desired state.

    :param mode: C(none), C(time_slicing) or C(mps): how containers come to share a GPU.
    :param replicas: into how many devices a GPU (or MIG device) is divided; 0 when the slice decides, the resources differ, or nothing
        is shared.
    :param resource_replicas: the same by resource, as it is called before it is renamed; a resource that is not named is not shared.
    :param time_slice: the hardware's time slice; C(default) leaves the driver's.
    :param backend: who counts and enforces memory slices.
    :param rename: whether shared devices get a name of their own, C(nvidia.com/gpu.shared).
    :param mps_scope: with C(mps_manager) C(host), what one daemon serves.
    :param compute_mode: of every GPU; C(auto) is what the way of sharing needs.
    :param migrate_from: while a pool is migrated, the backend that serves the nodes on which C(migrate) has not ended; else empty.
    :param host: how the host runs MPS; nothing of it is the cluster's business but what a client gets.
    """

    mode: str = "none"
    replicas: int = 0
    slice_mib: int | None = None
    gpus_per_pod: int = 1
    time_slice: str = "default"
    mps_manager: str = "device_plugin"
    backend: str = "mps"
    rename: bool = False
    mps_scope: str = "node"
    resource_replicas: tuple[tuple[str, int], ...] = ()
    compute_mode: str = field(default="auto", repr=False)
    migrate_from: str = field(default="", repr=False)
    host: HostOptions = field(default_factory=HostOptions, repr=False)

    @property
    def shared(self) -> bool:
        """Whether containers share GPUs."""
        return self.mode != "none"

    @property
    def mps_of_host(self) -> bool:
        """Whether a daemon of the host serves the clients that the device plugin counts."""
        return self.mode == "mps" and self.mps_manager == "host" and self.replicated

    @property
    def mps_of_plugin(self) -> bool:
        """Whether the device plugin's own daemon serves clients."""
        return (self.mode, self.backend, self.mps_manager) == ("mps", "mps", "device_plugin")

    @property
    def claims_shared(self) -> bool:
        """Whether several pods share a device of the DRA driver, by one ResourceClaim that all of them name."""
        return self.backend == "dra" and self.shared

    @property
    def consumed(self) -> bool:
        """Whether each pod says by itself how much memory of a GPU it takes: HAMi, and consumable shares of the DRA driver."""
        return self.backend != "mps" and not self.shared and bool(self.slice_mib)

    @property
    def replicated(self) -> bool:
        """Whether the device plugin is told to replicate devices. A daemon of the host that serves the whole node keeps the directories that the
        plugin expects, so the plugin counts its clients; what daemons of other scopes serve, the cluster does not see.
        """
        return self.shared and (self.mode != "mps" or self.mps_manager == "device_plugin" or self.mps_scope == "node")

    @property
    def counted(self) -> bool:
        """Whether the number of replicas is given, and does not follow from the memory of a slice."""
        return bool(self.replicas or self.resource_replicas)

    def replicas_on(
        self, total_mib: int | None, thing: str = "nvidia_sharing_memory_slice", resource: str = GPU
    ) -> int:
        """Return the number of replicas on a GPU or MIG device with C(total_mib); 1 when it is not shared.

        :param resource: what the device is offered as, before it is renamed.
        :raises Refused: the slice does not fit twice, or the memory is not known.
        """
        if not self.shared:
            return 1
        if self.replicas:
            return self.replicas
        if self.resource_replicas:
            return dict(self.resource_replicas).get(resource, 1)
        if total_mib is None:
            remedy = "Record the facts of a host of the pool, or set nvidia_sharing_replicas in place of nvidia_sharing_memory_slice."
            raise Refused(thing, "the memory of this GPU is not known, so the number of slices is not", remedy)
        return replicas_of(total_mib, self.slice_mib or 0, thing)


@dataclass(frozen=True)
class Guarantee:
    """What a pod that asks for a slice can rely on.

    :param counted_by: who keeps two pods from being given the same slice.
    :param enforced_by: who stops a process that takes more; C(nobody) where nothing does.
    """

    counted_by: str
    enforced_by: str
    visible_in_nvidia_smi: str
    limit: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


#: reference: device plugin 0.20, HAMi 2.10 and the DRA driver 0.5.0, as their code says; 256 is ResourceClaimReservedForMaxSize of Kubernetes.
GUARANTEES: Mapping[str, Guarantee] = {
    "none": Guarantee(
        "device plugin", "hardware: a pod has the GPU or MIG device for itself", "the whole GPU or MIG device", ""
    ),
    "time_slicing": Guarantee(
        "device plugin, replicas",
        "nobody: processes share memory and time, one can take all",
        "the whole GPU",
        "no isolation of memory or faults",
    ),
    "mps": Guarantee(
        "device plugin, replicas; spreading over distinct GPUs is best effort",
        "MPS server, for each client process and GPU",
        "the whole GPU",
        "the limit is per process, not per pod; two slots that land on one GPU are one slice",
    ),
    "mps_host": Guarantee(
        "nobody in the cluster",
        "MPS server of the host, for each client process and GPU",
        "the whole GPU",
        "the limit is per process; Kubernetes does not see the slices",
    ),
    "hami": Guarantee(
        "HAMi scheduler, exact, for each GPU",
        "libvgpu in the container, for each GPU",
        "the slice",
        "soft: a statically linked program or CUDA_DISABLE_CONTROL=true bypasses it; compute is shared",
    ),
    "dra_devices": Guarantee(
        "scheduler, exact (DRA)",
        "hardware: a pod has the GPU or MIG device for itself",
        "the GPU or MIG device",
        "the pod asks by a ResourceClaim; needs Kubernetes 1.34.2 and driver 580",
    ),
    "dra_time_slicing": Guarantee(
        "scheduler: the device, by its ResourceClaim; nobody counts the pods that name the claim (up to 256)",
        "nobody: processes share memory and time, one can take all",
        "the whole GPU, or the MIG device",
        "no isolation of memory or faults; alpha in the driver (TimeSlicingSettings); needs Kubernetes 1.34.2 and driver 580",
    ),
    "dra_mps": Guarantee(
        "scheduler: the device, by its ResourceClaim; nobody counts the pods that name the claim (up to 256)",
        "MPS server of the claim, for each client process and device",
        "the whole GPU, or the MIG device",
        "the limit is per process, not per pod, and more pods than replicas find no memory; one user ID at a time, pods of another wait without an "
        "error; alpha in the driver (MPSSupport); needs Kubernetes 1.34.2 and driver 580",
    ),
    "dra": Guarantee(
        "scheduler, exact (DRA consumable capacity)",
        "nobody: no memory isolation",
        "the whole GPU",
        "alpha; needs Kubernetes 1.36, or 1.35 with the gate DRAConsumableCapacity (1.34 on nodes with one GPU), and driver 580",
    ),
}


def guarantee(sharing: Sharing) -> Guarantee:
    """Return what holds for a pod of a pool that is shared like this."""
    if sharing.claims_shared:
        return GUARANTEES[f"dra_{sharing.mode}"]
    if sharing.backend == "dra" and not sharing.slice_mib:
        return GUARANTEES["dra_devices"]
    if sharing.backend in ("hami", "dra"):
        return GUARANTEES[sharing.backend]
    if sharing.shared and not sharing.replicated:
        return GUARANTEES["mps_host"]
    found = GUARANTEES[sharing.mode]
    if sharing.mode == "mps" and sharing.mps_manager == "device_plugin":
        # A daemon of the host can serve several users, where its release can: nvidia_sharing_mps_multi_user.
        return replace(found, limit=f"{found.limit}; one user ID at a time, pods of another wait without an error")
    return found
