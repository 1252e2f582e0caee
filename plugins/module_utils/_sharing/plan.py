# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan from the sharing that a host has to the sharing that it should have. Pure.

Clients of an MPS daemon die with it, so a step that ends a daemon with clients is refused unless the user allowed it. Settings
alone never need that: they are defaults of servers that start later, and an idle server can be ended without anybody noticing.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._boards.board import FIRST_BRANCH_WITH_MPS_MULTI_USER
from .._facts_view import MpsDaemonFacts
from .._formats.mps_commands import limit_text
from .._plan import Plan, Refused, Step
from .._records import DEFAULT, Daemon, HostSharing
from .._steps import Kind
from .._users import mps_clients, named, names
from .host import SHM
from .mps_instances import DEFAULT_PIPE_DIRECTORY
from .state import Observed, ObservedDaemon, SharedGpu


def plan(observed: Observed, wanted: HostSharing, disruption: str = "refuse") -> Plan:
    """Return the steps, in order: daemons that go, what only they needed, compute modes, time slices, daemons that come or change, the
    record.

    :param disruption: C(refuse) ends no daemon that has clients; C(force) does.
    :raises Refused: a daemon with clients would have to end, a GPU with other processes would become exclusive, or the control
        program of MPS is missing or cannot do what is desired.
    """
    _refuse_program(observed, wanted)
    _refuse_two_daemons(observed, wanted)
    steps: list[Step] = []
    present = {daemon.name: daemon for daemon in observed.daemons}
    desired = {daemon.name for daemon in wanted.daemons}
    steps += [
        _end(daemon, "the desired state has no such daemon", disruption)
        for daemon in observed.daemons
        if daemon.name not in desired
    ]
    if observed.shm_mounted and not any(daemon.shm_directory for daemon in wanted.daemons):
        steps.append(Step(Kind.UNMOUNT_SHARED_MEMORY, SHM, "no MPS daemon of this host uses it"))
    steps += _compute_modes(observed.gpus, wanted)
    # No driver tells its time slice: where nobody recorded another, it is the default.
    present_slice = DEFAULT if observed.recorded is None else observed.recorded.time_slice
    if wanted.time_slice and wanted.time_slice != present_slice:
        why = f"the desired state is {wanted.time_slice}"
        steps.append(Step(Kind.SET_TIME_SLICE, "gpus", why, (), {"time_slice": wanted.time_slice}))
    for daemon in wanted.daemons:
        steps += _daemon(present.get(daemon.name), daemon, disruption)
    # What a driver has after every boot has to be restored by nobody: a host that was set up by hand is not changed for a record of it.
    recorded = observed.recorded
    if (recorded is None or recorded.content != wanted.content) and (
        steps or recorded is not None or not wanted.is_default
    ):
        steps.append(Step(Kind.RECORD_SHARING, "sharing", "it is restored from there after a reboot"))
    return Plan(
        tuple(steps), before=_as_state(observed), after=wanted.as_dict(), warnings=tuple(_warnings(steps, present))
    )


def _compute_modes(gpus: Sequence[SharedGpu], wanted: HostSharing) -> list[Step]:
    steps = []
    for gpu in gpus:
        if wanted.compute_mode is None or gpu.compute_mode == wanted.compute_mode:
            continue
        if wanted.compute_mode != "default" and gpu.foreign:
            reason = f"it is in use by {named(gpu.foreign)}, " + (
                "without MPS, and a GPU of an MPS daemon belongs to its server"
                if wanted.daemons
                else f"and with compute mode {wanted.compute_mode} it could not start again"
            )
            remedy = "Drain the host first (kubectl drain, or end these processes), then run again."
            raise Refused(f"GPU {gpu.index}", reason, remedy)
        why = f"it is {gpu.compute_mode}, the desired state is {wanted.compute_mode}"
        steps.append(compute_mode_step(gpu.index, gpu.uuid, wanted.compute_mode, why))
    return steps


def compute_mode_step(index: int, uuid: str, mode: str, why: str) -> Step:
    """Return the step that sets the compute mode of a GPU. C(uuid): empty before there is a driver to ask."""
    return Step(Kind.SET_COMPUTE_MODE, uuid or str(index), why, (), {"index": index, "mode": mode})


def _daemon(found: ObservedDaemon | None, wanted: Daemon, disruption: str) -> list[Step]:
    start = Step(Kind.START_MPS_DAEMON, wanted.name, "it does not run")
    if found is None or not found.responds:
        return [start]
    if found.configured is None or not _same_start(found.configured, wanted):
        end = _end(found, "its devices, directories or users change, which needs a new daemon", disruption)
        return [end, replace(start, why="with the new devices, directories or users")]
    if found.shm is False:
        end = _end(found, "its shared memory is not that of its clients", disruption)
        return [end, replace(start, why="with the shared memory that its clients get")]
    steps = []
    different = _settings(found, wanted)
    if different or found.configured != wanted:
        why = "; ".join(different) or "the settings that it starts with differ"
        steps.append(Step(Kind.SET_MPS_DEFAULTS, wanted.name, why))
        why = "the next one starts with the new defaults"
        steps += [
            Step(Kind.END_IDLE_MPS_SERVER, wanted.name, why, data={"pid": server.pid})
            for server in found.servers
            # The server of protocol 3 holds the settings: told to it, they are for its next clients.
            if not server.clients and wanted.protocol == 2
        ]
    if not found.enabled:
        steps.append(Step(Kind.ENABLE_MPS_DAEMON, wanted.name, "it would not come back after a reboot"))
    return steps


def _refuse_program(observed: Observed, wanted: HostSharing) -> None:
    if wanted.daemons and not observed.installed:
        thing = "nvidia_sharing_mps_manager"
        remedy = "It comes with NVIDIA's driver packages (nvidia-driver-cuda), and in Debian's as nvidia-cuda-mps."
        raise Refused(thing, "the host is to run MPS, but nvidia-cuda-mps-control is not installed", remedy)
    if any(daemon.protocol == 3 for daemon in wanted.daemons) and not observed.protocol_3:
        thing = "nvidia_sharing_mps_protocol"
        remedy = "Set it to 2, or install a newer driver (nvidia_driver_branch: 615 or later)."
        raise Refused(thing, "the release of nvidia-cuda-mps-control on this host does not speak protocol 3", remedy)
    # With protocol 3 multi-user mode is an option of every release.
    if any(daemon.multi_user and daemon.protocol == 2 for daemon in wanted.daemons) and not observed.multi_user:
        thing = "nvidia_sharing_mps_multi_user"
        remedy = f"Set it to auto or false, or install a newer driver (nvidia_driver_branch, {FIRST_BRANCH_WITH_MPS_MULTI_USER} or later)."
        raise Refused(thing, "the release of nvidia-cuda-mps-control on this host has no multi-user server", remedy)


def _refuse_two_daemons(observed: Observed, wanted: HostSharing) -> None:
    """One GPU has one MPS daemon: of two, the second takes the server's place and the clients of the first find none."""
    for daemon in wanted.daemons:
        for foreign in observed.foreign_daemons:
            if foreign.serves(daemon.devices):
                raise second_daemon(foreign)


def second_daemon(foreign: MpsDaemonFacts) -> Refused:
    """Return that GPUs have an MPS daemon that their pool does not want."""
    where = "in a container, probably the device plugin's" if foreign.in_container else "on the host"
    if foreign.in_container:
        remedy = (
            "Drain the host and end that daemon (the device plugin's: its release of this pool with gfd.enabled false, as rendered), or set "
            "nvidia_sharing_mps_manager: device_plugin."
        )
    else:
        folder = shlex.quote(foreign.pipe_directory or DEFAULT_PIPE_DIRECTORY)
        command = f"echo quit | CUDA_MPS_PIPE_DIRECTORY={folder} nvidia-cuda-mps-control"
        remedy = f"Drain the host and end that daemon ({command}), and what starts it."
    return Refused(
        "nvidia_sharing_mps_manager",
        f"process {foreign.pid} is another MPS control daemon for these GPUs ({where}), but a GPU can have only one",
        remedy,
    )


def _end(daemon: ObservedDaemon, why: str, disruption: str) -> Step:
    clients = (*mps_clients(daemon.clients), *daemon.pods)
    if clients and disruption != "force":
        thing = f"MPS daemon {daemon.name}"
        reason = f"it has to end ({why}), which terminates its clients: {named(clients)}"
        raise Refused(thing, reason, "Drain the host first, or allow it with nvidia_sharing_mps_disruption: force.")
    return Step(Kind.STOP_MPS_DAEMON, daemon.name, why, names(clients))


def _warnings(steps: Sequence[Step], present: Mapping[str, ObservedDaemon]) -> list[str]:
    """Defaults reach servers that start later: say which servers keep the old ones until their clients end."""
    return [
        f"MPS server {server.pid} of {step.target} keeps its old limits until its clients end: {named(mps_clients(server.clients))}"
        for step in steps
        if step.kind is Kind.SET_MPS_DEFAULTS
        for server in present[step.target].servers
        if server.clients
    ]


def _same_start(one: Daemon, other: Daemon) -> bool:
    """Whether two daemons differ in settings only, which a running daemon can be told. Protocol 3 has no command that lifts a limit."""
    if other.protocol == 3 and any(before and not after for before, after in zip(one.limits_mib, other.limits_mib)):
        return False
    # What a daemon can be told; all else it has from its start.
    adjusted = replace(one, limits_mib=other.limits_mib, percentage=other.percentage, priority=other.priority)
    return adjusted == other


def _settings(found: ObservedDaemon, wanted: Daemon) -> list[str]:
    different = []
    if found.percentage is None or abs(found.percentage - wanted.percentage) > 0.05:
        different.append(f"active thread percentage {found.percentage} in place of {wanted.percentage:g}")
    for ordinal, mib in enumerate(wanted.limits_mib):
        present = found.limits[ordinal] if ordinal < len(found.limits) else None
        if present != limit_text(mib):
            different.append(f"limit {present or 'none'} on device {ordinal} in place of {mib} MiB")
    if found.priority != str(wanted.priority):
        different.append(f"client priority {found.priority} in place of {wanted.priority}")
    return different


def _as_state(observed: Observed) -> Mapping[str, Any]:
    modes = {gpu.compute_mode for gpu in observed.gpus}
    return {
        "schema": 1,
        "compute_mode": modes.pop() if len(modes) == 1 else {gpu.index: gpu.compute_mode for gpu in observed.gpus},
        "time_slice": observed.recorded.time_slice if observed.recorded else None,
        "daemons": [
            {
                "name": daemon.name,
                "responds": daemon.responds,
                "percentage": daemon.percentage,
                "limits": list(daemon.limits),
                "priority": daemon.priority,
                "clients": list(daemon.clients),
            }
            for daemon in observed.daemons
        ],
    }
