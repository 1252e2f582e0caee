# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The specification of a lab: its hosts, their boards and their groups."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .progress import LabError

_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,39}[a-z0-9])?")
_GROUP_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_SNAPSHOT = re.compile(r"[a-z0-9-]*")
_HOST_KEYS = {"name", "group", "boards", "nvswitch", "driver", "headers", "node", "snapshot"}
_DRIVERS = ("none", "installed")
_NODES = ("none", "containerd-1.6", "containerd-2.4")


@dataclass(frozen=True)
class Boards:
    """So many boards of one kind; C(board) is a key of the table of boards, such as h100-80gb-sxm."""

    board: str
    count: int


@dataclass(frozen=True)
class HostSpec:
    """One host: its pool (an inventory group below gpu_hosts), its hardware and what is on its disk.

    :param snapshot: the kept disk that it starts from; it has boards, keys and names of its own.
    :param node: whether it is a node of the lab's Kubernetes cluster, by the container runtime of its kubelet.
    """

    name: str
    group: str
    boards: tuple[Boards, ...]
    nvswitch: int = 0
    driver: str = "none"
    headers: bool = True
    node: str = "none"
    snapshot: str = ""


DEMO = (
    HostSpec("gpu-training-1", "training", (Boards("h100-80gb-sxm", 8),), nvswitch=4),
    HostSpec("gpu-batch-1", "batch", (Boards("a100-40gb", 8),)),
    HostSpec("gpu-shared-1", "shared", (Boards("l40s", 4),)),
)
"""The lab of the demo: MIG mixed, MIG single and MPS."""


DEMO_NODES = tuple(replace(host, node=_NODES[2] if host.group == "training" else _NODES[1]) for host in DEMO)
"""The same as nodes of a cluster: one pool with a containerd that injects CDI devices, two with Debian's."""


def as_nodes(hosts: tuple[HostSpec, ...]) -> tuple[HostSpec, ...]:
    """The same hosts as nodes of a cluster, with Debian's containerd where they name no other."""
    return tuple(replace(host, node=_NODES[1]) if host.node == "none" else host for host in hosts)


def read_spec(path: Path) -> tuple[HostSpec, ...]:
    """Read a specification file (JSON, or YAML where this Python has PyYAML).

    :raises LabError: with the path of the wrong value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LabError(
            f"Failed to read the specification {path}: {error.strerror}. Name a file that exists."
        ) from error
    return parse_spec(_load(text, path), str(path))


def _load(text: str, path: Path) -> Any:
    try:
        if path.suffix == ".json":
            return json.loads(text)
        import yaml
    except ImportError as error:
        raise LabError(
            f"Failed to read {path}: this Python has no PyYAML. Call the lab with the Python of the project "
            "(.venv/bin/python tests/lab/lab ...) or write the specification as JSON (.json)."
        ) from error
    except ValueError as error:
        raise LabError(f"Failed to read {path}: {error}. Write it as JSON.") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LabError(f"Failed to read {path}: {error}. Write it as YAML.") from error


def parse_spec(data: Any, origin: str = "spec") -> tuple[HostSpec, ...]:
    """Check a specification completely and return its hosts.

    :raises LabError: with the path of the wrong value.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("hosts"), list) or not data["hosts"]:
        raise LabError(f"Failed to read {origin}: 'hosts' must be a list of at least one host.")
    hosts = tuple(_host(entry, f"{origin}: hosts[{index}]") for index, entry in enumerate(data["hosts"]))
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise LabError(f"Failed to read {origin}: two hosts are named '{name}'. Give each its own name.")
    return hosts


def _host(entry: Any, path: str) -> HostSpec:
    if not isinstance(entry, Mapping):
        raise LabError(f"Failed to read {path}: it must be a mapping with the keys {', '.join(sorted(_HOST_KEYS))}.")
    unknown = sorted(set(entry) - _HOST_KEYS)
    if unknown:
        raise LabError(f"Failed to read {path}.{unknown[0]}: unknown key. Known are {', '.join(sorted(_HOST_KEYS))}.")
    name, group = entry.get("name"), entry.get("group", "gpu_hosts")
    if not isinstance(name, str) or not _HOST_NAME.fullmatch(name):
        raise LabError(f"Failed to read {path}.name: {name!r} is not a host name of at most 41 characters [a-z0-9-].")
    if not isinstance(group, str) or not _GROUP_NAME.fullmatch(group):
        raise LabError(f"Failed to read {path}.group: {group!r} is not an inventory group name.")
    driver, headers, nvswitch = entry.get("driver", "none"), entry.get("headers", True), entry.get("nvswitch", 0)
    if driver not in _DRIVERS:
        raise LabError(f"Failed to read {path}.driver: {driver!r} must be one of {', '.join(_DRIVERS)}.")
    node = entry.get("node", "none")
    if node not in _NODES:
        raise LabError(f"Failed to read {path}.node: {node!r} must be one of {', '.join(_NODES)}.")
    snapshot = entry.get("snapshot", "")
    if not isinstance(snapshot, str) or not _SNAPSHOT.fullmatch(snapshot):
        raise LabError(f"Failed to read {path}.snapshot: {snapshot!r} is not the name of a snapshot [a-z0-9-].")
    if not isinstance(headers, bool):
        raise LabError(f"Failed to read {path}.headers: {headers!r} must be true or false.")
    if isinstance(nvswitch, bool) or not isinstance(nvswitch, int) or not 0 <= nvswitch <= 16:
        raise LabError(f"Failed to read {path}.nvswitch: {nvswitch!r} must be a number of NVSwitches from 0 to 16.")
    boards = entry.get("boards", [])
    if not isinstance(boards, list):
        raise LabError(f"Failed to read {path}.boards: it must be a list of {{board, count}}.")
    return HostSpec(
        name=name,
        group=group,
        boards=tuple(_boards(item, f"{path}.boards[{index}]") for index, item in enumerate(boards)),
        nvswitch=nvswitch,
        driver=driver,
        headers=headers,
        node=node,
        snapshot=snapshot,
    )


def _boards(item: Any, path: str) -> Boards:
    if not isinstance(item, Mapping) or set(item) != {"board", "count"} or not isinstance(item["board"], str):
        raise LabError(f"Failed to read {path}: it must be {{board: <key of the table of boards>, count: <number>}}.")
    count = item["count"]
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 16:
        raise LabError(f"Failed to read {path}.count: {count!r} must be a number from 1 to 16.")
    return Boards(item["board"], count)


def host_to_json(host: HostSpec) -> dict[str, Any]:
    """The host as plain data, for the lab's state file."""
    return asdict(host)


def host_from_json(data: Mapping[str, Any]) -> HostSpec:
    """The inverse of M(host_to_json)."""
    return _host({**data, "boards": [dict(item) for item in data["boards"]]}, "state")
