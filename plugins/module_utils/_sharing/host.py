# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What sharing needs on a host: compute mode, time slice and MPS daemons, as the pool's variables and its GPUs say.

The device plugin runs its own MPS daemon by default. Only C(nvidia_sharing_mps_manager=host) puts daemons on the host, and never
both on one GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .._boards.board import (
    FIRST_BRANCH_WITH_CUDA_13_1,
    FIRST_BRANCH_WITH_MPS_MULTI_USER,
    mps_clients,
    mps_clients_of_device_plugin,
    mps_has_multi_user,
)
from .._boards.cards import board_of
from .._formats.mps_commands import LONGEST_PIPE_DIRECTORY
from .._gpu_facts import GpuFacts
from .._mig.model import parse
from .._plan import Refused
from .._records import Daemon, HostSharing
from .modes import PRIORITIES, ClientLimits, Sharing, mps_limits, refuse_too_many_clients
from .mps_instances import GPU, ROOT, folder_of_gpu, pipe_in

SHM = f"{ROOT}/shm"
#: What C(renameByDefault) appends. The plugin makes the pipe directory of the renamed name (C(mps/root.go), C(PipeDir)).
RENAMED = ".shared"
LOGS = "/var/log/nvidia-mps"


def host_sharing(
    sharing: Sharing, gpus: Sequence[GpuFacts], branch: int | None = None, multi_user: bool | None = None
) -> HostSharing:
    """Return what the host has to keep.

    :param branch: of the driver, which decides how many clients a GPU has; None when it is not known.
    :param multi_user: whether the host's MPS has a multi-user server; None when only the branch of the driver says.
    :raises Refused: a limit names no GPU, a slice does not fit, a device has fewer clients, or there are no MIG devices to serve.
    """
    if sharing.claims_shared:
        # The DRA driver sets compute mode and time slice for each claim, and sets them back at its end.
        return HostSharing()
    if sharing.mode == "time_slicing":
        # A GPU in EXCLUSIVE_PROCESS lets one process in: slices need the mode DEFAULT.
        return HostSharing(compute_mode="default", time_slice=sharing.time_slice)
    if sharing.mode != "mps":
        return HostSharing(compute_mode="default" if sharing.compute_mode == "auto" else sharing.compute_mode)
    if sharing.mps_manager != "host":
        # The device plugin's daemon sets the compute mode itself, and sets it back when it stops.
        return HostSharing()
    # The compute mode of a GPU in MIG mode is DEFAULT and cannot be changed.
    mode = "default" if sharing.host.scope == "instance" else "exclusive_process"
    if multi_user is None:
        multi_user = branch is None or branch >= FIRST_BRANCH_WITH_MPS_MULTI_USER
    return HostSharing(compute_mode=mode, daemons=_daemons(sharing, gpus, branch, multi_user))


def one_user_at_a_time(sharing: Sharing, wanted: HostSharing) -> str | None:
    """Return what it means for the pods of this pool that MPS serves one user ID at a time; None where it does not, or is asked to."""
    if sharing.mode != "mps" or sharing.host.multi_user is False:
        return None
    if sharing.mps_manager != "host":
        whose, remedy = "The MPS daemon of the device plugin", "set nvidia_sharing_mps_manager: host"
    elif not wanted.daemons or wanted.daemons[0].multi_user:
        return None
    else:
        whose = "The MPS daemon of this host"
        remedy = "set nvidia_sharing_mps_multi_user: true"
        if sharing.host.scope == "node":
            remedy = f"install a driver whose MPS has a multi-user server (nvidia_driver_branch, {FIRST_BRANCH_WITH_MPS_MULTI_USER} or later)"
    return (
        f"{whose} serves one user ID at a time: a client of another user ID waits in its first CUDA call, without an error, until the "
        f"last client of the first has ended. Run all clients as one user ID, or {remedy}. nvidia_sharing_mps_multi_user: false accepts it"
    )


def _daemons(
    sharing: Sharing, gpus: Sequence[GpuFacts], branch: int | None, can_multi_user: bool
) -> tuple[Daemon, ...]:
    options = sharing.host
    multi_user = _multi_user(sharing, gpus, can_multi_user)
    _refuse_protocol(sharing, multi_user)
    unknown = set(options.limits_mib) - {gpu.index for gpu in gpus}
    if unknown:
        thing = "nvidia_sharing_mps_limits"
        remedy = f"It has {', '.join(str(gpu.index) for gpu in gpus) or 'none'}."
        raise Refused(thing, f"this host has no GPU {', '.join(str(index) for index in sorted(unknown))}", remedy)
    if options.scope == "instance":
        return tuple(_instance_daemons(sharing, gpus, branch, multi_user))
    divided = [gpu for gpu in gpus if gpu.mig.current]
    if divided:
        raise Refused(
            "nvidia_sharing_mps_scope",
            f"GPU {divided[0].index} is in MIG mode, but a daemon for the scope {options.scope} serves whole GPUs",
            "Set nvidia_sharing_mps_scope: instance, or nvidia_mig_layout to [{devices: all, enabled: false}], which turns MIG off.",
        )
    devices = []
    for gpu in gpus:
        refuse_clients(sharing, gpu, branch)
        devices.append((str(gpu.uuid), client_limits(sharing, gpu.index, gpu.memory_mib)))
    if options.scope == "node":
        resource = f"{GPU}{RENAMED}" if sharing.rename else GPU
        # Its clients are pods, to which the device plugin gives SHM as /dev/shm.
        return (_daemon("node", f"{ROOT}/{resource}", devices, sharing, multi_user, SHM),) if devices else ()
    return tuple(
        _daemon(f"gpu{gpu.index}", folder_of_gpu(gpu.index), [device], sharing, multi_user)
        for gpu, device in zip(gpus, devices)
    )


def _multi_user(sharing: Sharing, gpus: Sequence[GpuFacts], can: bool) -> bool:
    """Pods of different users come to a node without knowing of each other: there, and where protocol 3 needs it, it is on by itself."""
    desired = sharing.host.multi_user
    old = [gpu for gpu in gpus if not mps_has_multi_user(gpu.architecture)]
    if desired and old:
        reason = f"GPU {old[0].index} is of the {old[0].architecture} architecture, and MPS serves several users from Volta on"
        raise Refused("nvidia_sharing_mps_multi_user", reason, "Set it to false.")
    if desired is None:
        return sharing.host.protocol == 3 or (sharing.host.scope == "node" and can and not old)
    return desired


def _refuse_protocol(sharing: Sharing, multi_user: bool) -> None:
    """Protocol 3 has limits for a named server only, and clients have to be told its directory."""
    options = sharing.host
    if options.protocol == 2:
        return
    thing = "nvidia_sharing_mps_protocol"
    if options.protocol != 3:
        raise Refused(thing, f"MPS has no protocol {options.protocol}", "Use 2 or 3.")
    if options.scope == "node":
        reason = "the scope node keeps the directories of the device plugin, which speaks protocol 2 only"
        remedy = "Set nvidia_sharing_mps_scope: gpu or instance, or nvidia_sharing_mps_protocol: 2."
        raise Refused(thing, reason, remedy)
    if not multi_user:
        reason = "with protocol 3 the limits are those of a server of root, which takes clients of other users only in multi-user mode"
        raise Refused(thing, reason, "Set nvidia_sharing_mps_multi_user: true, or nvidia_sharing_mps_protocol: 2.")
    if options.percentage % 1:
        reason = f"protocol 3 takes whole percents, not {options.percentage:g}"
        remedy = f"Use {int(options.percentage)}, or nvidia_sharing_mps_protocol: 2."
        raise Refused("nvidia_sharing_mps_active_thread_percentage", reason, remedy)


def _instance_daemons(sharing: Sharing, gpus: Sequence[GpuFacts], branch: int | None, multi_user: bool) -> list[Daemon]:
    daemons = []
    for gpu in gpus:
        parts = [(instance, part) for instance in gpu.gpu_instances for part in instance.compute_instances]
        devices = [MigDevice(part.profile, instance.memory_mib) for instance, part in parts]
        refuse_clients_of_devices(sharing, gpu, branch, devices)
        for instance, part in parts:
            name = f"mig{gpu.index}-{instance.id}-{part.id}"
            limits = client_limits(sharing, gpu.index, instance.memory_mib)
            daemons.append(_daemon(name, f"{ROOT}/{name}", [(str(part.uuid), limits)], sharing, multi_user))
    if not daemons:
        reason = "instance asks for a daemon on each MIG device, and this host has none"
        raise Refused("nvidia_sharing_mps_scope", reason, "Set nvidia_mig_layout, or nvidia_sharing_mps_scope: gpu.")
    return daemons


def _daemon(
    name: str,
    folder: str,
    devices: Sequence[tuple[str, ClientLimits]],
    sharing: Sharing,
    multi_user: bool,
    shm: str = "",
) -> Daemon:
    pipe = pipe_in(folder)
    if len(pipe) > LONGEST_PIPE_DIRECTORY:
        thing = "nvidia_sharing_mps_scope"
        raise Refused(thing, f"the pipe directory {pipe} is longer than {LONGEST_PIPE_DIRECTORY} characters")
    return Daemon(
        name=name,
        devices=tuple(uuid for uuid, _limits in devices),
        pipe_directory=pipe,
        log_directory=f"{LOGS}/{name}",
        limits_mib=tuple(limits.memory_mib for _uuid, limits in devices),
        # One default for all devices of a daemon.
        percentage=devices[0][1].percentage,
        priority=PRIORITIES[sharing.host.priority],
        multi_user=multi_user,
        protocol=sharing.host.protocol,
        shm_directory=shm,
    )


#: Compute slices of a GPU that neither the table of boards nor the driver tells: no board has more.
_MOST_SLICES = 7


def client_limits(sharing: Sharing, gpu: int, total: int | None) -> ClientLimits:
    """Return what one MPS client gets of a GPU or MIG device: what its daemon is told, and what the cluster is told to expect.

    :param gpu: index of the GPU.
    :param total: MiB of the GPU or MIG device; None when it is not known.
    :raises Refused: the slice does not fit twice.
    """
    if sharing.mps_manager != "host":
        replicas = sharing.replicas_on(total)
        return mps_limits(total or 0, replicas)
    own = sharing.host.limits_mib.get(gpu)
    if own is not None:
        memory = own
    elif sharing.slice_mib:
        # A slice is given exactly, and has to fit.
        sharing.replicas_on(total)
        memory = sharing.slice_mib
    else:
        # Replicas divide what the device has, rounded down to whole MiB as the device plugin does.
        memory = mps_limits(total, sharing.replicas).memory_mib if total and sharing.replicas else 0
    return ClientLimits(memory, sharing.host.percentage or 100.0)


class MigDevice(NamedTuple):
    """A MIG device that is shared: the profile of its compute instance, and the memory of its GPU instance in MiB, where it is known."""

    profile: str
    memory_mib: int | None


def refuse_clients(sharing: Sharing, gpu: GpuFacts, branch: int | None = None, device: MigDevice | None = None) -> None:
    """Refuse more clients of a device than MPS has for it.

    A slice of memory promises a number of clients only where the cluster counts them; elsewhere it is what one client gets. Nothing
    is refused as long as the memory that decides is not known.

    :param device: that is shared; None when it is the whole GPU.
    :raises Refused: the reason names the limit.
    """
    memory, architecture = (device or gpu).memory_mib, gpu.architecture
    if not sharing.replicas and (memory is None or not sharing.replicated):
        return
    replicas = sharing.replicas_on(memory)
    thing = "nvidia_sharing_replicas" if sharing.replicas else "nvidia_sharing_memory_slice"
    where = f"a GPU of the {architecture} architecture" if architecture else "a GPU"
    if sharing.mps_of_plugin:
        limit = mps_clients_of_device_plugin(architecture)
        where = f"{where}, with the daemon of the device plugin,"
    elif device is None:
        limit = mps_clients(architecture, branch)
    else:
        slices, of = parse(device.profile).compute, _compute_slices(gpu)
        limit = mps_clients(architecture, branch, slices, of)
        where = f"the MIG device {device.profile}, {slices} of the {of} compute slices of its GPU,"
    if branch is not None and branch < FIRST_BRANCH_WITH_CUDA_13_1 and sharing.mps_manager == "host":
        where = f"{where.rstrip(',')} with driver branch {branch}"
    refuse_too_many_clients(replicas, limit, where, f"{thing} on GPU {gpu.index}")


def refuse_clients_of_devices(
    sharing: Sharing, gpu: GpuFacts, branch: int | None, devices: Sequence[MigDevice]
) -> None:
    """Refuse more clients than the MIG devices of a GPU have; the smallest device says how many all of them can have."""
    for device in sorted(devices, key=lambda one: parse(one.profile).compute):
        refuse_clients(sharing, gpu, branch, device)


def _compute_slices(gpu: GpuFacts) -> int:
    """Return how many compute slices MIG divides a GPU into."""
    offered = [parse(profile.name).gpu_slices for profile in gpu.profiles]
    board = board_of(gpu)
    named = [profile.gpu_slices for profile in board.profiles] if board is not None else []
    return max(offered or named, default=_MOST_SLICES)
