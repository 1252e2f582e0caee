# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fields of the device plugin's configuration, version 0.20 (C(api/config/v1)), and how each is decoded."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any

from . import decode as go
from .finding import Report
from .scalar import LONGEST_NUMBER

PREFIX = "nvidia.com/"
MIG_STRATEGIES = ("none", "single", "mixed")
DEVICE_LIST_STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
DEVICE_ID_STRATEGIES = ("uuid", "index")
ALLOCATION_POLICIES = ("distributed", "packed")
DISCOVERY_STRATEGIES = ("auto", "nvml", "tegra")

_LONGEST_NAME = 63
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DIGITS = re.compile(r"[0-9]+")
_HEX_UUID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LARGEST_UINT = 2**64 - 1


def config(value: Any, report: Report) -> dict[str, Any]:
    """Decode a whole file."""
    return go.struct(
        value,
        "",
        report,
        {"version": go.coerced_string, "flags": _flags, "resources": _resources, "sharing": _sharing, "imex": _imex},
    )


#: The fields of flags that hold one value.
FLAGS: Mapping[str, go.Decoder] = {
    "migStrategy": go.string,
    "failOnInitError": go.boolean,
    "mpsRoot": go.string,
    "nvidiaDriverRoot": go.string,
    "nvidiaDevRoot": go.string,
    "gdrcopyEnabled": go.boolean,
    "gdsEnabled": go.boolean,
    "mofedEnabled": go.boolean,
    "useNodeFeatureAPI": go.boolean,
    "deviceDiscoveryStrategy": go.string,
}


def _flags(value: Any, path: str, report: Report) -> Any:
    decoded = go.struct(value, path, report, {**FLAGS, "plugin": _plugin, "gfd": _gfd})
    sections = (
        [item for key, item in (value or {}).items() if go.fold(key) in ("plugin", "gfd")]
        if isinstance(value, dict)
        else []
    )
    for section in sections:
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
        decoded[name] = "" if FLAGS[name] is go.string else False
        report.warning(
            f"{path}.{name}",
            f"{key} is not only ignored in the section below flags: the plugin also sets {name} to {decoded[name]!r}",
            f"Move it to flags.{name}.",
        )


def _plugin(value: Any, path: str, report: Report) -> Any:
    return go.struct(
        value,
        path,
        report,
        {
            "passDeviceSpecs": go.boolean,
            "deviceListStrategy": _device_list_strategy,
            "deviceIDStrategy": go.string,
            "cdiAnnotationPrefix": go.string,
            "nvidiaCTKPath": go.string,
            "containerDriverRoot": go.string,
            "sharedDevicesAllocationPolicy": go.string,
        },
    )


def _gfd(value: Any, path: str, report: Report) -> Any:
    return go.struct(
        value,
        path,
        report,
        {
            "oneshot": go.boolean,
            "noTimestamp": go.boolean,
            "sleepInterval": go.duration,
            "outputFile": go.string,
            "machineTypeFile": go.string,
        },
    )


def _device_list_strategy(value: Any, path: str, report: Report) -> Any:
    if value is None:
        return None
    given = value if isinstance(value, list) else [value]
    if not all(item is None or isinstance(item, str) for item in given):
        report.error(
            path,
            f"{go.describe(value)} where a strategy or a list of them is expected",
            "Write names, such as [envvar].",
        )
        return go.REFUSED
    return ["" if item is None else item for item in given]


def _sharing(value: Any, path: str, report: Report) -> Any:
    return go.struct(value, path, report, {"timeSlicing": _replicated, "mps": _mps})


def _mps(value: Any, path: str, report: Report) -> Any:
    if value is None:
        report.warning(
            path, "mps without a value is ignored: nothing is shared by MPS", "Write resources below it, or remove it."
        )
        return None
    return _replicated(value, path, report)


def _replicated(value: Any, path: str, report: Report) -> Any:
    fields = go.exact(
        value,
        path,
        report,
        {"renameByDefault": go.boolean, "failRequestsGreaterThanOne": go.boolean, "resources": _replicated_resources},
    )
    if (value is None or isinstance(value, dict)) and not fields.get("resources"):
        report.error(
            path, "no resources specified", "List what is shared: resources: [{name: nvidia.com/gpu, replicas: 4}]."
        )
    return fields


def _replicated_resources(value: Any, path: str, report: Report) -> Any:
    return go.sequence(value, path, report, _replicated_resource)


def _replicated_resource(value: Any, path: str, report: Report) -> Any:
    fields = go.exact(
        value,
        path,
        report,
        {"name": resource_name, "devices": _devices, "replicas": _replicas, "rename": resource_name},
    )
    if value is None or isinstance(value, dict):
        for name, example in (("name", "nvidia.com/gpu"), ("replicas", "4")):
            if name not in fields:
                what = "no resource name specified" if name == "name" else "no replicas specified"
                report.error(path, what, f"Add {name}: {example}.")
    return fields


def _replicas(value: Any, path: str, report: Report) -> Any:
    number = go.integer(value, path, report)
    if number is not go.REFUSED and number < 2:
        report.error(
            path,
            f"number of replicas must be >= 2, not {number}",
            "Write 2 or more; to share nothing, leave the resource out.",
        )
        return go.REFUSED
    return number


def resource_name(value: Any, path: str, report: Report) -> Any:
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
    if item is None:
        return True
    if isinstance(item, str):
        return _is_index(item) or _is_mig_index(item) or _is_gpu_uuid(item) or _is_mig_uuid(item)
    number = int(item) if isinstance(item, float) and item == int(item) and abs(item) < 1e21 else item
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _LARGEST_UINT


def _is_index(text: str) -> bool:
    return len(text) <= LONGEST_NUMBER and bool(_DIGITS.fullmatch(text)) and int(text) <= _LARGEST_UINT


def _is_mig_index(text: str) -> bool:
    gpu, separator, instance = text.partition(":")
    return bool(separator) and _is_index(gpu) and _is_index(instance)


def _is_gpu_uuid(text: str) -> bool:
    return text.startswith("GPU-") and _is_uuid(text[len("GPU-") :])


def _is_mig_uuid(text: str) -> bool:
    if not text.startswith("MIG-"):
        return False
    rest = text[len("MIG-") :]
    parts = rest.split("/", 2)
    return _is_uuid(rest) or (
        len(parts) == 3 and _is_gpu_uuid(parts[0]) and _is_index(parts[1]) and _is_index(parts[2])
    )


def _is_uuid(text: str) -> bool:
    # github.com/google/uuid also takes the URN form and braces.
    if text[:9].lower() == "urn:uuid:":
        text = text[9:]
        return len(text) == 36 and bool(_HEX_UUID.fullmatch(text))
    if len(text) == 38:
        text = text[1:-1]
        return len(text) == 36 and bool(_HEX_UUID.fullmatch(text))
    if not _HEX_UUID.fullmatch(text):
        return False
    return bool(uuid.UUID(text))


def _resources(value: Any, path: str, report: Report) -> Any:
    fields = go.struct(value, path, report, {"gpus": _patterns, "mig": _patterns})
    if any(fields.values()):
        report.warning(
            path, "customizing the resources is not supported by the plugin: it is ignored", "Remove the section."
        )
    return fields


def _patterns(value: Any, path: str, report: Report) -> Any:
    return go.sequence(value, path, report, _pattern)


def _pattern(value: Any, path: str, report: Report) -> Any:
    fields = go.exact(value, path, report, {"pattern": go.string, "name": resource_name})
    if value is None or isinstance(value, dict):
        for name in ("pattern", "name"):
            if name not in fields:
                report.error(
                    path,
                    f"resources must have a {name!r} field set",
                    "Better remove the section: the plugin ignores it.",
                )
    return fields


def _imex(value: Any, path: str, report: Report) -> Any:
    return go.struct(value, path, report, {"channelIDs": _channels, "required": go.boolean})


def _channels(value: Any, path: str, report: Report) -> Any:
    return go.sequence(value, path, report, go.integer)
