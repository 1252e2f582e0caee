# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of C(upgrade) knows of its nodes, shared by its worker processes: who waits, who is worked on, and how far each one came.

A worker sees the variables of other hosts as they were when it was forked, and a host that waits may wait for hours. So the run keeps
its state in a file of its own, which ends with the run: what a later run needs is on the nodes.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .fleet.upgrade import REFUSED, ROLLING_BACK
from .fleet.waves import DONE, FAILED, WORKING, Node

#: What a host does: nothing yet, wait for room, be worked on, have been worked on, have left without that.
OUTSIDE, WAITS, HOLDS, ENDED, LEFT = "", "waits", "holds", "ended", "left"

_SCHEMA = """
CREATE TABLE settings (text TEXT);
CREATE TABLE state (refreshed REAL, event REAL, stopped TEXT);
CREATE TABLE host (name TEXT PRIMARY KEY, place INTEGER, turn INTEGER, rack TEXT, about TEXT, record TEXT, slot TEXT, since REAL,
                   phase TEXT, ready INTEGER, cordoned INTEGER, by_hand INTEGER, skip INTEGER, failing INTEGER);
"""
#: Hosts enter the play in the order of their turns, but their workers may ask in any other: who comes before one that asked is as good as here.
_NODE = """name, phase, ready, cordoned, by_hand, skip, slot, failing, rack,
           coalesce(turn <= (SELECT MAX(turn) FROM host WHERE slot != ''), 0)"""
#: Seconds for which a process waits for another one's change of the file.
_PATIENCE = 60.0


class UpgradeRun:
    """The state of this run. Every change is one transaction."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "gpufleet-upgrade.sqlite")

    @property
    def exists(self) -> bool:
        """Whether the run has planned an upgrade; a rollback by hand has not."""
        return os.path.exists(self._path)

    def begin(self, settings: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the settings of the run and its hosts, in the order of the inventory, with what is known about each of them."""
        if self.exists:
            os.unlink(self._path)
        with self._change() as base:
            for statement in _SCHEMA.split(";"):
                base.execute(statement)
            base.execute("INSERT INTO settings VALUES (?)", [json.dumps(settings)])
            base.execute("INSERT INTO state VALUES (0, ?, '')", [time.time()])
            rows = [
                (name, place, str(about.get("rack") or ""), json.dumps(about))
                for place, (name, about) in enumerate(hosts.items())
            ]
            base.executemany("INSERT INTO host VALUES (?, ?, NULL, ?, ?, NULL, '', 0, '', 1, 0, 0, 0, 0)", rows)

    @property
    def settings(self) -> dict[str, Any]:
        return dict(json.loads(self._one("SELECT text FROM settings")[0]))

    def hosts(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any] | None, bool]]:
        """Return of each host its name, what is known about it, its record in this run, and whether this run began with it."""
        for name, about, record, slot in self._all("SELECT name, about, record, slot FROM host ORDER BY place"):
            yield name, json.loads(about), json.loads(record) if record else None, slot in (HOLDS, ENDED)

    def set_order(self, order: Sequence[str]) -> None:
        """Keep the order in which the hosts enter the play; those that are not in it do not start."""
        with self._change() as base:
            base.executemany("UPDATE host SET turn = ? WHERE name = ?", enumerate(order))

    def refresh(self, nodes: Sequence[Node]) -> None:
        """Keep how the nodes are now."""
        rows = [(node.phase, node.ready, node.cordoned, node.cordoned_by_hand, node.skip, node.name) for node in nodes]
        with self._change() as base:
            base.executemany(
                "UPDATE host SET phase = CASE slot WHEN 'ended' THEN phase ELSE ? END, ready = ?, cordoned = ?, by_hand = ?, skip = ? WHERE name = ?",
                rows,
            )
            base.execute("UPDATE state SET refreshed = ?", [time.time()])

    def is_older_than(self, seconds: float) -> bool:
        """Whether the nodes were last looked at before that."""
        return bool(time.time() - self._one("SELECT refreshed FROM state")[0] > seconds)

    def enqueue(self, host: str) -> float:
        """Let a host wait for room, and return for how many seconds it has waited."""
        with self._change() as base:
            base.execute("UPDATE host SET slot = ?, since = ? WHERE name = ? AND slot = ''", [WAITS, time.time(), host])
        return time.time() - float(self._one("SELECT since FROM host WHERE name = ?", [host])[0])

    def slot(self, host: str) -> str:
        return str(self._one("SELECT slot FROM host WHERE name = ?", [host])[0])

    def version(self) -> tuple[Any, ...]:
        """Return what differs when there is something new to decide."""
        (state,) = self._all("SELECT event, stopped FROM state")
        (hosts,) = self._all("SELECT SUM(slot = ''), SUM(failing) FROM host")
        return (*state, *hosts)

    def quiet_since(self) -> float | None:
        """Return since when no node is worked on, in seconds since the epoch; None while one is."""
        if self._one("SELECT COUNT(*) FROM host WHERE slot = ?", [HOLDS])[0]:
            return None
        return float(self._one("SELECT event FROM state")[0])

    def record(self, host: str, record: Mapping[str, Any]) -> None:
        """Keep how far this run has come with a host."""
        with self._change() as base:
            failing = record.get("state") in (FAILED, ROLLING_BACK)
            base.execute("UPDATE host SET record = ?, failing = ? WHERE name = ?", [json.dumps(record), failing, host])

    def about(self, host: str) -> dict[str, Any]:
        """Return what was known about a host when the run began."""
        return dict(json.loads(self._one("SELECT about FROM host WHERE name = ?", [host])[0]))

    def number(self) -> int:
        """Return how many nodes this run has begun with."""
        return int(self._one("SELECT COUNT(*) FROM host WHERE slot IN (?, ?)", [HOLDS, ENDED])[0])

    def end(self, host: str) -> None:
        """A host needs no room any more."""
        self._end([host])

    def drop_unreachable(self, present: Iterable[str]) -> list[str]:
        """End the hosts that are worked on and take part in the play no more, and return them: Ansible reaches them no longer."""
        there = frozenset(present)
        held = self._all("SELECT name FROM host WHERE slot = ?", [HOLDS])
        lost = [name for (name,) in held if name not in there]
        if lost:
            self._end(lost)
        return lost

    def abandon(self, host: str) -> None:
        """A host waits no longer, and was not worked on."""
        with self._change() as base:
            base.execute("UPDATE host SET slot = ? WHERE name = ?", [LEFT, host])

    def stop(self, reason: str) -> bool:
        """Keep why no further node starts; return whether that is new."""
        with self._change() as base:
            changed = base.execute("UPDATE state SET stopped = ? WHERE stopped = ''", [reason])
            return changed.rowcount > 0

    @property
    def stopped(self) -> str:
        return str(self._one("SELECT stopped FROM state")[0])

    def nodes(self) -> list[Node]:
        """Return the nodes; of those that this run has not begun with, only the ones that take part in the play by now may start."""
        return [_node(row) for row in self._all(f"SELECT {_NODE} FROM host ORDER BY place")]

    @contextmanager
    def decision(self) -> Iterator[tuple[list[Node], list[str]]]:
        """Give the nodes, and take the names that the caller adds to the list as those which start. Nobody else decides meanwhile."""
        start: list[str] = []
        with self._change() as base:
            yield [_node(row) for row in base.execute(f"SELECT {_NODE} FROM host ORDER BY place")], start
            for name in start:
                base.execute("UPDATE host SET slot = ? WHERE name = ?", [HOLDS, name])
            if start:
                base.execute("UPDATE state SET event = ?", [time.time()])

    def _end(self, names: Sequence[str]) -> None:
        with self._change() as base:
            for name in names:
                (record,) = base.execute("SELECT record FROM host WHERE name = ?", [name]).fetchone()
                state = json.loads(record).get("state") if record else ""
                base.execute(
                    "UPDATE host SET slot = ?, phase = ?, cordoned = by_hand OR ? WHERE name = ?",
                    [ENDED, DONE if state == DONE else FAILED, state not in (DONE, REFUSED, ""), name],
                )
            base.execute("UPDATE state SET event = ?", [time.time()])

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        base = self._open()
        try:
            base.execute("BEGIN IMMEDIATE")
            yield base
            base.execute("COMMIT")
        finally:
            base.close()

    def _open(self) -> sqlite3.Connection:
        base = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
        # It ends with the run, so that it need not outlast a power cut.
        base.execute("PRAGMA synchronous = OFF")
        return base

    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        base = self._open()
        try:
            return base.execute(statement, values).fetchall()
        finally:
            base.close()

    def _one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._all(statement, values)[0]


def _node(row: Sequence[Any]) -> Node:
    name, phase, ready, cordoned, by_hand, skip, slot, failing, rack, entered = row
    started = slot in (HOLDS, ENDED)
    phase = WORKING if slot == HOLDS else phase
    skip = not started and (bool(skip) or slot == LEFT or not entered)
    return Node(name, phase, bool(ready), bool(cordoned), bool(by_hand), skip, slot == HOLDS and bool(failing), rack)
