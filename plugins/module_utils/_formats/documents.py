# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON, YAML and numbers that came from a host, a cluster or a file which others write, read within bounds of size, depth and aliases. Pure.

Without bounds a text of 30,000 opening brackets ends the process with a RecursionError, and ten lines of aliases expand to gigabytes.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import takewhile
from typing import Any

from .._schema import Schema, taken

#: Characters of a text of JSON (the facts of a host with 16 GPUs have a tenth of it), and of one of YAML (a ConfigMap holds 1 MiB).
LONGEST_JSON, LONGEST_YAML = 16 * 2**20, 2**20
#: Deeper than any document that the collection reads, CustomResourceDefinitions included.
_DEEPEST = 100
#: What json makes of what has something in it.
_NESTED = frozenset({dict, list})
#: Nodes that the aliases of a text of YAML may add to it.
_MOST_ALIASED = 100_000


def read_json(text: str | bytes, longest: int | None = LONGEST_JSON) -> Any:
    """Return what a text of JSON holds. C(longest): characters that it may have; None where the sender bounds it, as the Kubernetes API does."""
    _refuse_long(text, longest)
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level: list[Any] = [document] if document.__class__ in _NESTED else []
    depth = 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        below = (one.values() if one.__class__ is dict else one for one in level)
        level = [child for children in below for child in children if child.__class__ in _NESTED]
    return document


def read_record(schema: Schema, text: str | None) -> Any:
    """Return what a record in a file of ours says; None where there is none, or it is none of this version's."""
    try:
        return taken(schema, read_json(text)) if text else None
    except ValueError:
        return None


def read_yaml(text: str, longest: int = LONGEST_YAML) -> Any:
    """Return what a text of YAML holds. Raises ValueError: it is none, or larger, more deeply nested or with more aliases than allowed."""
    # Hosts need no PyYAML: only the controller reads YAML.
    import yaml

    _refuse_long(text, longest)
    try:
        return yaml.load(text, Loader=yaml_loader(text))
    except yaml.YAMLError as error:
        raise ValueError(f"invalid YAML: {str(error).splitlines()[0]}") from error
    except (LookupError, AttributeError, TypeError, ArithmeticError) as error:
        # PyYAML lets through what its constructors raise, as of !!bool maybe.
        raise ValueError("invalid YAML: a value does not fit its type") from error


@cache
def table(package: str, name: str) -> Any:
    """Return a table of the collection: what the file C(name).yml beside the code of a package holds."""
    # Hosts read none.
    import pkgutil

    return read_yaml((pkgutil.get_data(package, f"{name}.yml") or b"").decode())


def yaml_loader(text: str, base: str = "SafeLoader", first: bool = False) -> Any:
    """Return PyYAML's loader for a text within bounds: that of the C library, unless an anchor is given twice, which YAML allows and PyYAML refuses.

    :param first: whether it is the first document alone that will be read.
    """
    import yaml

    slow = getattr(yaml, base)
    fast = getattr(yaml, f"C{base}", slow)
    events = yaml.parse(text, Loader=fast)
    if first:
        events = takewhile(lambda event: not isinstance(event, yaml.DocumentEndEvent), events)
    if not _refuse_expanding(yaml, events):
        return fast

    def compose_node(self: Any, parent: Any, index: Any) -> Any:
        if not self.check_event(yaml.AliasEvent):
            self.anchors.pop(self.peek_event().anchor, None)
        return slow.compose_node(self, parent, index)

    return type("RedefiningLoader", (slow,), {"compose_node": compose_node})


def _refuse_long(text: str | bytes, longest: int | None) -> None:
    if longest is not None and len(text) > longest:
        raise ValueError(f"it has {len(text)} characters, and may have at most {longest}")


def _refuse_expanding(yaml: Any, events: Any) -> bool:
    """Go through the events of the parser, which needs no recursion: the C library that builds from them ends the process at great depth.

    Returns whether an anchor is given twice.
    """
    nodes, aliased = 0, 0
    # By anchor, and of each collection that is open: how many nodes it has, and how deep it is.
    anchors: dict[str, tuple[int, int]] = {}
    opened: list[list[Any]] = [[None, 0, 0]]
    twice = False
    for event in events:
        size, height = 0, 0
        twice = twice or (event.__class__ is not yaml.AliasEvent and getattr(event, "anchor", None) in anchors)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise ValueError(f"invalid YAML: the alias {event.anchor!r} stands for nothing that ends before it")
            size, height = anchors[event.anchor]
            aliased += size
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append([event.anchor, nodes, 0])
            anchors.pop(event.anchor, None)
            size = 1
        elif isinstance(event, yaml.ScalarEvent):
            size = height = 1
            if event.anchor:
                anchors[event.anchor] = (1, 1)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before, inner = opened.pop()
            height = inner + 1
            if anchor:
                anchors[anchor] = (nodes - before, height)
        nodes += size
        opened[-1][2] = max(opened[-1][2], height)
        if len(opened) + height > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if aliased > _MOST_ALIASED:
            raise ValueError(f"its aliases stand for more than {_MOST_ALIASED} values")
    return twice


_WHOLE = re.compile("[0-9]{1,18}")


def whole_number(text: Any) -> int | None:
    """Return the number that ASCII digits write; None for any other text, and for one of more than 18 digits.

    C(str.isdigit) and C(\\d) find digits in other scripts, some of which C(int) refuses, as it does texts of more than 4,300 digits.
    """
    return int(text) if isinstance(text, str) and _WHOLE.fullmatch(text) else None
