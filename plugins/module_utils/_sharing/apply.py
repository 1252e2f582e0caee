# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read and apply the sharing of a host: the part that talks to NVML, systemd and the MPS daemons."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from .._adapters import command, files, mps_control, nvml_gpus, systemd
from .._adapters.files import HostFiles
from .._adapters.mps_control import MpsControl, MpsControl3, MpsError, MpsNotRunning
from .._adapters.nvml_gpus import Nvml
from .._adapters.nvml_library import HOST_PROGRAM, NvmlError
from .._adapters.processes import ProgramProcess, add_allocations, program_processes, read_allocations
from .._facts_view import MpsDaemonFacts
from .._formats.documents import read_record
from .._gpu_facts import GpuFacts, gpu_view
from .._plan import Failure, Plan, Step
from .._printable import printable
from .._records import SHARING, UNREADABLE, Daemon, HostSharing
from .._runtime.unit_reload import reload_units
from .._steps import Kind
from .._users import PROCESS, User
from . import mps_instances, mps_units
from .host import SHM
from .state import Observed, ObservedDaemon, Server, SharedGpu, pods_of

RECORD = "/etc/gpufleet/sharing.json"
UNITS = "/etc/systemd/system"
#: nvidia-smi's numbers for the names of a time slice.
TIME_SLICES = {"default": 0, "short": 1, "medium": 2, "long": 3}
#: Seconds between two questions to a daemon that does not answer yet.
_PAUSE = 0.25
#: States of a unit whose daemon answers, or will.
_LIVING = ("active", "activating", "deactivating")
#: Seconds for systemd to stop a daemon and to start it again, which its unit bounds.
_RESTART_SECONDS = 300.0
_HOST_SHM = "/dev/shm"


def observe(nvml: Nvml | None) -> Observed:
    """Read the sharing of this host."""
    processes = program_processes(HostFiles(), mps_control.PROGRAM)
    read = [state.facts for state in nvml.gpus()] if nvml else []
    add_allocations(read, read_allocations(HostFiles()))
    shaped = [gpu_view(printable(gpu)) for gpu in read]
    daemons = tuple(_observe_daemon(name, processes, shaped) for name in _names())
    ours = {server.pid for daemon in daemons for server in daemon.servers} | {
        pid for daemon in daemons for pid in daemon.clients
    }
    gpus = []
    for gpu in shaped:
        if gpu.lost:
            continue
        foreign = tuple(
            User(PROCESS, process.name or "a process", process.pid)
            for process in gpu.processes or ()
            if process.type == "C" and process.pid not in ours
        )
        gpus.append(SharedGpu(gpu.index, gpu.uuid or "", gpu.compute_mode, foreign))
    return Observed(
        gpus=tuple(gpus),
        daemons=daemons,
        recorded=recorded(),
        installed=mps_control.installed(),
        multi_user=mps_control.multi_user_option() is not None,
        protocol_3=mps_control.has_protocol_3(),
        foreign_daemons=_foreign_daemons(processes),
        # What the device plugin's daemon mounts there is not enabled as a unit.
        shm_mounted=systemd.available() and bool(systemd.enabled([mps_units.SHM_UNIT])),
    )


def recorded() -> HostSharing | None:
    """Return what this host restores at boot, or None when nothing is recorded."""
    text = files.read_text(RECORD, links=False)
    return (read_record(SHARING, text) or UNREADABLE) if text else None


def apply(plan: Plan, wanted: HostSharing, nvml: Nvml | None) -> None:
    """Carry out C(plan), step by step.

    :raises Failure: a step failed; running again goes on from there.
    :raises Refused: systemd would have to be reloaded, and containers would lose their GPUs; nothing was stopped.
    """
    daemons = {daemon.name: daemon for daemon in wanted.daemons}
    # Before the first daemon ends: systemd may have to be reloaded, which is refused where containers would lose their GPUs.
    starting = (Kind.START_MPS_DAEMON, Kind.ENABLE_MPS_DAEMON)
    _write_units([daemons[step.target] for step in plan.steps if step.kind in starting])
    for step in plan.steps:
        try:
            _apply_step(step, daemons, wanted, nvml)
        except (command.CommandError, MpsError, NvmlError, OSError) as error:
            raise Failure(f"Failed to {step.what}: {error}") from error


def control_of(daemon: Daemon) -> MpsControl | MpsControl3:
    """Return what talks to C(daemon) in its protocol."""
    return (MpsControl3 if daemon.protocol == 3 else MpsControl)(daemon.pipe_directory)


def apply_settings(daemon: Daemon) -> None:
    """Tell a running daemon its settings, each read back. Raises MpsError: it does not answer in time, or a value was not taken."""
    control = control_of(daemon)
    _wait_for_answer(control)
    if isinstance(control, MpsControl3):
        control.ensure_server()
    control.set_thread_percentage(daemon.percentage)
    for ordinal, mib in enumerate(daemon.limits_mib):
        control.set_memory_limit(ordinal, mib)
    control.set_priority(daemon.priority)


def configured(name: str) -> Daemon | None:
    """Return the daemon that the environment file of instance C(name) describes."""
    return mps_units.daemon_of(_environment(name))


def set_time_slice(name: str) -> None:
    """Set the time slice of all GPUs; NVML has no public call for it, and it does not survive a reboot."""
    command.run(["nvidia-smi", "compute-policy", f"--set-timeslice={TIME_SLICES[name]}"], allowed=(0,))


def _wait_for_answer(control: MpsControl | MpsControl3) -> None:
    """Wait until a daemon answers: C(-d) comes back before it does, and on a busy host an answer takes its time. Raises MpsError: it does not within
    L(mps_units.READY_SECONDS).
    """
    end = time.monotonic() + mps_units.READY_SECONDS
    while True:
        try:
            if control.thread_percentage() is not None:
                return
            last = "its answer is not a number"
        except (MpsError, command.CommandError) as error:
            last = str(error)
        if time.monotonic() >= end:
            raise MpsError(
                f"No answer from the MPS daemon at {control.pipe_directory} within {mps_units.READY_SECONDS:g} s ({last}); "
                "control.log in its log directory says what it does"
            )
        time.sleep(_PAUSE)


def _foreign_daemons(processes: Sequence[ProgramProcess]) -> tuple[MpsDaemonFacts, ...]:
    """Return the control daemons that are none of ours: ours are known by their units, or by their pipe directories."""
    described = [configured(name) for name in _names()] + list((recorded() or HostSharing()).daemons)
    ours = {daemon.pipe_directory for daemon in described if daemon}
    found = []
    for process in processes:
        environment = process.environment or {}
        if not mps_instances.is_daemon(process.command_line) or mps_instances.is_instance(process.unit):
            continue
        # Anybody can call a program so. A user's own daemon that has a GPU is seen by its server, which computes there.
        if process.user:
            continue
        pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY") or ""
        if not process.foreign and pipe in ours:
            continue
        devices = mps_instances.named_devices(environment)
        found.append(MpsDaemonFacts(process.pid, pipe, in_container=process.foreign, devices=devices))
    return tuple(found)


def _environment(name: str) -> str:
    return files.read_text(mps_units.environment_path(name), links=False) or ""


def _names() -> list[str]:
    return [name[: -len(".env")] for name in files.list_directory(mps_units.FOLDER) if name.endswith(".env")]


def _observe_daemon(name: str, processes: Sequence[ProgramProcess], gpus: Sequence[GpuFacts]) -> ObservedDaemon:
    daemon = configured(name)
    written = None if daemon and mps_units.is_changed(_environment(name), daemon) else daemon
    if daemon is None:
        # Where somebody changed the file, a daemon may run all the same, and have clients.
        daemon = next((item for item in (recorded() or HostSharing()).daemons if item.name == name), None)
    instance = mps_units.instance(name)
    unit = systemd.unit(instance) if systemd.available() else None
    enabled = unit is not None and instance in systemd.enabled([instance])
    silent = ObservedDaemon(name, written, responds=False, enabled=enabled)
    if daemon is None:
        return silent
    # A daemon that runs and is late is not a dead one: to start it anew would end its clients. Nor is one that a job of systemd, left by
    # a run that was cut off, is just starting anew.
    end = time.monotonic() + mps_units.READY_SECONDS
    while True:
        found = _ask(silent, daemon, processes)
        if found is not None:
            return replace(found, pods=pods_of(daemon, gpus))
        if unit is None or unit.active not in _LIVING or time.monotonic() >= end:
            return silent
        time.sleep(_PAUSE)
        unit = systemd.unit(instance)


def _ask(silent: ObservedDaemon, daemon: Daemon, processes: Sequence[ProgramProcess]) -> ObservedDaemon | None:
    """Return what a daemon says of itself, or None when it does not answer all questions."""
    control = control_of(daemon)
    try:
        percentage = control.thread_percentage()
        if percentage is None:
            return None
        return replace(
            silent,
            responds=True,
            percentage=percentage,
            limits=tuple(control.memory_limit(ordinal) for ordinal in range(len(daemon.devices))),
            priority=control.priority(),
            servers=tuple(Server(pid, control.clients(pid)) for pid in control.servers()),
            shm=_has_shm(daemon, processes),
        )
    except (MpsError, command.CommandError):
        return None


def _has_shm(daemon: Daemon, processes: Sequence[ProgramProcess]) -> bool | None:
    """Whether the daemon's /dev/shm is the directory that its clients get; None where no process of it can be looked into."""
    for process in processes:
        if (
            mps_instances.is_daemon(process.command_line)
            and (process.environment or {}).get("CUDA_MPS_PIPE_DIRECTORY") == daemon.pipe_directory
        ):
            return files.same(f"/proc/{process.pid}/root{_HOST_SHM}", daemon.shm_directory or _HOST_SHM)
    return None


def _apply_step(step: Step, daemons: Mapping[str, Daemon], wanted: HostSharing, nvml: Nvml | None) -> None:
    if step.kind is Kind.STOP_MPS_DAEMON:
        _stop(step.target)
    elif step.kind is Kind.UNMOUNT_SHARED_MEMORY:
        systemd.stop(mps_units.SHM_UNIT)
        systemd.disable([mps_units.SHM_UNIT])
    elif step.kind is Kind.SET_COMPUTE_MODE and nvml:
        nvml_gpus.set_compute_mode(nvml, int(step.data["index"]), str(step.data["mode"]))
    elif step.kind is Kind.SET_TIME_SLICE:
        set_time_slice(str(step.data["time_slice"]))
    elif step.kind is Kind.START_MPS_DAEMON:
        _start(daemons[step.target])
    elif step.kind is Kind.SET_MPS_DEFAULTS:
        _write_environment(daemons[step.target])
        apply_settings(daemons[step.target])
    elif step.kind is Kind.END_IDLE_MPS_SERVER:
        _end_server(daemons[step.target], int(step.data["pid"]))
    elif step.kind is Kind.ENABLE_MPS_DAEMON:
        _enable(step.target)
    elif step.kind is Kind.RECORD_SHARING:
        files.write_whole(RECORD, wanted.as_text())


def _write_units(daemons: Sequence[Daemon]) -> None:
    """Have systemd know the units of daemons that are to be started, now or at boot, and none of them masked."""
    if not daemons:
        return
    names = [mps_units.instance(daemon.name) for daemon in daemons]
    changed = (
        set(names) if files.write_whole(f"{UNITS}/{mps_instances.UNIT}", mps_units.unit_text(HOST_PROGRAM)) else set()
    )
    if any(daemon.shm_directory for daemon in daemons) and files.write_whole(
        f"{UNITS}/{mps_units.SHM_UNIT}", mps_units.SHM_UNIT_TEXT
    ):
        changed.add(mps_units.SHM_UNIT)
    for daemon, name in zip(daemons, names):
        drop_in = f"{UNITS}/{mps_units.shm_drop_in(daemon.name)}"
        text = mps_units.SHM_DROP_IN_TEXT if daemon.shm_directory else None
        if files.remove(drop_in) if text is None else files.write_whole(drop_in, text):
            changed.add(name)
        # Systemd has the mask in memory until the reload below, which is refused, if at all, before a daemon is stopped.
        systemd.unmask(name)
    reload_units([*names, mps_units.SHM_UNIT], changed)


def _start(daemon: Daemon) -> None:
    _write_environment(daemon)
    if daemon.shm_directory:
        systemd.enable([mps_units.SHM_UNIT])
        # What is mounted there stays, for the pods that have it, unless it is the host's own shared memory.
        if not files.is_mount(SHM) or files.same(SHM, _HOST_SHM):
            systemd.restart(mps_units.SHM_UNIT)
    _enable(daemon.name)
    # A unit that systemd thinks active while its daemon does not answer is started anew.
    systemd.restart(mps_units.instance(daemon.name), timeout=_RESTART_SECONDS)


def _enable(name: str) -> None:
    systemd.enable([mps_units.instance(name)])


def _write_environment(daemon: Daemon) -> None:
    option = mps_control.multi_user_option() or mps_units.MULTI_USER_OPTIONS[0]
    files.write_whole(mps_units.environment_path(daemon.name), mps_units.environment_text(daemon, option))


def _stop(name: str) -> None:
    unit = mps_units.instance(name)
    systemd.stop(unit)
    systemd.disable([unit])
    files.remove(mps_units.environment_path(name))


def _end_server(daemon: Daemon, pid: int) -> None:
    control = MpsControl(daemon.pipe_directory)
    with suppress(MpsNotRunning):
        # A client may have come since the plan was made; its server is left to it.
        if pid in control.servers() and not control.clients(pid):
            control.stop_idle_server(pid)
