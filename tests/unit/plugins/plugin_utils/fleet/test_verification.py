# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Check
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.expectations import (
    Expected,
    compare,
    expected,
    gpu_allocatable,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.verification import of_stages, verification


def node(allocatable, labels=None):
    return {"metadata": {"labels": labels or {}}, "status": {"allocatable": allocatable}}


def statuses(checks):
    return {check.name: check.status for check in checks}


def test_a_node_that_offers_what_is_predicted():
    found = node({"cpu": "8", "nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "4"}, {"nvidia.com/gpu.count": "8"})
    assert gpu_allocatable(found) == {"nvidia.com/mig-1g.10gb": 4}
    checks = compare(found, Expected({"nvidia.com/mig-1g.10gb": 4, "nvidia.com/gpu": 0}, {"nvidia.com/gpu.count": "8"}))
    assert statuses(checks) == {"allocatable": "passed", "labels": "passed"}
    assert checks[0].evidence == "nvidia.com/mig-1g.10gb: 4"
    assert gpu_allocatable(node({"nvidia.com/gpu": "8k"})) == {"nvidia.com/gpu": 8000}, "as the API server writes it"


def test_more_less_and_other_resources_are_named():
    checks = compare(node({"nvidia.com/gpu": "3", "nvidia.com/mig-1g.10gb": "4"}), Expected({"nvidia.com/gpu": 8}, {}))
    assert checks[0].status == "failed"
    assert checks[0].evidence == "nvidia.com/gpu: 3 instead of 8; nvidia.com/mig-1g.10gb: 4 instead of 0"
    assert checks[0].next_step


def test_labels_that_differ_fail_and_missing_feature_discovery_warns():
    labels = {"nvidia.com/gpu.product": "H100", "nvidia.com/gpu.count": "8"}
    wrong = compare(node({}, {"nvidia.com/gpu.product": "A100"}), Expected({}, labels))[1]
    assert wrong.status == "failed"
    assert wrong.evidence == "nvidia.com/gpu.count=missing instead of 8; nvidia.com/gpu.product=A100 instead of H100"
    assert compare(node({}), Expected({}, labels))[1].status == "warning"
    others = {"nvidia.com/gpu.deploy.dcgm-exporter": "true", "nvidia.com/gpu.present": "true"}
    assert compare(node({}, others), Expected({}, labels))[1].status == "warning", "those of the GPU Operator"
    assert compare(node({}), Expected({}, {}))[1].status == "skipped"
    assert compare(node({}), Expected({}, {}))[0].evidence == "no GPU resources, as predicted"


CAPACITY = {
    "schema": 1,
    "nodes": {"gpu-1": {"configuration": "a", "resources": {"nvidia.com/gpu": 8}}},
    "configurations": {"a": {"labels": {"nvidia.com/gpu.count": "8"}, "node_labels": {"gpufleet.github.io/pool": "a"}}},
}


def test_a_rendered_file_says_what_a_node_must_show():
    wanted = expected(json.dumps(CAPACITY), "capacity.json", "gpu-1")
    assert wanted == Expected({"nvidia.com/gpu": 8}, {"nvidia.com/gpu.count": "8"}, {"gpufleet.github.io/pool": "a"})
    labels = {"nvidia.com/gpu.count": "8", "gpufleet.github.io/pool": "a"}
    assert set(statuses(compare(node({"nvidia.com/gpu": "8"}, labels), wanted)).values()) == {"passed"}
    other = compare(node({"nvidia.com/gpu": "7"}, {**labels, "gpufleet.github.io/pool": "b"}), wanted)
    assert statuses(other) == {"allocatable": "failed", "labels": "passed", "node labels": "failed"}
    assert other[2].evidence == "gpufleet.github.io/pool=b instead of a"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": [], "configurations": {}}', json.dumps({"nodes": {}})])
def test_another_file_is_refused(text):
    with pytest.raises(Refused, match="it is not a capacity"):
        expected(text, "other.json", "gpu-1")


def test_a_node_that_the_file_does_not_have_is_refused():
    with pytest.raises(Refused, match="it has no node gpu-2"):
        expected(json.dumps(CAPACITY), "capacity.json", "gpu-2")


@pytest.mark.parametrize(
    ("labels", "status", "evidence"),
    [
        ({"nvidia.com/mig.config": "a", "nvidia.com/mig.config.state": "success"}, "passed", "a is applied"),
        ({"nvidia.com/mig.config": "a", "nvidia.com/mig.config.state": "pending"}, "failed", "still applying"),
        ({"nvidia.com/mig.config": "a", "nvidia.com/mig.config.state": "rebooting"}, "failed", "reboots the node"),
        ({"nvidia.com/mig.config": "a", "nvidia.com/mig.config.state": "failed"}, "failed", "failed to apply it"),
        ({"nvidia.com/mig.config": "a"}, "failed", "nvidia.com/mig.config.state=missing"),
        ({"nvidia.com/mig.config.state": "success"}, "failed", "nvidia.com/mig.config=missing"),
    ],
)
def test_the_state_of_the_operators_mig_manager(labels, status, evidence):
    node_labels = {"nvidia.com/mig.config": "a"}
    document = {**CAPACITY, "configurations": {"a": {"labels": {}, "node_labels": node_labels}}}
    wanted = expected(json.dumps(document), "capacity.json", "gpu-1")
    first = compare(node({"nvidia.com/gpu": "8"}, labels), wanted)[0]
    assert (first.name, first.status) == ("mig manager", status)
    assert evidence in first.evidence
    assert bool(first.next_step) is (status == "failed")
    of_host = expected(json.dumps(CAPACITY), "capacity.json", "gpu-1")
    checks = compare(node({"nvidia.com/gpu": "8"}, {**labels, "nvidia.com/mig.config.state": "failed"}), of_host)
    assert "mig manager" not in statuses(checks), "left over from before, and the host partitions now"


def test_a_node_can_show_other_labels_than_its_configuration():
    entry = {"configuration": "a", "resources": {"nvidia.com/gpu": 7}, "labels": {"nvidia.com/gpu.count": "7"}}
    document = {**CAPACITY, "nodes": {"gpu-1": entry}}
    wanted = expected(json.dumps(document), "capacity.json", "gpu-1")
    assert (wanted.resources, wanted.labels) == ({"nvidia.com/gpu": 7}, {"nvidia.com/gpu.count": "7"})


def test_what_a_device_plugin_left_on_a_node_of_dra_is_named():
    item = {"labels": {}, "sharing": {"mode": "none", "backend": "dra", "mps_of_host": False}}
    entry = {"configuration": "a", "resources": {}, "devices": {"gpu.nvidia.com": 1}}
    document = {"nodes": {"gpu-1": entry}, "configurations": {"a": item}}
    wanted = expected(json.dumps(document), "capacity.json", "gpu-1")
    assert statuses(compare(node({"cpu": "8"}), wanted, wanted.devices))["left over"] == "passed"
    found = compare(node({"cpu": "8", "nvidia.com/gpu": "0"}), wanted, wanted.devices)[-1]
    assert (found.name, found.status) == ("left over", "warning")
    assert (
        "still lists 0 of nvidia.com/gpu, left by a device plugin" in found.evidence
        and "kubelet_internal_checkpoint" in found.next_step
    )
    assert "left over" not in statuses(compare(node({"nvidia.com/gpu": "0"}), Expected({}, {})))


@pytest.mark.parametrize(
    ("sharing", "replicas"),
    [
        ({"mode": "mps", "backend": "mps", "mps_of_host": False}, {"nvidia.com/gpu": 10}),
        ({"mode": "mps", "backend": "mps", "mps_of_host": True}, {}),
        ({"mode": "mps", "backend": "hami", "mps_of_host": False}, {}),
        ({"mode": "time_slicing", "mps_of_host": False}, {}),
    ],
)
def test_where_the_device_plugin_runs_mps_a_rendered_file_says_what_its_daemon_is_told(sharing, replicas):
    item = {"labels": {}, "sharing": sharing, "slices": {"nvidia.com/gpu": {"replicas": 10}}}
    document = {**CAPACITY, "configurations": {"a": item}}
    assert expected(json.dumps(document), "capacity.json", "gpu-1").mps_replicas == replicas


def check(name, status):
    return Check(name, status, "e")


NOTHING = StagePlan("mig", False)


def stage(name, *steps, **given):
    return StagePlan(name, bool(steps or given), steps, **given)


@pytest.mark.parametrize(
    ("plan", "checks"),
    [
        (NOTHING, [("passed", "as described", "")]),
        (
            stage("mig", Step(Kind.RECORD_LAYOUT, "/etc/gpufleet/mig.json", "another one")),
            [("failed", "record layout /etc/gpufleet/mig.json (another one)", "Run gpufleet.nvidia.site")],
        ),
        # Who uses what changes is in the way of site.
        (stage("mig", Step(Kind.FINISH_MIG_CHANGE, "mig", "x", ("pod a",))), "Run gpufleet.nvidia.repartition"),
        (stage("driver", Step(Kind.FINISH_MIG_CHANGE, "mig", "x", ("pod a",))), "Run gpufleet.nvidia.upgrade"),
        (stage("runtime", Step(Kind.FINISH_MIG_CHANGE, "mig", "x", ("pod a",))), "Run gpufleet.nvidia.site"),
        (
            stage("sharing", Step(Kind.FINISH_MIG_CHANGE, "mig", "x", ("pod a",))),
            "Run gpufleet.nvidia.site, once nobody uses what it disturbs",
        ),
        (
            stage("mig", refusals=(Refused("nvidia_mig_layout", "it does not fit", "Ask for less."),)),
            [("failed", "nvidia_mig_layout: it does not fit", "Ask for less.")],
        ),
        (stage("mig", unknown="no driver"), [("failed", "not known: no driver", "Run gpufleet.nvidia.site")]),
        (stage("mig", unread="no packages"), [("failed", "not known: no packages", "Run gpufleet.nvidia.site")]),
        (StagePlan("mig", False, warnings=("one user.",)), [("warning", "one user", "")]),
    ],
)
def test_a_step_of_the_plan_is_a_failed_check_in_its_own_words(plan, checks):
    found = of_stages({plan.stage: plan})
    assert {one.name for one in found} == {f"stage {plan.stage}"}
    if isinstance(checks, str):
        assert [one.next_step for one in found] == [checks]
    else:
        assert [(one.status, one.evidence, one.next_step) for one in found] == checks


def test_what_is_done_alike_to_several_gpus_is_one_check_as_it_is_one_line_of_plan():
    steps = [
        Step(Kind.SET_COMPUTE_MODE, f"GPU-{n}", "it is default", (), {"index": n, "mode": "prohibited"}) for n in (0, 1)
    ]
    (one,) = of_stages({"sharing": stage("sharing", *steps)})
    assert "GPUs 0-1" in one.evidence


def test_description_function_and_node_are_one_list_and_the_first_failure_counts():
    node_checks = [
        check("node", "passed"),
        check("device plugin", "passed"),
        check("allocatable", "failed"),
        check("labels", "passed"),
    ]
    found = verification({"mig": NOTHING}, [check("pci", "passed"), check("mps", "failed")], node_checks)
    assert found.summary == "as described; does not work: mps, allocatable"
    assert found.as_dict()["failed_check"] == "mps" and not found.healthy
    shown_of = found.as_dict()["checks"]
    assert [one["group"] for one in shown_of] == ["description", *["function"] * 6]
    assert [item["name"] for item in shown_of] == [
        "stage mig",
        "pci",
        "mps",
        "node",
        "device plugin",
        "allocatable",
        "labels",
    ]
    wanting = verification({"mig": stage("mig", unknown="x")}, [check("pci", "passed")], None)
    assert wanting.summary == "not as described: stage mig; works" and not wanting.healthy


def test_a_healthy_host_says_how_many_warnings_it_has():
    assert verification({"mig": NOTHING}, [check("pci", "passed")], None).summary == "as described; works"
    assert (
        verification({"mig": NOTHING}, [check("persistence", "warning")], []).summary
        == "as described; works, 1 warnings"
    )


def shown(found):
    return [(item.name, item.status, item.evidence) for item in found.checks]


def test_checks_of_the_node_that_cannot_run_are_skipped_with_the_reason():
    reason = "no cluster was asked: gpu_cluster_kubeconfig is not set"
    assert shown(verification({}, [], None)) == [
        (name, "skipped", reason) for name in ("node", "device plugin", "allocatable", "labels")
    ]
    away = verification({}, [check("pci", "passed")], None, unasked="Failed to read node a: refused")
    assert shown(away)[1:] == [
        ("node", "failed", "Failed to read node a: refused"),
        ("device plugin", "skipped", "the check node failed"),
        ("allocatable", "skipped", "the check node failed"),
        ("labels", "skipped", "the check node failed"),
    ]
    assert shown(verification({}, [], [check("node", "failed")]))[1:] == shown(away)[2:]


def test_a_host_that_cannot_be_read_or_is_described_wrongly_is_not_healthy():
    unread = verification({}, None, None, unread="Failed to connect: timed out.")
    assert shown(unread) == [
        ("reach", "failed", "Failed to connect: timed out"),
        *((name, "skipped", "the check reach failed") for name in ("node", "device plugin", "allocatable", "labels")),
    ]
    wrong = StagePlan("variables", True, refusals=(Refused("nvidia_mig_layot", "no such variable", "Rename it."),))
    refused = verification({"variables": wrong}, [check("pci", "failed")], None)
    assert shown(refused)[:3] == [
        ("description", "failed", "nvidia_mig_layot: no such variable"),
        ("pci", "failed", "e"),
        ("node", "skipped", "the check description failed"),
    ]
