# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.plan import FleetPlan, HostPlan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan, Step

DONE = HostPlan("done", "training", {"mig": StagePlan("mig", needed=False)})
CHANGING = HostPlan(
    "changing",
    "training",
    {
        "driver": StagePlan(
            "driver", True, (Step("reload", "driver", "newer", ("pod a", "pod b")),), warnings=("slow",)
        ),
        "mig": StagePlan("mig", True, (Step("enable MIG", "GPU 0", "wanted", ("pod a",)),), unknown="no driver yet"),
        "sharing": StagePlan("sharing", False),
    },
)
IMPOSSIBLE = HostPlan("impossible", None, {"mig": StagePlan("mig", True, refusals=(Refused("x", "no", "Yes."),))})
UNREAD = HostPlan("unread", "batch", {}, "it did not answer")
FILES = ({"action": "create", "path": "clusters/demo/capacity.json"},)


def test_a_host_tells_its_changes_and_whom_they_disturb_once():
    assert CHANGING.changes == ["driver", "mig"]
    assert CHANGING.disturbs == ["pod a", "pod b"]
    assert IMPOSSIBLE.impossible == ["x: no. Yes."]


@pytest.mark.parametrize(
    ("fleet", "drift", "summary"),
    [
        (FleetPlan([]), False, "0 hosts: 0 as described, 0 to change, 0 impossible, 0 unread; 0 files"),
        (FleetPlan([DONE]), False, "1 hosts: 1 as described, 0 to change, 0 impossible, 0 unread; 0 files"),
        (FleetPlan([DONE, UNREAD]), False, "2 hosts: 1 as described, 0 to change, 0 impossible, 1 unread"),
        (FleetPlan([DONE, CHANGING]), True, "2 hosts: 1 as described, 1 to change"),
        (FleetPlan([IMPOSSIBLE]), True, "1 hosts: 0 as described, 0 to change, 1 impossible"),
        (FleetPlan([DONE], FILES), True, "1 files of the cluster to change"),
        (FleetPlan([DONE], (), "a: no."), True, "the files of the cluster cannot be rendered"),
        (
            FleetPlan([HostPlan("both", None, IMPOSSIBLE.stages, "it did not answer")]),
            True,
            "1 hosts: 0 as described, 0 to change, 0 impossible, 1 unread",
        ),
    ],
)
def test_drift_and_the_sum(fleet, drift, summary):
    assert fleet.drift is drift
    assert summary in fleet.summary()


def test_the_text_has_every_step_then_a_line_for_each_host_then_the_sum():
    text = FleetPlan([DONE, CHANGING, IMPOSSIBLE, UNREAD], FILES, "mig of impossible").text()
    assert text.startswith("changing\n  driver: reload driver (newer); disturbs pod a, pod b\n")
    for line in (
        "  mig: not known yet: no driver yet",
        "  warning: slow",
        "impossible\n  impossible: x: no. Yes.",
        "done        training  as described",
        "changing    training  to change",
        "impossible  -         impossible",
        "unread      batch     unread: it did not answer",
        "  create clusters/demo/capacity.json",
        "  The files of the cluster cannot be rendered: mig of impossible",
    ):
        assert line in text, line
    assert text.splitlines()[-1].startswith("4 hosts: 1 as described, 1 to change, 1 impossible, 1 unread")


def test_it_can_be_kept_as_json():
    kept = json.loads(json.dumps(FleetPlan([CHANGING, UNREAD], FILES).as_dict()))
    assert kept["drift"] is True
    assert kept["hosts"]["changing"]["stages"]["driver"]["steps"][0]["action"] == "reload"
    assert kept["hosts"]["unread"]["unread"] == "it did not answer"
    assert kept["files"] == list(FILES)
