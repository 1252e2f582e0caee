# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which job of Slurm has which device of a host: by the environment of its tasks, and the device files of gres.conf. Pure; no controller is asked."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .documents import whole_number
from .slurm_files import expanded, lines_of, read_with_includes

#: The driver numbers the capabilities of MIG by the minor number of the GPU and by the IDs of the instances (C(/proc/driver/nvidia-caps/mig-minors)).
_FIRST, _OF_GPU, _OF_INSTANCE = 3, 135, 9
#: What tasks are told comes in an environment that users write, too: nothing else is taken from it, and no more devices than a host has.
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{1,80}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,63}")
_MOST_DEVICES = 16


def device_files(minor: int, gpu_instance: int | None = None, compute_instance: int | None = None) -> tuple[str, ...]:
    """Return the device files that a job needs for a GPU or a MIG device."""
    gpu = f"/dev/nvidia{minor}"
    if gpu_instance is None or compute_instance is None:
        return (gpu,)
    instance = _FIRST + minor * _OF_GPU + gpu_instance * _OF_INSTANCE
    return (gpu, *(f"/dev/nvidia-caps/nvidia-cap{cap}" for cap in (instance, instance + 1 + compute_instance)))


def key_of(files: Iterable[str]) -> str:
    """Return the key of the device with these files. That of a GPU is its file, as in the records of the kubelet."""
    return ",".join(sorted(files))


def jobs_of(tasks: Iterable[Mapping[str, str]], read: Callable[[str], str | None]) -> dict[str, list[dict[str, Any]]]:
    """Return C(allocations) of the facts: the jobs of a host by the UUID or the L(key_of) of their devices.

    :param tasks: the environments with which slurmstepd started the tasks.
    :param read: the text of a file of the host.
    """
    known: dict[tuple[str, str], tuple[list[tuple[str, str]], bool]] = {}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for task in tasks:
        job = task.get("SLURM_JOB_ID", "")
        numbers = task.get("SLURM_STEP_GPUS") or task.get("SLURM_JOB_GPUS") or ""
        if whole_number(job) is None or not numbers:
            continue
        where = (task.get("SLURM_CONF") or "/etc/slurm/slurm.conf", task.get("SLURMD_NODENAME", ""))
        if where not in known:
            known[where] = _devices(*where, read), _constrained(where[0], read)
        devices, constrained = known[where]
        visible = task.get("CUDA_VISIBLE_DEVICES", "").split(",")[:_MOST_DEVICES]
        sees = [name for name in visible if _UUID.fullmatch(name)]
        # Of a number CUDA makes the first MIG device that the job can open, whichever it was given.
        first = "" if sees or constrained or whole_number(visible[0]) is None else f"CUDA_VISIBLE_DEVICES={visible[0]}"
        wanted = map(whole_number, numbers.split(","))
        given = [devices[one] for one in wanted if one is not None and one < len(devices)]
        user = task.get("SLURM_JOB_USER", "")
        said = {"job": job, "user": user if _USER.fullmatch(user) else None}
        # Where slurmd finds the devices itself, it tells the job their UUIDs.
        for key, resource in given or [(name, "gpu") for name in sees]:
            by_number = f"the first MIG device of the host ({first})" if first and "," in key else ""
            seen = ",".join(sees) or by_number
            entry = {**said, "resource": resource, **({"sees": seen} if given and seen else {})}
            # Of several tasks of a job the first is as good as any, unless one sees something else.
            found.setdefault(key, {}).setdefault(job, entry)
    return {key: list(jobs.values()) for key, jobs in found.items()}


def _devices(configuration: str, node: str, read: Callable[[str], str | None]) -> list[tuple[str, str]]:
    """Return key and type of each device of a node in the order of Slurm's numbers: by the types of C(Gres), then by the lines of gres.conf."""
    folder = posixpath.dirname(configuration)
    order: list[str] = []
    for line in lines_of(read_with_includes([configuration], folder, read)):
        if node in expanded(line.get("nodename", "")) and "gres" in line:
            order = [part.split(":")[1] if part.count(":") > 1 else "" for part in line["gres"].split(",")]
    found = []
    for line in lines_of(read_with_includes([f"{folder}/gres.conf"], folder, read)):
        mine = "nodename" not in line or node in expanded(line["nodename"])
        if mine and line.get("name") == "gpu":
            kind = line.get("type", "")
            each = sorted(expanded(line.get("file", "")), key=lambda name: (len(name), name))
            groups = [[name] for name in each] or [line.get("multiplefiles", "").split(",")]
            found += [(kind, key_of(files)) for files in groups]
    found.sort(key=lambda one: order.index(one[0]) if one[0] in order else len(order))
    return [(key, f"gpu:{kind}" if kind else "gpu") for kind, key in found]


def _constrained(configuration: str, read: Callable[[str], str | None]) -> bool:
    """Return whether Slurm's cgroups keep a job from the devices of others."""
    folder = posixpath.dirname(configuration)
    lines = lines_of(read_with_includes([configuration, f"{folder}/cgroup.conf"], folder, read))
    asked = any("cgroup" in line.get("taskplugin", "") for line in lines)
    return asked and any(line.get("constraindevices", "").lower() == "yes" for line in lines)


def told(entry: Mapping[str, Any], names: Iterable[str | None]) -> dict[str, Any]:
    """Return an allocation of a device with these names. It keeps what its job C(sees) only where that is another device."""
    sees = str(entry.get("sees") or "").split(",")
    right = any(name in sees for name in names)
    return {key: value for key, value in entry.items() if key != "sees" or not right}
