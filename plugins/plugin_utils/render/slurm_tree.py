# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of one Slurm cluster: what its slurm.conf, gres.conf and cgroup.conf include, and what its nodes must then show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils._formats.slurm_files import compressed
from ...module_utils._plan import Refused
from ..fleet.slurm import SlurmDevice, SlurmResources
from .emit import comment, filled, json_text

CAPACITY = "capacity.json"
#: The releases of Slurm for which files are written, and the one that they were run with.
RUN_WITH = "22.05"
_SHARED = ("shard", "mps")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_GRES = re.compile(r"[A-Za-z0-9_]+(:[A-Za-z0-9._-]+)*(:[0-9]+[KMGTP]?)?")
_FOLDER = re.compile(r"/[A-Za-z0-9_./+-]*")
_PARAMETERS = "gpu_slurm_node_parameters"
#: What the description of the node says itself.
_SAID = {"nodename": "gpu_slurm_node_name", "gres": "gpu_slurm_other_gres"}


@dataclass(frozen=True)
class SlurmNode:
    """A node of a Slurm cluster: its name, its host and pool, its generic resources, and what else its line in slurm.conf says."""

    name: str
    host: str
    pool: str
    resources: SlurmResources
    parameters: tuple[tuple[str, str], ...]
    other_gres: tuple[str, ...] = ()

    @property
    def gres(self) -> str:
        return ",".join(part for part in (self.resources.gres, *self.other_gres) if part)


@dataclass(frozen=True)
class SlurmCluster:
    """A cluster with its options, sorted by node.

    :param pending: why nothing can be said of a node yet, by node.
    :param behind: why a node is rendered as it is now, and not as it is described, by node.
    """

    name: str
    options: Mapping[str, Any]
    nodes: tuple[SlurmNode, ...]
    pending: Mapping[str, str]
    behind: Mapping[str, str]


def parameters(host: str, values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what else the line of a host's node says. Raises Refused: the description says it, it is there twice, or it is no value of one line."""
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        text = str(value)
        path = f"{host}: {_PARAMETERS}.{name}"
        if str(name).lower() in {other.lower() for other, _value in found}:
            raise Refused(path, "Slurm takes names in either case, and has this one twice", "Remove one of them.")
        if str(name).lower() in _SAID:
            reason = f"{name} follows from the description of the host"
            raise Refused(path, reason, f"Remove it; see {_SAID[str(name).lower()]}.")
        if not _WORD.fullmatch(str(name)) or not text.isprintable() or not text or set(text) & set('"#\\'):
            reason = f"{text!r} is not a value of one line of slurm.conf"
            raise Refused(path, reason, "Write a parameter of NodeName and its value, such as RealMemory: 1000000.")
        found.append((str(name), f'"{text}"' if " " in text else text))
    return tuple(found)


def other_gres(host: str, values: Sequence[Any]) -> tuple[str, ...]:
    """Return the other resources of a host's node. Raises Refused: they follow from the description, or are none."""
    for value in map(str, values):
        path = f"{host}: gpu_slurm_other_gres"
        if value.partition(":")[0] in ("gpu", *_SHARED):
            reason = f"{value} follows from the description of the host, with the other resources of its GPUs"
            raise Refused(path, reason, "Remove it; see nvidia_sharing_mode and nvidia_mig_layout.")
        if not _GRES.fullmatch(value):
            raise Refused(path, f"{value!r} is not a generic resource of Slurm", "Write name, type and number: nic:2.")
    return tuple(map(str, values))


def _refuse_options(options: Mapping[str, Any]) -> None:
    """Refuse what would be another line of a file, or a command in the prolog."""
    if not _FOLDER.fullmatch(str(options["directory"])):
        reason = f"{options['directory']!r} is not an absolute path of letters, digits, '.', '_', '+', '-' and '/'"
        raise Refused("gpu_slurm_directory", reason, "Name such a directory, as /etc/slurm/gpufleet.")
    for name in map(str, options["gres_types"]):
        if not _WORD.fullmatch(name):
            raise Refused("gpu_slurm_gres_types", f"{name!r} is not a name of a resource", "Use letters, digits and _.")


def slurm_tree(cluster: SlurmCluster) -> dict[str, str]:
    """Return every file of C(cluster) by its path. Raises Refused: two of its pools cannot be in one cluster."""
    _refuse_options(cluster.options)
    _refuse_shared_beside_mig(cluster)
    folder = str(cluster.options["directory"]).rstrip("/")
    later = f" (run with {RUN_WITH}; for later releases from their documentation)"
    said = "" if cluster.options["version"] == RUN_WITH else later
    made = f"Rendered by gpufleet.nvidia.render for Slurm {cluster.options['version']}{said}.\n"
    files = {
        "nodes.conf": comment(f"{made}In slurm.conf: Include {folder}/nodes.conf") + _nodes(cluster),
        "gres.conf": comment(f"{made}In gres.conf: Include {folder}/gres.conf") + _gres(cluster.nodes),
        CAPACITY: json_text(_capacity(cluster)),
    }
    if cluster.options["constrain_devices"]:
        # Without it a job sees the devices of all others.
        text = f"{made}In cgroup.conf: Include {folder}/cgroup.conf\nIn slurm.conf: TaskPlugin=task/cgroup (with task/affinity, where that is set)"
        files["cgroup.conf"] = comment(text) + "ConstrainDevices=yes\n"
    tables = _tables(cluster)
    if tables:
        files["task-prolog.sh"] = filled("slurm_prolog.sh.j2", made=made.strip(), folder=folder, tables=tables)
    return files


def _refuse_shared_beside_mig(cluster: SlurmCluster) -> None:
    """Where GresTypes lists what is shared, slurmd makes a device of each file, on all nodes: three of a MIG device (22.05.8, C(_build_sharing_list))."""
    shared = [node for node in cluster.nodes if node.resources.shared]
    parts = [node for node in cluster.nodes if any(one.mig for one in node.resources.devices)]
    listed = sorted(set(_SHARED) & set(cluster.options["gres_types"]))
    if parts and (shared or listed):
        whose = f"{shared[0].name} shares its GPUs" if shared else f"gpu_slurm_gres_types has {listed[0]}"
        raise Refused(
            f"Slurm cluster {cluster.name}",
            f"{parts[0].name} has MIG devices and {whose}: where GresTypes has shard or mps, slurmd takes each file of a MIG device for a device of its own",
            "Give pools that share GPUs and pools with MIG Slurm clusters of their own (gpu_slurm_cluster), or set nvidia_sharing_mode: none.",
        )


def _nodes(cluster: SlurmCluster) -> str:
    """Return the lines of slurm.conf. Nodes of which Slurm is told the same have one line."""
    types = {"gpu", *(name.partition(":")[0] for node in cluster.nodes for name in node.gres.split(",") if name)}
    lines = [f"GresTypes={','.join(sorted({*types, *cluster.options['gres_types']}))}"]
    alike: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for node in cluster.nodes:
        alike.setdefault((node.gres, node.parameters), []).append(node.name)
    for (gres, more), names in sorted(alike.items(), key=lambda item: item[1][0]):
        parts = [("NodeName", compressed(names)), *more, *([("Gres", gres)] if gres else [])]
        lines.append(" ".join(f"{name}={value}" for name, value in parts))
    return "".join(f"{line}\n" for line in lines)


def _gres(nodes: Sequence[SlurmNode]) -> str:
    """Return the lines of gres.conf, in which the order of a type's devices is that of their numbers."""
    alike: dict[SlurmResources, list[str]] = {}
    for node in nodes:
        alike.setdefault(node.resources, []).append(node.name)
    lines = []
    for found, names in sorted(alike.items(), key=lambda item: item[1][0]):
        begin = f"NodeName={compressed(names)}"
        devices = ["AutoDetect=nvml"] if found.detected else map(_device, found.devices)
        lines += [f"{begin} {line}" for line in devices]
        units = dict(found.units)
        for device in found.devices if found.shared else ():
            lines.append(
                f"{begin} Name={found.shared} Type={device.type} Count={units[device.type]} File={device.files[0]}"
            )
    return "".join(f"{line}\n" for line in lines)


def _device(device: SlurmDevice) -> str:
    key = "File" if len(device.files) == 1 else "MultipleFiles"
    return f"Name=gpu Type={device.type} {key}={','.join(device.files)}"


def _tables(cluster: SlurmCluster) -> list[tuple[str, list[str]]]:
    """Return, for the nodes whose jobs have to be told their device by its UUID, a line for each device: number, minor, instances, pipe of MPS.

    Slurm says so itself with NVML. ConstrainDevices leaves a job one MIG device to see. A client of MPS needs the directory of its daemon.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for node in cluster.nodes:
        devices = node.resources.devices
        # Slurm numbers GPUs by their types, too: beside another type, a number is hardly ever the minor number.
        parts = not cluster.options["constrain_devices"] and any(
            one.gpu_instance is not None or one.minor != number for number, one in enumerate(devices)
        )
        if (parts and not node.resources.detected) or any(one.pipe for one in devices):
            lines = tuple(_row(number, one) for number, one in enumerate(devices))
            alike.setdefault(lines, []).append(node.name)
    return [("|".join(names), list(lines)) for lines, names in sorted(alike.items(), key=lambda item: item[1][0])]


def _row(number: int, device: SlurmDevice) -> str:
    parts = (device.minor, device.gpu_instance, device.compute_instance, device.pipe or None)
    return " ".join([str(number), *("-" if one is None else str(one) for one in parts)])


def _capacity(cluster: SlurmCluster) -> dict[str, Any]:
    """Return what each node must show once both daemons run with these files: to C(scontrol show node), and to C(slurmd -G)."""
    nodes = {
        node.name: {
            "host": node.host,
            "pool": node.pool,
            "scontrol": {"Gres": node.gres or "(null)"},
            "gres": node.resources.counts,
            # slurmd has its own idea of the files of what it finds.
            "devices": [
                {"type": one.type, "files": [] if node.resources.detected else list(one.files)}
                for one in node.resources.devices
            ],
        }
        for node in cluster.nodes
    }
    return {
        "schema": 1,
        "slurm": cluster.name,
        "version": cluster.options["version"],
        "nodes": nodes,
        "pending": dict(cluster.pending),
    }
