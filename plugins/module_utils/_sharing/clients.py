# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many clients a device that is shared by MPS has, and what each of them gets of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._boards.architectures import FIRST_BRANCH_WITH_CUDA_13_1, mps_clients, mps_clients_of_device_plugin
from .._boards.lookup import board_of
from .._mig.profiles import parse
from .arithmetic import ClientLimits, mps_limits, refuse_too_many_clients
from .modes import Sharing

#: Compute slices of a GPU that neither the table of boards nor the driver tells: no board has more.
_MOST_SLICES = 7


def client_limits(sharing: Sharing, gpu: Mapping[str, Any]) -> ClientLimits:
    """Return what one MPS client gets of a GPU or MIG device: what its daemon is told, and what the cluster is told to expect.

    :param gpu: C(index) of the GPU, and C(memory_mib) of the GPU or MIG device.
    :raises Refused: the slice does not fit twice.
    """
    total = gpu.get("memory_mib")
    if sharing.mps_manager != "host":
        replicas = sharing.replicas_on(total)
        return mps_limits(int(total or 0), replicas)
    own = sharing.host.limits_mib.get(int(gpu["index"]))
    if own is not None:
        memory = own
    elif sharing.slice_mib:
        # A slice is given exactly, and has to fit.
        sharing.replicas_on(total)
        memory = sharing.slice_mib
    else:
        # Replicas divide what the device has, rounded down to whole MiB as the device plugin does.
        memory = mps_limits(int(total), sharing.replicas).memory_mib if total and sharing.replicas else 0
    return ClientLimits(memory, sharing.host.percentage or 100.0)


def refuse_clients(
    sharing: Sharing, gpu: Mapping[str, Any], branch: int | None = None, device: Mapping[str, Any] | None = None
) -> None:
    """Refuse more clients of a device than MPS has for it.

    A slice of memory promises a number of clients only where the cluster counts them; elsewhere it is what one client gets. Nothing
    is refused as long as the memory that decides is not known.

    :param gpu: entry of C(gpus) of the facts document.
    :param device: the MIG device of it that is shared, with C(profile) of the compute instance and C(memory_mib) of its GPU
        instance; None when it is the whole GPU.
    :raises Refused: the reason names the limit.
    """
    memory, architecture = (device or gpu).get("memory_mib"), gpu.get("architecture")
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
        slices, of = parse(str(device["profile"])).compute, _compute_slices(gpu)
        limit = mps_clients(architecture, branch, slices, of)
        where = f"the MIG device {device['profile']}, {slices} of the {of} compute slices of its GPU,"
    if branch is not None and branch < FIRST_BRANCH_WITH_CUDA_13_1 and sharing.mps_manager == "host":
        where = f"{where.rstrip(',')} with driver branch {branch}"
    refuse_too_many_clients(replicas, limit, where, f"{thing} on GPU {gpu['index']}")


def refuse_clients_of_devices(
    sharing: Sharing, gpu: Mapping[str, Any], branch: int | None, devices: Sequence[Mapping[str, Any]]
) -> None:
    """Refuse more clients than the MIG devices of a GPU have; the smallest device says how many all of them can have.

    :param devices: as L(refuse_clients) takes them.
    """
    for device in sorted(devices, key=lambda one: parse(str(one["profile"])).compute):
        refuse_clients(sharing, gpu, branch, device)


def _compute_slices(gpu: Mapping[str, Any]) -> int:
    """Return how many compute slices MIG divides a GPU into."""
    offered = [parse(str(profile["name"])).gpu_slices for profile in gpu.get("profiles") or ()]
    board = board_of(gpu)
    named = [profile.gpu_slices for profile in board.profiles] if board is not None else []
    return max(offered or named, default=_MOST_SLICES)
