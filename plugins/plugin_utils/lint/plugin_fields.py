# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fields of the device plugin's configuration, version 0.20 (C(api/config/v1)): how each is decoded, its default, and the values that it may have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._formats.documents import table
from . import decode as go
from .finding import Report

PREFIX = "nvidia.com/"

_LONGEST_NAME = 63
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UUID = r"(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
_DEVICE = re.compile(
    f"[0-9]{{1,19}}(?::[0-9]{{1,19}})?|(?:GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]{{1,19}}/[0-9]{{1,19}}"
)


def _device_list_strategy(value: Any, path: str, report: Report) -> Any:
    if value is None:
        return None
    given = value if isinstance(value, list) else [value]
    if not all(item is None or isinstance(item, str) for item in given):
        message = f"{go.describe(value)} where a strategy or a list of them is expected"
        report.error(path, message, "Write names, such as [envvar].")
        return go.REFUSED
    return ["" if item is None else item for item in given]


def _replicas(value: Any, path: str, report: Report) -> Any:
    number = go.integer(value, path, report)
    if number is not go.REFUSED and number < 2:
        message = f"number of replicas must be >= 2, not {number}"
        report.error(path, message, "Write 2 or more; to share nothing, leave the resource out.")
        return go.REFUSED
    return number


def _resource_name(value: Any, path: str, report: Report) -> Any:
    """Decode the name of an extended resource; the prefix C(nvidia.com/) is added where it is missing."""
    if value is not None and not isinstance(value, str):
        return go.string(value, path, report)
    name = value or ""
    if not name.startswith(PREFIX):
        name = PREFIX + name
    if len(name.encode("utf-8")) > _LONGEST_NAME:
        report.error(path, f"the resource name {name} is longer than {_LONGEST_NAME} characters", "Shorten it.")
        return go.REFUSED
    if not _SUBDOMAIN.fullmatch(name[len(PREFIX) :]):
        report.error(
            path,
            f"incorrect format for resource name {name!r}: the part after nvidia.com/ has lower case letters, digits, '-' and '.' only",
            "Write nvidia.com/gpu, or nvidia.com/mig-<profile> such as nvidia.com/mig-1g.10gb.",
        )
        return go.REFUSED
    return name


def _devices(value: Any, path: str, report: Report) -> Any:
    remedy = "Remove it: the plugin shares all devices of a resource or none."
    if value == "all":
        return "all"
    if value is None or isinstance(value, str):
        report.error(path, f"devices set as {value or ''!r} but the only valid string input is 'all'", remedy)
        return go.REFUSED
    count = go.as_integer(value)
    if count is not None and count <= 0:
        report.error(path, f"devices set as {count} but a count of devices must be > 0", remedy)
        return go.REFUSED
    if count is None and not isinstance(value, list):
        report.error(path, f"unrecognized type for devices: {go.describe(value)}", remedy)
        return go.REFUSED
    if isinstance(value, list):
        bad = [index for index, item in enumerate(value) if not _is_device(item)]
        for index in bad:
            report.error(f"{path}[{index}]", f"unsupported type for device: {go.describe(value[index])}", remedy)
        if bad:
            return go.REFUSED
    report.warning(path, "the choice of devices is ignored: all devices of the resource are shared", remedy)
    return "all"


def _is_device(item: Any) -> bool:
    """Whether C(item) is a GPU index, a MIG index, or the UUID of one of them. (null is taken for index 0.)"""
    if item is None or isinstance(item, str):
        return item is None or bool(_DEVICE.fullmatch(item))
    number = go.as_integer(item)
    return number is not None and number >= 0


def _replicated(value: Any, path: str, report: Report) -> Any:
    fields = _REPLICATED(value, path, report)
    if not fields.get("resources"):
        remedy = "List what is shared: resources: [{name: nvidia.com/gpu, replicas: 4}]."
        report.error(path, "no resources specified", remedy)
    return fields


def _mps(value: Any, path: str, report: Report) -> Any:
    if value is None:
        message = "mps without a value is ignored: nothing is shared by MPS"
        report.warning(path, message, "Write resources below it, or remove it.")
        return None
    return _replicated(value, path, report)


def _resources(value: Any, path: str, report: Report) -> Any:
    fields = _RESOURCES(value, path, report)
    if any(fields.values()):
        message = "customizing the resources is not supported by the plugin: it is ignored"
        report.warning(path, message, "Remove the section.")
    return fields


def _flags(value: Any, path: str, report: Report) -> Any:
    decoded = _FLAGS(value, path, report)
    for key, section in value.items() if isinstance(value, dict) else ():
        if go.fold(key) in ("plugin", "gfd"):
            _emptied(section, path, decoded, report)
    return decoded


def _emptied(section: Any, path: str, decoded: dict[str, Any], report: Report) -> None:
    """Find flags that stand in the wrong section, where they do worse than nothing.

    C(sigs.k8s.io/yaml) 1.6 looks for them among the fields of the embedded struct and, on the way, sets the real flag to its zero value:
    C(flags.plugin.migStrategy) makes the plugin exit with "unknown MIG strategy: ", C(flags.gfd.failOnInitError) makes that flag false.
    """
    folded = {go.fold(name): name for name in FLAGS}
    for key in section if isinstance(section, dict) else ():
        name = folded.get(go.fold(key))
        if name is None or decoded.get(name) is not None:
            continue
        decoded[name] = "" if FLAGS[name].decode is go.string else False
        message = (
            f"{key} is not only ignored in the section below flags: the plugin also sets {name} to {decoded[name]!r}"
        )
        report.warning(f"{path}.{name}", message, f"Move it to flags.{name}.")


@dataclass(frozen=True)
class Field:
    """A field that holds one value: what the plugin takes where the file says nothing, and the words that it accepts, if it is a choice."""

    decode: go.Decoder
    default: Any = None
    choices: tuple[str, ...] = ()


_DECODERS = {
    "string": go.string,
    "boolean": go.boolean,
    "duration": go.duration,
    "strategies": _device_list_strategy,
}
#: Those of C(flags), of C(flags.plugin) and of C(flags.gfd), as plugin_fields.yml has them.
FLAGS, PLUGIN, _GFD = (
    {
        name: Field(_DECODERS[one["type"]], one.get("default"), tuple(one.get("choices", ())))
        for name, one in fields.items()
    }
    for fields in table(str(__package__), "plugin_fields").values()
)
DEVICE_LIST_STRATEGIES = PLUGIN["deviceListStrategy"].choices


def _decoders(fields: Mapping[str, Field]) -> dict[str, go.Decoder]:
    return {name: field.decode for name, field in fields.items()}


_FLAGS = go.struct({**_decoders(FLAGS), "plugin": go.struct(_decoders(PLUGIN)), "gfd": go.struct(_decoders(_GFD))})
_RESOURCE = go.exact(
    {"name": _resource_name, "devices": _devices, "replicas": _replicas, "rename": _resource_name},
    {
        "name": ("no resource name specified", "Add name: nvidia.com/gpu."),
        "replicas": ("no replicas specified", "Add replicas: 4."),
    },
)
_REPLICATED = go.exact(
    {"renameByDefault": go.boolean, "failRequestsGreaterThanOne": go.boolean, "resources": go.sequence(_RESOURCE)}
)
_PATTERNS = go.sequence(
    go.exact(
        {"pattern": go.string, "name": _resource_name},
        {
            name: (f"resources must have a {name!r} field set", "Better remove the section: the plugin ignores it.")
            for name in ("pattern", "name")
        },
    )
)
_RESOURCES = go.struct({"gpus": _PATTERNS, "mig": _PATTERNS})

#: The decoder of a whole file.
CONFIGURATION = go.struct(
    {
        "version": go.coerced_string,
        "flags": _flags,
        "resources": _resources,
        "sharing": go.struct({"timeSlicing": _replicated, "mps": _mps}),
        "imex": go.struct({"channelIDs": go.sequence(go.integer), "required": go.boolean}),
    }
)
_EVERYTHING = {"pattern": "*", "name": "nvidia.com/gpu"}


def effective(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration as the plugin prints it at its start ("Running with config"), without environment and command line.

    :param config: a decoded file that it accepts.

    The MIG resources of the strategy mixed are those of the node's GPUs, so they are not listed.
    """
    given = config.get("flags") or {}
    flags = _filled(FLAGS, given)
    flags["nvidiaDevRoot"] = flags["nvidiaDevRoot"] or flags["nvidiaDriverRoot"]
    flags["plugin"] = _filled(PLUGIN, given.get("plugin") or {})
    resources: dict[str, Any] = {"gpus": [dict(_EVERYTHING)]}
    if flags["migStrategy"] == "single":
        resources["mig"] = [dict(_EVERYTHING)]
    return {
        "version": config.get("version") or "v1",
        "flags": flags,
        "resources": resources,
        "sharing": _sharing(config.get("sharing") or {}),
        "imex": {key: value for key, value in (config.get("imex") or {}).items() if value},
    }


def _filled(fields: Mapping[str, Field], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: field.default if given.get(name) is None else given[name] for name, field in fields.items()}


def _sharing(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"timeSlicing": {}}
    for name in ("timeSlicing", "mps"):
        kind = given.get(name)
        if kind is None:
            continue
        rename, fail = kind.get("renameByDefault"), kind.get("failRequestsGreaterThanOne")
        if fail is None and name == "mps":
            # Unless the file says otherwise, a container gets one MPS replica at most.
            fail = True
        resources = [
            {
                "name": item["name"],
                "devices": "all",
                "replicas": item["replicas"],
                **({"rename": f"{item['name']}.shared"} if rename else {}),
            }
            for item in kind["resources"]
        ]
        found[name] = {
            **({"renameByDefault": True} if rename else {}),
            **({} if fail is None else {"failRequestsGreaterThanOne": fail}),
            "resources": resources,
        }
    return found
