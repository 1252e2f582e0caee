# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts that are the same for the same input: YAML and JSON in a stable order, unwrapped and with comments on where values come from; templates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from ...module_utils._formats.documents import read_yaml


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key, writes texts of several lines as blocks, and never uses anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


#: Texts that PyYAML reads as texts and leaves bare, and that others do not. The Go programs which read these files take for numbers what YAML 1.2 and
#: strconv.ParseInt take for them, 08, 12e5, 0B11 and 0X1F among them, single letters for booleans, and 2026-1-2 for a date (go-yaml 2 and 3,
#: resolve.go); before that they leave out all underscores of a number. ruamel.yaml takes for one what has none but underscores for digits, too.
_NOT_BARE = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?0([oO][0-7]*|[bB][01]*|[xX][0-9a-fA-F.]*([pP][-+]?[0-9]+)?)"
    r"|[-+]?\.?|[yYnN]|[-+]?\.(inf|nan)|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"
)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else "'" if _NOT_BARE.fullmatch(value.replace("_", "")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(value: Any) -> str:
    """Return C(value) as a YAML document body, keys in the order in which they were given."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=10**9, allow_unicode=True
    )
    return text


def json_text(value: Any) -> str:
    """Return C(value) as JSON with sorted keys."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


def documents(header: str, objects: Sequence[Mapping[str, Any]]) -> str:
    return comment(header) + "".join("---\n" + yaml_text(dict(item)) for item in objects)


def sections(header: str, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return one mapping whose top-level keys are written part by part, each under a comment that says where it comes from."""
    text = comment(header) + "---\n"
    for note, part in parts:
        text += "\n" + comment(note) + yaml_text(dict(part))
    return text


def made(template: str, **values: Any) -> dict[str, Any]:
    """Return the object that a template in C(objects) describes."""
    found: dict[str, Any] = read_yaml(filled(f"objects/{template}.yml.j2", **values))
    return found


@cache
def _template(name: str) -> Template:
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(autoescape=".html" in name, loader=loader, undefined=StrictUndefined, **options)
    # In a file of YAML: what is filled in is one value there, whatever is in it.
    environment.filters["json"] = json.dumps
    return environment.get_template(name)


def filled(template: str, **values: Any) -> str:
    """Return the text of a template beside this file; in a page of HTML what is filled in is escaped. No value is taken for a template itself."""
    return _template(template).render(values)
