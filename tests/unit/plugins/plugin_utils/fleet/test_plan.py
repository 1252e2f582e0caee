# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import STOPPED, Refused, StagePlan, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.expectations import Expected
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.plan import FleetPlan, HostPlan, NodeView, node_view

DONE = HostPlan("done", "training", {"mig": StagePlan("mig", needed=False)})
CHANGING = HostPlan(
    "changing",
    "training",
    {
        "driver": StagePlan(
            "driver", True, (Step(Kind.RELOAD_SERVICE, "driver", "newer", ("pod a", "pod b")),), warnings=("slow",)
        ),
        "mig": StagePlan(
            "mig", True, (Step(Kind.ENABLE_SERVICE, "MIG", "wanted", ("pod a",)),), unknown="no driver yet"
        ),
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
        (FleetPlan([DONE]), False, "1 host: 1 as described, 0 to change, 0 impossible, 0 unread; 0 files"),
        (FleetPlan([DONE, UNREAD]), False, "2 hosts: 1 as described, 0 to change, 0 impossible, 1 unread"),
        (FleetPlan([DONE, CHANGING]), True, "2 hosts: 1 as described, 1 to change"),
        (FleetPlan([IMPOSSIBLE]), True, "1 host: 0 as described, 0 to change, 1 impossible"),
        (FleetPlan([DONE], FILES), True, "1 file of the cluster to change"),
        (FleetPlan([DONE], (), "a: no."), True, "the files of the cluster cannot be rendered"),
        (
            FleetPlan([HostPlan("both", None, IMPOSSIBLE.stages, "it did not answer")]),
            True,
            "1 host: 0 as described, 0 to change, 1 impossible, 0 unread",
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


def partition(index, why="wanted: 1g.10gb x7", disturbs=()):
    data = {"index": index, "pci_address": f"0000:{index:02x}:00.0"}
    return Step(Kind.PARTITION_GPU, data["pci_address"], why, disturbs, data)


def test_what_is_done_alike_to_several_gpus_is_one_line():
    steps = (
        *map(partition, range(3)),
        partition(3, disturbs=("job 7",)),
        partition(4, "wanted: 7g.80gb"),
        partition(5),
    )
    text = FleetPlan((HostPlan("a", "training", {"mig": StagePlan("mig", True, steps)}),)).text()
    assert text.startswith(
        "a\n"
        "  mig: partition GPUs 0-2,5 (wanted: 1g.10gb x7)\n"
        "  mig: partition GPU 3 (0000:03:00.0) (wanted: 1g.10gb x7); disturbs job 7\n"
        "  mig: partition GPU 4 (0000:04:00.0) (wanted: 7g.80gb)\n"
    )


def test_hosts_with_the_same_steps_are_named_together_and_keep_a_line_each():
    plan = {"mig": StagePlan("mig", True, (partition(0),))}
    many = [HostPlan(f"gpu-{number}", "training", plan) for number in range(10)]
    text = FleetPlan([*many, HostPlan("other", "training", {"mig": StagePlan("mig", True, (partition(1),))})]).text()
    assert text.startswith("gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6 and 3 more\n  mig: partition GPU 0 (")
    assert text.count("partition GPU 0") == 1 and "\nother\n  mig: partition GPU 1 (" in text
    assert all(f"\ngpu-{number} " in text for number in range(10)), "the table has every host"


@pytest.mark.parametrize(
    ("reboots", "whole"), [((), None), ((None, "possible"), "possible"), (("possible", "needed"), "needed")]
)
def test_a_host_has_to_reboot_if_one_of_its_steps_needs_it(reboots, whole):
    steps = tuple(Step(Kind.CHANGE_FILE, "driver", "newer", data={"reboot": one} if one else {}) for one in reboots)
    host = HostPlan("a", "training", {"driver": StagePlan("driver", True, steps)})
    assert host.reboot == whole
    assert host.as_dict()["reboot"] == whole
    assert ("1 to change (1 of them with a reboot)" in FleetPlan([host, DONE]).summary()) == (whole == "needed")


def test_it_can_be_kept_as_json():
    kept = json.loads(json.dumps(FleetPlan([CHANGING, UNREAD], FILES).as_dict()))
    assert kept["drift"] is True
    assert kept["hosts"]["changing"]["stages"]["driver"]["steps"][0]["kind"] == "reload_service"
    assert kept["hosts"]["unread"]["unread"] == "it did not answer"
    assert kept["files"] == list(FILES)


def pod(name, owner="ReplicaSet", resource="nvidia.com/gpu", phase="Running"):
    return {
        "metadata": {
            "namespace": "jobs",
            "name": name,
            "ownerReferences": [{"kind": owner, "uid": "set", "controller": True}],
        },
        "spec": {"containers": [{"resources": {"limits": {resource: "1"}}}]},
        "status": {"phase": phase},
    }


PODS = [pod("b"), pod("a"), pod("ended", phase="Succeeded"), pod("plugin", "DaemonSet"), pod("web", resource="cpu")]
READY = [{"type": "Ready", "status": "True"}]


def test_a_node_is_compared_as_it_is_now():
    node = {"status": {"allocatable": {"nvidia.com/gpu": "7"}, "conditions": READY}}
    found = node_view("n", node, PODS, {("jobs", "set")}, Expected({"nvidia.com/gpu": 8}, {}))
    assert found == NodeView("n", ("allocatable: nvidia.com/gpu: 7 instead of 8",), ("jobs/a", "jobs/b"), "")
    assert "jobs/plugin" in node_view("n", node, PODS, (), None).pods, "there is no such DaemonSet"
    assert node_view("n", {"spec": {"unschedulable": True}, **node}, (), (), None).unavailable == "cordoned"
    assert node_view("n", {"status": {}}, (), (), None) == NodeView("n", (), (), "not Ready")
    assert node_view("n", None, (), (), None).differs == ("the cluster has no node n",)


def test_pods_are_disturbed_only_where_a_change_disturbs_somebody():
    view = NodeView("n", (), ("jobs/a",), "cordoned")
    changing = replace(CHANGING, node=view)
    assert changing.disturbs == ["pod a", "pod b", "pod jobs/a"]
    reload = Step(Kind.RELOAD_DRIVER, "driver", "newer", ("pod jobs/a (nvidia.com/gpu)",), {"version": "1"})
    known = StagePlan("driver", True, (reload,))
    assert replace(changing, stages={"driver": known}).disturbs == ["pod jobs/a (nvidia.com/gpu)"]
    restart = Step(Kind.CONFIGURE_RUNTIME, "containerd", "it is not configured", ("starting containers",))
    runtime = {"runtime": StagePlan("runtime", True, (restart,))}
    assert replace(changing, stages=runtime).disturbs == ["starting containers"], "no pod ends with it"
    stops = replace(restart, data={"containers": STOPPED})
    hurt = replace(changing, stages={"runtime": StagePlan("runtime", True, (stops,))}).disturbs
    assert len(hurt) > 1, "its pods do"
    assert replace(DONE, node=view).disturbs == []
    assert "  node n: cordoned" in FleetPlan([changing]).text()
    assert "cordoned" not in FleetPlan([replace(DONE, node=view)]).text()


def test_a_node_that_shows_something_else_is_drift():
    fleet = FleetPlan([replace(DONE, node=NodeView("n", ("allocatable: x",)))])
    assert fleet.drift
    assert "0 unread, 1 node with differences; 0 files" in fleet.summary()
    assert "done\n  node n: allocatable: x\n" in fleet.text()
    assert fleet.as_dict()["hosts"]["done"]["node"]["differs"] == ["allocatable: x"]
    assert not FleetPlan([replace(DONE, node=NodeView("n"))]).drift
