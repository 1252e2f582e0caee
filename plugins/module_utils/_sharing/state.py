# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host has of sharing, as the host reads it or as its facts say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._facts_view import Facts, MpsDaemonFacts
from .._formats.mps_commands import limit_text
from .._gpu_facts import GpuFacts
from .._records import UNREADABLE, Daemon, HostSharing
from .._users import MPS_CLIENT, User, allocated, merged
from .mps_instances import ROOT, UNIT, instance


@dataclass(frozen=True)
class Server:
    """An MPS server of a daemon, with the process ids of its clients."""

    pid: int
    clients: tuple[int, ...] = ()


@dataclass(frozen=True)
class ObservedDaemon:
    """A daemon as it was read.

    :param configured: what its unit starts it with, or None when no unit file of ours describes it.
    :param responds: whether it answers the health question with a float.
    :param percentage: default active thread percentage, None when it does not respond.
    :param limits: default limit of each device as the daemon prints it, in the order of C(configured.devices).
    :param shm: whether its /dev/shm is the directory that C(configured) says; None where that cannot be read.
    :param pods: those that the kubelet gave one of its devices, whether or not a client of theirs runs; nobody where it does not respond.
    """

    name: str
    configured: Daemon | None
    responds: bool
    enabled: bool
    percentage: float | None = None
    limits: tuple[str | None, ...] = ()
    priority: str | None = None
    servers: tuple[Server, ...] = ()
    shm: bool | None = None
    pods: tuple[User, ...] = ()

    @property
    def clients(self) -> tuple[int, ...]:
        return tuple(pid for server in self.servers for pid in server.clients)


@dataclass(frozen=True)
class SharedGpu:
    """What sharing needs to know of a GPU. C(foreign): processes that compute on the GPU and are no clients of MPS."""

    index: int
    uuid: str
    compute_mode: str | None
    foreign: tuple[User, ...] = ()


@dataclass(frozen=True)
class Observed:
    """The sharing of a host as it was read.

    :param foreign_daemons: MPS control daemons that are not the host program's, such as that of the device plugin.
    :param multi_user: whether its release can let clients of several users share a server.
    :param shm_mounted: whether the shared memory of pods' MPS is mounted, or would be after a reboot.
    """

    gpus: tuple[SharedGpu, ...] = ()
    daemons: tuple[ObservedDaemon, ...] = ()
    recorded: HostSharing | None = None
    installed: bool = True
    multi_user: bool = True
    protocol_3: bool = True
    foreign_daemons: tuple[MpsDaemonFacts, ...] = ()
    shm_mounted: bool = False


def from_facts(facts: Facts, gpus: Sequence[GpuFacts], wanted: HostSharing | None = None) -> Observed:
    """What facts tell of the present sharing. Which processes the clients of a daemon are, only the module on the host sees. C(wanted): a daemon of
    it that answers where no record says how it was configured is taken for it: its own file says so, which only the module reads.
    """
    recorded = facts.recorded.sharing
    unrecorded = recorded in (None, UNREADABLE)
    known = wanted if unrecorded else recorded
    answering = {
        str(daemon.pipe_directory): daemon for daemon in facts.mps or () if daemon.responds and not daemon.in_container
    }
    return Observed(
        gpus=tuple(SharedGpu(gpu.index, str(gpu.uuid), gpu.compute_mode) for gpu in gpus),
        daemons=tuple(
            _daemon(daemon, answering.get(daemon.pipe_directory), _is_enabled(facts, daemon.name), gpus)
            for daemon in (known.daemons if known else ())
            if not unrecorded or daemon.pipe_directory in answering
        ),
        recorded=recorded,
        # The device plugin's goes with its pods, and what a user runs for itself does not answer root.
        foreign_daemons=tuple(daemon for pipe, daemon in answering.items() if not pipe.startswith(f"{ROOT}/")),
    )


def _is_enabled(facts: Facts, name: str) -> bool:
    """Whether systemd starts a daemon at boot, and there is a unit to start it from; taken for true where facts do not tell of units."""
    units = facts.host_program.units
    found = units and units.get(instance(name))
    return units is None or bool(UNIT in units and found and found.state == "enabled")


def pods_of(daemon: Daemon, gpus: Sequence[GpuFacts]) -> tuple[User, ...]:
    """Return the pods that were given a device of a daemon."""
    found: list[User] = []
    for gpu in gpus:
        served = [part for part in gpu.parts if part.uuid in daemon.devices]
        # Who was given the whole GPU, or perhaps was, may use any part of it.
        found += [user for part in (*served, *([gpu] if served else [])) for user in allocated(part.allocations)]
    return merged(found)


def _daemon(daemon: Daemon, found: MpsDaemonFacts | None, enabled: bool, gpus: Sequence[GpuFacts]) -> ObservedDaemon:
    """A recorded daemon is taken for configured as recorded: its unit and its record are written together. C(found): what facts tell of it, None
    where it does not answer. Settings that they do not tell are taken for the recorded ones.
    """
    percentage, limits = (found.percentage, found.limits) if found else (None, None)
    return ObservedDaemon(
        name=daemon.name,
        configured=daemon,
        responds=found is not None,
        enabled=enabled,
        percentage=daemon.percentage if percentage is None else percentage,
        limits=tuple(map(limit_text, daemon.limits_mib)) if limits is None else limits,
        priority=str(daemon.priority),
        pods=(pods_of(daemon, gpus) or _counted(found)) if found is not None else (),
    )


def _counted(daemon: MpsDaemonFacts) -> tuple[User, ...]:
    """Return the clients of a daemon of which facts tell the number alone, where no pods are known."""
    count = daemon.clients
    return (User(MPS_CLIENT, f"{count} MPS client{'s' if count > 1 else ''}"),) if count else ()
