# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain scalars as go-yaml 2.4 resolves them (C(resolve.go)): YAML 1.1 booleans, octal and binary numbers, no base 60."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_PREFIX = "tag:yaml.org,2002:"
_RESOLVABLE = frozenset(_PREFIX + name for name in ("str", "bool", "int", "float", "null", "timestamp"))

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
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})?)?"
)


class TypeMismatch(Exception):
    """An explicit tag that the text does not fit, such as C(!!int four)."""


@dataclass(frozen=True)
class Scalar:
    """A resolved scalar.

    :param value: str, int, float, bool or None.
    :param surprise: what it is read as, when that is not what it looks like; else empty.
    """

    value: str | int | float | bool | None
    surprise: str = ""


def resolve(tag: str | None, text: str) -> Scalar:
    """Return what go-yaml makes of a plain scalar, or of one with an explicit tag.

    :raises TypeMismatch: the explicit tag does not fit.
    """
    if tag is not None and tag not in _RESOLVABLE:
        return Scalar(text)
    kind = tag[len(_PREFIX) :] if tag else None
    if kind == "str":
        return Scalar(text)
    found = _plain(text)
    if kind is None or _kind(found.value, text) == kind:
        return found
    if kind == "float" and _kind(found.value, text) == "int":
        return Scalar(float(found.value))  # type: ignore[arg-type]
    raise TypeMismatch(f"cannot decode !!{_kind(found.value, text)} {text!r} as a !!{kind}")


#: Characters of a whole number that is read as one: longer ones are too large for every field, and Python refuses to read them.
LONGEST_NUMBER = 4000


def _plain(text: str) -> Scalar:
    if text in _WORDS:
        return Scalar(_WORDS[text])
    if text[0] in "+-0123456789":
        return _number(text)
    if text[0] == "." and _FLOAT.fullmatch(text):
        return _finite(text, text)
    return Scalar(text)


def _number(text: str) -> Scalar:
    digits = text.replace("_", "")
    match = _INTEGER.fullmatch(digits) if len(digits) <= LONGEST_NUMBER else None
    if match:
        number = _integer(match)
        smallest = -(2**63)
        largest = 2**63 - 1 if match.group("sign") else 2**64 - 1
        if smallest <= number <= largest:
            return Scalar(number, "" if _DECIMAL.fullmatch(text) else str(number))
    if _FLOAT.fullmatch(digits):
        return _finite(digits, text)
    return Scalar(text)


def _integer(match: re.Match[str]) -> int:
    for group, base in (("hex", 16), ("oct", 8), ("bin", 2), ("dec", 10)):
        if match.group(group) is not None:
            return int(match.group("sign") + match.group(group), base)
    raise AssertionError("the pattern has one of these groups")


def _finite(digits: str, text: str) -> Scalar:
    number = float(digits)
    if math.isinf(number):
        return Scalar(text)
    return Scalar(number, "" if digits == text else repr(number))


def _kind(value: object, text: str) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    return "timestamp" if _TIMESTAMP.fullmatch(text) else "str"
