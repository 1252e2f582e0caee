# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that have to see every GPU of a node: the device plugin's, gpu-feature-discovery's and dcgm-exporter's, in a DaemonSet or in values of a chart.

What a chart makes of its values is that of the charts nvidia-device-plugin 0.19 (templates/_helpers.tpl, values.yaml) and dcgm-exporter
(deployment/values.yaml).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...module_utils import _injection as injection
from . import chart_values
from .finding import Report, below, join, mapping, sequence

PLUGIN, EXPORTER, DISCOVERY = chart_values.PLUGIN, chart_values.EXPORTER, "gpu-feature-discovery"
#: By program, and by image where no program is named.
_PROGRAMS: Mapping[str, str] = {PLUGIN: PLUGIN, "k8s-device-plugin": PLUGIN, DISCOVERY: DISCOVERY, EXPORTER: EXPORTER}
_PRIVILEGED, _SYS_ADMIN = {"privileged": True}, {"capabilities": {"add": ["SYS_ADMIN"]}}


class _Pod(NamedTuple):
    """A pod that has to see the driver.

    :param place: of the values or of the pod's specification, which have C(runtimeClassName).
    :param container: the path above the container's C(securityContext).
    :param context: what the container gets as its C(securityContext).
    :param opens_driver: whether it finds the driver's libraries below the host's root, and the devices by its privileges.
    """

    name: str
    place: str
    container: str
    context: Mapping[str, Any]
    runtime_class: Any
    opens_driver: bool = False


def check(document: Mapping[str, Any], chart: str, report: Report) -> None:
    """Check that the pods see the driver of the node; without its facts nothing is said."""
    for pod in pods(document, chart):
        for field, reason in injection.hides_driver(pod.context, pod.runtime_class, report.host):
            if field == "runtimeClassName":
                if not pod.opens_driver:
                    report.error(
                        join(pod.place, field),
                        f"{pod.name} sees no driver on this node: {reason}",
                        "Write runtimeClassName: nvidia, or make nvidia the runtime's default (nvidia_toolkit_default_runtime: true).",
                    )
                continue
            report.error(
                join(pod.container, field),
                f"{pod.name} sees no driver on this node: {reason}",
                "Write capabilities: {add: [SYS_ADMIN]}, which is the least that works.",
            )


def pods(document: Mapping[str, Any], chart: str = "") -> Iterator[_Pod]:
    """Yield the pods that have to see the driver of an object, or of values of a chart."""
    chart = chart or chart_values.chart_of(document)
    if document.get("kind") == "DaemonSet":
        yield from _of_daemon_set(mapping(below(document, "spec", "template", "spec")))
    elif chart == PLUGIN:
        yield from _plugin(document)
    elif chart == EXPORTER:
        yield _exporter(document)


def _of_daemon_set(spec: Mapping[str, Any]) -> Iterator[_Pod]:
    place = "spec.template.spec"
    for number, container in enumerate(sequence(spec.get("containers"))):
        container = mapping(container)
        command = sequence(container.get("command"))
        image = str(container.get("image")).rpartition("/")[2].partition("@")[0].partition(":")[0]
        name = _PROGRAMS.get(str(command[0]).rpartition("/")[2] if command else image)
        if name is None:
            continue
        context = mapping(container.get("securityContext"))
        mounts = [str(below(mount, "mountPath")) for mount in sequence(container.get("volumeMounts"))]
        # cmd/nvidia-device-plugin/root.go: libraries are looked for below /driver-root, and then where the loader finds them.
        opens = context.get("privileged") is True and name != EXPORTER and "/driver-root" in mounts
        class_ = spec.get("runtimeClassName")
        yield _Pod(name, place, f"{place}.containers[{number}]", context, class_, opens)


def _plugin(values: Mapping[str, Any]) -> Iterator[_Pod]:
    class_, root = values.get("runtimeClassName"), isinstance(values.get("nvidiaDriverRoot"), str)
    contexts: list[tuple[str, str, Mapping[str, Any]]] = []
    if below(values, "devicePlugin", "enabled") is not False:
        contexts.append((PLUGIN, "", _plugin_context(values)))
    discovery = mapping(values.get("gfd"))
    if discovery.get("enabled"):
        given = discovery.get("securityContext", {})
        merged = {**_PRIVILEGED, **mapping(given)} if given is not None else _default_context(values)
        contexts.append((DISCOVERY, "gfd", merged))
    for name, path, context in contexts:
        yield _Pod(name, "", path, context, class_, bool(root and context.get("privileged")))


def _plugin_context(values: Mapping[str, Any]) -> Mapping[str, Any]:
    default = _PRIVILEGED if values.get("compatWithCPUManager") else _default_context(values)
    return mapping(values.get("securityContext")) or default


def _default_context(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the chart writes by itself: it adds SYS_ADMIN where MIG or volume mounts may be wanted."""
    configured = bool(below(values, "config", "name") or below(values, "config", "map"))
    mig, strategy = values.get("migStrategy"), values.get("deviceListStrategy")
    may_be_mig = mig != "none" if mig else configured
    may_be_mounts = "volume-mounts" in strategy if isinstance(strategy, (str, list)) and strategy else configured
    return _SYS_ADMIN if may_be_mig or may_be_mounts else {}


def _exporter(values: Mapping[str, Any]) -> _Pod:
    """Its chart adds SYS_ADMIN by default, and Helm merges mappings but replaces lists; null takes a default out."""
    context = values.get("securityContext", {})
    merged = {**_SYS_ADMIN, **mapping(context)} if context is not None else {}
    if "capabilities" in mapping(context) and mapping(context)["capabilities"] is not None:
        merged["capabilities"] = {**_SYS_ADMIN["capabilities"], **mapping(mapping(context)["capabilities"])}
    return _Pod(EXPORTER, "", "", merged, values.get("runtimeClassName"))
