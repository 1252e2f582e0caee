# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configuration files of the device plugin as people write them wrong: each field with each kind of value, and in each wrong place.

Left out is what the plugin 0.20 judges otherwise than the 0.19 that is asked here: sharedDevicesAllocationPolicy, and what MPS makes
of failRequestsGreaterThanOne.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import yaml

_TEXT = ("none", "", 4, True, None, ["none"], {"a": "b"})
_BOOLEAN = (True, False, "false", 1, None, [True])
#: Field of flags, to the values that are tried.
FLAGS: dict[str, tuple[Any, ...]] = {
    "migStrategy": (*_TEXT, "single", "mixed", "Mixed"),
    "failOnInitError": _BOOLEAN,
    "mpsRoot": _TEXT,
    "nvidiaDriverRoot": _TEXT,
    "nvidiaDevRoot": _TEXT,
    "gdrcopyEnabled": _BOOLEAN,
    "gdsEnabled": _BOOLEAN,
    "mofedEnabled": _BOOLEAN,
    "useNodeFeatureAPI": _BOOLEAN,
    "deviceDiscoveryStrategy": ("auto", "nvml", "tegra", "vfio", "AUTO", "", 1),
}
PLUGIN: dict[str, tuple[Any, ...]] = {
    "passDeviceSpecs": _BOOLEAN,
    "deviceListStrategy": (
        "envvar",
        ["envvar"],
        ["envvar", "volume-mounts"],
        "envvar,volume-mounts",
        "cdi-cri",
        ["cdi-annotations"],
        [],
        None,
        [None],
        "Envvar",
        4,
        {"a": "b"},
    ),
    "deviceIDStrategy": ("uuid", "index", "minor", "", None, 0),
    "cdiAnnotationPrefix": ("cdi.k8s.io/", "", 4),
    "nvidiaCTKPath": ("/usr/bin/nvidia-ctk", 4),
    "containerDriverRoot": ("/driver-root", False),
}
GFD: dict[str, tuple[Any, ...]] = {
    "oneshot": _BOOLEAN,
    "noTimestamp": _BOOLEAN,
    "sleepInterval": ("60s", "infinite", "1h30m", 60, "60", "-1s", "", None),
    "outputFile": ("/etc/x", 4),
    "machineTypeFile": ("/etc/x", [4]),
}
RESOURCE: dict[str, tuple[Any, ...]] = {
    "name": (
        "gpu",
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/GPU",
        "example.com/gpu",
        "",
        None,
        4,
        "x" * 60,
    ),
    "replicas": (2, 48, 1000, 1, 0, -1, None, "4", 4.5, True, [4]),
    "rename": ("gpu.mine", "GPU", None, 4),
    "devices": ("all", "none", None, 1, 0, [0], ["0:1"], [], ["x"], [-1], {"a": 1}),
}
_RESOURCE = {"name": "nvidia.com/gpu", "replicas": 4}


def files(combinations: int = 150) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file, always the same in the same order.

    :param combinations: how many files put three of the others together.
    """
    for name, text in _texts():
        yield name, text
    documents = [*_documents(), *_sections()]
    for name, document in documents:
        yield name, _yaml(document)
    chance = random.Random(4)
    for number in range(combinations):
        merged: dict[str, Any] = {}
        for _name, document in chance.sample(documents, 3):
            merged = _merged(merged, document)
        yield f"combination {number}", _yaml(merged)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _yaml(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False)


def _merged(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    return {**one, **{key: _merged(one.get(key), value) for key, value in other.items()}}


def _texts() -> Iterator[tuple[str, str]]:
    yield from {
        "empty": "",
        "two documents": "version: v1\n---\nversion: v2\n",
        "a list": "- version: v1\n",
        "a tab": "version: v1\nflags:\n\tmigStrategy: none\n",
        "a duplicate": "version: v1\nflags:\n  migStrategy: none\n  migStrategy: mixed\n",
        "an anchor": "version: v1\nflags: &x\n  migStrategy: mixed\nimex: *x\n",
        "a merge": "x: &x {migStrategy: single}\nversion: v1\nflags:\n  <<: *x\n",
        "JSON": '{"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 2}]}}}',
        "a ConfigMap": "apiVersion: v1\nkind: ConfigMap\ndata: {}\n",
        "octal replicas": "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: gpu, replicas: 010}\n",
    }.items()
    for version in ("v1", "V1", "v2", '""', "1", "null", "[v1]"):
        yield f"version {version}", f"version: {version}\n"


def _documents() -> Iterator[tuple[str, dict[str, Any]]]:
    places = (
        ("flags", FLAGS, lambda part: {"flags": part}),
        ("plugin", PLUGIN, lambda part: {"flags": {"plugin": part}}),
        ("gfd", GFD, lambda part: {"flags": {"gfd": part}}),
    )
    for place, fields, put in places:
        for field, values in fields.items():
            for number, value in enumerate(values):
                yield f"{place} {field} {number}", {"version": "v1", **put({field: value})}
            yield f"{place} {field} lower case", {"version": "v1", **put({field.lower(): values[0]})}
            # What is right in one place is tried in every other one.
            for other, _fields, elsewhere in places:
                if other != place:
                    yield f"{place} {field} in {other}", {"version": "v1", **elsewhere({field: values[0]})}
            yield f"{place} {field} at the top", {"version": "v1", field: values[0]}
    yield from _sharing()
    for number, value in enumerate(([], [0], [1], [0, 0], 0, None, ["0"])):
        yield f"imex {number}", {"version": "v1", "imex": {"channelIDs": value}}
    for number, value in enumerate(
        ({"gpus": []}, {"gpus": [{"pattern": "*", "name": "gpu"}]}, {"mig": [{"name": "gpu"}]}, [])
    ):
        yield f"resources {number}", {"version": "v1", "resources": value}


def _sections() -> Iterator[tuple[str, dict[str, Any]]]:
    for number, value in enumerate((None, {}, [], "x", 4)):
        for path in (("flags",), ("flags", "plugin"), ("flags", "gfd"), ("sharing",), ("resources",), ("imex",)):
            document: Any = value
            for key in reversed(path):
                document = {key: document}
            yield f"section {'.'.join(path)} {number}", {"version": "v1", **document}
    for number, value in enumerate(_BOOLEAN):
        for field in ("renameByDefault", "failRequestsGreaterThanOne"):
            part = {"resources": [_RESOURCE], field: value}
            yield f"timeSlicing {field} {number}", {"version": "v1", "sharing": {"timeSlicing": part}}


def _sharing() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in ("timeSlicing", "mps"):
        for field, values in RESOURCE.items():
            for number, value in enumerate(values):
                resource = {**_RESOURCE, field: value}
                yield f"{kind} {field} {number}", {"version": "v1", "sharing": {kind: {"resources": [resource]}}}
            without = {name: value for name, value in _RESOURCE.items() if name != field}
            yield f"{kind} without {field}", {"version": "v1", "sharing": {kind: {"resources": [without]}}}
        for number, part in enumerate(
            (
                None,
                {},
                [],
                {"resources": None},
                {"resources": []},
                {"resources": _RESOURCE},
                {"resources": [_RESOURCE, _RESOURCE]},
                {"resources": [_RESOURCE], "renameByDefault": True},
                {"resources": [_RESOURCE], "renameByDefault": "true"},
                {"resources": [_RESOURCE], "renamebydefault": True},
                {"resources": [_RESOURCE], "failRequestGreaterThanOne": True},
                {"resources": [{**_RESOURCE, "Replicas": 8}]},
                {"Resources": [_RESOURCE]},
            )
        ):
            yield f"{kind} section {number}", {"version": "v1", "sharing": {kind: part}}
        for strategy in ("single", "mixed"):
            flags = {"migStrategy": strategy}
            yield f"{kind} {strategy}", {"version": "v1", "flags": flags, "sharing": {kind: {"resources": [_RESOURCE]}}}
    both = {"timeSlicing": {"resources": [_RESOURCE]}, "mps": {"resources": [{**_RESOURCE, "replicas": 8}]}}
    yield "both kinds", {"version": "v1", "sharing": both}
    yield "sharing in flags", {"version": "v1", "flags": {"sharing": both}}
    yield "a wrong kind", {"version": "v1", "sharing": {"timeSlicng": both["timeSlicing"]}}
