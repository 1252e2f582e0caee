# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of a pool's configurations: they stay with the nodes that they serve. Pure.

A release, a ConfigMap and the label of the nodes carry the name of a configuration. A node whose configuration gets another name
loses the plugin's pod, and with it the clients of the plugin's MPS daemon. So a name is given once and kept: the C(capacity.json) of
the tree that was rendered before says which configuration had which name. A tree in a new directory has no names to keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._formats.documents import read_json
from ...module_utils._plan import Refused
from .clusters import content_hash, pool_label

_LONGEST_NAME = 63


@dataclass(frozen=True)
class Former:
    """A configuration of the tree that was rendered before; its content, a hash of what served its nodes, is empty in trees that do not tell."""

    pool: str
    content: str
    nodes: frozenset[str]


@dataclass(frozen=True)
class Kind:
    """Nodes of a pool that get the same files, by the hash of what serves them; assumed by the table of boards where none of the hosts was read."""

    content: str
    nodes: frozenset[str]
    assumed: bool


def former(text: str | None, source: str) -> dict[str, Former]:
    """Return the configurations of a rendered C(capacity.json) by name; none when there is no such file.

    :raises Refused: C(source), its path, cannot be read. Rendering on would name the configurations anew.
    """
    if text is None:
        return {}
    try:
        document = read_json(text)
        nodes: dict[str, set[str]] = {}
        for node, entry in document["nodes"].items():
            nodes.setdefault(_name(entry["configuration"]), set()).add(_name(node))
        return {
            _name(name): Former(_name(item["pool"]), _text(item.get("content", "")), frozenset(nodes.get(name, ())))
            for name, item in document["configurations"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(
            source,
            "it is not a capacity.json that gpufleet.nvidia.render wrote, and the names of the configurations are read from it",
            "Restore the file from version control. If you remove it instead, the configurations get new names, which can restart the "
            "device plugin of pools with more than one configuration.",
        ) from error


def names(pool: str, kinds: Iterable[Kind], before: Mapping[str, Former]) -> dict[str, str]:
    """Return, by content, the name of each configuration of C(pool).

    A name stays with its content; no other host can take it. The name of a content that is gone follows its nodes, so that a change
    of a pool's variables updates its release in place. Of the rest the first gets the pool's name: what was read comes before what
    is assumed, more nodes before fewer.

    :param before: the configurations of the earlier tree, those of other pools as well.
    """
    ordered = sorted(kinds, key=lambda kind: (kind.assumed, -len(kind.nodes), kind.content))
    mine = {name: one for name, one in before.items() if one.pool == pool}
    found: dict[str, str] = {}
    for kind in ordered:
        same = sorted(name for name, one in mine.items() if one.content == kind.content)
        if same:
            found[kind.content] = same[0]
    left = {name: one for name, one in mine.items() if name not in found.values()}
    pairs = sorted(
        (-len(kind.nodes & one.nodes), position, name, kind.content)
        for position, kind in enumerate(ordered)
        for name, one in left.items()
        if kind.content not in found and kind.nodes & one.nodes
    )
    for _shared, _position, name, content in pairs:
        if content not in found and name not in found.values():
            found[content] = name
    label = pool_label(pool)
    for kind in ordered:
        if kind.content in found:
            continue
        taken = {*found.values(), *mine}
        own = [label] if label not in found.values() else []
        found[kind.content] = next(
            name
            for name in (*own, *(f"{label}-{content_hash(kind.content)[:length]}" for length in (4, 8)))
            if name in own or name not in taken
        )
    return found


def _name(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 253:
        raise TypeError("a name is a text of 1 to 253 characters")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        raise TypeError("a hash is a short text")
    return value
