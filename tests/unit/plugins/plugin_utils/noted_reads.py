# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A view of facts that notes each field as it is read, below all parts: what digests of parts are held against."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import Facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import View

#: Who uses a host is noted by whom a step disturbs: pods come and go, and that alone makes no other plan.
_USERS = frozenset({"holders", "processes", "allocations", "clients", "servers", "containers"})


class Reads:
    """What was read of the facts of one host, by path."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def note(self, path: str, value: Any) -> None:
        if _name(path) not in _USERS:
            self.found.setdefault(path, value)


def recording(facts: Facts, reads: Reads) -> Facts:
    """Return the same facts, which note in C(reads) what is read of them."""
    found: Facts = _recorder(facts, "", reads)
    return found


def _recorder(view: View, path: str, reads: Reads) -> Any:
    kind: Any = type(view)
    found: Any = object.__new__(_recording_class(kind))
    found.__dict__.update(_source=view, _path=path, _reads=reads, _changed={})
    return found


@cache
def _recording_class(made: Any) -> type:
    fields = {one.name: _Field(one.name, one.default) for one in dataclasses.fields(made)}
    return type(f"Recording{made.__name__}", (_Recorder, made), fields)


class _Field:
    """A field that is noted when it is read first. From then on the object has the value itself, which Python finds before this."""

    def __init__(self, name: str, default: Any) -> None:
        self._name, self._default = name, default

    def __get__(self, view: Any, _of: type | None = None) -> Any:
        if view is None:
            return self._default
        state = view.__dict__
        read = getattr(state["_source"], self._name)
        state[self._name] = value = _noted(read, _below(state["_path"], self._name), state["_reads"])
        return value


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _name(path: str) -> str:
    return path.rpartition(".")[2].rstrip("?")


def _noted(value: Any, path: str, reads: Reads) -> Any:
    if _name(path) in _USERS:
        return value
    if isinstance(value, View):
        return _recorder(value, path, reads)
    if isinstance(value, tuple) and value and isinstance(value[0], View):
        reads.note(path, len(value))
        return tuple(_recorder(one, f"{path}[{place}]", reads) for place, one in enumerate(value))
    if isinstance(value, Mapping) and any(isinstance(one, View) for one in value.values()):
        reads.note(path, sorted(value))
        return {name: _recorder(one, f"{path}.{name}", reads) for name, one in value.items()}
    reads.note(path, value)
    return value


class _Recorder(View):
    """What the recording class of every view has beside its fields."""

    @property
    def _given(self) -> Mapping[str, Any]:
        state = self.__dict__
        names = state["_source"]._given
        state["_reads"].note(_below(state["_path"], "*"), sorted(names))
        return {**{name: getattr(self, name) for name in names}, **state["_changed"]}

    def says(self, name: str) -> bool:
        state = self.__dict__
        if name in state["_changed"]:
            return True
        said: bool = state["_source"].says(name)
        state["_reads"].note(_below(state["_path"], f"{name}?"), said)
        return said

    def but(self, *still: str, **changes: Any) -> Any:
        found = object.__new__(type(self))
        names = {one.name for one in dataclasses.fields(self)}  # type: ignore[arg-type]
        own = {"_source", "_path", "_reads", *names, *still}
        state = {name: value for name, value in self.__dict__.items() if name in own}
        found.__dict__.update(state, **changes, _changed={**self.__dict__["_changed"], **changes})
        return found
