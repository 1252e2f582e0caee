# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the linter checks inside other files: configurations (in ConfigMaps and values of NVIDIA's charts, with what these tell the plugin) and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .claims import is_claim
from .yaml import HAS_C_LIBRARY, HAS_YAML

if HAS_YAML:
    import yaml


_STRATEGY = "DEVICE_LIST_STRATEGY"
#: A file with one of them is a configuration, whatever else is in it.
_OF_A_CONFIGURATION = {"version", "flags", "sharing"}


class Configuration(NamedTuple):
    """A configuration and where it was found.

    :param told: device list strategies that the plugin is started with, which beat those of its file; empty where the file decides.
    """

    name: str
    text: str
    told: tuple[str, ...] = ()


def configurations(name: str, text: str) -> list[Configuration]:
    """Return the configurations and claims in a file, each with a name that says where it is; the file itself when it is none of these.

    Values of a chart and DaemonSets that name a device list strategy, and no configuration, count as an empty one.

    :param name: of the file.
    """
    try:
        documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader if HAS_C_LIBRARY else yaml.SafeLoader))
    except yaml.YAMLError:
        return [Configuration(name, text)]
    found = []
    for document in documents:
        if not isinstance(document, Mapping):
            continue
        if is_claim(document):
            path = f"{document.get('kind')}/{_below(document, 'metadata', 'name')}"
            found.append(Configuration(f"{name}[{path}]", yaml.safe_dump(dict(document), sort_keys=False)))
            continue
        told = _told(document)
        inside = list(_inside(document)) or ([(str(document.get("kind") or "values"), "version: v1\n")] if told else [])
        found += [Configuration(f"{name}[{path}]", inner, told) for path, inner in inside]
    return found or [Configuration(name, text)]


def _told(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the strategies that values of the plugin's chart or of the GPU Operator, or a DaemonSet, start the plugin with."""
    if _OF_A_CONFIGURATION & set(document):
        return ()
    containers = _below(document, "spec", "template", "spec", "containers")
    said: Any = _environment(_below(document, "devicePlugin", "env"))
    for container in containers if document.get("kind") == "DaemonSet" and isinstance(containers, list) else ():
        said = said or _environment(_below(container, "env"))
    said = document.get("deviceListStrategy") or said
    if not said and isinstance(document.get("devicePlugin"), Mapping) and _below(document, "cdi", "enabled") is True:
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
        places = [("config.map", _below(document, "config", "map"))]
        places.append(("devicePlugin.config.data", _below(document, "devicePlugin", "config", "data")))
    for path, texts in places:
        for key, inner in texts.items() if isinstance(texts, Mapping) else ():
            if isinstance(inner, str):
                yield f"{path}.{key}", inner


def _below(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
