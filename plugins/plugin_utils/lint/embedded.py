# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the linter checks inside other files: configurations (in ConfigMaps and values of charts, with what these tell the plugin), pods that have to
see the driver, claims, and objects of the GPU Operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...module_utils._formats.documents import read_yaml_documents
from . import together
from .claims import is_claim
from .gpu_operator import is_operator
from .lint import Verdict, lint, ordered
from .objects import OF_A_CONFIGURATION, below
from .pods import has_pods
from .yaml import HAS_YAML

if HAS_YAML:
    import yaml


_STRATEGY = "DEVICE_LIST_STRATEGY"


class Configuration(NamedTuple):
    """A configuration and where it was found.

    :param started_with: device list strategies that the plugin is started with, which beat those of its file; empty where the file decides.
    :param others: further objects of the GPU Operator in the file, if this is one.
    """

    name: str
    text: str
    started_with: tuple[str, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()


def lint_files(texts: Mapping[str, str], facts: Mapping[str, Any] | None = None) -> dict[str, Verdict]:
    """Return what the linter says of each configuration and object in files, by a name that begins with the file's, and of all that are in one folder,
    or in one C(clusters/NAME), together.

    :param texts: by the paths of the files.
    :param facts: of the node on which they will be used, as for L(lint).
    """
    verdicts: dict[str, Verdict] = {}
    parts: list[together.Part] = []
    for name, text in texts.items():
        documents = _documents(text)
        for one in _taken_apart(name, text, documents):
            verdicts[one.name] = lint(one.text, facts, one.started_with, one.others)
        parts += [together.Part(name, _place(name, document), document) for document in documents]
    for cluster in together.by_cluster(parts):
        for place, report in together.check(cluster):
            there = verdicts.get(place, Verdict((), None))
            verdicts[place] = replace(there, findings=ordered((*there.findings, *report.findings)))
    return verdicts


def configurations(name: str, text: str) -> list[Configuration]:
    """Return the configurations, claims and objects of the GPU Operator in a file, and the values and DaemonSets by which pods have to see the
    driver, each with a name that says where it is; the file itself when it has none of these.

    Values of a chart and DaemonSets that name a device list strategy, and no configuration, count as an empty one.

    :param name: of the file.
    """
    return _taken_apart(name, text, _documents(text))


def _documents(text: str) -> list[Mapping[str, Any]]:
    """Return the mappings among the documents of a file; nothing where it is no YAML, which L(lint) says."""
    try:
        documents = read_yaml_documents(text)
    except ValueError:
        return []
    return [document for document in documents if isinstance(document, Mapping)]


def _place(name: str, document: Mapping[str, Any]) -> str:
    """Return where a document is: values of a chart have neither kind nor name."""
    return (
        f"{name}[{document['kind']}/{below(document, 'metadata', 'name')}]" if "kind" in document else f"{name}[values]"
    )


def _taken_apart(name: str, text: str, documents: Sequence[Mapping[str, Any]]) -> list[Configuration]:
    found = []
    operators = [document for document in documents if is_operator(document)]
    for document in documents:
        place = _place(name, document)
        if is_operator(document):
            others = tuple(other for other in operators if other is not document)
            found.append(Configuration(place, _text(document), others=others))
            continue
        if is_claim(document):
            found.append(Configuration(place, _text(document)))
            continue
        started_with = _started_with(document)
        inside = list(_inside(document))
        if has_pods(document):
            found.append(Configuration(place, _text(document), () if inside else started_with))
        elif started_with and not inside:
            inside = [(str(document.get("kind") or "values"), "version: v1\n")]
        found += [Configuration(f"{name}[{path}]", inner, started_with) for path, inner in inside]
    if not found and any(map(together.is_dra_driver, documents)):
        # Of these values nothing is said but together with others.
        return []
    return found or [Configuration(name, text)]


def _text(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False)


def _started_with(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the strategies that values of the plugin's chart, of HAMi or of the GPU Operator, or a DaemonSet, start the plugin with."""
    if OF_A_CONFIGURATION & set(document):
        return ()
    containers = below(document, "spec", "template", "spec", "containers")
    said: Any = _environment(below(document, "devicePlugin", "env"))
    for container in containers if document.get("kind") == "DaemonSet" and isinstance(containers, list) else ():
        said = said or _environment(below(container, "env"))
    said = document.get("deviceListStrategy") or below(document, "devicePlugin", "deviceListStrategy") or said
    if not said and isinstance(document.get("devicePlugin"), Mapping) and below(document, "cdi", "enabled") is True:
        # What the GPU Operator gives its plugin then.
        return ("cdi-annotations", "cdi-cri")
    parts = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
    return tuple(part.strip() for part in map(str, parts) if part.strip())


def _environment(entries: Any) -> Any:
    named = [one for one in entries if isinstance(one, Mapping)] if isinstance(entries, list) else []
    return next((one.get("value") for one in named if one.get("name") == _STRATEGY), None)


def _inside(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if document.get("kind") == "ConfigMap" and isinstance(document.get("data"), Mapping):
        places = [("data", document["data"])]
    else:
        places = [("config.map", below(document, "config", "map"))]
        places.append(("devicePlugin.config.data", below(document, "devicePlugin", "config", "data")))
        nodes = below(document, "devicePlugin", "nodeConfiguration", "config")
        places.append(("devicePlugin.nodeConfiguration", {"config": nodes}))
        places.append(("device-config", {"content": below(document, "device-config", "content")}))
    for path, texts in places:
        for key, inner in texts.items() if isinstance(texts, Mapping) else ():
            if isinstance(inner, str):
                yield f"{path}.{key}", inner
