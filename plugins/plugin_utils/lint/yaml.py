# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""YAML as the device plugin's Go code reads it, which is neither YAML 1.2 nor what PyYAML makes of it.

The plugin reads its file with C(sigs.k8s.io/yaml) 1.6 over go-yaml 2.4 (C(resolve.go)): the first document only, YAML 1.1 booleans (C(yes),
C(off)), octal C(010), merge keys, the last of two equal keys. This module does the same on PyYAML's event stream and says what the file's
author may not have meant.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .decode import LONGEST_NUMBER, fold
from .finding import Report, join

try:
    import yaml

    HAS_YAML = True
except ImportError:  # hosts need no PyYAML; only the controller lints
    HAS_YAML = False

#: What aliases may make of a document ("billion laughs"): so many values, and so many times its own.
_ALIASES, _ALIASED = 100_000, 10
#: A document that says which YAML it is, which libyaml reads and go-yaml refuses unless it is 1.1.
_DIRECTIVE = re.compile(r"^\ufeff?%YAML[ \t]+(?!1\.1\s)", re.MULTILINE)
_PREFIX = "tag:yaml.org,2002:"
_RESOLVABLE = frozenset(_PREFIX + name for name in ("str", "bool", "int", "float", "null"))
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
    **dict.fromkeys([".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"], math.inf),
    **dict.fromkeys(["-.inf", "-.Inf", "-.INF"], -math.inf),
    **dict.fromkeys([".nan", ".NaN", ".NAN"], math.nan),
}
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[oO]?(?P<oct>[0-7]+)|0[bB](?P<bin>[01]+)|(?P<dec>0|[1-9][0-9]*))"
)
_BASES = {"hex": 16, "oct": 8, "bin": 2, "dec": 10}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class YamlError(Exception):
    """The text is invalid YAML for the plugin."""


def load(text: str, report: Report) -> Any:
    """Return the first document of C(text) as plain data, None for an empty one; YamlError is what the plugin would refuse."""
    if not HAS_YAML:
        raise YamlError("PyYAML is not installed on the controller")
    if _DIRECTIVE.match(text):
        raise YamlError("found incompatible YAML document (the plugin reads YAML 1.1)")
    # go-yaml stems from the C library, without which PyYAML can be built.
    events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        value = _YamlReader(report).first(events)
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise YamlError("the document is nested too deeply") from error
    try:
        more = any(isinstance(event, yaml.DocumentStartEvent) for event in events)
    except yaml.YAMLError:
        # However wrong it is, the plugin never reads it.
        more = True
    if more:
        report.warning(
            "", "only the first document is read: what follows it is ignored", "Keep one document in a file."
        )
    _refuse_infinite(value, "")
    return value


def dump(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(document), sort_keys=False)
    return text


class _Node(NamedTuple):
    """A node of the document: its event, and its children, of a mapping keys and values in turn. An alias is the node that it stands for."""

    event: Any
    children: list[_Node]

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.event, yaml.MappingStartEvent)

    @property
    def is_merge(self) -> bool:
        event = self.event
        return (
            isinstance(event, yaml.ScalarEvent)
            and event.value == "<<"
            and (event.implicit[0] or event.tag == _PREFIX + "merge")
        )


class _YamlReader:
    """Turns events into values as go-yaml does."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._anchors: dict[str, _Node] = {}
        self._open: set[int] = set()
        self._composed = self._read = 0

    def first(self, events: Any) -> Any:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                return self._value(self._compose(next(events), events), "")
        return None

    def _compose(self, event: Any, events: Any) -> _Node:
        self._composed += 1
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise YamlError(f"unknown anchor {event.anchor!r} referenced")
            return self._anchors[event.anchor]
        node = _Node(event, [])
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        if isinstance(event, yaml.CollectionStartEvent):
            while not isinstance(child := next(events), yaml.CollectionEndEvent):
                node.children.append(self._compose(child, events))
        return node

    def _value(self, node: _Node, path: str) -> Any:
        self._read += 1
        if self._read > _ALIASES + _ALIASED * self._composed:
            raise YamlError("document contains excessive aliasing")
        if isinstance(node.event, yaml.ScalarEvent):
            return self._scalar(node.event, path)
        if id(node) in self._open:
            raise YamlError(f"anchor {node.event.anchor!r} value contains itself")
        self._open.add(id(node))
        try:
            if node.is_mapping:
                return self._mapping(node, path)
            return [self._value(child, f"{path}[{index}]") for index, child in enumerate(node.children)]
        finally:
            self._open.discard(id(node))

    def _scalar(self, event: Any, path: str) -> Any:
        # An escape such as \ud800: half a character, of which Python makes a text that cannot be written.
        if any("\ud800" <= letter <= "\udfff" for letter in event.value):
            raise YamlError("found invalid Unicode character escape code")
        tag = event.tag
        if tag is None and not event.implicit[0]:
            return event.value
        if tag == _PREFIX + "binary":
            try:
                return base64.b64decode(event.value, validate=True).decode("utf-8", "replace")
            except (binascii.Error, ValueError) as error:
                raise YamlError("!!binary value contains invalid base64 data") from error
        value, surprise = resolve(tag, event.value)
        if surprise:
            message = f"{event.value} is read as {surprise}"
            self._report.warning(path, message, "Write the number in plain decimal digits.")
        return value

    def _mapping(self, node: _Node, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        own: set[str] = set()
        for key_node, value_node in zip(node.children[::2], node.children[1::2]):
            if key_node.is_merge:
                self._merge(value_node, path, result)
                continue
            key = _key(self._value(key_node, path))
            if key in own:
                self._report.warning(
                    join(path, key), "the key is given twice: the last one wins, the first is ignored", "Keep one."
                )
            own.add(key)
            result[key] = self._value(value_node, join(path, key))
        return result

    def _merge(self, node: _Node, path: str, into: dict[str, Any]) -> None:
        """Unlike YAML says, keys that were given before a merge are overwritten by it: go-yaml goes from top to bottom."""
        sources = [node] if node.is_mapping else node.children[::-1]
        if isinstance(node.event, yaml.ScalarEvent) or not all(source.is_mapping for source in sources):
            raise YamlError("map merge requires map or sequence of maps as the value")
        for source in sources:
            merged = self._value(source, path)
            for key in sorted(set(into) & set(merged)):
                if into[key] != merged[key]:
                    self._report.warning(
                        join(path, key),
                        "the merge key << stands below this key and overwrites it",
                        "Put << before the keys that override it.",
                    )
            into.update(merged)


def _key(key: Any) -> str:
    """Turn a key into the string that it becomes in JSON."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str):
        return key
    if isinstance(key, (int, float)) and not (isinstance(key, int) and key >= 2**63):
        return str(key)
    raise YamlError(f"unsupported map key: {key!r}")


def _refuse_infinite(value: Any, path: str) -> None:
    """JSON, through which the plugin reads its file, has neither infinity nor NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        raise YamlError(f"{path}: json: unsupported value: {value}")
    if isinstance(value, dict):
        for key, item in value.items():
            # The version becomes a string before it becomes JSON.
            if path or fold(key) != "version" or isinstance(item, (dict, list)):
                _refuse_infinite(item, join(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_infinite(item, f"{path}[{index}]")


#: A scalar, and what it is read as where that is not what it looks like.
_Scalar = tuple["str | int | float | bool | None", str]


def resolve(tag: str | None, text: str) -> _Scalar:
    """Return what go-yaml makes of a plain scalar, or of one with an explicit tag, which raises YamlError where it does not fit (C(!!int four))."""
    kind = tag[len(_PREFIX) :] if tag else None
    if kind == "str" or (tag is not None and tag not in _RESOLVABLE):
        return text, ""
    value, surprise = _plain(text)
    found = _kind(value)
    if kind is None or found == kind:
        return value, surprise
    if (kind, found) == ("float", "int"):
        return float(value), ""  # type: ignore[arg-type]
    raise YamlError(f"cannot decode !!{found} {text!r} as a !!{kind}")


def _plain(text: str) -> _Scalar:
    if text in _WORDS:
        return _WORDS[text], ""
    if text[0] not in "+-.0123456789":
        return text, ""
    digits = text if text[0] == "." else text.replace("_", "")
    match = _INTEGER.fullmatch(digits) if len(digits) <= LONGEST_NUMBER else None
    if match:
        group, base = next((group, base) for group, base in _BASES.items() if match[group])
        number = int(match["sign"] + match[group], base)
        if -(2**63) <= number <= (2**63 if match["sign"] else 2**64) - 1:
            return number, "" if _DECIMAL.fullmatch(text) else str(number)
    real = float(digits) if _FLOAT.fullmatch(digits) else math.inf
    if math.isinf(real):
        return text, ""
    return real, "" if digits == text else repr(real)


def _kind(value: object) -> str:
    return {bool: "bool", int: "int", float: "float", type(None): "null"}.get(type(value), "str")
