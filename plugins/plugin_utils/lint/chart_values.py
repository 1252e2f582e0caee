# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the charts that the generator pins: which chart they are for, which keys it reads, and what goes wrong with those that it reads. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

from ...module_utils._formats.documents import table
from .finding import MOST, OF_A_CONFIGURATION, Report, below, closest, mapping, near, sequence

PLUGIN, OPERATOR, DISCOVERY = "nvidia-device-plugin", "gpu-operator", "node-feature-discovery"
EXPORTER, HAMI, DRA_DRIVER, OWN = "dcgm-exporter", "hami", "dra-driver-nvidia-gpu", "gpufleet-nvidia"
#: Names that charts had, by which keys they are known, and feature gates, as chart_values.yml explains them.
_TABLE: Mapping[str, Any] = table(str(__package__), "chart_values")
FORMER: Mapping[str, str] = _TABLE["former"]
_GATES: Mapping[str, bool] = {**dict.fromkeys(_TABLE["gates_on"], True), **dict.fromkeys(_TABLE["gates_off"], False)}
_LABEL_FIELDS = ("worker", "config", "sources", "pci", "deviceLabelFields")
#: With these, in any order, the labels are pci-10de.present and pci-0302_10de.present, by one of which the GPU Operator knows a node with a GPU.
_KNOWN_LABELS = ({"vendor"}, {"class", "vendor"})


@cache
def charts() -> Mapping[str, tuple[str, frozenset[str]]]:
    """Return the pinned version of each chart, and the paths that its templates read; everything below such a path is passed on."""
    found = {
        name: (version, frozenset(keys.split()))
        for name, _space, version, keys in (
            (*key.partition(" "), keys) for key, keys in table(str(__package__), "chart_keys").items()
        )
    }
    for chart, inner in ((PLUGIN, "nfd"), (OPERATOR, DISCOVERY)):
        version, keys = found[chart]
        found[chart] = version, keys | {"nfd.enabled", *(f"{inner}.{key}" for key in found[DISCOVERY][1])}
    return found


def chart_of(values: Mapping[str, Any]) -> str:
    """Return the chart whose values these are; empty where nothing tells."""
    if (OF_A_CONFIGURATION | {"kind"}) & set(values):
        return ""
    repository = str(below(values, "image", "repository")).rpartition("/")[2]
    if repository == EXPORTER:
        return EXPORTER
    for chart, (one, two) in _TABLE["known_by"].items():
        if set(one) & set(values) or len(set(two) & set(values)) > 1:
            # Other charts have such keys, too. Of its own chart the collection keeps no keys.
            read = [chart == OWN or _is_read(path, charts()[chart][1]) for path in _paths(values, ())]
            return chart if 2 * sum(read) >= len(read) else ""
    return PLUGIN if "gfd" in values or isinstance(below(values, "config", "map"), Mapping) else ""


def dead_keys(chart: str, values: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the keys that the chart would ignore in silence, and those nearest to them that it reads."""
    known = charts()[chart][1]
    for path in _paths(values, ()):
        if not _is_read(path, known):
            yield path, difflib.get_close_matches(path, known, n=2, cutoff=0.6)


def _is_read(path: str, known: Iterable[str]) -> bool:
    return any(path == one or path.startswith(f"{one}.") or one.startswith(f"{path}.") for one in known)


def _paths(values: Mapping[str, Any], prefix: tuple[str, ...]) -> Iterator[str]:
    for key, value in values.items():
        path = (*prefix, str(key))
        if isinstance(value, Mapping) and value:
            yield from _paths(value, path)
        else:
            yield ".".join(path)


def check(chart: str, version: str, values: Mapping[str, Any], report: Report) -> None:
    """Check values of a chart. Another version than the pinned, where the file says one, may read other keys."""
    pin = charts()[chart][0]
    same = version.lstrip("v") in ("", pin.lstrip("v"))
    if chart == OPERATOR:
        label_fields(values.get(DISCOVERY), f"{DISCOVERY}.", report)
    elif chart == DRA_DRIVER:
        _gates(mapping(values.get("featureGates")), same, report)
    sections = {"flags", "sharing"} & set(values) if chart == PLUGIN else set()
    for key in sorted(sections):
        message = (
            "it is a section of the plugin's configuration, which no version of its chart reads here: it has no effect"
        )
        report.warning(key, message, "Write the configuration as a text below config.map.NAME.")
    values = {key: value for key, value in values.items() if key not in sections}
    known = charts()[chart][1]
    dead = list(islice((path for path in _paths(values, ()) if not _is_read(path, known)), MOST + 1))
    if len(dead) > MOST:
        report.note("", f"it has more than {MOST} keys that no template of the chart reads: the rest was not checked")
    for path in dead[:MOST]:
        message = f"no template of the chart {chart} {pin} reads it, so it would have no effect"
        typo = _slip(path, known) if same else ""
        if typo:
            report.warning(path, message, f"Did you mean {typo}?")
        elif path.partition(".")[0] not in ("global", "nfd"):
            report.note(path, message)


def _slip(path: str, known: Iterable[str]) -> str:
    """Return the key that differs from a path in the letters of one part of it; empty where none does."""
    for one in sorted(known):
        parts = path.split(".")[: one.count(".") + 1]
        wrong = [pair for pair in zip(parts, one.split(".")) if pair[0] != pair[1]]
        if len(wrong) == 1 and len(parts) == one.count(".") + 1 and closest(wrong[0][0], [wrong[0][1]], 0.85):
            return one
    return ""


def label_fields(values: Any, above: str, report: Report) -> None:
    """Check values of Node Feature Discovery by which the GPU Operator finds GPUs."""
    fields = sequence(below(values, *_LABEL_FIELDS))
    if fields and set(map(str, fields)) not in _KNOWN_LABELS:
        report.error(
            above + ".".join(_LABEL_FIELDS),
            f"with {fields} nodes get no label pci-10de.present or pci-0302_10de.present, by which the GPU Operator knows a node with a GPU",
            "Write [vendor].",
        )


def _gates(given: Mapping[str, Any], same: bool, report: Report) -> None:
    """Check feature gates of the DRA driver, which does not start with a gate that it does not know, or with two that exclude each other."""
    for gate in given:
        if gate not in _GATES:
            message = "the DRA driver has no such feature gate and does not start"
            # Another version may have it.
            (report.error if same else report.note)(f"featureGates.{gate}", message, near(str(gate), _GATES))
    on = {gate for gate, default in _GATES.items() if given.get(gate, default) is True}
    for one, other in _TABLE["exclude"]:
        if {one, other} <= on:
            message = f"{one} and {other} exclude each other: the DRA driver does not start"
            report.error(f"featureGates.{one}", message, "Set one of them to false.")
    for one, other in _TABLE["need"]:
        if one in on and given.get(other, _GATES[other]) in (None, False):
            message = f"{one} needs {other}: the DRA driver does not start"
            report.error(f"featureGates.{one}", message, f"Set {other}: true, or {one}: false.")
