# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What objects and values of one cluster say together, each of which says nothing wrong: who serves a resource, and on which nodes."""

from __future__ import annotations

import posixpath
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...module_utils._formats.documents import read_yaml
from . import chart_values
from .dra_claims import KINDS
from .finding import Report, below, group_of, mapping, near, sequence
from .object_fields import names_of
from .operator_objects import POLICY
from .yaml import Part

_CLASS = KINDS[0]
#: Where the rendered tree, as most GitOps repositories, has the files of a cluster.
_CLUSTERS = "clusters"
_GPU = "nvidia.com/gpu"
#: Kinds of which nothing is said but together with others.
KNOWN = ("Node",)
_CONFIG_LABEL, _MIG_LABEL = "nvidia.com/device-plugin.config", "nvidia.com/mig.config"


#: By a chart, or a kind: what names a default among the texts of a ConfigMap, and where such texts may be beside it.
_DEFAULTS: Mapping[str, Sequence[tuple[str, str]]] = {
    chart_values.PLUGIN: [("config", "map")],
    chart_values.OPERATOR: [("devicePlugin.config", "data"), ("migManager.config", "data")],
    POLICY: [("spec.devicePlugin.config", "data"), ("spec.migManager.config", "data")],
}


def by_cluster(parts: Iterable[Part]) -> list[list[Part]]:
    """Return the documents that are for one cluster: those below one C(clusters/NAME), else those of the files of one folder."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(_cluster_of(part.file), []).append(part)
    return list(found.values())


def _cluster_of(path: str) -> str:
    folders = path.split("/")[:-1]
    outermost = next((number for number, folder in enumerate(folders[:-1]) if folder == _CLUSTERS), len(folders))
    return "/".join(folders[: outermost + 2])


def patches_of(parts: Iterable[Part]) -> set[str]:
    """Return the files with which Kustomizations change other objects."""
    return {
        posixpath.normpath(posixpath.join(posixpath.dirname(one.file), str(below(patch, "path") or patch)))
        for one in parts
        if one.kind == "Kustomization"
        for key in ("patches", "patchesStrategicMerge")
        for patch in sequence(one.document.get(key))
    }


def check(parts: Sequence[Part], patches: Container[str] = ()) -> Iterator[tuple[str, Report]]:
    """Yield what is wrong with the documents of one cluster, each with the name of the one that it is said of. C(patches): L(patches_of) all files."""
    yield from (found for found in _all(parts, patches) if found[1].findings)


def _all(parts: Sequence[Part], patches: Container[str]) -> Iterator[tuple[str, Report]]:
    yield from _classes(parts)
    yield from _names(parts, patches)
    yield from _label_fields(parts)
    drivers = [
        one
        for one in parts
        if one.chart == chart_values.DRA_DRIVER and below(one.document, "resources", "gpus", "enabled") is not False
    ]
    for one in parts:
        if one.chart == chart_values.PLUGIN and below(one.document, "devicePlugin", "enabled") is not False:
            for driver in drivers:
                yield from _both(one, driver, parts)


def is_patch(file: str, patches: Container[str]) -> bool:
    """Return whether a file changes an object that is elsewhere."""
    return posixpath.normpath(file) in patches or "patch" in file.lower()


def _classes(parts: Sequence[Part]) -> Iterator[tuple[str, Report]]:
    """Two DeviceClasses for one extended resource. The same object may be in several files."""
    serving: dict[str, dict[str, Part]] = {}
    for part in parts:
        name, resource = below(part.document, "metadata", "name"), _resource(part.document)
        if resource and isinstance(name, str):
            serving.setdefault(resource, {}).setdefault(name, part)
    for resource, classes in serving.items():
        for name, part in classes.items() if len(classes) > 1 else ():
            others = " and ".join(f"DeviceClass {other} ({classes[other].file})" for other in classes if other != name)
            report = Report()
            report.error(
                "spec.extendedResourceName",
                f"{others} has {resource}, too: Kubernetes serves pods that request it from one of them only, and which one is not defined",
                "Remove it from all but one.",
            )
            yield part.place, report


def _resource(document: Mapping[str, Any]) -> str:
    if document.get("kind") != _CLASS or group_of(document) != "resource.k8s.io":
        return ""
    resource = below(document, "spec", "extendedResourceName")
    return resource if isinstance(resource, str) else ""


def _label_fields(parts: Sequence[Part]) -> Iterator[tuple[str, Report]]:
    """Labels of Node Feature Discovery by which a GPU Operator of the cluster knows no node."""
    if any(one.chart == chart_values.OPERATOR or one.kind == POLICY for one in parts):
        for one in parts:
            if one.chart == chart_values.DISCOVERY:
                report = Report()
                chart_values.label_fields(one.document, "", report)
                yield one.place, report


def _configurations(parts: Iterable[Part]) -> tuple[dict[str, set[str]], set[str], set[str]]:
    """Return the names of what each ConfigMap has, and those of all configurations of the device plugin, and of all layouts."""
    of_map: dict[str, set[str]] = {}
    files: set[str] = set()
    layouts: set[str] = set()
    for one in parts:
        data = mapping(one.document.get("data")) if one.kind == "ConfigMap" else {}
        if data:
            of_map.setdefault(str(below(one.document, "metadata", "name")), set()).update(map(str, data))
        own = mapping(one.document.get("configMaps")) if one.chart == chart_values.OWN else {}
        of_map.update({str(name): set(map(str, mapping(texts))) for name, texts in own.items()})
        for text in (*data.values(), *(text for texts in own.values() for text in mapping(texts).values())):
            if isinstance(text, str) and "mig-configs" in text:
                try:
                    layouts |= set(map(str, mapping(below(read_yaml(text), "mig-configs"))))
                except ValueError:
                    continue
        for path in (("config", "map"), ("devicePlugin", "config", "data")):
            files |= set(map(str, mapping(below(one.document, *path)))) if one.chart else set()
    return of_map, files, layouts


def _names(parts: Sequence[Part], patches: Container[str]) -> Iterator[tuple[str, Report]]:
    """Names that refer to something which is in other files of the cluster; where that is in none of them, nothing is said."""
    of_map, files, layouts = _configurations(parts)
    # Of what a patch or a generator changes, the rest is elsewhere.
    changed = [
        below(one.document, "metadata") for one in parts if one.kind == "ConfigMap" and is_patch(one.file, patches)
    ]
    for one in parts:
        changed += sequence(one.document.get("configMapGenerator"))
    for each in changed:
        of_map.pop(str(below(each, "name")), None)
    named = _named(parts)
    # Where one of the ConfigMaps is elsewhere, so may be what a label names.
    known = files.union(*(of_map[name] for name in named)) if named <= set(of_map) else set()
    of_kind: dict[str, set[str]] = {}
    for one in parts:
        of_kind.setdefault(one.kind, set()).add(str(below(one.document, "metadata", "name")))
    for one in parts:
        report = Report()
        for path, inner in _DEFAULTS.get(one.chart or one.kind, ()):
            _default(one, path, inner, of_map, layouts, report)
        for path, kind, name in names_of(one.document):
            if name not in of_kind.get(kind, {name}):
                report.warning(path, f"none of these files has a {kind} {name}", near(name, of_kind[kind]))
        if one.kind == "DaemonSet":
            _env_from(one, of_map, report)
        for path, labels in _labels(one):
            for label, names in ((_CONFIG_LABEL, known), (_MIG_LABEL, layouts)):
                value = labels.get(label)
                if names and isinstance(value, str) and value not in names:
                    report.error(
                        f"{path}['{label}']", f"none of these files has a configuration {value}", near(value, names)
                    )
        yield one.place, report


def _named(parts: Iterable[Part]) -> set[str]:
    """Return the ConfigMaps that device plugins read."""
    paths = (("config", "name"), ("devicePlugin", "config", "name"), ("spec", "devicePlugin", "config", "name"))
    found = {below(one.document, *path) for one in parts if one.chart or one.kind == POLICY for path in paths}
    return {name for name in found if isinstance(name, str) and name}


def _default(
    one: Part, path: str, inner: str, of_map: Mapping[str, set[str]], layouts: set[str], report: Report
) -> None:
    config = mapping(below(one.document, *path.split(".")))
    default, name = config.get("default"), config.get("name")
    names = set(map(str, mapping(config.get(inner)))) or of_map.get(str(name), set())
    if path.endswith("migManager.config"):
        names = layouts if names else set()
    if names and isinstance(default, str) and default and default not in names:
        where = f"ConfigMap {name}" if str(name) in of_map else f"{path}.{inner}"
        message = f"{where} has no {default}, so that nothing starts on nodes without the label"
        report.error(f"{path}.default", message, near(default, names))


def _env_from(one: Part, of_map: Mapping[str, set[str]], report: Report) -> None:
    path = "spec.template.spec.containers"
    for number, container in enumerate(sequence(below(one.document, *path.split(".")))):
        for index, entry in enumerate(sequence(below(container, "envFrom"))):
            name = str(below(entry, "configMapRef", "name"))
            if any("." in key or key == "config" for key in of_map.get(name, ())):
                report.warning(
                    f"{path}[{number}].envFrom[{index}]",
                    f"the files of ConfigMap {name} become variables, which no program of NVIDIA's reads as its configuration",
                    "Mount it as a volume, and name the file with --config-file or CONFIG_FILE.",
                )


def _labels(one: Part) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the labels of nodes in a Node, or in a rule of Node Feature Discovery."""
    if one.kind == "Node":
        yield "metadata.labels", mapping(below(one.document, "metadata", "labels"))
    if one.kind == "NodeFeatureRule":
        for number, rule in enumerate(sequence(below(one.document, "spec", "rules"))):
            yield f"spec.rules[{number}].labels", mapping(below(rule, "labels"))


def _both(plugin: Part, driver: Part, parts: Sequence[Part]) -> Iterator[tuple[str, Report]]:
    """Both charts run on every node with a GPU unless they are told on which: that is certain, and all else depends on the labels of nodes."""
    placements = (plugin.document, mapping(driver.document.get("kubeletPlugin")))
    restrictions = [_restriction(one) for one in placements]
    if all(restrictions) and restrictions[0] != restrictions[1]:
        return
    free, path = (driver, "kubeletPlugin.affinity") if restrictions[0] else (plugin, "affinity")
    nodes = next((f"nodes with {one}" for one in restrictions if one), "every node with a GPU")
    served = sorted({_GPU, *filter(None, (_resource(one.document) for one in parts))})
    report = Report()
    report.warning(
        path,
        f"the device plugin of {plugin.file} and the DRA driver of {driver.file} run on {nodes} both, and offer the same GPUs twice: as "
        f"{', '.join(served)}, and as devices of claims",
        "Give each of them its own nodes by nodeSelector or affinity; gpufleet.nvidia.render does so by nvidia_sharing_backend.",
    )
    yield free.place, report


def _restriction(placement: Mapping[str, Any]) -> str:
    """Return which nodes values choose, for people; empty where it is left to the chart."""
    chosen = [f"{key}={value}" for key, value in mapping(placement.get("nodeSelector")).items()]
    required = below(placement, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = [
        " and ".join(_expression(mapping(one)) for one in sequence(mapping(term).get("matchExpressions")))
        for term in sequence(mapping(required).get("nodeSelectorTerms"))
    ]
    return " and ".join([*chosen, *([" or ".join(terms)] if terms else [])])


def _expression(one: Mapping[str, Any]) -> str:
    values = ", ".join(map(str, sequence(one.get("values"))))
    return f"{one.get('key')} {one.get('operator')}" + (f" ({values})" if values else "")
