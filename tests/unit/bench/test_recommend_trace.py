# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulation of a trace of requests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("highspy")
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import recommend_trace as trace

HEADER = "num_gpu,gpu_milli,creation_time,deletion_time\n"
#: After ten seconds half a GPU is used on both, and then somebody asks for a whole one.
ROWS = ("1,500,0,100", "1,500,1,10", "1,400,2,10", "1,400,3,100", "1,1000,20,30", "0,0,5,6")


@pytest.fixture
def requests(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "\n".join(ROWS))
    return trace.read(str(path))


def test_requests_become_the_smallest_profile_that_is_enough(requests):
    assert [one.profile for one in requests] == ["4g.40gb", "4g.40gb", "3g.40gb", "3g.40gb", "gpu"]


@pytest.mark.parametrize(("kind", "accepted", "migrated"), [("Fleet", 4, 0), ("BestFit", 4, 0), ("Planned", 5, 1)])
def test_who_is_in_the_way_moves_only_where_the_planner_says_so(requests, kind, accepted, migrated):
    fleet = getattr(trace, kind)([(), ()])
    found = trace.simulate(fleet, requests)
    assert (found.accepted, found.migrated) == (accepted, migrated)
    assert fleet.gpus == [(), ()] and not fleet.where
    # Both GPUs from the second on; with the move one of them is empty once the whole one has ended.
    active = (1 + 99 * 2) / 3600 if kind != "Planned" else (1 + 29 * 2 + 70) / 3600
    assert found.active_hours == pytest.approx(active)


def test_the_heuristic_merges_halves_every_hour(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "1,500,0,9000\n1,500,1,10\n1,400,2,10\n1,400,3,9000\n1,100,8000,9000\n")
    fleet = trace.Baskets([(), ()], share=0.0)
    assert trace.simulate(fleet, trace.read(str(path))).migrated == 1
