# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the few values that facts need from TOML files, on hosts whose Python has no TOML parser (before 3.11).

This is no parser: it knows tables, and keys with strings, numbers, booleans and arrays of strings, which is what the
configurations of containerd, CRI-O and the NVIDIA container toolkit are made of. Anything else is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Union

Value = Union[str, int, bool, "list[str]"]

_PART = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(\.|$)""")
_STRING = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")


def scan(text: str) -> dict[tuple[str, ...], dict[str, Value]]:
    """Return the keys of each table, by the table's path; the keys before the first table are under C(())."""
    tables: dict[tuple[str, ...], dict[str, Value]] = {(): {}}
    current: tuple[str, ...] | None = ()
    for line in _logical_lines(text):
        if line.startswith("["):
            # An array of tables ([[name]]) is none of what we look for: its keys are passed over.
            current = None if line.startswith("[[") else _path(line[1:].rpartition("]")[0])
            if current is not None:
                tables.setdefault(current, {})
            continue
        name, sign, raw = line.partition("=")
        path = _path(name) if sign else None
        value = _value(raw.strip())
        if current is not None and path and value is not None:
            tables.setdefault(current + path[:-1], {})[path[-1]] = value
    return tables


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments, with arrays over several lines joined."""
    pending = ""
    for raw in text.splitlines():
        line = _without_comment(raw).strip()
        if not line:
            continue
        pending = f"{pending} {line}".strip()
        if "=" in pending and not pending.startswith("[") and pending.count("[") > pending.count("]"):
            continue
        yield pending
        pending = ""


def _without_comment(line: str) -> str:
    quote = ""
    for position, character in enumerate(line):
        if quote:
            quote = "" if character == quote and line[position - 1] != "\\" else quote
        elif character in "\"'":
            quote = character
        elif character == "#":
            return line[:position]
    return line


def _path(text: str) -> tuple[str, ...] | None:
    parts = []
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            return None
        parts.append(next(group for group in match.groups()[:3] if group is not None))
        position = match.end()
    return tuple(parts) or None


def _value(text: str) -> Value | None:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("["):
        return [_text(match) for match in _STRING.finditer(text)]
    string = _STRING.match(text)
    if string:
        return _text(string)
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else None


def _text(match: re.Match[str]) -> str:
    basic, literal = match.groups()
    return literal if basic is None else re.sub(r'\\(["\\])', r"\1", basic)
