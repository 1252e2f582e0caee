#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print the fields of custom resource definitions, for plugins/plugin_utils/lint/object_fields.yml.

    tools/crd-fields.py "Node Feature Discovery 0.19.0" path/to/chart/crds/*.yaml ...

They stand below what brings the definitions, with its version, as messages name it. The GPU Operator's copies of others' definitions are left out.
A field is its type, with all values that it may have, the fields below it, or a list with what its items are; "any" is not checked. The name of a required
field ends in "*".
"""

from __future__ import annotations

import sys
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        # What does not fit into a line is not broken inside of braces.
        node.flow_style = node.flow_style and sum(len(f"{one}: {mapping[one]}, ") for one in mapping) < 145
        return node


def fields(schema: dict[str, Any]) -> Any:
    """Return what the linter has to know of one field and all below it."""
    if "anyOf" in schema or "oneOf" in schema or schema.get("x-kubernetes-preserve-unknown-fields"):
        return "any"
    if "properties" in schema:
        # The API server fills in what has a default before it asks for what is required.
        required = {name for name in schema.get("required", ()) if "default" not in schema["properties"][name]}
        return {name + "*" * (name in required): fields(one) for name, one in schema["properties"].items()}
    if schema.get("type") == "array":
        return [fields(schema["items"])]
    if schema.get("type") == "object":
        return "any"
    return " ".join([schema["type"], *(one or '""' for one in schema.get("enum", ()))])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    found = {}
    for path in sys.argv[2:]:
        for definition in map(itemgetter("spec"), yaml.safe_load_all(Path(path).read_text(encoding="utf-8"))):
            for version in (one for one in definition["versions"] if one["served"]):
                properties = version["schema"]["openAPIV3Schema"]["properties"]
                title = f"{definition['names']['kind']} {definition['group']}/{version['name']}"
                found[title] = fields(properties.get("spec") or properties["daemons"])
    print(yaml.dump({sys.argv[1]: found}, Dumper=_Dumper, default_flow_style=None, width=140), end="")
