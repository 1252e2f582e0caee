# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CDI specifications on the host, and whether they still describe the GPUs that are there.

NVIDIA's own refresh unit does not notice a change of MIG instances (host.md, section 8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._formats.documents import read_json
from .host_reader import HostReader

#: The kind of the specification of the GPUs.
GPU_KIND = "nvidia.com/gpu"
FOLDERS = ("/etc/cdi", "/var/run/cdi")
#: Where the container toolkit keeps its own.
DEFAULT_PATH = "/var/run/cdi/nvidia.yaml"
_SHOWN = 8
_INDEX = re.compile(r"\d+(:\d+)?")


@dataclass(frozen=True)
class Specification:
    """A CDI specification: its C(kind) (such as C(nvidia.com/gpu)), the names of its devices, its CDI version."""

    path: str
    kind: str | None
    version: str | None
    devices: tuple[str, ...]


def parse_specification(path: str, text: str) -> Specification:
    """Return the specification in C(text).

    The files for a host full of MIG instances have thousands of lines, which the pure Python YAML parser takes
    seconds for, and hosts need not have one: the shape that generators write is read line by line.

    :raises ValueError: it is neither JSON nor YAML of that shape.
    """
    if path.endswith(".json"):
        document = read_json(text)
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")
        names = [device.get("name") for device in document.get("devices") or []]
        return Specification(path, document.get("kind"), document.get("cdiVersion"), tuple(map(str, names)))
    return _scan_yaml(path, text)


def _scan_yaml(path: str, text: str) -> Specification:
    top: dict[str, str] = {}
    names: list[str] = []
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
    return Specification(path, top["kind"], top.get("cdiVersion"), tuple(names))


def _scalar(text: str) -> str:
    return text.strip().strip("\"'")


def compare(devices: Sequence[str], gpus: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the devices of the host that C(devices) lacks, and the names in it that stand for nothing any more.

    A device may be named by its index (C(0), C(0:1)) or its UUID; either is enough, also when a generator writes both.
    What a GPU that fell off the bus was named by is not known, so that then no name is one of nothing.
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
    stale = {name for name in names - known if _INDEX.fullmatch(name) or name.startswith(("GPU-", "MIG-"))}
    return missing, sorted(stale)


def read_cdi(source: HostReader, gpus: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the part C(cdi) of the facts.

    :param gpus: the part C(gpus) of the facts, or None where NVML does not answer: then nothing can be compared.
    """
    found: list[dict[str, Any]] = []
    for folder in FOLDERS:
        for name in source.files.names(folder):
            if not name.endswith((".json", ".yaml", ".yml")):
                continue
            path = f"{folder}/{name}"
            text = source.files.read(path)
            try:
                if text is None:
                    raise ValueError("it cannot be read")
                specification = parse_specification(path, text)
            except ValueError as error:
                source.note(f"cdi[{len(found)}].kind", f"{path}: {error}")
                found.append({"path": path, "kind": None, "devices": None, "version": None})
                continue
            found.append(_facts(specification, gpus))
    return found


def _facts(specification: Specification, gpus: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "path": specification.path,
        "kind": specification.kind,
        "devices": len(specification.devices),
        "version": specification.version,
    }
    if specification.kind == GPU_KIND and gpus is not None:
        missing, stale = compare(specification.devices, gpus)
        facts.update({"missing": missing[:_SHOWN], "stale": stale[:_SHOWN]})
    return facts
