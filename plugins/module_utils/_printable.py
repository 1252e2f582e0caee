# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text from hosts as it may be shown on a terminal and written into files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Characters of one text; the output of a command may have lines, and more of them.
LONGEST, LONGEST_OUTPUT = 4096, 65536
#: Deeper than any document of the collection. What lies deeper is left out.
_DEEPEST = 40


def is_printable(text: str, lines: bool = False) -> bool:
    """Whether a text has no control characters, escape sequences, lone surrogates and marks that turn the direction of writing."""
    return text.isprintable() or (lines and text.replace("\n", "").replace("\t", "").isprintable())


def amount(count: int, noun: str) -> str:
    """Return C(count) with its noun: C(1 host), C(2 hosts)."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def printable(value: Any, lines: bool = False, longest: int = LONGEST, depth: int = 0) -> Any:
    """Return plain data with C(?) for what cannot be shown, a space for the end of a line, and no text longer than C(longest)."""
    if isinstance(value, str):
        if len(value) <= longest and is_printable(value, lines):
            return value
        return "".join(_character(one, lines) for one in value[:longest])
    if depth == _DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {
            printable(name, False, longest, depth + 1): printable(item, lines, longest, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [printable(item, lines, longest, depth + 1) for item in value]
    return value


def _character(one: str, lines: bool) -> str:
    if one.isprintable() or (lines and one in "\n\t"):
        return one
    return " " if one.isspace() else "?"
