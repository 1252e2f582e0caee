# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration as the device plugin prints it at its start ("Running with config"), defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FLAGS: Mapping[str, Any] = {
    "migStrategy": "none",
    "failOnInitError": True,
    "mpsRoot": "",
    "nvidiaDriverRoot": "/",
    "nvidiaDevRoot": None,
    "gdrcopyEnabled": False,
    "gdsEnabled": False,
    "mofedEnabled": False,
    "useNodeFeatureAPI": None,
    "deviceDiscoveryStrategy": "auto",
}
_PLUGIN: Mapping[str, Any] = {
    "passDeviceSpecs": False,
    "deviceListStrategy": ["envvar"],
    "deviceIDStrategy": "uuid",
    "cdiAnnotationPrefix": "cdi.k8s.io/",
    "nvidiaCTKPath": "/usr/bin/nvidia-ctk",
    "containerDriverRoot": "/driver-root",
    "sharedDevicesAllocationPolicy": "distributed",
}
_EVERYTHING = {"pattern": "*", "name": "nvidia.com/gpu"}


def effective(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the plugin makes of a decoded file that it accepts, without environment and command line.

    The MIG resources of the strategy mixed are those of the node's GPUs, so they are not listed.
    """
    given = config.get("flags") or {}
    flags = _filled(_FLAGS, given)
    flags["nvidiaDevRoot"] = flags["nvidiaDevRoot"] or flags["nvidiaDriverRoot"]
    flags["plugin"] = _filled(_PLUGIN, given.get("plugin") or {})
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


def _filled(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] if given.get(name) is not None else default for name, default in defaults.items()}


def _sharing(given: Mapping[str, Any]) -> dict[str, Any]:
    time_slicing, mps = given.get("timeSlicing"), given.get("mps")
    result: dict[str, Any] = {"timeSlicing": {} if time_slicing is None else _replicated(time_slicing)}
    if mps is not None:
        # Unless the file says otherwise, a container gets one MPS replica at most.
        fail = mps.get("failRequestsGreaterThanOne")
        result["mps"] = _replicated({**mps, "failRequestsGreaterThanOne": True if fail is None else fail})
    return result


def _replicated(given: Mapping[str, Any]) -> dict[str, Any]:
    rename = bool(given.get("renameByDefault"))
    result: dict[str, Any] = {"renameByDefault": True} if rename else {}
    if given.get("failRequestsGreaterThanOne") is not None:
        result["failRequestsGreaterThanOne"] = given["failRequestsGreaterThanOne"]
    result["resources"] = [_resource(item, rename) for item in given["resources"]]
    return result


def _resource(item: Mapping[str, Any], rename: bool) -> dict[str, Any]:
    result = {"name": item["name"], "devices": "all", "replicas": item["replicas"]}
    return {**result, "rename": f"{item['name']}.shared"} if rename else result
