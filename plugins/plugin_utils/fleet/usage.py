# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a cluster's GPUs is given to which pod, for every way of sharing. Pure.

The kubelet's checkpoint and the resource claims say which pod holds which device, the facts say on which GPU that device is. HAMi's
scheduler writes on the pod itself what it gave.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...module_utils._facts_view import Facts
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._mig.state import profiles_of
from ...module_utils._sharing.mps_instances import GPU, mig_resource
from ...module_utils._users import allocated, processes_on
from .devices import Holding
from .pods import Pod

MEMORY, UNITS = "memory", "units"
#: Memory slices of a GPU with MIG whose board is not known.
_SLICES = 8


@dataclass(frozen=True)
class PodShare:
    """One device that the device plugin offers: a whole GPU or a MIG device, once or several times.

    :param start: first memory slice of the GPU that it occupies; 0 for a whole GPU.
    :param size: how many memory slices; 0 when the whole GPU is meant.
    :param holders: the pods that hold it, by title, with how many replicas of it.
    :param limit_mib: memory of one replica, where that is less than an equal part.
    :param held_mib: memory that each pod was given, where replicas do not tell (HAMi, claims for memory).
    """

    device: str
    profile: str
    start: int
    size: int
    memory_mib: int
    replicas: int
    holders: Mapping[str, int] = field(default_factory=dict)
    limit_mib: int | None = None
    held_mib: Mapping[str, int] = field(default_factory=dict)

    @property
    def taken(self) -> int:
        return min(self.replicas, sum(self.holders.values()))

    def amount(self, count: int, unit: str) -> int:
        """Return C(count) replicas of it in C(unit): MiB of memory, or units of the resource."""
        if unit == UNITS:
            return count
        return self.limit_mib * count if self.limit_mib else self.memory_mib * count // self.replicas

    def held(self, title: str, unit: str) -> int:
        """Return what one pod holds of it."""
        if unit == MEMORY and title in self.held_mib:
            return self.held_mib[title]
        return self.amount(self.holders.get(title, 0), unit)

    def taken_in(self, unit: str) -> int:
        """Return what all of them hold of it, never more than there is."""
        if unit == MEMORY and self.held_mib:
            return min(self.memory_mib, sum(self.held_mib.values()))
        return self.amount(self.taken, unit)


@dataclass(frozen=True)
class GpuUsage:
    """One GPU with what is offered of it.

    :param slices: memory slices into which MIG divides it.
    :param lost: whether it fell off the bus: nothing is known of it.
    :param then: what it becomes, where that is asked.
    """

    index: int
    name: str
    memory_mib: int
    mig: bool
    shares: tuple[PodShare, ...]
    slices: int = _SLICES
    lost: bool = False
    then: GpuUsage | None = None

    @property
    def undivided(self) -> int:
        """Memory slices in which there is no instance."""
        places = {(share.start, share.size) for share in self.shares}
        return max(0, self.slices - sum(size for _start, size in places)) if self.mig else 0

    @property
    def instances_taken(self) -> int:
        """GPU instances on which somebody holds a device."""
        return len({(share.start, share.size) for share in self.shares if share.taken})

    def total(self, unit: str) -> int:
        if unit == MEMORY and not self.mig:
            return self.memory_mib
        return sum(share.amount(share.replicas, unit) for share in self.shares)

    def taken(self, unit: str) -> int:
        return sum(share.taken_in(unit) for share in self.shares)


@dataclass(frozen=True)
class NodeUsage:
    """One node.

    :param waiting: pods that are bound to the node and were not given a device yet.
    :param notes: what a reader has to know of these numbers, such as that the node is not ready.
    """

    name: str
    address: str
    gpus: tuple[GpuUsage, ...] = ()
    waiting: tuple[Pod, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def pending(self) -> dict[str, int]:
        """GPU resources that are asked for and not given yet."""
        return asked(self.waiting)

    @property
    def titles(self) -> list[str]:
        """Who holds something."""
        return sorted({title for gpu in self.gpus for share in gpu.shares for title in share.holders})

    def total(self, unit: str) -> int:
        return sum(gpu.total(unit) for gpu in self.gpus)

    def taken(self, unit: str) -> int:
        return sum(gpu.taken(unit) for gpu in self.gpus)


def asked(pods: Iterable[Pod]) -> dict[str, int]:
    """Return how many devices pods ask for, by resource."""
    found: Counter[str] = Counter()
    for pod in pods:
        found.update(pod.devices)
    return dict(sorted(found.items()))


def unplaced(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return, of pods that are on no node, those that wait for GPUs, or hold a claim that may be for one."""
    waiting = [pod for pod in pods if pod.uses_gpu and not pod.ended and not pod.terminating]
    return tuple(sorted(waiting, key=lambda pod: pod.title))


def node_usage(
    name: str,
    address: str,
    facts: Facts,
    replicas: Mapping[str, int],
    holdings: Iterable[Holding],
    pods: Sequence[Pod],
    users: Mapping[str, Mapping[str, int]] | None = None,
    slice_mib: int | None = None,
    notes: Sequence[str] = (),
    hami: bool = False,
) -> NodeUsage:
    """Return the use of GPUs of one node.

    :param replicas: resource, as it is called before it is renamed, to the replicas of each of its devices.
    :param slice_mib: memory of one replica of a GPU, where an MPS daemon of the host sets it.
    :param hami: whether HAMi serves the node. Elsewhere its annotation on a pod says nothing.
    """
    living = {pod.uid: pod for pod in pods if not pod.ended}
    held: dict[str, Counter[str]] = defaultdict(Counter)
    memory: dict[str, Counter[str]] = defaultdict(Counter)
    served: set[str] = set()

    def give(pod: Pod, device: str, mib: int | None) -> None:
        served.add(pod.uid)
        held[device][pod.title] += 1
        if mib is not None:
            memory[device][pod.title] += mib

    for holding in holdings:
        pod = living.get(holding.pod_uid)
        # What the kubelet gave in HAMi's name is not the GPU that the pod is on.
        if pod is not None and not (hami and pod.hami):
            give(pod, holding.device, holding.memory_mib or None)
    for pod in living.values() if hami else ():
        for device, mib in pod.hami:
            give(pod, device, mib)
    everybody: dict[str, Mapping[str, int]] = {**(users or {}), **held}
    waiting = tuple(pod for pod in living.values() if pod.devices and pod.uid not in served)
    gpus = tuple(_gpu(gpu, replicas, everybody, memory, slice_mib) for gpu in facts.gpus or ())
    gone = tuple(f"GPU {gpu.index} cannot be reached: it fell off the bus" for gpu in gpus if gpu.lost)
    return NodeUsage(name, address, gpus, waiting, (*notes, *gone))


def users_on_host(facts: Facts) -> dict[str, dict[str, int]]:
    """Return who holds which GPU or MIG device by the facts of the host: the pods of the kubelet's record, where it has none the processes."""
    found: dict[str, dict[str, int]] = {}
    for gpu in facts.gpus or ():
        for part in gpu.parts:
            users = allocated(part.allocations) or processes_on(part)
            if users:
                found[str(part.uuid)] = dict(Counter(str(user).removeprefix("pod ") for user in users))
    return found


def _gpu(
    gpu: GpuFacts,
    replicas: Mapping[str, int],
    held: Mapping[str, Mapping[str, int]],
    given: Mapping[str, Mapping[str, int]],
    slice_mib: int | None,
) -> GpuUsage:
    mig = bool(gpu.mig.current)
    memory, index, name = gpu.memory_mib or 0, gpu.index, gpu.name or gpu.board or "unknown"
    shares = []
    if gpu.lost:
        return GpuUsage(index, "lost", 0, False, (), lost=True)
    if not mig:
        uuid, count = str(gpu.uuid), replicas.get(GPU, 1)
        limit = slice_mib if count > 1 else None
        whole = PodShare(uuid, "", 0, 0, memory, count, held.get(uuid, {}), limit, given.get(uuid, {}))
        return GpuUsage(index, name, memory, False, (whole,))
    for instance in sorted(gpu.gpu_instances, key=lambda one: one.start):
        parts = instance.compute_instances
        for compute in parts:
            uuid, profile = str(compute.uuid), compute.profile
            resource = mig_resource(profile)
            shares.append(
                PodShare(
                    uuid,
                    profile,
                    instance.start,
                    instance.size,
                    # Compute instances of one GPU instance share its memory.
                    (instance.memory_mib or 0) // len(parts),
                    replicas.get(resource, replicas.get(GPU, 1)),
                    held.get(uuid, {}),
                )
            )
    return GpuUsage(index, name, memory, True, tuple(shares), _slices(gpu))


def _slices(gpu: GpuFacts) -> int:
    """Return into how many memory slices MIG divides a GPU: as far as its profiles, and the instances on it, reach."""
    profiles = profiles_of(gpu)
    ends = [one.start + one.size for one in gpu.gpu_instances]
    for profile in profiles:
        places = profile.placements
        ends += [start + places.size for start in places.starts] if places else [_SLICES]
    return max(ends) if profiles else max([_SLICES, *ends])
