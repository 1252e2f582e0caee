# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How Go's encoding/json puts values into the plugin's fields: names in any case, null, wrong types.

Two kinds of mapping exist in the plugin's configuration. A I(struct) takes its fields in any case and in the order of their
names; an I(exact) mapping (everything below C(sharing.timeSlicing), C(sharing.mps) and C(resources)) takes them as written only.
Both ignore what they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Callable

from .finding import Report, join, near

Decoder = Callable[[Any, str, Report], Any]


class _Unknown(dict[str, Any]):
    """A value of which nothing is known, as of whatever is asked of it."""

    def __bool__(self) -> bool:
        return True

    def get(self, _key: str, _default: Any = None) -> Any:
        return self


#: What a decoder returns for a value that the plugin refuses, or that is filled in later, after it has reported it.
REFUSED = _Unknown()

#: Characters of a whole number that is read as one: longer ones are too large for every field, and Python refuses to read them.
LONGEST_NUMBER = 4000
_LARGEST_INT = 2**63 - 1
# strconv.FormatFloat writes larger numbers with an exponent, which no integer field takes.
_FIRST_WITH_EXPONENT = 1e21


def fold(name: str) -> str:
    """Return C(name) as encoding/json folds it: two letters beyond ASCII fold to ASCII ones."""
    return name.replace("\u017f", "s").replace("\u212a", "k").lower()


def struct(fields: Mapping[str, Decoder]) -> Decoder:
    """Return the decoder of a mapping whose fields are found in any case."""
    folded = {fold(name): name for name in fields}

    def decode(value: Any, path: str, report: Report) -> dict[str, Any]:
        given = mapping(value, path, report)
        if given is REFUSED:
            return given
        result: dict[str, Any] = {}
        written: dict[str, str] = {}
        # The JSON in between has its keys sorted by byte, and the last of several that mean the same field wins.
        for key in sorted(given, key=lambda name: name.encode("utf-8", "surrogatepass")):
            name = key if key in fields else folded.get(fold(key))
            if name is None:
                report.warning(join(path, key), "unknown field: it is silently ignored", near(key, fields))
                continue
            if key != name:
                message = f"the case is wrong: the plugin takes it for {name}, stricter readers do not"
                report.warning(join(path, key), message, f"Write {name}.")
            if name in written:
                message = f"{written[name]} and {key} both mean {name}: {key} wins"
                report.warning(join(path, key), message, f"Keep one, written {name}.")
            written[name] = key
            decoded = fields[name](given[key], join(path, key), report)
            if isinstance(decoded, dict) and isinstance(result.get(name), dict):
                result[name].update(decoded)
            elif decoded is not None or name not in result:
                result[name] = decoded
        return result

    return decode


def exact(known: Mapping[str, Decoder], required: Mapping[str, tuple[str, str]] | None = None) -> Decoder:
    """Return the decoder of a mapping whose fields are found as they are written, and not otherwise.

    :param required: fields that have to be there, to what the plugin says without them and what to do.
    """

    def decode(value: Any, path: str, report: Report) -> dict[str, Any]:
        given = mapping(value, path, report, empty_is_ignored=False)
        if given is REFUSED:
            return given
        for key in sorted(set(given) - set(known)):
            report.warning(join(path, key), "unknown field: it is silently ignored", near(key, known))
        found = {name: read(given[name], join(path, name), report) for name, read in known.items() if name in given}
        for name, (message, remedy) in (required or {}).items():
            if name not in found:
                report.error(path, message, remedy)
        return found

    return decode


def mapping(value: Any, path: str, report: Report, empty_is_ignored: bool = True) -> dict[str, Any]:
    """Return C(value) when it is a mapping, and an empty one for null; report what is none."""
    if isinstance(value, dict):
        return value
    if value is not None:
        message = f"{describe(value)} where a mapping of fields is expected"
        report.error(path, message, "Write the fields one level deeper, as name: value.")
        return REFUSED
    if empty_is_ignored:
        report.warning(path, "the section is empty, so it has no effect", "Fill it or remove it.")
    return {}


def string(value: Any, path: str, report: Report) -> Any:
    """Decode a string field; null leaves its default."""
    if value is None or isinstance(value, str):
        return value
    report.error(path, f"{describe(value)} where a string is expected", f'Quote it: "{_as_written(value)}".')
    return REFUSED


def coerced_string(value: Any, path: str, report: Report) -> Any:
    """Decode a string field into which numbers and booleans are turned: of all fields, only C(version) is one."""
    return _as_written(value) if isinstance(value, (bool, int, float)) else string(value, path, report)


def boolean(value: Any, path: str, report: Report) -> Any:
    """Decode a boolean field; null leaves its default. YAML 1.1 reads yes, no, on and off as booleans too."""
    if value is None or isinstance(value, bool):
        return value
    remedy = "Write true or false, without quotes."
    report.error(path, f"{describe(value)} where true or false is expected", remedy)
    return REFUSED


def integer(value: Any, path: str, report: Report) -> Any:
    """Decode an integer field; null leaves zero. C(4.0) is the integer 4, C(4.5) and C("4") are refused."""
    if value is None:
        return 0
    number = as_integer(value)
    if number is None:
        report.error(path, f"{describe(value)} where an integer is expected", "Write digits only, without quotes.")
        return REFUSED
    return number


def as_integer(value: Any) -> int | None:
    """Return C(value) as Go's int, or None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value == int(value) and abs(value) < _FIRST_WITH_EXPONENT:
        value = int(value)
    if isinstance(value, int) and -_LARGEST_INT - 1 <= value <= _LARGEST_INT:
        return value
    return None


def sequence(item: Decoder) -> Decoder:
    """Return the decoder of a list field; null leaves it empty."""

    def decode(value: Any, path: str, report: Report) -> Any:
        if value is None:
            return []
        if not isinstance(value, list):
            remedy = "Write a list: each item on its own line after '- '."
            report.error(path, f"{describe(value)} where a list is expected", remedy)
            return REFUSED
        return [item(element, f"{path}[{index}]", report) for index, element in enumerate(value)]

    return decode


_DURATION = re.compile(
    r"[-+]?(?:0|(?:(?:[0-9]{1,19}(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)", re.ASCII
)


def duration(value: Any, path: str, report: Report) -> Any:
    """Check a duration: C(infinite), a text such as C(60s), or a bare number, which means nanoseconds."""
    if value is None or value == "infinite":
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        report.warning(path, f"{value} without a unit means {value} nanoseconds", f'Write "{value}s" for seconds.')
        return value
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        report.error(
            path, f"{describe(value)} is not a duration", 'Write a number and a unit, such as "60s", or "infinite".'
        )
        return REFUSED
    if value.startswith("-") or not set(value) & set("123456789"):
        report.warning(path, f"{value!r} makes it run without pause", 'Write a duration such as "60s".')
    return value


def describe(value: Any) -> str:
    """Return what C(value) is, for a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {_as_written(value)}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the string {value!r}"
    return "a list" if isinstance(value, list) else "a mapping"


def _as_written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
