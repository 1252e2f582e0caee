# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What objects and values of one cluster say together, each of which says nothing wrong: who serves a resource, and on which nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .dra_claims import KINDS
from .driver_pods import is_plugin
from .finding import Report
from .reading import below, group_of, mapping, sequence

_CLASS = KINDS[0]
#: Where the rendered tree, as most GitOps repositories, has the files of a cluster.
_CLUSTERS = "clusters"
_GPU = "nvidia.com/gpu"


class Part(NamedTuple):
    """One document of a file.

    :param file: its path.
    :param place: the name of what the linter says of it.
    """

    file: str
    place: str
    document: Mapping[str, Any]


class _Server(NamedTuple):
    """Values of a chart whose pods serve GPUs.

    :param placement: the section of the values that has C(nodeSelector) and C(affinity), and its path.
    """

    part: Part
    path: str
    placement: Mapping[str, Any]


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


def check(parts: Sequence[Part]) -> Iterator[tuple[str, Report]]:
    """Yield what is wrong with the documents of one cluster, each with the name of the one that it is said of."""
    yield from _classes(parts)
    drivers = [
        _Server(one, "kubeletPlugin", mapping(one.document["kubeletPlugin"]))
        for one in parts
        if _offers_gpus(one.document)
    ]
    for one in parts:
        if is_plugin(one.document) and below(one.document, "devicePlugin", "enabled") is not False:
            for driver in drivers:
                yield from _both(_Server(one, "", one.document), driver, parts)


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


def is_dra_driver(document: Mapping[str, Any]) -> bool:
    """Return whether these are values of the chart dra-driver-nvidia-gpu."""
    return "kind" not in document and isinstance(document.get("kubeletPlugin"), Mapping)


def _offers_gpus(document: Mapping[str, Any]) -> bool:
    return is_dra_driver(document) and below(document, "resources", "gpus", "enabled") is not False


def _both(plugin: _Server, driver: _Server, parts: Sequence[Part]) -> Iterator[tuple[str, Report]]:
    """Both charts run on every node with a GPU unless they are told on which: that is certain, and all else depends on the labels of nodes."""
    restrictions = [_restriction(one.placement) for one in (plugin, driver)]
    if all(restrictions) and restrictions[0] != restrictions[1]:
        return
    free = plugin if not restrictions[0] else driver
    nodes = next((f"nodes with {one}" for one in restrictions if one), "every node with a GPU")
    served = sorted({_GPU, *filter(None, (_resource(one.document) for one in parts))})
    report = Report()
    report.warning(
        f"{free.path}.affinity".lstrip("."),
        f"the device plugin of {plugin.part.file} and the DRA driver of {driver.part.file} run on {nodes} both, and offer the same GPUs twice: as "
        f"{', '.join(served)}, and as devices of claims",
        "Give each of them its own nodes by nodeSelector or affinity; gpufleet.nvidia.render does so by nvidia_sharing_backend.",
    )
    yield free.part.place, report


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
