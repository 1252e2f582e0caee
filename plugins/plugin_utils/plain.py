# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain containers at the edge: what ansible-core hands to plugins are tagged, lazy subclasses of dict, list, str and int."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import printable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit


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
    raise TypeError(f"a value of type {type(value).__name__} is not a plain data")


def said(answer: Mapping[str, Any]) -> str:
    """Return the first line of what a task said, or an empty string; the rest of a message are traces and origins."""
    lines = str(answer.get("msg") or "").strip().splitlines()
    return str(printable(lines[0])) if lines else ""


def facts_of(answer: Any) -> tuple[dict[str, Any] | None, str]:
    """Return the facts in what a task that read a host registered, or why there are none.

    What does not fit the schema of facts is not taken: the host is one that was not read.
    """
    if not isinstance(answer, Mapping):
        return None, "it did not answer"
    try:
        # The rest of a result is the controller's: ansible-core keeps warnings in it as objects of its own.
        facts = plain(answer.get("gpu"))
        if not facts:
            return None, said(answer) or "it did not answer"
        check_facts(facts)
    except Unfit as unfit:
        return None, f"its facts do not fit: {unfit.message}"
    except (TypeError, RecursionError) as error:
        return None, f"its facts are no plain data: {type(error).__name__}"
    return facts, ""
