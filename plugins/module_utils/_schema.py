# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether data from outside (facts, records, annotations) is what it has to be, within bounds. Pure.

A schema is a function that takes a value and its path in the document, and raises L(Unfit) with that path. None is taken for "unknown"
everywhere but where a field is required.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ._plan import Refused
from ._printable import LONGEST, LONGEST_OUTPUT, is_printable, printable

Schema = Callable[[Any, str], None]
#: What JSON carries without loss.
_LARGEST = 2**53
_MOST, _DEEPEST, _SHOWN = 16384, 20, 60


class Unfit(Refused):
    """A value that is not what it has to be; the message begins with its path."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path or "the document", reason)


def check(schema: Schema, document: Any) -> None:
    """Hold a document against a schema.

    :raises Unfit: the first value that does not fit.
    """
    if document is None:
        raise Unfit("", "it must not be null")
    try:
        schema(document, "")
    except RecursionError as error:
        raise Unfit("", "it is nested too deeply") from error


def text(longest: int = LONGEST, pattern: str = "", lines: bool = False) -> Schema:
    """A text without control characters.

    :param longest: characters that it may have.
    :param pattern: a regular expression that all of it has to match.
    :param lines: whether it may have several lines.
    """
    matches = re.compile(pattern).fullmatch if pattern else None

    def schema(value: Any, path: str) -> None:
        if value is None:
            return
        if not isinstance(value, str):
            raise Unfit(path, f"{_shown(value)} must be text")
        if len(value) > longest:
            raise Unfit(path, f"the text has {len(value)} characters, and may have at most {longest}")
        if not is_printable(value, lines):
            raise Unfit(path, f"{_shown(value)} has control characters")
        if matches and not matches(value):
            raise Unfit(path, f"{_shown(value)} is not of the form {pattern}")

    return schema


OUTPUT = text(LONGEST_OUTPUT, lines=True)


def number(low: int = 0, high: int = _LARGEST, real: bool = False) -> Schema:
    """An integer between two bounds, which are included.

    :param real: whether it may have a fraction.
    """

    def schema(value: Any, path: str) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, (int, float) if real else int):
            raise Unfit(path, f"{_shown(value)} must be {'a number' if real else 'an integer'}")
        if not low <= value <= high:
            raise Unfit(path, f"{_shown(value)} is not between {low} and {high}")

    return schema


def boolean(value: Any, path: str) -> None:
    """True or false."""
    if value is not None and not isinstance(value, bool):
        raise Unfit(path, f"{_shown(value)} must be true or false")


def items(of: Schema, most: int = _MOST) -> Schema:
    """A list of values, none of which is null."""

    def schema(value: Any, path: str) -> None:
        if value is None:
            return
        if not isinstance(value, (list, tuple)):
            raise Unfit(path, f"{_shown(value)} must be a list")
        if len(value) > most:
            raise Unfit(path, f"the list has {len(value)} entries, and may have at most {most}")
        for position, item in enumerate(value):
            if item is None:
                raise Unfit(f"{path}[{position}]", "an entry must not be null")
            of(item, f"{path}[{position}]")

    return schema


def not_null(of: Schema) -> Schema:
    """A value that is not null."""

    def schema(value: Any, path: str) -> None:
        if value is None:
            raise Unfit(path, "it must not be null")
        of(value, path)

    return schema


def mapping(of: Schema, most: int = _MOST) -> Schema:
    """A mapping whose keys are names of any kind."""

    def schema(value: Any, path: str) -> None:
        if value is None:
            return
        _names(value, path, most)
        for name, item in value.items():
            of(item, _below(path, name))

    return schema


def fields(known: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """A mapping with known fields. Others, such as those of another release, only have to be within bounds.

    :param required: what has to be there, and not null.
    """

    def schema(value: Any, path: str) -> None:
        if value is None:
            return
        _names(value, path, _MOST)
        for name in required:
            if value.get(name) is None:
                raise Unfit(_below(path, name), "it is missing")
        for name, item in value.items():
            known.get(name, anything)(item, _below(path, name))

    return schema


def anything(value: Any, path: str, depth: int = 0) -> None:
    """Plain data within bounds."""
    if value is None or isinstance(value, bool):
        return
    if depth > _DEEPEST:
        raise Unfit(path, "it is nested too deeply")
    if isinstance(value, str):
        OUTPUT(value, path)
    elif isinstance(value, (int, float)):
        number(-_LARGEST, _LARGEST, real=True)(value, path)
    elif isinstance(value, (list, tuple)):
        items(lambda item, place: anything(item, place, depth + 1))([item for item in value if item is not None], path)
    else:
        mapping(lambda item, place: anything(item, place, depth + 1))(value, path)


def _names(value: Any, path: str, most: int) -> None:
    if not isinstance(value, Mapping):
        raise Unfit(path, f"{_shown(value)} must be a mapping")
    if len(value) > most:
        raise Unfit(path, f"it has {len(value)} keys, and may have at most {most}")
    for name in value:
        if not isinstance(name, str) or len(name) > LONGEST or not is_printable(name):
            raise Unfit(path, f"the key {_shown(name)} must be a text without control characters")


def _below(path: str, name: str) -> str:
    return f"{path}.{name[:_SHOWN]}" if path else name[:_SHOWN]


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    kept = value[:_SHOWN] if isinstance(value, str) else value
    shown = repr(kept) if isinstance(kept, (str, int, float, type(None))) else f"a {type(value).__name__}"
    return str(printable(shown))
