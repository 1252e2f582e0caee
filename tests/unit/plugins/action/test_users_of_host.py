# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses the hosts of a rollout, where no eviction takes that away: asked of all before the first, and of each in its turn."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import upgrade_node, upgrade_waves

from .rollouts import AT_A, EXPORTER, HOLDER, MPS_SERVER, TARGET, Nodes, node, plain_host

pytestmark = pytest.mark.usefixtures("run_folder", "renewed")


@pytest.fixture
def plan_plain(call):
    def do(host, check=False, **arguments):
        given = {"target": TARGET, "hosts": ["a"], "kubernetes": False, **arguments}
        return call(upgrade_waves, {"state": "planned", **given}, {**AT_A, "hostvars": {"a": host}}, check)

    return do


def test_without_a_cluster_a_host_with_users_is_refused_before_any_is_begun(plan_plain):
    result, _shown = plan_plain(plain_host(HOLDER, EXPORTER, MPS_SERVER))
    assert result["failed"]
    for part in ("host a, in use by python3 (PID 4711):", "gpu_node_drain_command", "gpu_node_disruption: force"):
        assert part in result["msg"]
    assert "4712" not in result["msg"] and "4713" not in result["msg"], "what the playbook stops itself"


@pytest.mark.parametrize(
    "host",
    [
        plain_host(EXPORTER, MPS_SERVER),
        plain_host(HOLDER, gpu_node_drain_command=["scontrol", "update"]),
        plain_host(HOLDER, gpu_node_disruption="force"),
        {**plain_host(HOLDER), "__gpu_upgrade_host": {"node": "a", "needed": False}},
    ],
)
def test_without_a_cluster_a_host_goes_that_is_free_or_emptied_or_allowed_or_has_nothing_to_do(plan_plain, host):
    assert "failed" not in plan_plain(host)[0]


def test_check_mode_says_what_would_be_and_counts_nothing_as_done(plan_plain, call):
    host = plain_host(HOLDER, gpu_node_disruption="force")
    _result, shown = plan_plain(host, check=True)
    assert "  would change a; would end the work of python3 (PID 4711); would reboot" in shown.text
    call(upgrade_waves, {"state": "next"}, {**AT_A, "hostvars": {"a": host}}, True)
    call(upgrade_node, {"node": "a", "state": "done", "kubernetes": False}, AT_A, True)
    call(upgrade_waves, {"state": "ended"}, AT_A, True)
    _result, shown = call(upgrade_waves, {"state": "finished"}, AT_A, True)
    assert "1 host would be changed" in shown.text and "Nothing was changed." in shown.text
    assert "done" not in shown.text


@pytest.mark.parametrize(("state", "refused"), [("started", True), ("rolling-back", True), ("evicting", False)])
@pytest.mark.parametrize("reason", ["", "CUDA error"])
def test_a_host_is_asked_once_more_in_its_turn_and_never_kept_from_going_back_after_a_failure(
    call, state, refused, reason
):
    given = {"node": "a", "state": state, "target": TARGET, "kubernetes": False, "reason": reason}
    result, _shown = call(upgrade_node, given, {**AT_A, **plain_host(HOLDER)})
    assert bool(result.get("failed")) == (refused and not reason), result


COMPUTES = {"pid": 4711, "name": "python3", "type": "C"}
POD = {"container_id": "c", "pod_uid": "u"}


@pytest.mark.parametrize(
    ("holders", "processes", "variables", "refused"),
    [
        ([HOLDER], [COMPUTES], {}, True),
        # Of Docker, for one.
        ([{**HOLDER, "container_id": "c"}], [COMPUTES], {}, True),
        ([HOLDER], [COMPUTES], {"gpu_node_disruption": "force"}, False),
        ([HOLDER], [COMPUTES], {"gpu_node_drain_command": ["scontrol"]}, False),
        ([{**HOLDER, "unit": "render.service"}], [COMPUTES], {"gpu_node_stop_services": ["render"]}, False),
        ([{**HOLDER, **POD}], [COMPUTES], {}, False),
        # A monitor, and a process that has ended meanwhile.
        ([HOLDER], [], {}, False),
        ([], [COMPUTES], {}, False),
    ],
)
def test_a_job_that_is_no_pod_keeps_its_node_from_being_upgraded(
    call, on_cluster, holders, processes, variables, refused
):
    """It would end with the reboot, and nothing evicts it."""
    cluster = on_cluster(Nodes("a"))
    host = plain_host(*holders, **variables)
    host["gpu_facts_host"]["gpu"]["gpus"][0]["processes"] = processes
    given = {"state": "planned", "target": TARGET, "hosts": ["a"]}
    found, _shown = call(upgrade_waves, given, {**AT_A, "hostvars": {"a": host}})
    assert bool(found.get("failed")) is refused
    if refused:
        assert (
            "host a, in use by python3 (PID 4711): they are no pods" in found["msg"]
            and "gpu_node_disruption: force" in found["msg"]
        )
        assert cluster.held["spec"]["holderIdentity"] is None, "the lease is not kept"


def used_by_a_job():
    host = plain_host(HOLDER)
    host["gpu_facts_host"]["gpu"]["gpus"][0]["processes"] = [COMPUTES]
    return host


def test_a_node_that_is_skipped_is_not_asked_for_jobs(call, on_cluster):
    class Skipping(Nodes):
        def nodes(self):
            return {**super().nodes(), "a": node(**{"gpufleet.github.io/upgrade.skip": "true"})}

    on_cluster(Skipping("a", "b"))
    hosts = {"a": used_by_a_job(), "b": plain_host()}
    hosts["b"]["__gpu_upgrade_host"]["node"] = "b"
    given = {"state": "planned", "target": TARGET, "hosts": ["a", "b"]}
    found, _shown = call(upgrade_waves, given, {**AT_A, "hostvars": hosts})
    assert found.get("order") == ["b"], found


@pytest.mark.parametrize(
    ("work", "state", "refused"),
    [
        ("upgrade", "started", True),
        ("migrate", "started", False),
        ("hand_over", "started", True),
        ("change_stack", "started", False),
        # By hand, and the playbook for it has no run of its own.
        ("", "rolling-back", True),
        ("upgrade", "evicting", False),
    ],
)
def test_a_node_is_asked_for_jobs_once_more_in_its_turn(call, on_cluster, work, state, refused):
    on_cluster(Nodes("a"))
    given = {"state": "planned", "target": TARGET, "hosts": ["a"], "work": work}
    if work:
        call(upgrade_waves, given, {**AT_A, "hostvars": {"a": plain_host()}})
    found, _shown = call(upgrade_node, {"node": "a", "state": state, "target": TARGET}, {**AT_A, **used_by_a_job()})
    assert bool(found.get("failed")) is refused, found
