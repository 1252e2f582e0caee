# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two runs that want the fleet, simulated: on one machine or two, in one PID namespace or two, with steps of any length, an API server that is
away, runs that die, and process numbers that are given again. Never do both hold the Lease."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_lease import Holder, release, take
from hypothesis import strategies as st

from ...mutation import QUICK, examples_of, property_of

START = datetime.datetime(2026, 11, 21, 7, 0, tzinfo=datetime.timezone.utc)
SECONDS = 60


@dataclass
class Run:
    """A run of ansible-playbook.

    :ivar until: second of the API server's clock until which it may believe that the Lease is its own.
    """

    where: str
    space: str
    pid: int
    start: int
    alive: bool = True
    until: float = -1.0

    @property
    def holder(self) -> Holder:
        return Holder(self.where, f"{self.pid}-{self.start}-{self.space}")


@dataclass
class World:
    """The API server, its clock, and the processes of all machines."""

    runs: list[Run]
    now: float = 0.0
    stored: dict | None = None
    version: int = 0
    processes: dict[tuple[str, str, int], int] = field(default_factory=dict)
    between: list = field(default_factory=list)

    def clock(self, _namespace):
        # Between reading the Lease and writing it, others do what they do.
        while self.between:
            self.between.pop()()
        return START + datetime.timedelta(seconds=self.now)

    def lease(self, _namespace, _name):
        return self.stored and {"metadata": {"resourceVersion": str(self.version)}, "spec": self.stored}

    def write_lease(self, _namespace, _name, spec, version):
        if version != (str(self.version) if self.stored is not None else None):
            return False
        self.stored, self.version = dict(spec), self.version + 1
        return True

    def seen_by(self, run):
        """What C(_start_of) says where C(run) is: the numbers of processes mean something in one PID namespace of one machine."""
        return lambda pid: self.processes.get((run.where, run.space, pid))


def simulate(patch, runs, events):
    """Play events; return which runs held the Lease, in order, and fail where two do at once."""
    world = World(runs)
    held = []
    for run in runs:
        world.processes[run.where, run.space, run.pid] = str(run.start)

    def takes(run):
        if not run.alive:
            return
        patch.setattr(cluster_lease, "_start_of", world.seen_by(run))
        try:
            take(world, "default", run.holder, SECONDS, False)
        except Failure:
            return
        run.until = world.now + SECONDS
        held.append(run)
        others = [other for other in runs if other is not run and other.alive and other.until > world.now]
        assert not others, f"{run.holder} took it, and {others[0].holder} has it until {others[0].until}"

    def renews(run):
        # As lease_renewal does: only who has it renews it.
        if run.alive and cluster_lease.held(world, "default", run.holder):
            takes(run)

    for verb, number, value in events:
        run = runs[number]
        if verb == "wait":
            world.now += value
        elif verb == "take":
            other = runs[1 - number]
            # An odd value: the other one does the same between reading and writing.
            world.between = [lambda other=other: takes(other)] if value % 2 else []
            takes(run)
        elif verb == "renew":
            renews(run)
        elif verb == "release" and run.alive:
            release(world, "default", run.holder)
            run.until = -1.0
        elif verb == "die":
            run.alive = False
            world.processes.pop((run.where, run.space, run.pid), None)
        elif verb == "number given again":
            world.processes.setdefault((run.where, run.space, run.pid), str(run.start + 1))
        world.between = []
    return held


def machines():
    """Two runs: on one machine and in one PID namespace, or not, of one process number where they may be."""
    places = st.sampled_from([("root@a", "s1"), ("root@a", "s2"), ("root@b", "s1"), ("root@b", "s3")])
    return st.tuples(places, places, st.booleans()).map(
        lambda drawn: [
            Run(*drawn[0], 100, 7),
            Run(*drawn[1], 100 if drawn[2] and drawn[0] != drawn[1] else 101, 7 if drawn[2] else 8),
        ]
    )


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["wait", "take", "take", "renew", "release", "die", "number given again"]),
        st.integers(0, 1),
        st.integers(0, 2 * SECONDS),
    ),
    min_size=2,
    max_size=25,
)


@examples_of()
def test_two_runs_never_hold_the_lease_at_once(examples):
    taken = set()

    @property_of(st.tuples(machines(), EVENTS), examples)
    def check(drawn):
        runs, events = drawn
        with pytest.MonkeyPatch.context() as patch:
            held = simulate(patch, runs, events)
        taken.update((run.where, len({id(one) for one in held})) for run in held)

    found = {number for _where, number in taken}
    assert found == {1, 2} or examples == QUICK, "one run alone, and two after each other, are among the examples"


@pytest.mark.parametrize(
    ("second", "events", "holds"),
    [
        (("root@a", "s2"), [("take", 0, 0), ("take", 1, 0)], 0),
        (("root@a", "s1"), [("take", 0, 0), ("die", 0, 0), ("take", 1, 0)], 1),
        (("root@a", "s1"), [("take", 0, 0), ("die", 0, 0), ("number given again", 0, 0), ("take", 1, 0)], 1),
        (("root@a", "s2"), [("take", 0, 0), ("die", 0, 0), ("take", 1, 0)], 0),
        (("root@b", "s3"), [("take", 0, 0), ("wait", 0, 59), ("renew", 0, 0), ("wait", 0, 59), ("take", 1, 0)], 0),
        (("root@b", "s3"), [("take", 0, 0), ("wait", 0, 61), ("take", 1, 0), ("renew", 0, 0)], 1),
        (("root@b", "s3"), [("take", 0, 1)], 1),
    ],
)
def test_who_has_it_in_the_end(monkeypatch, second, events, holds):
    runs = [Run("root@a", "s1", 100, 7), Run(*second, 101, 8)]
    assert simulate(monkeypatch, runs, events)[-1] is runs[holds]


def test_the_simulation_sees_two_holders(monkeypatch):
    """It fails with a rule that takes every Lease of this machine for that of a run that ended."""
    monkeypatch.setattr(cluster_lease, "is_gone", lambda holder, here: holder.startswith(here.where))
    with pytest.raises(AssertionError, match="and root@a/100-7-s1 has it"):
        simulate(
            monkeypatch, [Run("root@a", "s1", 100, 7), Run("root@a", "s2", 101, 8)], [("take", 0, 0), ("take", 1, 0)]
        )
