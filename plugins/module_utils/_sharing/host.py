# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What sharing needs on a host: compute mode, time slice and MPS daemons, as the pool's variables and its GPUs say.

The device plugin runs its own MPS daemon by default. Only C(nvidia_sharing_mps_manager=host) puts daemons on the host, and never
both on one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._plan import Refused
from . import arithmetic
from .modes import Sharing
from .mps_commands import LONGEST_PIPE_DIRECTORY

SCHEMA = 1
#: The device plugin's C(mps.root): it mounts C(<root>/<resource>/pipe) and C(<root>/shm) into pods.
ROOT = "/run/nvidia/mps"
RESOURCE = "nvidia.com/gpu"
LOGS = "/var/log/nvidia-mps"
SCOPES = ("node", "gpu", "instance")
PRIORITIES = {"normal": 0, "below_normal": 1}


@dataclass(frozen=True)
class HostOptions:
    """How the host runs MPS.

    :param scope: C(node), one daemon in the directories that the device plugin expects; C(gpu), one for each GPU; C(instance), one
        for each MIG device.
    :param percentage: active thread percentage of a client; 0 means all threads (100).
    :param priority: C(normal) or C(below_normal).
    :param multi_user: whether clients of several users share a server (C(-M)); the release must have it.
    :param limits_mib: GPU index to memory of a client in MiB, for GPUs that differ from the pool's slice.
    :param protocol: of the control daemon: 2, which every release speaks, or 3.
    """

    scope: str = "node"
    percentage: float = 0.0
    priority: str = "normal"
    multi_user: bool = False
    limits_mib: Mapping[int, int] | None = None
    protocol: int = 2


@dataclass(frozen=True)
class Daemon:
    """One MPS control daemon.

    :param name: the instance of C(gpufleet-mps@.service).
    :param devices: UUIDs of the GPUs or MIG devices that it serves; their position is the ordinal of a limit.
    :param limits_mib: memory of a client on each device, in the order of C(devices); 0 is no limit.
    :param percentage: active thread percentage of a client.
    :param priority: 0 normal, 1 below normal.
    :param protocol: 2 or 3. With 3 the limits are those of a named server, whose directory clients connect to.
    """

    name: str
    devices: tuple[str, ...]
    pipe_directory: str
    log_directory: str
    limits_mib: tuple[int, ...]
    percentage: float
    priority: int
    multi_user: bool
    protocol: int = 2

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "devices": list(self.devices),
            "pipe_directory": self.pipe_directory,
            "log_directory": self.log_directory,
            "limits_mib": list(self.limits_mib),
            "percentage": self.percentage,
            "priority": self.priority,
            "multi_user": self.multi_user,
            "protocol": self.protocol,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Daemon:
        return cls(
            name=str(value["name"]),
            devices=tuple(value["devices"]),
            pipe_directory=str(value["pipe_directory"]),
            log_directory=str(value["log_directory"]),
            limits_mib=tuple(int(item) for item in value["limits_mib"]),
            percentage=float(value["percentage"]),
            priority=int(value["priority"]),
            multi_user=bool(value["multi_user"]),
            protocol=int(value.get("protocol", 2)),
        )


@dataclass(frozen=True)
class HostSharing:
    """What a host keeps for sharing, and restores after a reboot.

    :param compute_mode: the mode of every GPU, or None to leave it to whoever manages MPS.
    :param time_slice: C(default), C(short), C(medium), C(long), or None to leave it alone.
    """

    compute_mode: str | None = None
    time_slice: str | None = None
    daemons: tuple[Daemon, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "compute_mode": self.compute_mode,
            "time_slice": self.time_slice,
            "daemons": [daemon.as_dict() for daemon in self.daemons],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> HostSharing:
        return cls(
            compute_mode=value.get("compute_mode"),
            time_slice=value.get("time_slice"),
            daemons=tuple(Daemon.from_dict(item) for item in value.get("daemons", ())),
        )


def host_sharing(sharing: Sharing, options: HostOptions, gpus: Sequence[Mapping[str, Any]]) -> HostSharing:
    """Return what the host has to keep.

    :param gpus: entries of C(gpus) of the facts document.
    :raises Refused: a limit names no GPU, a slice does not fit, or there are no MIG devices to serve.
    """
    if sharing.mode == "time_slicing":
        # A GPU in EXCLUSIVE_PROCESS lets one process in: slices need the mode DEFAULT.
        return HostSharing(compute_mode="default", time_slice=sharing.time_slice)
    if sharing.mode != "mps":
        return HostSharing(compute_mode="default")
    if sharing.mps_manager != "host":
        # The device plugin's daemon sets the compute mode itself, and sets it back when it stops.
        return HostSharing()
    # The compute mode of a GPU in MIG mode is DEFAULT and cannot be changed.
    mode = "default" if options.scope == "instance" else "exclusive_process"
    return HostSharing(compute_mode=mode, daemons=_daemons(sharing, options, gpus))


def _daemons(sharing: Sharing, options: HostOptions, gpus: Sequence[Mapping[str, Any]]) -> tuple[Daemon, ...]:
    _refuse_protocol(options)
    unknown = set(options.limits_mib or {}) - {int(gpu["index"]) for gpu in gpus}
    if unknown:
        raise Refused(
            "nvidia_sharing_mps_limits",
            f"this host has no GPU {', '.join(str(index) for index in sorted(unknown))}",
            f"It has {', '.join(str(gpu['index']) for gpu in gpus) or 'none'}.",
        )
    if options.scope == "instance":
        return tuple(_instance_daemons(sharing, options, gpus))
    divided = [gpu for gpu in gpus if (gpu.get("mig") or {}).get("current")]
    if divided:
        raise Refused(
            "nvidia_sharing_mps_scope",
            f"GPU {divided[0]['index']} is in MIG mode, and a daemon for the scope {options.scope} serves whole GPUs",
            "Set nvidia_sharing_mps_scope: instance.",
        )
    devices = [(str(gpu["uuid"]), _limit(sharing, options, gpu)) for gpu in gpus]
    if options.scope == "node":
        return (_daemon("node", f"{ROOT}/{RESOURCE}", f"{LOGS}/node", devices, options),) if devices else ()
    return tuple(
        _daemon(f"gpu{gpu['index']}", f"{ROOT}/gpu{gpu['index']}", f"{LOGS}/gpu{gpu['index']}", [device], options)
        for gpu, device in zip(gpus, devices)
    )


def _refuse_protocol(options: HostOptions) -> None:
    """Protocol 3 has limits for a named server only, and clients have to be told its directory."""
    if options.protocol == 2:
        return
    thing = "nvidia_sharing_mps_protocol"
    if options.protocol != 3:
        raise Refused(thing, f"MPS has no protocol {options.protocol}", "Use 2 or 3.")
    if options.scope == "node":
        raise Refused(
            thing,
            "the scope node keeps the directories of the device plugin, which speaks protocol 2 only",
            "Set nvidia_sharing_mps_scope: gpu or instance, or nvidia_sharing_mps_protocol: 2.",
        )
    if not options.multi_user:
        raise Refused(
            thing,
            "with protocol 3 the limits are those of a server of root, which takes clients of other users only in multi-user mode",
            "Set nvidia_sharing_mps_multi_user: true, or nvidia_sharing_mps_protocol: 2.",
        )
    if options.percentage % 1:
        raise Refused(
            "nvidia_sharing_mps_active_thread_percentage",
            f"protocol 3 takes whole percents, not {options.percentage:g}",
            f"Use {int(options.percentage)}, or nvidia_sharing_mps_protocol: 2.",
        )


def _instance_daemons(sharing: Sharing, options: HostOptions, gpus: Sequence[Mapping[str, Any]]) -> list[Daemon]:
    daemons = []
    for gpu in gpus:
        for instance in gpu.get("gpu_instances") or ():
            for part in instance.get("compute_instances") or ():
                name = f"mig{gpu['index']}-{instance['id']}-{part['id']}"
                limit = _limit(sharing, options, {**gpu, "memory_mib": instance.get("memory_mib")})
                daemons.append(_daemon(name, f"{ROOT}/{name}", f"{LOGS}/{name}", [(str(part["uuid"]), limit)], options))
    if not daemons:
        raise Refused(
            "nvidia_sharing_mps_scope",
            "instance asks for a daemon on each MIG device, and this host has none",
            "Set nvidia_mig_layout, or nvidia_sharing_mps_scope: gpu.",
        )
    return daemons


def _limit(sharing: Sharing, options: HostOptions, gpu: Mapping[str, Any]) -> int:
    """A slice is given exactly; replicas divide what the device has, rounded down to whole MiB as the device plugin does."""
    own = (options.limits_mib or {}).get(int(gpu["index"]))
    if own is not None:
        return own
    if sharing.slice_mib:
        sharing.replicas_on(gpu.get("memory_mib"))
        return sharing.slice_mib
    total = gpu.get("memory_mib")
    return arithmetic.mps_limits(int(total), sharing.replicas).memory_mib if total and sharing.replicas else 0


def _daemon(name: str, folder: str, logs: str, devices: Sequence[tuple[str, int]], options: HostOptions) -> Daemon:
    pipe = f"{folder}/pipe"
    if len(pipe) > LONGEST_PIPE_DIRECTORY:
        raise Refused(
            "nvidia_sharing_mps_scope", f"the pipe directory {pipe} is longer than {LONGEST_PIPE_DIRECTORY} characters"
        )
    return Daemon(
        name=name,
        devices=tuple(uuid for uuid, _limit_mib in devices),
        pipe_directory=pipe,
        log_directory=logs,
        limits_mib=tuple(limit_mib for _uuid, limit_mib in devices),
        percentage=options.percentage or 100.0,
        priority=PRIORITIES[options.priority],
        multi_user=options.multi_user,
        protocol=options.protocol,
    )
