# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the facts document holds, read while NVML, systemd and other programs answer what L(document) asked them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from .._adapters.cdi_generator import read_cdi
from .._adapters.command import CommandError
from .._adapters.host_reader import HostReader
from .._adapters.installed_packages import kernel_packages
from .._adapters.mps_control import MpsControl, MpsControl3, MpsError, multi_user_option_of, program_in
from .._adapters.pci import read_pci_devices
from .._adapters.processes import (
    EVERY_GPU,
    ProgramProcess,
    add_allocations,
    process_names,
    program_processes,
    read_allocations,
)
from .._boards.lookup import find_board
from .._printable import LONGEST_OUTPUT, printable
from .._schema import FACTS_SCHEMA
from .._sharing.mps_instances import DEFAULT_PIPE_DIRECTORY, ROOT, is_daemon, is_instance, named_devices
from .driver import read_driver
from .environment import (
    read_dcgm,
    read_fabric,
    read_host_program,
    read_kubelet,
    read_mig_parted,
    read_recorded,
    read_runtimes,
    read_toolkit,
)
from .host import Services, missing_headers, read_host

#: Parts that hold texts of many lines.
_WITH_OUTPUT = ("health", "mig_parted")


def shape_pci(device: dict[str, Any]) -> dict[str, Any]:
    """Return one entry of C(pci)."""
    # The id alone works without a driver.
    board = find_board(device["device_id"])
    return {**device, "board": board.key if board else None, "architecture": board.architecture if board else None}


def read_contents(
    source: HostReader,
    subsets: Sequence[str],
    nvml_answer: Callable[[], dict[str, Any]],
    services_answer: Callable[[], Services],
) -> dict[str, Any]:
    """Return the facts document of the host."""
    devices = read_pci_devices(source.files)
    if devices is None:
        source.note("pci", "/sys/bus/pci/devices is not there")
    services = services_answer()
    host = read_host(source)
    driver, packages = read_driver(source, host["package_manager"], services)
    host["kernel_packages"] = None if packages is None else kernel_packages(packages)
    host["headers_not_offered"] += missing_headers(source, host, driver)
    nvml = nvml_answer()
    gpus = nvml["gpus"]
    processes = process_names(source.files)
    allocations = read_allocations(source.files, processes)
    add_allocations(gpus or (), allocations)
    unread = [one["reason"] for one in allocations.get(EVERY_GPU, ())]
    if unread:
        source.note("gpus.allocations", "; ".join(unread))
    runtimes = read_runtimes(source, services, "containers" in subsets)
    folders = [folder for runtime in runtimes.values() for folder in runtime.get("cdi_folders") or ()]
    document: dict[str, Any] = {
        "schema": FACTS_SCHEMA,
        "host": host,
        "pci": None if devices is None else [shape_pci(device) for device in devices if device["kind"] != "other"],
        "driver": driver,
        "nvml": nvml["nvml"],
        "gpus": gpus,
        "fabric": read_fabric(source, devices, services, nvml["fabric_state"], packages),
        "mps": read_mps(source, processes),
        "mps_control": read_mps_control(source),
        "toolkit": read_toolkit(source, packages, driver["holds"]),
        "dcgm": read_dcgm(source, packages, driver["holds"], services),
        "runtimes": runtimes,
        "kubelet": read_kubelet(source, services),
        "cdi": read_cdi(source, gpus, driver["loaded_version"], folders),
        "recorded": read_recorded(source),
        "host_program": read_host_program(source, services),
    }
    # What few callers need is not imported for all of them.
    if "health" in subsets:
        from .health import read_health

        document["health"] = read_health(source, document["pci"])
    if "holders" in subsets:
        document["holders"] = _holders(source)
    if "mig_parted" in subsets:
        document["mig_parted"] = read_mig_parted(source)
    document["unknown"] = dict(sorted(source.unknown.items()))
    # Names of processes, for one, are whatever somebody called them.
    return {
        name: printable(part, lines=True, longest=LONGEST_OUTPUT) if name in _WITH_OUTPUT else printable(part)
        for name, part in document.items()
    }


def _holders(source: HostReader) -> list[dict[str, Any]]:
    from .._adapters.processes import device_holders

    scan = device_holders(source.files)
    if scan.hidden:
        source.note_denied("holders", f"{scan.hidden} processes cannot be inspected")
    return list(scan.holders)


# MPS control daemons that run on the host, whoever started them: those of the host, of users, and the device plugin's in its container.
# A daemon counts as responding when it answers C(get_default_active_thread_percentage) with a number, which is also what
# Kubernetes' device plugin asks (host.md, section 9.3).

CONTROL = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
#: Where the device plugin's daemon has L(ROOT) of the host (k8s-device-plugin, cmd/mps-control-daemon/mps/root.go).
_ROOT_IN_CONTAINER = "/mps"
#: As many devices as a host has GPUs, and more than a daemon can serve.
_MOST_DEVICES = 64
#: Characters of a device's name that the facts take.
_LONGEST_NAME = 256


def _is_control_daemon(process: ProgramProcess) -> bool:
    return process.command_line[0].endswith(CONTROL) and is_daemon(process.command_line)


def read_mps_control(source: HostReader) -> dict[str, Any]:
    """Return the part C(mps_control) of the facts: what the installed release of the control program can do. C(multi_user) is None where the program
    is not installed, or is not found behind a script.
    """
    path = source.files.find_program(CONTROL)
    program = program_in(source.files)
    if path and program is None:
        source.note("mps_control.multi_user", f"{path} cannot be read, or is a script that starts another program")
    return {
        "installed": path is not None,
        "multi_user": None if program is None else multi_user_option_of(program) is not None,
    }


def read_mps(source: HostReader, names: Mapping[int, str | None] | None = None) -> list[dict[str, Any]]:
    """Return the part C(mps) of the facts, by process id. C(names): L(process_names)."""
    processes = program_processes(source.files, CONTROL, SERVER, names=names)
    daemons = [process for process in processes if _is_control_daemon(process)]
    found = []
    for position, daemon in enumerate(daemons):
        path = f"mps[{position}]"
        servers = [
            process.pid for process in processes if process.parent == daemon.pid and not _is_control_daemon(process)
        ]
        # Ours have a /dev/shm of their own, and the host's paths otherwise.
        contained = daemon.foreign and not is_instance(daemon.unit)
        pipe = _pipe_directory(daemon)
        if contained and pipe is not None:
            pipe = _pipe_on_host(source, pipe) or pipe
        facts: dict[str, Any] = {
            "pipe_directory": pipe,
            "pid": daemon.pid,
            "in_container": contained,
            "responds": None,
            "percentage": None,
            "limits": None,
            "clients": None,
            "servers": servers,
        }
        if pipe is None:
            source.note_denied(f"{path}.pipe_directory", "the daemon's environment cannot be read")
        elif daemon.user not in (None, 0, os.geteuid()):
            # Its pipe is where its user wants it: root does not open it.
            source.note(f"{path}.responds", f"the daemon belongs to the user {daemon.user}, so it is not queried")
        elif contained and not pipe.startswith(f"{ROOT}/"):
            source.note(
                f"{path}.responds", f"the daemon runs in a container of its own, and its pipe is not below {ROOT}"
            )
        elif not source.files.local:
            source.note(f"{path}.responds", "the daemon of another host cannot be queried")
        else:
            control = source.mps3(pipe) if speaks_3(daemon) else source.mps(pipe)
            facts.update(_ask(source, path, control, servers))
            if facts["responds"]:
                facts["limits"] = _limits(source, path, control, _devices(source, daemon))
        devices = named_devices(daemon.environment or {})
        # Whoever starts a process of this name decides what stands here.
        shown = [name[:_LONGEST_NAME] for name in devices[:_MOST_DEVICES]]
        found.append({**facts, **({"devices": shown} if devices else {})})
    return found


def _pipe_on_host(source: HostReader, pipe: str) -> str | None:
    """Return where the host has a pipe directory of the device plugin's daemon, or None when it is none of the plugin's. Which directory that is, the
    container says: only what lies where the plugin makes it is taken.
    """
    if not pipe.startswith(f"{_ROOT_IN_CONTAINER}/"):
        return None
    there = ROOT + pipe[len(_ROOT_IN_CONTAINER) :]
    # Clients can write there: a link leads anywhere.
    return there if source.files.is_directory(there) and source.files.resolve(there) == there else None


def _devices(source: HostReader, daemon: ProgramProcess) -> int:
    """Return how many devices a daemon serves: those that it was started for, or all GPUs."""
    named = (daemon.environment or {}).get("CUDA_VISIBLE_DEVICES")
    count = len(source.files.names("/proc/driver/nvidia/gpus")) if named is None else len(named.split(","))
    return min(count, _MOST_DEVICES)


def _pipe_directory(daemon: ProgramProcess) -> str | None:
    if daemon.environment is None:
        return None
    return daemon.environment.get("CUDA_MPS_PIPE_DIRECTORY", DEFAULT_PIPE_DIRECTORY)


def speaks_3(process: ProgramProcess) -> bool:
    """Whether a daemon was started with protocol 3; the variable beats the option."""
    named = (process.environment or {}).get("CUDA_MPS_PROTOCOL_VERSION")
    words = list(process.command_line)
    given = [after for word, after in zip(words, words[1:]) if word in ("-p", "--protocol")]
    return (named or (given[-1] if given else "2")) == "3"


def _ask(source: HostReader, path: str, daemon: MpsControl | MpsControl3, servers: list[int]) -> dict[str, Any]:
    try:
        percentage = daemon.thread_percentage()
        if percentage is None:
            source.note(f"{path}.percentage", "the daemon's answer is not a number")
            return {"responds": False}
        clients = sum(len(daemon.clients(server)) for server in servers)
    except (CommandError, MpsError) as error:
        source.note(f"{path}.percentage", str(error))
        return {"responds": False}
    return {"responds": True, "percentage": percentage, "clients": clients}


def _limits(source: HostReader, path: str, daemon: MpsControl | MpsControl3, devices: int) -> list[str] | None:
    """Return the memory limit of a client on each device as the daemon prints it, empty for none; or None when it does not tell them."""
    found = []
    for ordinal in range(devices):
        try:
            limit = daemon.memory_limit(ordinal)
        except (CommandError, MpsError) as error:
            source.note(f"{path}.limits", str(error))
            return None
        if limit is None:
            source.note(f"{path}.limits", f"the daemon's answer for device {ordinal} is not a limit")
            return None
        found.append(limit)
    return found
