# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which parts of a host's facts a plan was made from: a view that notes each part as it is read, and their digests. Pure.

A planner is a function of what it reads: where every part that it read is the same, it reads the same ones again, and plans the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ...module_utils._facts_view import Facts

#: Hexadecimal digits of a digest that tells values apart, and is no proof of anything.
SHORT = 12
#: What comes and goes, and no plan is made from: who uses a host (whom a step disturbs is compared by itself), errors, and what was begun on it.
_PASSING = frozenset(
    ("holders", "processes", "allocations", "clients", "servers", "containers")
    + ("boot_id", "errors", "recovery_action", "heal", "plan_begun", "plan_applied", "health")
)
#: In which parts of a document it is, and below what of a GPU.
_WITHIN = frozenset({"gpus", "mps", "host", "recorded", "unknown"})
_INSTANCES = frozenset({"gpu_instances", "compute_instances"})
_PARTS = frozenset(one.name for one in dataclasses.fields(Facts)) - _PASSING
_as_text = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def digest_of(value: Any) -> str:
    return hashlib.sha256(_as_text(value).encode()).hexdigest()[:SHORT]


class Noting(Facts):
    """The facts of a host, which note which of their parts are read."""

    def __getattribute__(self, name: str) -> Any:
        state = object.__getattribute__(self, "__dict__")
        if name in _PARTS:
            state["_read"].add(name)
        return state[name] if name in state else object.__getattribute__(self, name)

    def says(self, name: str) -> bool:
        self.__dict__["_read"].add(name)
        return super().says(name)

    def but(self, *still: str, **changes: Any) -> Any:
        return super().but("_read", *still, **changes)


def noting(facts: Facts) -> tuple[Facts, set[str]]:
    """Return the same facts, and the names of their parts that were read, which grow as they are."""
    found: Facts = object.__new__(Noting)
    # Not what was kept on the view: what it was made from would not be read again.
    names = {one.name for one in dataclasses.fields(facts)} | {"_given"}
    read: set[str] = set()
    found.__dict__.update({name: value for name, value in facts.__dict__.items() if name in names}, _read=read)
    return found, read


def digests(document: Mapping[str, Any], parts: set[str], exact: bool) -> dict[str, str]:
    """Return digests of parts of a facts document. C(exact): of what is in each of them."""
    found = {}
    for part in sorted(parts & _PARTS):
        value = document.get(part)
        if part == "runtimes" and value:
            value = {name: _lasting(one) for name, one in value.items()}
        elif part in _WITHIN:
            value = _lasting(value)
        if not (exact and value):
            found[part] = digest_of(value)
        elif isinstance(value, Mapping):
            found.update({f"{part}.{name}": digest_of(one) for name, one in value.items()})
        else:
            found.update({f"{part}[{place}]": digest_of(one) for place, one in enumerate(value)})
    return found


def _lasting(value: Any) -> Any:
    """Return it without what comes and goes."""
    if isinstance(value, list):
        return [_lasting(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    kept = {name: one for name, one in value.items() if name not in _PASSING}
    return {name: _lasting(one) if name in _INSTANCES else one for name, one in kept.items()}
