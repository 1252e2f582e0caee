# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts as lab hosts gave them, in files: what is alike stands once in a file, with what is another in the rest."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: What is gone from a document.
_GONE = {"gone": True}
#: An entry of a list that is the first one but for these changes.
_LIKE_THE_FIRST = "like the first, but"


def changes(before: Any, after: Any, path: str = "", ignored: Sequence[str] = ()) -> dict[str, Any]:
    """Return what is another in a document, by path."""
    if isinstance(before, dict) and isinstance(after, dict) and _GONE not in (before, after):
        names = [name for name in {**before, **after} if name not in ignored]
        pairs = [(name, before.get(name, _GONE), after.get(name, _GONE)) for name in names]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(str(number), *both) for number, both in enumerate(zip(before, after))]
    else:
        return {path: after} if before != after else {}
    found: dict[str, Any] = {}
    for name, was, now in pairs:
        found |= changes(was, now, f"{path}/{name}" if path else name, ignored)
    return found


def changed(document: Any, found: dict[str, Any]) -> Any:
    """Return a document with C(changes)."""
    document = copy.deepcopy(document)
    for path, value in found.items():
        place = document
        *outer, name = path.split("/")
        for step in outer:
            place = place[int(step) if isinstance(place, list) else step]
        last: Any = int(name) if isinstance(place, list) else name
        if value == _GONE:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    return document


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _folded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _folded(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    short = [_folded(one) for one in value]
    for number, one in enumerate(value[1:], 1):
        like = {_LIKE_THE_FIRST: changes(value[0], one)} if isinstance(one, dict) else one
        if _text(like).count("\n") < _text(short[number]).count("\n"):
            short[number] = like
    return short


def _unfolded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unfolded(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    whole: list[Any] = []
    for one in value:
        like = isinstance(one, dict) and one.get(_LIKE_THE_FIRST)
        whole.append(changed(whole[0], like) if like else _unfolded(one))
    return whole


def read(path: Path) -> dict[str, Any]:
    """Return what C(write) was given."""
    found: dict[str, Any] = _unfolded(json.loads(path.read_text(encoding="utf-8")))
    return found


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a document so that entries of a list that are alike say only what is another in them."""
    path.write_text(_text(_folded(document)), encoding="utf-8")
    assert read(path) == document, f"a name in {path} is no step of a path"
