# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses the GPUs of a host: processes, from procfs, the end of some of them, and pods, from the kubelet's own records.

NVML only names processes with a CUDA or graphics context; a process that merely has C(/dev/nvidia*) open blocks the
unloading of the driver as well (host.md, section 5.3).
"""

from __future__ import annotations

import os
import re
import signal
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._formats.documents import whole_number
from .._formats.kubelet_checkpoint import CHECKPOINT, CLAIMS, HeldDevices, place_of, read_checkpoint, read_claims
from .._formats.slurm_jobs import device_files, jobs_of, key_of, told
from .._plan import Refused
from .files import HostFiles, read_text

_POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
_CONTAINER = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
_DEVICE = "/dev/nvidia"


@dataclass(frozen=True)
class HolderScan:
    """All processes that have device files of NVIDIA open, as entries of C(holders) of the facts, and how many processes could not be looked into
    (other users', without root).
    """

    holders: tuple[dict[str, Any], ...]
    hidden: int


@dataclass(frozen=True)
class ProgramProcess:
    """A running process that was found by its program's name. C(foreign): whether it runs in another mount namespace: its paths are not the host's."""

    pid: int
    parent: int
    command_line: tuple[str, ...]
    environment: dict[str, str] | None
    foreign: bool
    unit: str | None = None
    user: int | None = None


def device_holders(files: HostFiles, node: str | None = None) -> HolderScan:
    """Return every process that has C(/dev/nvidia*) open, except this one, in which NVML opens them too. C(node): one device such as C(/dev/nvidia0);
    None for all of them.
    """
    holders = []
    hidden = 0
    for pid in _process_ids(files):
        if pid == os.getpid():
            continue
        try:
            devices = _open_devices(files, pid, node)
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue
        if devices:
            cgroup = files.read(f"/proc/{pid}/cgroup") or ""
            pod, container = parse_cgroup(cgroup)
            holders.append(
                {
                    "pid": pid,
                    "command": files.read(f"/proc/{pid}/comm") or "",
                    "command_line": " ".join(_arguments(files, pid))[:200],
                    "devices": devices,
                    "pod_uid": pod,
                    "container_id": container,
                    "unit": None if container else unit_of(cgroup, ".service"),
                }
            )
    return HolderScan(tuple(holders), hidden)


def parse_cgroup(text: str) -> tuple[str | None, str | None]:
    """Return the pod's uid (systemd writes it with underscores) and the container's id from C(/proc/<pid>/cgroup)."""
    pod = _POD.search(text)
    containers = _CONTAINER.findall(text)
    return (pod.group(1).replace("_", "-") if pod else None), (containers[-1] if containers else None)


def unit_of(cgroup: str, kind: str) -> str | None:
    """Return the systemd unit of a process from C(/proc/<pid>/cgroup): the last part of its cgroup, or None. The line of systemd has no controllers
    (version 2), or is named C(name=systemd) (version 1); a host can have both. C(kind): C(.service) or C(.scope).
    """
    for line in cgroup.splitlines():
        _number, _separator, rest = line.partition(":")
        controllers, _separator, path = rest.partition(":")
        last = path.rpartition("/")[2]
        if controllers in ("", "name=systemd") and last.endswith(kind):
            return last
    return None


def process_names(files: HostFiles) -> dict[int, str | None]:
    """Return what the kernel calls each process, cut to 15 characters: whoever looks for programs of several kinds reads them once."""
    return {pid: files.read(f"/proc/{pid}/comm") for pid in _process_ids(files)}


def program_processes(
    files: HostFiles, *programs: str, names: Mapping[int, str | None] | None = None
) -> tuple[ProgramProcess, ...]:
    """Return the running processes whose program's file is called like one of C(programs); zombies do not count. C(names): L(process_names)."""
    short_names = {program[:15] for program in programs}
    own_namespace = _mount_namespace(files, "self")
    found = []
    for pid, name in (process_names(files) if names is None else names).items():
        if name not in short_names:
            continue
        arguments = _arguments(files, pid)
        if not arguments or os.path.basename(arguments[0]) not in programs:
            continue
        namespace = _mount_namespace(files, str(pid))
        found.append(
            ProgramProcess(
                pid=pid,
                parent=_parent(files, pid),
                command_line=arguments,
                environment=_environment(files, pid),
                foreign=None not in (namespace, own_namespace) and namespace != own_namespace,
                unit=unit_of(files.read(f"/proc/{pid}/cgroup") or "", ".service"),
                user=_user(files, pid),
            )
        )
    return tuple(found)


def _process_ids(files: HostFiles) -> list[int]:
    return sorted(pid for pid in map(whole_number, files.names("/proc")) if pid is not None)


def _open_devices(files: HostFiles, pid: int, node: str | None) -> list[str]:
    folder = os.path.join(files.root, f"proc/{pid}/fd")
    found = set()
    for descriptor in os.listdir(folder):
        path = os.path.join(folder, descriptor)
        try:
            target = os.readlink(path)
            start = target.rfind(_DEVICE)
            # A container can have the host's devices below another directory, and files of such a name are no devices.
            if start == 0 or (start > 0 and stat.S_ISCHR(os.stat(path).st_mode)):
                found.add(target[start:])
        except FileNotFoundError:
            continue
    return sorted(found if node is None else found & {node})


def _arguments(files: HostFiles, pid: int) -> tuple[str, ...]:
    raw = files.read_bytes(f"/proc/{pid}/cmdline") or b""
    return tuple(part.decode("utf-8", "replace") for part in raw.rstrip(b"\0").split(b"\0") if part)


def _environment(files: HostFiles, pid: int) -> dict[str, str] | None:
    raw = files.read_bytes(f"/proc/{pid}/environ")
    if raw is None:
        return None
    pairs = (part.decode("utf-8", "replace").partition("=") for part in raw.split(b"\0") if part)
    return {name: value for name, _separator, value in pairs}


def _parent(files: HostFiles, pid: int) -> int:
    # The name in parentheses may hold spaces and parentheses itself: the fields begin after the last one.
    fields = (files.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return whole_number(fields[1]) or 0 if len(fields) > 1 else 0


def _user(files: HostFiles, pid: int) -> int | None:
    try:
        return os.stat(os.path.join(files.root, f"proc/{pid}")).st_uid
    except OSError:
        return None


def _mount_namespace(files: HostFiles, process: str) -> str | None:
    return files.link_name(f"/proc/{process}/ns/mnt")


def terminate(pids: Iterable[int], grace: float = 10.0) -> tuple[int, ...]:
    """End processes, exactly these, politely for C(grace) seconds and then not; return those that are still there."""
    left = tuple(sorted(set(pids)))
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        left = _signal(left, number)
        end = time.monotonic() + seconds
        while left and time.monotonic() < end:
            time.sleep(0.1)
            left = _alive(left)
    return left


def _signal(pids: tuple[int, ...], number: signal.Signals) -> tuple[int, ...]:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return _alive(pids)


def _alive(pids: tuple[int, ...]) -> tuple[int, ...]:
    """Return those that still run; a zombie holds no GPU any more."""
    states = {pid: (read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split() for pid in pids}
    return tuple(pid for pid, fields in states.items() if fields and fields[0] not in ("Z", "X"))


#: The key of what concerns every GPU.
EVERY_GPU = ""
_PODS, _LOGS = "/var/lib/kubelet/pods", "/var/log/pods"
#: A kubelet has 110 pods by default, and an entry takes some hundred bytes.
_LARGEST = 8 * 1024 * 1024


def job_tasks(files: HostFiles, names: Mapping[int, str | None]) -> list[dict[str, str]]:
    """Return the environments with which Slurm started the tasks of jobs that are on the host. The file of Slurm's configuration is the one that slurmstepd
    has: a user may write another into a task.
    """
    own = _mount_namespace(files, "self")
    # Anybody's process can have the name, root of a container, too.
    steps = {
        pid: _environment(files, pid) or {}
        for pid, name in names.items()
        if name == "slurmstepd" and _user(files, pid) == os.geteuid() and _mount_namespace(files, str(pid)) == own
    }
    pids = names if steps else ()
    tasks = [
        (_environment(files, pid) or {}, steps[parent]) for pid in pids if (parent := _parent(files, pid)) in steps
    ]
    return [{**task, "SLURM_CONF": step.get("SLURM_CONF", "")} for task, step in tasks]


def read_allocations(
    files: HostFiles, names: Mapping[int, str | None] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return C(allocations) of the facts by the UUID of the device, its L(place_of), or its L(key_of). Under EVERY_GPU is why they are not known, of each
    record of the kubelet for itself. Without a kubelet and jobs of Slurm it is empty. C(names): L(process_names).
    """
    found = _allocated_pods(files)
    for key, jobs in jobs_of(job_tasks(files, process_names(files) if names is None else names), files.read).items():
        found.setdefault(key, []).extend(jobs)
    return found


def _allocated_pods(files: HostFiles) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    entries: list[HeldDevices] = []
    for path, read in ((CHECKPOINT, lambda text: read_checkpoint(text, "").entries), (CLAIMS, read_claims)):
        size = files.size(path)
        if size is None:
            continue
        written = None if size > _LARGEST else files.read(path)
        if written is None:
            why = f"it has {size} bytes" if size > _LARGEST else "it is not readable"
            found.setdefault(EVERY_GPU, []).append({"reason": f"{path}: {why}"})
            continue
        try:
            entries += read(written)
        except Refused as refused:
            found.setdefault(EVERY_GPU, []).append({"reason": f"{refused.thing}: {refused.reason}"})
    # The folder of a pod's logs is named by its namespace, its name and its UID, none of which has an underscore.
    titles = {
        uid: f"{space}/{name}"
        for space, name, uid in (one.split("_") for one in files.names(_LOGS) if one.count("_") == 2)
    }
    there = set(files.names(_PODS))
    if entries and not files.exists(_PODS):
        # With --root-dir a kubelet keeps pods and claims elsewhere, but not the record of its device plugins.
        reason = f"{_PODS} does not exist, so which pods of {CHECKPOINT} there still are is not known"
        found.setdefault(EVERY_GPU, []).append({"reason": reason})
    for entry in entries:
        if entry.pod_uid not in there:
            continue
        told = {"pod_uid": entry.pod_uid, "container": entry.container or None, "resource": entry.resource}
        for device in dict.fromkeys(one.partition("::")[0] for one in entry.devices):
            key, said = device, {"pod": titles.get(entry.pod_uid), **told}
            if not entry.container and not device.startswith("/dev/"):
                reason = f"{CLAIMS}: {entry.resource} has a device that is not known here, {device}"
                key, said = EVERY_GPU, {"reason": reason}
            found.setdefault(key, []).append(said)
    return found


def add_allocations(gpus: Iterable[dict[str, Any]], held: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Add C(allocations) to entries of C(gpus) of the facts. C(held): of L(read_allocations)."""
    for gpu in gpus:
        minor, uuid = gpu.get("minor"), gpu.get("uuid")
        parts = [(gpu, [place_of(minor)], [uuid])]
        for one in gpu.get("gpu_instances") or ():
            for part in one.get("compute_instances") or ():
                ids = (one.get("id"), part.get("id"))
                keys = [place_of(minor, one.get("start")), key_of(device_files(minor or 0, *ids))]
                parts.append((part, keys, [part.get("uuid"), f"MIG-{uuid}/{ids[0]}/{ids[1]}"]))
        for part, places, names in parts:
            keys = [part.get("uuid") or "-", *places, *([EVERY_GPU] if part is gpu else [])]
            if part is gpu and minor is None and not gpu.get("lost"):
                keys += [key for key in held if key.startswith("/dev/")]
            found = [told(said, names) for key in keys for said in held.get(key, ())]
            if found:
                part["allocations"] = found
