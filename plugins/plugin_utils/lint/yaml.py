# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""YAML as the device plugin's Go code reads it, which is neither YAML 1.2 nor what PyYAML makes of it.

The plugin reads its file with C(sigs.k8s.io/yaml) 1.6 over go-yaml 2.4: the first document only, YAML 1.1 booleans (C(yes), C(off)),
octal C(010), merge keys, the last of two equal keys. This module does the same on PyYAML's event stream and says what the file's
author may not have meant.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Any

from .decode import fold
from .finding import Report, join
from .scalar import TypeMismatch, resolve

try:
    import yaml

    HAS_YAML = True
except ImportError:  # hosts need no PyYAML; only the controller lints
    HAS_YAML = False

#: PyYAML can be built without it.
HAS_C_LIBRARY = HAS_YAML and hasattr(yaml, "CSafeLoader")
_DIRECTIVE = re.compile(r"^\ufeff?%", re.MULTILINE)
_BINARY = "tag:yaml.org,2002:binary"
_MERGE = "tag:yaml.org,2002:merge"

# go-yaml refuses documents that consist of little but expanded aliases ("billion laughs").
_ALIASES_ALWAYS_ALLOWED = 100
_NODES_ALWAYS_ALLOWED = 1000
_SMALL_DOCUMENT = 400_000
_LARGE_DOCUMENT = 4_000_000


class YamlError(Exception):
    """The text is invalid YAML for the plugin."""


def load(text: str, report: Report) -> Any:
    """Return the first document of C(text) as plain data; None for an empty one.

    :raises YamlError: the plugin would refuse the text.
    """
    if not HAS_YAML:
        raise YamlError("PyYAML is not installed on the controller")
    events = yaml.parse(text, Loader=_loader(text))
    try:
        root = _compose_first(events)
        value = _Reader(report).value(root, "") if root is not None else None
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise YamlError("the document is nested too deeply") from error
    _look_behind(events, report)
    _refuse_infinite(value, "")
    return value


def dump(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(document), sort_keys=False)
    return text


def _loader(text: str) -> Any:
    """The parser of the C library, from which go-yaml stems, or PyYAML's own with the two rules in which it differs from that.

    The C library is much faster; what it does not refuse, as go-yaml does, is a document that says which YAML it is.
    """
    if HAS_C_LIBRARY and not _DIRECTIVE.search(text):
        return yaml.CSafeLoader

    class Loader(yaml.SafeLoader):
        def scan_to_next_token(self) -> None:
            # Tabs may separate tokens wherever no indentation is meant; PyYAML accepts none.
            if self.index == 0 and self.peek() == "\ufeff":
                self.forward()
            while True:
                while self.peek() == " " or (self.peek() == "\t" and (self.flow_level or not self.allow_simple_key)):
                    self.forward()
                if self.peek() == "#":
                    while self.peek() not in "\0\r\n\x85\u2028\u2029":
                        self.forward()
                if not self.scan_line_break():
                    return
                if not self.flow_level:
                    self.allow_simple_key = True

        def process_directives(self) -> Any:
            # A document that says it is YAML 1.2 is refused.
            value = super().process_directives()
            if self.yaml_version not in (None, (1, 1)):
                raise yaml.parser.ParserError(
                    None, None, "found incompatible YAML document (the plugin reads YAML 1.1)", None
                )
            return value

    return Loader


class _Node:
    """A node of the document: its event, its children (keys and values in turn for a mapping), and the alias it came from."""

    def __init__(self, event: Any, children: list[_Node] | None = None, alias_of: _Node | None = None) -> None:
        self.event = event
        self.children = children if children is not None else []
        self.alias_of = alias_of

    @property
    def target(self) -> _Node:
        return self.alias_of or self

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.target.event, yaml.MappingStartEvent)


def _compose_first(events: Any) -> _Node | None:
    anchors: dict[str, _Node] = {}

    def compose(event: Any) -> _Node:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise YamlError(f"unknown anchor {event.anchor!r} referenced")
            return _Node(event, alias_of=anchors[event.anchor])
        node = _Node(event)
        if event.anchor is not None:
            anchors[event.anchor] = node
        if isinstance(event, yaml.CollectionStartEvent):
            for child in iter(lambda: next(events), None):
                if isinstance(child, yaml.CollectionEndEvent):
                    break
                node.children.append(compose(child))
        return node

    for event in events:
        if isinstance(event, yaml.StreamEndEvent):
            return None
        if isinstance(event, yaml.DocumentStartEvent):
            return compose(next(events))
    return None


def _look_behind(events: Any, report: Report) -> None:
    """What follows the first document is never read by the plugin, however wrong it is."""
    try:
        more = any(isinstance(event, yaml.DocumentStartEvent) for event in events)
    except yaml.YAMLError:
        more = True
    if more:
        report.warning(
            "", "only the first document is read: what follows it is ignored", "Keep one document in a file."
        )


class _Reader:
    """Turns nodes into values as go-yaml does."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open: set[int] = set()
        self._nodes = 0
        self._aliased = 0
        self._depth = 0

    def value(self, node: _Node, path: str) -> Any:
        self._count()
        if node.alias_of is not None:
            if id(node.alias_of) in self._open:
                raise YamlError(f"anchor {node.event.anchor!r} value contains itself")
            self._depth += 1
            try:
                return self.value(node.alias_of, path)
            finally:
                self._depth -= 1
        if isinstance(node.event, yaml.ScalarEvent):
            return self._scalar(node.event, path)
        self._open.add(id(node))
        try:
            if node.is_mapping:
                return self._mapping(node, path)
            return [self.value(child, f"{path}[{index}]") for index, child in enumerate(node.children)]
        finally:
            self._open.discard(id(node))

    def _count(self) -> None:
        self._nodes += 1
        self._aliased += self._depth > 0
        if self._aliased <= _ALIASES_ALWAYS_ALLOWED or self._nodes <= _NODES_ALWAYS_ALLOWED:
            return
        progress = (self._nodes - _SMALL_DOCUMENT) / (_LARGE_DOCUMENT - _SMALL_DOCUMENT)
        allowed = 0.99 - 0.89 * min(1.0, max(0.0, progress))
        if self._aliased / self._nodes > allowed:
            raise YamlError("document contains excessive aliasing")

    def _scalar(self, event: Any, path: str) -> Any:
        # An escape such as \ud800: half a character, of which Python makes a text that cannot be written.
        if any("\ud800" <= letter <= "\udfff" for letter in event.value):
            raise YamlError("found invalid Unicode character escape code")
        tag = event.tag
        if tag is None and not event.implicit[0]:
            return event.value
        if tag == _BINARY:
            try:
                return base64.b64decode(event.value, validate=True).decode("utf-8", "replace")
            except (binascii.Error, ValueError) as error:
                raise YamlError("!!binary value contains invalid base64 data") from error
        try:
            scalar = resolve(tag, event.value)
        except TypeMismatch as error:
            raise YamlError(str(error)) from error
        if scalar.surprise:
            self._report.warning(
                path, f"{event.value} is read as {scalar.surprise}", "Write the number in plain decimal digits."
            )
        return scalar.value

    def _mapping(self, node: _Node, path: str, into: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = {} if into is None else into
        own: set[str] = set()
        for key_node, value_node in zip(node.children[::2], node.children[1::2]):
            if self._is_merge(key_node):
                self._merge(value_node, path, result)
                continue
            key = _key(self.value(key_node, path))
            if key in own:
                self._report.warning(
                    join(path, key), "the key is given twice: the last one wins, the first is ignored", "Keep one."
                )
            own.add(key)
            result[key] = self.value(value_node, join(path, key))
        return result

    def _merge(self, node: _Node, path: str, into: dict[str, Any]) -> None:
        # Unlike YAML says, keys that were given before a merge are overwritten by it: go-yaml goes from top to bottom.
        if node.is_mapping:
            sources = [node]
        elif isinstance(node.event, yaml.SequenceStartEvent):
            sources = list(reversed(node.children))
        else:
            sources = []
        if not sources or not all(source.is_mapping for source in sources):
            if isinstance(node.event, yaml.SequenceStartEvent) and not node.children:
                return
            raise YamlError("map merge requires map or sequence of maps as the value")
        for source in sources:
            before = dict(into)
            merged = self.value(source, path)
            for key in sorted(set(before) & set(merged)):
                if before[key] != merged[key]:
                    self._report.warning(
                        join(path, key),
                        "the merge key << stands below this key and overwrites it",
                        "Put << before the keys that override it.",
                    )
            into.update(merged)

    @staticmethod
    def _is_merge(node: _Node) -> bool:
        event = node.event
        return (
            isinstance(event, yaml.ScalarEvent) and event.value == "<<" and (event.implicit[0] or event.tag == _MERGE)
        )


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
                _refuse_infinite(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_infinite(item, f"{path}[{index}]")
