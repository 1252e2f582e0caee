# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet in which some hosts have kinds of their own, so that a demand can name these hosts: the solver knows none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .problem import Group, Problem, UnitKind


def plain(kind: UnitKind) -> UnitKind:
    """Return the kind as it is where no host is set apart."""
    return kind._replace(pool=kind.pool.partition("@")[0])


class Apart:
    """C(problem) with kinds of their own for some hosts. Whoever accepts a kind accepts these as well.

    :param marks: what the kinds of a host are told by; hosts with the same mark have the same kinds.
    """

    def __init__(self, problem: Problem, marks: Mapping[str, str]) -> None:
        groups = []
        self.there: dict[tuple[str, str], set[str]] = {}
        for group in problem.groups:
            parts: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
            for unit in zip(group.hosts, group.indices):
                parts.setdefault(marks.get(unit[0], ""), []).append(unit)
            for mark, units in parts.items():
                states = group.states
                if mark:
                    states = tuple(replace(state, pool=f"{state.pool}@{mark}") for state in states)
                    for state in group.states:
                        self.there.setdefault((state.pool, state.board), set()).add(mark)
                groups.append(Group(states, len(units), *map(tuple, zip(*units))))
        kinds = {*problem.moves, *(kind for kind, _priority in problem.running)}
        self.problem = replace(
            problem,
            groups=tuple(groups),
            wanted=tuple(replace(one, kinds=self._wide(one.kinds)) for one in problem.wanted),
            moves={one: self._wide(problem.moved(kind)) for kind in kinds for one in self._wide([kind])},
            replicas={one: count for kind, count in problem.replicas.items() for one in self._wide([kind])},
        )

    def kinds(self, kinds: Iterable[UnitKind], mark: str) -> tuple[UnitKind, ...]:
        """Return these kinds on the hosts with a mark."""
        there = (kind for kind in kinds if mark in self.there.get(kind[:2], ()))
        return tuple(kind._replace(pool=f"{kind.pool}@{mark}") for kind in there)

    def _wide(self, kinds: Iterable[UnitKind]) -> tuple[UnitKind, ...]:
        several = ((kind, sorted(self.there.get(kind[:2], ()))) for kind in kinds)
        return tuple(one for kind, marks in several for one in (kind, *(self.kinds([kind], mark)[0] for mark in marks)))
