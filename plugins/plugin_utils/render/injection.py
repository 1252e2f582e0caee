# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How devices reach containers, in the values of each chart; the decision itself is the hosts' (_injection.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._formats.imex import HOST, MASKED
from ...module_utils._formats.imex import VARIABLE as IMEX
from ...module_utils._injection import CDI, FIRST_KUBELET_WITH_CDI, VARIABLE, VOLUME_MOUNTS, Injection
from ...module_utils._plan import Refused
from .clusters import DescribedCluster, PluginConfiguration
from .helm_values import EXTRA

DRIVER_ROOT = "/"
#: Where the packages of the NVIDIA Container Toolkit put the hooks that a CDI specification names.
CDI_HOOK = "/usr/bin/nvidia-cdi-hook"
#: With this capability the toolkit takes NVIDIA_VISIBLE_DEVICES of a container also where it refuses it in unprivileged ones.
SYS_ADMIN = {"capabilities": {"add": ["SYS_ADMIN"]}}
_STRATEGY = "DEVICE_LIST_STRATEGY"
#: A site may have them elsewhere; without any, the chart mounts no driver, or names no hook.
_PATHS_OF_SITES = frozenset({"nvidiaDriverRoot", "nvidiaHookPath"})
_ABSENT = object()


def plugin_values(injection: Injection) -> dict[str, Any]:
    """Return what of the device plugin's values follows from the decision."""
    own: dict[str, Any] = {"deviceListStrategy": injection.strategy}
    if injection.method == CDI:
        own.update({"nvidiaDriverRoot": DRIVER_ROOT, "cdi": {"nvidiaHookPath": CDI_HOOK}})
    if injection.driver_pods_need_sys_admin:
        own["securityContext"] = SYS_ADMIN
    return own


def hami_values(injection: Injection) -> dict[str, Any]:
    """Return what of C(devicePlugin) in HAMi's values follows from the decision.

    HAMi documents cdi-annotations as its CDI strategy (Project-HAMi/HAMi, docs/config.md).
    """
    if injection.method == CDI:
        return {"deviceListStrategy": "cdi-annotations", "nvidiaDriverRoot": DRIVER_ROOT, "nvidiaHookPath": CDI_HOOK}
    return {"deviceListStrategy": injection.strategy}


def operator_plugin_environment(injection: Injection) -> list[dict[str, str]]:
    """Return the environment of the operator's device plugin that the decision needs; with CDI the operator gives it cdi-annotations and cdi-cri."""
    return [] if injection.method == CDI else [{"name": _STRATEGY, "value": injection.strategy}]


def policy_values(cluster: DescribedCluster) -> dict[str, Any]:
    """Return what the admission policies have to know of the decision, and what pods can ask of the nodes.

    A kubelet drops a limit for a resource that its node does not offer, so that one which no node offers gives nobody a GPU to count.
    """
    decided = [item.injection for item in cluster.configurations]
    offered = sorted({name for item in cluster.configurations for name in item.requestable})
    return {
        "gpuResources": f"^({'|'.join(name.replace('.', '[.]') for name in offered)})$",
        "deviceInjection": sorted({one.method for one in decided}),
        "defaultRuntime": any(one.default_runtime for one in decided),
    }


def kubernetes_version(cluster: DescribedCluster) -> tuple[int, int]:
    """Return the minor version of the cluster, such as C((1, 34)); refuse a C(gpu_kubernetes_version) that is none."""
    text = str(cluster.options["version"])
    match = re.fullmatch(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]+.*)?", text)
    if match is None:
        raise Refused(
            "gpu_kubernetes_version", f"{text!r} must be a minor version of Kubernetes", 'Write it in quotes: "1.34".'
        )
    return int(match.group(1)), int(match.group(2))


def common(cluster: DescribedCluster, items: Sequence[PluginConfiguration], what: str) -> Injection:
    """Return the decision of C(items), which one release (C(what)) serves; refuse them where they differ."""
    first = items[0]
    for item in items[1:]:
        if item.injection.method != first.injection.method:
            raise Refused(
                f"{VARIABLE} in cluster {cluster.name}",
                f"it is {first.injection.method} for pool {first.pool} and {item.injection.method} for pool {item.pool}, "
                f"and one {what} serves both",
                f"Set the same {VARIABLE} for both pools, give them different clusters (gpu_kubernetes_cluster), "
                "or use gpu_kubernetes_stack: device_plugin, which gives each pool a release of its own.",
            )
    return first.injection


def refuse_contradictions(cluster: DescribedCluster) -> None:
    """Refuse what would leave pods without their devices, before anything is written; the message names both variables."""
    version = kubernetes_version(cluster)
    for item in cluster.configurations:
        injection = item.injection
        if injection.method == CDI and version < FIRST_KUBELET_WITH_CDI:
            first = ".".join(map(str, FIRST_KUBELET_WITH_CDI))
            reason = f"it is {CDI}, and the kubelet of gpu_kubernetes_version {cluster.options['version']} hands no CDI devices to the runtime"
            remedy = f"Kubernetes {first} or newer does; for this one set {VARIABLE}: {VOLUME_MOUNTS}."
            raise Refused(f"{VARIABLE} of pool {item.pool}", reason, remedy)
        if item.served_by_dra and injection.method != CDI:
            dra = f"nvidia_sharing_{'backend' if item.sharing.backend == 'dra' else 'migrate_from'}: dra"
            reason = f"it is {injection.method}, and {dra} hands its devices to the runtime by CDI"
            remedy = f"Set {VARIABLE}: {CDI}, or another nvidia_sharing_backend."
            raise Refused(f"{VARIABLE} of pool {item.pool}", reason, remedy)
        if item.compute_domains and injection.method != CDI:
            reason = f"it is {injection.method}, and the ComputeDomains of {IMEX}: {MASKED} hand their channels to the runtime by CDI"
            remedy = f"Set {VARIABLE}: {CDI}, or run IMEX on the hosts with {IMEX}: {HOST}."
            raise Refused(f"{VARIABLE} of pool {item.pool}", reason, remedy)
        if (
            not cluster.options["runtime_class"]
            and not injection.default_runtime
            and (item.served_by_device_plugin or not item.served_by_dra)
        ):
            raise Refused(
                f"gpu_kubernetes_runtime_class in cluster {cluster.name}",
                f"it is empty, and nvidia_toolkit_default_runtime of pool {item.pool} is false: nothing would inject the driver into the "
                "pods of the device plugin and the metrics exporter",
                "Set gpu_kubernetes_runtime_class: nvidia, or nvidia_toolkit_default_runtime: true.",
            )
        for chart, variable, wanted in _decided(cluster, item):
            _refuse_other_values(chart, cluster.options["values"].get(chart) or {}, variable, wanted)


def _decided(cluster: DescribedCluster, item: PluginConfiguration) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield charts of C(item), what decides, and the values without which its pods, or those of the chart, get no GPU."""
    options, injection = cluster.options, item.injection
    method = f"{VARIABLE} of pool {item.pool} is {injection.method}"
    name = "" if injection.default_runtime else options["runtime_class"]
    named, class_ = f"gpu_kubernetes_runtime_class is {name}", {"runtimeClassName": name} if name else {}
    operator = options["stack"] == "gpu_operator" and bool(cluster.plugin_configurations)
    # While nodes are moved between the two, both are there.
    releases = not operator or options["migrate_from"]
    sees: dict[str, Any] = {"securityContext": SYS_ADMIN} if injection.driver_pods_need_sys_admin else {}
    if options["dcgm_exporter"] and releases:
        yield "dcgm-exporter", method, sees
        yield "dcgm-exporter", named, class_
    if item.sharing.backend == "hami":
        yield "hami", method, {"devicePlugin": hami_values(injection)}
        yield "hami", named, {"devicePlugin": class_}
    if not item.served_by_device_plugin:
        return
    if operator:
        yield "gpu-operator", method, {"cdi": {"enabled": injection.method == CDI}}
        yield "gpu-operator", method, {"devicePlugin": {"env": operator_plugin_environment(injection)}}
        yield "gpu-operator", named, {"operator": {"runtimeClass": name} if name else {}}
        if not cluster.pools_that_bring("toolkit")[1]:
            # The operator's own toolkit would accept NVIDIA_VISIBLE_DEVICES from every container.
            yield "gpu-operator", method, {"toolkit": {"enabled": False}}
    if releases:
        yield "nvidia-device-plugin", method, plugin_values(injection)
        yield "nvidia-device-plugin", method, {"gfd": {"securityContext": {"privileged": True}} if sees else {}}
        yield "nvidia-device-plugin", named, class_


def _refuse_other_values(chart: str, extra: Any, variable: str, wanted: Mapping[str, Any]) -> None:
    """What the user adds to a chart's values may not say otherwise."""
    for path, needed in _leaves(wanted):
        given = _at(extra, path)
        if given is not _ABSENT and not _serves(path, given, needed):
            reason = f"it is {given!r}, and {variable}, which needs {needed!r}: pods would not get what is described"
            remedy = f"Remove it, and choose with {variable.split()[0]}."
            raise Refused(f"{EXTRA}['{chart}'].{'.'.join(path)}", reason, remedy)


def _serves(path: tuple[str, ...], given: Any, needed: Any) -> bool:
    if path[-1] in _PATHS_OF_SITES:
        return bool(given)
    if path[-1] == "env" and isinstance(given, list):
        said = [one for one in given if isinstance(one, Mapping) and one.get("name") == _STRATEGY]
        return said == needed
    if isinstance(needed, list):
        return isinstance(given, list) and set(needed) <= {str(one) for one in given}
    return bool(given == needed)


def _leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _at(values: Any, path: Sequence[str]) -> Any:
    """Return what is said at C(path): None also where a key above it is null, which takes all below it out of the values."""
    for key in path:
        if values is None:
            return None
        if not isinstance(values, Mapping) or key not in values:
            return _ABSENT
        values = values[key]
    return values
