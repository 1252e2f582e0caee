# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HAMi's configuration: its device plugin's (C(device-config.yaml)) and that of single nodes (C(config.json)).

The fields are those of hami.yml. Both programs read YAML without looking for unknown fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ...module_utils._formats.documents import table
from .finding import Report, is_placeholder, join, mapping, near, sequence
from .node import LintedNode

#: Whether a value is what the table says of a field; a list may be anything.
_FITS: Mapping[str, Callable[[Any], bool]] = {
    "a number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "an integer from 0 on": lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    "true or false": lambda value: isinstance(value, bool),
    "a string": lambda value: not isinstance(value, (Mapping, list)),
    "a list": lambda _value: True,
}
_TABLE: Mapping[str, Any] = table(str(__package__), "hami")
_FIELDS, _OF_A_NODE = _TABLE["fields"], _TABLE["of_a_node"]
_PROFILE = re.compile(r"[^.]+g\..*")


def is_hami(document: Mapping[str, Any]) -> bool:
    """Return whether a file is a configuration of HAMi for NVIDIA's GPUs."""
    nvidia = document.get("nvidia")
    return "nodeconfig" in document or (isinstance(nvidia, Mapping) and bool(set(_FIELDS) & set(nvidia)))


def check(document: Mapping[str, Any], text: str, strategies: Sequence[str], report: Report) -> None:
    """Check one configuration, read from C(text), of a plugin with these device list strategies; without facts nothing is said of the node's GPUs."""
    if "nodeconfig" in document:
        _nodes(document, text, strategies, report)
    else:
        _devices(mapping(document.get("nvidia")), report)


def _devices(given: Mapping[str, Any], report: Report) -> None:
    for key in given:
        if key not in _FIELDS:
            known = _TABLE["successors"].get(key)
            remedy = f"Write {known}." if known else near(str(key), _FIELDS)
            report.warning(join("nvidia", str(key)), "HAMi has no such field and ignores it", remedy)
    for key in _TABLE["needed"]:
        if given.get(key) is None:
            report.error(
                join("nvidia", key),
                "it is missing, and HAMi's device plugin ends with a nil pointer when it needs it",
                'Write it as the chart does: deviceSplitCount: 10, deviceMemoryScaling: 1, libCudaLogLevel: "0".',
            )
    for key, value in given.items():
        wanted = _FIELDS.get(key, "a list")
        if value is not None and not _FITS[wanted](value):
            message = f"{value!r} is not {wanted}: HAMi's scheduler and device plugin do not start"
            report.error(join("nvidia", key), message)
    for key, choices in _TABLE["choices"].items():
        if given.get(key) not in (None, "") and str(given[key]) not in choices:
            report.warning(
                join("nvidia", key), f"{given[key]} is not one of its values", near(str(given[key]), choices)
            )
    if given.get("deviceSplitCount") == 0:
        report.error("nvidia.deviceSplitCount", "with 0 no node offers a GPU", "Write how many pods may share a GPU.")
    for number, entry in enumerate(sequence(given.get("migProfileAllowlist"))):
        _allowed(mapping(entry), f"nvidia.migProfileAllowlist[{number}]", report)


def _allowed(entry: Mapping[str, Any], path: str, report: Report) -> None:
    for key in ("models", "profiles"):
        if not sequence(entry.get(key)):
            report.error(
                join(path, key), "it is empty: HAMi's scheduler and device plugin do not start", f"Name the {key}."
            )
    for profile in sequence(entry.get("profiles")):
        if not _PROFILE.fullmatch(str(profile)):
            message = f"{profile} is no name of a MIG profile: HAMi's scheduler and device plugin do not start"
            report.error(join(path, "profiles"), message, "Write it as nvidia-smi mig -lgip does, such as 1g.10gb.")


def _nodes(document: Mapping[str, Any], text: str, strategies: Sequence[str], report: Report) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        if not is_placeholder(text):
            message = f"this is not JSON ({error}): HAMi logs it and ignores the settings of all nodes"
            report.error("", message, "Correct the syntax.")
            return
        report.note("", "whether it is JSON is known when it is filled in")
    seen: set[str] = set()
    for number, entry in enumerate(sequence(document.get("nodeconfig"))):
        path, given = f"nodeconfig[{number}]", mapping(entry)
        name = str(given.get("name") or "")
        if not name or name in seen:
            why = f"{name} was named before: the later entry wins, field by field" if name else "it names no node"
            report.warning(join(path, "name"), why, "Write one entry for each node.")
        seen.add(name)
        # Go's decoder takes the names of fields in any case.
        for key in given:
            if key.lower() not in _OF_A_NODE:
                report.warning(join(path, key), "HAMi has no such field and ignores it", near(key, _OF_A_NODE))
        here = report.node if name == report.host.host.name else None
        _of_a_node({key.lower(): value for key, value in given.items()}, path, here, report)
        # What is allocated are MIG devices that are made then, and the specification is written once, when the plugin starts.
        by_cdi = [one for one in strategies if one.startswith("cdi-")]
        if by_cdi and any(key.lower() == "operatingmode" and value == "mig" for key, value in given.items()):
            report.error(
                join(path, "operatingmode"),
                f"HAMi makes MIG devices for each pod, and {by_cdi[0]} (devicePlugin.deviceListStrategy) names them by a CDI specification that lacks "
                "them: the pods do not start",
                "Write deviceListStrategy: envvar or volume-mounts, or operatingmode: hami-core.",
            )


def _of_a_node(given: Mapping[str, Any], path: str, node: LintedNode | None, report: Report) -> None:
    mode = given.get("operatingmode") or "hami-core"
    if mode not in ("hami-core", "mig"):
        message = f"HAMi does nothing for {mode}: pods are limited by its library, as with hami-core"
        report.warning(join(path, "operatingmode"), message, "Write hami-core or mig.")
    if mode == "mig" and node is not None and node.profiles:
        report.warning(
            join(path, "operatingmode"),
            f"HAMi creates and destroys MIG devices itself, for each pod: the {len(node.profiles)} of the node's layout do not stay",
            "Write hami-core, or describe the node without nvidia_mig_layout.",
        )
    if given.get("migstrategy") not in (None, "none"):
        message = "HAMi reads it and does nothing with it: the chart's devicePlugin.migStrategy decides for all nodes"
        report.warning(join(path, "migstrategy"), message, "Remove it.")
    filtered = mapping(given.get("filterdevices"))
    indices, uuids = sequence(filtered.get("index")), sequence(filtered.get("uuid"))
    if any(isinstance(index, bool) or not isinstance(index, int) or index < 0 for index in indices):
        message = "an index is a number without quotes: HAMi logs it and ignores the settings of all nodes"
        report.error(join(path, "filterdevices.index"), message, "Write it as in [0, 1].")
    elif node is not None and node.gpus:
        _filtered(indices, uuids, join(path, "filterdevices"), node, report)


def _filtered(indices: list[Any], uuids: list[Any], path: str, node: LintedNode, report: Report) -> None:
    """Check what is left out; a filter is easily taken for a choice."""
    left = [gpu for gpu in node.gpus if gpu.index not in indices and gpu.uuid not in uuids]
    if not left:
        message = "these are the GPUs that HAMi leaves out, and the node has no others"
        report.error(path, message, "Name those that are not for HAMi.")
    for key, named in (("index", indices), ("uuid", uuids)):
        there = {getattr(gpu, key) for gpu in node.gpus}
        for one in named:
            if one not in there:
                message = f"the node has no GPU {one}"
                report.warning(join(path, key), message, f"Its GPUs: {', '.join(map(str, sorted(there, key=str)))}.")
