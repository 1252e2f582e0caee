# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Device plugin configurations inside other files: ConfigMaps, and values of NVIDIA's charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .yaml import HAS_C_LIBRARY, HAS_YAML

if HAS_YAML:
    import yaml


def configurations(name: str, text: str) -> list[tuple[str, str]]:
    """Return the configurations in a file, each with a name that says where it is; the file itself when it is none of these.

    :param name: of the file.
    """
    try:
        documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader if HAS_C_LIBRARY else yaml.SafeLoader))
    except yaml.YAMLError:
        return [(name, text)]
    found = [entry for document in documents for entry in _inside(document)]
    return [(f"{name}[{path}]", inner) for path, inner in found] or [(name, text)]


def _inside(document: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(document, Mapping):
        return
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
