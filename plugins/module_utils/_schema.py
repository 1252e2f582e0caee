# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether data from outside (facts, records, annotations) is what it has to be, within bounds, and what it says. Pure.

A schema is a function that takes a value and its path in the document, and returns what the value says: a list is a tuple, and a mapping with known
fields is a dataclass, which is its own schema: its fields are declared with L(has) and L(needs), and L(of) makes the schema of it. It raises L(Unfit) with
the path of what does not fit. None is taken for "unknown" everywhere but where a field is required. L(encode) is the way back.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cached_property
from typing import Any, Callable, TypeVar

from ._plan import Refused
from ._printable import LONGEST, LONGEST_OUTPUT, is_printable, printable

#: Where a value is, written only in what is refused: a text, or the path of what it is in, with its name or its position there.
Path = Any
Schema = Callable[[Any, Path], Any]
#: Version of the shape of the facts document: a host, which writes it, loads this file alone.
FACTS_SCHEMA = 1
#: The C(schema) of every record.
SCHEMA = 1
#: What JSON carries without loss.
_LARGEST = 2**53
_MOST, _DEEPEST, _SHOWN = 16384, 20, 60


class Unfit(Refused):
    """A value that is not what it has to be; the message begins with its path."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(_written(path) or "the document", reason)


def check(schema: Schema, document: Any, path: str = "") -> Any:
    """Hold a document, or the part of one at C(path), against a schema, and return what it says. Raises Unfit: the first value that does not fit."""
    if document is None:
        raise Unfit(path, "it must not be null")
    try:
        return schema(document, path)
    except RecursionError as error:
        raise Unfit(path, "it is nested too deeply") from error


def taken(schema: Schema, document: Any) -> Any:
    """Return what a document says; None where it does not fit."""
    return if_it_fits(schema)(document, "")


def if_it_fits(schema: Schema, other: Callable[[str], Any] = lambda _why: None) -> Schema:
    """A value of a schema, or what C(other) makes of the reason in its place: of a record, what is beside the needed is no reason to lose it."""

    def read(value: Any, _path: Path) -> Any:
        try:
            return check(schema, value)
        except Unfit as error:
            return other(str(error))

    return read


def text(longest: int = LONGEST, pattern: str = "", lines: bool = False) -> Schema:
    """A text without control characters.

    :param longest: characters that it may have.
    :param pattern: a regular expression that all of it has to match.
    """
    matches = re.compile(pattern).fullmatch if pattern else None

    def schema(value: Any, path: Path) -> Any:
        # Nearly every text is this one: a facts document has hundreds.
        if matches is None and value.__class__ is str and len(value) <= longest and value.isprintable():
            return value
        if value is None:
            return None
        if not isinstance(value, str):
            raise Unfit(path, f"{_shown(value)} must be text")
        if len(value) > longest:
            raise Unfit(path, f"the text has {len(value)} characters, and may have at most {longest}")
        if not is_printable(value, lines):
            raise Unfit(path, f"{_shown(value)} has control characters")
        if matches and not matches(value):
            raise Unfit(path, f"{_shown(value)} is not of the form {pattern}")
        return value

    return schema


def one_of(choices: type[Enum]) -> Schema:
    """A text that is the value of one of these."""
    values = text(pattern="|".join(re.escape(str(choice.value)) for choice in choices))

    def schema(value: Any, path: Path) -> Any:
        return None if values(value, path) is None else choices(value)

    return schema


OUTPUT = text(LONGEST_OUTPUT, lines=True)


def number(low: int = 0, high: int = _LARGEST, real: bool = False) -> Schema:
    """An integer between two bounds, which are included."""

    def schema(value: Any, path: Path) -> Any:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float) if real else int):
            raise Unfit(path, f"{_shown(value)} must be {'a number' if real else 'an integer'}")
        if not low <= value <= high:
            raise Unfit(path, f"{_shown(value)} is not between {low} and {high}")
        return float(value) if real else value

    return schema


_NUMBER = number(-_LARGEST, _LARGEST, real=True)


def boolean(value: Any, path: Path) -> Any:
    """True or false."""
    if value is not None and not isinstance(value, bool):
        raise Unfit(path, f"{_shown(value)} must be true or false")
    return value


def items(of: Schema, most: int = _MOST, least: int = 0) -> Schema:
    """A list of values, none of which is null."""

    def schema(value: Any, path: Path) -> Any:
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise Unfit(path, f"{_shown(value)} must be a list")
        if len(value) > most:
            raise Unfit(path, f"the list has {len(value)} entries, and may have at most {most}")
        if len(value) < least:
            raise Unfit(path, f"the list has {len(value)} entries, and must have at least {least}")
        if None in value:
            raise Unfit((path, value.index(None)), "an entry must not be null")
        return tuple([of(item, (path, position)) for position, item in enumerate(value)])

    return schema


def row(*columns: Schema) -> Schema:
    """A list whose entries each have a schema of their own."""
    entries = items(lambda item, _path: item, len(columns), len(columns))

    def schema(value: Any, path: Path) -> Any:
        listed = entries(value, path)
        return listed and tuple(one(item, (path, place)) for place, (one, item) in enumerate(zip(columns, listed)))

    return schema


def not_null(of: Schema) -> Schema:

    def schema(value: Any, path: Path) -> Any:
        if value is None:
            raise Unfit(path, "it must not be null")
        return of(value, path)

    return schema


def mapping(of: Schema, most: int = _MOST, least: int = 0) -> Schema:
    """A mapping whose keys are names of any kind."""

    def schema(value: Any, path: Path) -> Any:
        if value is None:
            return None
        _names(value, path, most)
        if len(value) < least:
            raise Unfit(path, f"it has {len(value)} keys, and must have at least {least}")
        return {name: of(item, (path, name)) for name, item in value.items()}

    return schema


def of(made: type, version: int | None = None) -> Schema:
    """The schema of a dataclass whose fields were declared with L(has) and L(needs): a mapping, which becomes one of it. Other fields, such as those of
    another release, only have to be within bounds, and are left out; what is null or missing has its default.

    :param version: that a record has to have as its C(schema).
    """
    declared = [one for one in dataclasses.fields(made) if one.metadata]
    called = {_called(one): one.name for one in declared}
    defaults = {one.name: one.default for one in declared}
    known = {_called(one): one.metadata["schema"] for one in declared}
    required = [_called(one) for one in declared if one.metadata["required"]]
    if version is not None:
        known, required = {"schema": number(version, version), **known}, ["schema", *required]
    typed = issubclass(made, View)
    # What may be null is not asked of its schema where it is, which is most of a document.
    filled = {name for name, one in known.items() if not _takes_null(one)}

    def schema(value: Any, path: Path) -> Any:
        if value is None:
            return None
        _names(value, path, _MOST, known.keys())
        for name in required:
            if value.get(name) is None:
                raise Unfit((path, name), "it is missing")
        found = {
            name: None if item is None and name not in filled else known.get(name, anything)(item, (path, name))
            for name, item in value.items()
        }
        if not typed:
            return made(**{called[name]: item for name, item in found.items() if item is not None and name in called})
        # A field that is not set has the default of its class: there are thousands, and most of a document's are null or missing.
        view: Any = object.__new__(made)
        view.__dict__["_given"] = given = {
            name: defaults[name] if item is None else item for name, item in found.items() if name in defaults
        }
        view.__dict__.update(given)
        return view

    return schema


_View = TypeVar("_View", bound="View")


def _takes_null(of: Schema) -> bool:
    try:
        of(None, "")
    except Unfit:
        return False
    return True


class View:
    """Base of a dataclass that a schema makes of a mapping."""

    @cached_property
    def _given(self) -> Mapping[str, Any]:
        made = ((one.name, getattr(self, one.name), one.default) for one in dataclasses.fields(self))  # type: ignore[arg-type]
        return {name: value for name, value, default in made if value != default}

    def says(self, name: str) -> bool:
        """Return whether the document has a field, be it null."""
        return name in self._given

    def but(self: _View, *still: str, **changes: Any) -> _View:
        """Return it with other values. C(still): what L(kept) keeps of it, and follows from others of its values."""
        found = object.__new__(type(self))
        found.__dict__.update(
            {one.name: self.__dict__[one.name] for one in dataclasses.fields(self) if one.name in self.__dict__},  # type: ignore[arg-type]
            **{name: self.__dict__[name] for name in still if name in self.__dict__},
            **changes,
            _given={**self._given, **changes},
        )
        return found


def kept(one: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """Return what C(make) makes of a view, or of what else does not change, once. C(name): no field's."""
    if name not in one.__dict__:
        one.__dict__[name] = make(one)
    return one.__dict__[name]


def has(schema: Schema, default: Any = None, called: str = "") -> Any:
    """Declare a field of a dataclass that L(of) makes a schema of; what is null or missing in a document has the default. C(called): how documents name
    it, where that is no name of a field. No field of a view has one.
    """
    # pylint: disable-next=invalid-field-call
    return dataclasses.field(default=default, metadata={"schema": schema, "required": False, "called": called})


def needs(schema: Schema, default: Any = dataclasses.MISSING, called: str = "") -> Any:
    """Declare a field that a document has to have. C(default): of those that are made by themselves."""
    # pylint: disable-next=invalid-field-call
    return dataclasses.field(default=default, metadata={"schema": schema, "required": True, "called": called})


def _called(field: dataclasses.Field[Any]) -> str:
    return field.metadata.get("called") or field.name


def encode(value: Any) -> Any:
    """Return as plain data what a schema made of it."""
    if isinstance(value, View):
        return encode(value._given)
    if dataclasses.is_dataclass(value):
        fields = {_called(field): encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"schema": SCHEMA, **fields} if isinstance(value, Record) else fields
    if isinstance(value, Mapping):
        return {name: encode(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value.value if isinstance(value, Enum) else value


class Record:
    """Base of a dataclass that a file of ours holds."""

    def as_dict(self) -> dict[str, Any]:
        return dict(encode(self))

    def as_text(self) -> str:
        return json.dumps(self.as_dict(), indent=2, sort_keys=True) + "\n"


_ENTRIES = items(lambda item, _path: item)


def anything(value: Any, path: Path, depth: int = 0) -> Any:
    """Plain data within bounds."""
    if value is None or isinstance(value, bool):
        return value
    if depth > _DEEPEST:
        raise Unfit(path, "it is nested too deeply")
    if isinstance(value, str):
        OUTPUT(value, path)
    elif isinstance(value, (int, float)):
        _NUMBER(value, path)
    elif isinstance(value, (list, tuple)):
        _ENTRIES([item for item in value if item is not None], path)
        for position, item in enumerate(value):
            anything(item, (path, position), depth + 1)
    else:
        _names(value, path, _MOST)
        for name, item in value.items():
            anything(item, (path, name), depth + 1)
    return value


def _names(value: Any, path: Path, most: int, known: AbstractSet[str] = frozenset()) -> None:
    if value.__class__ is not dict and not isinstance(value, Mapping):
        raise Unfit(path, f"{_shown(value)} must be a mapping")
    if len(value) > most:
        raise Unfit(path, f"it has {len(value)} keys, and may have at most {most}")
    for name in () if value.keys() <= known else value:
        if not isinstance(name, str) or len(name) > LONGEST or not is_printable(name):
            raise Unfit(path, f"the key {_shown(name)} must be a text without control characters")


def _written(path: Path) -> str:
    if isinstance(path, str):
        return path
    within, step = _written(path[0]), path[1]
    if isinstance(step, int):
        return f"{within}[{step}]"
    return f"{within}.{step[:_SHOWN]}" if within else str(step[:_SHOWN])


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    kept = value[:_SHOWN] if isinstance(value, str) else value
    shown = repr(kept) if isinstance(kept, (str, int, float, type(None))) else f"a {type(value).__name__}"
    return str(printable(shown))
