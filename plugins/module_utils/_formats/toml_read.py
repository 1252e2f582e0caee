# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read TOML 1.0 and remember where every statement and value stands in the text.

Hosts before Python 3.11 (EL 9, Ubuntu 22.04) have no tomllib, and an editor that keeps the user's bytes needs
positions, which no library of Python's gives. Checked against tomllib by the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable, Union

Path = tuple[str, ...]
#: A path in the data: names, and indices where an array of tables is crossed.
Place = tuple[Union[str, int], ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_COMMENT = re.compile(r"#[^\x00-\x08\x0a-\x1f\x7f]*")
_NEWLINE = re.compile(r"\r?\n")
_DATE = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
_DATETIME = re.compile(rf"{_DATE}(?:[Tt ]{_TIME}(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?)?|{_TIME}")
_DECIMAL = r"(?:0|[1-9](?:_?[0-9])*)"
_FRACTION = r"[0-9](?:_?[0-9])*"
_FLOAT = re.compile(
    rf"[+-]?(?:inf|nan|{_DECIMAL}(?:\.{_FRACTION}(?:[eE][+-]?{_FRACTION})?|[eE][+-]?{_FRACTION}))(?![0-9A-Za-z_.+-])"
)
_INTEGER = re.compile(
    rf"(?:[+-]?{_DECIMAL}|0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*)(?![0-9A-Za-z_.+-])"
)
_BOOLEAN = re.compile(r"(?:true|false)(?![0-9A-Za-z_.+-])")
#: Python refuses to read longer integers.
_LONGEST_NUMBER = 4000
#: In the order in which they are tried. Python reads numbers with underscores and prefixes as TOML does.
_SCALARS: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (_BOOLEAN, lambda word: word == "true"),
    (_DATETIME, str),
    (_FLOAT, float),
    (_INTEGER, lambda digits: int(digits, 0)),
)
#: What strings begin with, and are. Up to two quotes may stand directly before the closing ones of the long kinds.
_STRINGS = (
    ('"""', re.compile(r'"""(?:\r?\n)?([^"\\]*(?:(?:\\.|"{1,2}(?!"))[^"\\]*)*)"{3}("{0,2})', re.DOTALL)),
    ("'''", re.compile(r"'''(?:\r?\n)?([^']*(?:'{1,2}(?!')[^']*)*)'{3}('{0,2})")),
    ('"', re.compile(r'"([^"\\\r\n]*(?:\\.[^"\\\r\n]*)*)"')),
    ("'", re.compile(r"'([^'\r\n]*)'")),
)
#: A line break; or an escape sequence: a character's number, a line break that is folded, or another character.
_ESCAPE = re.compile(r"\r\n|\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([ \t]*\r?\n[ \t\r\n]*|.))", re.DOTALL)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class TomlError(ValueError):
    """The text is not TOML 1.0, or cannot be edited as asked."""

    def __init__(self, reason: str, text: str = "", position: int = 0) -> None:
        self.reason = reason
        self.line = text.count("\n", 0, position) + 1
        self.column = position - (text.rfind("\n", 0, position) + 1) + 1
        super().__init__(f"{reason} (line {self.line}, column {self.column})" if text else reason)


@dataclass(frozen=True)
class TomlValue:
    """A value: what it is, and where it stands (C(text[start:end]))."""

    start: int
    end: int
    value: Any
    #: The pairs of an inline table, in order.
    pairs: tuple[Pair, ...] | None = None


@dataclass(frozen=True)
class Pair:
    """C(key = value), in a table or in an inline table. C(start) is where the key begins."""

    key: Path
    start: int
    node: TomlValue


@dataclass(frozen=True)
class Statement:
    """A table header or a pair with the whole lines it stands on (C(text[start:end]), line break included). C(crosses_array): whether that table is
    an element of an array of tables.
    """

    start: int
    end: int
    table: Path
    crosses_array: bool
    pair: Pair | None = None

    @property
    def path(self) -> Path:
        return self.table + self.pair.key if self.pair else self.table


@dataclass(frozen=True)
class Document:
    text: str
    statements: tuple[Statement, ...]
    data: dict[str, Any]

    def get(self, path: Path, default: Any = None) -> Any:
        """Return the value at C(path), or C(default)."""
        return dig(self.data, path, default)


def dig(data: Any, path: Path, default: Any = None) -> Any:
    """Return C(data[path[0]][path[1]]...), or C(default) where that leads nowhere."""
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return default
        data = data[name]
    return data


def loads(text: str) -> dict[str, Any]:
    """Return the data of a TOML text; dates and times stay strings. Raises TomlError: it is not TOML 1.0."""
    return parse(text).data


def parse(text: str) -> Document:
    """Parse C(text), keeping positions. Raises TomlError: it is not TOML 1.0."""
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        raise TomlError("a control character", text, forbidden.start())
    lone_return = re.search(r"\r(?!\n)", text)
    if lone_return:
        raise TomlError("a carriage return without a line feed", text, lone_return.start())
    statements: list[Statement] = []
    builder = _Builder(text)
    table: Path = ()
    crosses_array = False
    for start, end, header, is_array, pair in _lines(text):
        if header is not None:
            table = header
            crosses_array = builder.open(header, is_array, start)
            statements.append(Statement(start, end, table, crosses_array))
        elif pair is not None:
            builder.add(pair)
            statements.append(Statement(start, end, table, crosses_array, pair))
    return Document(text, tuple(statements), builder.data)


class _Builder:
    """Builds the data and refuses what TOML forbids: defining a key or a table twice."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.data: dict[str, Any] = {}
        self._table: dict[str, Any] = self.data
        self._place: Place = ()
        self._headers: set[Place] = set()
        self._dotted: set[Place] = set()
        self._arrays: set[Place] = set()
        self._closed: set[Place] = set()

    def open(self, header: Path, is_array: bool, position: int) -> bool:
        """Enter a table; return whether its path crosses an array of tables."""
        table, place = self._walk(self.data, (), header[:-1], position, dotted=False)
        last = header[-1]
        here: Place = (*place, last)
        if is_array:
            if last not in table:
                table[last] = []
                self._arrays.add(here)
            elif here not in self._arrays:
                raise TomlError(f"{'.'.join(header)} is not an array of tables", self._text, position)
            table[last].append({})
            self._place = (*here, len(table[last]) - 1)
            self._table = table[last][-1]
            return True
        if here in self._headers or here in self._dotted or here in self._closed or here in self._arrays:
            raise TomlError(f"the table {'.'.join(header)} is defined twice", self._text, position)
        if not isinstance(table.setdefault(last, {}), dict):
            raise TomlError(f"{'.'.join(header)} is not a table", self._text, position)
        self._headers.add(here)
        self._place, self._table = here, table[last]
        return any(isinstance(name, int) for name in here)

    def add(self, pair: Pair) -> None:
        table, place = self._walk(self._table, self._place, pair.key[:-1], pair.start, dotted=True)
        if pair.key[-1] in table:
            raise TomlError(f"the key {'.'.join(pair.key)} is defined twice", self._text, pair.start)
        table[pair.key[-1]] = pair.node.value
        self._close((*place, pair.key[-1]), pair.node.value)

    def _close(self, place: Place, value: Any) -> None:
        # Inline tables and arrays are complete where they are written: nothing may be added to them later.
        self._closed.add(place)
        if isinstance(value, dict):
            for name, inner in value.items():
                self._close((*place, name), inner)

    def _walk(
        self, table: dict[str, Any], place: Place, names: Path, position: int, dotted: bool
    ) -> tuple[dict[str, Any], Place]:
        for name in names:
            place = (*place, name)
            if place in self._closed or (dotted and (place in self._headers or place in self._arrays)):
                raise TomlError(f"{name} is complete already and cannot be extended", self._text, position)
            if dotted:
                if name in table and place not in self._dotted:
                    raise TomlError(f"{name} is defined by a header and cannot be extended", self._text, position)
                self._dotted.add(place)
            table = table.setdefault(name, {})
            if isinstance(table, list):
                place = (*place, len(table) - 1)
                table = table[-1]
        return table, place


def _lines(text: str) -> Iterator[tuple[int, int, Path | None, bool, Pair | None]]:
    """Yield (start, end, header, is array, pair) for every statement; comments and blank lines are passed over."""
    position = 0
    while position < len(text):
        start = position
        position = _skip_space(text, position)
        header: Path | None = None
        pair: Pair | None = None
        is_array = False
        if text.startswith("[", position):
            is_array = text.startswith("[[", position)
            opening, closing = ("[[", "]]") if is_array else ("[", "]")
            header, position = _key(text, _skip_space(text, position + len(opening)))
            position = _expect(text, position, closing)
        elif position < len(text) and text[position] not in "#\r\n":
            pair, position = _pair(text, position)
        position = _end_of_line(text, position)
        if header is not None or pair is not None:
            yield start, position, header, is_array, pair


def _skip_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _expect(text: str, position: int, token: str) -> int:
    if not text.startswith(token, position):
        raise TomlError(f"expected {token}", text, position)
    return position + len(token)


def _end_of_line(text: str, position: int) -> int:
    position = _skip_space(text, position)
    comment = _COMMENT.match(text, position)
    if comment:
        position = comment.end()
    if position >= len(text):
        return position
    newline = _NEWLINE.match(text, position)
    if not newline:
        raise TomlError("expected the end of the line", text, position)
    return newline.end()


def _skip_blank(text: str, position: int) -> int:
    """Pass over white space, line breaks and comments, as arrays allow."""
    while True:
        before = position
        position = _skip_space(text, position)
        for pattern in (_COMMENT, _NEWLINE):
            found = pattern.match(text, position)
            if found:
                position = found.end()
        if position == before:
            return position


def _key(text: str, position: int) -> tuple[Path, int]:
    """Read a key, dotted or not; return it and the position after it and its white space."""
    names: list[str] = []
    while True:
        if text.startswith(('"""', "'''"), position):
            raise TomlError("a multi-line string cannot be a key", text, position)
        if text.startswith(('"', "'"), position):
            node = _string(text, position)
            names.append(node.value)
            position = node.end
        else:
            bare = _BARE_KEY.match(text, position)
            if not bare:
                raise TomlError("expected a key", text, position)
            names.append(bare.group())
            position = bare.end()
        position = _skip_space(text, position)
        if not text.startswith(".", position):
            return tuple(names), position
        position = _skip_space(text, position + 1)


def _pair(text: str, position: int) -> tuple[Pair, int]:
    start = position
    key, position = _key(text, position)
    position = _skip_space(text, _expect(text, position, "="))
    node = _value(text, position)
    return Pair(key, start, node), node.end


def _value(text: str, position: int) -> TomlValue:
    if text.startswith(('"', "'"), position):
        return _string(text, position)
    if text.startswith("[", position):
        return _array(text, position)
    if text.startswith("{", position):
        return _inline_table(text, position)
    for pattern, convert in _SCALARS:
        found = pattern.match(text, position)
        if found and len(found.group()) > _LONGEST_NUMBER:
            raise TomlError("the number is too long", text, position)
        if found:
            return TomlValue(position, found.end(), convert(found.group()))
    raise TomlError("expected a value", text, position)


def _array(text: str, position: int) -> TomlValue:
    start = position
    items: list[Any] = []
    position = _skip_blank(text, position + 1)
    while not text.startswith("]", position):
        node = _value(text, position)
        items.append(node.value)
        position = _skip_blank(text, node.end)
        if not text.startswith("]", position):
            position = _skip_blank(text, _expect(text, position, ","))
    return TomlValue(start, position + 1, items)


def _inline_table(text: str, position: int) -> TomlValue:
    start = position
    pairs: list[Pair] = []
    builder = _Builder(text)
    position = _skip_space(text, position + 1)
    if not text.startswith("}", position):
        while True:
            pair, position = _pair(text, position)
            builder.add(pair)
            pairs.append(pair)
            position = _skip_space(text, position)
            if text.startswith("}", position):
                break
            position = _skip_space(text, _expect(text, position, ","))
    return TomlValue(start, position + 1, builder.data, tuple(pairs))


def _string(text: str, position: int) -> TomlValue:
    quotes, pattern = next(kind for kind in _STRINGS if text.startswith(kind[0], position))
    found = pattern.match(text, position)
    if found is None:
        raise TomlError("an unterminated string", text, position)
    value = "".join(found.groups())
    if quotes[0] == "'":
        return TomlValue(position, found.end(), value.replace("\r\n", "\n"))
    return TomlValue(position, found.end(), _ESCAPE.sub(lambda escape: _meant(escape, text, found.start(1)), value))


def _meant(escape: re.Match[str], text: str, start: int) -> str:
    """Return what a match of L(_ESCAPE) means, in a string that begins at C(start)."""
    short, long, other = escape.groups()
    if escape.group() == "\r\n":
        return "\n"
    if other:
        if other in _ESCAPES or "\n" in other:
            return _ESCAPES.get(other, "")
    elif (number := int(short or long, 16)) <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF:
        return chr(number)
    raise TomlError("an unknown escape sequence", text, start + escape.start())
