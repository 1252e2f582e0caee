# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain containers at the edge: what ansible-core hands to plugins are tagged, lazy subclasses of dict, list, str and int.

What goes in is made plain here, and what goes out as a report is written here.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils._adapters.files import write_parts
from ..module_utils._facts.schema import check_facts
from ..module_utils._facts_view import Facts
from ..module_utils._formats.documents import read_json
from ..module_utils._printable import printable
from ..module_utils._schema import Unfit

_PLAIN = frozenset({bool, str, int, float})


def plain(value: Any) -> Any:
    """Return C(value) as plain dict, list, str, int, float, bool or None, all the way down.

    :raises TypeError: the value holds something that is no data, such as an undefined variable.
    """
    # Most values are plain: ansible-core's own texts and numbers are subclasses.
    if value is None or type(value) in _PLAIN:
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    raise TypeError(f"a value of type {type(value).__name__} is not plain data")


def is_true(value: Any) -> bool:
    """Return what a variable that may be a text, or not be set, says as true or false; what cannot be read so is false."""
    return boolean(plain(value) or False, strict=False)


def write_report(path: str, document: Any, mode: int = 0o644) -> bool:
    """Write C(document) as JSON into C(path), which is relative to where the user stands; return whether that changed anything."""
    return write_parts(os.path.abspath(path), (f"{text}\n".encode() for text in json_lines(document, 1)), mode)


def json_lines(document: Any, indent: int) -> Iterator[str]:
    """Return what C(json.dumps) makes of plain data with sorted keys, in parts that are whole lines, without their last line feed.

    What a report says of each host may be a mapping that makes it only when it is looked at: a part holds one of them.
    """
    return _json_lines(document, indent, "", "")


def _json_lines(value: Any, indent: int, before: str, after: str) -> Iterator[str]:
    margin = before[: len(before) - len(before.lstrip(" "))]
    if not isinstance(value, Mapping) or not value or len(margin) > indent:
        data = dict(value) if isinstance(value, Mapping) else value
        text = json.dumps(data, indent=indent, sort_keys=True).replace("\n", f"\n{margin}")
        yield f"{before}{text}{after}"
        return
    yield f"{before}{{"
    names = sorted(value)
    for name in names:
        comma = "" if name == names[-1] else ","
        yield from _json_lines(value[name], indent, f"{margin}{' ' * indent}{json.dumps(name)}: ", comma)
    yield f"{margin}}}{after}"


#: Read while the plugins are loaded: the processes in which ansible-core 2.19 and newer runs tasks are detached from the terminal.
_COLUMNS = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else 0


#: Lines that are shown of what a host wrote in place of a module's answer: before them is what it greets everybody with.
_TOLD = 6


def terminal_width() -> int:
    """Return how many columns the terminal has to which Ansible prints; 0 where that is a file or a pipe."""
    return _COLUMNS


def message_of(error: Exception) -> str:
    """Return what an error says: Ansible's own have it without where in the playbook it came up."""
    return getattr(error, "message", None) or str(error)


def said(answer: Mapping[str, Any]) -> str:
    """Return the first line of what a task said, or an empty string; the rest of a message are traces and origins.

    Of a module that did not even start C(msg) says only that there was no JSON: why is what the host's shell, sudo or Python wrote instead. Of a trace of
    Python the last line says it; others, such as a shim in the interpreter's place, say it in their first and give advice behind it.
    """
    written = [line for name in ("module_stderr", "module_stdout") for line in str(answer.get(name) or "").splitlines()]
    # ssh's own farewell stands behind it where a terminal was asked for.
    written = [
        line.strip()
        for line in written
        if line.strip() and not line.startswith(("Connection to ", "Shared connection to "))
    ]
    if written:
        told = written[-1:] if any(line.startswith("Traceback (") for line in written) else written[-_TOLD:]
        return f"the module did not run: {printable('; '.join(told))}"
    lines = str(answer.get("msg") or "").strip().splitlines()
    return str(printable(lines[0])) if lines else ""


def facts_of(answer: Any) -> tuple[Facts | None, str]:
    """Return the facts in what a task that read a host registered, or why there are none (L(read_facts))."""
    return read_facts(answer)[1:]


def read_facts(answer: Any) -> tuple[dict[str, Any] | None, Facts | None, str]:
    """Return the facts in what a task that read a host registered, with their view, or why there are none.

    What does not fit the schema of facts is not taken: the host is one that was not read.
    """
    if not isinstance(answer, Mapping):
        return None, None, "it did not answer"
    try:
        # The rest of a result is the controller's: ansible-core keeps warnings in it as objects of its own.
        facts = read_json(plain(answer["gpu_text"])) if answer.get("gpu_text") else plain(answer.get("gpu"))
        if not facts:
            return None, None, said(answer) or "it did not answer"
        view = check_facts(facts)
    except Unfit as unfit:
        return None, None, f"its facts are invalid: {unfit.message}"
    except (TypeError, ValueError, RecursionError) as error:
        return None, None, f"its facts are not plain data: {type(error).__name__}"
    return facts, view, ""
