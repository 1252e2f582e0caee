# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change single members of a JSON text and keep every other byte: order, indentation and spacing are the user's."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(strict=True)


class JsonError(ValueError):
    """The text is not JSON, or cannot be edited as asked."""


@dataclass(frozen=True)
class Member:
    name: str
    start: int
    value_start: int
    value_end: int
    value: Any


@dataclass(frozen=True)
class Object:
    start: int
    end: int
    members: tuple[Member, ...]


def load(text: str) -> dict[str, Any]:
    """Return the data of C(text); an empty text is an empty object. Raises JsonError: it is not JSON, is not an object, or has a member twice."""
    if not text.strip():
        return {}
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except (RecursionError, ValueError) as error:
        raise JsonError(str(error)) from error
    if not isinstance(data, dict):
        raise JsonError("it is not a JSON object")
    return data


def set_member(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return C(text) with the member at C(path) having C(value); unchanged when it has it already. Objects on the way are made when they are missing.
    Raises JsonError: the text is not JSON, or the path leads through something that is not an object.
    """
    data: Any = load(text)
    if not text.strip():
        return json.dumps(_nested(path, value), indent=4) + "\n"
    current = _object_at(text, _skip(text, 0))
    for depth, name in enumerate(path):
        member = next((m for m in current.members if m.name == name), None)
        if member is None:
            return _insert(text, current, name, _nested(path[depth + 1 :], value))
        data = data[name]
        if depth + 1 == len(path):
            if data == value and type(data) is type(value):
                return text
            rendered = _render(text, member.start, value)
            return text[: member.value_start] + rendered + text[member.value_end :]
        if not isinstance(data, dict):
            raise JsonError(f"{'.'.join(path[: depth + 1])} is not an object")
        current = _object_at(text, member.value_start)
    return text


def remove_member(text: str, path: tuple[str, ...]) -> str:
    """Return C(text) without the member at C(path), and without the objects around it that it leaves empty."""
    data: Any = load(text)
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return text
        data = data[name]
    current = _object_at(text, _skip(text, 0))
    parents = [current]
    for name in path[:-1]:
        member = next(m for m in current.members if m.name == name)
        current = _object_at(text, member.value_start)
        parents.append(current)
    depth = len(path) - 1
    while depth > 0 and len(parents[depth].members) == 1:
        depth -= 1
    return _remove(text, parents[depth], path[depth])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a member occurs twice")
    return data


def _nested(path: tuple[str, ...], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _object_at(text: str, start: int) -> Object:
    members: list[Member] = []
    position = _skip(text, start + 1)
    while not text.startswith("}", position):
        name_start = position
        name, position = scanstring(text, position + 1)
        value_start = _skip(text, _skip(text, position) + 1)
        value, value_end = _DECODER.raw_decode(text, value_start)
        members.append(Member(name, name_start, value_start, value_end, value))
        position = _skip(text, value_end)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
    return Object(start, position + 1, tuple(members))


def _indentation(text: str, position: int) -> str | None:
    """Return the white space before C(position) when nothing else is on its line, else None."""
    line = text.rfind("\n", 0, position) + 1
    before = text[line:position]
    return before if line > 0 and not before.strip() else None


def _step(text: str) -> str:
    """Return by how much this file indents."""
    match = re.search(r"\n([ \t]+)\S", text)
    return match.group(1) if match else "    "


def _render(text: str, position: int, value: Any) -> str:
    indentation = _indentation(text, position)
    if indentation is None or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value)
    newline = "\r\n" if "\r\n" in text else "\n"
    return json.dumps(value, indent=_step(text)).replace("\n", newline + indentation)


def _insert(text: str, parent: Object, name: str, value: Any) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    if parent.members:
        last = parent.members[-1]
        indentation = _indentation(text, last.start)
        separator = f",{newline}{indentation}" if indentation is not None else ", "
        rendered = f"{json.dumps(name)}: {_render(text, last.start, value)}"
        return f"{text[: last.value_end]}{separator}{rendered}{text[last.value_end :]}"
    line = text.rfind("\n", 0, parent.start) + 1
    match = re.match(r"[ \t]*", text[line:])
    outer = match.group() if match else ""
    inner = outer + _step(text)
    rendered = json.dumps(value, indent=_step(text)).replace("\n", newline + inner)
    body = f"{{{newline}{inner}{json.dumps(name)}: {rendered}{newline}{outer}}}"
    return text[: parent.start] + body + text[parent.end :]


def _remove(text: str, parent: Object, name: str) -> str:
    index = next(i for i, member in enumerate(parent.members) if member.name == name)
    member = parent.members[index]
    if len(parent.members) == 1:
        return text[: parent.start] + "{}" + text[parent.end :]
    if index == 0:
        return text[: member.start] + text[parent.members[1].start :]
    return text[: parent.members[index - 1].value_end] + text[member.value_end :]
