# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain containers at the edge: what ansible-core hands to plugins are tagged, lazy subclasses of dict, list, str and int."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return C(value) as plain dict, list, str, int, float, bool or None, all the way down.

    :raises TypeError: the value holds something that is no data, such as an undefined variable.
    """
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    raise TypeError(f"a value of type {type(value).__name__} is no plain data")


def said(answer: Mapping[str, Any]) -> str:
    """Return the first line of what a task said, or an empty string; the rest of a message are traces and origins."""
    lines = str(answer.get("msg") or "").strip().splitlines()
    return lines[0] if lines else ""
