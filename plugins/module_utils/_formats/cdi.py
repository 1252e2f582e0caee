# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CDI specifications: which of a host's is the collection's, and whether they describe the GPUs and the driver that are there. Pure.

NVIDIA's own refresh unit does not notice a change of MIG instances (host.md, section 8). Runtimes read every file of both folders; of two with the same
device, that in /var/run/cdi counts, and of two in one folder neither (CDI specification, pkg/cdi/cache.go [code]).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .documents import read_json, whole_number
from .driver_versions import is_driver_version

#: The kind of the specification of the GPUs.
GPU_KIND = "nvidia.com/gpu"
FOLDERS = ("/etc/cdi", "/var/run/cdi")
#: Where the container toolkit keeps its own.
DEFAULT_PATH = "/var/run/cdi/nvidia.yaml"
_SHOWN = 8
_INDEX = re.compile(r"\d+(:\d+)?")
_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}(?:\.\d{1,3}){1,2})\b")


@dataclass(frozen=True)
class Specification:
    """A CDI specification.

    :param drivers: versions of the driver whose libraries it mounts.
    :param nodes: the device nodes, with their major numbers; None where that is left to the runtime.
    """

    path: str
    kind: str | None
    version: str | None
    devices: tuple[str, ...]
    drivers: tuple[str, ...] = ()
    nodes: Mapping[str, int | None] = field(default_factory=dict)
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExpectedDevices:
    """What a specification of the GPUs has to describe. C(nodes): the device nodes that belong to no GPU, with their major numbers; None for one that
    is not there.
    """

    gpus: Sequence[Mapping[str, Any]]
    driver: str | None = None
    nodes: Mapping[str, int | None] = field(default_factory=dict)


def shape_specification(
    found: Specification, own: bool, expected: ExpectedDevices | None, absent: Sequence[str] = ()
) -> dict[str, Any]:
    """Return one entry of the part C(cdi) of the facts.

    :param own: whether it is the collection's. Another one need not have all: a site may have given names of its own to some devices.
    :param absent: the hooks that are not on the host, without which no container with a GPU starts.
    """
    entry: dict[str, Any] = {
        "path": found.path,
        "kind": found.kind,
        "devices": len(found.devices),
        "version": found.version,
    }
    if found.kind == GPU_KIND and expected is not None:
        missing, stale = compare(found.devices, expected.gpus)
        differs = [*_differs(found, expected), *(_lacks(found, expected) if own else ())]
        if absent:
            differs.append(f"runs {', '.join(absent[:_SHOWN])}, which the host does not have")
        if not own:
            # From before MIG: the collection's own names no GPU that is partitioned, which would be given to a container whole.
            divided = [gpu for gpu in expected.gpus if gpu.get("gpu_instances")]
            whole = {name for gpu in divided for name in (str(gpu["index"]), str(gpu["uuid"]))}
            stale += sorted(whole.intersection(found.devices))
        entry |= {"missing": missing[:_SHOWN], "stale": stale[:_SHOWN], "differs": differs}
    return {**entry, "own": own}


def name_doubles(entries: Iterable[dict[str, Any]], specifications: Sequence[Specification]) -> None:
    """Name as C(double) of a file the one of its folder that has a device of it, too: runtimes take neither. The collection's own stays, or else the
    first that is right.
    """
    by_path = {one.path: one for one in specifications if one.kind == GPU_KIND}
    # One that is not right is written anew, or moved aside, in any case.
    right = [one for one in entries if one["own"] or (one.get("differs") == [] and not one.get("stale"))]
    kept: dict[tuple[str, str], str] = {}
    for entry in sorted((one for one in right if one["path"] in by_path), key=lambda one: not one["own"]):
        path = str(entry["path"])
        # A site may have a name for all in a file of names of its own.
        names = [(path.rpartition("/")[0], device) for device in by_path[path].devices if device != "all"]
        double = next((kept[name] for name in names if name in kept), None)
        if double is None:
            kept.update(dict.fromkeys(names, path))
        else:
            entry["double"] = double


def compare(devices: Sequence[str], gpus: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the devices of the host that C(devices) lacks, and the names in it that stand for nothing any more. A device may be named by its index
    (C(0), C(0:1)) or its UUID; either is enough, also when a generator writes both. What a GPU that fell off the bus was named by is not known, so
    that then no name is one of nothing.
    """
    names = set(devices) - {"all"}
    known: set[str] = set()
    missing = []
    for gpu in gpus:
        if gpu.get("lost"):
            continue
        known |= {str(gpu["index"]), str(gpu["uuid"])}
        if not (gpu.get("mig") or {}).get("current"):
            if not names & {str(gpu["index"]), str(gpu["uuid"])}:
                missing.append(str(gpu["uuid"]))
            continue
        for instance in gpu.get("gpu_instances") or []:
            for compute in instance["compute_instances"]:
                index = compute.get("index")
                both = {str(compute["uuid"])} | ({f"{gpu['index']}:{index}"} if index is not None else set())
                known |= both
                if not names & both:
                    missing.append(str(compute["uuid"]))
    if any(gpu.get("lost") for gpu in gpus):
        return missing, []
    rest = names - known
    return missing, sorted(name for name in rest if _INDEX.fullmatch(name) or name.startswith(("GPU-", "MIG-")))


def _differs(found: Specification, expected: ExpectedDevices) -> Iterator[str]:
    others = [version for version in found.drivers if version != expected.driver]
    if others and expected.driver:
        yield f"mounts libraries of driver {', '.join(others[:_SHOWN])}, but {expected.driver} is loaded"
    for node, major in expected.nodes.items():
        if found.nodes.get(node) is not None and major not in (None, found.nodes[node]):
            yield f"gives {node} the major number {found.nodes[node]}, but it is {major}"


def _lacks(found: Specification, expected: ExpectedDevices) -> Iterator[str]:
    absent = [node for node, major in expected.nodes.items() if node not in found.nodes or major is None]
    if absent:
        yield f"lacks {', '.join(absent)}"


def parse_specification(path: str, text: str) -> Specification:
    """Return the specification in C(text). The files for a host full of MIG instances have thousands of lines, which the pure Python YAML parser
    takes seconds for, and hosts need not have one: the shape that generators write is read line by line. Raises ValueError: it is neither JSON nor
    YAML of that shape.
    """
    versions = dict.fromkeys(match.group(1) for match in _LIBRARY.finditer(text))
    drivers = tuple(version for version in versions if is_driver_version(version))
    if not path.endswith(".json"):
        return _scan_yaml(path, text, drivers)
    document = read_json(text)
    devices = document.get("devices") or [] if isinstance(document, dict) else None
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        raise ValueError("not a JSON object with a list of devices")
    parts = (document, *devices)
    nodes = {
        str(node.get("path")): major if isinstance(major := node.get("major"), int) else None
        for node in _edits("deviceNodes", parts)
    }
    hooks = tuple(dict.fromkeys(str(hook.get("path")) for hook in _edits("hooks", parts)))
    kind, version = (None if document.get(key) is None else str(document[key]) for key in ("kind", "cdiVersion"))
    return Specification(
        path, kind, version, tuple(str(device.get("name")) for device in devices), drivers, nodes, hooks
    )


def _edits(kind: str, parts: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for part in parts:
        edits = part.get("containerEdits")
        found = edits.get(kind) if isinstance(edits, dict) else None
        yield from (one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()


def _scan_yaml(path: str, text: str, drivers: tuple[str, ...]) -> Specification:
    top: dict[str, str] = {}
    names: list[str] = []
    item: dict[str, str] = {}
    nodes: dict[str, int | None] = {}
    hooks: dict[str, None] = {}
    section = ""
    item_indent: int | None = None
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or stripped == "---":
            continue
        indent = len(line) - len(line.lstrip(" "))
        if indent == 0 and not stripped.startswith("-"):
            section, colon, value = stripped.partition(":")
            if not colon:
                raise ValueError(f"line {stripped!r} is not understood")
            top[section] = _scalar(value)
            item_indent = None
            continue
        # The fields of a device node or a hook, in any order.
        if stripped.startswith("- "):
            item = {}
        name, _colon, value = stripped.removeprefix("- ").strip().partition(":")
        if name in ("path", "major", "hookName"):
            item[name] = _scalar(value)
            # A hook has a path as well.
            if "hookName" in item and "path" in item:
                hooks[item["path"]] = None
            elif item.get("path", "").startswith("/dev/"):
                nodes[item["path"]] = whole_number(item.get("major"))
        if section != "devices":
            continue
        if item_indent is None and stripped.startswith("-"):
            item_indent = indent
        if item_indent is None:
            raise ValueError("the list of devices is not understood")
        if indent == item_indent and stripped.startswith("-"):
            stripped, indent = stripped[1:].strip(), item_indent + 2
        if indent == item_indent + 2 and stripped.startswith("name:"):
            names.append(_scalar(stripped[len("name:") :]))
    if "kind" not in top:
        raise ValueError("it has no kind")
    return Specification(path, top["kind"], top.get("cdiVersion"), tuple(names), drivers, nodes, tuple(hooks))


def _scalar(text: str) -> str:
    return text.strip().strip("\"'")
