# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses a GPU, a part of it, or the driver, and how a user is named. Every planner and check asks here. Pure.

Another kind of user is another function that returns L(User), which L(users_of) calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ._facts_view import Facts, HolderFacts
from ._gpu_facts import AllocationFacts, ComputeInstanceFacts, GpuFacts, GpuInstanceFacts
from ._schema import kept

#: Kinds of users: a process that NVML lists, one that has a device file open, a client of an MPS daemon, a pod or a job of Slurm that was given a
#: device, and what is not reported.
PROCESS, HOLDER, MPS_CLIENT, POD, JOB, UNREPORTED = "process", "holder", "mps_client", "pod", "job", "unreported"

#: Daemons that keep running while a GPU is reset, by name as the kernel cuts it: the persistence daemon lets go of the GPU, and the fabric
#: manager of an HGX A100 has to run, for without it all GPUs on its NVSwitches can only be reset together (manual of nvidia-smi, -r).
TOLERATE_RESET = frozenset({"nvidia-persiste", "nv-fabricmanage"})


@dataclass(frozen=True)
class User:
    """Who uses something of a host.

    :param name: as people call it, such as C(python3).
    :param detail: what else tells it from others, such as its pod.
    """

    kind: str
    name: str
    pid: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        return names([self])[0]


_NAME_LENGTH = 15
#: NVML does not tell the processes of a GPU.
PROCESSES_UNKNOWN = User(UNREPORTED, "unknown", detail="NVML reports no processes")


@dataclass(frozen=True)
class GpuUsers:
    """The users of one GPU.

    :param instances: by id of the GPU instance, those who are on none of its compute instances.
    :param compute: by ids of the GPU instance and of the compute instance.
    """

    everybody: tuple[User, ...]
    instances: Mapping[int, tuple[User, ...]]
    compute: Mapping[tuple[int, int], tuple[User, ...]]

    def on(self, instance: int) -> tuple[User, ...]:
        """Return everybody who is on a GPU instance."""
        return merged(self.instances[instance], *(users for ids, users in self.compute.items() if ids[0] == instance))


def users_of(gpu: GpuFacts) -> GpuUsers:
    """Return who uses a GPU. What NVML lists on no instance may be on any of them."""
    found: GpuUsers = kept(gpu, "users", _users_of)
    return found


def _users_of(gpu: GpuFacts) -> GpuUsers:
    parts = gpu.gpu_instances
    inside = {(one.id, part.id): part for one in parts for part in one.compute_instances}
    placed = merged(*map(_on, parts), *map(_on, inside.values()))
    anywhere = (
        *(user for user in processes_on(gpu, placed=False) if user not in placed),
        *allocated(gpu.allocations),
    )
    # A GPU that was described and not read has no list of them, and one that fell off the bus has no users.
    if gpu.processes is None and gpu.says("processes") and not gpu.lost:
        anywhere = (*anywhere, PROCESSES_UNKNOWN)
    if not placed and not anywhere:
        return GpuUsers(merged(_on(gpu)), {one.id: () for one in parts}, dict.fromkeys(inside, ()))
    compute = {ids: merged(_on(part), anywhere) for ids, part in inside.items()}
    instances = {}
    for one in parts:
        below = {user for ids, users in compute.items() if ids[0] == one.id for user in users}
        instances[one.id] = tuple(user for user in merged(_on(one), anywhere) if user not in below)
    return GpuUsers(merged(_on(gpu), placed, anywhere), instances, compute)


def _on(part: GpuFacts | GpuInstanceFacts | ComputeInstanceFacts) -> tuple[User, ...]:
    given = () if isinstance(part, GpuInstanceFacts) else part.allocations
    # Most parts of most GPUs have no users, and are asked for them by every stage.
    return (*processes_on(part), *allocated(given)) if part.processes or given else ()


def allocated(allocations: Iterable[AllocationFacts]) -> tuple[User, ...]:
    """Return the pods and jobs of C(allocations) of a GPU or a MIG device; what the kubelet's record does not tell is a user that is not reported."""
    return tuple(
        User(UNREPORTED, "unknown", detail=one.reason)
        if one.reason
        else User(JOB, f"job {one.job} of {one.user or 'an unknown user'}", detail=one.resource or "")
        if one.job
        else User(POD, f"pod {one.pod or one.pod_uid}", detail=one.resource or "")
        for one in allocations
    )


def processes_on(part: GpuFacts | GpuInstanceFacts | ComputeInstanceFacts, placed: bool = True) -> tuple[User, ...]:
    """Return the processes that NVML lists on a GPU, a GPU instance or a compute instance. C(placed): whether those count that NVML puts on an instance."""
    return tuple(
        User(PROCESS, one.name or "a process", one.pid)
        for one in part.processes or ()
        if placed or one.gpu_instance is None
    )


def holders_of(
    holders: Iterable[HolderFacts] | None, minor: int | None = None, excused: Collection[str] = ()
) -> tuple[User, ...]:
    """Return who has a device file open.

    :param holders: None where they were not gathered.
    :param minor: of a GPU; None for any device of the driver.
    :param excused: programs that are no users, by name as the kernel cuts it.
    """
    return tuple(
        User(HOLDER, one.command, one.pid, f"pod {one.pod_uid}" if one.pod_uid else "")
        for one in holders or ()
        if (minor is None or f"/dev/nvidia{minor}" in one.devices) and one.command[:_NAME_LENGTH] not in excused
    )


def mps_pids(facts: Facts) -> frozenset[int]:
    """Return the PIDs of MPS daemons and their servers, which work for their clients."""
    return frozenset(pid for one in facts.mps or () for pid in (one.pid, *(one.servers or ())))


def mps_clients(pids: Iterable[int]) -> tuple[User, ...]:
    """Return clients of an MPS daemon, which tells no more of them than their PIDs."""
    return tuple(User(MPS_CLIENT, "MPS client", pid) for pid in pids)


def reset_obstacle(gpu: GpuFacts, holders: Iterable[HolderFacts] | None) -> str:
    """Return who keeps a GPU from being reset, as the end of a sentence about it; empty for nobody."""
    # A pod that has not opened it keeps no GPU from a reset; whether it may lose it is decided before.
    users = [user for user in users_of(gpu).everybody if user.kind == PROCESS or user == PROCESSES_UNKNOWN]
    if users:
        return f"is in use by {named(users)}"
    held = holders_of(holders, gpu.minor, TOLERATE_RESET)
    return f"is held by {named(held)}" if held else ""


def merged(*groups: Iterable[User]) -> tuple[User, ...]:
    """Return users without those who are there twice. Of one process the later, which tells more of it, takes the place of the earlier."""
    return tuple({user if user.pid is None else user.pid: user for group in groups for user in group}.values())


def names(users: Iterable[User]) -> tuple[str, ...]:
    """Return how people call some users: C(python3 (PIDs 812, 813))."""
    alike: dict[tuple[str, str], list[str]] = {}
    for user in users:
        alike.setdefault((user.name, user.detail), []).extend([str(user.pid)] if user.pid is not None else [])
    return tuple(
        f"{name} ({', '.join(filter(None, (_pids(pids), detail)))})" if pids or detail else name
        for (name, detail), pids in alike.items()
    )


def _pids(pids: Sequence[str]) -> str:
    return f"PID{'s' if len(pids) > 1 else ''} {', '.join(pids)}" if pids else ""


def named(users: Iterable[User]) -> str:
    return ", ".join(names(users))
