# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change single settings of a TOML text and keep every other byte; undo the changes later from the text alone.

Every change leaves a mark, so that nothing has to be remembered elsewhere:

* a changed setting keeps its former lines as comments above it (C(# gpufleet.nvidia: was | enable_cdi = false));
* a setting that was taken out leaves them, too, followed by C(# gpufleet.nvidia: removed);
* an added setting is preceded by C(# gpufleet.nvidia: added <key>);
* added tables stand between C(# gpufleet.nvidia: begin) and C(# gpufleet.nvidia: end) at the end of the file.

L(restore) undoes them all, byte for byte. Callers restore first and then change, which makes every run idempotent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .toml_read import Document, Pair, Path, Statement, TomlError, TomlValue, parse

ADDED = "# gpufleet.nvidia: added "
REMOVED = "# gpufleet.nvidia: removed"
WAS = "# gpufleet.nvidia: was | "
BEGIN = "# gpufleet.nvidia: begin"
END = "# gpufleet.nvidia: end"

_MARK = re.compile(rf"^[ \t]*(?:{re.escape(ADDED)}|{re.escape(WAS)}|{re.escape(BEGIN)}\r?$)", re.MULTILINE)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def is_marked(text: str) -> bool:
    """Return whether changes of this module are in C(text)."""
    return _MARK.search(text) is not None


def render(value: Any) -> str:
    """Return C(value) (string, integer, boolean, list or mapping of these) as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, str):
        # JSON escapes the same characters in the same way, except for DEL, and surrogates, which text cannot hold.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{render_key((str(key),))} = {render(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(render(item) for item in value)}]"
    raise TomlError(f"a value of type {type(value).__name__} cannot be written")


def render_key(path: Path) -> str:
    """Return a dotted key, quoted where it must be."""
    return ".".join(name if _BARE.fullmatch(name) else render(name) for name in path)


def render_tables(tables: Mapping[Path, Mapping[str, Any]], newline: str = "\n") -> str:
    """Return tables with their settings, one header each, in the order given; the root, C(()), comes first."""
    lines: list[str] = []
    for path, settings in sorted(tables.items(), key=lambda item: bool(item[0])):
        if lines:
            lines.append("")
        if path:
            lines.append(f"[{render_key(path)}]")
        indentation = "  " if path else ""
        lines.extend(f"{indentation}{render_key((key,))} = {render(value)}" for key, value in settings.items())
    return newline.join(lines) + newline


def set_values(text: str, settings: Mapping[Path, Any]) -> str:
    """Return C(text) with every setting of C(settings) (by path) having its value; unchanged where it has it already. Settings go where their table
    is; those whose table is nowhere go into new tables at the end. Raises TomlError: the text is not TOML, or a path leads through an array of tables
    or a plain value.
    """
    tables: dict[Path, dict[str, Any]] = {}
    for path, value in settings.items():
        changed = _set_in_place(text, path, value)
        if changed is None:
            tables.setdefault(path[:-1], {})[path[-1]] = value
        else:
            text = changed
    if tables:
        return append_tables(text, tables)
    parse(text)
    return text


def set_value(text: str, path: Path, value: Any) -> str:
    """L(set_values) for one setting."""
    return set_values(text, {path: value})


def unset(text: str, path: Path) -> str:
    """Return C(text) without the setting at C(path), which is kept as a comment; unchanged when it is not there. Raises TomlError: as L(set_values);
    also when the setting is inside an inline table.
    """
    document = parse(text)
    found = _find(document, path)
    if found is None:
        return text
    statement, node = found
    if statement.pair is None or statement.pair.node is not node:
        raise _inside_inline_table(text, path, node)
    newline = _newline(text)
    kept = "".join(f"{WAS}{line}" for line in _split(text[statement.start : statement.end]))
    mark = f"{REMOVED}{newline}" if kept.endswith("\n") else f"{newline}{REMOVED}"
    return text[: statement.start] + kept + mark + text[statement.end :]


def remove_table(text: str, path: Path) -> str:
    """Return C(text) without the table C(path), its sub-tables and its settings, wherever they are written. Comments between the statements of the
    table go with it; those before and after it stay. Leaves no mark.
    """
    statements = parse(text).statements
    kept: list[str] = []
    position = 0
    for index, statement in enumerate(statements):
        if statement.path[: len(path)] != path:
            continue
        following = statements[index + 1] if index + 1 < len(statements) else None
        kept.append(text[position : statement.start])
        position = following.start if following and following.path[: len(path)] == path else statement.end
    result = "".join((*kept, text[position:]))
    found = _find(parse(result), path)
    if found is not None:
        raise _inside_inline_table(result, path, found[1])
    return result


def append_tables(text: str, tables: Mapping[Path, Mapping[str, Any]]) -> str:
    """Return C(text) with new tables in a marked block at its end. Raises TomlError: a table is there already, or cannot be defined (by a header)
    where it would be.
    """
    for path in tables:
        if any(s.crosses_array and path[: len(s.table)] == s.table for s in parse(text).statements):
            raise TomlError(f"{render_key(path)} is in an array of tables")
    newline = _newline(text)
    body = f"{BEGIN}{newline}{render_tables(tables, newline)}{END}"
    # The block borrows the line break that the file lacks, so that taking it out gives the very same bytes back.
    if text == "":
        result = body + newline
    elif text.endswith("\n"):
        result = f"{text}{newline}{body}{newline}"
    else:
        result = f"{text}{newline}{newline}{body}"
    parse(result)
    return result


def restore(text: str) -> str:
    """Return C(text) as it was before this module changed it. A marked setting that somebody has since replaced by another one is left alone."""
    lines = _split(_without_blocks(text))
    result: list[str] = []
    index = 0
    while index < len(lines):
        line = lines[index].strip(" \t\r\n")
        if line.startswith(ADDED):
            index += 1
            key, count = _statement_at(lines, index)
            if key == line[len(ADDED) :]:
                index += count
            if index >= len(lines) and result and not lines[-1].endswith("\n"):
                result[-1] = _without_newline(result[-1])
        elif line.startswith(WAS):
            saved = []
            while index < len(lines) and lines[index].startswith(WAS):
                saved.append(lines[index][len(WAS) :])
                index += 1
            if index < len(lines) and lines[index].strip(" \t\r\n") == REMOVED:
                index += 1
            else:
                key, count = _statement_at(lines, index)
                index += count if key == _statement_at(saved, 0)[0] else 0
            if index >= len(lines) and not lines[-1].endswith("\n"):
                saved[-1] = _without_newline(saved[-1])
            result.extend(saved)
        else:
            result.append(lines[index])
            index += 1
    return "".join(result)


def settle(present: str | None, wanted: str) -> str:
    """Return C(present) where it says the same as C(wanted) and differs only in where the marked tables stand. They do when somebody has since
    written something below them.
    """
    if present is None or not is_marked(present) or restore(present) != restore(wanted):
        return wanted
    return present if parse(present).data == parse(wanted).data else wanted


def _split(text: str) -> list[str]:
    # str.splitlines would also break at characters that TOML allows inside comments and strings.
    return _LINE.findall(text)


def _newline(text: str) -> str:
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def _without_newline(line: str) -> str:
    return line[:-2] if line.endswith("\r\n") else line[:-1] if line.endswith("\n") else line


def _without_blocks(text: str) -> str:
    pattern = re.compile(
        rf"(?P<before>\r?\n|\A){re.escape(BEGIN)}\r?\n(?:.*?\n)?{re.escape(END)}(?P<after>\r?\n|\Z)", re.DOTALL
    )
    while True:
        match = pattern.search(text)
        if match is None:
            return text
        head, tail = text[: match.start()], text[match.end() :]
        # The line before the block is the blank one that came with it; when it is not, it ends with our line break.
        if match.group("before") and head and not head.endswith("\n"):
            head += match.group("before") if match.group("after") else ""
        elif match.group("before") and not match.group("after"):
            head = _without_newline(head)
        text = head + tail


def _statement_at(lines: Sequence[str], index: int) -> tuple[str, int]:
    """Return the key of the setting that begins at C(lines[index]) and how many lines it has; ("", 0) for none."""
    for count in range(1, len(lines) - index + 1):
        try:
            statements = parse("".join(lines[index : index + count])).statements
        except TomlError:
            continue
        pair = statements[0].pair if statements else None
        return (render_key(pair.key), count) if pair else ("", 0)
    return "", 0


def _inside_inline_table(text: str, path: Path, node: TomlValue) -> TomlError:
    return TomlError(
        f"{render_key(path)} is inside an inline table; write that as a table of its own", text, node.start
    )


def _set_in_place(text: str, path: Path, value: Any) -> str | None:
    """Return C(text) with the setting changed, or added to its table; None where that table is not there."""
    document = parse(text)
    found = _find(document, path)
    if found is not None:
        statement, node = found
        if node.value == value and type(node.value) is type(value):
            return text
        return _change(document, statement, node.start, node.end, render(value))
    if document.get(path) is not None:
        raise TomlError(f"{render_key(path)} is a table, not a setting")
    inline = _inline_parent(document, path)
    if inline is not None:
        statement, node, rest = inline
        pair = f"{render_key(rest)} = {render(value)}"
        if node.pairs:
            position = node.pairs[-1].node.end
            return _change(document, statement, position, position, f", {pair}")
        return _change(document, statement, node.start, node.end, f"{{ {pair} }}")
    place = _insertion_point(document, path)
    if place is None:
        return None
    position, key, indentation = place
    newline = _newline(text)
    lines = f"{indentation}{ADDED}{render_key(key)}{newline}{indentation}{render_key(key)} = {render(value)}"
    if position > 0 and text[position - 1] != "\n":
        return f"{text[:position]}{newline}{lines}{text[position:]}"
    return f"{text[:position]}{lines}{newline}{text[position:]}"


def _change(document: Document, statement: Statement, start: int, end: int, replacement: str) -> str:
    """Replace C(text[start:end]) inside a statement, whose former lines are kept as comments."""
    text = document.text
    new = text[statement.start : start] + replacement + text[end : statement.end]
    saved = "".join(f"{WAS}{line}" for line in _split(text[statement.start : statement.end]))
    if not saved.endswith("\n"):
        saved += _newline(text)
    before = text[: statement.start]
    # A setting that was changed or added in this very run keeps its first mark: that is the user's own text.
    marks = _split(before)
    if marks and (marks[-1].startswith(WAS) or marks[-1].strip(" \t\r\n").startswith(ADDED)):
        saved = ""
    return before + saved + new + text[statement.end :]


def _find(document: Document, path: Path) -> tuple[Statement, TomlValue] | None:
    """Return the statement that holds the setting at C(path) and the setting's value."""
    for statement in document.statements:
        if statement.pair is None or statement.crosses_array or path[: len(statement.path)] != statement.path:
            continue
        node: TomlValue | None = statement.pair.node
        rest = path[len(statement.path) :]
        while rest and node is not None:
            pair = _matching(node, rest)
            node = pair.node if pair else None
            rest = rest[len(pair.key) :] if pair else rest
        if node is not None:
            return statement, node
    return None


def _matching(node: TomlValue, rest: Path) -> Pair | None:
    for pair in node.pairs or ():
        if rest[: len(pair.key)] == pair.key:
            return pair
    return None


def _inline_parent(document: Document, path: Path) -> tuple[Statement, TomlValue, Path] | None:
    """Return the innermost inline table on the way to C(path), with what is left of the path there."""
    for statement in document.statements:
        if statement.pair is None or statement.crosses_array or path[: len(statement.path)] != statement.path:
            continue
        node, rest = statement.pair.node, path[len(statement.path) :]
        if not rest:
            continue
        while True:
            pair = _matching(node, rest)
            if pair is None or len(pair.key) >= len(rest):
                break
            node, rest = pair.node, rest[len(pair.key) :]
        if node.pairs is None:
            raise TomlError(f"{render_key(path[: len(path) - len(rest)])} is not a table", document.text, node.start)
        return statement, node, rest
    return None


def _insertion_point(document: Document, path: Path) -> tuple[int, Path, str] | None:
    """Return where a new setting goes: position, key relative to the table there, indentation. None: a new table."""
    best: tuple[int, Path, str] | None = None
    dotted: tuple[int, Path, str] | None = None
    for statement in document.statements:
        indentation = re.match(r"[ \t]*", document.text[statement.start : statement.end])
        space = indentation.group() if indentation else ""
        if statement.crosses_array:
            continue
        if statement.table == path[:-1]:
            if statement.pair is None:
                space += "  "
            best = (statement.end, path[-1:], space)
        elif statement.pair is not None and len(statement.pair.key) > 1:
            # a.b.c = 1 defines the table a.b, which no header may define again.
            parents = [statement.table + statement.pair.key[:n] for n in range(1, len(statement.pair.key))]
            if path[:-1] in parents or any(path[: len(parent)] == parent for parent in parents):
                dotted = (statement.end, path[len(statement.table) :], space)
    if best is None and dotted is None and len(path) == 1 and document.statements:
        return (0, path, "")
    return best or dotted
